"""Examples to read and to run: what a message is, what processes it, and how the result is checked."""

from __future__ import annotations
