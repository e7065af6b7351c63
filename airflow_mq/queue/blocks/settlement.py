"""Ends of blocks: settle or release them, with or without waiting for the ring."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from ...core.characters import quoted
from ...core.claims import Claim
from ...core.errors import Busy, InsufficientWeight, TemporarilyUnprocessable, TokenRefused, UnknownBlock
from ...core.orders import parts_of
from ...core.outcome import Done, Outcome
from ...core.overweight import settle_execution
from ...core.page import PROCESSED
from ...core.paths import charge_overrun
from ...core.service import overweight_limit
from ...core.settle import Answers, ClaimSettler, Settlement
from ...core.weight import Weight
from ...store.rows import PLANNED, RELEASED, SETTLED, BlockRow
from ...store.unit import Unit
from ...store.working_set import StoredSet
from ..session import RingSession
from ..values import Serviced, moment
from . import measures
from .block import STATES
from .plan import VIEWED, claims_of
from .reports import answers_of

#: Messages that are settled between two writes of a transaction. PostgreSQL ends a transaction that is idle for long.
PART = 100_000

log = logging.getLogger("airflow_mq.blocks")


class _Held(Exception):
    """Another process holds the ring. It services the queue of a set-aside message, too, so its block has to wait."""


class BlockSettler:
    """Settles and releases the blocks of a ring."""

    def __init__(self, session: RingSession) -> None:
        self.session, self.store, self.ring_id = session, session.store, session.ring_id

    def release_dead(self) -> int:
        """Release the blocks whose deadline has passed; return their number."""
        released = 0
        for row in self.dead_blocks():
            # Its holder may have settled it meanwhile, and the store may have deleted it. The block of a set-aside
            # message waits until no other process holds the ring.
            with suppress(Busy, TokenRefused, UnknownBlock):
                self.end(bytes(row.token), RELEASED, dead=True)
                released += 1
        return released

    def settle_completed(self, *, only_tokens: bool = False) -> int:
        """Settle completed messages and release dead blocks without waiting; return the number of ended blocks.

        :param only_tokens: leave planned blocks alone.
        """
        dead = [row for row in self.dead_blocks() if not only_tokens or row.details_json.get("order") == VIEWED]
        return sum(self.end_at_once(bytes(row.token)) for row in dead)

    def dead_blocks(self) -> list[BlockRow]:
        """Return the blocks that are completed or past their deadline, but not ended."""
        with self.store.loose() as unit:
            return unit.blocks.dead(self.ring_id, unit.now())

    def end(
        self, token: bytes, state: int, processor_of: Callable[[str], str] | None = None, *, dead: bool = False
    ) -> Serviced:
        """Settle or release a block; if it ended in the same way before, return the same result.

        :param dead: refuse a block whose holder renewed it meanwhile.
        """
        try:
            return self._end(token, state, processor_of, beside_lease=True, dead=dead)
        except _Held:
            return self._end(token, state, processor_of, beside_lease=False, dead=dead)

    def _end(
        self, token: bytes, state: int, processor_of: Callable[[str], str] | None, *, beside_lease: bool, dead: bool
    ) -> Serviced:
        with self.session.transaction(beside_lease=beside_lease) as (unit, working_set):
            row = unit.blocks.locked(self.ring_id, token)
            if row is None:
                raise UnknownBlock()
            if row.state != PLANNED:
                return self._ended_before(row, state)
            if dead and row.deadline > working_set.now:
                raise TokenRefused(f"block {row.number} was renewed meanwhile; it lives")
            if row.by_hand and working_set.beside:
                raise _Held()
            return self._end_held(unit, working_set, row, state, processor_of)

    def end_at_once(self, token: bytes, *, sweeping: bool = False) -> bool:
        """Release a block past its deadline without waiting for the ring; return whether it ended.

        :param sweeping: delete external payloads without messages, which may wait; otherwise housekeeping does.
        """
        with self.session.try_transaction(beside_lease=True) as held:
            row = held and held[0].blocks.locked_if_free(self.ring_id, token)
            if not held or not row or row.state != PLANNED or (row.by_hand and held[1].beside):
                return False
            unit, working_set = held
            if row.deadline > working_set.now:
                # Its holder renewed it after the caller had read it.
                return False
            self._end_held(unit, working_set, row, RELEASED)
        if sweeping:
            self.session.sweep_payloads(working_set)
        return True

    def _end_held(
        self,
        unit: Unit,
        working_set: StoredSet,
        row: BlockRow,
        state: int,
        processor_of: Callable[[str], str] | None = None,
    ) -> Serviced:
        claims = claims_of(unit, row)
        answers = answers_of(unit.blocks.reports(row.id))
        if row.by_hand:
            total = self.settle_by_hand(working_set, claims[0], answers, row.details_json["limit"])
        else:
            total, settlements = Settlement(), self.settle_claims(working_set, claims, answers, row, write=True)
            for claim, settled in zip(claims, settlements):
                self._measure(unit, claim.whose, settled, processor_of)
                total.add(settled)
        weight = row.details_json["overhead"].plus(total.used)
        result = Serviced(
            weight, total.processed, total.failed, total.set_aside, total.went_back, total.expired, len(claims)
        )
        working_set.changes.block = row.number
        details = {**row.details_json, "result": result.__dict__}
        unit.blocks.end(row.id, state, working_set.now, details)
        self.session.forget_old(unit, working_set.now)
        return result

    def settle_claims(
        self,
        working_set: StoredSet,
        claims: Sequence[Claim],
        answers: Mapping[str, Answers],
        row: BlockRow,
        *,
        write: bool = False,
    ) -> list[Settlement]:
        """Give each message of these claims its outcome; return a settlement for each claim.

        :param write: write the changes of each part but the last one, so that they need not fit in memory together
        """
        details = row.details_json
        config, limit = working_set.config, details["limit"]
        begins = bool(details.get("reports_begin"))
        settler = ClaimSettler(working_set, overweight_limit(working_set, limit), claims, reports_begin=begins)
        parts = parts_of(config.service_weight or limit)
        found = [Settlement() for _ in claims]
        for number, pieces in enumerate(_divided(claims)):
            if write and number:
                working_set.changes.block = row.number
                working_set.save()
            own = [piece.claim for piece in pieces]
            working_set.loader.expect(own, _known_pages(own, answers))
            for at, claim, is_last in pieces:
                settler.settle(claim, answers.get(claim.origin, Answers()), found[at], is_last=is_last)
                if is_last and details["order"] == "deficit":
                    # The plan charged the planned weight; charge the excess now.
                    charge_overrun(working_set, working_set.book(claim.origin), parts(found[at].overrun))
        return found

    def _measure(self, unit: Unit, origin: str, result: Settlement, processor_of: Callable[[str], str] | None) -> None:
        """Add the measured weights of an origin's messages, and warn if predictions are off."""
        processor = processor_of(origin) if processor_of else ""
        drifting = measures.remember(unit, self.ring_id, origin, result.measured, processor)
        if drifting is not None:
            log.warning(
                "messages of %s take %.2f times what was predicted; see `airflow-mq ring fit-weigher`",
                quoted(origin),
                drifting,
            )

    def settle_by_hand(
        self, working_set: StoredSet, claim: Claim, answers: Mapping[str, Answers], limit: Weight
    ) -> Settlement:
        """Give the set-aside message of a block of its own its outcome."""
        run = claim.runs[0]
        book, page = working_set.book(claim.origin), working_set.page(claim.origin, run.page)
        outcome: Outcome | None = answers.get(claim.origin, Answers()).get(run.page, run.first)
        if outcome is None or page is None or page.marks[run.first] == PROCESSED:
            return Settlement(went_back=1)
        used = getattr(outcome, "used", None) or claim.planned
        try:
            cost = settle_execution(working_set, book, page, run.first, outcome, used, limit, self.session.actor)
        except (InsufficientWeight, TemporarilyUnprocessable):
            # The outcome came by a report, not by a call: the message stays set aside.
            return Settlement(went_back=1)
        used = used.plus(cost)
        if not isinstance(outcome, Done):
            return Settlement(used=used, failed=1)
        working_set.post_all(outcome.enqueue)
        return Settlement(used=used, processed=1)

    def _ended_before(self, row: BlockRow, state: int) -> Serviced:
        if row.state != state:
            wanted = "settled" if state == SETTLED else "released"
            raise TokenRefused(f"{_fate(row)}; it cannot be {wanted} any more, and nothing was changed")
        plain = dict(row.details_json.get("result", {}))
        return Serviced(**{**plain, "weight": Weight(*plain.get("weight", (0, 0)))})


