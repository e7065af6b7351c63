"""External payloads: payloads larger than a page, stored once by hash and referred to by messages."""

from __future__ import annotations

import struct

from .errors import InvalidMessage

_LAYOUT = struct.Struct(">8s32sQ")
#: First bytes of a reference, to identify one outside of the queue.
MAGIC = b"\x93mqblob\n"
#: Length of a reference in a page.
REFERENCE_BYTES = _LAYOUT.size
#: Largest payload: the maximum of the narrowest column that counts the bytes of one message.
MOST_BLOB_BYTES = (1 << 31) - 1


class Reference(bytes):
    """Reference to an external payload, carried by a message in its place.

    The type marks a reference, not the content: plain `bytes` with the same content are a plain message.
    """

    __slots__ = ()

    @classmethod
    def of(cls, hash_: bytes, size: int) -> Reference:
        """Return the reference to a payload with this BLAKE2b-256 hash and size."""
        if len(hash_) != 32:
            raise InvalidMessage(f"invalid hash of an external payload {hash_!r:.80}: expected 32 bytes")
        if type(size) is not int or not 0 < size <= MOST_BLOB_BYTES:
            raise InvalidMessage(
                f"invalid size of an external payload {size!r:.40}: expected 1 to {MOST_BLOB_BYTES:,} bytes"
            )
        return cls(_LAYOUT.pack(MAGIC, hash_, size))

    @classmethod
    def read(cls, data: bytes) -> Reference:
        """Return the reference that these bytes encode."""
        if len(data) != REFERENCE_BYTES or not data.startswith(MAGIC):
            raise InvalidMessage(
                f"invalid reference to an external payload ({len(data):,} bytes): expected {REFERENCE_BYTES} bytes "
                "from payloads.put"
            )
        return cls(data)

    @property
    def hash(self) -> bytes:
        """Hash of the payload, which is the id of the messages that carry it."""
        return bytes(self[8:40])

    @property
    def size(self) -> int:
        """Size of the payload in bytes."""
        return int.from_bytes(self[40:48], "big")

    def __repr__(self) -> str:
        return f"Reference({self.hash.hex()}, {self.size})"


def extent(payload: bytes) -> int:
    """Return the size of a message's payload, in a page or external."""
    return payload.size if isinstance(payload, Reference) else len(payload)
