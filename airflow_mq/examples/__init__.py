"""Examples to read and to run: messages, processors, and checks of the result."""

from __future__ import annotations
