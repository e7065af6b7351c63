"""A machine that does everything one can do to a ring, in any order, beside the plain model."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from airflow_mq import (
    Address,
    BadFormat,
    Corrupt,
    Costs,
    Done,
    LinearWeigher,
    Message,
    Overweight,
    Report,
    RingConfig,
    StackLimitReached,
    Unsupported,
    Weight,
    Yield,
    batch_processor,
)
from airflow_mq.core.config import BLOCK_PARTS
from airflow_mq.core.orders import parts_of
from airflow_mq.core.weight import Meter as RealMeter
from airflow_mq.testing import RecordingProcessor, Script

from .clock import SECOND, Clock
from .ladder import InPlace, Meter, OnPaper, answered, apply
from .plain import GONE, WAITING, Book, Event, Item, Page, Pair, Plain, Refusal, exceeds, plus
from .settling import Held, Run, send, settle
from .sides import Side, Sides, block_facts

ORIGINS = ("0", "1", "2", "3")
origins = st.sampled_from(ORIGINS)
#: Those that are paused and swept: not all, or little else would happen.
troubled = st.sampled_from(ORIGINS[2:])
weights = st.tuples(st.integers(0, 6), st.integers(0, 6))
declarations = weights | st.sampled_from([(9, 2), (13, 1), (40, 40)])
limits = st.sampled_from([(3, 3), (6, 8), (12, 12), (25, 40), (200, 200)])
parts = st.integers(0, 2)
_names = itertools.count(1)


@st.composite
def costs(draw: Any) -> Costs:
    if draw(st.booleans()):
        return Costs()
    names = ("bump_service_head", "service_queue_base", "service_page_base_completion", "service_page_item",
             "ready_ring_unknit", "execute_overweight_page_updated", "execute_overweight_page_removed",
             "set_service_head")  # fmt: skip
    return Costs(**{name: Weight(draw(st.integers(0, 1)), draw(st.integers(0, 1))) for name in names})


configs = st.builds(
    RingConfig,
    heap_size=st.sampled_from([48, 64, 150]),
    max_stale=st.integers(0, 2),
    costs=costs(),
    service_weight=st.sampled_from([Weight(12, 12), Weight(12, 12), Weight(30, 20), None]),
    order=st.sampled_from(["rotation", "rotation", "deficit", "deficit", "shuffle"]),
    rounds_per_block=st.sampled_from([1, 3, 8]),
    ordered=st.booleans(),
    max_attempts=st.sampled_from([None, None, 1, 2]),
    lease=st.just(60.0),
    key_window=st.just(100.0),
    weigher=st.sampled_from([LinearWeigher(Weight(1, 1), Weight(0, 0)), LinearWeigher(Weight(1, 0), Weight(0, 100))]),
)
outcomes = st.one_of(
    st.builds(Done, success=st.booleans()),
    st.just(Done()),
    st.just(Done()),
    st.builds(Done, used=st.builds(Weight, st.integers(0, 9), st.integers(0, 9))),
    st.sampled_from([BadFormat(), Corrupt(), Unsupported(), StackLimitReached(), Yield("later")]),
    st.builds(lambda w: Overweight(Weight(*w)), st.sampled_from([(1, 1), (5, 2), (11, 11), (50, 50)])),
)


class Noting(RecordingProcessor):
    """Remembers besides where each message lay, and what was left for it."""

    def __init__(self, yielding: frozenset[str]) -> None:
        super().__init__()
        self.yielding = set(yielding)
        self.notes: list[tuple[str, int, int, Pair]] = []

    def __call__(self, delivery: Any) -> Any:
        self.notes.append((delivery.origin, delivery.page, delivery.index, tuple(delivery.meter.left)))
        return super().__call__(delivery)


class QueueMachine(RuleBasedStateMachine):
    """Rules for everything; the invariants hold after each."""

    uris: ClassVar[Sequence[str]]
    clock: ClassVar[Clock]
    #: What was met so far, by name: a machine that never gets anywhere proves nothing.
    met: ClassVar[Counter[str]]

    @initialize(config=configs, listen=st.booleans(), data=st.data())
    def begin(self, config: RingConfig, listen: bool, data: st.DataObject) -> None:
        self.serial = itertools.count(1)
        self.sides = Sides(self.uris, f"ring-{next(_names)}", config, listen)
        self.plain = Plain(config, lambda: self.clock.now)
        self.held: list[Held] = []
        self.keyed: list[tuple[str, str, bytes]] = []
        self.widest = 0
        for _ in range(data.draw(st.integers(0, 3), "calls before the first step")):
            self.send(data)

    def teardown(self) -> None:
        if hasattr(self, "sides"):
            self.sides.close()

    # How things are compared.

    def expect(self, act: Any) -> Any:
        """What the plain model answers: a value, or the name of a refusal."""
        try:
            return act()
        except Refusal as refusal:
            return str(refusal)

    def both(self, real: Any, plain: Any) -> Any:
        found, expected = self.sides.do(real), self.expect(plain)
        assert found == expected, f"{found!r} is not {expected!r}"
        if isinstance(found, str):
            self.met[found] += 1
        return found

    def joins(self) -> None:
        """What is due joins its queue before anything else happens."""
        self.sides.do(lambda side: side.queue.force_set_head("nobody"))

    def happened(self) -> None:
        for block in self.held:
            block.meanwhile += 1

    # Sending.

    @rule(data=st.data())
    def enqueue(self, data: st.DataObject) -> None:
        self.send(data)

    @rule(data=st.data())
    def enqueue_more(self, data: st.DataObject) -> None:
        self.send(data)

    @rule(data=st.data())
    def enqueue_still_more(self, data: st.DataObject) -> None:
        self.send(data)

    def payload(self, data: st.DataObject) -> bytes:
        kind = data.draw(st.sampled_from(["plain", "plain", "plain", "weight", "weight", "answer", "enqueue"]), "kind")
        words = []
        if kind in ("weight", "enqueue"):
            words.append("w={},{}".format(*data.draw(weights)))
        if kind == "enqueue":
            words.append(f"enq={data.draw(origins)}/w=1,1+u{next(self.serial)}")
        if kind == "answer":
            words.append(
                data.draw(st.sampled_from(["bad", "corrupt", "unsupported", "stack", "yield", "fail", "over=2,2", "over=40,40"]))
            )
        text = ";".join([*words, f"u{next(self.serial)}"])
        room = max(self.plain.config.heap_size - 5 - len(text) - 1, 0)
        return (text + data.draw(st.sampled_from(["", "", "#" + "x" * min(room, 12), "#" + "x" * room]))).encode()

    def send(self, data: st.DataObject) -> None:
        draw = data.draw
        self.happened()
        entries: list[tuple[str, bytes, str | None, Pair | None]] = []
        way = draw(st.sampled_from(["single", "single", "many", "many", "origins"]), "way")
        one = draw(origins)
        for _ in range(1 if way == "single" else draw(st.integers(1, 6))):
            origin = draw(origins) if way == "origins" else one
            key = None
            declared = draw(declarations) if draw(st.integers(0, 3)) == 0 else None
            if declared == (0, 0):
                declared = None
            payload = self.payload(data)
            if draw(st.integers(0, 5)) == 0:
                if self.keyed and draw(st.booleans()):
                    key, origin, payload = draw(st.sampled_from(self.keyed))
                    if draw(st.integers(0, 3)) == 0:
                        payload = self.payload(data)
                    if way != "origins" and origin != one:
                        key, origin = f"key {next(self.serial)}", one
                        payload = self.payload(data)
                else:
                    key = f"key {next(self.serial)}"
                    self.keyed.append((key, origin, payload))
            entries.append((origin, payload, key, declared))
        more: dict[str, Any] = {}
        if draw(st.integers(0, 4)) == 0:
            more["not_before"] = draw(st.sampled_from([-5, 0, 10, 30]))
        if draw(st.integers(0, 9)) == 0:
            more["expires"] = draw(st.sampled_from([-5, 20]))
        if draw(st.integers(0, 5)) == 0:
            more["weight"] = Weight(*draw(st.tuples(st.integers(1, 20), st.integers(1, 20))))
        before = list(self.plain.ring)
        late = [entry[0] for entry in self.plain.delayed]

        def real(side: Side) -> tuple[int, int, int]:
            if way == "single":
                origin, payload, key, declared = entries[0]
                own = dict(more)
                if declared:
                    own["weight"] = Weight(*declared)
                told = side.queue.enqueue_message(origin, payload, key=key, **own)
            else:
                messages = [
                    (o, p if not (k or d) else Message(p, key=k, weight=Weight(*d) if d else None)) for o, p, k, d in entries
                ]
                if way == "many":
                    told = side.queue.enqueue_messages(one, (message for _, message in messages), **more)
                else:
                    told = side.queue.enqueue_messages(iter(messages), **more)
            return told.count, told.size, told.repeated

        due = more.get("not_before")
        expires = more.get("expires")
        self.both(real, lambda: self.plain.enqueue(
            entries, weight=more.get("weight"),
            due=None if due is None else self.clock.now + due * SECOND,
            expires=None if expires is None else self.clock.now + expires * SECOND,
        ))  # fmt: skip
        if due is not None or late:
            self.joins()
        self.adopt_newcomers(before)

    def adopt_newcomers(self, before: list[str]) -> None:
        """In which order one call's new queues enter the ring is not said: take it as it is."""
        found = self.sides.do(lambda side: side.queue.ring_order(100))
        assert found[: len(before)] == before == self.plain.ring[: len(before)]
        assert sorted(found) == sorted(self.plain.ring)
        self.plain.ring = found

    # Servicing in place.

    @precondition(lambda self: self.plain.ring)
    @rule(limit=st.none() | limits, yielding=st.frozensets(origins, max_size=1) | st.just(frozenset()),
          slices=st.sampled_from([1, 2, 1000]))  # fmt: skip
    def service(self, limit: Pair | None, yielding: frozenset[str], slices: int) -> None:
        config = self.plain.config
        self.happened()
        if config.service_weight is None and limit is None:
            limit = (12, 12)
        given: Pair = limit or tuple(config.service_weight)  # type: ignore[arg-type]
        meter = Meter(given)
        notes: list[Any] = []

        def real(side: Side) -> tuple[Any, ...]:
            processor = Noting(yielding)
            told = side.queue.service_queues(
                processor, Weight(*given), slice_messages=slices, seed=b"shuffled", 
            )
            notes[:] = processor.notes
            return tuple(told.weight), processor.seen, processor.notes

        if config.order == "rotation":
            walk = InPlace(self.plain, meter)
            walk.yielding = yielding
            weight, seen, _ = self.sides.do(real)
            walk.run()
            assert seen == walk.tried
            assert weight == meter.used
        else:
            weight, seen, _ = self.sides.do(real)
            assert not exceeds(weight, given)
            # One after the other: what a message sends lies in a book when the next one is tried.
            self.follow(given, (
                (origin, page, at, *answered(self.item(origin, page, at), Meter(left), yielding))
                for origin, page, at, left in notes
            ))  # fmt: skip

    def item(self, origin: str, page: int, at: int) -> Item:
        items = self.plain.book(origin).pages[page].items
        assert at < len(items)
        return items[at]

    def follow(self, limit: Pair, tried: Any) -> None:
        """Apply what was tried, each the next of its queue; the expired on the way are dropped."""
        plain, stored = self.plain, self.sides.do(Side.state)

        def was_left(book: Book, page: Page) -> bool:
            """All of it was tried, some is kept, and what came next is not in it: the look behind it was paid."""
            if page.first < len(page.items) or not page.left:
                return False
            its = stored[book.origin]["pages"].get(page.index)
            return its is None or len(its[1]) == len(page.items)

        plain.was_left = was_left
        for origin, page, at, answer, sent in tried:
            book = plain.book(origin)
            assert not plain.passed_by(book, in_place=True), "a queue that is passed by was serviced"
            self.close_done((origin, page))
            self.drop_expired(origin, (page, at))
            waiting = [(p, i) for p, i, item in book.window() if item.state == WAITING]
            assert waiting[0] == (page, at), "tried out of order"
            apply(plain, book.pages[page], at, book.pages[page].items[at], answer, sent,
                  plain.heaviest(origin, limit))  # fmt: skip
        for book in plain.books.values():
            self.drop_expired(book.origin, None)
        plain.was_left = lambda book, page: False
        self.adopt_windows()

    def close_done(self, but: tuple[str, int]) -> None:
        """A page of which all is processed goes when its queue has been serviced, or the next page is begun."""
        for origin, book in self.plain.books.items():
            for index in [index for index, page in book.pages.items() if not page.left and (origin, index) != but]:
                self.plain.close_page(book, index)

    def drop_expired(self, origin: str, before: tuple[int, int] | None) -> None:
        """Which of the expired were come to, their events tell."""
        for page, at, item in self.plain.book(origin).window():
            if before is not None and (page, at) >= before:
                return
            if item.state != WAITING:
                continue
            if item.expires is None or item.expires > self.clock.now:
                return
            if before is None and Event("Expired", origin, page, at) not in self.told():
                return
            self.plain.gone("Expired", page, at, item)

    def told(self) -> set[Event]:
        """The events since the last look, without taking note of them."""
        side = self.sides.all[0]
        return {
            Event(event.name, event.origin, event.page, event.index) for event in side.queue.events(after=side.seen)
        }

    def adopt_windows(self) -> None:
        """Where windows begin depends on looks that were paid: any place behind which all was tried is right."""
        found = self.sides.do(Side.state)
        for origin, book in self.plain.books.items():
            for index in [index for index, page in book.pages.items() if not page.left]:
                del book.pages[index]
            if origin in found:
                book.begin = self.checked_begin(book, found[origin]["begin"])
            self.plain.unknit_if_empty(book)
        order = self.sides.do(lambda side: side.queue.ring_order(100))
        assert sorted(order) == sorted(self.plain.ring)
        self.plain.ring = order

    def checked_begin(self, book: Any, begin: int) -> int:
        assert book.begin <= begin <= book.end
        for index in range(book.begin, begin):
            its = book.pages.get(index)
            assert its is None or all(item.state != WAITING for item in its.items), (
                f"the window of {book.origin} moved past {index} of {its.items}, with {self.told()}"
            )
        return begin

    @precondition(lambda self: self.plain.ring)
    @rule(limit=limits, seed=st.integers(0, 3))
    def service_batches(self, limit: Pair, seed: int) -> None:
        """A batch processor: its answers for neighbours, all done or one each."""
        self.happened()
        batches: list[Any] = []

        def real(side: Side) -> tuple[Any, ...]:
            batches.clear()

            def process(batch: Any) -> Any:
                answers = None if seed == 0 else [self.batch_answer(payload, seed) for payload in batch.payloads]
                batches.append((batch.origin, batch.page, batch.first, list(batch.payloads), answers))
                return answers

            told = side.queue.service_queues(batch_processor(process), Weight(*limit), seed=b"shuffled")
            return tuple(told.weight), list(batches)

        weight, _ = self.sides.do(real)
        assert not exceeds(weight, limit)
        plain, meter = self.plain, Meter(limit)
        for origin, first_page, first, payloads, answers in batches:
            book = plain.book(origin)
            assert not plain.passed_by(book, in_place=True) or book.wake_at > self.clock.now
            self.drop_decided(origin, (first_page, first), limit)
            page, stopped = book.pages[first_page], False
            waiting = [(p, i) for p, i, item in book.window() if item.state == WAITING]
            assert waiting[: len(payloads)] == [(first_page, first + i) for i in range(len(payloads))]
            assert [page.items[first + i].payload for i in range(len(payloads))] == payloads
            for at, outcome in enumerate(answers or [Done()] * len(payloads), start=first):
                item = page.items[at]
                assert meter.pay(plain.weight(item)), "more was processed than the limit pays for"
                if isinstance(outcome, Yield):
                    if not stopped:
                        stopped = plain.went_back(page.index, at, item)
                elif isinstance(outcome, Overweight):
                    if exceeds(outcome.weight, plain.heaviest(origin, limit)) and not stopped:
                        plain.aside("OverweightEnqueued", page.index, at, item)
                    else:
                        stopped = True
                else:
                    plain.gone("Processed" if isinstance(outcome, Done) else "ProcessingFailed", page.index, at, item)
                    send(plain, outcome)
        for book in plain.books.values():
            self.drop_decided(book.origin, None, limit)
        self.adopt_windows()

    def batch_answer(self, payload: bytes, seed: int) -> Any:
        script = Script.read(payload)
        if isinstance(script.answer, Overweight) and seed == 1:
            return Done()
        return script.answer or Done(script.success)

    def drop_decided(self, origin: str, before: tuple[int, int] | None, limit: Pair) -> None:
        """Expired messages, and those that can never fit, are decided about on the way."""
        plain, told = self.plain, self.told()
        for page, at, item in plain.book(origin).window():
            if before is not None and (page, at) >= before:
                return
            if item.state != WAITING:
                continue
            if Event("Expired", origin, page, at) in told:
                assert item.expires is not None and item.expires <= self.clock.now
                plain.gone("Expired", page, at, item)
            elif Event("OverweightEnqueued", origin, page, at) in told:
                assert exceeds(plain.weight(item), plain.heaviest(origin, limit))
                plain.aside("OverweightEnqueued", page, at, item)
            else:
                return

    # Blocks.

    @precondition(lambda self: self.plain.ring)
    @rule(limit=st.none() | limits, lease=st.sampled_from([None, None, 0.0, 15.0]), scripted=st.booleans(),
          keyed=st.sampled_from([None, None, "morning"]))  # fmt: skip
    def plan(self, limit: Pair | None, lease: float | None, scripted: bool, keyed: str | None) -> None:
        self.plan_one(limit, lease, scripted, keyed)

    @precondition(lambda self: self.plain.ring)
    @rule(limit=limits)
    def plan_more(self, limit: Pair) -> None:
        self.plan_one(limit, None, False, None)

    def plan_one(self, limit: Pair | None, lease: float | None, scripted: bool, keyed: str | None) -> None:
        plain, config = self.plain, self.plain.config
        if config.service_weight is None and limit is None:
            limit = (12, 12)
        given: Pair = limit or tuple(config.service_weight)  # type: ignore[arg-type]
        living = next((b for b in self.held if keyed and b.key == keyed and b.state == "planned"), None)
        if living and living.deadline > self.clock.now:
            self.sides.do(lambda side: block_again(side, keyed, living.number))
            return
        for block in [b for b in self.held if b.state == "planned" and b.deadline <= self.clock.now]:
            settle(plain, block, "released")
        self.happened()
        before = list(plain.ring)
        deficits = self.sides.all[0].deficits(ORIGINS)

        def real(side: Side) -> tuple[Any, ...]:
            weigher = RecordingProcessor.weigh if scripted else None
            block = side.queue.plan_block(keyed, Weight(*given), lease=lease, weigher=weigher, seed=b"shuffled")
            side.blocks.append(block)
            return block_facts(block)

        facts = self.sides.do(real)
        note(f"planned {facts}")
        paper = OnPaper(plain, Meter(given), lambda item: self.weigh(item, scripted))
        if config.order == "rotation":
            paper.run()
            self.check_rotation(facts, paper)
        else:
            found = self.sides.do(lambda side: side.queue.ring_order(100))
            assert sorted(found) == sorted(before)
            plain.ring = found
        seconds = config.lease if lease is None else lease
        block = Held(len(self.held), given, self.clock.now + int(seconds * SECOND), key=keyed)
        self.hold(block, facts, scripted)
        self.check_limits(block, facts, scripted, given)
        self.check_ledger(block, facts, deficits)
        self.met[f"{config.order}: {'claimed' if facts[3] else 'nothing claimed'}"] += 1
        self.met.update(decision for run in block.runs for *_, decision in run.items)
        for origin in {run.origin for run in block.runs if run.items}:
            holders = {item.held for _, _, item in plain.book(origin).window()} - {None}
            self.met["held by two blocks"] += len(holders) > 1

    def weigh(self, item: Item, scripted: bool) -> Pair:
        if item.declared or not scripted:
            return self.plain.weight(item)
        script = Script.read(item.payload)
        return (0, 0) if script.answer else tuple(script.weight)  # type: ignore[return-value]

    def check_rotation(self, facts: tuple[Any, ...], paper: OnPaper) -> None:
        _, planned, overhead, messages, claims = facts
        names = {"SET_ASIDE": "aside", "EXPIRED": "expired"}
        found = [
            (origin, page, at, names.get(dict(decisions).get(at, ""), "process"))
            for origin, runs in claims
            for page, first, count, _, decisions in runs
            for at in range(first, first + count)
        ]
        expected = [(claim.origin, page, at, d) for claim in paper.claims for page, at, _, d in claim.items]
        assert found == expected
        assert planned == paper.planned
        assert plus(planned, overhead) == paper.meter.used
        assert messages == sum(d == "process" for *_, d in expected)

    def hold(self, block: Held, facts: tuple[Any, ...], scripted: bool) -> None:
        """Take note of the claims: each the next of its queue that nobody holds, in order."""
        plain = self.plain
        held_before = {origin for origin, book in plain.books.items()
                       if any(item.held is not None and item.state == WAITING for _, _, item in book.window())}  # fmt: skip
        for origin, runs in facts[4]:
            book = plain.book(origin)
            assert not plain.is_paused(book) and book.wake_at <= self.clock.now
            assert not (plain.is_ordered(origin) and origin in held_before), "two blocks hold an ordered origin"
            for page, first, count, closed, decisions in runs:
                run = Run(origin, page, closed, [])
                decided = {at: {"SET_ASIDE": "aside", "EXPIRED": "expired"}[name] for at, name in decisions}
                for at in range(first, first + count):
                    free = next((p, i) for p, i, item in book.window() if item.state == WAITING and item.held is None)
                    assert free == (page, at), "claimed out of order, or twice"
                    item = book.pages[page].items[at]
                    item.held = block.number
                    run.items.append((at, item, decided.get(at, "process")))
                block.runs.append(run)
        self.held.append(block)

    def check_limits(self, block: Held, facts: tuple[Any, ...], scripted: bool, limit: Pair) -> None:
        """Within the limit in each part; nothing left out that would still have fitted."""
        plain = self.plain
        _, planned, overhead, messages, _ = facts
        assert planned == plus((0, 0), *(self.weigh(item, scripted) for *_, item in block.handed_out()))
        assert messages == len(block.handed_out())
        used = plus(planned, overhead)
        assert not exceeds(used, limit)
        for run in block.runs:
            for _, item, decision in run.items:
                weight, expired = self.weigh(item, scripted), item.expires is not None and item.expires <= self.clock.now
                assert expired == (decision == "expired")
                if decision == "aside":
                    assert exceeds(weight, plain.heaviest(run.origin, limit))
        if plain.config.order == "rotation":
            return
        spent: dict[str, Pair] = {}
        for origin, *_, item in block.handed_out():
            spent[origin] = plus(spent.get(origin, (0, 0)), self.weigh(item, scripted))
        for origin in plain.ring:
            book = plain.book(origin)
            most = book.most if plain.config.order == "deficit" else None
            assert not (most and exceeds(spent.get(origin, (0, 0)), most)), "more than the most of an origin"
            others = any(item.held not in (None, block.number) and item.state == WAITING for _, _, item in book.window())
            if plain.is_paused(book) or book.wake_at > self.clock.now or (others and plain.is_ordered(origin)):
                continue
            front = next((item for _, _, item in book.window() if item.state == WAITING and item.held is None), None)
            if front is None:
                continue
            need = plus(used, self.weigh(front, scripted), plain.overhead)
            own = most and exceeds(plus(spent.get(origin, (0, 0)), self.weigh(front, scripted)), most)
            assert exceeds(need, limit) or own, f"{front.payload!r} of {origin} would have fitted"

    def check_ledger(self, block: Held, facts: tuple[Any, ...], before: dict[str, int]) -> None:
        """The ledger tells what was granted, and how the deficits came to be what they are."""
        plain, config = self.plain, self.plain.config
        ledgers = [side.queue.ledger(block=real.id) for side in self.sides.all for real in [side.blocks[-1]]]
        plainly = [
            [(e.origin, e.offered, e.granted, e.messages, e.deficit, e.reason, e.visits) for one in ledger for e in one.entries]
            for ledger in ledgers
        ]
        assert all(one == plainly[0] for one in plainly)
        counts = Counter(run.origin for run in block.runs for *_, d in run.items if d in ("process", "expired"))
        after = self.sides.all[0].deficits(ORIGINS)
        granted: Pair = (0, 0)
        for entry in (e for one in ledgers[0] for e in one.entries):
            granted = plus(granted, entry.granted)
            assert entry.messages == counts.pop(entry.origin, 0)
            if config.order == "deficit":
                assert entry.deficit == after[entry.origin]
        assert not counts
        if ledgers[0] and ledgers[0][0].entries:
            assert plus(granted, plain.cost("bump_service_head")) == plus(facts[1], facts[2])
        if config.order != "deficit":
            assert before == after

    def living(self, block: Held) -> bool:
        return block.state == "planned" and block.deadline > self.clock.now

    def blocks(self) -> bool:
        return bool(self.held)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def report(self, data: st.DataObject) -> None:
        """Some, all, or none; twice, late, and about messages that are nobody's."""
        self.report_on(data, data.draw(st.sampled_from(self.held), "block"))

    def report_on(self, data: st.DataObject, block: Held) -> None:
        handed = block.handed_out()
        chosen = data.draw(st.lists(st.sampled_from(handed), max_size=8) if handed else st.just([]), "which")
        reports = []
        for origin, page, at, _ in chosen:
            outcome = data.draw(outcomes)
            if isinstance(outcome, Done) and data.draw(st.integers(0, 4)) == 0:
                fresh = (data.draw(origins), f"w=1,1;u{next(self.serial)}".encode())
                outcome = Done(outcome.success, None, outcome.used, (fresh,))
            reports.append(Report(origin, page, at, at, outcome))
        if handed and data.draw(st.booleans()):
            origin, page, first, _ = data.draw(st.sampled_from(handed), "from")
            last = first
            while any(one[:3] == (origin, page, last + 1) for one in handed):
                last += 1
            reports.append(Report(origin, page, first, last, data.draw(outcomes)))

        def plain() -> None:
            if not reports:
                return
            if not self.living(block):
                raise Refusal("TokenRefused")
            for one in reports:
                for at in range(one.first, one.last + 1):
                    block.answer(one.origin, one.page, at, one.outcome)

        self.both(lambda side: side.queue.report(side.blocks[block.number], reports), plain)

    @precondition(lambda self: any(block.state == "planned" for block in self.held))
    @rule(data=st.data())
    def settle_living(self, data: st.DataObject) -> None:
        """Everything reported, or some of it, then settled."""
        block = data.draw(st.sampled_from([block for block in self.held if block.state == "planned"]), "block")
        if not block.meanwhile:
            self.interleave(data)
        if not self.living(block):
            pass
        elif data.draw(st.booleans(), "everything is reported"):
            self.report_all(block)
        else:
            self.report_on(data, block)
        self.end_one(block, False)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """Settle or release: in time, late, twice, or after the other."""
        block = data.draw(st.sampled_from(self.held), "block")
        if block.state == "planned" and not block.meanwhile:
            self.interleave(data)
        release = data.draw(st.sampled_from([False, False, True]), "release")
        self.end_one(block, release)

    def report_all(self, block: Held) -> None:
        reports = [Report(origin, page, at, at, Done()) for origin, page, at, _ in block.handed_out()]
        assert self.sides.do(lambda side: side.queue.report(side.blocks[block.number], reports)) is None
        for one in reports:
            block.answer(one.origin, one.page, one.first, one.outcome)

    def end_one(self, block: Held, release: bool) -> None:
        before = list(self.plain.ring)
        late = "late, " if block.deadline <= self.clock.now else ""
        self.met[f"{late}{block.state}, then {'released' if release else 'settled'}"] += 1
        if block.runs and len(block.answers) < len(block.handed_out()):
            self.met["answered in part"] += bool(block.answers)

        def real(side: Side) -> None:
            (side.queue.release_block if release else side.queue.settle_block)(side.blocks[block.number])

        def plain() -> None:
            settle(self.plain, block, "released" if release else "settled")

        self.both(real, plain)
        if release:
            self.happened()
        self.adopt_newcomers([origin for origin in before if origin in self.plain.ring])

    def interleave(self, data: st.DataObject) -> None:
        """At least one other thing happens between a plan and its settling."""
        name = data.draw(st.sampled_from([
            "send", "pause", "sweep", "reap", "execute", "force", "change", "plan", "release",
        ]), "meanwhile")  # fmt: skip
        draw = data.draw
        if name == "send":
            self.send(data)
        elif name == "pause":
            self.pause(draw(troubled), draw(st.sampled_from([None, 10.0])))
        elif name == "sweep":
            self.sweep(draw(troubled))
        elif name == "reap":
            self.reap(draw(origins), draw(st.integers(0, 6)))
        elif name == "execute":
            self.execute(data)
        elif name == "force":
            self.force_head(draw(origins), None)
        elif name == "change":
            self.change(data)
        elif name == "plan":
            self.plan_one(draw(st.none() | limits), None, False, None)
        elif others := [block for block in self.held if block.state == "planned"][:-1]:
            self.end_one(draw(st.sampled_from(others)), True)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), lease=st.sampled_from([None, 5.0, 40.0]))
    def renew(self, data: st.DataObject, lease: float | None) -> None:
        block = data.draw(st.sampled_from(self.held), "block")

        def real(side: Side) -> float:
            return side.queue.renew_block(side.blocks[block.number], lease).timestamp()

        def plain() -> float:
            if not self.living(block):
                raise Refusal("TokenRefused")
            block.deadline = self.clock.now + int((self.plain.config.lease if lease is None else lease) * SECOND)
            return block.deadline / SECOND

        self.both(real, plain)

    @precondition(lambda self: len(self.held) == 2)
    @rule(token=st.sampled_from(["", "no token", "00" * 16]))
    def wrong_token(self, token: str) -> None:
        report = [Report("0", 0, 0, 0, Done())]
        for call in (
            lambda side: side.queue.report(token, report),
            lambda side: side.queue.settle_block(token),
            lambda side: side.queue.release_block(token),
            lambda side: side.queue.renew_block(token),
        ):
            assert self.sides.do(call) == "UnknownBlock"

    @rule(seconds=st.sampled_from([1.0, 1.0, 12.0, 30.0, 120.0]))
    def wait(self, seconds: float) -> None:
        """Leases run out, delays and pauses end, messages expire."""
        before = list(self.plain.ring)
        late = bool(self.plain.delayed)
        self.clock.advance(seconds)
        self.plain.join_due()
        if late:
            self.joins()
            self.adopt_newcomers(before)

    # What people decide.

    def address(self, data: st.DataObject) -> tuple[str, int, int]:
        aside = self.plain.set_aside()
        if aside and data.draw(st.integers(0, 3)):
            return data.draw(st.sampled_from(aside), "set aside")
        return data.draw(st.tuples(origins, st.integers(0, 5), st.integers(0, 4)), "address")

    @precondition(lambda self: self.plain.all)
    @rule(data=st.data())
    def execute_overweight(self, data: st.DataObject) -> None:
        self.execute(data)

    def execute(self, data: st.DataObject) -> None:
        origin, page, at = self.address(data)
        limit = data.draw(limits)
        whole = data.draw(st.booleans(), "the limit pays for everything")
        self.happened()
        before = list(self.plain.ring)

        def real(side: Side) -> Pair:
            address = Address(origin, page, at)
            return tuple(side.queue.execute_overweight(address, RecordingProcessor(), Weight(*limit), for_everything=whole))

        def plain() -> Pair:
            costs = [self.plain.cost(f"execute_overweight_page_{name}") for name in ("updated", "removed")]
            left = limit
            if whole:
                left = (limit[0] - max(c[0] for c in costs), limit[1] - max(c[1] for c in costs))
                if min(left) < 0:
                    raise Refusal("InsufficientWeight")
            try:
                return self.executed(origin, page, at, left)
            except Refusal as refusal:
                coarse = {"NoPage": "NotFound", "NoMessage": "NotFound", "Queued": "NotFound",
                          "TemporarilyUnprocessable": "Refused"}  # fmt: skip
                raise Refusal(coarse.get(str(refusal), str(refusal)) if whole else str(refusal)) from None

        self.both(real, plain)
        self.adopt_newcomers([one for one in before if one in self.plain.ring])

    def executed(self, origin: str, page: int, at: int, limit: Pair) -> Pair:
        plain = self.plain
        item, meter = plain.find(origin, page, at), Meter(limit)
        if item.held is not None:
            raise Refusal("InFlight")
        (word, _), sent = answered(item, meter)
        if word == "over":
            raise Refusal("InsufficientWeight")
        if word == "yield":
            raise Refusal("TemporarilyUnprocessable")
        if Script.read(item.payload).answer == StackLimitReached():
            plain.emit("ProcessingFailed", origin, page, at)
            raise Refusal("TemporarilyUnprocessable")
        plain.gone("Processed" if word == "done" else "ProcessingFailed", page, at, item)
        plain.emit("Executed", origin, page, at)
        for whose, payload in sent:
            fresh = Item(payload, whose)
            plain.all.append(fresh)
            plain.append(fresh)
        return plus(meter.used, plain.take_away(item, page))

    @precondition(lambda self: self.plain.set_aside())
    @rule(data=st.data(), lease=st.sampled_from([None, 15.0]))
    def plan_overweight(self, data: st.DataObject, lease: float | None) -> None:
        origin, page, at = self.address(data)
        limit = data.draw(limits)
        self.happened()

        def real(side: Side) -> None:
            side.blocks.append(side.queue.plan_overweight(Address(origin, page, at), Weight(*limit), lease=lease))

        def plain() -> None:
            item = self.plain.find(origin, page, at)
            if item.held is not None:
                raise Refusal("InFlight")
            seconds = self.plain.config.lease if lease is None else lease
            block = Held(len(self.held), limit, self.clock.now + int(seconds * SECOND), by_hand=True)
            block.runs.append(Run(origin, page, False, [(at, item, "process")]))
            item.held = block.number
            self.held.append(block)

        self.both(real, plain)

    @precondition(lambda self: self.plain.set_aside())
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        origin, page, at = self.address(data)
        self.happened()

        def plain() -> int:
            its = self.plain.book(origin).pages.get(page)
            if its and at < len(its.items) and its.items[at].held is not None:
                raise Refusal("InFlight")
            item = self.plain.find(origin, page, at)
            self.plain.gone("Discarded", page, at, item)
            self.plain.take_away(item, page)
            return 1

        self.both(lambda side: side.queue.discard_overweight(Address(origin, page, at), "not wanted"), plain)

    @precondition(lambda self: any(len(book.pages) > book.end - book.begin for book in self.plain.books.values()))
    @rule(origin=origins, page=st.integers(0, 8))
    def reap(self, origin: str, page: int) -> None:
        self.happened()
        self.both(lambda side: side.queue.reap_page(origin, page), lambda: self.plain.reap(origin, page))

    @rule(origin=troubled, until=st.sampled_from([None, None, 10.0, 0.0]))
    def pause(self, origin: str, until: float | None) -> None:
        self.happened()
        book = self.plain.book(origin)
        book.paused, book.until = True, None if until is None else self.clock.now + int(until * SECOND)
        assert self.sides.do(lambda side: side.queue.pause(origin, "for a while", until)) is None

    @precondition(lambda self: any(book.paused for book in self.plain.books.values()))
    @rule(origin=troubled)
    def resume(self, origin: str) -> None:
        book = self.plain.book(origin)
        assert self.sides.do(lambda side: side.queue.resume(origin)) is book.paused
        book.paused, book.until = False, None

    @rule(origin=troubled)
    def sweep(self, origin: str) -> None:
        self.happened()
        self.both(lambda side: side.queue.sweep(origin), lambda: self.plain.sweep(origin))

    @rule(origin=origins, meter=st.none() | st.just((0, 0)) | st.just((9, 9)))
    def force_head(self, origin: str, meter: Pair | None) -> None:
        self.happened()

        def plain() -> bool | None:
            if meter is not None and exceeds(self.plain.cost("set_service_head"), meter):
                return None
            return self.plain.force_head(origin)

        self.both(lambda side: side.queue.force_set_head(origin, RealMeter(Weight(*meter)) if meter else None), plain)

    @rule(data=st.data())
    def change_ring(self, data: st.DataObject) -> None:
        self.change(data)

    def change(self, data: st.DataObject) -> None:
        self.happened()
        draw, config = data.draw, self.plain.config
        kinds = ("order", "ordered", "max_attempts", "heap_size", "service_weight", "rounds_per_block", "max_stale", "lease")
        changes: dict[str, Any] = {}
        for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=2, unique=True), "what changes"):
            changes[kind] = draw({
                "order": st.sampled_from(["rotation", "deficit", "shuffle"]), "ordered": st.booleans(),
                "max_attempts": st.sampled_from([None, 1, 2, 3]), "heap_size": st.sampled_from([40, 64, 150, 200]),
                "service_weight": st.sampled_from([Weight(12, 12), Weight(15, 25), Weight(100, 100), None]),
                "rounds_per_block": st.sampled_from([1, 2, 8]), "max_stale": st.integers(0, 3),
                "lease": st.sampled_from([20.0, 60.0]),
            }[kind])  # fmt: skip
        refused = changes.get("heap_size", config.heap_size) < config.heap_size
        found = self.sides.do(lambda side: side.queue.change_ring(**changes))
        if refused:
            assert found == "ConfigRefused"
        else:
            self.plain.config = config.changed(**changes)
            assert found == self.plain.config
        assert all(side.queue.config == self.plain.config for side in self.sides.all)

    @rule(origin=origins, share=st.none() | st.integers(1, 4), most=st.none() | st.just((5, 6)),
          least=st.none() | st.just((4, 4)), ordered=st.none() | st.booleans())  # fmt: skip
    def set_origin(
        self, origin: str, share: int | None, most: Pair | None, least: Pair | None, ordered: bool | None
    ) -> None:
        self.happened()
        refused = self.sides.do(lambda side: side.queue.set_origin(
            origin, share=share, ordered=ordered, most=Weight(*most) if most else None,
            least=Weight(*least) if least else None,
        ))  # fmt: skip
        assert refused is None
        book = self.plain.book(origin)
        book.share, book.most, book.least, book.ordered = share or 1, most, least, ordered

    # What is always true.

    @invariant()
    def stores_agree_with_the_model(self) -> None:
        if not hasattr(self, "plain"):
            return
        plain, expected = self.plain, self.plain.state()
        ids = Counter(item.id for item in plain.all)
        for side in self.sides.all:
            queue = side.queue
            assert queue.check() == []
            found = side.state()
            assert found == expected
            assert queue.ring_order(100) == plain.ring
            assert [tuple(vars(queue.footprint(origin)).values()) for origin in ORIGINS] == [
                plain.footprint(origin) for origin in ORIGINS
            ]
            aside = queue.overweight()
            assert sorted((one.address.origin, one.address.page, one.address.index) for one in aside) == plain.set_aside()
            for origin in ORIGINS:
                peeked = [(p.address.page, p.address.index, p.payload, p.state, p.attempts) for p in queue.peek(origin, limit=100)]
                assert peeked == plain.looks(origin)
            fresh = side.fresh_events()
            told, expected_events = Counter(event for event, _ in fresh), Counter(plain.events)
            assert told == expected_events, f"too many: {told - expected_events}, too few: {expected_events - told}"
            self.met.update(event.name for event, _ in fresh)
            assert {id_ for _, id_ in fresh if id_} <= set(ids)
        plain.events.clear()

    @invariant()
    def nothing_is_lost_and_nothing_ends_twice(self) -> None:
        if not hasattr(self, "plain"):
            return
        stored = [item for book in self.plain.books.values() for page in book.pages.values() for item in page.items]
        delayed = [item for _, _, items in self.plain.delayed for item in items]
        assert len({id(item) for item in stored + delayed}) == len(stored) + len(delayed)
        kept = {id(item) for item in stored + delayed if item.state != GONE}
        for item in self.plain.all:
            assert item.finals == (0 if id(item) in kept else 1), item

    @invariant()
    def deficits_are_bounded(self) -> None:
        """By what is earned at once, and the largest message (weights that were remembered included)."""
        if not hasattr(self, "plain"):
            return
        config = self.plain.config
        part = parts_of(config.service_weight or Weight(3, 3))
        heaviest = max((part(Weight(*self.plain.weight(item))) for item in self.plain.all), default=0)
        heaviest = max(heaviest, part(Weight(6, 6)))
        self.widest = max(self.widest, BLOCK_PARTS // config.rounds_per_block * 4 + heaviest)
        for side in self.sides.all:
            for origin, deficit in side.deficits(ORIGINS).items():
                assert deficit <= self.widest, f"the deficit of {origin} is {deficit / self.widest:.2f} of its bound"


def block_again(side: Side, key: str | None, number: int) -> None:
    """Asked again with the key of a living block, the same block comes back."""
    assert side.queue.plan_block(key).id == side.blocks[number].id
