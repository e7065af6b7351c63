"""Calling processors: the same on a Spark executor and in the process of a task.

What a processor raises is an attempt that failed, for the message that it was handed; a batch is halved
until that message stands alone. So a message of poison costs itself, and nobody else. *Careful* running
goes further, for work that has brought down a process before: functions are called in a child, and the
message at which the child dies has failed like any other.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from inspect import signature
from multiprocessing.connection import Connection
from pickle import UnpicklingError
from typing import Any, NamedTuple, Protocol, cast

from .. import failures, tracing
from ..codecs import Codec, load_codec
from ..core.config import MOST_HEADERS
from ..core.errors import InvalidInput, InvalidOutcome, TokenRefused
from ..core.message import Address
from ..core.outcome import DONE, Done, Outcome, Overweight, Yield, check_outcome, check_sent
from ..core.page import Page
from ..core.permit import OPEN, Permit
from ..core.priority import HIGH, book_name, signed
from ..core.settle import Answers
from ..core.weight import ZERO, Meter, Weight
from ..loading import load_named
from ..processors import Processor
from ..queue import Batch, BatchProcessor, Delivery
from ..queue.attempts import going_on, outcome_of
from ..queue.base import current_delivery
from ..queue.typed import decoding_batches, refused
from ..queue.values import Facts, moment
from .reporting import Reporter, flushed

log = logging.getLogger("airflow_mq.spark")

#: Messages that are handed over together at most, and bytes of them.
TOGETHER, TOGETHER_BYTES = 10_000, 16 << 20


class Item(NamedTuple):
    """A message on its way to a processor."""

    origin: str
    #: Below zero for a high message (`airflow_mq.core.priority.signed`), as in tables.
    page: int
    at: int
    payload: bytes
    headers: Mapping[str, str]
    #: Milliseconds that it is expected to take, as its weight tells.
    time: int = 0
    #: Number of this attempt, from 1.
    attempt: int = 1
    #: When it was enqueued, in microseconds of the store's clock.
    sent: int | None = None
    #: Id of the block that holds it.
    block: int | None = None

    @property
    def place(self) -> tuple[str, int, int]:
        """Where it lies."""
        return self.origin, self.page, self.at

    @property
    def address(self) -> Address:
        """The same, as people are told of it."""
        if self.page < 0:
            return Address(self.origin, signed(self.page, HIGH), self.at, HIGH)
        return Address(self.origin, self.page, self.at)

    @property
    def book(self) -> str:
        """The name of the book in which it lies."""
        return book_name(self.origin, HIGH) if self.page < 0 else self.origin


class ItemDelivery(Delivery):
    """A message of a block, as a processor of messages gets it."""

    __slots__ = ("_item",)

    def __init__(self, item: Item) -> None:
        super().__init__(item.book, item.payload, Page(item.address.page), item.at, Meter(ZERO))
        self._item = item

    @property
    def attempts(self) -> int:
        """How often it was tried before, without an outcome."""
        return self._item.attempt - 1

    @property
    def headers(self) -> Mapping[str, str]:
        """What its sender said beside the payload."""
        return self._item.headers or {}

    @property
    def block(self) -> int | None:
        """Id of the block that holds the message."""
        return self._item.block

    @property
    def sent_at(self) -> datetime | None:
        """Time at which the message was enqueued."""
        return None if self._item.sent is None else moment(self._item.sent)


@dataclass(frozen=True)
class Manner:
    """How the messages of a block are tried, as the plan resolved it for each origin."""

    #: Whether an origin stops at the first message that goes back.
    ordered: bool
    #: The longest message that may be enqueued.
    most: int
    #: What a message may weigh at all: more than this is set aside, and its queue goes on.
    largest: Weight | None = None
    #: With which origins a processor may enqueue.
    permit: Permit = OPEN
    #: Whether logs may show the texts of errors that processors raise (`airflow_mq.failures`).
    log_texts: bool = False
    #: Bytes of all headers of one message that may be enqueued.
    most_headers: int = MOST_HEADERS
    #: The block: its id, and a name for its output that no other block of any store has.
    block: int | None = None
    block_name: str = ""
    #: Origins of which `ordered` is the opposite.
    exceptions: frozenset[str] = frozenset()
    #: The `largest` of origins that have a *most* of their own.
    largest_of: Mapping[str, Weight] = field(default_factory=dict)

    def is_ordered(self, origin: str) -> bool:
        """Whether an origin's messages are processed one after the other."""
        return self.ordered != (origin in self.exceptions)

    def stops(self, origin: str, outcome: Outcome | None) -> bool:
        """Whether the later messages of the origin go back untried."""
        if outcome is None or not self.is_ordered(origin):
            return False
        if isinstance(outcome, Overweight):
            largest = self.largest_of.get(origin, self.largest)
            return largest is None or not outcome.weight.exceeds(largest)
        return isinstance(outcome, Yield)


