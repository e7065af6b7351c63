"""Blocks of a ring: plan, report, renew, settle and release."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TypeAlias

from ...rules.characters import shown
from ...rules.claims import Claim, ClaimRun, Scales
from ...rules.errors import InFlight, InvalidInput, TokenRefused, UnknownBlock
from ...rules.message import Address, check_address, check_key, check_number
from ...rules.orders import Entry
from ...rules.outcome import BEGUN, Mark, is_tried_alone
from ...rules.overweight import find_set_aside
from ...rules.patterns import OriginPatterns
from ...rules.settle import Answers
from ...rules.units import check_seconds
from ...rules.weight import WeighPayloads, Weight
from ...store.rows import LATEST, RELEASED, SETTLED, BlockRow
from ...store.unit import Unit
from ..batches import PageRuns, cut, load_batches, neighbours
from ..servers import ledger_pages
from ..session import RingSession
from ..values import Batch, Report, Serviced, moment
from ..walk import meet_newcomers
from .block import STATES, Block, block_of, claims_of
from .plan import Planner, new_block, planned_under
from .reports import answers_of, pack_reports
from .settlement import refusal

#: Number of plans for one call if the ring changes while a caller's weigher runs.
PLANS = 5
#: Blocks of one read, of any number.
PAGE = 500
#: A block as callers name it: its number, its token, or the block itself.
BlockRef: TypeAlias = "int | str | Block"
#: Payload bytes and ranges of messages that one snapshot fetches for batches, about.
FETCHED, MOST_RUNS = 16 << 20, 256


class Blocks:
    """Blocks of a ring: plan, report, renew, settle and release."""

    def __init__(self, session: RingSession) -> None:
        self.session, self.store, self.ring_id = session, session.store, session.ring_id
        self.release_dead = session.settler.release_dead

    def plan(
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
        processor_of: Callable[[str], str] | None = None,
    ) -> Block:
        """Claim the messages that fit a block.

        :param key: unique per attempt to do this work (a DAG run and task): while its block lives, the same key
            returns the same block.
        :param limit: the weight of the block; by default, the ring's service weight.
        :param lease: seconds until any process may release the block, unless it is renewed.
        :param weigher: returns the weights of one origin's payloads, instead of the ring's.
        :param origins: shell patterns of the origins to service; others keep their places and credits.
        :param server: the DAG that plans, as `explain` and `doctor` name it; by default, the queue's actor.
        :param reports_begin: the block's workers report what they begin, as those of this package and readers of
            `batches()` do. A message that no worker began is requeued without an attempt.
        :param processor_of: returns the name of an origin's processor, for charges and measured weights
            (`Inspect.fits`).
        """
        self.session.refuse_nested()
        seconds = None if lease is None else check_seconds(lease, "lease")
        patterns = OriginPatterns.of(origins)
        if key is not None:
            check_key(key)
            with self.store.reading() as unit:
                known = planned_under(unit, self.ring_id, key)
                if known is not None and known.row.deadline > unit.now():
                    return self._block(*known)
        self.release_dead()
        meet_newcomers(self.session)
        planner = partial(
            Planner, self.session, key, limit, seconds, weigher, seed, server, patterns, reports_begin, processor_of
        )
        if weigher is None:
            return self._block(*planner().plan_at_once())
        for _ in range(PLANS - 1):
            # If the ring changes while the weigher runs, plan again.
            with suppress(InFlight):
                return self._block(*planner().plan_holding())
        return self._block(*planner().plan_holding())

    def get(self, token: BlockRef) -> Block:
        """Return a block by its token or its number."""
        raw = self._token(token)
        with self.store.reading() as unit:
            row = unit.blocks.by_token(self.ring_id, raw)
            if row is None:
                raise UnknownBlock()
            return self._block(row, claims_of(unit, row))

    def list(
        self, state: str | None = None, limit: int = 100, *, before: int | None = None, entries: bool = False
    ) -> builtins.list[Block]:
        """Return blocks, latest first, without their claims.

        :param before: only blocks with a smaller id, to continue a list.
        :param entries: with their pages of the ledger.
        """
        if state is not None and state not in STATES:
            raise InvalidInput(f"a block is {', '.join(STATES)}, not {str(state)[:40]!r}")
        check_number(limit, "a limit")
        wanted = None if state is None else STATES.index(state)
        top = LATEST if before is None else check_number(before, "a block")
        with self.store.reading() as unit:
            rows = unit.blocks.latest(self.ring_id, wanted, top, limit)
            # Rounds of service are numbered as blocks are, and there may be many between two blocks.
            numbers = [row.number for row in rows] if entries else []
            pages = [page for number in numbers for page in ledger_pages(unit, self.ring_id, 1, number, number)]
        found = {page.block: page.entries for page in pages}
        return [self._block(row, (), found.get(row.number, ())) for row in rows]

    def each(self, state: str | None = None) -> Iterator[Block]:
        """Yield blocks, latest first, without their claims, page by page: any number of them."""
        before: int | None = None
        while page := self.list(state, PAGE, before=before):
            yield from page
            before = page[-1].id

    def unapplied(self) -> builtins.list[tuple[int, str]]:
        """Return the blocks whose recorded end cannot be applied, with the reasons."""
        with self.store.reading() as unit:
            ends = [end for end in unit.blocks.ends(self.ring_id, failed=True) if end.error]
            return [(end.row.number, end.error) for end in ends]

    def live(self, key: str) -> Block | None:
        """Return the live block that was planned with this key, with its claims; None without one."""
        with self.store.reading() as unit:
            known = planned_under(unit, self.ring_id, key)
        return None if known is None else self._block(*known)

    def report(self, token: BlockRef, reports: Iterable[Report]) -> None:
        """Report outcomes of messages of a block. They count at once, and are settled with the block.

        Any process may call this, any number of times; the first outcome of a message counts, or the first one of its
        latest attempt (`Report.epoch`).
        """
        raw = self._token(token)
        data, attributes = pack_reports(reports, self.session.config, self.session.permit)
        if not data:
            return
        with self.store.writing() as unit:
            if not unit.blocks.report(self.ring_id, raw, data, attributes, unit.now()):
                raise refusal(unit, self.ring_id, raw, "report to")

    def mark(self, token: BlockRef, claims: Iterable[Claim], mark: Mark = BEGUN, epoch: int = 0) -> None:
        """Record that a worker begins the messages of some of a block's claims, or why none began them.

        :param epoch: number of an attempt that replaces the outcomes of earlier ones (`Report.epoch`)
        """
        runs = [(claim, run) for claim in claims for run in claim.runs if run.count]
        self.report(
            token,
            [
                Report(claim.whose, run.page, run.first, run.first + run.count - 1, mark, claim.priority, epoch=epoch)
                for claim, run in runs
            ],
        )

    def begun_batches(self, block: Block, claims: Sequence[Claim]) -> Iterator[Batch]:
        """Yield the messages of claims, and record that a worker begins them: all at once, or with the ring's
        `max_attempts` each batch when it is yielded, with a message of an earlier attempt alone.
        """
        most = self.session.config.max_attempts
        if most is None:
            with suppress(TokenRefused, UnknownBlock):
                self.mark(block, claims)
            yield from self.batches(claims, block.id)
            return
        for batch in self.batches(claims, block.id):
            for piece in cut(batch, lambda attempt: is_tried_alone(attempt, most)):
                last = piece.first + len(piece) - 1
                with suppress(TokenRefused, UnknownBlock):
                    self.report(block, [Report(piece.origin, piece.page, piece.first, last, BEGUN, piece.priority)])
                yield piece

    def reported(self, token: BlockRef) -> dict[str, Answers]:
        """Return the reported outcomes of a live block by book: a worker that continues need not repeat them."""
        raw = self._token(token)
        with self.store.reading() as unit:
            row = unit.blocks.by_token(self.ring_id, raw)
            if row is None:
                raise UnknownBlock()
            return answers_of(unit.blocks.reports(row.id))

    def renew(self, token: BlockRef, lease: float | None = None) -> datetime:
        """Extend the deadline of a block; return it. A renewal never moves a deadline back.

        :param lease: seconds from now; by default, those with which the block was planned
        """
        raw, seconds = self._token(token), None if lease is None else float(check_seconds(lease, "lease"))
        with self.store.writing() as unit:
            deadline = unit.blocks.renew(self.ring_id, raw, seconds, unit.now())
            if deadline is None:
                raise refusal(unit, self.ring_id, raw, "renew")
            return moment(deadline)

    def settle(self, token: BlockRef) -> Serviced:
        """Give each message of a block its outcome, in one transaction; a second call returns the same result.

        Messages without a reported outcome are requeued. If another process holds the ring, the end is recorded, and
        that process applies it: the result is final, and its events follow.
        """
        return self.session.settler.end(self._token(token), SETTLED)

    def release(self, token: BlockRef) -> Serviced:
        """Abandon a block: settle reported outcomes, requeue the rest."""
        return self.session.settler.end(self._token(token), RELEASED)

    def plan_overweight(
        self, address: Address, limit: Weight, key: str | None = None, lease: float | None = None
    ) -> Block:
        """Claim one set-aside message for execution by a block of its own."""
        check_address(address)
        limit = Weight.of(limit)
        seconds = None if lease is None else check_seconds(lease, "lease")
        if key is not None:
            # A repeated execution begins anew.
            self.release_dead()
        with self.session.hold.transaction() as (unit, working_set):
            known = planned_under(unit, self.ring_id, key)
            if known is not None:
                return self._block(*known)
            book, page = find_set_aside(working_set, address)
            refuse_claimed_by_hand(unit, self.ring_id, [address])
            weight = Scales(working_set).weight(address.book, page, address.index)
            claim = Claim(
                address.book, [ClaimRun(address.page, address.index, 1)], weight, working_set.is_ordered(book)
            )
            # A person decided: the balance may become negative.
            working_set.spend(working_set.buckets_of(book), weight)
            row = new_block(self.session, unit, key, seconds, working_set.now, [claim], limit, by_hand=True)
            return self._block(row, [claim])

    def _token(self, block: BlockRef) -> bytes:
        """Return the token of a block, which a caller names by that, by its number, or as an object."""
        if isinstance(block, Block):
            return bytes.fromhex(block.token)
        # A token has 32 hexadecimal digits, and no number has as many.
        if str(block).isdecimal() and len(str(block)) < 32:
            number = int(block)
            with self.store.loose() as unit:
                for row in unit.blocks.latest(self.ring_id, None, min(number + 1, LATEST), 1):
                    if row.number == number:
                        return bytes(row.token)
            raise UnknownBlock(f"unknown block {number}: not in ring {self.session.ring!r}, or deleted after its time")
        try:
            return bytes.fromhex(str(block))
        except ValueError:
            raise UnknownBlock(
                f"invalid block {shown(block, 40, repr)}: expected its number or its token, as "
                f"`{self.session.cli('block list')}` prints them"
            ) from None

    # Reading a block.

    def _block(self, row: BlockRow, claims: Sequence[Claim] = (), entries: Sequence[Entry] = ()) -> Block:
        return block_of(row, claims, entries, self)

    def batches(self, claims: Iterable[Claim], block: int | None = None) -> Iterator[Batch]:
        """Yield the messages of claims: neighbours of one page together."""
        runs = [(claim.origin, run) for claim in claims for run in claim.runs]
        begin = 0
        while begin < len(runs):
            window = runs[begin : begin + MOST_RUNS]
            with self.session.snapshot(names=list({origin for origin, _ in window})) as (_, working_set):
                working_set.loader.pages.fetch([(origin, run.page) for origin, run in window])
                wanted: list[PageRuns] = []
                size = 0
                for origin, run in window:
                    if size >= FETCHED:
                        break
                    begin += 1
                    page = working_set.pages.get((origin, run.page))
                    if page is not None:
                        wanted.append(PageRuns(origin, page, list(neighbours(run.handed_out()))))
                        size += page.held(run.first, run.first + run.count)
                found = load_batches(working_set, wanted, block)
            yield from found


def claimed_by_hand(unit: Unit, ring: int, addresses: Sequence[Address]) -> dict[Address, InFlight]:
    """Return refusals of those of these set-aside messages that blocks execute."""
    claims: dict[str, list[Claim]] = {}
    for row in unit.blocks.claims_on(ring, list(dict.fromkeys(address.book for address in addresses))):
        claims.setdefault(row.claim.origin, []).append(row.claim)
    return {
        address: InFlight(f"message {address} is being executed by a block; wait until it ends")
        for address in addresses
        if any(claim.run_of(address) for claim in claims.get(address.book, ()))
    }


def refuse_claimed_by_hand(unit: Unit, ring: int, addresses: Sequence[Address]) -> None:
    """Raise `InFlight` if a block executes one of these set-aside messages."""
    for error in claimed_by_hand(unit, ring, addresses).values():
        raise error
