"""Values drawn from bytes: the same bytes give the same values, so that a fuzzer of bytes mutates values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_ODD: tuple[object, ...] = (
    None, True, False, 0, -1, 1, 1 << 31, 1 << 63, 1 << 64, 1.5, -0.0, float("nan"), float("inf"), "", "\0", "\ud800",
    "\x01", "high", "regular", b"", b"x", b"\xff" * 32, (), [], {}, object, ..., 10**5_000,
)  # fmt: skip


class Draw:
    """Values that the bytes of an input choose. At the end of the bytes, all of them are zero or empty."""

    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def byte(self) -> int:
        """Return the next byte."""
        self.place += 1
        return self.data[self.place - 1] if self.place <= len(self.data) else 0

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        self.place += count
        return self.data[self.place - count : self.place]

    def rest(self) -> bytes:
        """Return all bytes that are left."""
        return self.take(max(0, len(self.data) - self.place))

    def pick(self, values: Sequence[T]) -> T:
        """Return one of the values."""
        return values[self.byte() % len(values)]

    def whole(self, width: int = 8) -> int:
        """Return a whole number of at most so many bytes; small ones are likely."""
        return int.from_bytes(self.take(self.byte() % (width + 1)), "big")

    def binary(self) -> bytes:
        """Return a few bytes; seldom many."""
        length = self.byte()
        return self.take(length) if length < 250 else self.take(1) * (length - 249) * 2_000

    def text(self) -> str:
        """Return a text; bytes that are not UTF-8 become lone surrogates."""
        return self.binary().decode("utf-8", "surrogateescape")

    def value(self, depth: int = 3) -> object:
        """Return any value that a caller could give by mistake."""
        kind = self.byte() % (8 if depth else 5)
        if kind == 0:
            return self.pick(_ODD)
        if kind <= 2:
            return self.text() if kind == 1 else self.binary()
        if kind <= 4:
            return self.whole(9) if kind == 3 else -self.whole(2)
        values = [self.value(depth - 1) for _ in range(self.byte() % 4)]
        if kind == 5:
            return values
        return tuple(values) if kind == 6 else {self.text(): value for value in values}
