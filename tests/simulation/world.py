"""World of a run: one ring, what was sent to it, and an observer that no fault can reach."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import psycopg

from airflow_mq import Address, MessageQueue, Peeked, RingConfig, Weight
from airflow_mq.queue.blocks import settlement
from airflow_mq.store import parse, upgrade
from tests.crash.states import TABLES

from .beside import simulated_commits
from .clock import Clock, simulated_time
from .database import POSTGRES_CLOCK, REAL_CONNECT, Server, simulated_postgres, simulated_sqlite
from .messages import PAYLOAD, Call, Messages, Sent
from .scheduler import Process, Scheduler

ORIGINS = ("a", "b", "c", "d/1", "d/2")
#: Seconds that the observer waits for a lock: an actor that holds one does not run meanwhile.
OBSERVER_PATIENCE = 0.1
#: A block is settled in parts of two messages if the setup has one of these remainders of 8. No setup of the regressions
#: has: their cuts keep their places.
IN_PARTS = (4, 6)
#: Tables of the caller's own rows.
OWN_TABLE = "CREATE TABLE {} (ring TEXT NOT NULL, payload TEXT NOT NULL)"


def draw_config(seed: int, *, sharded: bool = False) -> RingConfig:
    """Return the settings of a ring. A shard forgets keys soon, so that its origins can leave."""
    random = Random(f"setup {seed}")
    order = random.choice(("deficit", "deficit", "deficit", "rotation", "shuffle"))
    return RingConfig(
        heap_size=random.choice((80, 120, 200, 400)),
        service_weight=Weight(random.choice((12, 30, 60)), 4_000),
        order=order,
        paths=order == "deficit" and random.random() < 0.3,
        ordered=random.random() < 0.75,
        max_stale=random.choice((0, 1, 3)),
        max_attempts=random.choice((None, None, 2, 4)),
        backoff=random.choice((0.0, 0.0, 30.0)),
        lease=random.choice((30.0, 60.0, 300.0)),
        set_aside_expires=random.choice((None, None, 3_600.0)),
        max_message_size=random.choice((None, None, 60)),
        rounds_per_block=random.choice((3, 10)),
        **({"key_window": random.choice((7_200.0, 7_200.0, 86_400.0))} if sharded else {}),
    )


class Stores:
    """The stores on which runs take place, prepared once."""

    def __init__(self, folder: Path, postgres: Sequence[str] = ()) -> None:
        """:param postgres: the addresses of fresh databases, one for each shard of a run."""
        self.folder = folder
        upgrade(parse(f"sqlite:///{folder / 'template.db'}"))
        connection = sqlite3.connect(folder / "template.db")
        with connection:
            connection.execute(OWN_TABLE.format("sim_own"))
        connection.close()
        self._servers = [f"{uri}?statement_timeout=120" for uri in postgres]
        for uri in postgres:
            upgrade(parse(f"{uri}?statement_timeout=120"))
            with psycopg.connect(uri) as opened:
                opened.execute(POSTGRES_CLOCK + OWN_TABLE.format("sim.own"))
        self._number = 0

    def fresh(self, store: str, names: Iterable[str] = ("",)) -> tuple[dict[str, str], str]:
        """Return addresses of stores by name, and the name of a ring that they do not have."""
        self._number += 1
        if store == "postgres":
            return dict(zip(names, self._servers)), f"r{self._number}"
        for old in self.folder.glob("run*.db*"):
            old.unlink()
        paths = {name: self.folder / f"run{name}.db" for name in names}
        for path in paths.values():
            shutil.copy(self.folder / "template.db", path)
        return {name: f"sqlite:///{path}" for name, path in paths.items()}, "r"


@dataclass
class Board:
    """Tokens that actors pass on to each other, as tasks do through XCom."""

    #: Tokens of blocks.
    blocks: list[str] = field(default_factory=list)
    #: Tokens of leased messages.
    tokens: list[str] = field(default_factory=list)
    #: Addresses of messages that were set aside, then or now.
    aside: list[Address] = field(default_factory=list)
    #: Calls of tasks that have no answer yet.
    tasks: list[Call] = field(default_factory=list)


@dataclass
class World:
    """One ring and everything around it."""

    uri: str
    ring: str
    server: Server
    scheduler: Scheduler
    observer: MessageQueue
    landing: Path
    messages: Messages = field(default_factory=Messages)
    board: Board = field(default_factory=Board)
    met: Counter[str] = field(default_factory=Counter)
    #: Origins whose order was relaxed, at any time.
    relaxed: set[str] = field(default_factory=set)
    #: Tokens of blocks that an actor asked to end.
    asked: set[str] = field(default_factory=set)
    #: Live blocks at the last check, with their deadlines.
    live: dict[str, int] = field(default_factory=dict)
    #: Token, end and holder of the ring's lease at the last check.
    lease: tuple[bytes | None, int, str] = (None, 0, "")
    #: Last event that was taken in.
    seen: int = 0
    store: str = "sqlite"
    #: A connection that writes nothing, to see whether others did; a server has none.
    watcher: sqlite3.Connection | None = None
    #: What the watcher saw last.
    version: int = 0

    @property
    def name(self) -> str:
        """Name of the shard; empty for a queue without shards."""
        return self.server.name

    @property
    def clock(self) -> Clock:
        """Clock of the database."""
        return self.server.clock

    @property
    def rings(self) -> Sequence[World]:
        """The rings to which a sender sends."""
        return [self]

    def calls(self, messages: Sequence[Sent]) -> list[Sequence[Sent]]:
        """Return the parts of a call that are stored whole or not at all."""
        return [messages]

    def has_changed(self) -> bool:
        """Return whether what is stored may have changed since the last call."""
        before, self.version = self.version, self.server.ended
        if self.watcher is not None:
            self.version = self.watcher.execute("PRAGMA data_version").fetchone()[0]
        return self.version != before

    @property
    def is_file(self) -> bool:
        """Whether the store is a file."""
        return self.store == "sqlite"

    def queue(self, process: Process) -> MessageQueue:
        """Return the queue of a process, opened if it has none."""
        queue = process.memory.get(f"queue {self.name}")
        if queue is None:
            queue = MessageQueue(self.uri, self.ring, actor=process.name)
            process.memory[f"queue {self.name}"] = queue
            process.connections.insert(0, queue.close)
        assert isinstance(queue, MessageQueue)
        return queue

    def own_connection(self, process: Process) -> Any:
        """Return a connection of the caller's own, beside the queue."""
        if self.is_file:
            path = self.uri.removeprefix("sqlite:///")
            return sqlite3.connect(path, timeout=10.0, isolation_level=None, check_same_thread=False)
        connection = psycopg.connect(self.uri.partition("?")[0], autocommit=True)
        return connection

    # What the observer sees.

    def stored(self) -> list[Peeked]:
        """Return every message that lies in a queue."""
        inspect, found = self.observer.inspect, {}
        for origin, footprint in self.observer.footprints(limit=100):
            if footprint.count or footprint.pages:
                found |= {one.address: one for one in inspect.peek(origin, limit=5_000)}
        aside = (one.address for one in self.observer.set_aside.list(limit=5_000))
        behind = {(at.origin, at.page, at.priority) for at in aside if at not in found}
        for origin, page, priority in sorted(behind):
            found.update({one.address: one for one in inspect.peek(origin, page=page, limit=5_000, priority=priority)})
        return list(found.values())

    def look(self) -> tuple[dict[bytes, Peeked], Counter[bytes], set[bytes]]:
        """Return the messages in queues, how often each lies there, and those that wait outside."""
        with self.scheduler.checking():
            stored, delayed = self.stored(), self.delayed()
        # What is reported elsewhere is as good as gone.
        times = Counter(one.payload for one in stored if one.state != "reported")
        order = sorted(stored, key=lambda one: one.state != "reported")
        return {one.payload: one for one in order}, times, delayed

    def rows(self, table: str, columns: str = "count(*)") -> list[Any]:
        """Return rows of the ring from a table."""
        store = self.observer.store
        with self.scheduler.checking(), store.reading() as unit:
            text = f"SELECT {columns} FROM {store.prefix}{table} WHERE ring = {self.observer.session.ring_id}"
            return unit.connection.execute(text).fetchall()  # type: ignore[attr-defined]

    def delayed(self) -> set[bytes]:
        """Return the payloads that have not joined their queues."""
        heaps = (bytes(heap) for (heap,) in self.rows("delayed", "heap"))
        return {payload for heap in heaps for payload in PAYLOAD.findall(heap)}

    def leftovers(self) -> dict[str, int]:
        """Return the numbers of rows in tables that an empty ring does not need."""
        return {
            table: count
            for table in TABLES
            if table in ("mail", "delayed", "page", "aside", "loan") and (count := self.rows(table)[0][0])
        }


