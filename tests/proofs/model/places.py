"""Places of messages in the rings of one store: a model in lists, driven by events, and the base of its machines.

The holder of messages (a token or a block) decides their fate; events report all other changes. So a held message
has one holder, a decided fate happens once, and a message without events stays in its place.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar
from zlib import crc32

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from airflow_mq import (
    Address,
    Block,
    Corrupt,
    Delivery,
    Done,
    LinearWeigher,
    MessageQueue,
    Report,
    RingConfig,
    Weight,
    Yield,
)
from airflow_mq.engine.rules.blob import Reference
from airflow_mq.engine.rules.errors import MessageQueueError
from airflow_mq.engine.rules.message import header_bytes, message_id
from airflow_mq.engine.rules.priority import HIGH, book_name, books_of, origin_of, priority_of
from tests.store.queue.callers import Caller

from .clock import SECOND, Clock
from .sides import block_facts

WAITING, ASIDE, GONE = "waiting", "set aside", "gone"
ORIGINS = ("a", "a/b", "c")
#: An origin has a regular book, and a high one.
BOOKS = (*ORIGINS, *(book_name(origin, HIGH) for origin in ORIGINS))
RINGS = (0, 1)
FINAL = {"Processed", "ProcessingFailed", "Transferred", "Discarded", "Expired"}
TRIED = {"Processed", "ProcessingFailed", "Returned"}
BACK = {"Returned", "AttemptsExhausted"}
DECIDED = {"Expired", "SetAside"}
#: Names of events in a message's history.
WORDS = {
    "Processed": "processed", "ProcessingFailed": "failed", "Transferred": "transferred", "Discarded": "discarded",
    "Expired": "expired", "Returned": "returned", "AttemptsExhausted": "set aside",
    "SetAside": "set aside", "Requeued": "requeued",
}  # fmt: skip
BACKOFFS = st.sampled_from([0.0, 15.0])
places = st.tuples(st.sampled_from(RINGS), st.sampled_from(ORIGINS))
books = places | st.tuples(st.sampled_from(RINGS), st.sampled_from(BOOKS))
rings = st.sampled_from(RINGS)
_names = itertools.count(1)
Place = tuple[int, str]


class _Brief:
    """An object with a one-line representation where steps are printed."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


@dataclass(eq=False, repr=False)
class Entry(_Brief):
    """A message in one place; a transferred message is another entry in its new place."""

    place: Place
    payload: bytes
    weight: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    expires: int | None = None
    attempts: int = 0
    state: str = WAITING
    holder: Holder | None = None
    #: Page and index, once they were read.
    at: tuple[int, int] = (-1, -1)
    #: Its steps so far.
    history: list[str] = field(default_factory=list)
    #: How often it waited aside, and whether it does so now.
    waits: int = 0
    is_away: bool = False

    @property
    def origin(self) -> str:
        return origin_of(self.place[1])

    @property
    def priority(self) -> str:
        return priority_of(self.place[1])

    @property
    def address(self) -> Address:
        return Address(self.origin, *self.at, self.priority)

    @property
    def id(self) -> bytes:
        return self.payload.hash if isinstance(self.payload, Reference) else message_id(self.payload)

    def __repr__(self) -> str:
        return f"<{self.payload[:12]!r} in {self.place} at {self.at}, {self.state}>"


@dataclass(eq=False, repr=False)
class Holder(_Brief):
    """A token or a block, its claimed messages, and their fates."""

    ring: int
    deadline: int
    #: Seconds of its lease.
    seconds: float
    #: Its representation on each store: token texts, or blocks.
    real: list[Any]
    #: Claimed entries and their promised event; `None` if the entry may be requeued.
    fates: dict[Entry, str | None]
    #: Entries that were decided without being handed out.
    decided: list[Entry] = field(default_factory=list)
    is_token: bool = True
    #: `reported`: waits for its settlement; `over`: settled.
    state: str = "held"

    def __repr__(self) -> str:
        return f"<{'token' if self.is_token else 'block'} in {self.ring}, {self.state}, of {list(self.fates)}>"

    @property
    def entry(self) -> Entry:
        (entry,) = self.fates
        return entry

    def secret(self, side: int) -> str:
        real = self.real[side]
        return real.token if isinstance(real, Block) else real.split("/")[1]


