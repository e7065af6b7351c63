"""Simulation: replay arrivals under several policies, and compare waits and shares.

A *scenario* lists what arrives before each block: written by hand, drawn from a seed, or recorded from a queue. A
*policy* defines how blocks are filled. `simulate` plans and settles every block with the production code, over a store
that is discarded. Its results equal those of real blocks with the same arrivals, if every message is done for its
predicted weight.
"""

from __future__ import annotations

from .picture import draw
from .recording import record
from .running import Simulated, SimulatedOrigin, simulate
from .scenario import Arrival, Policy, Scenario
from .scenario_files import read_scenario, write_scenario

__all__ = [
    "Arrival",
    "Policy",
    "Scenario",
    "Simulated",
    "SimulatedOrigin",
    "draw",
    "read_scenario",
    "record",
    "simulate",
    "write_scenario",
]
