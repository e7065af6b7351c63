"""Payloads that no page holds are kept apart, each once by its hash; messages carry references to them."""

from __future__ import annotations

import struct

from .errors import InvalidMessage

_LAYOUT = struct.Struct(">8s32sQ")
#: What the bytes of a reference begin with, for whoever meets them without the queue.
MAGIC = b"\x93mqblob\n"
#: How long a reference is: so much of a page it takes.
REFERENCE_BYTES = _LAYOUT.size
#: The largest payload: what the narrowest column that counts bytes of one message holds.
MOST_BLOB_BYTES = (1 << 31) - 1


class Reference(bytes):
    """What a message carries in the place of a payload that is kept apart: bytes that know what they stand for.

    The kind says so, not the content: plain bytes that look the same are a plain message.
    """

    __slots__ = ()

    @classmethod
    def of(cls, hash_: bytes, size: int) -> Reference:
        """The reference to a payload, by its BLAKE2b-256 hash and its size."""
        if len(hash_) != 32:
            raise InvalidMessage(
                f"a payload that is kept apart is named by the 32 bytes of its hash, not {hash_!r:.80}"
            )
        if type(size) is not int or not 0 < size <= MOST_BLOB_BYTES:
            raise InvalidMessage(f"a payload that is kept apart has 1 to {MOST_BLOB_BYTES:,} bytes, not {size!r:.40}")
        return cls(_LAYOUT.pack(MAGIC, hash_, size))

    @classmethod
    def read(cls, data: bytes) -> Reference:
        """A reference, from its bytes."""
        if len(data) != REFERENCE_BYTES or not data.startswith(MAGIC):
            raise InvalidMessage(f"these {len(data):,} bytes are no reference to a payload that is kept apart")
        return cls(data)

    @property
    def hash(self) -> bytes:
        """The name of the payload, and of the messages that carry it."""
        return bytes(self[8:40])

    @property
    def size(self) -> int:
        """How large the payload is."""
        return int.from_bytes(self[40:48], "big")

    def __repr__(self) -> str:
        return f"Reference({self.hash.hex()}, {self.size})"


def extent(payload: bytes) -> int:
    """How large the payload of a message is, wherever it is kept."""
    return payload.size if isinstance(payload, Reference) else len(payload)
