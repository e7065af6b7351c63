"""Quotes: when messages would finish that are not sent yet, what they would cost, and whom they would delay.

Two forecasts run side by side, one with the messages and one without. Both get the same further arrivals: what the
latest blocks processed arrives once more, over and over.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count, islice, repeat
from statistics import median
from typing import NamedTuple

from ...rules.blob import extent
from ...rules.book import PAUSED, SKIPS
from ...rules.config import RingConfig
from ...rules.errors import InvalidInput
from ...rules.events import Fate
from ...rules.message import Attributes, Message
from ...rules.priority import origin_of, priority_of
from ...rules.weight import ZERO, Weight, total_weight
from ...store.rows import LATEST, InboxRow
from ...store.unit import Unit
from ..sending.packing import PackedCall
from ..values import moment
from .events import ROWS, runs_of
from .forecast import ForecastBlock, Foresight, Pace
from .queues import queue_states

#: Latest blocks whose messages arrive once more, and rows of their events that are read.
REPLAYED, MOST_ROWS = 20, 5_000
#: Bytes that are assumed at most for a message of which only the weight is known.
MOST_ASSUMED = 1_024
#: Messages of a quote, which are held in memory, and blocks after which it ends.
MOST_MESSAGES, MOST_BLOCKS = 1_000_000, 10_000
#: Seconds after which a quote ends by default.
SECONDS = 60.0


@dataclass(frozen=True)
class AddedWait:
    """The longest time by which some message of an origin is processed later."""

    origin: str
    seconds: float
    #: Whether it may be longer: the quote ended before that message was processed.
    more: bool = False


@dataclass(frozen=True)
class Quote:
    """The effects of sending some messages to an origin: their end, their charge, and the waits that they add."""

    origin: str
    messages: int
    #: Their weight as it is charged if none uses more: as predicted, or as declared if that is more.
    charge: Weight
    #: Blocks until the last of them is processed, and when; None if the quote ended before, or they never are.
    blocks: int | None
    finishes_at: datetime | None
    #: Messages that are left when the quote ends, and those that would be set aside.
    left: int
    set_aside: int
    #: Seconds between two blocks.
    every: float
    #: Why they are not processed: the reason for which their queue is skipped, or that they are too heavy.
    stopped: str = ""
    #: Whether the quote ended because it took too long.
    is_partial: bool = False
    #: Every other origin of which a message was processed, the longest wait first.
    added: Sequence[AddedWait] = field(default=(), repr=False)

    @property
    def longest(self) -> float:
        """The longest added wait of another origin, in seconds."""
        return max((wait.seconds for wait in self.added), default=0.0)

    @property
    def median(self) -> float:
        """The median of the other origins' longest added waits."""
        return median([wait.seconds for wait in self.added] or [0.0])


class Arrival(NamedTuple):
    """Messages of a queue that arrive together, some microseconds after the beginning."""

    after: int
    rows: Sequence[InboxRow]


class Traffic:
    """Messages that arrive again and again, as they did in a time before the quote."""

    def __init__(self, config: RingConfig, length: int) -> None:
        """:param length: microseconds until they arrive once more."""
        self.config, self.length = config, length
        self.arrivals: list[Arrival] = []

    @classmethod
    def latest(cls, unit: Unit, ring: int, config: RingConfig, now: int) -> Traffic:
        """Return what the latest blocks of a ring processed, as far as events are kept; the latest comes first."""
        pages, kept = unit.ledger.heads(ring, REPLAYED + 1), now - int(config.keep_events * 1_000_000)
        begin = next((page.at for page in pages if page.at <= kept), pages[-1].at if pages else now)
        since, before, read = max(begin, kept), LATEST, 0
        traffic = cls(config, now - begin)
        while rows := [row for row in unit.events.recent(ring, before, ROWS) if row.at > since]:
            for row in rows:
                for run in runs_of(row):
                    if run.fate in (Fate.PROCESSED, Fate.DECLINED):
                        traffic.add(now - row.at, row.origin, run.weights)
            before, read = rows[-1].id, read + len(rows)
            if read >= MOST_ROWS:
                # There are more, so that these are from a shorter time.
                since = rows[-1].at
                traffic.length = now - since
        return traffic

    def add(self, after: int, name: str, weights: Sequence[Weight]) -> None:
        """Let messages of these weights arrive in a queue."""
        call = PackedCall(self.config, priority=priority_of(name))
        call.pack((origin_of(name), Message(assumed(weight, self.config), weight=weight)) for weight in weights)
        self.arrivals.append(Arrival(after, [row._replace(heap=None) for row in call.rows()]))

    def rows(self) -> Iterator[Arrival]:
        """Yield what arrives, without an end unless there is nothing."""
        for lap in count() if self.arrivals and self.length > 0 else ():
            for arrival in self.arrivals:
                yield arrival._replace(after=arrival.after + lap * self.length)


