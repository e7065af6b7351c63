"""Lines of the ledger by queue, and the blocks in which a queue was left wanting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .orders import Entry

#: Reasons of a block to stop at a queue that would have taken more, and to skip one.
STOPPED = ("limit", "spent")
SKIPPED = ("paused", "in flight", "backoff")


def lines_of(pages: Sequence[Sequence[Entry]]) -> dict[str, list[tuple[int, Entry]]]:
    """Return the lines of each queue, with the index of their blocks."""
    found: dict[str, list[tuple[int, Entry]]] = {}
    for at, page in enumerate(pages):
        for entry in page:
            found.setdefault(entry.origin, []).append((at, entry))
    return found


def wanting_in(lines: Sequence[tuple[int, Entry]], ready: int | None, count: int) -> Iterator[range]:
    """Yield the stretches of blocks in which a queue was wanting, from its lines and since when it is ready."""
    last, stopped = -1, False
    for at, entry in lines:
        if stopped and entry.reason not in SKIPPED:
            yield range(last + 1, at)
        last, stopped = at, entry.reason in STOPPED
        if stopped:
            yield range(at, at + 1)
    if ready is not None:
        yield range(last + 1 if stopped else max(last + 1, ready), count)