class Store:
    """The rings of one store, and a caller with a connection to it."""

    def __init__(self, uri: str, names: list[str], configs: list[RingConfig]) -> None:
        self.queues: list[MessageQueue] = []
        for name, config in zip(names, configs):
            with MessageQueue(uri) as maker:
                maker.admin.create_ring(name, config)
            self.queues.append(MessageQueue(uri, name, actor="the test"))
        self.seen = [0] * len(names)
        self.caller = Caller(uri, "driver")
        if self.caller.sqlite:
            self.caller.run("PRAGMA synchronous = OFF")
        self.caller.run("CREATE TABLE IF NOT EXISTS business (what text)")
        self.caller.commit()

    def count(self, table: str, where: str = "true") -> int:
        """Return the row count of a table."""
        (rows,) = self.caller.run(
            f"SELECT count(*) FROM {getattr(self.queues[0].store, 'prefix', 'mq_')}{table} WHERE {where}"
        )
        self.caller.rollback()
        return int(rows[0])

    def close(self) -> None:
        self.caller.close()
        for queue in self.queues:
            queue.close()


class Places(RuleBasedStateMachine):
    """Rules that send, service, plan, settle and decide; the invariants hold after each."""

    uris: ClassVar[list[str]]
    clock: ClassVar[Clock]
    met: ClassVar[Counter[str]]
    #: Books that receive messages.
    names: ClassVar[tuple[str, ...]] = ORIGINS

    def configs(self, draw: Callable[..., Any]) -> list[RingConfig]:
        """Return the settings of two rings; the second has smaller pages."""
        common: dict[str, Any] = {
            "order": draw(st.sampled_from(["deficit", "rotation", "shuffle"])), "max_stale": 0, "lease": 60.0,
            "service_weight": Weight(20, 20), "weigher": LinearWeigher(Weight(1, 0), Weight(0, 0)),
            "max_attempts": draw(st.sampled_from([None, 2])), "keep_uploads": 50.0, "rounds_per_block": 3,
        }  # fmt: skip
        configs = [
            RingConfig(heap_size=150, ordered=draw(st.booleans()), **common),
            RingConfig(heap_size=64, ordered=draw(st.booleans()), **common),
        ]
        return [config if config.ordered else config.changed(backoff=draw(BACKOFFS)) for config in configs]

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        number = next(_names)
        self.config = self.configs(data.draw)
        self.stores = [Store(uri, [f"places-{number}-{ring}" for ring in RINGS], self.config) for uri in self.uris]
        self.serial = itertools.count(1)
        self.example = number
        self.here: dict[Place, list[Entry]] = {(ring, book): [] for ring in RINGS for book in self.names}
        self.aside: list[Entry] = []
        self.gone: list[Entry] = []
        #: Entries that changed since the last check.
        self.changed: list[Entry] = []
        self.delayed: list[tuple[int, int, list[Entry]]] = []
        self.paused: set[Place] = set()
        self.holders: list[Holder] = []
        self.steps = 0
        self.send(data)

    def do(self, call: Callable[[Store], Any]) -> Any:
        """Return the common answer of all stores: a value, or the name of a refusal."""
        answers = []
        for store in self.stores:
            try:
                answers.append(call(store))
            except MessageQueueError as error:
                answers.append(type(error).__name__)
        assert all(answer == answers[0] for answer in answers), f"the stores disagree: {answers}"
        return answers[0]

    # State of the model.

    def entries(self, place: Place | None = None) -> list[Entry]:
        """Return the entries of a place, including set-aside ones."""
        lists = self.here.values() if place is None else [self.here[place]]
        return [entry for some in lists for entry in some] + [e for e in self.aside if place in (None, e.place)]

    def lives(self, holder: Holder) -> bool:
        return holder.state == "held" and holder.deadline > self.clock.now

    def holding(self, place: Place) -> set[Holder | None]:
        """Return the holders of an origin's messages in both priorities."""
        books = [(place[0], book) for book in books_of(origin_of(place[1]))]
        return {entry.holder for book in books for entry in self.here.get(book, ())} - {None}

    def in_flight(self, place: Place) -> bool:
        return bool(self.holding(place))

    def is_paused(self, place: Place) -> bool:
        return (place[0], origin_of(place[1])) in self.paused

    def next_of(self, place: Place) -> Entry | None:
        """Return the next message that can be taken."""
        if self.is_paused(place) or (self.config[place[0]].ordered and self.in_flight(place)):
            return None
        free = (entry for entry in self.here[place] if entry.holder is None)
        return next((entry for entry in free if entry.expires is None or entry.expires > self.clock.now), None)

    def put(self, entries: Iterable[Entry], due: int | None = None) -> None:
        """Store sent entries, at once or when they are due."""
        entries = list(entries)
        if due is not None:
            self.delayed.append((due, next(self.serial), entries))
            return
        for entry in entries:
            entry.is_away = False
            self.here[entry.place].append(entry)

    def join_due(self) -> None:
        for late in sorted(self.delayed, key=lambda delayed: delayed[:2]):
            if late[0] <= self.clock.now:
                self.delayed.remove(late)
                self.put(late[2])
        self.do(lambda store: [queue.admin.force_set_head("nobody") for queue in store.queues])

    def tidy(self, ring: int) -> None:
        """Mark holders as over that the next operation settles or releases."""
        for holder in self.holders:
            if holder.ring == ring and not self.lives(holder):
                holder.state = "over"

    # Rules that send, and service.

    def payload(self, data: st.DataObject, most: int) -> bytes:
        text = b"%d-" % next(self.serial)
        return text + b"x" * (data.draw(st.sampled_from([0, 0, 0, 20, 45, most]), "size") - len(text))

    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        """Enqueue several messages in one call; their inbox row may span three pages."""
        draw = data.draw
        ring, book = draw(books.filter(lambda place: place[1] in self.names))
        more: dict[str, Any] = {}
        if priority_of(book) == HIGH:
            more["priority"] = HIGH
        if draw(st.integers(0, 3)) == 0:
            more["expires"] = draw(st.sampled_from([0, 20, 20, 70]))
        if draw(st.integers(0, 5)) == 0:
            more["not_before"] = draw(st.sampled_from([-5, 10, 30]))
        if draw(st.integers(0, 3)) == 0:
            more["weight"] = Weight(draw(st.sampled_from([7, 13, 25])), 1)
        if draw(st.integers(0, 3)) == 0:
            more["headers"] = {"trace": str(next(self.serial))}
        payloads = [self.payload(data, self.config[ring].max_message_len) for _ in range(draw(st.integers(1, 6)))]
        sent = self.do(lambda store: store.queues[ring].enqueue_messages(origin_of(book), payloads, **more).count)
        if "expires" in more and more["expires"] <= more.get("not_before", more["expires"] - 1):
            # No message of the call could be processed.
            assert sent == "InvalidInput"
            return
        self.put(
            (self.entry((ring, book), payload, more) for payload in payloads),
            self.clock.now + more["not_before"] * SECOND if "not_before" in more else None,
        )
        self.join_due()

    def entry(self, place: Place, payload: bytes, more: dict[str, Any]) -> Entry:
        """Return an entry for a message with these options."""
        expires = self.clock.now + more["expires"] * SECOND if "expires" in more else None
        weight = more["weight"][0] if more.get("weight") else None
        return Entry(place, payload, weight, dict(more.get("headers") or {}), expires)

    @rule(data=st.data())
    def send_more(self, data: st.DataObject) -> None:
        self.send(data)

    def answer(self, payload: bytes, mood: int) -> Any:
        """Return the processor's answer; in mood 0 it is always done."""
        return (Done(), Done(), Corrupt(), Yield("later"), Yield("later"))[crc32(payload) % 5] if mood else Done()

    def look(self, delivery: Delivery) -> None:
        """Check a delivery as a processor sees it."""

    @precondition(lambda self: self.entries())
    @rule(ring=rings, mood=st.integers(0, 1), limit=st.sampled_from([(5, 5), (20, 20), (60, 60)]))
    def service(self, ring: int, mood: int, limit: tuple[int, int]) -> None:
        tried: list[list[tuple[str, bytes]]] = []

        def service(store: Store) -> int:
            mine: list[tuple[str, bytes]] = []
            tried.append(mine)

            def process(delivery: Delivery) -> Any:
                mine.append((book_name(delivery.origin, delivery.priority), delivery.payload))
                self.look(delivery)
                return self.answer(delivery.payload, mood)

            return store.queues[ring].service_queues(process, Weight(*limit), seed=b"seed").processed

        self.do(service)
        assert all(deliveries == tried[0] for deliveries in tried)
        for origin in self.names:
            mine = [payload for book, payload in tried[0] if book == origin]
            assert not (mine and (self.in_flight((ring, origin)) or self.is_paused((ring, origin))))
            # Order is first in, first out; a requeued message may be repeated, and others may be decided in between.
            mine = [payload for payload, _ in itertools.groupby(mine)]
            line = iter([entry.payload for entry in self.here[ring, origin]])
            assert all(payload in line for payload in mine), f"{mine} were tried, of {self.here[ring, origin]}"

    @precondition(lambda self: self.entries())
    @rule(ring=rings, lease=st.sampled_from([None, None, 0.0, 15.0]))
    def plan(self, ring: int, lease: float | None) -> None:
        self.tidy(ring)
        blocks: list[Block] = []

        def plan(store: Store) -> Any:
            blocks.append(store.queues[ring].blocks.plan(lease=lease, seed=b"seed"))
            return block_facts(blocks[-1])

        facts = self.do(plan)
        self.read_events()
        seconds = 60.0 if lease is None else lease
        holder = Holder(ring, self.clock.now + int(seconds * SECOND), seconds, blocks, {}, is_token=False)
        self.hold(holder, facts)

    def hold(self, holder: Holder, facts: tuple[Any, ...]) -> None:
        """Record the claims: each is the next unclaimed message."""
        for origin, runs in facts[4]:
            place = holder.ring, origin
            assert not self.is_paused(place)
            others = self.holding(place) - {holder}
            assert not (self.config[holder.ring].ordered and others), "two holders of an ordered origin"
            for page, first, count, _, decisions in runs:
                for at in range(first, first + count):
                    free = next(entry for entry in self.here[place] if entry.holder is None)
                    assert free.at == (page, at), "claimed out of order, or twice"
                    free.holder = holder
                    expired = free.expires is not None and free.expires <= self.clock.now
                    decision = dict(decisions).get(at)
                    assert expired is (decision == "EXPIRED")
                    if decision:
                        holder.decided.append(free)
                    else:
                        holder.fates[free] = None
        self.holders.append(holder)

    @precondition(lambda self: any(not holder.is_token for holder in self.holders))
    @rule(data=st.data(), release=st.sampled_from([False, False, True]), mood=st.integers(0, 1))
    def end_block(self, data: st.DataObject, release: bool, mood: int) -> None:
        """Report on some messages of a block, and settle it in time or late."""
        holder = data.draw(st.sampled_from([holder for holder in self.holders if not holder.is_token]))
        chosen = [entry for entry in holder.fates if data.draw(st.integers(0, 4))]
        answers = {entry: self.answer(entry.payload, mood) for entry in chosen}
        reports = [
            Report(entry.origin, *entry.at, entry.at[1], answer, entry.priority) for entry, answer in answers.items()
        ]
        side = itertools.count()

        def end(store: Store) -> Any:
            queue, block = store.queues[holder.ring], holder.real[next(side)]
            try:
                queue.blocks.report(block, reports)
            finally:
                (queue.blocks.release if release else queue.blocks.settle)(block)

        refused = self.do(end)
        if self.lives(holder):
            assert refused is None
            names = {Done: "Processed", Corrupt: "ProcessingFailed", Yield: None}
            holder.fates.update((entry, names[type(answer)]) for entry, answer in answers.items())
        else:
            assert refused == ("TokenRefused" if reports else None)
        holder.state = "over"

    # Rules that decide.

    @precondition(lambda self: self.entries())
    @rule(place=places, on=st.booleans())
    def pause(self, place: Place, on: bool) -> None:
        ring, origin = place
        was_paused, waited = place in self.paused, not on and self.end_backoff(place)
        (self.paused.add if on else self.paused.discard)(place)

        def pause(store: Store) -> bool | None:
            admin = store.queues[ring].admin
            return admin.pause(origin) if on else admin.resume(origin)

        assert self.do(pause) is (None if on else was_paused or waited)
        self.join_due()

    def end_backoff(self, place: Place) -> bool:
        """Let the messages of an origin that wait aside join their queues now; return whether there was any."""
        ring, origin = place
        mine = [
            late
            for late in self.delayed
            if late[0] > self.clock.now
            and late[2][0].waits
            and (late[2][0].place[0], origin_of(late[2][0].place[1])) == (ring, origin)
        ]
        for due, serial, entries in mine:
            self.delayed.remove((due, serial, entries))
            self.delayed.append((self.clock.now, serial, entries))
        return bool(mine)

    @precondition(lambda self: self.entries())
    @rule(place=places)
    def sweep(self, place: Place) -> None:
        swept = self.do(lambda store: store.queues[place[0]].sweep_queue(place[1]))
        if self.in_flight(place):
            assert swept == "InFlight"
            return
        assert isinstance(swept, int)
        for book in [book for book in self.names if origin_of(book) == place[1]]:
            line = self.here[place[0], book]
            self.changed += [entry for entry in (*self.aside, *line) if entry.place == (place[0], book)]
            for entry in line:
                entry.state = ASIDE
                entry.history.append("swept")
            self.aside += line
            self.here[place[0], book] = []

    @precondition(lambda self: self.aside)
    @rule(data=st.data(), how=st.sampled_from(["execute", "discard", "requeue", "requeue", "reap"]))
    def decide(self, data: st.DataObject, how: str) -> None:
        entry = data.draw(st.sampled_from(self.aside))
        ring, address = entry.place[0], entry.address

        def decide(store: Store) -> Any:
            queue = store.queues[ring]
            if how == "execute":
                return tuple(queue.execute_overweight(address, lambda delivery: self.look(delivery)))
            if how == "discard":
                return queue.set_aside.discard(address, "no use")
            if how == "reap":
                return queue.reap_page(address.origin, address.page, "old", priority=address.priority)
            return len(queue.set_aside.requeue(address).moved)

        result = self.do(decide)
        self.met[how] += not isinstance(result, str) and result != 0

    @precondition(lambda self: self.holders or self.delayed)
    @rule(seconds=st.sampled_from([1.0, 12.0, 30.0, 70.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.join_due()

    @precondition(lambda self: any(not self.lives(holder) for holder in self.holders))
    @rule(ring=rings)
    def housekeep(self, ring: int) -> None:
        self.tidy(ring)
        self.do(lambda store: store.queues[ring].admin.housekeep())

    # Invariants.

    def read_events(self) -> None:
        """Apply new events to the model; each concerns a known message, once."""
        for ring in RINGS:
            events_by_store: list[list[Any]] = []
            for store in self.stores:
                fresh = list(store.queues[ring].inspect.events(after=store.seen[ring]))
                store.seen[ring] = fresh[-1].seq if fresh else store.seen[ring]
                events_by_store.append(
                    [(e.name, book_name(e.origin, e.priority), e.page, e.index, e.id) for e in fresh]
                )
            assert all(Counter(events) == Counter(events_by_store[0]) for events in events_by_store)
            for name, origin, page, index, id_ in events_by_store[0]:
                if name in FINAL | BACK | DECIDED | {"Requeued"}:
                    self.become(name, self.entry_at((ring, origin), (page, index), id_))
        self.see_ended()

    def entry_at(self, place: Place, at: tuple[int, int], id_: bytes) -> Entry:
        mine = [entry for entry in self.entries(place) if entry.at == at]
        assert len(mine) == 1, f"an event about {place} at {at}, where {mine} lies"
        assert mine[0].id == id_
        return mine[0]

    def become(self, name: str, entry: Entry) -> None:
        self.met[name] += 1
        entry.history.append(WORDS[name])
        self.changed.append(entry)
        holder = entry.holder
        expired = entry.expires is not None and entry.expires <= self.clock.now
        assert expired or name != "Expired"
        if holder is None:
            assert name != "Transferred" and not (expired and entry.state == WAITING and name in TRIED)
        else:
            assert not self.lives(holder), f"{name} for {entry}, which has a live holder"
            promised = holder.fates.get(entry)
            if promised:
                assert name == promised
            elif entry in holder.decided:
                assert name in DECIDED
            else:
                assert name in BACK
                del holder.fates[entry]
                entry.holder, holder.state = None, "over"
        if name == "Returned":
            entry.attempts += 1
            self.wait_aside(entry)
            return
        entry.attempts += name == "AttemptsExhausted"
        (self.aside if entry.state == ASIDE else self.here[entry.place]).remove(entry)
        if name in FINAL:
            entry.state = GONE
            self.gone.append(entry)
        elif name == "Requeued":
            entry.state = WAITING
            self.here[entry.place].append(entry)
        else:
            entry.state = ASIDE
            self.aside.append(entry)

    def wait_aside(self, entry: Entry) -> None:
        """Let a message that returned leave its place until it is due, if its ring has a backoff."""
        config = self.config[entry.place[0]]
        if config.backoff:
            self.here[entry.place].remove(entry)
            entry.waits, entry.is_away = entry.waits + 1, True
            seconds = min(config.backoff * 2 ** (entry.attempts - 1), config.backoff_most)
            self.put([entry], self.clock.now + int(seconds * SECOND))
            self.met["waiting aside"] += 1

    def see_ended(self) -> None:
        """Remove ended holders; their promised fates have happened."""
        for holder in list(self.holders):
            states = [
                store.queues[holder.ring].blocks.get(holder.secret(side)).state
                for side, store in enumerate(self.stores)
            ]
            assert len(set(states)) == 1
            assert (states[0] != "planned") == (holder.state == "over") or not self.lives(holder)
            if states[0] == "planned":
                assert holder.state != "over", "the holder was not settled"
                continue
            self.holders.remove(holder)
            for entry, promised in holder.fates.items():
                assert (entry.state == GONE) is (promised is not None), f"{promised} was promised of {entry}"
                assert promised or not holder.is_token, "an attempt was not counted"
            for entry in (*holder.fates, *holder.decided):
                entry.holder = None

    def seen(self, entry: Entry) -> str:
        """Return the state that a reader sees."""
        if entry.holder is None:
            return WAITING
        return "reported" if entry.holder.fates.get(entry) else "in flight"

    def count(self, place: Place) -> int:
        """Count the messages of a place without reported ones."""
        return sum(self.seen(entry) != "reported" for entry in self.entries(place))

    def size(self, place: Place) -> int:
        """Return the size of the messages and headers of a place."""
        visible = (entry for entry in self.entries(place) if self.seen(entry) != "reported")
        return sum(len(entry.payload) + header_bytes(entry.headers) for entry in visible)

    def check_places(self) -> None:
        """Check that each message is in its place, and only there."""
        for place, line in self.here.items():
            ring, book = place
            expected = [(entry.payload, self.seen(entry), entry.attempts) for entry in line]
            for store in self.stores:
                queue = store.queues[ring]
                origin, priority = origin_of(book), priority_of(book)
                peeked = [
                    message
                    for message in queue.inspect.peek(origin, limit=500, priority=priority)
                    if message.state != ASIDE
                ]
                assert [(message.payload, message.state, message.attempts) for message in peeked] == expected, place
                assert [dict(message.headers) for message in peeked] == [entry.headers for entry in line]
                for message, entry in zip(peeked, line):
                    entry.at = (message.address.page, message.address.index)
        for ring in RINGS:
            expected_aside = {e.address for e in self.aside if e.place[0] == ring}
            for store in self.stores:
                queue = store.queues[ring]
                mine = {
                    origin: [sum(measure((ring, book)) for book in self.names if origin_of(book) == origin)
                             for measure in (self.count, self.size)]
                    for origin in ORIGINS
                }  # fmt: skip
                counts = {origin: [0, 0] for origin in ORIGINS}
                counts.update((origin, [footprint.count, footprint.size]) for origin, footprint in queue.footprints())
                assert counts == mine
                addresses = [aside.address for aside in queue.set_aside.list(limit=500)]
                assert len(addresses) == len(expected_aside) and set(addresses) == expected_aside

    @invariant()
    def everything_is_in_its_place(self) -> None:
        if not hasattr(self, "stores"):
            return
        self.steps += 1
        self.read_events()
        self.check_places()
        self.check_history_of(self.changed[-4:])
        self.changed.clear()
        for store in self.stores:
            for queue in store.queues:
                assert queue.check() == []

    @precondition(lambda self: self.gone or self.entries())
    @rule(data=st.data())
    def trace_some(self, data: st.DataObject) -> None:
        """Check the whole history of some messages, current or gone."""
        known = [*self.gone[-20:], *self.entries()]
        self.check_history_of(
            data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=4, unique=True), "messages")
        )

    def check_history_of(self, some: list[Entry]) -> None:
        for entry in some:
            held = entry.holder is not None and entry.state == WAITING
            for store in self.stores:
                history = store.queues[entry.place[0]].inspect.history(entry.address)
                words = [step.what for step in history.steps]
                assert history.state == ("in flight" if held else entry.state) and history.id == entry.id, (
                    f"{history} of {entry}"
                )
                assert words[0] == "enqueued" and history.addresses[-1] == entry.address
                assert [word for word in words if word in WORDS.values() or word == "swept"] == entry.history
                moves = entry.history.count("requeued") + entry.waits - entry.is_away
                assert len(history.addresses) == 1 + moves
                assert (history.due is not None) is entry.is_away
                assert (history.end.what if history.end else None) == (
                    entry.history[-1] if entry.state == GONE else None
                )
            self.met[f"history: {', '.join(entry.history[-2:])}"] += 1

    # Draining.

    @precondition(lambda self: self.steps > 15)
    @rule()
    def drain(self) -> None:
        """Complete or discard all messages, and check that the store is empty."""
        self.steps = 0
        for ring, origin in list(self.paused):
            self.pause((ring, origin), False)
        self.wait(1_000.0)
        for ring in RINGS:
            self.housekeep(ring)
        self.read_events()
        # What dead holders held may wait aside.
        self.wait(self.config[0].backoff_most)
        for ring in RINGS:
            assert isinstance(self.do(lambda store: empty(store.queues[ring])), int)  # noqa: B023
        self.forget_all()
        for store in self.stores:
            mine = "ring IN ({})".format(", ".join(str(queue.session.ring_id) for queue in store.queues))
            for table in ("inbox", "delayed", "page", "set_aside", "claim"):
                assert store.count(table, mine) == 0, f"something is left in {table}"
        self.met["drained"] += 1

    def forget_all(self) -> None:
        """Clear the model without following each event."""
        for store in self.stores:
            for ring in RINGS:
                for event in store.queues[ring].inspect.events(after=store.seen[ring]):
                    store.seen[ring] = event.seq
        self.here = {place: [] for place in self.here}
        self.aside, self.gone, self.changed = [], [], []
        assert not self.delayed and not self.holders

    def teardown(self) -> None:
        for store in getattr(self, "stores", ()):
            store.close()


def empty(queue: MessageQueue) -> int:
    """Complete all messages, and discard those that cannot be taken; return their number."""
    count = 0
    for token in queue.leases.view():
        token.complete()
        count += 1
    for origin in ORIGINS:
        queue.sweep_queue(origin)
        count += queue.set_aside.discard_all("no use", origin=origin)
    return count
