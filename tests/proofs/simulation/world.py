"""World of a run: one ring, what was sent to it, and an observer that no fault can reach."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import psycopg

from airflow_mq import Address, MessageQueue, Peeked, RingConfig, Weight
from airflow_mq.engine.queue import session
from airflow_mq.engine.queue.blocks import settling
from airflow_mq.engine.queue.inspect.check import charges as check_charges
from airflow_mq.engine.queue.inspect.messages import peek
from airflow_mq.engine.queue.inspect.order import books_asked
from airflow_mq.engine.rules.blob import MAGIC, REFERENCE_BYTES, Reference
from airflow_mq.engine.store import blobs, charges, parse, upgrade
from airflow_mq.engine.store.working_set import writer
from airflow_mq.testing.conformance import one_moment
from tests.proofs.crash.states import TABLES

from .budgets import Budgets
from .clock import Clock, simulated_time
from .database import POSTGRES_CLOCK, REAL_CONNECT, simulated_postgres, simulated_sqlite
from .messages import PAYLOAD, Call, Messages, Violation
from .registers import Register
from .scheduler import Process, Scheduler

ORIGINS = ("a", "b", "c", "d/1", "d/2")
#: The origin with a quota.
FILLED = "filled"
#: Seconds that the observer waits for a lock: an actor that holds one does not run meanwhile.
OBSERVER_PATIENCE = 0.1
#: A block is settled in parts of two messages, and two rows ahead of a floor are many, if the setup has one of these
#: remainders of 8. No setup of the regressions has: their cuts keep their places.
IN_PARTS = (4, 6)
#: Microseconds of a day whose charges are added up, so that a run has many of them.
A_DAY = 60_000_000
#: Budgets over time of origins and paths, in runs whose setup has this bit.
BUDGETED = 1 << 40
BUDGETS: Mapping[str, Mapping[str, Any]] = {
    "a": {"rate": "40ms/hour", "burst": 6}, "b": {"rate": "30ms/minute"},
    "d": {"rate": "200ms/hour", "rate_bytes": "2kB/hour"}, "d/1": {"rate_bytes": "1kB/hour", "burst_bytes": 40},
}  # fmt: skip
#: Label of the ring that is in another store, if stores are files.
OTHER_STORE = "store"
#: External payloads in a row.
EXTERNAL = re.compile(b"(%s.{%d})" % (re.escape(MAGIC), REFERENCE_BYTES - len(MAGIC)), re.DOTALL)
#: Seconds for which an upload is kept: longer than a run, shorter than what passes before its ring is emptied.
KEEP_UPLOADS = 100_000.0
#: Bytes of all headers of a message: few, as each check reads them.
MAX_HEADERS = 600
#: Tables of the caller's own rows.
OWN_TABLE = "CREATE TABLE {} (ring TEXT NOT NULL, payload TEXT NOT NULL)"


def draw_config(seed: int) -> RingConfig:
    """Return the settings of a ring."""
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
        keep_uploads=KEEP_UPLOADS,
        max_headers=MAX_HEADERS,
    )


class Stores:
    """The stores on which runs take place, prepared once."""

    def __init__(self, folder: Path, postgres: str | None = None) -> None:
        """:param postgres: the address of a fresh database."""
        self.folder = folder
        upgrade(parse(f"sqlite:///{folder / 'template.db'}"))
        connection = sqlite3.connect(folder / "template.db")
        with connection:
            connection.execute(OWN_TABLE.format("sim_own"))
        connection.close()
        self._server = f"{postgres}?statement_timeout=120"
        if postgres is not None:
            upgrade(parse(self._server))
            with psycopg.connect(postgres) as opened:
                opened.execute(POSTGRES_CLOCK + OWN_TABLE.format("sim.own"))
        self._number = 0

    def fresh(self, store: str) -> tuple[str, str]:
        """Return the address of a store, and the name of a ring that it does not have."""
        self._number += 1
        if store == "postgres":
            return self._server, f"r{self._number}"
        for old in self.folder.glob("run*.db*"):
            old.unlink()
        return self._copied("run.db"), "r"

    def beside(self, label: str, uri: str, ring: str) -> tuple[str, str]:
        """Return the address and the name of another ring beside one that is fresh.

        Another store is a file of its own, with a ring of the same name. A server has all rings side by side.
        """
        if label == OTHER_STORE and uri.startswith("sqlite:"):
            return self._copied("run_beside.db"), ring
        return uri, f"{ring}-{label}"

    def _copied(self, name: str) -> str:
        shutil.copy(self.folder / "template.db", self.folder / name)
        return f"sqlite:///{self.folder / name}"


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
    #: Files whose lines are messages, each with the call that stands for it.
    files: dict[Path, Call] = field(default_factory=dict)


@dataclass(frozen=True)
class Expectation:
    """End of a message that follows from the reports of its block's workers."""

    block: int
    #: Whether it is processed.
    done: bool
    #: Whether a worker began it: without an outcome, it has an attempt then, and no attempt otherwise.
    begun: bool
    why: str


