"""Reference tokens: messages on lease, and their completion within a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeAlias
from urllib.parse import quote, unquote

from ..rules.claims import Claim
from ..rules.errors import InvalidInput, MessageQueueError, TokenRefused, UnknownBlock
from ..rules.message import Address
from ..rules.outcome import DONE, Outcome, check_outcome, send_bounds
from ..rules.page import Page
from ..store import codec
from ..store.rows import PLANNED, BlockRow
from ..store.unit import Unit
from ..store.working_set import StoredSet
from .blocks.block import claims_of
from .blocks.blocks import Blocks
from .blocks.reports import blobs_of
from .blocks.settlement import refusal
from .session import RingSession


@dataclass(frozen=True)
class ReferenceToken:
    """A message on lease: the holder of the token may fetch the message, and complete it or give it back.

    The message stays in its place. `str(token)` is the token as text; another process reads it with
    `queue.leases.token(text)`. Until the lease ends, the text gives access to the message: keep it out of logs.
    """

    ring: str
    #: The secret of the block behind the token; the store refuses it after the lease is lost.
    secret: str = field(repr=False)
    address: Address
    #: End of the lease, as far as this token knows.
    deadline: datetime | None = field(default=None, compare=False)
    _session: RingSession | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.ring}/{self.secret}/{quote(str(self.address), safe=':')}"

    @classmethod
    def parse(cls, text: str) -> ReferenceToken:
        """Return the token that `str(token)` wrote. To use it, read it by a queue: `queue.leases.token(text)`."""
        parts = str(text).split("/")
        if len(parts) != 3 or len(parts[1]) != 32 or not set(parts[1]) <= set("0123456789abcdef"):
            raise InvalidInput("invalid token: expected RING/SECRET/ORIGIN:PAGE:INDEX")
        return cls(parts[0], parts[1], Address.parse(unquote(parts[2])))

    def fetch(self) -> bytes:
        """Return the payload of the message, or raise `TokenRefused` if the lease is lost."""
        with self._leased("fetch a message by") as (working_set, page):
            return working_set.loader.payloads.one(self.address.book, page, self.address.index)

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the message."""
        with self._leased("read the headers of a message by") as (working_set, page):
            return dict(working_set.attributes(self.address.book, page, self.address.index).headers)

    def renew(self, lease: float | None = None) -> datetime:
        """Lease the message for longer, by the seconds of its lease unless others are given; return the deadline."""
        return Blocks(self._bound).renew(self.secret, lease)

    def give_back(self) -> None:
        """Return the message to its place, unprocessed; that counts as an attempt."""
        end_all(self._bound, [self], None)

    def complete(self, outcome: Outcome = DONE) -> None:
        """Complete the message with this outcome, in a transaction of its own.

        To complete it in a transaction of yours, see `MessageQueue.commands`.
        """
        end_all(self._bound, [self], outcome)

    @property
    def _bound(self) -> RingSession:
        if self._session is None:
            raise InvalidInput("this token was read without a queue: use queue.leases.token(text)")
        return self._session

    @contextmanager
    def _leased(self, action: str) -> Iterator[tuple[StoredSet, Page]]:
        """Yield a snapshot with the page of the message, while the lease lives."""
        with self._bound.snapshot(names=[self.address.book]) as (unit, working_set):
            ring = self._bound.ring_id
            row = _row_of(unit, ring, self)
            if row.state != PLANNED or row.deadline <= unit.now():
                raise refusal(unit, ring, bytes.fromhex(self.secret), action)
            _refuse_changed(unit, row, self.address, TokenRefused)
            page = working_set.page(self.address.book, self.address.page)
            assert page is not None, "a claimed message is stored"
            yield working_set, page


GivenTokens: TypeAlias = "str | ReferenceToken | Iterable[str | ReferenceToken]"


def read_tokens(session: RingSession, given: GivenTokens) -> list[ReferenceToken]:
    """Return one or many tokens of a ring, read from their texts and ready for use."""
    ring = session.ring
    if not isinstance(given, (str, ReferenceToken, Iterable)):
        raise InvalidInput(f"invalid token ({type(given).__name__}): expected text, or a token that a view returned")
    found = []
    for token in [given] if isinstance(given, (str, ReferenceToken)) else given:
        read = token if isinstance(token, ReferenceToken) else ReferenceToken.parse(token)
        if read.ring != ring:
            raise InvalidInput(f"token of ring {read.ring[:80]!r}: expected a token of ring {ring!r}; open that ring")
        found.append(replace(read, _session=session))
    if len({token.secret for token in found}) < len(found):
        raise InvalidInput("duplicate token: each message is named once; remove the duplicate")
    return found


def end_all(session: RingSession, tokens: Sequence[ReferenceToken], outcome: Outcome | None) -> None:
    """Complete the messages of tokens in a transaction of its own; without an outcome, return them to their places."""
    session.refuse_nested()
    if outcome is not None:
        outcome = check_outcome(outcome, *send_bounds(session.config, session.permit))
    with session.store.writing() as unit:
        for token in tokens:
            complete_in(unit, session.ring_id, token, outcome)
    session.settler.release_soon(bytes.fromhex(token.secret) for token in tokens)


def complete_in(unit: Unit, ring: int, token: ReferenceToken, outcome: Outcome | None) -> None:
    """Report on the message of a token within a transaction, if there is an outcome, and refuse every later report.

    From the commit on, the block behind the token is past its deadline: the next plan, view or housekeeping settles it.
    """
    secret, address = bytes.fromhex(token.secret), token.address
    row, now, is_live = _row_of(unit, ring, token), unit.now(), True
    if outcome is not None:
        report = [address.book, address.page, address.index, address.index, *codec.plain_outcome(outcome)]
        blobs = blobs_of(getattr(outcome, "enqueue", ()))
        is_live = unit.blocks.report(ring, secret, codec.pack_report([report], b""), blobs, now)
    # Of two that report at the same time, one closes the block.
    if not (is_live and unit.blocks.close(ring, secret, now)):
        raise refusal(unit, ring, secret, f"{'complete' if outcome else 'give back'} a message of")
    _refuse_changed(unit, row, address, InvalidInput)


def _row_of(unit: Unit, ring: int, token: ReferenceToken) -> BlockRow:
    row = unit.blocks.by_token(ring, bytes.fromhex(token.secret))
    if row is None:
        raise UnknownBlock(f"unknown token: not in ring {token.ring!r} (completed, expired, or from another ring)")
    return row


def _refuse_changed(unit: Unit, row: BlockRow, address: Address, kind: type[MessageQueueError]) -> None:
    if address_of(claims_of(unit, row)) != address:
        raise kind(f"changed token: it is not that of message {address}; use the token as the view returned it")


def address_of(claims: Sequence[Claim]) -> Address | None:
    """Return the message of claims that have only one."""
    runs = [(claim.origin, run) for claim in claims for run in claim.runs]
    addresses = [Address(origin, run.page, item) for origin, run in runs for item in run.handed_out()]
    return addresses[0] if len(addresses) == 1 else None
