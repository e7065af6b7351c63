"""Reference tokens: messages on lease, and their completion within a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import quote, unquote

from ..core.claims import Claim
from ..core.errors import InvalidInput
from ..core.message import Address
from ..core.outcome import DONE, Outcome
from ..store import codec
from ..store.rows import BlockRow
from ..store.unit import Unit
from .blocks.settlement import refusal
from .session import RingSession


@dataclass(frozen=True)
class ReferenceToken:
    """A message on lease: whoever has the token may fetch it, and complete it or give it back.

    The message itself stays where it lies. `str(token)` is the token as text, for another process, which
    has the queue read it: `queue.leases.token(text)`. The text is worth the message until the lease ends: it is
    not for logs.
    """

    ring: str
    #: What the block behind it is known by, and refused by once the lease is lost.
    secret: str = field(repr=False)
    address: Address
    #: Until when the message is leased, as far as this token has heard.
    deadline: datetime | None = field(default=None, compare=False)
    _leases: Any = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.ring}/{self.secret}/{quote(str(self.address), safe=':')}"

    @classmethod
    def parse(cls, text: str) -> ReferenceToken:
        """Return the token that `str(token)` wrote; to use it, have a queue read it: `queue.leases.token(text)`."""
        parts = str(text).split("/")
        if len(parts) != 3 or len(parts[1]) != 32 or not set(parts[1]) <= set("0123456789abcdef"):
            raise InvalidInput("this is no token of a message: it reads RING/SECRET/ORIGIN:PAGE:INDEX")
        return cls(parts[0], parts[1], Address.parse(unquote(parts[2])))

    def fetch(self) -> bytes:
        """The message itself. Refused once the lease is lost."""
        payload: bytes = self._bound.fetch(self)
        return payload

    @property
    def headers(self) -> Mapping[str, str]:
        """What its sender said beside the payload."""
        said: Mapping[str, str] = self._bound.fetch_headers(self)
        return said

    def renew(self, lease: float | None = None) -> datetime:
        """Lease the message for longer, and tell until when."""
        deadline: datetime = self._bound.renew(self, lease)
        return deadline

    def give_back(self) -> None:
        """Let the message go back to its place, untreated; that counts as a try."""
        self._bound.give_back(self)

    def complete(self, outcome: Outcome = DONE) -> None:
        """Say that the message is treated, in a transaction of its own; with what came of it, where that is more.

        To do so in a transaction of yours, see `MessageQueue.commands`.
        """
        self._bound.complete(self, outcome)

    @property
    def _bound(self) -> Any:
        if self._leases is None:
            raise InvalidInput("this token was read without a queue; have the queue read it: queue.leases.token(text)")
        return self._leases


class Tokens:
    """Tokens of a ring: read them, and complete their messages."""

    def __init__(self, session: RingSession) -> None:
        self.session, self.ring_id = session, session.ring_id

    def read(self, token: str | ReferenceToken) -> ReferenceToken:
        """A token that came from another process, as `str(token)` wrote it: now it can be used."""
        read = token if isinstance(token, ReferenceToken) else ReferenceToken.parse(token)
        if read.ring != self.session.ring:
            raise InvalidInput(
                f"this token is of ring {read.ring!r}, and this queue of {self.session.ring!r}; open that one"
            )
        return ReferenceToken(read.ring, read.secret, read.address, read.deadline)

    def read_all(self, given: str | ReferenceToken | Iterable[str | ReferenceToken]) -> list[ReferenceToken]:
        """One or many tokens, read by this queue."""
        if not isinstance(given, (str, ReferenceToken, Iterable)):
            raise InvalidInput(f"a token is text, or what a view gave, not {type(given).__name__}")
        many = [given] if isinstance(given, (str, ReferenceToken)) else list(given)
        found = [self.read(one) for one in many]
        if len({one.secret for one in found}) < len(found):
            raise InvalidInput("a token is given twice; a message is completed once")
        return found

    def complete_in(self, unit: Unit, token: ReferenceToken, outcome: Outcome) -> None:
        """Report on the message of a token within a transaction, whosever it is, and let nobody report after that.

        The block behind it is past its deadline from the commit on: whoever comes next settles it.
        """
        secret, address = bytes.fromhex(token.secret), token.address
        if not unit.blocks.close(self.ring_id, secret, unit.now()):
            raise refusal(unit, self.ring_id, secret, "complete a message of")
        row = unit.blocks.by_token(self.ring_id, secret)
        if row is None or only_address(unit, row) != address:
            raise InvalidInput(f"this token is not that of message {address}; take it as it was given")
        report = [address.book, address.page, address.index, address.index, *codec.plain_outcome(outcome)]
        unit.blocks.insert_report(row.id, codec.write_json([report]))


def only_address(unit: Unit, row: BlockRow) -> Address | None:
    """The one message that a block holds, if it holds one only."""
    return address_of([codec.unpack_claim(origin, bytes(data)) for origin, data in unit.blocks.claims(row.id)])


def address_of(claims: Sequence[Claim]) -> Address | None:
    runs = [(claim.origin, run) for claim in claims for run in claim.runs]
    held = [Address(origin, run.page, item) for origin, run in runs for item in run.handed_out()]
    return held[0] if len(held) == 1 else None