@dataclass
class World:
    """One ring and everything around it."""

    uri: str
    ring: str
    clock: Clock
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
    #: Numbers of the ends that waited for the holder of the ring at the last check; those that were spoiled at any time.
    waiting_ends: list[int] = field(default_factory=list)
    set_apart: set[int] = field(default_factory=set)
    #: Recorded ends that were seen, by the number of their block; and the last one that events show as applied.
    recorded: dict[int, int] = field(default_factory=dict)
    last_applied: int = 0
    #: Blocks and ordered queues in which a message returned.
    stopped: set[tuple[int, str]] = field(default_factory=set)
    #: Version of a ring that no process holds, with the ends that waited there at the last check.
    free_with_ends: tuple[int, Any] | None = None
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
    #: Name of a ring beside the ring of the run; empty for that one.
    label: str = ""
    #: Rings beside this one, to which its processors send.
    beside: Sequence[World] = ()
    #: Settings that actors change, by name.
    settings: dict[str, Register] = field(default_factory=dict)
    #: Whether `FILLED` may have a quota.
    has_quota: bool = False
    #: Budgets over time, with what they were charged.
    budgets: Budgets = field(default_factory=Budgets)
    #: What must become of messages of a block, by the id of the message.
    expected: dict[bytes, Expectation] = field(default_factory=dict)
    #: What actors found where the package catches every error.
    found: list[Violation] = field(default_factory=list)
    #: Results of the steps, to compare stores.
    results: list[str] = field(default_factory=list)
    #: Number of ended transactions at the last check.
    checked: int = -1
    checks: int = 0

    @property
    def rings(self) -> Sequence[World]:
        """The ring of the run, and those beside it."""
        return [self, *self.beside]

    def note(self, invariant: str, text: str) -> None:
        """Note a violation that an actor found inside a processor: a service takes it for an error of the processor."""
        self.found.append(Violation(invariant, text))

    def has_changed(self) -> bool:
        """Return whether what is stored may have changed since the last call."""
        before, self.version = self.version, self.scheduler.ended
        if self.watcher is not None:
            self.version = self.watcher.execute("PRAGMA data_version").fetchone()[0]
        return self.version != before

    @property
    def is_file(self) -> bool:
        """Whether the store is a file."""
        return self.store == "sqlite"

    def queue(self, process: Process) -> MessageQueue:
        """Return the queue of a process, opened if it has none."""
        key = f"queue {self.label}"
        queue = process.memory.get(key)
        if queue is None:
            queue = process.memory[key] = MessageQueue(self.uri, self.ring, actor=process.name)
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
        found: dict[Address, Peeked] = {}
        with one_moment(self.observer.store), self.observer.session.snapshot() as (unit, working_set):

            def take(name: str, page: int | None = None) -> None:
                found.update({one.address: one for one in peek(unit, working_set, name, page, 5_000)})

            for origin, footprint in self.observer.footprints(limit=100):
                if footprint.count or footprint.pages:
                    for name in books_asked(working_set, origin):
                        take(name)
            aside = (one.address for one in self.observer.set_aside.list(limit=5_000))
            for name, page in sorted({(at.book, at.page) for at in aside if at not in found}):
                take(name, page)
        return [replace(one, payload=self.whole(one.payload)) for one in found.values()]

    def whole(self, payload: bytes) -> bytes:
        """Return a payload itself, if it is external: a message has the hash of its payload as its id."""
        return self.messages.by_id[payload.hash].payload if isinstance(payload, Reference) else payload

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

    def delayed(self, due_after: int = 0) -> set[bytes]:
        """Return the payloads that have not joined their queues; readers see due ones there already."""
        found = set[bytes]()
        for heap, due in self.rows("delayed", "heap, due"):
            for part in [] if due <= due_after else EXTERNAL.split(bytes(heap)):
                is_external = part.startswith(MAGIC)
                found.update([self.whole(Reference.read(part)).rstrip(b".")] if is_external else PAYLOAD.findall(part))
        return found

    def leftovers(self) -> dict[str, int]:
        """Return the numbers of rows in tables that an empty ring does not need."""
        return {
            table: count
            for table in TABLES
            if table in ("inbox", "delayed", "page", "set_aside") and (count := self.rows(table)[0][0])
        }


