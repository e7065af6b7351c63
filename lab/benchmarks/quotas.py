"""Cost of a quota on PostgreSQL: throughput that senders keep, and the time of a check with many waiting messages.

    python -m lab.benchmarks.quotas [--pairs 9] [--seconds 1] [--senders 1 4 16] [--calls 1 10 1000]

Each sender is a process with a connection to two rings: one with a quota on its queue, one without. All senders take
turns together, a turn with the quota beside a turn without. The figures are medians of the pairs.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import psutil
import psycopg

from airflow_mq import MessageQueue
from airflow_mq.engine.store import parse
from airflow_mq.engine.store.rows import InboxRow
from airflow_mq.engine.store.schema import upgrade
from lab.arguments import at_least
from lab.benchmarks.lab import SETTINGS
from tests.postgres_server import running_postgres

FREE, BOUND, ORIGIN, PAYLOAD, QUOTA = "default", "bound", "acme", b"x" * 128, "5GiB"
#: Checks of one figure, and rows that one statement stores.
CHECKS, AT_ONCE = 2_000, 1_000


class Kept(NamedTuple):
    """Throughput of one kind of call."""

    senders: int
    call: int
    #: Messages a second without a quota, and the part that remains with one: of each pair, by time and by processor time.
    rate: float
    kept: Sequence[float]
    kept_by_work: Sequence[float]

    def __str__(self) -> str:
        low, _, high = statistics.quantiles(self.kept, n=4)
        return (
            f"| {self.senders} | {self.call:,} | {self.rate:,.0f} | {statistics.median(self.kept):.2f} "
            f"({low:.2f} to {high:.2f}) | {statistics.median(self.kept_by_work):.2f} |"
        )


def _send(uri: str, orders: Connection) -> None:
    """Send as ordered: ring, messages of a call, and until when; answer with the number of sent messages."""
    with MessageQueue(uri, FREE) as free, MessageQueue(uri, BOUND) as bound:
        queues = {FREE: free, BOUND: bound}
        orders.send(0)
        while order := orders.recv():
            ring, call, begin, end = order
            queue, payloads, count = queues[ring], [PAYLOAD] * call, 0
            time.sleep(max(begin - time.monotonic(), 0))
            while time.monotonic() < end:
                if call == 1:
                    queue.enqueue_message(ORIGIN, PAYLOAD)
                else:
                    queue.enqueue_messages(ORIGIN, payloads)
                count += call
            orders.send(count)


@contextmanager
def _senders(uri: str, count: int) -> Iterator[list[Connection]]:
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for _ in range(count):
        ours, theirs = context.Pipe()
        processes.append(context.Process(target=_send, args=(uri, theirs), daemon=True))
        processes[-1].start()
        pipes.append(ours)
    try:
        for pipe in pipes:
            pipe.recv()
        yield pipes
    finally:
        for pipe in pipes:
            pipe.send(None)
        for process in processes:
            process.join(30)


def _turn(pipes: Sequence[Connection], ring: str, call: int, seconds: float) -> tuple[float, float]:
    """Return the messages a second of one turn, and the seconds of processor time of each message on the machine."""
    begin, before = time.monotonic() + 0.05, _busy()
    for pipe in pipes:
        pipe.send((ring, call, begin, begin + seconds))
    count = sum(pipe.recv() for pipe in pipes)
    return count / (time.monotonic() - begin), (_busy() - before) / count


def _busy() -> float:
    """Return the processor time of this container's processes so far, in seconds."""
    with open("/proc/stat") as file:
        user, nice, system, *_ = map(int, file.readline().split()[1:])
    return (user + nice + system) / 100


