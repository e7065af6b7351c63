"""Where each message is, over the rings of one store: a model in lists, told of by events, and what all machines over it share.

Whoever holds messages (a token, a block) says what becomes of them; everything else the events tell. So a message that
is held is nobody else's, what was said comes about once, and what nobody speaks of stays where it is.
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
from airflow_mq.core.blob import Reference
from airflow_mq.core.errors import MessageQueueError
from airflow_mq.core.message import header_bytes, message_id
from airflow_mq.core.priority import HIGH, book_name, books_of, origin_of, priority_of
from tests.queue.callers import Caller

from .clock import SECOND, Clock
from .sides import block_facts

WAITING, ASIDE, GONE = "waiting", "set aside", "gone"
ORIGINS = ("a", "a/b", "c")
#: An origin has a regular book, and a high one.
BOOKS = (*ORIGINS, *(book_name(origin, HIGH) for origin in ORIGINS))
RINGS = (0, 1)
FINAL = {"Processed", "ProcessingFailed", "Transferred", "Discarded", "Expired"}
TRIED = {"Processed", "ProcessingFailed", "WentBack"}
BACK = {"WentBack", "AttemptsExhausted"}
DECIDED = {"Expired", "OverweightEnqueued"}
#: What events are called in a message's story.
WORDS = {
    "Processed": "processed", "ProcessingFailed": "failed", "Transferred": "transferred", "Discarded": "discarded",
    "Expired": "expired", "WentBack": "went back", "AttemptsExhausted": "set aside",
    "OverweightEnqueued": "set aside", "Rejudged": "judged again",
}  # fmt: skip
places = st.tuples(st.sampled_from(RINGS), st.sampled_from(ORIGINS))
books = places | st.tuples(st.sampled_from(RINGS), st.sampled_from(BOOKS))
rings = st.sampled_from(RINGS)
_names = itertools.count(1)
Place = tuple[int, str]


class _Brief:
    """Written in one line where steps are printed."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


@dataclass(eq=False, repr=False)
class Entry(_Brief):
    """A message in one place. Handed on, it is another entry there."""

    place: Place
    payload: bytes
    weight: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    expires: int | None = None
    attempts: int = 0
    state: str = WAITING
    holder: Holder | None = None
    #: The page and the index, once somebody looked.
    at: tuple[int, int] = (-1, -1)
    #: What became of it so far.
    story: list[str] = field(default_factory=list)

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
    """A token or a block: what it holds, and what was said of that."""

    ring: int
    deadline: int
    #: What is known of it on each store: the texts of a token, or blocks.
    real: list[Any]
    #: What was handed out, and the event that was promised; none, if it may go back.
    fates: dict[Entry, str | None]
    #: What was decided without being handed out.
    decided: list[Entry] = field(default_factory=list)
    is_token: bool = True
    #: `said`: somebody will settle it; `over`: somebody has.
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
    """The rings on one store, and somebody who has a connection to it."""

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
        """The rows of a table."""
        (found,) = self.caller.run(
            f"SELECT count(*) FROM {getattr(self.queues[0].store, 'prefix', 'mq_')}{table} WHERE {where}"
        )
        self.caller.rollback()
        return int(found[0])

    def close(self) -> None:
        self.caller.close()
        for queue in self.queues:
            queue.close()


