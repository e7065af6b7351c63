"""Messages of the chaos harness: payloads that name their sender, number and way of sending."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from .journal import Entry

#: Messages of this origin are enqueued by processors: one for each processed parent.
CHILDREN = "children"
CHILD = b"child of "
#: Origin to which leased messages are transferred, and the ring to which others are.
PUBLISHED = "published"
ARCHIVE = "archive"
#: Origins of transferred messages, which arrive in the order of their transfers.
MOVED = (PUBLISHED, ARCHIVE)
#: Number of the first sender that sends parents only.
PARENTS = 80
#: Number of the sender whose messages two bulk senders send in opposite orders.
STORM = 90
#: Number of the sender in Spark.
SPARK = 91
#: Ways of sending without an idempotency key: a repeated call would store a second message.
KEYLESS = ("plain", "transaction")


@dataclass(frozen=True)
class Letter:
    """One message of a call of a sender."""

    sender: int
    call: int
    part: int
    way: str

    @property
    def payload(self) -> bytes:
        head = json.dumps(asdict(self)).encode()
        size = 2_400 if self.call % 11 == 0 else 300
        return head + b" " + hashlib.sha256(head).hexdigest().encode() * (size // 64)

    @property
    def key(self) -> str:
        return f"{self.sender}-{self.call}-{self.part}"

    @property
    def child(self) -> bytes:
        return CHILD + self.payload

    @property
    def is_parent(self) -> bool:
        return self.way == "parent"


def read_letter(payload: bytes) -> Letter | None:
    """Return the letter of a payload; None for a child."""
    if not payload.startswith(b"{"):
        return None
    return Letter(**json.loads(payload[: payload.index(b"} ") + 1]))


@dataclass(frozen=True)
class Call:
    """A call of a sender with all its messages."""

    sender: int
    number: int
    way: str
    origin: str
    parts: int

    @classmethod
    def of(cls, entry: Entry) -> Call:
        """Return the call of an intent, an acknowledgement or a doubt."""
        values = entry.values
        return cls(
            entry.number("sender"),
            entry.number("number"),
            entry.text("way"),
            entry.text("origin"),
            int(values["parts"]),
        )

    @property
    def letters(self) -> list[Letter]:
        return [Letter(self.sender, self.number, part, self.way) for part in range(self.parts)]
