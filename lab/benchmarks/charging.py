"""Processor time that charges and budgets cost a block: `python -m lab.benchmarks.charging [--pairs 20] [--store URI]`.

Each pair has one block with what is measured and one without, in turns, on one ring. Without charges means that this
process replaces their arithmetic by nothing; a block with budgets has one for each queue, with enough left. The
program takes the processor time of planning and settling in this process, without that of a server. The last rows are
plans of 100 messages beside queues whose budget is exhausted, and `pulse()` there, on a ring without paths.
"""

from __future__ import annotations

import argparse
import gc
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from statistics import mean, median, stdev
from unittest.mock import patch

from airflow_mq import LinearWeigher, MessageQueue, RingConfig, Weight
from airflow_mq.engine.rules import service
from airflow_mq.engine.rules.weight import ZERO
from airflow_mq.engine.rules.working_set import WorkingSet
from airflow_mq.engine.store import parse, upgrade

#: Queues and messages of each, by the name of a load.
LOADS = {"claims of one message": (300, 1), "claims of 5,000 messages": (6, 5_000)}
#: Blocks of each side of a pair, in turns. The least time counts: other processes of a machine only add to it.
TURNS = 20
#: Numbers of exhausted queues, and of blocks that are planned beside them.
EXHAUSTED, BLOCKS = (0, 10_000, 100_000), 9
#: Quantile of Student's t for the upper end of an interval of 95 %, by the number of pairs.
T = {5: 2.776, 10: 2.262, 20: 2.093, 40: 2.023, 80: 1.990}
UNIT = LinearWeigher(Weight(1, 0), Weight(0, 0))


@contextmanager
def without_charges() -> Iterator[None]:
    """Let this process charge nothing."""
    with (
        patch.object(WorkingSet, "charge", lambda *_: None),
        patch.object(service, "charge_of_run", lambda *_: ZERO),
        patch.object(service, "charge_of", lambda *_, **__: ZERO),
    ):
        yield


def ring(uri: str, name: str) -> MessageQueue:
    """Return a new ring whose blocks have room for everything."""
    with MessageQueue(uri) as first:
        config = RingConfig(order="deficit", weigher=UNIT, service_weight=Weight(10_000_000, 1 << 40))
        first.admin.create_ring(name, config)
    return MessageQueue(uri, name)


def spent(work: Callable[[], object]) -> float:
    """Return the processor time of a piece of work."""
    began = time.process_time()
    work()
    return time.process_time() - began


def settled(queue: MessageQueue, around: Callable[[], AbstractContextManager[None]]) -> float:
    """Return the processor time of planning and settling all that waits."""
    gc.collect()
    with around():
        began = time.process_time()
        block = queue.blocks.plan()
        planned = time.process_time() - began
        queue.blocks.report(block, [batch.answer() for batch in block.batches()])
        return planned + spent(lambda: queue.blocks.settle(block))


def cost(pairs: Sequence[tuple[float, float]]) -> str:
    """Return the cost of pairs (with, without) and the ends of its interval of 95 %, in per cent."""
    ratios = [math.log(with_it / without) for with_it, without in pairs]
    middle, half = mean(ratios), T[len(pairs)] * stdev(ratios) / math.sqrt(len(pairs))
    low, found, high = (100 * (math.exp(value) - 1) for value in (middle - half, middle, middle + half))
    return f"{found:+.1f} % ({low:+.1f} to {high:+.1f})"


def pairs_of(
    count: int, sides: Sequence[tuple[MessageQueue, Callable[[], AbstractContextManager[None]]]], load: tuple[int, int]
) -> list[tuple[float, float]]:
    """Return processor times with and without, in turns; the first pair only warms up."""
    names, found = [f"queue-{number:04}" for number in range(load[0])], []
    for turn in range(count + 1):
        times: tuple[list[float], list[float]] = [], []
        for at in ((0, 1) if turn % 2 else (1, 0)) * TURNS:
            queue, around = sides[at]
            queue.enqueue_messages([(name, b"x" * 100) for name in names for _ in range(load[1])])
            times[at].append(settled(queue, around))
        found.append((min(times[0]), min(times[1])))
    return found[1:]


def beside_exhausted(uri: str, count: int) -> tuple[float, float]:
    """Return the processor time of a plan of 100 messages, and of `pulse`, beside exhausted queues."""
    queue, plans, pulses = ring(uri, f"exhausted-{count}"), [], []
    names = [f"x{number:06}" for number in range(count)]
    for name in names:
        queue.admin.set_origin(name, rate="1ms/hour", burst=1)
    for start in range(0, count, 10_000):
        queue.enqueue_messages([(name, b"x") for name in names[start : start + 10_000] for _ in range(3)])
    # The first message of each is covered; a plan exhausts the budget.
    finish = lambda block: queue.blocks.report(block, [batch.answer() for batch in block.batches()])  # noqa: E731
    while (block := queue.blocks.plan()).claims:
        finish(block)
        queue.blocks.settle(block)
    for _ in range(BLOCKS):
        queue.enqueue_messages([(f"y{number:03}", b"x") for number in range(100)])
        pulses.append(spent(queue.inspect.pulse))
        began = time.process_time()
        block = queue.blocks.plan()
        plans.append(time.process_time() - began)
        finish(block)
        assert queue.blocks.settle(block).processed == 100
    queue.close()
    return median(plans), median(pulses)


def main() -> None:
    """Measure, and print rows."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--pairs", type=int, choices=sorted(T), default=20)
    arguments.add_argument("--store", help="an empty store; by default, a new SQLite file")
    arguments.add_argument("--exhausted", type=int, nargs="*", default=EXHAUSTED)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        uri = given.store or f"sqlite:///{folder}/charging.db"
        upgrade(parse(uri))
        plain, budgeted = ring(uri, "plain"), ring(uri, "budgeted")
        for number in range(max(queues for queues, _ in LOADS.values())):
            budgeted.admin.set_origin(f"queue-{number:04}", rate="1000h/hour", burst=10**12)
        measures = {
            "charges": [(plain, nullcontext), (plain, without_charges)],
            "budgets": [(budgeted, nullcontext), (plain, nullcontext)],
        }
        for what, sides in measures.items():
            for name, load in LOADS.items():
                pairs = pairs_of(given.pairs, sides, load)
                times = " ".join(f"{1_000 * median(side):.1f}" for side in zip(*pairs))
                print(f"{what}, {name}: {cost(pairs)}; medians {times} ms", flush=True)
        for count in given.exhausted:
            plan, pulse = map(partial(round, ndigits=4), beside_exhausted(uri, count))
            print(f"beside {count:,} exhausted queues: plan {1_000 * plan:.1f} ms, pulse {1_000 * pulse:.1f} ms")


if __name__ == "__main__":
    main()
