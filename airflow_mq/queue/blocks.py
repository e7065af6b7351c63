"""Blocks that take time: plan, report from anywhere, settle; or release what died."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from ..core.characters import quoted
from ..core.claims import Claim, ClaimRun, Decision, Scales
from ..core.errors import (
    InFlight,
    InsufficientWeight,
    InvalidInput,
    TemporarilyUnprocessable,
    TokenRefused,
    UnknownBlock,
)
from ..core.message import Address, check_address, check_key, check_seconds
from ..core.orders import parts_of
from ..core.outcome import BEGUN, Done, Mark, Outcome
from ..core.overweight import find_set_aside, settle_execution
from ..core.page import PROCESSED, Page
from ..core.paths import charge_overrun
from ..core.service import overweight_limit
from ..core.settle import Answers, ClaimSettler, Settlement
from ..core.taking import OriginPatterns
from ..core.weigher import WeighPayloads
from ..core.weight import ZERO, Weight
from ..store import codec
from ..store.rows import PLANNED, RELEASED, SETTLED, BlockRow
from ..store.shelf import SqlShelf
from ..store.unit import Unit
from . import measures
from .base import QueueBase
from .planning import VIEWED, Planner, new_block
from .reports import answers_of, plain_reports
from .values import Batch, Facts, Report, Serviced, moment

log = logging.getLogger("airflow_mq.blocks")

STATES = ("planned", "settled", "released")
#: How often a plan is begun anew because the ring changed while a user's weigher ran.
PLANS = 5
#: Payload bytes that are fetched together when a block's batches are read.
FETCHED = 16 << 20


@dataclass
class Block:
    """What a plan claimed. It lives until it is settled or released, or its deadline passes."""

    id: int
    key: str | None
    token: str
    state: str
    deadline: datetime
    limit: Weight
    planned: Weight
    #: What servicing itself costs, beside the messages.
    overhead: Weight
    messages: int
    claims: Sequence[Claim] = field(default=(), repr=False)
    #: Of a ring that shuffles: what decided whose turn came when (`MessageQueue.shuffled_order`).
    seed: bytes | None = None
    _queue: Any = field(default=None, repr=False)
    planned_at: datetime | None = None
    #: Whether its workers report what they begin; what none began goes back without an attempt.
    reports_begin: bool = False

    @property
    def origins(self) -> list[str]:
        """The queues of which the block holds something, in the order of service."""
        return list(dict.fromkeys(claim.whose for claim in self.claims if claim.messages))

    def batches(self, origins: Iterable[str] | None = None) -> Iterator[Batch]:
        """The messages to process: neighbours of one origin together, in the order of service.

        Where workers report what they begin, these messages are begun from here on.
        """
        wanted = None if origins is None else set(origins)
        claims = [one for one in self.claims if wanted is None or one.whose in wanted]
        if self.reports_begin:
            with suppress(TokenRefused, UnknownBlock):
                self._queue.mark(self, claims, BEGUN)
        yield from self._queue.batches_of(claims, self.id)


class Blocks(QueueBase):
    """The part of the queue that plans and settles."""

    def plan_block(
        self,
        key: str | None = None,
        limit: Weight | None = None,
        *,
        lease: float | None = None,
        weigher: WeighPayloads | None = None,
        seed: bytes | None = None,
        server: str | None = None,
        origins: Iterable[str] | None = None,
        reports_begin: bool = False,
    ) -> Block:
        """Claim what fits a block, and move nothing else.

        :param key: unique per attempt to do this work (a DAG run and task): asked again while the
            block lives, the same block is returned.
        :param limit: what the block may cost; the ring's service weight where it is not said.
        :param lease: seconds until anybody may release the block, unless it is renewed.
        :param weigher: tells the weights of one origin's payloads, instead of the ring's.
        :param origins: shell patterns of the origins to service; others keep their places and what they have earned.
        :param server: the DAG that plans, as `explain` and `doctor` name it; without it, the queue's `who`.
        :param reports_begin: the block's workers report what they begin, as those of this package and readers of
            `batches()` do. What none began goes back without an attempt.
        """
        self._refuse_nested()
        seconds = self.config.lease if lease is None else check_seconds(lease, "a lease")
        patterns = OriginPatterns.of(origins)
        if key is not None:
            check_key(key)
            with self.store.reading() as unit:
                known = self._planned_under(unit, key)
                if known is not None and known.deadline > moment(unit.now()):
                    return known
        self.release_dead_blocks()
        self._meet_newcomers()
        if weigher is None:
            return Planner(self, key, limit, seconds, None, seed, server, patterns, reports_begin).plan_at_once()
        for left in reversed(range(PLANS)):
            try:
                return Planner(self, key, limit, seconds, weigher, seed, server, patterns, reports_begin).plan_holding()
            except InFlight:
                # Another block settled while the weigher ran: what it looked at is not what is there now.
                if not left:
                    raise
        raise AssertionError("the last try returns or raises")

    def _planned_under(self, unit: Unit, key: str | None) -> Block | None:
        """The block that lives under this key, whoever planned it."""
        row = None if key is None else unit.block("block_by_key", ring=self.ring_id, key=key)
        return None if row is None else self._block(unit, row)

    def block(self, token: str) -> Block:
        """A block that was planned before, by its token."""
        with self.store.reading() as unit:
            row = unit.block("block_by_token", ring=self.ring_id, token=_bytes(token))
            if row is None:
                raise UnknownBlock()
            return self._block(unit, row)

    def blocks(self, state: str | None = None, limit: int = 100) -> list[Block]:
        """Blocks, the latest first, without what they hold."""
        if state is not None and state not in STATES:
            raise InvalidInput(f"a block is {', '.join(STATES)}, not {str(state)[:40]!r}")
        wanted = None if state is None else STATES.index(state)
        with self.store.reading() as unit:
            return [self._block(None, row) for row in unit.blocks(self.ring_id, wanted, limit=limit)]

    def report(self, token: str | Block, reports: Iterable[Report]) -> None:
        """Say what became of messages of a block; counts at once, and is settled later.

        May be called from anywhere, any number of times; the first answer for a message counts.
        """
        raw = _bytes(token)
        plain = plain_reports(reports, self.config, self.permit)
        if not plain:
            return
        with self.store.writing() as unit:
            data = codec.write_json(plain)
            values = {"ring": self.ring_id, "token": raw, "data": data, "now": unit.now()}
            if self.store.address.driver == "sqlite":
                values["id"] = unit.fresh_ids(1)[0]
            if not unit.run("report", **values):
                raise self._refusal(unit, raw, "report to")

    def mark(self, token: str | Block, claims: Iterable[Claim], mark: Mark) -> None:
        """Report a mark for all messages of some of a block's claims."""
        runs = [(claim, run) for claim in claims for run in claim.runs if run.count]
        self.report(token, [
            Report(claim.whose, run.page, run.first, run.first + run.count - 1, mark, claim.priority)
            for claim, run in runs
        ])  # fmt: skip

    def reported(self, token: str | Block) -> dict[str, Answers]:
        """What was answered so far for messages of a live block, by origin: whoever goes on need not repeat it."""
        with self.store.reading() as unit:
            row = unit.block("block_by_token", ring=self.ring_id, token=_bytes(token))
            if row is None:
                raise UnknownBlock()
            return answers_of(data for (data,) in unit.rows("outcomes", block=row.id))

    def renew_block(self, token: str | Block, lease: float | None = None) -> datetime:
        """Let a block live for longer, and tell until when."""
        raw, seconds = _bytes(token), self.config.lease if lease is None else check_seconds(lease, "a lease")
        with self.store.writing() as unit:
            now = unit.now()
            deadline = now + int(seconds * 1_000_000)
            if not unit.run("renew_block", ring=self.ring_id, token=raw, deadline=deadline, now=now):
                raise self._refusal(unit, raw, "renew")
            return moment(deadline)

    def settle_block(self, token: str | Block, *, processor_of: Callable[[str], str] | None = None) -> Serviced:
        """Give each message of a block its outcome, all in one transaction.

        What nobody reported on goes back to its queue. Done twice, the second does nothing.

        :param processor_of: the name of who processed an origin, under which measured use is kept (`fits`).
        """
        return self._end_block(_bytes(token), SETTLED, processor_of)

    def release_block(self, token: str | Block) -> Serviced:
        """Give a block up: what was reported is settled, the rest goes back."""
        return self._end_block(_bytes(token), RELEASED)

    def release_dead_blocks(self) -> int:
        """Release every block whose deadline has passed; tell how many there were."""
        released = 0
        for row in self._dead_blocks():
            # Whoever holds it may have settled it since, late as it was, and it may be forgotten by now.
            with suppress(TokenRefused, UnknownBlock):
                self._end_block(bytes(row.token), RELEASED)
                released += 1
        return released

    def settle_completed(self, *, only_tokens: bool = False) -> int:
        """Settle what was completed, and release what is past its deadline, as far as that goes without waiting.

        :param only_tokens: leave alone what somebody planned.
        """
        dead = [row for row in self._dead_blocks() if not only_tokens or row.details_json.get("order") == VIEWED]
        return sum(self._end_at_once(bytes(row.token)) for row in dead)

    def _dead_blocks(self) -> list[BlockRow]:
        with self.store.loose() as unit:
            return [BlockRow(*row) for row in unit.rows("dead_blocks", ring=self.ring_id, now=unit.now())]

    def plan_overweight(
        self, address: Address, limit: Weight, key: str | None = None, lease: float | None = None
    ) -> Block:
        """Claim one set-aside message for execution by a block of its own."""
        check_address(address)
        limit = Weight.of(limit)
        seconds = self.config.lease if lease is None else check_seconds(lease, "a lease")
        with self._working(passes_in_flight=False) as (unit, shelf):
            known = self._planned_under(unit, key)
            if known is not None:
                return known
            book, page = find_set_aside(shelf, address)
            refuse_claimed_by_hand(unit, self.ring_id, address)
            weight = Scales(shelf).weight(address.book, page, address.index)
            claim = Claim(address.book, [ClaimRun(address.page, address.index, 1)], weight, shelf.is_ordered(book))
            row = new_block(unit, self.ring_id, key, seconds, shelf.now, by_hand=True, details={
                "limit": limit, "planned": weight, "overhead": ZERO, "messages": 1, "by": self.who,
            })  # fmt: skip
            unit.insert_block(self.ring_id, row, shelf.claims([claim]))
            return self._block(None, row, [claim])

    # What ends a block.

    def _end_block(self, token: bytes, state: int, processor_of: Callable[[str], str] | None = None) -> Serviced:
        with self._working(beside_lease=True) as (unit, shelf):
            row = unit.block("lock_block", ring=self.ring_id, token=token)
            if row is None:
                raise UnknownBlock()
            if row.state != PLANNED:
                return self._ended_before(row, state)
            return self._end_held(unit, shelf, row, state, processor_of)

    def _end_at_once(self, token: bytes, *, sweeping: bool = False) -> bool:
        """Give a block up without ever waiting for the ring; tell whether that went.

        :param sweeping: remove payloads kept apart that nobody needs then, which may wait; else housekeeping does.
        """
        with self._trying(beside_lease=True) as held:
            row = held and held[0].block("lock_free_block", ring=self.ring_id, token=token)
            if not held or not row or row.state != PLANNED:
                return False
            unit, shelf = held
            self._end_held(unit, shelf, row, RELEASED)
        if sweeping:
            self._sweep_blobs(shelf)
        return True

    def _end_held(
        self, unit: Unit, shelf: SqlShelf, row: BlockRow, state: int, processor_of: Callable[[str], str] | None = None
    ) -> Serviced:
        claims = [codec.unpack_claim(origin, data) for origin, data in unit.rows("claims", block=row.id)]
        answers = answers_of(data for (data,) in unit.rows("outcomes", block=row.id))
        if row.by_hand:
            total = self._settle_by_hand(shelf, claims[0], answers, row.details_json["limit"])
        else:
            total = self._settle_claims(unit, shelf, claims, answers, row, processor_of)
        weight = row.details_json["overhead"].plus(total.used)
        result = Serviced(
            weight, total.processed, total.failed, total.set_aside, total.went_back, total.expired, len(claims)
        )
        shelf.block = row.number
        details = {**row.details_json, "result": result.__dict__}
        unit.run("end_block", block=row.id, state=state, now=shelf.now, details=details)
        unit.run("delete_claims", block=row.id)
        unit.run("delete_outcomes", block=row.id)
        self._forget_old(unit, shelf.now)
        return result

    def _settle_claims(
        self, unit: Unit, shelf: SqlShelf, claims: Sequence[Claim], answers: Mapping[str, Answers], row: BlockRow,
        processor_of: Callable[[str], str] | None = None,
    ) -> Settlement:  # fmt: skip
        said = row.details_json
        config, limit = shelf.config, said["limit"]
        shelf.expect(claims)
        begins = bool(said.get("reports_begin"))
        settler = ClaimSettler(shelf, overweight_limit(shelf, limit), claims, reports_begin=begins)
        parts = parts_of(config.service_weight or limit)
        total = Settlement()
        for claim in claims:
            result = settler.settle(claim, answers.get(claim.origin, Answers()))
            book = shelf.book(claim.origin)
            if said["order"] == "deficit":
                # What was planned was spent, whatever became of it; what went beyond is charged now.
                charge_overrun(shelf, book, parts(result.overrun))
            processor = processor_of(claim.whose) if processor_of else ""
            drifting = measures.remember(unit, self.ring_id, claim.whose, result.measured, processor)
            if drifting is not None:
                log.warning(
                    "messages of %s take %.2f times what was predicted; see `airflow-mq ring fit-weigher`",
                    quoted(claim.whose), drifting,
                )  # fmt: skip
            total.add(result)
        return total

    def _settle_by_hand(
        self, shelf: SqlShelf, claim: Claim, answers: Mapping[str, Answers], limit: Weight
    ) -> Settlement:
        run = claim.runs[0]
        book, page = shelf.book(claim.origin), shelf.page(claim.origin, run.page)
        outcome: Outcome | None = answers.get(claim.origin, Answers()).get(run.page, run.first)
        if outcome is None or page is None or page.marks[run.first] == PROCESSED:
            return Settlement(went_back=1)
        used = getattr(outcome, "used", None) or claim.planned
        try:
            cost = settle_execution(shelf, book, page, run.first, outcome, used, limit, self.who)
        except (InsufficientWeight, TemporarilyUnprocessable):
            # Told by a report, not by a call: it goes back to where it waited for a person.
            return Settlement(went_back=1)
        used = used.plus(cost)
        if not isinstance(outcome, Done):
            return Settlement(used=used, failed=1)
        shelf.post_all(outcome.enqueue)
        return Settlement(used=used, processed=1)

    def _ended_before(self, row: BlockRow, state: int) -> Serviced:
        if row.state != state:
            done, wanted = STATES[row.state], "settled" if state == SETTLED else "released"
            raise TokenRefused(
                f"block {row.number} was {done} before; it cannot be {wanted} any more, and nothing was changed"
            )
        plain = dict(row.details_json.get("result", {}))
        return Serviced(**{**plain, "weight": Weight(*plain.get("weight", (0, 0)))})

    def _refusal(self, unit: Unit, token: bytes, what: str) -> Exception:
        row = unit.block("block_by_token", ring=self.ring_id, token=token)
        if row is None:
            return UnknownBlock()
        fate = STATES[row.state] if row.state else "past its deadline"
        return TokenRefused(f"block {row.number} is {fate}; it is too late to {what} it, and nothing was changed")

    # Reading a block.

    def _block(self, unit: Unit | None, row: BlockRow, claims: Sequence[Claim] | None = None) -> Block:
        if claims is None and unit is not None:
            claims = [codec.unpack_claim(origin, data) for origin, data in unit.rows("claims", block=row.id)]
        said = row.details_json
        return Block(
            row.number, row.key, bytes(row.token).hex(), STATES[row.state], moment(row.deadline),
            said["limit"], said["planned"], said["overhead"], said["messages"],
            claims or (), bytes.fromhex(said["seed"]) if "seed" in said else None, self,
            moment(row.planned_at), bool(said.get("reports_begin")),
        )  # fmt: skip

    def batches_of(self, claims: Iterable[Claim], block: int | None = None) -> Iterator[Batch]:
        """The messages of some of a block's claims, as they lie in the store."""
        runs = [(claim.origin, run) for claim in claims for run in claim.runs]
        while runs:
            with self._looking() as (_, shelf):
                shelf.fetch_pages([(origin, run.page) for origin, run in runs[:256]])
                now: list[tuple[str, ClaimRun, Page]] = []
                later, size = [], 0
                for origin, run in runs:
                    page = shelf.pages.get((origin, run.page)) if size < FETCHED and len(now) < 256 else None
                    if size < FETCHED and len(now) < 256 and page is not None:
                        now.append((origin, run, page))
                        size += page.held(run.first, run.first + run.count)
                    elif size >= FETCHED or len(now) >= 256:
                        later.append((origin, run))
                shelf.fetch_payloads((origin, page) for origin, _, page in now)
                headers = [shelf.headers(o, p, run.first, run.first + run.count) for o, run, p in now]
                sent = shelf.sent_of((origin, page) for origin, _, page in now)
                scales = Scales(shelf)
            for (origin, run, page), said in zip(now, headers):
                attempts = {item: note.attempts for item, note in page.notes.items() if note.attempts}
                facts = partial(Facts, attempts, sent[origin, page.index])
                for first, stop in _stretches(run):
                    times = [weight.time for weight in scales.weights(origin, page, first, stop)]
                    yield Batch(
                        origin, page.payloads[first:stop], page.index, first, partial(dict, said), times=times,
                        block=block, _facts=facts,
                    )  # fmt: skip
            runs = later


def refuse_claimed_by_hand(unit: Unit, ring: int, address: Address) -> None:
    """A set-aside message that a block executes right now is nobody else's."""
    for origin, data in unit.claims_of(ring, [address.book]):
        for run in codec.unpack_claim(origin, data).runs:
            if run.page == address.page and run.first <= address.index < run.first + run.count:
                raise InFlight(f"message {address} is being executed by a block; wait until it ends")


def _stretches(run: ClaimRun) -> Iterator[tuple[int, int]]:
    """The neighbours of a run that go to a processor: from, and up to."""
    start: int | None = None
    decisions: Mapping[int, Decision] = run.decisions
    for item in range(run.first, run.first + run.count + 1):
        inside = item < run.first + run.count and item not in decisions
        if inside and start is None:
            start = item
        elif not inside and start is not None:
            yield start, item
            start = None


def _bytes(token: str | Block) -> bytes:
    text = token.token if isinstance(token, Block) else token
    try:
        return bytes.fromhex(text)
    except (ValueError, TypeError):
        raise UnknownBlock("this is no token of a block") from None