class Side(Protocol):
    """Where messages come from and answers go: the store, or a folder between us and the store."""

    #: Seconds after which answers are sent, however few.
    seconds: float

    def begin(self) -> None:
        """Report that the messages are about to be tried: from now on, an attempt counts."""

    def batches(self) -> Iterable[Batch]:
        """The messages, in the order of service."""

    def report(self, reports: Sequence[Any]) -> None:
        """Say what became of some of them."""

    def answered(self) -> Mapping[str, Answers]:
        """What was answered before, by origin."""

    def close(self) -> None:
        """Let go of it."""


@dataclass
class Tally:
    """What trying messages came to."""

    done: int = 0
    #: Wrong for good.
    failed: int = 0
    #: Not now, or too heavy.
    back: int = 0
    #: Answered before, by a job that did not get to the end.
    before: int = 0
    #: Why the block takes no more answers.
    refused: str | None = None

    def count(self, outcome: Outcome) -> None:
        """Count one answer."""
        if isinstance(outcome, Done):
            self.done += 1
        elif isinstance(outcome, (Yield, Overweight)):
            self.back += 1
        else:
            self.failed += 1

    def add(self, other: Tally) -> None:
        """Count another's."""
        for name in ("done", "failed", "back", "before"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.refused = self.refused or other.refused

    def __str__(self) -> str:
        said = f"{self.done:,} done, {self.failed:,} wrong for good, {self.back:,} not now"
        return f"{said}, {self.before:,} answered before" if self.before else said


def load_function(name: str) -> Any:
    """The function that a processor names."""
    try:
        found = load_named(name)
    except Exception as error:
        raise InvalidInput(
            f"the function {name} cannot be loaded ({type(error).__name__}: {error}); its module has to be where "
            "this Python finds modules, on the executors too: installed, in PYTHONPATH, or in py_files"
        ) from error
    if not callable(found) and not isinstance(found, BatchProcessor):
        raise InvalidInput(f"{name} is a {type(found).__name__}, and no function")
    return found


def run_share(
    processor: Processor, side: Side, manner: Manner, *, careful: bool = False, again: bool = False,
    function: Callable[..., Any] | None = None, timer: Timer = flushed,
) -> Tally:  # fmt: skip
    """Try the messages of one side, and report; nothing that a message does is raised.

    :param careful: call the function in child processes.
    :param timer: flushes the answers now and then while a message is tried.
    :param again: somebody may have answered before: leave out what has an answer.
    :param function: called message by message, in the place of the one that the processor names.
    """
    tally, reporter = Tally(), Reporter(side.report, side.seconds)
    attempt: Attempts
    if function is None:
        attempt = attempts_of(processor, load_function(processor.function), manner)
    else:
        attempt = OfMessages(function, manner)
    items = unanswered_items(side, manner, tally, again or careful)
    attempt.expect = reporter.expect
    # A process with threads is not forked: while a child works, its parent flushes.
    how = partial(in_child, idle=reporter.flush_quietly, seconds=reporter.seconds) if careful else _here
    try:
        side.begin()
        with nullcontext() if careful else timer(reporter):
            for item, outcome in attempt.outcomes(items, how):
                reporter.add(*item.place, outcome)
                tally.count(outcome)
        reporter.flush()
    except TokenRefused as error:
        tally.refused = str(error)
    return tally


def items_of(batches: Iterable[Batch], block: int | None = None) -> Iterator[Item]:
    """The messages of batches, one by one; of this block, where the batches do not say."""
    nothing = Facts({}, {})
    for batch in batches:
        facts, id_ = batch._facts() if batch._facts else nothing, batch.block if batch.block is not None else block
        headers = batch.headers or ({},) * len(batch)
        times = batch.times or (0,) * len(batch)
        for at, (payload, said, time) in enumerate(zip(batch.payloads, headers, times), batch.first):
            attempt = facts.attempts.get(at, 0) + 1
            page = signed(batch.page, batch.priority)
            yield Item(batch.origin, page, at, payload, said, time, attempt, facts.sent.get(at), id_)


def unanswered_items(side: Side, manner: Manner, tally: Tally, again: bool = True) -> Iterator[Item]:
    """The messages of a side; again: without those that have an answer, or are behind one that stops their origin."""
    # Asked for only when the first is wanted: a block that is not ours any more is told there.
    batches = side.batches()
    yield from left_of(batches, side.answered(), manner, tally) if again else items_of(batches, manner.block)


def left_of(batches: Iterable[Batch], answered: Mapping[str, Answers], manner: Manner, tally: Tally) -> Iterator[Item]:
    """The messages of batches but those that have an answer, and those behind one that stops their origin."""
    stopped: set[str] = set()
    for item in items_of(batches, manner.block):
        known = answered.get(item.book)
        prior = known.get(item.address.page, item.at) if known else None
        if manner.stops(item.origin, prior):
            stopped.add(item.book)
        tally.before += prior is not None
        if prior is None and item.book not in stopped:
            yield item


def groups_of(items: Iterable[Item]) -> Iterator[list[Item]]:
    """As many messages at a time as go well together."""
    group: list[Item] = []
    size = 0
    for item in items:
        group.append(item)
        size += len(item.payload)
        if len(group) >= TOGETHER or size >= TOGETHER_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


# -- the shapes of functions --

Answered = Iterator[tuple[Item, Outcome]]
Call = Callable[[Iterable[Item]], Answered]
How = Callable[[Call, Iterable[Item]], Answered]
Timer = Callable[[Reporter], AbstractContextManager[None]]


def _here(call: Call, items: Iterable[Item]) -> Answered:
    return call(items)


class Attempts:
    """How messages are handed to a function of one shape."""

    def __init__(self, function: Any, manner: Manner) -> None:
        self.function, self.manner = function, manner
        #: Called before messages are tried that are expected to take so many milliseconds.
        self.expect: Callable[[int], None] = lambda milliseconds: None

    def outcomes(self, items: Iterator[Item], how: How) -> Answered:
        """Each message with its outcome; one that the function is silent about has none."""
        raise NotImplementedError

    def checked(self, answer: Any) -> Outcome:
        """What an answer means, and that it can be stored."""
        return check_outcome(outcome_of(answer), self.manner.most, self.manner.permit, self.manner.most_headers)


def attempts_of(processor: Processor, function: Any, manner: Manner) -> Attempts:
    """How the function of a processor is to be called."""
    codec = load_codec(processor.codec) if processor.codec else None
    if isinstance(function, BatchProcessor):
        return OfBatches(decoding_batches(codec, cast("Any", function.process)) if codec else function, manner)
    if processor.shape == "arrow":
        return OfArrow(function, manner)
    return OfMessages(function, manner, codec)


def takes_message(function: Any) -> bool:
    """Return whether a function has a parameter `message`, for the delivery."""
    try:
        return "message" in signature(function).parameters
    except (TypeError, ValueError):
        # Built-in functions do not tell.
        return False


class OfMessages(Attempts):
    """One by one: `f(payload, origin)`, or `f(value, origin)`; with a parameter `message`, that is the delivery."""

    def __init__(self, function: Any, manner: Manner, codec: Codec[Any] | None = None) -> None:
        super().__init__(function, manner)
        self.codec = codec
        self.takes_message = takes_message(function)

    def outcomes(self, items: Iterator[Item], how: How) -> Answered:
        """Every message's outcome, up to where its origin stops."""
        stopped: set[str] = set()
        for group in groups_of(items):
            left = [item for item in group if item.book not in stopped]
            while left:
                answered = set()
                ahead = _Ahead(left, stopped)
                self.expect(ahead.time_after(None))
                try:
                    for item, outcome in how(self._call, left):
                        answered.add(item.place)
                        if self.manner.stops(item.origin, outcome):
                            stopped.add(item.book)
                        yield item, outcome
                        self.expect(ahead.time_after(item))
                    break
                except ChildDied as error:
                    culprit, fate = _first(left, answered, stopped), Yield(str(error))
                answered.add(culprit.place)
                if self.manner.stops(culprit.origin, fate):
                    stopped.add(culprit.book)
                yield culprit, fate
                left = [item for item in left if item.place not in answered and item.book not in stopped]

    def _call(self, items: Iterable[Item]) -> Answered:
        stopped = set()
        for item in items:
            if item.book in stopped:
                continue
            outcome = self._try(item)
            if self.manner.stops(item.origin, outcome):
                stopped.add(item.book)
            yield item, outcome

    def _try(self, item: Item) -> Outcome:
        delivery = ItemDelivery(item)
        if item.headers and tracing.is_traced(item.headers):
            with tracing.within(item.headers):
                return self._try_as(item, delivery)
        return self._try_as(item, delivery)

    def _try_as(self, item: Item, delivery: Delivery) -> Outcome:
        mark = current_delivery.set(delivery)
        try:
            value: Any = item.payload
            if self.codec is not None:
                try:
                    value = self.codec.decode(value)
                except ValueError as error:
                    return refused(str(item.address), error)
            more = {"message": delivery} if self.takes_message else {}
            outcome = self.checked(self.function(value, item.origin, **more))
            if delivery.sent and isinstance(outcome, Done):
                bounds = self.manner.most, self.manner.permit, self.manner.most_headers
                sent = [check_sent(entry, *bounds) for entry in (*delivery.sent, *outcome.enqueue)]
                outcome = Done(outcome.success, outcome.id, outcome.used, sent)
            return going_on(outcome, item.headers or {})
        except (Exception, SystemExit) as error:
            return _failed(item, error, self.manner)
        finally:
            current_delivery.reset(mark)


class _Ahead:
    """Tells of messages that are tried one by one how long the next is expected to take."""

    def __init__(self, items: Sequence[Item], stopped: Container[str]) -> None:
        self.items, self.stopped = items, stopped
        self.is_known = any(item.time for item in items)
        self._at = 0

    def time_after(self, item: Item | None) -> int:
        """Milliseconds of the message that is tried after this one."""
        if not self.is_known:
            return 0
        items = self.items
        while item is not None and self._at < len(items) and items[self._at] is not item:
            self._at += 1
        self._at += item is not None
        while self._at < len(items) and items[self._at].book in self.stopped:
            self._at += 1
        return items[self._at].time if self._at < len(items) else 0


def _first(items: Sequence[Item], answered: Container[tuple[str, int, int]], stopped: Container[str]) -> Item:
    """The message that was being tried when a child died."""
    return next(item for item in items if item.place not in answered and item.book not in stopped)


class Together(Attempts):
    """Many at once: a call that fails is tried again by halves, until what fails stands alone."""

    def outcomes(self, items: Iterator[Item], how: How) -> Answered:
        """Every message's outcome."""
        for group in self.groups(items):
            yield from self._halved(group, how)

    def groups(self, items: Iterator[Item]) -> Iterator[Sequence[Item]]:
        """Messages that are handed over together."""
        raise NotImplementedError

    def call(self, items: Iterable[Item]) -> Answered:
        """Hand messages over."""
        raise NotImplementedError

    def _halved(self, items: Sequence[Item], how: How) -> Answered:
        answered = set()
        self.expect(sum(item.time for item in items))
        try:
            for item, outcome in how(self.call, items):
                answered.add(item.place)
                yield item, outcome
            return
        except (Exception, SystemExit) as error:
            left = [item for item in items if item.place not in answered]
            if len(left) == 1:
                yield left[0], _failed(left[0], error, self.manner)
            if len(left) <= 1:
                return
            log.warning("the processor failed on %d messages (%s); trying them by halves", len(left), _reason(error))
        half = len(left) // 2
        yield from self._halved(left[:half], how)
        yield from self._halved(left[half:], how)


class OfBatches(Together):
    """Neighbours of one origin: what `batch_processor` made."""

    def groups(self, items: Iterator[Item]) -> Iterator[Sequence[Item]]:
        """Neighbours in one page."""
        group: list[Item] = []
        for item in items:
            if group and (item.place[:2] != group[-1].place[:2] or item.at != group[-1].at + 1):
                yield group
                group = []
            group.append(item)
        if group:
            yield group

    def call(self, items: Iterable[Item]) -> Answered:
        """Call the function for one batch."""
        group = list(items)
        first = group[0]
        said = {item.at: item.headers for item in group if item.headers}
        facts = Facts(
            {item.at: item.attempt - 1 for item in group},
            {item.at: item.sent for item in group if item.sent is not None},
        )  # fmt: skip
        batch = Batch(
            first.origin, [item.payload for item in group], first.page, first.at, lambda: said, block=first.block,
            _facts=lambda: facts,
        )  # fmt: skip
        answers = self.function.process(batch)
        if answers is not None and len(answers) != len(group):
            raise InvalidOutcome(f"a batch of {len(group)} messages needs as many answers, not {len(answers)}")
        outcomes = [DONE] * len(group) if answers is None else [self.checked(answer) for answer in answers]
        outcomes = [going_on(outcome, item.headers or {}) for item, outcome in zip(group, outcomes)]
        yield from zip(group, outcomes)


class OfArrow(Together):
    """Record batches in, record batches out."""

    def groups(self, items: Iterator[Item]) -> Iterator[Sequence[Item]]:
        """As many as go well together, of whatever origins."""
        return groups_of(items)

    def call(self, items: Iterable[Item]) -> Answered:
        """Call the function for one record batch."""
        from .tables import answers_in, batch_of

        waiting = {item.place: item for item in items}
        for batch in self.function(iter([batch_of(list(waiting.values()))])):
            for place, outcome in answers_in(batch):
                item = waiting.pop(place, None)
                if item is not None:
                    yield item, self.checked(outcome)


def _failed(item: Item, error: BaseException, manner: Manner) -> Yield:
    # What a child died of, or failed with, was put in words that are safe to keep.
    told = error if isinstance(error, (ChildDied, ChildFailed)) else failures.loggable(error, manner.log_texts)
    log.error("the processor failed on %s; it will be tried again", ascii(str(item.address))[1:-1], exc_info=told)
    return Yield(_reason(error).encode("utf-8", "replace").decode().replace("\0", " ")[:2000])


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, (ChildDied, ChildFailed)) else failures.reason_of(error)