def throughput(uri: str, senders: int, call: int, pairs: int, seconds: float) -> Kept:
    """Measure pairs of turns; each begins with the other ring than the one before."""
    rates: dict[str, list[float]] = {FREE: [], BOUND: []}
    work: dict[str, list[float]] = {FREE: [], BOUND: []}
    with _senders(uri, senders) as pipes:
        for pair in range(-1, pairs):
            _empty(uri)
            for ring in (FREE, BOUND) if pair % 2 else (BOUND, FREE):
                rate, spent = _turn(pipes, ring, call, seconds)
                # The first pair warms up.
                if pair >= 0:
                    rates[ring].append(rate)
                    work[ring].append(spent)
    kept = [bound / free for free, bound in zip(rates[FREE], rates[BOUND])]
    by_work = [free / bound for free, bound in zip(work[FREE], work[BOUND])]
    return Kept(senders, call, statistics.median(rates[FREE]), kept, by_work)


def _empty(uri: str) -> None:
    """Delete what senders stored: a long backlog slows down the later turns of both."""
    address = parse(uri)
    with psycopg.connect(autocommit=True, **address.conninfo()) as connection:
        tables = [f"{address.prefix}{name}" for name in ("inbox", "inbox_sum", "book", "page")]
        connection.execute(f"TRUNCATE {', '.join(tables)}".encode())
        connection.execute("CHECKPOINT")


def check(uri: str, waiting: int, row: int) -> tuple[float, float, float]:
    """Return the seconds of one check beyond an empty statement, of the server's processor, and within the server.

    The first two are of single statements, for each of which an idle machine wakes its processors; the third is of many
    checks in one statement.

    :param row: messages of one inbox row
    """
    with MessageQueue(uri, BOUND) as queue:
        heap = PAYLOAD * row
        rows = [InboxRow(ORIGIN, 0, len(heap), row, False, b"", b"", heap)] * AT_ONCE
        for _ in range(waiting // row // AT_ONCE):
            with queue.store.writing() as unit:
                queue.store.send(unit, queue.session.ring_id, rows)
        for _ in range(20):
            queue.enqueue_message(ORIGIN, PAYLOAD)
            queue.session.reread_config()
        checks, empty, spent = list[float](), list[float](), 0.0
        with queue.store.loose() as unit:
            server = psutil.Process(unit.connection.info.backend_pid)
            for _ in range(CHECKS):
                empty.append(_timed(unit.now))
            spent -= sum(server.cpu_times()[:2])
            for _ in range(CHECKS):
                checks.append(
                    _timed(lambda: queue.store.fullness(unit, queue.session.ring_id, {ORIGIN: 1}, has_paths=False))
                )
            spent += sum(server.cpu_times()[:2])
            call = (
                f"{parse(uri).prefix}fullness({queue.session.ring_id}::smallint, ARRAY['{ORIGIN}'], '{{1}}'::bigint[])"
            )
            many = f"DO $$BEGIN FOR i IN 1..{CHECKS} LOOP PERFORM * FROM {call}; END LOOP; END$$"
            within = _timed(lambda: unit.connection.execute(many.encode()))
        return statistics.median(checks) - statistics.median(empty), spent / CHECKS, within / CHECKS


def _timed(call: Any) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=at_least(2), default=9)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--senders", type=int, nargs="*", default=[1, 4, 16])
    parser.add_argument("--calls", type=int, nargs="*", default=[1, 10, 1000])
    parser.add_argument("--waiting", type=int, nargs="*", default=[0, 10_000, 1_000_000])
    options = parser.parse_args()
    with running_postgres("embedded", SETTINGS) as server, server.database() as uri:
        upgrade(parse(uri))
        with MessageQueue(uri, FREE) as free:
            free.admin.create_ring(BOUND)
        with MessageQueue(uri, BOUND) as bound:
            bound.admin.set_origin(ORIGIN, quota=QUOTA)
        print("| senders | messages of a call | a second without a quota | part kept | by processor time |")
        print("| --: | --: | --: | --: | --: |")
        for senders in options.senders:
            for call in options.calls:
                print(throughput(uri, senders, call, options.pairs, options.seconds), flush=True)
        print("| waiting | in rows of | ms of a check | of the server's processor | within the server |")
        print("| --: | --: | --: | --: | --: |")
        for waiting in options.waiting:
            for row in (1, 100):
                _empty(uri)
                figures = " | ".join(f"{seconds * 1e3:.2f}" for seconds in check(uri, waiting, row))
                print(f"| {waiting:,} | {row} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
