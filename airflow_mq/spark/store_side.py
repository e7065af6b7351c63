"""A job's access to the store: its share of a block, and the reports of outcomes."""

from __future__ import annotations

import heapq
import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256

from .. import failures
from ..engine.queue import MessageQueue
from ..engine.queue.blocks.block import Block
from ..engine.queue.values import Batch, Delivery, Report
from ..engine.rules.blob import Reference
from ..engine.rules.characters import visible
from ..engine.rules.claims import Claim, ClaimRun
from ..engine.rules.errors import (
    BlobMissing,
    InvalidInput,
    MessageQueueError,
    StoreCorrupt,
    StoreMissing,
    StoreUnreachable,
    TokenRefused,
)
from ..engine.rules.judging import bounds_of
from ..engine.rules.outcome import BEGUN, NotBegun, Unsupported, Yield, send_bounds
from ..engine.rules.settle import Answers
from ..processors import Part, Processor, Processors
from .attempts import Function
from .items import Place, groups_of, growing_groups_of, place_of
from .lease import BlockLease
from .reports import CHUNK_SECONDS, patiently
from .share import Groups, NotLoaded, Reported, Task, loaded, run_share
from .terms import JobTerms

log = logging.getLogger("airflow_mq.spark")

#: Seconds to wait for another writer.
BUSY_TIMEOUT = 30.0
#: Advice in the error of an executor that cannot open the store.
NO_ACCESS = "Executors need access to this store, or the block an `exchange`"


def from_environment(name: str) -> str:
    """Return a variable that only the environment may hold."""
    value = os.environ.get(name)
    if not value:
        raise InvalidInput(
            f"{name} is not set: pass it in the environment, which neither command lines nor logs show "
            "(see airflow_mq.spark.job)"
        )
    return value


@dataclass(frozen=True)
class StoreChannel:
    """Access to a block in its store. Spark ships it to executors as code, so it holds the address."""

    uri: str = field(repr=False)
    ring: str
    token: str = field(repr=False)

    def connect(self) -> MessageQueue:
        return patiently(lambda: MessageQueue(self.uri, self.ring, busy_timeout=BUSY_TIMEOUT))

    @contextmanager
    def open(self, share: Sequence[Claim], epoch: int = 0) -> Iterator[StoreSide]:
        """Open a share, on an executor."""
        try:
            queue = self.connect()
        except (StoreMissing, StoreUnreachable) as error:
            raise type(error)(f"{error}. {NO_ACCESS}") from None
        with queue:
            yield StoreSide(queue, self.token, share, epoch)

    def epoch(self, shares: Iterable[Sequence[Claim]]) -> int:
        """Return the epoch of the latest attempt at shares; 0 without one."""
        books = {claim.origin for share in shares for claim in share}
        with self.connect() as queue:
            answered = patiently(lambda: queue.blocks.reported(self.token))
        return max((answers.epoch for book, answers in answered.items() if book in books), default=0)


class StoreSide:
    """A share of a block in the store: some of its claims."""

    seconds = CHUNK_SECONDS

    def __init__(self, queue: MessageQueue, token: str, share: Sequence[Claim], epoch: int = 0) -> None:
        self.queue, self.token, self.share, self.epoch = queue, token, share, epoch

    def begin(self) -> None:
        patiently(lambda: self.queue.blocks.mark(self.token, self.share, BEGUN, self.epoch))

    def batches(self) -> Iterable[Batch]:
        ordered = {claim.origin for claim in self.share if claim.ordered}
        return with_payloads(self.queue, self.queue.blocks.batches(self.share), self.report, ordered)

    def report(self, reports: Sequence[Report]) -> None:
        """Report outcomes; the first one of a message counts, so a report may be repeated."""
        if self.epoch:
            reports = [replace(report, epoch=self.epoch) for report in reports]
        patiently(lambda: self.queue.blocks.report(self.token, reports))

    def answered(self) -> Mapping[str, Answers]:
        return patiently(lambda: self.queue.blocks.reported(self.token))


@contextmanager
def reporting_failure(queue: MessageQueue, token: str, processors: Processors, part: Part) -> Iterator[None]:
    """Report an error that keeps a part of a block from its processors; the messages go back without an attempt."""
    try:
        yield
    except NotLoaded:
        raise
    except Exception as error:
        with suppress(MessageQueueError):
            report_not_begun(queue, token, processors, part, error)
        raise