class _Piece(NamedTuple):
    """A claim or some of its runs, its index in the block, and whether it has the last one of them."""

    at: int
    claim: Claim
    is_last: bool


def _divided(claims: Iterable[Claim]) -> Iterator[list[_Piece]]:
    """Divide the claims of a block into parts of about `PART` messages, in their order."""
    part: list[_Piece] = []
    size = 0
    for at, claim in enumerate(claims):
        begin = 0
        for stop, run in enumerate(claim.runs, 1):
            size += run.count
            if size >= PART and stop < len(claim.runs):
                part.append(_Piece(at, replace(claim, runs=claim.runs[begin:stop]), is_last=False))
                yield part
                part, size, begin = [], 0, stop
        part.append(_Piece(at, replace(claim, runs=claim.runs[begin:]) if begin else claim, is_last=True))
        if size >= PART:
            yield part
            part, size = [], 0
    if part:
        yield part


def _known_pages(claims: Sequence[Claim], answers: Mapping[str, Answers]) -> set[tuple[str, int]]:
    """Return the pages of which every claimed message is done and has a reported id."""
    known: dict[tuple[str, int], bool] = {}
    for claim in claims:
        own = answers.get(claim.origin)
        for run in claim.runs:
            has_ids = own is not None and own.knows(run)
            known[claim.origin, run.page] = has_ids and known.get((claim.origin, run.page), True)
    return {key for key, has_ids in known.items() if has_ids}


def refusal(unit: Unit, ring: int, token: bytes, what: str) -> Exception:
    """Return the error for a block that cannot be reported on, renewed or completed any more."""
    row = unit.blocks.by_token(ring, token)
    if row is None:
        return UnknownBlock()
    return TokenRefused(f"{_fate(row)}; it is too late to {what} it, and nothing was changed")


def _fate(row: BlockRow) -> str:
    """Return how a block ended, or that its lease has run out."""
    ran_out = f"its lease ran out at {moment(row.deadline):%H:%M:%S} UTC"
    if row.state == PLANNED:
        return f"block {row.number} is past its deadline: {ran_out}"
    late = row.state == RELEASED and row.ended_at is not None and row.ended_at >= row.deadline
    return f"block {row.number} was {STATES[row.state]}{f': {ran_out}' if late else ''}"