class Places(RuleBasedStateMachine):
    """Rules that send, service, plan, settle and decide; the invariants hold after each."""

    uris: ClassVar[list[str]]
    clock: ClassVar[Clock]
    met: ClassVar[Counter[str]]
    #: The books that something is sent to.
    names: ClassVar[tuple[str, ...]] = ORIGINS

    def configs(self, draw: Callable[..., Any]) -> list[RingConfig]:
        """Two rings; the second has smaller pages."""
        common: dict[str, Any] = {
            "order": draw(st.sampled_from(["deficit", "rotation", "shuffle"])), "max_stale": 0, "lease": 60.0,
            "service_weight": Weight(20, 20), "weigher": LinearWeigher(Weight(1, 0), Weight(0, 0)),
            "max_attempts": draw(st.sampled_from([None, 2])), "keep_uploads": 50.0, "rounds_per_block": 3,
        }  # fmt: skip
        return [
            RingConfig(heap_size=150, ordered=draw(st.booleans()), **common),
            RingConfig(heap_size=64, ordered=draw(st.booleans()), **common),
        ]

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
        #: Of whom there is news.
        self.news: list[Entry] = []
        self.delayed: list[tuple[int, int, list[Entry]]] = []
        self.paused: set[Place] = set()
        self.holders: list[Holder] = []
        self.steps = 0
        self.send(data)

    def do(self, call: Callable[[Store], Any]) -> Any:
        """What all stores answer: a value, or the name of a refusal."""
        found = []
        for store in self.stores:
            try:
                found.append(call(store))
            except MessageQueueError as error:
                found.append(type(error).__name__)
        assert all(one == found[0] for one in found), f"the stores disagree: {found}"
        return found[0]

    # What is where.

    def entries(self, place: Place | None = None) -> list[Entry]:
        """All that is there, set aside or not."""
        lists = self.here.values() if place is None else [self.here[place]]
        return [entry for some in lists for entry in some] + [e for e in self.aside if place in (None, e.place)]

    def lives(self, holder: Holder) -> bool:
        return holder.state == "held" and holder.deadline > self.clock.now

    def holding(self, place: Place) -> set[Holder | None]:
        """Whoever holds something of an origin, whatever its priority."""
        books = [(place[0], book) for book in books_of(origin_of(place[1]))]
        return {entry.holder for book in books for entry in self.here.get(book, ())} - {None}

    def in_flight(self, place: Place) -> bool:
        return bool(self.holding(place))

    def is_paused(self, place: Place) -> bool:
        return (place[0], origin_of(place[1])) in self.paused

    def next_of(self, place: Place) -> Entry | None:
        """The next message that somebody may take."""
        if self.is_paused(place) or (self.config[place[0]].ordered and self.in_flight(place)):
            return None
        free = (entry for entry in self.here[place] if entry.holder is None)
        return next((entry for entry in free if entry.expires is None or entry.expires > self.clock.now), None)

    def put(self, entries: Iterable[Entry], due: int | None = None) -> None:
        """What was sent is there."""
        entries = list(entries)
        if due is not None:
            self.delayed.append((due, next(self.serial), entries))
            return
        for entry in entries:
            self.here[entry.place].append(entry)

    def join_due(self) -> None:
        for late in sorted(self.delayed, key=lambda one: one[:2]):
            if late[0] <= self.clock.now:
                self.delayed.remove(late)
                self.put(late[2])
        self.do(lambda store: [queue.admin.force_set_head("nobody") for queue in store.queues])

    def tidy(self, ring: int) -> None:
        """Somebody came who settles what was completed, and releases what is past its deadline."""
        for holder in self.holders:
            if holder.ring == ring and not self.lives(holder):
                holder.state = "over"

    # Rules that send, and service.

    def payload(self, data: st.DataObject, most: int) -> bytes:
        text = b"%d-" % next(self.serial)
        return text + b"x" * (data.draw(st.sampled_from([0, 0, 0, 20, 45, most]), "size") - len(text))

    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        """A few messages in one call: one mail, which may lie over three pages."""
        draw = data.draw
        ring, one = draw(books.filter(lambda place: place[1] in self.names))
        more: dict[str, Any] = {}
        if priority_of(one) == HIGH:
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
        self.do(lambda store: store.queues[ring].enqueue_messages(origin_of(one), payloads, **more).count)
        self.put(
            (self.entry((ring, one), payload, more) for payload in payloads),
            self.clock.now + more["not_before"] * SECOND if "not_before" in more else None,
        )
        self.join_due()

    def entry(self, place: Place, payload: bytes, more: dict[str, Any]) -> Entry:
        """A message that was sent like this."""
        expires = self.clock.now + more["expires"] * SECOND if "expires" in more else None
        weight = more["weight"][0] if more.get("weight") else None
        return Entry(place, payload, weight, dict(more.get("headers") or {}), expires)

    @rule(data=st.data())
    def send_more(self, data: st.DataObject) -> None:
        self.send(data)

    def answer(self, payload: bytes, mood: int) -> Any:
        """What a processor answers; in a good mood it is done with everything."""
        return (Done(), Done(), Corrupt(), Yield("later"), Yield("later"))[crc32(payload) % 5] if mood else Done()

    def look(self, delivery: Delivery) -> None:
        """What a processor sees of a message."""

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
        assert all(one == tried[0] for one in tried)
        for origin in self.names:
            mine = [payload for whose, payload in tried[0] if whose == origin]
            assert not (mine and (self.in_flight((ring, origin)) or self.is_paused((ring, origin))))
            # First in, first out; one that went back comes again, and what is between was decided about on the way.
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
        self.hear()
        holder = Holder(
            ring, self.clock.now + int((60.0 if lease is None else lease) * SECOND), blocks, {}, is_token=False
        )
        self.hold(holder, facts)

    def hold(self, holder: Holder, facts: tuple[Any, ...]) -> None:
        """Take note of what is claimed: each the next that nobody holds."""
        for origin, runs in facts[4]:
            place = holder.ring, origin
            assert not self.is_paused(place)
            others = self.holding(place) - {holder}
            assert not (self.config[holder.ring].ordered and others), "two hold an ordered origin"
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
        """Report on some of a block, and settle it, in time or not."""
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
        (self.paused.add if on else self.paused.discard)(place)
        ring, origin = place

        def pause(store: Store) -> None:
            if on:
                store.queues[ring].admin.pause(origin)
            else:
                store.queues[ring].admin.resume(origin)

        assert self.do(pause) is None

    @precondition(lambda self: self.entries())
    @rule(place=places)
    def sweep(self, place: Place) -> None:
        told = self.do(lambda store: store.queues[place[0]].sweep_queue(place[1]))
        if self.in_flight(place):
            assert told == "InFlight"
            return
        assert isinstance(told, int)
        for book in [book for book in self.names if origin_of(book) == place[1]]:
            line = self.here[place[0], book]
            self.news += [entry for entry in (*self.aside, *line) if entry.place == (place[0], book)]
            for entry in line:
                entry.state = ASIDE
                entry.story.append("swept")
            self.aside += line
            self.here[place[0], book] = []

    @precondition(lambda self: self.aside)
    @rule(data=st.data(), how=st.sampled_from(["execute", "discard", "judge again", "judge again", "reap"]))
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

        found = self.do(decide)
        self.met[how] += not isinstance(found, str) and found != 0

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

    # What is always true.

    def hear(self) -> None:
        """Take note of what events tell; nobody else's messages, and nothing twice."""
        for ring in RINGS:
            told: list[list[Any]] = []
            for store in self.stores:
                fresh = list(store.queues[ring].inspect.events(after=store.seen[ring]))
                store.seen[ring] = fresh[-1].seq if fresh else store.seen[ring]
                told.append([(e.name, book_name(e.origin, e.priority), e.page, e.index, e.id) for e in fresh])
            assert all(Counter(one) == Counter(told[0]) for one in told)
            for name, origin, page, index, id_ in told[0]:
                if name in FINAL | BACK | DECIDED | {"Rejudged"}:
                    self.become(name, self.found((ring, origin), (page, index), id_))
        self.see_ended()

    def found(self, place: Place, at: tuple[int, int], id_: bytes) -> Entry:
        mine = [entry for entry in self.entries(place) if entry.at == at]
        assert len(mine) == 1, f"an event about {place} at {at}, where {mine} lies"
        assert mine[0].id == id_
        return mine[0]

    def become(self, name: str, entry: Entry) -> None:
        self.met[name] += 1
        entry.story.append(WORDS[name])
        self.news.append(entry)
        holder = entry.holder
        expired = entry.expires is not None and entry.expires <= self.clock.now
        assert expired or name != "Expired"
        if holder is None:
            assert name != "Transferred" and not (expired and entry.state == WAITING and name in TRIED)
        else:
            assert not self.lives(holder), f"{name} for {entry}, which somebody holds"
            promised = holder.fates.get(entry)
            if promised:
                assert name == promised
            elif entry in holder.decided:
                assert name in DECIDED
            else:
                assert name in BACK
                del holder.fates[entry]
                entry.holder, holder.state = None, "over"
        if name == "WentBack":
            entry.attempts += 1
            return
        entry.attempts += name == "AttemptsExhausted"
        (self.aside if entry.state == ASIDE else self.here[entry.place]).remove(entry)
        if name in FINAL:
            entry.state = GONE
            self.gone.append(entry)
        elif name == "Rejudged":
            entry.state = WAITING
            self.here[entry.place].append(entry)
        else:
            entry.state = ASIDE
            self.aside.append(entry)

    def see_ended(self) -> None:
        """Who holds nothing any more; what was promised has come about by then."""
        for holder in list(self.holders):
            states = [
                store.queues[holder.ring].blocks.get(holder.secret(side)).state
                for side, store in enumerate(self.stores)
            ]
            assert len(set(states)) == 1
            assert (states[0] != "planned") == (holder.state == "over") or not self.lives(holder)
            if states[0] == "planned":
                assert holder.state != "over", "nobody settled it"
                continue
            self.holders.remove(holder)
            for entry, promised in holder.fates.items():
                assert (entry.state == GONE) is (promised is not None), f"{promised} was promised of {entry}"
                assert promised or not holder.is_token, "a try was not counted"
            for entry in (*holder.fates, *holder.decided):
                entry.holder = None

    def seen(self, entry: Entry) -> str:
        """The state in which somebody who looks finds it."""
        if entry.holder is None:
            return WAITING
        return "reported" if entry.holder.fates.get(entry) else "in flight"

    def count(self, place: Place) -> int:
        """How many messages are there; what is reported is as good as gone."""
        return sum(self.seen(entry) != "reported" for entry in self.entries(place))

    def size(self, place: Place) -> int:
        """How many bytes are there, headers included."""
        left = (entry for entry in self.entries(place) if self.seen(entry) != "reported")
        return sum(len(entry.payload) + header_bytes(entry.headers) for entry in left)

    def look_around(self) -> None:
        """Each message is in its place, and only there."""
        for place, line in self.here.items():
            ring, book = place
            expected = [(entry.payload, self.seen(entry), entry.attempts) for entry in line]
            for store in self.stores:
                queue = store.queues[ring]
                origin, priority = origin_of(book), priority_of(book)
                peeked = [one for one in queue.inspect.peek(origin, limit=500, priority=priority) if one.state != ASIDE]
                assert [(one.payload, one.state, one.attempts) for one in peeked] == expected, place
                assert [dict(one.headers) for one in peeked] == [entry.headers for entry in line]
                for one, entry in zip(peeked, line):
                    entry.at = (one.address.page, one.address.index)
        for ring in RINGS:
            expected_aside = {e.address for e in self.aside if e.place[0] == ring}
            for store in self.stores:
                queue = store.queues[ring]
                mine = {
                    origin: [sum(of((ring, book)) for book in self.names if origin_of(book) == origin)
                             for of in (self.count, self.size)]
                    for origin in ORIGINS
                }  # fmt: skip
                counts = {origin: [0, 0] for origin in ORIGINS}
                counts.update((origin, [its.count, its.size]) for origin, its in queue.footprints())
                assert counts == mine
                found = [one.address for one in queue.set_aside.list(limit=500)]
                assert len(found) == len(expected_aside) and set(found) == expected_aside

    @invariant()
    def everything_is_in_its_place(self) -> None:
        if not hasattr(self, "stores"):
            return
        self.steps += 1
        self.hear()
        self.look_around()
        self.tell_of(self.news[-4:])
        self.news.clear()
        for store in self.stores:
            for queue in store.queues:
                assert queue.check() == []

    @precondition(lambda self: self.gone or self.entries())
    @rule(data=st.data())
    def tell(self, data: st.DataObject) -> None:
        """The whole story of some messages, here or gone, is what became of them, in order."""
        known = [*self.gone[-20:], *self.entries()]
        self.tell_of(data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=4, unique=True), "of whom"))

    def tell_of(self, some: list[Entry]) -> None:
        for entry in some:
            held = entry.holder is not None and entry.state == WAITING
            for store in self.stores:
                told = store.queues[entry.place[0]].inspect.history(entry.address)
                words = [step.what for step in told.steps]
                assert told.state == ("in flight" if held else entry.state) and told.id == entry.id, (
                    f"{told} of {entry}"
                )
                assert words[0] == "enqueued" and told.addresses[-1] == entry.address
                assert [one for one in words if one in WORDS.values() or one == "swept"] == entry.story
                assert len(told.addresses) == 1 + entry.story.count("judged again")
                assert (told.end.what if told.end else None) == (entry.story[-1] if entry.state == GONE else None)
            self.met[f"told: {', '.join(entry.story[-2:])}"] += 1

    # And at the end nothing is left.

    @precondition(lambda self: self.steps > 15)
    @rule()
    def drain(self) -> None:
        """Everything is taken and completed, and what is set aside is discarded: the store is as empty as at first."""
        self.steps = 0
        for ring, origin in list(self.paused):
            self.pause((ring, origin), False)
        self.wait(1_000.0)
        for ring in RINGS:
            self.housekeep(ring)
        self.hear()
        for ring in RINGS:
            assert isinstance(self.do(lambda store: empty(store.queues[ring])), int)  # noqa: B023
        self.forget_all()
        for store in self.stores:
            mine = "ring IN ({})".format(", ".join(str(queue.session.ring_id) for queue in store.queues))
            for table in ("mail", "delayed", "loan", "page", "aside", "claim"):
                assert store.count(table, mine) == 0, f"something is left in {table}"
        self.met["nothing was left"] += 1

    def forget_all(self) -> None:
        """All of it is gone, by events that nobody has to follow one by one."""
        for store in self.stores:
            for ring in RINGS:
                for event in store.queues[ring].inspect.events(after=store.seen[ring]):
                    store.seen[ring] = event.seq
        self.here = {place: [] for place in self.here}
        self.aside, self.gone, self.news = [], [], []
        assert not self.delayed and not self.holders

    def teardown(self) -> None:
        for store in getattr(self, "stores", ()):
            store.close()


def empty(queue: MessageQueue) -> int:
    """Complete all, and discard what cannot be taken: what is set aside, and what expired with nothing behind it."""
    count = 0
    for token in queue.leases.view():
        token.complete()
        count += 1
    for origin in ORIGINS:
        queue.sweep_queue(origin)
        count += queue.set_aside.discard_all("no use", origin=origin)
    return count