def report_not_begun(queue: MessageQueue, token: str, processors: Processors, part: Part, error: Exception) -> None:
    """Report an error to all messages of a part that were not begun."""
    block = queue.blocks.get(token)
    mine = {origin for origins in processors.mine(part, block.origins).values() for origin in origins}
    claims = [claim for claim in block.claims if claim.whose in mine]
    answered = queue.blocks.reported(token)
    # Once a processor was called, the error's text may quote a message.
    quotes = any(answered[claim.origin].any_begun for claim in claims if claim.origin in answered)
    if quotes:
        # Those that have an error alone keep it.
        claims = [claim for claim in claims if claim.origin not in answered or answered[claim.origin].any_begun]
    queue.blocks.mark(token, claims, NotBegun(type(error).__name__) if quotes else not_begun(error))


def not_begun(error: Exception) -> NotBegun:
    """Return the mark of messages that an error kept from their processor."""
    first_line = str(error).strip().partition("\n")[0]
    return NotBegun(f"{type(error).__name__}{': ' if first_line else ''}{first_line}")


def with_payloads(
    queue: MessageQueue,
    batches: Iterable[Batch],
    report: Callable[[Sequence[Report]], None],
    ordered: Collection[str] = (),
) -> Iterator[Batch]:
    """Yield batches with external payloads in place of their references, one by one to bound memory.

    A payload larger than the ring's `whole_payloads` stays a reference; a message without its payload is *unsupported*.
    If a payload is damaged or cannot be read now, its message answers *not now*. Later ones of an ordered book are left
    out; of a relaxed one, those with external payloads answer the same if the store of payloads does not answer,
    because each try may take as long as a timeout.
    """
    away: dict[str, Yield] = {}
    for batch in batches:
        if batch.book in away and batch.book in ordered:
            continue
        if not any(isinstance(payload, Reference) for payload in batch.payloads):
            yield batch
            continue
        kept: list[Report] = []
        for at, payload in enumerate(batch.payloads):
            single = replace(batch, payloads=[payload], first=batch.first + at)
            if batch.book in away and isinstance(payload, Reference):
                kept.append(single.answer(away[batch.book]))
                continue
            try:
                yield replace(single, payloads=[_payload(queue, payload)])
            except BlobMissing:
                report([single.answer(Unsupported())])
            except (StoreCorrupt, StoreUnreachable) as error:
                outcome = Yield(failures.reason_of(error))
                if batch.book in ordered or isinstance(error, StoreUnreachable):
                    away[batch.book] = outcome
                log.error("%s is kept: %s", visible(str(single.addresses[0])), error)
                # If it is the database that does not answer, this fails.
                report([single.answer(outcome)])
                if batch.book in ordered:
                    break
        if kept:
            report(kept)


def _payload(queue: MessageQueue, payload: bytes) -> bytes:
    if not isinstance(payload, Reference) or payload.size > queue.config.whole_payloads:
        return payload
    with queue.payloads.open(payload) as file:
        return file.read()


def live_block(queue: MessageQueue, token: str) -> Block:
    """Return the block. Raises `TokenRefused` if it takes no more outcomes."""
    block = queue.blocks.get(token)
    if block.state != "planned":
        raise TokenRefused(f"block {block.id} is {block.state}: too late to process it. Nothing was changed")
    return block


def terms_of(queue: MessageQueue, block: Block) -> JobTerms:
    """Return the terms of a block, as its claims record them."""
    config = queue.config
    bounds = bounds_of(config, block.limit)
    exceptions = frozenset(one.whose for one in block.claims if one.ordered != config.ordered)
    largest_of = {one.whose: bounds.of(one.most).limit for one in block.claims if one.most is not None}
    return JobTerms(
        ordered=config.ordered,
        bounds=send_bounds(config, queue.session.permit),
        largest=bounds.limit,
        log_texts=failures.texts_allowed(),
        block=block.id,
        block_name=block_name(block),
        exceptions=exceptions,
        largest_of=largest_of,
        max_attempts=config.max_attempts,
        place=queue.session.place,
    )


def block_name(block: Block) -> str:
    """Return a name for the output of a block that no other block of any store has; its token stays a secret."""
    return f"{block.id}-{sha256(block.token.encode()).hexdigest()[:16]}"


def tasks_of(block: Block, terms: JobTerms, processors: Processors, part: Part, width: int) -> list[Task]:
    """Divide a part of a block into about `width` shares for each processor."""
    mine = processors.mine(part, block.origins)
    owners = {origin: name for name, origins in mine.items() for origin in origins}
    claims: dict[str, list[Claim]] = {name: [] for name in mine}
    for claim in block.claims:
        if claim.messages and claim.whose in owners:
            claims[owners[claim.whose]].append(claim)
    return [
        Task(processors[name], share, sum(claim.messages for claim in share))
        for name, found in claims.items()
        for share in shares_of(found, terms, width)
    ]


