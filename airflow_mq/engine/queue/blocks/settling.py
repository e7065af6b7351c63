"""Settling of a block in parts, and the terms under which a recorded end is applied."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple, TypeAlias

from ...rules.characters import quoted
from ...rules.charging import Charge
from ...rules.claims import Claim, ClaimRun
from ...rules.config import BLOCK_PARTS
from ...rules.errors import InsufficientWeight, StoreCorrupt, TemporarilyUnprocessable
from ...rules.orders import parts_of
from ...rules.outcome import Done
from ...rules.overweight import settle_execution
from ...rules.page import PROCESSED
from ...rules.settle import FATES, Answers, ClaimSettler, Settlement, times_of
from ...rules.tree import MOST_DEBT, charge_overrun
from ...rules.weight import Weight
from ...store import codec
from ...store.blocks import EndRow
from ...store.rows import BlockRow
from ...store.working_set import StoredSet
from .block import claims_of
from .reports import answers_of

#: Messages and bytes of a part of a block: parts are settled between two writes of a transaction, and one transaction
#: applies a part of a recorded end. PostgreSQL ends a transaction that is idle for long, and others wait for the ring.
PART, PART_SIZE = 100_000, 64 << 20

#: Full blocks that a queue is charged at most.
MOST_BLOCKS = MOST_DEBT // BLOCK_PARTS
_ABSURD = (
    "block %d: the processor of %s reported a use of %s beyond the predicted weight; its credit is charged no more "
    "than %d full blocks, its budget and bill all; check the unit of `used`: expected milliseconds and bytes"
)
#: Returns the bytes of messages that settling a run of a claim loads.
SizeOf: TypeAlias = "Callable[[Claim, ClaimRun], int]"

log = logging.getLogger("airflow_mq.blocks")


@dataclass
class EndTerms:
    """Terms of a recorded end, which count besides the reports, and how far it is applied.

    No other process changes a claimed message, reports end with the block, and the ring's settings cannot change before
    the end is applied. All else that verdicts depend on is kept here, so that applying repeats them exactly. The counts
    prove that: an end that would give other verdicts is not applied.
    """

    #: The *most* of books.
    mosts: Mapping[str, Weight]
    #: Who ended the block.
    actor: str
    #: How many messages of each claim have each of `FATES`.
    verdicts: Sequence[Sequence[int]]
    #: Queues in which outcomes enqueue messages. A reader of other queues need not apply the end (`EndRow.sends_to`).
    sent: Sequence[str] = ()
    #: The cursor: queues of the remaining claims that stopped in the applied part, or were left there (`ClaimSettler`),
    #: and the result of the first claim that is left, as far as it is applied. Applied claims are not stored any more.
    stopped: Sequence[str] = ()
    left: Sequence[str] = ()
    so_far: Settlement = field(default_factory=Settlement)
    #: Measured microseconds and messages of each claim, as far as it is left; empty if no time is known.
    times: Sequence[Sequence[int]] = ()

    @staticmethod
    def of(end: EndRow) -> EndTerms:
        """Return the terms of a stored end."""
        with codec.reading("the recorded end of a block"):
            plain = end.terms_json
            so_far = dict(zip((*FATES, "overrun"), plain["so_far"]))
            so_far["overrun"] = Weight(*map(int, so_far["overrun"]))
            return EndTerms(
                {name: Weight(*map(int, most)) for name, most in plain["most"].items()},
                plain["actor"], plain["verdicts"], plain["sent"], plain["stopped"], plain["left"],
                Settlement(**so_far), plain.get("times", ()),
            )  # fmt: skip

    def to_json(self) -> dict[str, object]:
        """Return the terms as they are stored."""
        return {
            "most": self.mosts, "actor": self.actor, "verdicts": self.verdicts, "sent": self.sent,
            "stopped": self.stopped, "left": self.left, "so_far": [*self.so_far.counts, self.so_far.overrun],
            "times": self.times,
        }  # fmt: skip

    def first(self, claims: Sequence[Claim]) -> int:
        """Return the number of the first claim that is left."""
        return len(self.verdicts) - len(claims)

    def expected(self, claims: Sequence[Claim]) -> list[list[int]]:
        """Return the verdicts that are still to be applied, for each claim that is left."""
        left = [list(verdict) for verdict in self.verdicts[self.first(claims) :]] if claims else []
        if left:
            left[0] = [one - done for one, done in zip(left[0], self.so_far.counts)]
        return left


class Settling:
    """The messages of a block that get their outcomes, in parts of bounded size.

    :param actor: who ended the block
    :param terms: of an end that was recorded before: the settling goes on behind their cursor
    """

    def __init__(
        self, working_set: StoredSet, row: BlockRow, actor: str, terms: EndTerms | None = None,
        claims: Sequence[Claim] | None = None, answers: Mapping[str, Answers] | None = None,
    ) -> None:  # fmt: skip
        unit, self.details = working_set.unit, row.details_json
        self.working_set, self.row, self.actor, self.before = working_set, row, actor, terms
        self.claims = claims_of(unit, row) if claims is None else claims
        self.answers = answers_of(unit.blocks.reports(row.id)) if answers is None else answers
        self._parts = parts_of(working_set.config.service_weight or self.details["limit"])
        known = times_of(self.claims, self.answers, self._parts) if terms is None else terms.times
        #: Measured microseconds and messages of each claim, as they were recorded, and as far as they are left.
        self._known, self.times = known, [[*time] for time in known[len(known) - len(self.claims) :]]
        #: The result of each claim.
        self.found = [Settlement() for _ in self.claims]
        self.settler = ClaimSettler(
            working_set, self.details["limit"], self.claims,
            reports_begin=bool(self.details.get("reports_begin")),
        )  # fmt: skip
        if terms is not None:
            self.settler.mosts = terms.mosts
            self.settler.stopped.update(terms.stopped)
            self.settler.left.update(terms.left)
            if self.found:
                self.found[0] = terms.so_far
        self._part: Sequence[Piece] = ()

    def name_block(self) -> None:
        """Record that the changes are those of this block."""
        changes, server = self.working_set.changes, self.details.get("server", {})
        changes.block, changes.server = self.row.number, server.get("name", "")

    def parts(self) -> Iterator[None]:
        """Settle part after part."""
        working_set, row, settler = self.working_set, self.row, self.settler
        if row.by_hand:
            self._settle_by_hand()
            yield
            return
        parts = self._parts
        charges = self.details["order"] == "deficit"
        loads = Loads(working_set, self.claims, self.answers)
        for pieces in divided(self.claims, PART, loads.size_of, PART_SIZE):
            self._part = pieces
            working_set.loader.load_claims([piece.claim for piece in pieces], loads.known)
            for at, claim, is_last in pieces:
                result = self.found[at]
                took = self._take_time(at, claim)
                settler.settle(claim, self.answers.get(claim.origin, Answers()), result, is_last=is_last, took=took)
                if is_last and charges:
                    # The plan charged the planned weight; charge the excess now.
                    overrun = parts(result.overrun)
                    charge_overrun(working_set, working_set.book(claim.origin), overrun)
                    if overrun > MOST_DEBT and self.before is None:
                        log.warning(_ABSURD, row.number, quoted(claim.whose), result.overrun, MOST_BLOCKS)
                if is_last:
                    self._require(at)
            yield

    def _take_time(self, at: int, claim: Claim) -> int:
        """Take the measured time of the next runs of a claim from that of the claim."""
        if not self.times:
            return 0
        time, messages = self.times[at]
        took = time * claim.messages // max(messages, 1)
        self.times[at] = [time - took, messages - claim.messages]
        return took

    def _settle_by_hand(self) -> None:
        """Give the set-aside message of a block of its own its outcome."""
        working_set, claim, (result,) = self.working_set, self.claims[0], self.found
        run = claim.runs[0]
        book, page = working_set.book(claim.origin), working_set.page(claim.origin, run.page)
        outcome = self.answers.get(claim.origin, Answers()).get(run.page, run.first)
        self._part = [Piece(0, claim, is_last=True)]
        working_set.processor = claim.processor
        if outcome is None or page is None or page.marks[run.first] == PROCESSED:
            result.returned = 1
        else:
            reported = getattr(outcome, "used", None)
            used, predicted = reported or claim.planned, claim.planned if reported else None
            limit = self.details["limit"]
            try:
                cost = settle_execution(working_set, book, page, run.first, outcome, used, limit, self.actor, predicted)
            except (InsufficientWeight, TemporarilyUnprocessable):
                # The outcome came by a report, not by a call: the message stays set aside.
                result.returned = 1
            else:
                result.used = used.plus(cost)
                result.processed, result.failed = int(isinstance(outcome, Done)), int(not isinstance(outcome, Done))
                if isinstance(outcome, Done):
                    working_set.post_all(outcome.enqueue)
        took = 0 if result.returned else self._take_time(0, claim)
        working_set.charge(claim.origin, Charge(claim.planned, measured=took))
        working_set.processor = None
        self._require(0)

    def _require(self, at: int) -> None:
        """Raise `StoreCorrupt` unless a claim that is settled has the recorded verdicts."""
        if self.before is None:
            return
        verdict, found = list(self.before.verdicts[self.before.first(self.claims) + at]), self.found[at].counts
        if verdict != found:
            raise StoreCorrupt(
                f"the end of a block gives messages of {quoted(self.claims[at].whose)} other verdicts than recorded: "
                f"{found} are {', '.join(FATES)}; expected {verdict}"
            )

    def left(self) -> list[Claim]:
        """Return the claims and runs that follow the first part, which is settled."""
        if not self._part:
            return []
        at, claim, is_last = self._part[-1]
        if is_last:
            return list(self.claims[at + 1 :])
        split = self.claims[at]
        return [replace(split, runs=split.runs[len(claim.runs) :]), *self.claims[at + 1 :]]

    def terms(self, left: Sequence[Claim] = ()) -> EndTerms:
        """Return the terms for an end of which these claims are left, after the first part."""
        if self.before is None:
            books = [self.working_set.book(claim.origin) for claim in self.claims]
            mosts = {book.origin: book.settings.most for book in books if book.settings.most is not None}
            sent = sorted({posted.origin for posted in self.working_set.changes.posted.values()})
            return EndTerms(mosts, self.actor, [result.counts for result in self.found], sent, times=self._known)
        names, last = {claim.origin for claim in left}, self._part[-1]
        return replace(
            self.before,
            stopped=sorted(self.settler.stopped & names),
            left=sorted(self.settler.left & names),
            so_far=Settlement() if last.is_last else self.found[last.at],
            times=[*self._known[: len(self._known) - len(self.times)], *self.times],
        )


class Piece(NamedTuple):
    """A claim or some of its runs, its index in the block, and whether it has the last one of them."""

    at: int
    claim: Claim
    is_last: bool


def divided(claims: Iterable[Claim], most: int, size_of: SizeOf, most_size: int) -> Iterator[list[Piece]]:
    """Divide the claims of a block into parts of about so many messages or bytes, in their order.

    :param size_of: called once for each run in order, returns the bytes that settling it loads
    """
    part: list[Piece] = []
    count = size = 0
    for at, claim in enumerate(claims):
        begin = 0
        for stop, run in enumerate(claim.runs, 1):
            count, size = count + run.count, size + size_of(claim, run)
            if (count >= most or size >= most_size) and stop < len(claim.runs):
                part.append(Piece(at, replace(claim, runs=claim.runs[begin:stop]), is_last=False))
                yield part
                part, count, size, begin = [], 0, 0, stop
        part.append(Piece(at, replace(claim, runs=claim.runs[begin:]) if begin else claim, is_last=True))
        if count >= most or size >= most_size:
            yield part
            part, count, size = [], 0, 0
    if part:
        yield part


class Loads:
    """The pages that settling the claims of a block loads, as far as they were looked at.

    A page whose claimed messages are all done and have reported ids is settled without its payloads.
    """

    def __init__(self, working_set: StoredSet, claims: Sequence[Claim], answers: Mapping[str, Answers]) -> None:
        self.working_set, self.answers = working_set, answers
        self._keys = ((claim.origin, run.page) for claim in claims for run in claim.runs)
        self._ahead = 0
        #: Whether pages need no payloads.
        self._is_known: dict[tuple[str, int], bool] = {}

    @property
    def known(self) -> set[tuple[str, int]]:
        """The pages that need no payloads."""
        return {key for key, is_known in self._is_known.items() if is_known}

    def size_of(self, claim: Claim, run: ClaimRun) -> int:
        """Return the bytes that the next run loads in addition to those before it."""
        if not self._ahead:
            ahead = list(islice(self._keys, 1_024))
            self.working_set.loader.pages.fetch(ahead)
            self._ahead = len(ahead)
        self._ahead -= 1
        key, own = (claim.origin, run.page), self.answers.get(claim.origin)
        was_known, page = self._is_known.get(key), self.working_set.pages.get(key)
        is_known = self._is_known[key] = was_known is not False and own is not None and own.knows(run)
        return page.used if page is not None and was_known is not False and not is_known else 0
