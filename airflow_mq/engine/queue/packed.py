"""Packed payloads: messages that lie one after the other, divided when one of them is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import overload


class Packed(Sequence[bytes]):
    """Payloads of a batch as few pieces, for readers that need no object for each message. None is a reference."""

    def __init__(self, lengths: Sequence[int], pieces: Sequence[bytes | memoryview]) -> None:
        self.lengths = lengths
        #: The bytes of the payloads in order, each piece with some of them.
        self.pieces = pieces

    @cached_property
    def _divided(self) -> list[bytes]:
        data = b"".join(self.pieces)
        return [data[start:stop] for start, stop in pairwise(accumulate(self.lengths, initial=0))]

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, at: int) -> bytes: ...

    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...

    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        return self._divided[at]

    def __repr__(self) -> str:
        return f"Packed({len(self)} payloads)"


def lengths_of(payloads: Sequence[bytes]) -> Sequence[int]:
    """Return the lengths of the payloads of a batch."""
    return payloads.lengths if isinstance(payloads, Packed) else list(map(len, payloads))


def pieces_of(payloads: Sequence[bytes]) -> Sequence[bytes | memoryview]:
    """Return the bytes of the payloads of a batch in order, in pieces."""
    return payloads.pieces if isinstance(payloads, Packed) else payloads
