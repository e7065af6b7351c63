"""Sharded queue: several stores as one logical queue, chosen by a hash of the origin."""

from __future__ import annotations

from .change import Drained
from .layout import Layout
from .members import Gathered
from .queue import ShardedQueue
from .router import Place
from .status import ShardStatus

__all__ = ["Drained", "Gathered", "Layout", "Place", "ShardStatus", "ShardedQueue"]