@contextmanager
def simulated_stores(
    stores: Stores, store: str, setup: int, scheduler: Scheduler, clock: Clock, servers: Sequence[Server]
) -> Iterator[tuple[dict[str, str], str]]:
    """Simulate time and a fresh store for each server; yield their addresses, and the name of a ring to create."""
    uris, ring = stores.fresh(store, [server.name for server in servers])
    # A store refuses a token that it knows.
    names = Random(f"names {setup} {ring}")
    with ExitStack() as stack:
        stack.enter_context(simulated_time(clock))
        stack.enter_context(mock.patch("secrets.token_bytes", lambda count=32: names.randbytes(count)))
        if setup % 8 in IN_PARTS:
            stack.enter_context(mock.patch.object(settlement, "PART", 2))
        if store == "sqlite":
            files = {uris[server.name].rpartition("/")[2]: server for server in servers}
            stack.enter_context(simulated_sqlite(scheduler, clock, files))
        else:
            by_uri = {uris[server.name]: server for server in servers}
            stack.enter_context(simulated_postgres(scheduler, clock, by_uri))
            stack.enter_context(simulated_commits(scheduler))
        yield uris, ring


@contextmanager
def a_world(
    stores: Stores, store: str, uri: str, ring: str, server: Server, scheduler: Scheduler, **shared: Any
) -> Iterator[World]:
    """Yield the world of a ring that exists."""
    landing = stores.folder / "landing"
    shutil.rmtree(landing, ignore_errors=True)
    landing.mkdir()
    with ExitStack() as stack:
        observer = stack.enter_context(MessageQueue(uri, ring, actor="observer", busy_timeout=OBSERVER_PATIENCE))
        watcher = None
        if store == "sqlite":
            watcher = stack.enter_context(closing(REAL_CONNECT(uri.removeprefix("sqlite:///"))))
        yield World(uri, ring, server, scheduler, observer, landing, store=store, watcher=watcher, **shared)
