"""Sharded: CPU time of a message over 1, 2 and 4 servers, in and out, by the clients and by the servers.

The machine is one, so servers share its cores, and seconds would show nothing. CPU time does: it is what each further
server adds. Turns are interleaved. `raw.json` keeps the CPU seconds of the client and of the servers apart.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Any

import psutil

from airflow_mq import MessageQueue, ShardedQueue, batch_processor
from airflow_mq.core.weight import UNLIMITED
from airflow_mq.store import parse, upgrade
from tests.benchmarks.contenders import Contender
from tests.benchmarks.drivers.common import messages
from tests.benchmarks.lab import SETTINGS, Lab, seconds_of
from tests.benchmarks.rows import Row, ratio
from tests.benchmarks.stats import Figure, Sample, pick
from tests.postgres_server import Server, running_postgres

SERVERS = (1, 2, 4)
#: Messages of a call. A call is divided among the servers, so it grows with them: each server gets calls of 1,000.
CALL = 1_000
#: A server shares this machine with three others.
SMALL = {**SETTINGS, "shared_buffers": "128MB", "max_wal_size": "2GB"}
WAYS = ("in", "single in", "out", "out by blocks")
#: One message of so many is sent by itself.
SINGLE = 40


def sharded(lab: Lab, contenders: list[Contender]) -> None:
    """Measure `sharded`: CPU seconds for so many messages per server."""
    each = lab.sizes.bulk
    with ExitStack() as stack:
        servers = [stack.enter_context(running_postgres("embedded", SMALL)) for _ in range(max(SERVERS))]
        plain = stack.enter_context(_Plain(servers[0]))
        fleets = {count: stack.enter_context(_Fleet(servers[:count])) for count in SERVERS}
        # The first turn connects and fills caches; it does not count.
        for turn in range(-1, lab.sizes.rounds):
            lab.say(f"sharded, round {turn + 1} of {lab.sizes.rounds}")
            for count, fleet in ((0, plain), *fleets.items()):
                for way, total, work in fleet.works(each):
                    sample = _measured(servers, total, work)
                    if turn >= 0:
                        lab.note("sharded", "ours", way, round=turn, servers=count, **sample)


def _measured(servers: Sequence[Server], count: int, work: Callable[[], object]) -> dict[str, Any]:
    # More servers get more messages: the collector of garbage may not look at them again and again.
    gc.collect()
    gc.freeze()
    server, client, start = _cpu(servers), time.process_time(), time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    gc.unfreeze()
    return {
        "count": count,
        "seconds": seconds,
        "client_cpu": time.process_time() - client,
        "server_cpu": _cpu(servers) - server,
    }


def _cpu(servers: Sequence[Server]) -> float:
    """Return the CPU seconds of the servers' processes so far; those that have ended count in hundredths."""
    total = 0.0
    for server in servers:
        main = psutil.Process(server.pid)
        for process in (main, *main.children()):
            total += seconds_of(process.pid)
        own = main.cpu_times()
        total += own.children_user + own.children_system
    return total


def _work(
    queue: Any, servers: int, each: int, shards: Callable[[], list[MessageQueue]]
) -> list[tuple[str, int, Callable[[], object]]]:
    """Service one shard after the other, as tasks of their own processes would."""
    count, single = each * servers, each // SINGLE * servers
    bulk, few = messages(count), messages(single)

    def send() -> None:
        source = iter(bulk)
        while call := list(islice(source, CALL * servers)):
            queue.enqueue_messages(call)

    def send_single() -> None:
        for origin, payload in few:
            queue.enqueue_message(origin, payload)

    def serve() -> None:
        assert sum(one.service_queues(_nothing, UNLIMITED).processed for one in shards()) == count + single

    def serve_by_blocks() -> None:
        assert sum(map(_by_one_block, shards())) == count

    return [
        ("in", count, send),
        ("single in", single, send_single),
        ("out", count + single, serve),
        ("in", count, send),
        ("out by blocks", count, serve_by_blocks),
    ]


def _by_one_block(queue: MessageQueue) -> int:
    block = queue.blocks.plan(limit=UNLIMITED)
    queue.blocks.report(block, (batch.answer() for batch in block.batches()))
    return queue.blocks.settle(block).processed


@batch_processor
def _nothing(batch: Any) -> list[bool]:
    return [True] * len(batch)


class _Plain:
    """A plain queue on one server, to compare with."""

    def __init__(self, server: Server) -> None:
        self.uri = _store(server)

    def __enter__(self) -> _Plain:
        self.queue = MessageQueue(self.uri)
        return self

    def __exit__(self, *error: object) -> None:
        self.queue.close()

    def works(self, each: int) -> list[tuple[str, int, Callable[[], object]]]:
        return _work(self.queue, 1, each, lambda: [self.queue])


class _Fleet:
    """A sharded queue over some servers."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self.uris = {f"s{number}": _store(server) for number, server in enumerate(servers)}

    def __enter__(self) -> _Fleet:
        self.queue = ShardedQueue(self.uris)
        self.queue.apply(dict.fromkeys(self.uris, 8))
        return self

    def __exit__(self, *error: object) -> None:
        self.queue.close()

    def works(self, each: int) -> list[tuple[str, int, Callable[[], object]]]:
        return _work(self.queue, len(self.uris), each, lambda: list(map(self.queue.shard, self.queue.shards)))


def _store(server: Server) -> str:
    uri = server.create_database()
    upgrade(parse(uri))
    return uri


def rows(samples: Sequence[Sample]) -> list[Row]:
    """Return messages per CPU second of further servers against one server, and of one server against a plain queue."""
    found = []
    for way in WAYS:
        one = _per_cpu_second(samples, way, 1)
        for count in SERVERS[1:]:
            figure = _per_cpu_second(samples, way, count)
            detail = f"{figure.median:,.0f} messages per CPU second" if figure else ""
            what = f"{way}, {count} servers against one, messages per CPU second"
            found.append(Row("sharded", what, ratio(figure, one), 0.9, detail=detail))
        plain = _per_cpu_second(samples, way, 0)
        detail = f"{one.median:,.0f} messages per CPU second" if one else ""
        found.append(
            Row("sharded", f"{way}, one server against a queue without shards", ratio(one, plain), detail=detail)
        )
    return found


def _per_cpu_second(samples: Sequence[Sample], way: str, servers: int) -> Figure | None:
    return Figure.of(
        sample["count"] / (sample["client_cpu"] + sample["server_cpu"])
        for sample in pick(samples, "sharded", "ours", variant=way, servers=servers)
    )