def assumed(weight: Weight, config: RingConfig) -> bytes:
    """Return a payload for a message of which only the weight is known. Few of them fill no page, if they are large."""
    most = min(MOST_ASSUMED, config.max_message_len, config.max_message_size or MOST_ASSUMED)
    return bytes(max(min(weight.size, most), 1))


class Offer:
    """Messages that may be sent to a queue, and what they would be charged."""

    def __init__(self, config: RingConfig, name: str, weight: Weight | None = None) -> None:
        """:param weight: of messages without one of their own."""
        self.config, self.name, self.weight = config, name, weight
        self.origin, self.priority = origin_of(name), priority_of(name)
        self.call = PackedCall(config, Attributes(weight), priority=self.priority)
        self.charge = ZERO

    def add(self, messages: Iterable[bytes | Message]) -> None:
        """Add messages. Each is charged its predicted weight, or the declared one if that is more."""
        self.call.pack((self.origin, self._charged(message)) for message in islice(messages, MOST_MESSAGES + 1))
        check_count(self.call.count)

    def add_alike(self, count: int) -> None:
        """Add so many messages of the same weight."""
        weight = self.weight or ZERO
        check_count(count)
        self.call.pack(repeat((self.origin, assumed(weight, self.config)), count))
        self.charge = total_weight([weight] * count)

    def _charged(self, message: bytes | Message) -> bytes | Message:
        own = message if isinstance(message, Message) else Message(message)
        if own.priority not in (None, self.priority):
            raise InvalidInput(f"a message has the priority {own.priority}: a quote is for one queue")
        size, beside = extent(own.payload), Attributes.given_by(own).beside
        predicted, declared = self.config.weigher.weigh(size, beside), own.weight or self.weight
        self.charge = self.charge.plus(predicted if declared is None else predicted.at_least(Weight.of(declared)))
        return message


def check_count(count: int) -> None:
    """Refuse a quote of too many messages."""
    if count > MOST_MESSAGES:
        raise InvalidInput(f"a quote is for at most {MOST_MESSAGES:,} messages: quote a part of them")


class Course:
    """One of the two forecasts: the blocks of a ring, with what each queue has got of them so far."""

    def __init__(self, future: Foresight, pace: Pace, traffic: Traffic) -> None:
        self.future, self.pace = future, pace
        self._arrivals, self._began = traffic.rows(), future.overlay.now
        self._next = next(self._arrivals, None)
        #: Of each queue: how many of its messages were taken by each block that took some and those before, and when.
        self.taken: defaultdict[str, list[int]] = defaultdict(list)
        self.times: defaultdict[str, list[int]] = defaultdict(list)

    @property
    def now(self) -> int:
        """The time of the latest block, in microseconds."""
        return self.future.overlay.now

    def step(self) -> ForecastBlock:
        """Plan and settle the next block, behind all that arrives before it."""
        future = self.future
        future.pass_time(self.pace.every if future.number else self.pace.first)
        rows: list[InboxRow] = []
        while self._next is not None and self._next.after < self.now - self._began:
            rows += self._next.rows
            self._next = next(self._arrivals, None)
        future.overlay.arrive(rows)
        block = future.next_block()
        for claim in block.claims:
            count = sum(run.count for run in claim.runs)
            if count:
                self.taken[claim.origin].append(self.taken_of(claim.origin) + count)
                self.times[claim.origin].append(self.now)
        future.settle(block.claims)
        return block

    def taken_of(self, name: str) -> int:
        """Return how many messages of a queue were taken so far."""
        return self.taken[name][-1] if self.taken[name] else 0

    def added_wait(self, name: str, other: Course) -> AddedWait:
        """Return by how much messages of a queue are processed later here than in another course."""
        sums, times, before, longest = other.taken[name], other.times[name], 0, 0
        for taken, at in zip(self.taken[name], self.times[name]):
            # The first message of those that this block takes waits the longest, compared with the other course.
            place = bisect_left(sums, before + 1)
            longest = max(longest, at - times[place] if place < len(sums) else 0)
            before = taken
        is_behind = before < other.taken_of(name)
        if is_behind:
            longest = max(longest, self.now - times[bisect_left(sums, before + 1)])
        return AddedWait(origin_of(name), longest / 1_000_000, is_behind)


