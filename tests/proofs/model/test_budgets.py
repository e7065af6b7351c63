"""Budgets and charges at random, on all stores; clocks jump forwards and back.

They are compared with plain buckets of exact integers, and with a plain account of what each attempt costs.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from airflow_mq import (
    BadFormat,
    Block,
    Done,
    LinearWeigher,
    Message,
    MessageQueue,
    Overweight,
    Report,
    RingConfig,
    Weight,
    Yield,
)
from airflow_mq.engine.rules.groups import is_below
from airflow_mq.engine.rules.outcome import BEGUN
from tests.postgres_server import Server

from .account import Account, Queue, Sums
from .clock import SECOND, Clock
from .sides import block_facts
from .test_model import EXAMPLES, chosen, hasty, run

__all__ = ["hasty"]
DAY = 86_400
#: Grains of a unit of weight, by which the rate of a second is a whole number of grains per microsecond.
UNIT = DAY * SECOND
ORIGINS = ("acme", "acme/a", "acme/a/b", "zeta")
PATHS = ("acme", "acme/a", "zeta")
PRIORITIES = ("high", "regular")
#: Milliseconds and bytes per second, and the largest balances.
RATES = [(10, None), (100, None), (None, 50), (10, 50)]
BURSTS = st.tuples(st.sampled_from([5, 20, 60]), st.sampled_from([5, 40]))
JUMPS = st.sampled_from([0.001, 0.05, 0.1, 1, 3_600, DAY, 40 * DAY])
#: The weigher predicts this of every message, and no block has room for a heavier one than this.
PREDICTED, MOST = (1, 1), (100, 100)
#: Outcomes and marks of messages; None: there is no report.
OUTCOMES = [
    Done(), Done(), Done(), Done(False), BadFormat(), Yield("later"), Done(used=Weight(2, 9)), Done(used=Weight(0, 0)),
    Overweight(Weight(40, 2)), Overweight(Weight(200, 1)), BEGUN, None,
]  # fmt: skip
Pair = tuple[int, int]
_names = itertools.count(1)


class State(NamedTuple):
    """Balance of a bucket in grains of each part, and until when it was refilled."""

    left: Pair
    refilled_to: int


@dataclass(eq=False)
class Bucket:
    """A bucket, as a person would keep it on paper: full at first, refilled by the clock, charged and paid back."""

    #: Grains per microsecond and the largest balance of each part; None for a part without a limit.
    rates: tuple[int | None, int | None]
    bursts: Pair
    #: States that the store may have written. One that nothing was charged to need not be written.
    written: list[State]
    #: At each charge: until when it was refilled, and the sums of what was charged and of what none could refuse.
    trail: list[tuple[int, Pair, Pair]] = field(default_factory=list)
    charged: Pair = (0, 0)
    beyond: Pair = (0, 0)
    heaviest: Pair = (0, 0)

    @property
    def parts(self) -> list[int]:
        return [part for part in (0, 1) if self.rates[part] is not None]

    @property
    def state(self) -> State:
        """The latest state."""
        return self.written[-1]

    def refilled(self, state: State, until: int) -> State:
        elapsed = max(until - state.refilled_to, 0)
        left = [
            min(have + (rate or 0) * elapsed, most) for have, rate, most in zip(state.left, self.rates, self.bursts)
        ]
        return State((left[0], left[1]), state.refilled_to + elapsed)

    def meet(self, found: State, now: int) -> None:
        """Check the state that the store shows: one that it may have written, refilled until now."""
        self.written = [state for state in self.written if self.alike(self.refilled(state, now), found)]
        assert self.written, f"{found} comes from no earlier balance"
        self.written.append(self.refilled(self.state, now))

    def alike(self, one: State, other: State) -> bool:
        return one.refilled_to == other.refilled_to and all(one.left[part] == other.left[part] for part in self.parts)

    def note(self) -> None:
        self.trail.append((self.state.refilled_to, self.charged, self.beyond))

    def take(self, weights: Sequence[Pair]) -> None:
        """Take messages of a block, and check that each was covered, or met a full part."""
        if not weights:
            return
        self.note()
        left = list(self.state.left)
        for part in self.parts:
            total, heavy = sum(weight[part] for weight in weights), [weight for weight in weights if weight[part]]
            assert left[part] >= 0, "a message started while the balance was negative"
            if total * UNIT > left[part]:
                assert left[part] == self.bursts[part] and len(heavy) == 1, "more started than the balance covers"
            left[part] -= total * UNIT
        self.heaviest = (
            max(self.heaviest[0], *(one[0] for one in weights)),
            max(self.heaviest[1], *(o[1] for o in weights)),
        )
        self.charged = add(self.charged, *weights)
        self.written = [State((left[0], left[1]), self.state.refilled_to)]
        self.note()

    def end(self, ended: Sequence[tuple[Pair, Pair]], found: State) -> None:
        """Correct the balance by planned and charged weights. Which come first counts only where the burst is reached."""
        # What was charged as planned need not be written, and so is no end of a window: clocks may be set back then.
        is_changed = any(planned != charged for planned, charged in ended)
        if is_changed:
            self.note()
        for part in self.parts:
            less = sum(max(planned[part] - charged[part], 0) for planned, charged in ended) * UNIT
            more = sum(max(charged[part] - planned[part], 0) for planned, charged in ended) * UNIT
            left, burst = self.state.left[part], self.bursts[part]
            assert min(left + less, burst) - more <= found.left[part] <= min(left - more + less, burst)
        for planned, charged in ended:
            change = charged[0] - planned[0], charged[1] - planned[1]
            self.charged = add(self.charged, change)
            self.beyond = add(self.beyond, (max(change[0], 0), max(change[1], 0)))
        assert found.refilled_to == self.state.refilled_to
        self.written = [found] if is_changed else [*self.written, found]
        if is_changed:
            self.note()

    def check(self) -> None:
        """Check that each window was charged at most rate · t + burst + one message, and overruns."""
        for part in self.parts:
            least: int | None = None
            for at, charged, beyond in self.trail:
                used = (charged[part] - beyond[part]) * UNIT - (self.rates[part] or 0) * at
                least = used if least is None else min(least, used)
                assert used - least <= self.bursts[part] + self.heaviest[part] * UNIT


def add(*pairs: Pair) -> Pair:
    return sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)


@dataclass(eq=False)
class Held:
    """A block of each store, with its messages by queue in their order."""

    blocks: list[Block]
    books: dict[tuple[str, str], list[int]]
    #: Whether a message without an outcome or a mark was not tried.
    reports_begin: bool


class Budgets(RuleBasedStateMachine):
    """Sends, blocks, ends and clocks; all stores must answer alike, and as the plain buckets do."""

    uris: list[str]
    clock: Clock
    met: Counter[str]

    @initialize(
        order=st.sampled_from(["deficit", "paths", "rotation", "shuffle"]), ordered=st.booleans(),
        budgets=st.dictionaries(st.sampled_from(PATHS), st.tuples(st.sampled_from(RATES), BURSTS), min_size=1),
        processors=st.dictionaries(st.sampled_from(ORIGINS), st.sampled_from(["copy", "count"])),
        trusted=st.sets(st.sampled_from(["copy", "count"])), charges_time=st.booleans(),
        max_attempts=st.sampled_from([None, None, 1, 2]),
    )  # fmt: skip
    def begin(
        self, order: str, ordered: bool, budgets: dict[str, Any], processors: dict[str, str], trusted: set[str],
        charges_time: bool, max_attempts: int | None,
    ) -> None:  # fmt: skip
        config = RingConfig(
            heap_size=256, order="deficit" if order == "paths" else order, paths=order == "paths", ordered=ordered,
            service_weight=Weight(*MOST), weigher=LinearWeigher(Weight(*PREDICTED), Weight(0, 0)), trusted=sorted(trusted),
            max_attempts=max_attempts, charges_time=charges_time,
        )  # fmt: skip
        self.config, self.queues = config, []
        name = f"budgets-{next(_names)}"
        for uri in self.uris:
            with MessageQueue(uri) as maker:
                maker.admin.create_ring(name, config)
            self.queues.append(MessageQueue(uri, name))
        self.processors, self.account = processors, Account()
        #: The weight that is known of a message besides the predicted one: declared by its sender, or reported.
        self.weights: dict[int, Pair | None] = {}
        self.attempts: Counter[int] = Counter()
        self.lines: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.held: list[Held] = []
        self.buckets: dict[str, Bucket] = {}
        self.numbers = itertools.count()
        for path, ((time, size), bursts) in budgets.items():
            settings: dict[str, Any] = {}
            if time:
                settings |= {"rate": f"{time}ms/second", "burst": bursts[0]}
            if size:
                settings |= {"rate_bytes": f"{size}B/second", "burst_bytes": bursts[1]}
            self.both(lambda queue: queue.admin.set_origin(path, **settings) and None)  # noqa: B023
            rates, full = (time and time * DAY, size and size * DAY), (bursts[0] * UNIT, bursts[1] * UNIT)
            self.buckets[path] = Bucket(rates, full, [State(full, 0)])
        self.send_everywhere()

    def both(self, call: Callable[[MessageQueue], Any]) -> Any:
        answers = [call(queue) for queue in self.queues]
        assert all(answer == answers[0] for answer in answers), answers
        return answers[0]

    def paying(self, origin: str) -> list[Bucket]:
        return [
            bucket for path, bucket in self.buckets.items()
            if (is_below(origin, path) if self.config.paths else origin == path)
        ]  # fmt: skip

    # Operations.

    @rule(
        origin=st.sampled_from(ORIGINS), priority=st.sampled_from(PRIORITIES),
        weights=st.lists(
            st.none() | st.tuples(st.sampled_from([0, 1, 1, 3, 30]), st.sampled_from([0, 1, 7])), min_size=1, max_size=6,
        ),
    )  # fmt: skip
    def send(self, origin: str, priority: str, weights: list[Pair | None]) -> None:
        numbers = [next(self.numbers) for _ in weights]
        self.weights.update(zip(numbers, weights))
        self.lines[origin, priority] += numbers
        messages = [
            Message(b"%d" % number, weight=weight and Weight(*weight)) for number, weight in zip(numbers, weights)
        ]
        self.both(lambda queue: queue.enqueue_messages(origin, messages, priority=priority).count)

    @rule(seconds=JUMPS, back=st.sampled_from([False, False, True]), data=st.data())
    def jump(self, seconds: float, back: bool, data: st.DataObject) -> None:
        """Set the clock; blocks are ended before, because a jump may end their leases."""
        while self.held:
            self.end_block(self.held[0], self.outcomes(self.held[0], data), False)
        self.clock.advance(-seconds if back else seconds)
        self.met["set back"] += back

    @rule()
    def send_everywhere(self) -> None:
        """Send light messages to each queue, so that most blocks have some of each."""
        for origin in ORIGINS:
            for priority in PRIORITIES:
                self.send(origin, priority, [(1, 1), (3, 1)])

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """Let the lease of a block end after a report: housekeeping releases the block."""
        while len(self.held) > 1:
            self.end_block(self.held[0], self.outcomes(self.held[0], data), False)
        (held,) = self.held
        self.end_block(held, self.outcomes(held, data), None)
        self.met["died"] += 1

    @rule()
    def housekeep(self) -> None:
        """Add rows of days that are over to the sums of their days, close these, and delete old rows."""
        self.both(lambda queue: queue.admin.housekeep())

    @rule(reports_begin=st.booleans())
    def plan(self, reports_begin: bool) -> None:
        asleep = self.meet()
        blocks: list[Block] = []

        def plan(queue: MessageQueue) -> Any:
            blocks.append(queue.blocks.plan(
                seed=b"seed", reports_begin=reports_begin, processor_of=lambda name: self.processors.get(name, "")
            ))  # fmt: skip
            return block_facts(blocks[-1])

        self.both(plan)
        block = blocks[0]
        books: dict[tuple[str, str], list[int]] = {}
        for claim in block.claims:
            if not claim.messages:
                continue
            book = claim.whose, claim.priority
            taken = {number for held in self.held for number in held.books.get(book, ())} | set(books.get(book, ()))
            free = [number for number in self.lines[book] if number not in taken]
            books.setdefault(book, []).extend(free[: claim.messages])
            assert not asleep & {id(bucket) for bucket in self.paying(claim.whose)}, "passed the message that waits"
        for bucket in self.buckets.values():
            bucket.take([
                self.planned(number) for (origin, _), numbers in books.items() for number in numbers
                if bucket in self.paying(origin)
            ])  # fmt: skip
            self.met["in debt"] += any(bucket.state.left[part] < 0 for part in bucket.parts)
        self.held.append(Held(blocks, books, reports_begin))
        self.check_entries(blocks, books)

    def found(self) -> dict[str, State]:
        """Return the balances that all stores show now."""

        def balances(queue: MessageQueue) -> dict[str, State]:
            with queue.session.snapshot() as (_, working_set):
                return {
                    bucket.path: State((bucket.left[0], bucket.left[1]), bucket.refilled_to)
                    for path in self.buckets
                    for bucket in working_set.buckets_of(working_set.book(path))
                    if bucket.path == path
                }

        found: dict[str, State] = self.both(balances)
        assert found.keys() == self.buckets.keys()
        return found

    def meet(self) -> set[int]:
        """Compare balances with the plain ones; return the buckets that wait for their first message."""
        for path, state in self.found().items():
            self.buckets[path].meet(state, self.clock.now)
        waiting = [state for state in self.both(lambda queue: queue.inspect.budgets()) if state.wakes_at is not None]
        asleep = [state for state in waiting if round(state.wakes_at.timestamp() * SECOND) > self.clock.now]
        self.met["asleep"] += bool(asleep)
        return {id(self.buckets[state.path]) for state in asleep}

    def check_entries(self, blocks: list[Block], books: dict[tuple[str, str], list[int]]) -> None:
        """Check that a queue that waits for its budget gets nothing, and earns nothing."""
        for queue, block in zip(self.queues, blocks):
            for page in queue.inspect.ledger(block=block.id):
                for entry in page.entries:
                    if entry.reason == "budget" and not entry.messages:
                        assert (entry.origin, entry.priority) not in books
                        self.met["skipped for its budget"] += 1
                        if self.config.order == "deficit" and not self.config.paths:
                            assert entry.deficit <= 0

    @precondition(lambda self: self.held)
    @rule(data=st.data(), released=st.booleans())
    def end(self, data: st.DataObject, released: bool) -> None:
        held = data.draw(st.sampled_from(self.held))
        self.end_block(held, self.outcomes(held, data), released)

    def outcomes(self, held: Held, data: st.DataObject) -> list[tuple[Any, int]]:
        """Draw an outcome of each message, and the milliseconds until it of its queue's batch; 0 if unknown."""
        count = sum(map(len, held.books.values()))
        drawn = st.tuples(st.sampled_from(OUTCOMES), st.sampled_from([0, 0, 3, 50]))
        return data.draw(st.lists(drawn, min_size=count, max_size=count))

    def end_block(self, held: Held, drawn: list[tuple[Any, int]], released: bool | None) -> None:
        """End a block with an outcome of each message, or none; None for `released`: its lease ends first."""
        self.held.remove(held)
        numbers = {book: iter(line) for book, line in held.books.items()}
        places = [
            (claim.whose, claim.priority, part.page, item)
            for claim in held.blocks[0].claims for part in claim.runs
            for item in range(part.first, part.first + part.count)
        ]  # fmt: skip
        batches = {book: number for number, book in enumerate(held.books, start=1)}
        reports: list[Report] = []
        tried: list[tuple[tuple[str, str], int, Any]] = []
        times: Counter[tuple[str, str]] = Counter()
        for (origin, priority, page, item), (outcome, took) in zip(places, drawn, strict=True):
            book = origin, priority
            tried.append((book, next(numbers[book]), outcome))
            if outcome is not None:
                time = (batches[book], took * 1_000 + 7) if took and outcome is not BEGUN else (0, 0)
                times[book] = max(times[book], time[1])
                reports.append(Report(origin, page, item, item, outcome, priority=priority, took=time))
        for queue, block in zip(self.queues, held.blocks):
            queue.blocks.report(block, reports)
        if released is None:
            self.clock.advance(self.config.lease + 1)
        self.meet()
        if released is None:
            assert self.both(lambda queue: queue.admin.housekeep()) == 1
        else:
            for queue, block in zip(self.queues, held.blocks):
                (queue.blocks.release if released else queue.blocks.settle)(block)
        sums: defaultdict[Queue, Sums] = defaultdict(Sums)
        paid: dict[tuple[str, str], list[tuple[Pair, Pair]]] = defaultdict(list)
        left: set[tuple[str, str]] = set()
        for book, number, outcome in tried:
            key = *book, self.processors.get(book[0], "")
            planned = self.planned(number)
            one = self.charge(held, book, number, outcome, left)
            sums[key] = sums[key].plus(**one._replace(planned=planned)._asdict())
            paid[book].append((planned, one.charged))
            if one.messages or one.aside:
                self.lines[book].remove(number)
        for key, one in sums.items():
            book, time = key[:2], times[key[:2]]
            more = max(time // 1_000 - one.charged[0], 0) if self.config.charges_time else 0
            sums[key] = one.plus(measured=time, charged=(more, 0))
            paid[book].append(((0, 0), (more, 0)))
            self.met["charged time"] += bool(more)
        self.account.end(held.blocks[0].id, self.clock.now, sums)
        for pairs in paid.values():
            self.met["charged more"] += any(charged > planned for planned, charged in pairs)
            self.met["not tried"] += any(charged == (0, 0) != planned for planned, charged in pairs)
        for path, state in self.found().items():
            bucket = self.buckets[path]
            bucket.end(
                [pair for (origin, _), pairs in paid.items() if bucket in self.paying(origin) for pair in pairs], state
            )

    def planned(self, number: int) -> Pair:
        """Return the weight that plans take for a message."""
        return self.weights[number] or PREDICTED

    def charge(self, held: Held, book: tuple[str, str], number: int, outcome: Any, left: set[tuple[str, str]]) -> Sums:
        """Return what a message of a block is charged for its outcome, and count its attempt.

        :param left: queues in which a message returned; of an ordered one, messages behind it are not tried
        """
        is_behind = self.config.ordered and book in left and outcome in (None, BEGUN)
        if is_behind or (outcome is None and held.reports_begin):
            # The first message that was not begun stops its queue, too.
            left.add(book)
            return Sums()
        if isinstance(outcome, Overweight):
            # The processor only asked for more: no attempt counts.
            weight = tuple(outcome.weight)
            if weight[0] > MOST[0] or weight[1] > MOST[1]:
                self.met["overweight"] += 1
                return Sums(aside=1)
            self.weights[number] = weight
            left.add(book)
            return Sums()
        planned, used = self.planned(number), getattr(outcome, "used", None)
        charged = max(planned[0], PREDICTED[0]), max(planned[1], PREDICTED[1])
        if used is not None:
            trusted = self.processors.get(book[0]) in self.config.trusted
            self.met["trusted"] += trusted and used != charged
            charged = tuple(used) if trusted else (max(charged[0], used[0]), max(charged[1], used[1]))
        self.attempts[number] += 1
        if isinstance(outcome, (Done, BadFormat)):
            return Sums(charged=charged, messages=1, size=len(b"%d" % number), attempts=1)
        # It yielded, or it has no outcome.
        left.add(book)
        exhausted = self.attempts[number] == self.config.max_attempts
        self.met["exhausted"] += exhausted
        return Sums(charged=charged, attempts=1, aside=int(exhausted))

    # What is always true.

    @invariant()
    def budgets_are_kept(self) -> None:
        for bucket in getattr(self, "buckets", {}).values():
            bucket.check()

    @invariant()
    def charges_are_the_plain_account(self) -> None:
        for queue in getattr(self, "queues", ()):
            deleted, rolled_up = self.account.check(queue, self.clock.now)
            self.met["deleted"] += deleted
            self.met["in sums of days"] += rolled_up
            assert queue.check() == []

    def teardown(self) -> None:
        for queue in getattr(self, "queues", ()):
            queue.close()


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_random_budgets_on_sqlite(tmp_path: Path, clock: Clock, hasty: None) -> None:
    met = run([f"sqlite:///{tmp_path / 'queue.db'}"], clock, chosen(100, 30), Budgets)
    if 0 < EXAMPLES < 100:
        return  # A few random examples need not reach everything.
    assert met["charged more"] > 20 and met["not tried"] > 20
    assert met["asleep"] and met["in debt"] and met["set back"] and met["skipped for its budget"]
    assert met["died"] and met["trusted"] and met["overweight"] and met["exhausted"] and met["charged time"]
    assert met["in sums of days"] and met["deleted"]


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.timeout(0)
def test_random_budgets_on_both_stores(tmp_path: Path, postgres_server: Server, clock: Clock, hasty: None) -> None:
    with postgres_server.database() as uri:
        run([f"sqlite:///{tmp_path / 'queue.db'}", uri], clock, chosen(12, 25), Budgets)
