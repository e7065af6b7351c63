"""A message queue in your own database, served fairly and within a weight budget."""

from __future__ import annotations

__version__ = "0.1.0"
