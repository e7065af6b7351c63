"""What would have happened under another policy: replay arrivals, and compare who waits and who gets what.

A *scenario* tells what arrives before which block: written by hand, drawn by a seed, or recorded from a
queue. A *policy* tells how blocks are filled. `simulate` plans and settles every block by the code that
does it in earnest, over a store that forgets; so it finds what real blocks find with the same arrivals, if
every message is done for what it was weighed at.
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
