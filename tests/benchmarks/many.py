"""Cost of 100,000 new queues with 1,000,000 messages: `python -m tests.benchmarks.many`.

The first plan and the next one, fairness after some blocks, and the page's first data, beside a bare SQL
statement that brings as many inbox rows: no queue can be quicker than that. On an embedded store and on PostgreSQL; CPU is
of this process, so on PostgreSQL without the server's. Writes `report/many.md`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from airflow_mq import Block, LinearWeigher, MessageQueue, RingConfig, Weight
from airflow_mq.store import parse, upgrade
from tests.benchmarks.about import machine
from tests.postgres_server import running_postgres

REPORT = Path(__file__).resolve().parent / "report" / "many.md"
#: A block takes so many messages, in so many rounds: two of each queue that it meets first.
BLOCK, ROUNDS, BLOCKS = 1_000, 500, 20
#: So many arcs and rows the page shows at first.
ARCS, ROWS = 60, 50


class Took(NamedTuple):
    """Seconds of this process, and of the clock."""

    cpu: float
    wall: float


class Row(NamedTuple):
    """A line of the report: ours, beside the statement."""

    store: str
    step: str
    ours: Took
    bare: Took

    def line(self) -> str:
        """As Markdown."""
        ratios = f"{self.ours.cpu / self.bare.cpu:,.1f} | {self.ours.wall / self.bare.wall:,.1f}"
        cells = [f"{seconds * 1_000:,.1f}" for seconds in (*self.ours, *self.bare)]
        return f"| {self.store} | {self.step} | {' | '.join(cells)} | {ratios} |"


def timed(work: Callable[[], Any]) -> tuple[Took, Any]:
    """How long it takes, and what it returns."""
    cpu, wall = time.process_time(), time.perf_counter()
    found = work()
    return Took(time.process_time() - cpu, time.perf_counter() - wall), found


class Lab:
    """Make a store with many queues that no block has serviced."""

    def __init__(self, uri: str, origins: int, each: int, name: str) -> None:
        self.name = name
        upgrade(parse(uri))
        config = RingConfig(
            order="deficit", rounds_per_block=ROUNDS, service_weight=Weight(BLOCK, 1 << 40),
            weigher=LinearWeigher(Weight(1, 0), Weight(0, 0)),
        )  # fmt: skip
        with MessageQueue(uri) as first:
            first.admin.create_ring("many", config)
        self.queue = MessageQueue(uri, "many")
        names = [f"tenant-{number % 1000:04}/source-{number // 1000:03}" for number in range(origins)]
        for at in range(0, origins, 5_000):
            for _ in range(each):
                self.queue.enqueue_messages((one, b"x" * 100) for one in names[at : at + 5_000])

    def measured(self) -> Iterator[Row]:
        """All steps, in the order in which a new ring goes through them."""
        for step in ("first plan of newcomers", "next plan"):
            # Before ours, which cuts it: as many rows as the block takes, along the index that it goes along.
            bare = self.bare(f"mail WHERE ring = {self.queue.session.ring_id} ORDER BY origin, id LIMIT {BLOCK}")
            ours, block = timed(self.queue.blocks.plan)
            yield Row(self.name, step, ours, bare)
            self.settle(block)
        for _ in range(BLOCKS - 2):
            self.settle(self.queue.blocks.plan())
        bare = self.bare(f"mail WHERE ring = {self.queue.session.ring_id} GROUP BY origin", "origin, min(id)")
        yield Row(self.name, f"fairness() after {BLOCKS} blocks", timed(self.queue.inspect.fairness)[0], bare)
        bare = self.bare(
            f"mail WHERE ring = {self.queue.session.ring_id} ORDER BY origin, id LIMIT {10 * (ARCS + ROWS)}"
        )
        yield Row(self.name, "the page's first data", timed(self.first_data)[0], bare)

    def bare(self, what: str, columns: str = "origin, id, size, items, lengths, attributes") -> Took:
        """A statement alone, its rows in this process; the second time, when they are in memory."""
        with self.queue.store.reading() as unit:
            connection: Any = unit.connection  # type: ignore[attr-defined]
            text = f"SELECT {columns} FROM {self.queue.store.prefix}{what}"
            connection.execute(text).fetchall()
            return timed(lambda: connection.execute(text).fetchall())[0]

    def first_data(self) -> None:
        """Read the data of the overview and of the first page of queues."""
        self.queue.inspect.ring(ARCS)
        self.queue.inspect.queues(limit=ROWS)

    def settle(self, block: Block) -> None:
        """All of it done."""
        self.queue.blocks.report(block, [batch.answer() for batch in block.batches()])
        self.queue.blocks.settle(block)


def main() -> int:
    """Measure, print, and write the report."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.many", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--origins", type=int, default=100_000, help="how many queues (default: 100,000)")
    parser.add_argument("--each", type=int, default=10, help="messages of each (default: 10)")
    parser.add_argument("--out", type=Path, default=REPORT, help="where the report is written")
    options = parser.parse_args()
    here = machine()
    lines = [
        f"# {options.origins:,} queues, all of them new", "",
        f"One run of `python -m tests.benchmarks.many`: {options.each} messages of 100 bytes each, sent one from each "
        f"queue in turn; blocks of {BLOCK:,}. Milliseconds, and how many times a bare SQL statement that brings as many "
        "rows of mail. CPU is of the asking process: of the server's there is none in it. The first plan lets all "
        "newcomers enter the ring, which is paid once; the next one begins with a ring as it always is.", "",
        "| store | step | CPU | wall | bare CPU | bare wall | CPU ratio | wall ratio |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]  # fmt: skip
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mq-many-"))
        server = stack.enter_context(running_postgres("embedded"))
        uris = {"SQLite": f"sqlite:///{folder}/queue.db", "PostgreSQL": stack.enter_context(server.database())}
        for name, uri in uris.items():
            lab = Lab(uri, options.origins, options.each, name)
            with lab.queue:
                for row in lab.measured():
                    lines.append(row.line())
                    print(lines[-1], flush=True)
    lines += ["", *(f"- {key}: {value}" for key, value in here.items())]
    options.out.write_text("\n".join(lines) + "\n")
    print(f"see {options.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