# -- in a child, whose death is told and not shared --


class ChildDied(Exception):
    """The process that ran a processor is gone."""


class ChildFailed(Exception):
    """What a call raised in a child, in words that are safe to keep."""


def in_child(
    call: Call, items: Iterable[Item], idle: Callable[[], None] | None = None, seconds: float | None = None
) -> Answered:
    """Run a call in a child; raises `ChildDied` when the child ends before its work does.

    :param idle: called whenever the child has not answered for so many seconds.
    """
    group = list(items)
    places = {item.place: item for item in group}
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _be_child(call, group, reading, writing)
    os.close(writing)
    try:
        with Connection(reading, writable=False) as stream:
            while True:
                while idle and not stream.poll(seconds):
                    idle()
                try:
                    told = stream.recv()
                except (EOFError, OSError, UnpicklingError):
                    raise ChildDied(_fate(child)) from None
                if told is None:
                    return
                if isinstance(told, BaseException):
                    raise told
                yield places[told[0]], told[1]
    finally:
        _bury(child)


def _be_child(call: Call, group: Sequence[Item], reading: int, writing: int) -> None:
    """The child's whole life. It leaves without running anything of its parent's: not its `finally`, not its exits."""
    try:
        os.close(reading)
        with Connection(writing, readable=False) as stream:
            told: Any = None
            try:
                for item, outcome in call(group):
                    stream.send((item.place, outcome))
            except (Exception, SystemExit) as error:
                told = ChildFailed(failures.reason_of(error))
            stream.send(told)
    finally:
        os._exit(0)


def _fate(child: int) -> str:
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name if number in list(signal.Signals) else str(number)
        return f"the process that ran it was ended by {name}"
    return f"the process that ran it ended with exit code {os.waitstatus_to_exitcode(status)}"


def _bury(child: int) -> None:
    try:
        if os.waitpid(child, os.WNOHANG)[0] == 0:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    except (ChildProcessError, ProcessLookupError):
        pass


@dataclass(frozen=True)
class Task:
    """What one executor does at a time: a processor and its share of the messages."""

    processor: Processor
    share: Any = field(repr=False)
    messages: int = 0
