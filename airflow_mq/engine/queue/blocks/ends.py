"""Recorded ends of blocks: the verdicts that are final, and how far the holder of the ring has applied them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple, TypeAlias

from ...rules.characters import quoted
from ...rules.claims import Claim, ClaimRun
from ...rules.errors import StoreCorrupt
from ...rules.settle import Answers, ClaimSettler, Settlement
from ...rules.tally import FATES
from ...rules.weight import Weight
from ...store import codec
from ...store.blocks import EndRow
from ...store.working_set import StoredSet

#: Returns the bytes of messages that settling a run of a claim loads.
SizeOf: TypeAlias = "Callable[[Claim, ClaimRun], int]"


@dataclass
class Terms:
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
    #: The claims that are left after `advance`.
    rest: Sequence[Claim] = ()

    @staticmethod
    def of(end: EndRow) -> Terms:
        """Return the terms of a stored end."""
        with codec.reading("the recorded end of a block"):
            plain = end.terms_json
            so_far = dict(zip((*FATES, "overrun"), plain["so_far"]))
            so_far["overrun"] = Weight(*map(int, so_far["overrun"]))
            return Terms(
                {name: Weight(*map(int, most)) for name, most in plain["most"].items()},
                plain["actor"], plain["verdicts"], plain["sent"], plain["stopped"], plain["left"],
                Settlement(**so_far),
            )  # fmt: skip

    def to_json(self) -> dict[str, object]:
        """Return the terms as they are stored."""
        return {
            "most": self.mosts, "actor": self.actor, "verdicts": self.verdicts, "sent": self.sent,
            "stopped": self.stopped, "left": self.left, "so_far": [*self.so_far.counts, self.so_far.overrun],
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

    def resume(self, settler: ClaimSettler, found: list[Settlement]) -> None:
        """Let a settler of the claims that are left go on behind the applied part."""
        settler.mosts = self.mosts
        settler.stopped.update(self.stopped)
        settler.left.update(self.left)
        if found:
            found[0] = self.so_far

    def advance(
        self, claims: Sequence[Claim], part: Sequence[Piece], settler: ClaimSettler, found: Sequence[Settlement]
    ) -> None:
        """Move the cursor behind a settled part; raise `StoreCorrupt` if its verdicts differ from the recorded ones."""
        for piece in part:
            if piece.is_last:
                self.require(claims, piece.at, found[piece.at])
        self.rest = _behind(claims, part)
        names = {claim.origin for claim in self.rest}
        self.stopped, self.left = sorted(settler.stopped & names), sorted(settler.left & names)
        self.so_far = found[part[-1].at] if part and not part[-1].is_last else Settlement()

    def require(self, claims: Sequence[Claim], at: int, settled: Settlement) -> None:
        """Raise `StoreCorrupt` unless a claim that is settled has the recorded verdicts."""
        verdict = list(self.verdicts[self.first(claims) + at])
        if verdict != settled.counts:
            raise StoreCorrupt(
                f"the end of a block gives messages of {quoted(claims[at].whose)} other verdicts than recorded: "
                f"{settled.counts} are {', '.join(FATES)}; expected {verdict}"
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
            self.working_set.loader.load_pages(ahead)
            self._ahead = len(ahead)
        self._ahead -= 1
        key, own = (claim.origin, run.page), self.answers.get(claim.origin)
        was_known, page = self._is_known.get(key), self.working_set.pages.get(key)
        is_known = self._is_known[key] = was_known is not False and own is not None and own.knows(run)
        return page.used if page is not None and was_known is not False and not is_known else 0


def _behind(claims: Sequence[Claim], part: Sequence[Piece]) -> list[Claim]:
    """Return the claims and runs that follow the first part."""
    if not part:
        return []
    last = part[-1]
    if last.is_last:
        return list(claims[last.at + 1 :])
    split = claims[last.at]
    return [replace(split, runs=split.runs[len(last.claim.runs) :]), *claims[last.at + 1 :]]
