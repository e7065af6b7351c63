"""Plot of 40 blocks of one run, in rotation and in deficit order."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow_mq import LinearWeigher, MessageQueue, RingConfig, Weight
from airflow_mq.engine.rules.orders import parts_of
from airflow_mq.engine.store import parse, upgrade

from .canvas import Canvas

BLOCKS = 40
LOUD = ("loud-1", "loud-2", "loud-3", "loud-4")
QUIET = "quiet"
COLOURS = dict(zip((*LOUD, QUIET), ("blue", "green", "purple", "muted", "orange")))
LIMIT = Weight(1_000, 1 << 20)
EACH = LinearWeigher(Weight(10, 100), Weight(0, 0))
STEP = 12.4
LEFT, HEIGHT = 38, 130


@dataclass(frozen=True)
class Run:
    """Shares of 40 blocks, and the longest wait of a message from quiet, in blocks."""

    shares: Sequence[Mapping[str, float]]
    wait: int


def run(store: str, order: str) -> Run:
    """Plan and settle 40 blocks: four senders have a large backlog, one sends four messages before each block."""
    with MessageQueue(store) as queue:
        queue.admin.create_ring(order, RingConfig(order=order, service_weight=LIMIT, weigher=EACH, rounds_per_block=16))
    sent: deque[int] = deque()
    wait = 0
    with MessageQueue(store, order) as queue:
        for origin in LOUD:
            queue.enqueue_messages(origin, [bytes(100)] * 1_000)
        for number in range(1, BLOCKS + 1):
            queue.enqueue_messages(QUIET, [bytes(100)] * 4)
            sent += [number] * 4
            block = queue.blocks.plan()
            queue.blocks.report(block, [batch.answer() for batch in block.batches()])
            queue.blocks.settle(block)
            taken = [sent.popleft() for claim in block.claims if claim.origin == QUIET for _ in range(claim.messages)]
            wait = max([wait, *(number - since for since in taken)])
        pages = queue.inspect.ledger(limit=BLOCKS)
    wait = max([wait, *(BLOCKS - since + 1 for since in sent)])
    parts = parts_of(LIMIT)
    shares = [{entry.origin: parts(entry.granted) / parts(LIMIT) for entry in page.entries} for page in pages]
    return Run(shares[::-1], wait)


def draw() -> str:
    """Return the picture."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{Path(folder).resolve()}/store.db"
        upgrade(parse(store))
        rotation, deficit = run(store, "rotation"), run(store, "deficit")
    canvas = Canvas(
        496, "40 blocks in rotation and in deficit order",
        f"In rotation order a block serves one loud sender and quiet waits up to {rotation.wait} blocks. In deficit "
        f"order each block is shared and quiet waits at most {deficit.wait} blocks.",
    )  # fmt: skip
    _panel(canvas, 34, rotation, "Rotation order: one queue after the other")
    _panel(canvas, 250, deficit, "Deficit order: each block is shared")
    for x, origin in zip((24, 130, 236, 342, 448), COLOURS):
        canvas.box(x, 460, 18, 18, COLOURS[origin], radius=2)
        canvas.text(x + 25, 474, origin, small=True)
    return canvas.svg()


def _panel(canvas: Canvas, y: float, run: Run, title: str) -> None:
    canvas.text(24, y, title, bold=True)
    longest = f"{run.wait} block" if run.wait == 1 else f"{run.wait} blocks"
    canvas.text(24, y + 21, f"Longest wait of a message from quiet: {longest}", "muted", small=True)
    top = y + 34
    for at, granted in enumerate(run.shares):
        floor = top + HEIGHT
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
