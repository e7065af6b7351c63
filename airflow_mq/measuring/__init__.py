"""What the steps of servicing cost on this store and this machine: a ring's costs, measured.

A real ring is made beside the store (a schema of the same database, a file in the same folder), its steps
are taken and timed, and everything of it is removed again. The user's rings are never touched.
"""

from __future__ import annotations

from .scratch import beside
from .steps import METHODS, Measured, costs_of, measure

__all__ = ["METHODS", "Measured", "beside", "costs_of", "measure"]