def shares_of(claims: Iterable[Claim], terms: JobTerms, width: int) -> list[list[Claim]]:
    """Divide claims into about `width` shares, of about equal numbers of messages.

    An ordered origin is never cut; of a relaxed one, its pages may go to different executors.
    """
    units = _units(claims, terms)
    loads: list[tuple[int, int]] = [(0, place) for place in range(min(width, len(units)))]
    shares: list[list[Claim]] = [[] for _ in loads]
    for unit in units:
        load, place = heapq.heappop(loads)
        shares[place] += unit
        heapq.heappush(loads, (load + sum(claim.messages for claim in unit), place))
    return shares


def _units(claims: Iterable[Claim], terms: JobTerms) -> list[list[Claim]]:
    """Return the smallest pieces: all claims of an ordered origin, one run of a relaxed one."""
    units: list[list[Claim]] = []
    whole: dict[str, list[Claim]] = {}
    for given in claims:
        # Without the weights, which only settling needs.
        runs: list[ClaimRun] = [replace(run, weights=[]) for run in given.runs]
        claim = Claim(given.origin, runs, ordered=given.ordered)
        if not terms.is_ordered(claim.whose):
            units += [[replace(claim, runs=[run])] for run in runs]
        elif claim.whose in whole:
            whole[claim.whose].append(claim)
        else:
            units.append(whole.setdefault(claim.whose, [claim]))
    return units


def run_in_place(
    queue: MessageQueue,
    token: str,
    processors: Processors,
    part: Part,
    lease: float | None = None,
    function: Function | None = None,
) -> Reported:
    """Try a part of a block in this process, without Spark, while the block's lease is kept.

    :param function: called message by message, in place of the processors' functions

    Raises `TokenRefused` if the block was settled or released before the end.
    """
    total, report = Reported(), partial(report_not_begun, queue, token, processors)
    checked = loaded(processors, part, report) if function is None else nullcontext(part)
    with checked as part, BlockLease(queue, token, lease) as keeper:
        block = live_block(queue, token)
        terms = terms_of(queue, block)
        answered = queue.blocks.reported(token)
        tried, tasks = TriedBefore(terms, answered), tasks_of(block, terms, processors, part, 1)

        def run(processor: Processor, share: Sequence[Claim], groups: Groups, again: bool) -> None:
            side = StoreSide(queue, token, share)
            total.add(run_share(processor, side, terms, again=again, groups=groups, function=function))
            refused = keeper.refused or (TokenRefused(total.refused) if total.refused else None)
            if refused:
                raise refused

        for task in tasks:
            run(task.processor, task.share, tried.others, bool(answered))
        before = total.before
        for task in tasks:
            if share := tried.claims_of(task.share):
                run(task.processor, share, tried.groups, True)
        total.before = before
        return total


class TriedBefore:
    """Messages that a worker began before, and what an ordered book holds behind them.

    One of them may end this process again. So they come last, in small groups, and the books that were tried most often
    at the very end.
    """

    def __init__(self, terms: JobTerms, answered: Mapping[str, Answers]) -> None:
        self.terms, self.answered = terms, answered
        #: The first one of each book, and the most attempts of any.
        self._found: dict[str, tuple[Place, int]] = {}

    def others(self, messages: Iterator[Delivery]) -> Iterator[list[Delivery]]:
        """Group all other messages, and note these."""
        return groups_of(filter(self._leaves_out, messages))

    def groups(self, messages: Iterator[Delivery]) -> Iterator[list[Delivery]]:
        """Group these messages of their claims."""
        return growing_groups_of(filter(self._holds, messages))

    def claims_of(self, share: Sequence[Claim]) -> list[Claim]:
        """Return the claims that contain them."""
        found = [claim for claim in share if claim.origin in self._found]
        return sorted(found, key=lambda claim: self._found[claim.origin][1])

    def _attempt(self, message: Delivery) -> int:
        answers = self.answered.get(message.book)
        return message.attempt + bool(answers and answers.was_begun(message.page, message.index))

    def _leaves_out(self, message: Delivery) -> bool:
        attempt = self._attempt(message)
        if attempt > 1:
            first, most = self._found.get(message.book, (place_of(message), 0))
            self._found[message.book] = first, max(most, attempt)
        return attempt == 1 and not (message.book in self._found and self.terms.is_ordered(message.origin))

    def _holds(self, message: Delivery) -> bool:
        if self.terms.is_ordered(message.origin):
            return place_of(message) >= self._found[message.book][0]
        return self._attempt(message) > 1