@contextmanager
def a_world(
    stores: Stores, store: str, setup: int, scheduler: Scheduler, clock: Clock, *, beside: Sequence[str] = ()
) -> Iterator[World]:
    """Yield a world with a fresh ring, in simulated time.

    :param beside: labels of the rings beside it
    """
    uri, ring = stores.fresh(store)
    landing = stores.folder / "landing"
    shutil.rmtree(landing, ignore_errors=True)
    landing.mkdir()
    # A store refuses a token that it knows.
    names = Random(f"names {setup} {ring}")
    with ExitStack() as stack:
        stack.enter_context(simulated_time(clock))
        stack.enter_context(mock.patch("secrets.token_bytes", lambda count=32: names.randbytes(count)))
        for module in (charges, session, check_charges):
            stack.enter_context(mock.patch.object(module, "DAY", A_DAY))
        # An external payload has many pieces, and a sweep many steps.
        for name, number in (("CHUNK", 16), ("TOGETHER", 2), ("SWEPT", 2), ("REMOVED", 2)):
            stack.enter_context(mock.patch.object(blobs, name, number))
        if setup % 8 in IN_PARTS:
            stack.enter_context(mock.patch.object(settling, "PART", 2))
            stack.enter_context(mock.patch.object(writer, "MANY_AHEAD", 2))
        if store == "sqlite":
            stack.enter_context(simulated_sqlite(scheduler, clock))
        else:
            stack.enter_context(simulated_postgres(scheduler, clock, uri))
        world = stack.enter_context(_a_ring(uri, ring, setup, scheduler, clock, landing, store=store))
        world.beside = [
            stack.enter_context(
                _a_ring(
                    *stores.beside(label, uri, ring), setup + 1, scheduler, clock, landing,
                    store=store, label=label, met=world.met,
                )
            )
            for label in beside
        ]  # fmt: skip
        stack.callback(scheduler.close)
        yield world


@contextmanager
def _a_ring(
    uri: str, ring: str, setup: int, scheduler: Scheduler, clock: Clock, landing: Path, *, store: str, **more: Any
) -> Iterator[World]:
    """Yield a new ring, with its observer."""
    config = draw_config(setup)
    if setup % 3 == 0:
        config = config.changed(blob_path=str(landing.parent / f"payloads {ring}"))
    with MessageQueue(uri) as maker:
        maker.admin.create_ring(ring, config)
    budgets = Budgets(BUDGETS if setup & BUDGETED else {})
    if budgets.settings:
        with MessageQueue(uri, ring) as maker:
            for path, settings in budgets.settings.items():
                maker.admin.set_origin(path, **settings)
    with ExitStack() as stack:
        observer = stack.enter_context(MessageQueue(uri, ring, actor="observer", busy_timeout=OBSERVER_PATIENCE))
        # The events of an end follow when it is applied; until then its messages are where they were.
        session = observer.session
        session.fresh_working_set = lambda unit, names=None: session.stored_working_set(unit)  # type: ignore[method-assign]
        watcher = None
        if store == "sqlite":
            watcher = stack.enter_context(closing(REAL_CONNECT(uri.removeprefix("sqlite:///"))))
        yield World(
            uri, ring, clock, scheduler, observer, landing, store=store, watcher=watcher, budgets=budgets, **more
        )