def quote_of(future: Foresight, offer: Offer, pace: Pace, seconds: float, traffic: Traffic | None = None) -> Quote:
    """Return what it would mean to send the offered messages; see `Inspect.quote`.

    :param future: a forecast that has not begun
    :param traffic: what arrives meanwhile; by default, what the latest blocks processed
    """
    began, session, unit, name = time.monotonic(), future.session, future.overlay.unit, offer.name
    traffic = Traffic.latest(unit, session.ring_id, future.config, future.overlay.now) if traffic is None else traffic
    free = Course(Foresight(session, unit, future.conditions), pace, traffic)
    burdened = Course(future, pace, traffic)
    burdened.future.overlay.arrive(offer.call.rows())
    states = queue_states(unit, burdened.future.working_set(), [name], most=LATEST, exact=False)
    wanted = sum(state.ready for state in states)
    blocks, finished_at, stopped, is_partial, set_aside = None, None, "", False, 0
    for number in range(1, MOST_BLOCKS + 1):
        block = burdened.step()
        free.step()
        if blocks is None:
            set_aside += block.queue(offer.origin, offer.priority).set_aside
        if blocks is None and burdened.taken_of(name) >= wanted:
            blocks, finished_at = number, moment(burdened.now)
        if blocks is None:
            stopped = _stopped(burdened.future, block, name)
        is_over = blocks is not None and (number >= 2 * blocks + 2 or _is_level(burdened, free, name))
        is_partial = not (stopped or is_over) and (number == MOST_BLOCKS or time.monotonic() - began > seconds)
        if stopped or is_over or is_partial:
            break
    others = {other for other in (*free.taken, *burdened.taken) if origin_of(other) != origin_of(name)}
    added: dict[str, AddedWait] = {}
    for wait in sorted((burdened.added_wait(other, free) for other in others), key=lambda wait: wait.seconds):
        added[wait.origin] = wait
    left = min(max(wanted - burdened.taken_of(name), 0), offer.call.count)
    waits = sorted(added.values(), key=lambda wait: (-wait.seconds, wait.origin))
    return Quote(
        offer.origin, offer.call.count, offer.charge, blocks, finished_at, left, min(set_aside, offer.call.count),
        pace.every, stopped, is_partial, waits,
    )  # fmt: skip


def _stopped(future: Foresight, block: ForecastBlock, name: str) -> str:
    """Return why a queue gets nothing of any block; an empty text if it only waits."""
    skipped = future.working_set().book(name).skipped
    if skipped == PAUSED and future.resumes_at(name) == LATEST:
        return SKIPS[skipped]
    needs = block.queue(origin_of(name), priority_of(name)).needs
    return f"a message of {needs} does not fit a block of {block.limit}" if needs is not None else ""


def _is_level(burdened: Course, free: Course, name: str) -> bool:
    """Return whether all other queues have got as much with the messages as without them."""
    others = {*free.taken, *burdened.taken} - {name}
    return all(burdened.taken_of(other) >= free.taken_of(other) for other in others)
