"""Plot of 40 blocks of one run, in rotation and in deficit order."""

from __future__ import annotations

from airflow_mq.core.config import RingConfig
from airflow_mq.core.weight import Weight
from airflow_mq.simulating import Arrival, Policy, Scenario, Simulated, simulate

from .canvas import Canvas

BLOCKS = 40
LOUD = ("loud-1", "loud-2", "loud-3", "loud-4")
QUIET = "quiet"
COLOURS = dict(zip((*LOUD, QUIET), ("blue", "green", "purple", "muted", "orange")))
STEP = 12.4
LEFT, HEIGHT = 38, 130


def scenario() -> Scenario:
    """Return four senders with a large backlog, and one that sends four messages before each block."""
    floods = [Arrival(1, origin, 1_000, 100, Weight(10, 100)) for origin in LOUD]
    drops = [Arrival(block, QUIET, 4, 100, Weight(10, 100)) for block in range(1, BLOCKS + 1)]
    ring = RingConfig(service_weight=Weight(1_000, 1 << 20), rounds_per_block=16)
    return Scenario([*floods, *drops], blocks=BLOCKS, ring=ring, name="orders")


def draw() -> str:
    """Return the picture."""
    policies = [Policy("rotation", order="rotation"), Policy("deficit", order="deficit")]
    rotation, deficit = simulate(scenario(), policies)
    canvas = Canvas(
        496, "40 blocks in rotation and in deficit order",
        f"In rotation order a block serves one loud sender and quiet waits up to {_wait(rotation)} blocks. In deficit "
        f"order each block is shared and quiet waits at most {_wait(deficit)} blocks.",
    )  # fmt: skip
    _panel(canvas, 34, rotation, "Rotation order: one queue after the other")
    _panel(canvas, 250, deficit, "Deficit order: each block is shared")
    for x, origin in zip((24, 130, 236, 342, 448), COLOURS):
        canvas.box(x, 460, 18, 18, COLOURS[origin], radius=2)
        canvas.text(x + 25, 474, origin, small=True)
    return canvas.svg()


def _wait(run: Simulated) -> int:
    return run.origin(QUIET).longest_wait


def _panel(canvas: Canvas, y: float, run: Simulated, title: str) -> None:
    wait = _wait(run)
    canvas.text(24, y, title, bold=True)
    longest = f"{wait} block" if wait == 1 else f"{wait} blocks"
    canvas.text(24, y + 21, f"Longest wait of a message from quiet: {longest}", "muted", small=True)
    top = y + 34
    for at, block in enumerate(run.blocks):
        granted, floor = run.granted(block), top + HEIGHT
        for origin in (QUIET, *LOUD):
            height = HEIGHT * granted.get(origin, 0.0)
            if height:
                canvas.box(LEFT + at * STEP, floor - height, STEP - 2, height, COLOURS[origin], radius=0)
                floor -= height
    canvas.path(f"M{LEFT} {top + HEIGHT + 1} H{LEFT + BLOCKS * STEP}", "muted")
    canvas.text(24, top + HEIGHT + 17, "block", "muted", small=True)
    for number in (5, 10, 20, 30, 40):
        x = LEFT + (number - 0.5) * STEP - 1
        canvas.text(x, top + HEIGHT + 17, str(number), "muted", anchor="middle", small=True)
