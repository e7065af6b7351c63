"""Measurement of the costs of a ring on this store and this machine.

A temporary ring is created beside the store: a schema of the same database, or a file in the same folder. Its steps are
timed, and all of it is removed again. The user's rings are never touched.
"""

from __future__ import annotations

from .scratch import beside
from .steps import METHODS, Measured, costs_of, measure

__all__ = ["METHODS", "Measured", "beside", "costs_of", "measure"]
