"""Other transports as senders."""

from __future__ import annotations
