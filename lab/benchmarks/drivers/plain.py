"""The plain path on an embedded store, step by step: CPU seconds of each, as JSON.

Run by `lab.benchmarks.against` with the package of one commit or another in front, so it uses what both have: where
an older queue has no namespaces, `Calls` finds the methods under their older names.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow_mq import MessageQueue, Weight
from airflow_mq.engine.store import parse, upgrade

ORIGINS, EACH, CALLS = 400, 4, 60
LIMIT = Weight(1 << 40, 1 << 40)
PAYLOAD = b"x" * 100


class Calls:
    """The calls of the plain path whose names differ between commits."""

    def __init__(self, queue: Any) -> None:
        old = callable(queue.blocks)
        self.housekeep = queue.housekeep if old else queue.admin.housekeep
        self.plan = queue.plan_block if old else queue.blocks.plan
        self.report = queue.report if old else queue.blocks.report
        self.settle = queue.settle_block if old else queue.blocks.settle


def main(uri: str, rounds: int) -> dict[str, float]:
    """The least that each step took, but for the first round."""
    upgrade(parse(uri))
    taken: dict[str, list[float]] = {}
    with MessageQueue(uri) as queue:
        Calls(queue).housekeep()
        for _ in range(rounds + 1):
            _round(queue, taken)
    return {step: min(seconds[1:]) for step, seconds in taken.items()}


def _round(queue: MessageQueue, taken: dict[str, list[float]]) -> None:
    calls = Calls(queue)
    names = [f"origin-{number:04}" for number in range(ORIGINS)]
    mail = [(name, PAYLOAD) for name in names for _ in range(EACH)]

    @contextmanager
    def step(name: str) -> Iterator[None]:
        start = time.process_time()
        yield
        taken.setdefault(name, []).append(time.process_time() - start)

    with step("single"):
        for name in names[:CALLS]:
            queue.enqueue_message(name, PAYLOAD)
    with step("bulk"):
        queue.enqueue_messages(mail)
    with step("plan"):
        block = calls.plan(limit=LIMIT)
    batches = list(block.batches())
    with step("report"):
        calls.report(block, [batch.answer() for batch in batches])
    with step("settle"):
        calls.settle(block)
    queue.enqueue_messages(mail)
    with step("footprint"):
        for name in names[:CALLS]:
            queue.footprint(name)
    with step("service"):
        queue.service_queues(lambda _: None, limit=LIMIT)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))
