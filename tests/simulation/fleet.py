"""Fleet of a run: one ring, or the rings that are the shards of a sharded queue, and what was sent to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from unittest import mock

from airflow_mq import MessageQueue, Peeked, ShardedQueue
from airflow_mq.core.errors import (
    CommitInDoubt,
    LayoutChanged,
    Refused,
    ShardsFailed,
    ShardUnavailable,
    StoreBusy,
)
from airflow_mq.sharding import Layout, members
from airflow_mq.sharding.router import adopted

from .clock import Clock
from .database import Server
from .messages import Messages, Sent, Violation
from .scheduler import Process, Scheduler
from .script import SHARDS, Script, Step
from .world import Board, Stores, World, a_world, draw_config, simulated_stores

#: Simulated seconds that a sender waits for a lock, or for the end of a change of the layout; and between two attempts.
PATIENCE, PAUSE = 5.0, 1.0
#: Seconds by which the clocks of servers differ from the first one.
OFFSETS = (0.0, 0.3, -2.0, 300.0, -7_200.0)
#: Kinds of actors that use the sharded queue. The others use the ring of one shard.
ROUTED = ("sender", "operator")


@dataclass
class Fleet:
    """The rings of a run by shard, and what was sent to them. It sends as a `World` does."""

    ring: str
    clock: Clock
    scheduler: Scheduler
    worlds: Mapping[str, World]
    messages: Messages
    met: Counter[str]
    board: Board = field(default_factory=Board)
    #: Results of the steps, to compare stores.
    results: list[str] = field(default_factory=list)
    #: Number of ended transactions at the last check.
    checked: int = -1
    checks: int = 0
    #: What the shards have adopted, and the simulated seconds since which.
    layouts: list[tuple[float, Mapping[str, Layout | None]]] = field(default_factory=list)

    @property
    def is_sharded(self) -> bool:
        """Whether the rings are shards."""
        return len(self.worlds) > 1

    @property
    def rings(self) -> Sequence[World]:
        """The rings to which a sender sends."""
        return [*self.worlds.values()]

    @property
    def store(self) -> str:
        """Kind of the databases."""
        return self.rings[0].store

    def ground(self, step: Step) -> World | Fleet:
        """Return what an actor works on: the only ring, the sharded queue, or the ring of a shard."""
        if not self.is_sharded:
            return self.rings[0]
        if step.actor.partition("-")[0] in ROUTED:
            return self
        present = sorted(self.newest.shards)
        return self.worlds[Random(f"shard {step.seed}").choice(present)]

    # What senders and operators use.

    def queue(self, process: Process) -> ShardedQueue:
        """Return the sharded queue of a process: mostly the one that it has, with the layout that it once read."""
        queue = process.memory.get("fleet")
        if queue is None or process.step.seed % 4 == 0:
            queue = process.memory["fleet"] = self.opened(process.name)
            process.connections.insert(0, queue.close)
        assert isinstance(queue, ShardedQueue)
        return queue

    def opened(self, actor: str) -> ShardedQueue:
        """Return a new sharded queue over all stores."""
        stores = {name: world.uri for name, world in self.worlds.items()}
        return ShardedQueue(stores, self.ring, busy_timeout=PATIENCE, actor=actor)

    def calls(self, messages: Sequence[Sent]) -> list[Sequence[Sent]]:
        """Return the parts of a call that are stored whole or not at all: at least the messages of one origin."""
        parts: dict[str, list[Sent]] = {}
        for sent in messages:
            parts.setdefault(sent.origin, []).append(sent)
        return [*parts.values()]

    def look(self) -> tuple[dict[bytes, Peeked], Counter[bytes], set[bytes]]:
        """Return the messages of all rings in queues, how often each lies there, and those that wait outside."""
        stored: dict[bytes, Peeked] = {}
        times, delayed = Counter[bytes](), set[bytes]()
        for world in self.rings:
            some, counts, outside = world.look()
            # What is reported elsewhere is as good as gone.
            stored |= {one: peeked for one, peeked in some.items() if one not in stored or peeked.state != "reported"}
            times += counts
            delayed |= outside
        return stored, times, delayed

    # Layouts and outages.

    @property
    def newest(self) -> Layout:
        """The newest layout."""
        return _newest(self.layouts[-1][1])

    def take_layouts(self) -> None:
        """Note what the shards have adopted now; of one that a change has locked, what it had adopted before."""
        before = self.layouts[-1][1] if self.layouts else {}
        now = dict(before)
        with self.scheduler.checking():
            for name, world in self.worlds.items():
                with suppress(StoreBusy):
                    now[name] = adopted(world.observer)
        for name, layout in before.items():
            if layout is not None and (after := now[name]) is not None and after.version < layout.version:
                raise Violation("layout", f"shard {name!r} went from version {layout.version} to {after.version}")
        if not self.layouts or before != now:
            self.layouts.append((self.clock.elapsed, now))
            self.met["layouts adopted"] += 1

    def note_troubles(self, process: Process) -> None:
        """Note, at the end of a step, which servers did not answer the process: it may spare them for a moment."""
        for name in self.troubled(process):
            process.troubles[name] = self.clock.elapsed

    def troubled(self, process: Process) -> set[str]:
        """Return the servers that may have failed a call in this step: they were down, or a fault happened there."""
        since = process.began - members.REST
        servers = [world.server for world in self.rings]
        down = {server.name for server in servers if server.is_down or server.up_since >= since}
        return down | {name for name, at in process.troubles.items() if at >= since}

    def explain(self, process: Process, messages: Sequence[Sent], error: Exception) -> None:
        """Raise a violation if a send fails, and no shard that its origin concerns was down or behind a change."""
        if isinstance(error, Refused):
            return
        failed = error.failed if isinstance(error, ShardsFailed) else {getattr(error, "shard", ""): error}
        unsent = {origin for origin, _ in error.unsent} if isinstance(error, ShardsFailed) else set()
        troubled, states = self.troubled(process), self._since(process.began - members.REST)
        is_late = self.clock.elapsed - process.began >= PATIENCE
        for name, problem in failed.items():
            if isinstance(problem, (StoreBusy, CommitInDoubt)):
                # Another writer has the file, or the connection was lost.
                troubled = troubled | set(self.worlds)
            elif isinstance(problem, ShardUnavailable) and problem.shard not in troubled:
                raise Violation("held up", f"{process.step!r}: {problem}")
            elif isinstance(problem, LayoutChanged) and not is_late and not any(map(_behind, states)):
                raise Violation("held up", f"{process.step!r}: every shard has the newest layout: {problem}")
            elif not isinstance(problem, (ShardUnavailable, LayoutChanged)) and not troubled:
                raise Violation("unexpected error", f"{process.step!r}: {name}: {problem}")
        if is_late and any(isinstance(problem, LayoutChanged) for problem in failed.values()):
            return
        for origin in unsent or {sent.origin for sent in messages}:
            if not any((_behind(state) | troubled) & _concerned(state, origin) for state in states):
                raise Violation("held up", f"{process.step!r}: no shard of {origin!r} was down or behind: {error}")

    def _since(self, seconds: float) -> list[Mapping[str, Layout | None]]:
        """Return the states of the shards since a time: a sender reads the layout anew at most once in `REST`."""
        before = [state for at, state in self.layouts if at < seconds]
        return [*before[-1:], *(state for at, state in self.layouts if at >= seconds)]


def _newest(state: Mapping[str, Layout | None]) -> Layout:
    return max(filter(None, state.values()), key=lambda layout: layout.version)


def _behind(state: Mapping[str, Layout | None]) -> set[str]:
    """Return the shards of the newest layout that have not adopted it."""
    newest = _newest(state)
    return {name for name in newest.shards if state[name] != newest}


def _concerned(state: Mapping[str, Layout | None], origin: str) -> set[str]:
    """Return the shards that a send to an origin asks."""
    newest = _newest(state)
    return {newest.owner(origin), *newest.former_owners(origin)}


def check_homes(fleet: Fleet) -> None:
    """Check that no message moves between shards, and that an origin has its messages and its pin in one shard."""
    homes: dict[str, str] = {}
    pins: dict[str, str] = {}
    messages = fleet.messages
    for world in fleet.rings:
        for (origin,) in world.rows("pin", "origin"):
            if (other := pins.setdefault(origin, world.name)) != world.name:
                raise Violation("one pin", f"{origin!r} is pinned in {other} and in {world.name}")
        stored, _, delayed = world.look()
        for sent in messages.by_id.values():
            if sent.payload not in stored and sent.payload.rstrip(b".") not in delayed:
                continue
            if (home := messages.homes.setdefault(sent.id, world.name)) != world.name:
                raise Violation("moved", f"{sent.payload!r} was in shard {home}, and is in {world.name}")
            # What processors send, and what is transferred, stays in the shard of its message.
            if sent.sender == "parents" or sent.id in messages.transferred:
                continue
            if (other := homes.setdefault(sent.origin, world.name)) != world.name:
                raise Violation("one shard", f"{sent.origin!r} has messages in {other} and in {world.name}")


@contextmanager
def a_fleet(stores: Stores, store: str, script: Script, scheduler: Scheduler, clock: Clock) -> Iterator[Fleet]:
    """Yield a fleet with fresh rings, in simulated time."""
    random = Random(f"fleet {script.setup}")
    names = SHARDS if script.sharded else ("",)
    differ = random.random() < 0.5
    clocks = [clock, *(Clock(clock, random.choice(OFFSETS) if differ else 0.0) for _ in names[1:])]
    servers = [Server(name, one) for name, one in zip(names, clocks)]
    messages, met, relaxed = Messages(), Counter[str](), set[str]()
    with ExitStack() as stack:
        uris, ring = stack.enter_context(simulated_stores(stores, store, script.setup, scheduler, clock, servers))
        config = draw_config(script.setup, sharded=script.sharded)
        for name in names:
            with MessageQueue(uris[name]) as maker:
                # A shard gets the settings of the others when it is added.
                maker.admin.create_ring(ring, config if name == names[0] else None)
        worlds = {
            server.name: stack.enter_context(
                a_world(
                    stores, store, uris[server.name], ring, server, scheduler,
                    messages=messages, met=met, relaxed=relaxed,
                )
            )
            for server in servers
        }  # fmt: skip
        fleet = Fleet(ring, clock, scheduler, worlds, messages, met)
        if script.sharded:
            stack.enter_context(mock.patch("airflow_mq.sharding.queue._PAUSE", PAUSE))
            # A thread of its own would be no actor: the shards are called one after the other.
            stack.enter_context(mock.patch.object(members.Member, "submit", members._immediate))
            with fleet.opened("maker") as queue:
                queue.apply({name: 1 for name in names[: random.choice((1, 2, 3))]})
            fleet.take_layouts()
        stack.callback(scheduler.close)
        yield fleet
