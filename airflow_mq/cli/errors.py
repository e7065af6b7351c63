"""Errors of the command line."""

from __future__ import annotations


class UsageError(Exception):
    """An invalid command line."""
