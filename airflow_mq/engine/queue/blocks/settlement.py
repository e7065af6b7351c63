"""Ends of blocks: settle or release them, with or without waiting for the ring."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import NamedTuple

from ...rules.characters import quoted
from ...rules.claims import Claim
from ...rules.config import BLOCK_PARTS
from ...rules.errors import (
    Busy,
    InFlight,
    InsufficientWeight,
    MessageQueueError,
    Refused,
    StoreCorrupt,
    StoreError,
    TemporarilyUnprocessable,
    TokenRefused,
    UnknownBlock,
)
from ...rules.orders import MOST_DEBT, parts_of
from ...rules.outcome import Done, Outcome
from ...rules.overweight import settle_execution
from ...rules.page import PROCESSED
from ...rules.paths import charge_overrun
from ...rules.service import MOST_WHY, overweight_limit
from ...rules.settle import Answers, ClaimSettler, Settlement
from ...rules.weight import Weight
from ...store import codec
from ...store.blocks import EndRow
from ...store.rows import PLANNED, RELEASED, SETTLED, BlockRow, Locked
from ...store.unit import Unit
from ...store.working_set import LoadOptions, Overlay, StoredSet
from ..holding import LockedRing
from ..session import RingSession
from ..values import Serviced, moment
from . import measures
from .block import STATES
from .ends import Loads, Piece, Terms, divided
from .plan import VIEWED, claims_of
from .reports import answers_of

#: Messages and bytes of a part of a block: parts are settled between two writes of a transaction, and one transaction
#: applies a part of a recorded end. PostgreSQL ends a transaction that is idle for long, and others wait for the ring.
PART, PART_SIZE = 100_000, 64 << 20

#: Full blocks that a queue is charged at most.
MOST_BLOCKS = MOST_DEBT // BLOCK_PARTS
_ABSURD = (
    "block %d: the processor of %s reported a use of %s beyond the predicted weight; no more than %d full blocks are "
    "charged; check the unit of `used`: expected milliseconds and bytes"
)

log = logging.getLogger("airflow_mq.blocks")


class _Reporting(Exception):
    """Another transaction reports on messages of a block."""

    def __init__(self, *, is_token: bool) -> None:
        #: Whether the block is that of a token, which a caller's transaction completes.
        self.is_token = is_token


class _Total(NamedTuple):
    """Result of settling a block, in total and by claim, and the *most* of its books."""

    sum: Settlement
    by_claim: Sequence[Settlement]
    mosts: dict[str, Weight]
    #: Queues in which outcomes enqueue messages.
    sent: Sequence[str] = ()


class Trial:
    """An attempt to apply a recorded end."""

    def __init__(self) -> None:
        self.end: EndRow | None = None
        #: Whether the working set of the holder may have changed.
        self.changed = False
        #: Whether the end was set apart.
        self.failed = False


class BlockSettler:
    """Settles and releases the blocks of a ring."""

    def __init__(self, session: RingSession) -> None:
        self.session, self.store, self.ring_id = session, session.store, session.ring_id
        session.ends = self

    def release_dead(self) -> int:
        """Release the blocks whose deadline has passed; return their number."""
        released = 0
        for row in self.dead_blocks():
            # Its holder may have settled it meanwhile, and the store may have deleted it.
            with suppress(Busy, TokenRefused, UnknownBlock), self._isolated(row):
                self.end(bytes(row.token), RELEASED, dead=True)
                released += 1
        return released

    def settle_completed(self, *, only_tokens: bool = False) -> int:
        """Settle completed messages and release dead blocks without waiting; return the number of ended blocks.

        :param only_tokens: leave planned blocks alone.
        """
        return sum(self._end_completed(row, only_tokens=only_tokens) for row in self.dead_blocks())

    def _end_completed(self, row: BlockRow, *, only_tokens: bool) -> bool:
        ended = False
        with self._isolated(row):
            if not only_tokens or row.details_json.get("order") == VIEWED:
                ended = self.end_at_once(bytes(row.token))
        return ended

    @contextmanager
    def _isolated(self, row: BlockRow) -> Iterator[None]:
        """Let the ring go on without a dead block that cannot be settled: log it, and record the reason.

        Its messages stay in flight. Each later call tries again.
        """
        try:
            yield
        except Exception as error:
            if _is_outage(error):
                raise
            log.debug("block %d cannot be settled", row.number, exc_info=error)
            self._record_problem(row, _problem_of(error))

    def _record_problem(self, row: BlockRow, problem: str) -> None:
        with suppress(MessageQueueError):
            if row.details_json.get("problem") == problem:
                return
        log.error(
            "block %d of ring %r cannot be settled: %s; its messages stay in flight, and other queues go on",
            row.number, self.session.ring, problem,
        )  # fmt: skip
        with suppress(MessageQueueError), self.store.writing(wait=False, patience=0.0) as unit:
            unit.blocks.record_problem(row.id, problem)

    def dead_blocks(self) -> list[BlockRow]:
        """Return the blocks that are completed or past their deadline, but not ended."""
        with self.store.loose() as unit:
            return unit.blocks.dead(self.ring_id, unit.now())

    def end(
        self, token: bytes, state: int, processor_of: Callable[[str], str] | None = None, *, dead: bool = False
    ) -> Serviced:
        """Settle or release a block; if it ended in the same way before, return the same result.

        If another process holds the ring, record the end: that process applies it.

        :param dead: refuse a block whose holder renewed it meanwhile.
        """
        give_up = time.monotonic() + self.session.busy_timeout
        while True:
            try:
                result = self._end_once(token, state, processor_of, dead)
                break
            except _Reporting as reporting:
                # Wait without the ring, which others need.
                if reporting.is_token or time.monotonic() > give_up:
                    raise InFlight(
                        "another transaction reports on messages of this block: settle it, release it or give it back "
                        "when that transaction has ended"
                    ) from None
                time.sleep(0.02)
        self.session.forget_old()
        return result

    def _end_once(self, token: bytes, state: int, processor_of: Callable[[str], str] | None, dead: bool) -> Serviced:
        with self.session.hold.changing(records=True) as ring:
            assert ring is not None
            row = self._locked(ring.unit, token)
            if row.state != PLANNED:
                return self._ended_before(row, state)
            if dead and row.deadline > ring.locked.now:
                raise TokenRefused(f"block {row.number} was renewed meanwhile; it lives")
            return self._end(ring, row, state, processor_of)

    def _locked(self, unit: Unit, token: bytes) -> BlockRow:
        """Return a block, locked; raise `_Reporting` instead of waiting for a transaction that reports on it."""
        row = unit.blocks.locked_if_free(self.ring_id, token)
        if row is None:
            known = unit.blocks.by_token(self.ring_id, token)
            if known is None:
                raise UnknownBlock()
            raise _Reporting(is_token=known.details_json.get("order") == VIEWED)
        return row

    def end_at_once(self, token: bytes, *, sweeping: bool = False) -> bool:
        """Release a block past its deadline without waiting for the ring; return whether it ended.

        :param sweeping: delete external payloads without messages, which may wait; otherwise housekeeping does.
        """
        with self.session.hold.changing(wait=False, records=True) as ring:
            row = ring and ring.unit.blocks.locked_if_free(self.ring_id, token)
            if not ring or not row or row.state != PLANNED or row.deadline > ring.locked.now:
                # Its holder may have renewed it after the caller had read it.
                return False
            self._end(ring, row, RELEASED)
        self.session.forget_old()
        if sweeping and ring.working_set is not None:
            self.session.sweep_payloads(ring.working_set)
        return True

    def _end(
        self, ring: LockedRing, row: BlockRow, state: int, processor_of: Callable[[str], str] | None = None
    ) -> Serviced:
        """End a block: apply its end if the caller holds the ring, else record it for the process that does."""
        unit, now, working_set = ring.unit, ring.locked.now, ring.working_set
        claims, answers = claims_of(unit, row), answers_of(unit.blocks.reports(row.id))
        if working_set is not None:
            total = self._settle(working_set, row, claims, answers, write=True)
            working_set.changes.block = row.number
        else:
            total = self._verdict(ring, row, claims, answers)
        full = self.session.config.service_weight or row.details_json["limit"]
        for claim, settled in zip(claims, total.by_claim):
            self._measure(unit, claim.whose, settled, processor_of, full)
        weight, sums = row.details_json["overhead"].plus(total.sum.used), total.sum
        result = Serviced(weight=weight, origins=len(claims))
        result.add_counts(sums)
        details = {**row.details_json, "result": result.__dict__}
        details.pop("problem", None)
        unit.blocks.end(row.id, state, now, details)
        if working_set is not None:
            unit.blocks.forget_claims(row.id)
        else:
            verdicts = [settled.counts for settled in ([sums] if row.by_hand else total.by_claim)]
            terms = Terms(total.mosts, self.session.actor, verdicts, total.sent)
            unit.blocks.record_end(self.ring_id, row.id, now, terms.to_json())
        return result

    def _settle(
        self,
        working_set: StoredSet,
        row: BlockRow,
        claims: Sequence[Claim],
        answers: Mapping[str, Answers],
        *,
        write: bool = False,
    ) -> _Total:
        """Give each message of a block its outcome."""
        if row.by_hand:
            alone = self.settle_by_hand(working_set, claims[0], answers, row.details_json["limit"], self.session.actor)
            return _Total(alone, [], {})
        found, total = self.settle_claims(working_set, claims, answers, row, write=write), Settlement()
        for settled in found:
            total.add(settled)
        books = [working_set.book(claim.origin) for claim in claims]
        mosts = {book.origin: book.settings.most for book in books if book.settings.most is not None}
        return _Total(total, found, mosts)

    # Ends that were recorded while another process held the ring.

    def _verdict(
        self, ring: LockedRing, row: BlockRow, claims: Sequence[Claim], answers: Mapping[str, Answers]
    ) -> _Total:
        """Return what settling a block will come to: no other process may change a claimed message."""
        with self._in_memory(ring.unit, ring.locked, ring.locked.now) as working_set:
            total = self._settle(working_set, row, claims, answers)
            return total._replace(sent=sorted({one.origin for one in working_set.changes.posted.values()}))

    @contextmanager
    def _in_memory(self, unit: Unit, locked: Locked, now: int) -> Iterator[StoredSet]:
        """Yield a working set of a locked ring at a time, whose changes stay in memory until the end."""
        overlay, config = Overlay(self.store, unit, self.ring_id, joins_due=False), locked.config
        options = LoadOptions(without_payloads=True)
        working_set = StoredSet(self.session.remember_config(config), now, overlay, options)
        yield working_set
        working_set.forget()

    def foresee(
        self, overlay: Overlay, working_set_at: Callable[[int], StoredSet], names: Sequence[str] | None = None
    ) -> None:
        """Apply recorded ends to an overlay: a reader sees what the holder of the ring will write.

        :param working_set_at: returns a working set of the ring as the overlay shows it, at a time
        :param names: the only queues that are read. No other one needs to be right; by default, all are
        """
        unit, gone = overlay.unit, set()
        blocks = unit.blocks
        for end in blocks.ends(self.ring_id) if names is None else blocks.ends_on(self.ring_id, names):
            row = unit.blocks.by_token(self.ring_id, bytes(end.token))
            assert row is not None, "the block of a recorded end is stored"
            working_set = working_set_at(end.at)
            try:
                self._replay(working_set, row, end, only_first=False)
            except Exception as error:
                if _is_outage(error):
                    raise
                # The holder sets it apart: its messages stay in flight.
                log.debug("a recorded end cannot be foreseen", exc_info=error)
                continue
            working_set.changes.block = row.number
            overlay.note_shifts(working_set, working_set.stored)
            overlay.apply(working_set.take_changes(overlay.fresh_ids))
            gone.add(row.id)
        if gone:
            overlay.end_blocks(gone)

    def apply_ends(self) -> None:
        """Apply recorded ends in their order, each in a transaction of its own, while no other process has the ring."""
        while self._apply_next():
            self.store.rest()

    def retry_ends(self) -> None:
        """Try ends again that could not be applied: the reason may be gone."""
        with self.store.loose() as unit:
            failed = any(end.error for end in unit.blocks.ends(self.ring_id, failed=True))
        if failed:
            with self.session.hold.locked() as (unit, _):
                unit.blocks.retry_ends(self.ring_id)
            self.session.hold.apply_soon()

    def _apply_next(self) -> bool:
        """Apply the next recorded end; return whether another one may follow."""
        session = self.session
        with self.setting_apart() as trial:
            with session.hold.lock(records=True, applies=True) as ring:
                if ring is None or ring.holder is not None or not ring.locked.state.ends:
                    return False
                working_set = session.working_set(ring.unit, ring.locked, LoadOptions())
                if not self.apply_one(ring.unit, working_set, trial):
                    return False
            session.sweep_payloads(working_set)
            session.notify(working_set.take_hooks())
            working_set.forget()
        return True

    def _next_end(self, unit: Unit, trial: Trial) -> tuple[EndRow, BlockRow] | None:
        """Return the next end to be applied and its block, locked; None while another transaction has the block."""
        end = next(iter(unit.blocks.ends(self.ring_id, limit=1)), None)
        row = None if end is None else unit.blocks.locked_if_free(self.ring_id, bytes(end.token))
        if end is None or row is None:
            return None
        trial.end = end
        return end, row

    def rehearse(self, unit: Unit, locked: Locked, trial: Trial) -> bool:
        """Apply the next recorded end in memory, for a holder whose working set must survive an error.

        Return whether there is one.
        """
        found = self._next_end(unit, trial)
        if found is None:
            return False
        end, row = found
        with self._in_memory(unit, locked, end.at) as working_set:
            self._replay(working_set, row, end)
        return True

    def apply_one(self, unit: Unit, working_set: StoredSet, trial: Trial) -> bool:
        """Apply the next recorded end, in a transaction that holds the ring; return whether there is one.

        Of a large end, a part is applied: the next call goes on behind it. A block that another transaction has locked
        comes later, and those behind it.
        """
        found = self._next_end(unit, trial)
        if found is None:
            return False
        end, row = found
        trial.changed = True
        before, working_set.now = working_set.now, end.at
        terms = self._replay(working_set, row, end)
        working_set.changes.block = row.number
        working_set.save()
        working_set.now = before
        if terms.rest:
            first = codec.pack_claim(terms.rest[0])
            unit.blocks.advance_end(self.ring_id, row.id, terms.first(terms.rest), first, terms.to_json())
        else:
            unit.blocks.forget_claims(row.id)
            unit.blocks.forget_end(self.ring_id, row.id)
        return True

    def _replay(self, working_set: StoredSet, row: BlockRow, end: EndRow, *, only_first: bool = True) -> Terms:
        """Carry out the verdicts of a recorded end, or the next part of them; return the terms with what is left."""
        unit, terms = working_set.unit, Terms.of(end)
        terms.rest, answers = claims_of(unit, row), answers_of(unit.blocks.reports(row.id))
        if row.by_hand:
            claims, terms.rest = terms.rest, ()
            alone = self.settle_by_hand(working_set, claims[0], answers, row.details_json["limit"], terms.actor)
            terms.require(claims, 0, alone)
        while terms.rest:
            self.settle_claims(working_set, terms.rest, answers, row, terms)
            if only_first:
                break
        return terms

    @contextmanager
    def setting_apart(self) -> Iterator[Trial]:
        """Context of a transaction that applies an end. One that cannot be applied is set apart, and the ring goes on.

        An error of the database passes: the end is tried again.
        """
        trial = Trial()
        try:
            yield trial
        except Exception as error:
            passes = isinstance(error, (Busy, StoreError)) and not isinstance(error, StoreCorrupt)
            if trial.end is None or passes:
                raise
            trial.failed = True
            self._set_apart(trial.end, error)

    def _set_apart(self, end: EndRow, error: Exception) -> None:
        """Record why an end cannot be applied; no holder tries it again."""
        problem = _problem_of(error)
        log.debug("a recorded end cannot be applied", exc_info=error)
        with self.store.writing() as unit:
            unit.lock(self.ring_id)
            row = unit.blocks.by_token(self.ring_id, bytes(end.token))
            if any(other.block == end.block for other in unit.blocks.ends(self.ring_id)):
                unit.blocks.fail_end(self.ring_id, end.block, problem[:MOST_WHY])
        log.error(
            "the end of block %d of ring %r is recorded and cannot be applied: %s; its messages stay in flight, and "
            "other queues go on", 0 if row is None else row.number, self.session.ring, problem,
        )  # fmt: skip

    def settle_claims(
        self,
        working_set: StoredSet,
        claims: Sequence[Claim],
        answers: Mapping[str, Answers],
        row: BlockRow,
        terms: Terms | None = None,
        *,
        write: bool = False,
    ) -> list[Settlement]:
        """Give each message of these claims its outcome; return a settlement for each claim.

        :param terms: of an end that was recorded before. The first part of what is left is settled, and the terms go on
            behind it
        :param write: write the changes of each part but the last one, so that they need not fit in memory together
        """
        details = row.details_json
        config, limit = working_set.config, details["limit"]
        begins = bool(details.get("reports_begin"))
        settler = ClaimSettler(working_set, overweight_limit(working_set, limit), claims, reports_begin=begins)
        parts = parts_of(config.service_weight or limit)
        found = [Settlement() for _ in claims]
        if terms is not None:
            terms.resume(settler, found)
        pieces: Sequence[Piece] = ()
        loads = Loads(working_set, claims, answers)
        parts_of_block = divided(claims, PART, loads.size_of, PART_SIZE)
        for number, pieces in enumerate(islice(parts_of_block, None if terms is None else 1)):
            if write and number:
                working_set.changes.block = row.number
                working_set.save()
                working_set.loader.keep_payloads(0, None)
            working_set.loader.load_claims([piece.claim for piece in pieces], loads.known)
            for at, claim, is_last in pieces:
                settler.settle(claim, answers.get(claim.origin, Answers()), found[at], is_last=is_last)
                if is_last and details["order"] == "deficit":
                    # The plan charged the planned weight; charge the excess now.
                    overrun = parts(found[at].overrun)
                    charge_overrun(working_set, working_set.book(claim.origin), overrun)
                    if overrun > MOST_DEBT and terms is None:
                        log.warning(_ABSURD, row.number, quoted(claim.whose), found[at].overrun, MOST_BLOCKS)
        if terms is not None:
            terms.advance(claims, pieces, settler, found)
        return found

    def _measure(
        self, unit: Unit, origin: str, result: Settlement, processor_of: Callable[[str], str] | None, full: Weight
    ) -> None:
        """Add the measured weights of an origin's messages, and warn if predictions are off."""
        processor = processor_of(origin) if processor_of else ""
        drifting = measures.remember(unit, self.ring_id, origin, result.measured, processor, Weight.of(full))
        if drifting is not None:
            log.warning(
                "messages of %s take %.2f times what was predicted; see `airflow-mq ring fit-weigher`",
                quoted(origin),
                drifting,
            )

    def settle_by_hand(
        self, working_set: StoredSet, claim: Claim, answers: Mapping[str, Answers], limit: Weight, actor: str
    ) -> Settlement:
        """Give the set-aside message of a block of its own its outcome."""
        run = claim.runs[0]
        book, page = working_set.book(claim.origin), working_set.page(claim.origin, run.page)
        outcome: Outcome | None = answers.get(claim.origin, Answers()).get(run.page, run.first)
        if outcome is None or page is None or page.marks[run.first] == PROCESSED:
            return Settlement(went_back=1)
        used = getattr(outcome, "used", None) or claim.planned
        try:
            cost = settle_execution(working_set, book, page, run.first, outcome, used, limit, actor)
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


def _is_outage(error: Exception) -> bool:
    """Return whether what failed may succeed later, without a change of the data."""
    return isinstance(error, (StoreError, Refused)) and not isinstance(error, StoreCorrupt)


def _problem_of(error: Exception) -> str:
    """Return an error for the store and the log. The text of other errors may quote a payload."""
    text = f": {error}" if isinstance(error, MessageQueueError) else ""
    return f"{type(error).__name__}{text}"


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
