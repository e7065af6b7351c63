"""Ends of blocks: settle or release them, with or without waiting for the ring.

An end gives each message of a block its outcome (`Settling`). A caller that holds the ring applies it. Otherwise the
same steps run in memory, and the end is recorded with the verdicts: the holder of the ring applies it later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ...rules.errors import (
    Busy,
    InFlight,
    MessageQueueError,
    Refused,
    StoreCorrupt,
    StoreError,
    TokenRefused,
    UnknownBlock,
)
from ...rules.service import shortened
from ...rules.settle import Settlement
from ...rules.weight import Weight
from ...store import codec
from ...store.blocks import EndRow
from ...store.rows import PLANNED, RELEASED, SETTLED, BlockRow, Locked
from ...store.unit import Unit
from ...store.working_set import LoadOptions, Overlay, StoredSet
from ..values import Serviced, moment
from . import measures
from .block import STATES, VIEWED
from .settling import EndTerms, Settling

if TYPE_CHECKING:
    from ..holding import LockedRing, RingLease
    from ..session import RingSession

log = logging.getLogger("airflow_mq.blocks")


class BlockSettler:
    """Settles and releases the blocks of a ring."""

    def __init__(self, session: RingSession) -> None:
        self.session, self.store, self.ring_id = session, session.store, session.ring_id

    def release_dead(self, *, wait: bool = True, only_tokens: bool = False) -> int:
        """Release the blocks that are completed or past their deadline; return their number.

        :param wait: without it, leave the blocks for which this call would have to wait
        :param only_tokens: leave planned blocks alone
        """
        released = 0
        with self.store.loose() as unit:
            dead = unit.blocks.dead(self.ring_id, unit.now())
        for row in dead:
            try:
                # Another process may have ended the block meanwhile, renewed or deleted it, or have the ring.
                with suppress(Busy, TokenRefused, UnknownBlock):
                    if not only_tokens or row.details_json.get("order") == VIEWED:
                        self.end(bytes(row.token), RELEASED, dead=True, wait=wait, sweeps=wait)
                        released += 1
            except Exception as error:
                if _is_outage(error):
                    raise
                log.debug("block %d cannot be settled", row.number, exc_info=error)
                self._record_problem(row, _problem_of(error))
        return released

    def _record_problem(self, row: BlockRow, problem: str) -> None:
        """Let the ring go on without a dead block that cannot be settled: log it once, and record the reason.

        Its messages stay in flight. Each later call tries again.
        """
        with suppress(MessageQueueError):
            if row.details_json.get("problem") == problem:
                return
        log.error(
            "block %d of ring %r cannot be settled: %s; its messages stay in flight, and other queues go on",
            row.number, self.session.ring, problem,
        )  # fmt: skip
        with suppress(MessageQueueError), self.store.writing(wait=False, patience=0.0) as unit:
            unit.blocks.record_problem(row, problem)

    def release_soon(self, tokens: Iterable[bytes], *, sweeps: bool = True) -> None:
        """Release blocks that were just closed, until the store fails; the next plan, view or service does the rest.

        The close is committed, and an error would look as if it was not.
        """
        with suppress(StoreError):
            for token in tokens:
                with suppress(Refused):
                    self.end(token, RELEASED, dead=True, wait=False, sweeps=sweeps)

    def end(self, token: bytes, state: int, *, dead: bool = False, wait: bool = True, sweeps: bool = True) -> Serviced:
        """Settle or release a block; if it ended in the same way before, return the same result.

        If another process holds the ring, record the end: that process applies it.

        :param dead: refuse a block that has ended, or that its holder renewed meanwhile
        :param wait: without it, raise `Busy` where another transaction has the ring or reports on the block
        :param sweeps: delete external payloads without messages, which may wait; otherwise housekeeping does
        """
        session, give_up = self.session, time.monotonic() + self.session.busy_timeout
        session.refuse_nested()
        while True:
            with session.hold.lock(wait=wait, records=True) as ring:
                blocks = ring.unit.blocks
                row = blocks.locked_if_free(self.ring_id, token)
                if row is not None:
                    if dead and (row.state != PLANNED or row.deadline > ring.locked.now):
                        raise TokenRefused(f"block {row.number} has ended or was renewed meanwhile")
                    if row.state != PLANNED:
                        return _ended_before(row, state)
                    result, working_set = self._end(ring, row, state)
                    break
                known = blocks.by_token(self.ring_id, token)
                if known is None:
                    raise UnknownBlock()
                is_token = known.details_json.get("order") == VIEWED
            if not wait or is_token or time.monotonic() > give_up:
                raise InFlight(
                    "another transaction reports on messages of this block: settle it, release it or give it back "
                    "when that transaction has ended"
                )
            # Wait without the ring, which others need.
            time.sleep(0.02)
        if working_set is not None:
            if wait:
                self.store.rest()
            session.committed(working_set, sweeps=sweeps)
        session.forget_old()
        return result

    def _end(self, ring: LockedRing, row: BlockRow, state: int) -> tuple[Serviced, StoredSet | None]:
        """End a block: apply its end if the caller holds the ring, else record it for the process that does.

        Return its result, and the working set with which it was applied.
        """
        unit, (now, applies) = ring.unit, (ring.locked.now, ring.holder is None)
        if applies:
            working_set = self.session.working_set(unit, ring.locked, LoadOptions())
        else:
            # No other process may change a claimed message: what settling would come to now is final.
            working_set = self._in_memory(unit, ring.locked, now)
        settling, total = Settling(working_set, row, self.session.actor), Settlement()
        for _ in settling.parts():
            if applies:
                # So that the changes of a large block need not fit in memory together.
                settling.name_block()
                working_set.save()
                working_set.loader.keep_payloads(0, None)
        full = Weight.of(self.session.config.service_weight or settling.details["limit"])
        for claim, settled in zip(settling.claims, settling.found):
            total.add(settled)
            measures.remember(unit, self.ring_id, claim.whose, settled.measured, claim.processor, full)
        result = Serviced(weight=settling.details["overhead"].plus(total.used), origins=len(settling.claims))
        result.add_counts(total)
        details = {**settling.details, "result": result.__dict__}
        details.pop("problem", None)
        unit.blocks.end(row.id, state, now, details)
        if applies:
            unit.blocks.forget_claims(row.id)
        else:
            unit.blocks.record_end(self.ring_id, row.id, now, settling.terms().to_json())
            working_set.forget()
        return result, working_set if applies else None

    def _in_memory(self, unit: Unit, locked: Locked, now: int) -> StoredSet:
        """Return a working set of a locked ring at a time, whose changes stay in memory."""
        overlay, config = Overlay(self.store, unit, self.ring_id, joins_due=False), locked.config
        return StoredSet(self.session.remember_config(config), now, overlay, LoadOptions(without_payloads=True))

    # Ends that were recorded while another process held the ring.

    def foresee(
        self, overlay: Overlay, working_set_at: Callable[[int], StoredSet], names: Sequence[str] | None = None
    ) -> None:
        """Apply recorded ends to an overlay: a reader sees what the holder of the ring will write.

        :param working_set_at: returns a working set of the ring as the overlay shows it, at a time
        :param names: the only queues that are read. No other one needs to be right; by default, all are
        """
        blocks, gone = overlay.unit.blocks, set()
        for end in blocks.ends(self.ring_id) if names is None else blocks.ends_on(self.ring_id, names):
            working_set = working_set_at(end.at)
            try:
                self._replay(working_set, end)
            except Exception as error:
                if _is_outage(error):
                    raise
                # The holder sets it apart: its messages stay in flight.
                log.debug("a recorded end cannot be foreseen", exc_info=error)
                continue
            working_set.changes.block = end.row.number
            overlay.note_shifts(working_set, working_set.stored)
            overlay.apply(working_set.take_changes(overlay.fresh_ids))
            gone.add(end.row.id)
        if gone:
            overlay.end_blocks(gone)

    def apply_ends(self) -> None:
        """Apply recorded ends in their order, each in a transaction of its own, while no other process has the ring."""
        while self.apply_next():
            self.store.rest()

    def retry_ends(self) -> None:
        """Try ends again that could not be applied: the reason may be gone."""
        with self.store.loose() as unit:
            failed = any(end.error for end in unit.blocks.ends(self.ring_id, failed=True))
        if failed:
            with self.session.hold.lock() as ring:
                for end in ring.unit.blocks.ends(self.ring_id, failed=True):
                    if end.error:
                        ring.unit.blocks.set_apart(self.ring_id, end, "")
            self.session.hold.apply_soon()

    def apply_next(self, lease: RingLease | None = None, own: StoredSet | None = None) -> bool:
        """Apply the next recorded end, or a part of a large one; return whether another one may follow.

        A block that another transaction has locked comes later, and those behind it. An end that cannot be applied is
        set apart, and the ring goes on; after an error of the database it is tried again.

        :param lease: of a caller that holds the ring across transactions
        :param own: the working set with which that caller goes on: the end is rehearsed first, so that it survives
        """
        session, end, changed = self.session, None, False
        try:
            held = lease.transaction() if lease else session.hold.lock(records=True, applies=True)
            with held as (unit, locked, holder):
                ends = unit.blocks.ends(self.ring_id, limit=1) if holder is None and locked.state.ends else ()
                end = next(iter(ends), None)
                if end is None or unit.blocks.locked_if_free(self.ring_id, bytes(end.row.token)) is None:
                    return False
                if own is None:
                    working_set = session.working_set(unit, locked, LoadOptions())
                    self._apply(working_set, end)
                else:
                    rehearsal = self._in_memory(unit, locked, end.at)
                    self._replay(rehearsal, end, only_first=True)
                    rehearsal.forget()
                    changed = True
                    with own.within(unit, locked):
                        self._apply(own, end)
        except Exception as error:
            passes = isinstance(error, (Busy, StoreError)) and not isinstance(error, StoreCorrupt)
            if end is None or passes:
                raise
            self._set_apart(end, error)
            if changed:
                raise StoreCorrupt(
                    "a recorded end of a block cannot be applied, which left this service without a state to go on "
                    "with: what it processed is stored; service the ring again"
                ) from error
            return True
        if own is None:
            session.committed(working_set)
            working_set.forget()
        return True

    def _apply(self, working_set: StoredSet, end: EndRow) -> None:
        """Apply a recorded end, or a part of a large one, in a transaction that holds the ring."""
        blocks, block = working_set.unit.blocks, end.row.id
        before, working_set.now = working_set.now, end.at
        settling = self._replay(working_set, end, only_first=True)
        settling.name_block()
        working_set.save()
        working_set.now = before
        left = settling.left()
        if left:
            terms = settling.terms(left)
            blocks.advance_end(self.ring_id, block, terms.first(left), codec.pack_claim(left[0]), terms.to_json())
        else:
            blocks.forget_claims(block)
            blocks.forget_end(self.ring_id, block)

    def _replay(self, working_set: StoredSet, end: EndRow, *, only_first: bool = False) -> Settling:
        """Carry out the verdicts of a recorded end, or the next part of them."""
        terms = EndTerms.of(end)
        settling = Settling(working_set, end.row, terms.actor, terms)
        for _ in settling.parts():
            if only_first:
                break
        return settling

    def _set_apart(self, end: EndRow, error: Exception) -> None:
        """Record why an end cannot be applied; no holder tries it again."""
        problem = _problem_of(error)
        log.debug("a recorded end cannot be applied", exc_info=error)
        with self.store.writing() as unit:
            unit.lock(self.ring_id)
            if any(other.row.id == end.row.id for other in unit.blocks.ends(self.ring_id)):
                unit.blocks.set_apart(self.ring_id, end, shortened(problem))
        log.error(
            "the end of block %d of ring %r is recorded and cannot be applied: %s; its messages stay in flight, and "
            "other queues go on", end.row.number, self.session.ring, problem,
        )  # fmt: skip


def _ended_before(row: BlockRow, state: int) -> Serviced:
    """Return the result of a block that ended before in the same way."""
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
    ended = "it was completed or given back"
    ran_out = f"its lease ran out at {moment(row.deadline):%H:%M:%S} UTC" if row.deadline else ended
    if row.state == PLANNED:
        return f"block {row.number} is past its deadline: {ran_out}"
    late = row.state == RELEASED and row.ended_at is not None and row.ended_at >= row.deadline
    return f"block {row.number} was {STATES[row.state]}{f': {ran_out}' if late else ''}"
