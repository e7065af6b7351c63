"""Batches of stored messages, with the facts that a processor may ask for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress, groupby
from operator import itemgetter, not_
from typing import NamedTuple, TypeVar

from ..rules.claims import Scales
from ..rules.errors import StoreCorrupt
from ..rules.page import Page, Slices
from ..store.rows import Heap
from ..store.working_set import StoredSet
from ..store.working_set.payloads import times_by_item
from .packed import Packed
from .values import Batch, Facts

T = TypeVar("T")
#: Bytes of messages that are read at once.
AT_ONCE = 512 << 10


class PageRuns(NamedTuple):
    """Ranges of messages of one page."""

    book: str
    page: Page
    runs: Sequence[range]


def load_batches(
    working_set: StoredSet,
    wanted: Iterable[PageRuns],
    *,
    block: int | None = None,
    scales: Scales | None = None,
    packed: bool = False,
) -> list[Batch]:
    """Return a batch for each range of messages.

    :param block: number of the block that holds the messages
    :param scales: predict the time of each message
    :param packed: return payloads as `Packed`, where inbox rows have several messages
    """
    found: list[Batch] = []
    for group in grouped([one for one in wanted if one.runs], AT_ONCE, _size_of):
        found += _batches_of(working_set, group, block, scales, packed=packed)
    return found


def grouped(
    values: Iterable[T], most_bytes: int, size_of: Callable[[T], int], *, most: float = math.inf
) -> Iterator[list[T]]:
    """Divide values into groups of about `most_bytes`, and of at most `most`, as they come."""
    group: list[T] = []
    size = 0
    for one in values:
        group.append(one)
        size += size_of(one)
        if size >= most_bytes or len(group) >= most:
            yield group
            group, size = [], 0
    if group:
        yield group


def _size_of(wanted: PageRuns) -> int:
    """Return the bytes that are read for ranges of messages: from the first to the last of them."""
    return wanted.page.held(wanted.runs[0].start, wanted.runs[-1].stop)


def _batches_of(
    working_set: StoredSet, wanted: Sequence[PageRuns], block: int | None, scales: Scales | None, *, packed: bool
) -> list[Batch]:
    """Read the rows of ranges of messages, and make batches of them."""
    loader = working_set.loader.payloads
    ranges = [(book, page, range(runs[0].start, runs[-1].stop)) for book, page, runs in wanted]
    undivided = [packed and _is_packed(page) for _, page, _ in wanted]
    heaps = loader.heaps_between(list(compress(ranges, undivided)))
    loader.fetch_between(list(compress(ranges, map(not_, undivided))))
    headers, found = loader.headers_of(ranges), []
    sent = loader.sent_of((book, page.slices_of(items.start, items.stop)) for book, page, items in ranges)
    for (book, page, runs), texts, whole in zip(wanted, headers, undivided):
        attempts = {item: note.attempts for item, note in page.notes.items() if note.attempts}
        facts = partial(_facts, attempts, page.slices, sent)
        headers_of = partial(dict[int, Mapping[str, str]], texts)
        for run in runs:
            weights = scales.weights(book, page, run.start, run.stop) if scales else ()
            times = list(map(itemgetter(0), weights))
            payloads = _packed(page, run, heaps) if whole else page.payloads[run.start : run.stop]
            found.append(
                Batch(book, payloads, page.index, run.start, headers_of, times=times, block=block, _facts=facts)
            )
    return found


def _is_packed(page: Page) -> bool:
    """Return whether most rows have several messages, and none of them is a reference."""
    return 2 * len(page.slices) <= len(page.lengths) and not any(note.blob for note in page.notes.values())


def _packed(page: Page, run: range, heaps: Mapping[int, Heap]) -> Packed:
    """Return the payloads of a range of messages, undivided."""
    pieces, at = [], 0
    for part in page.slices:
        first, stop = max(at, run.start), min(at + part.items, run.stop)
        if first < stop:
            heap = heaps.get(part.row_id)
            if heap is None:
                raise StoreCorrupt(f"inbox row {part.row_id} is gone, though a page refers to it")
            pieces.append(heap.part(part.start + first - at, page.lengths[first:stop]))
        at += part.items
    return Packed(page.lengths[run.start : run.stop], pieces)


def _facts(attempts: Mapping[int, int], slices: Slices, sent: Mapping[int, int | None]) -> Facts:
    return Facts(attempts, times_by_item(slices, sent))


def cut(batch: Batch, is_alone: Callable[[int], bool]) -> Iterator[Batch]:
    """Yield the messages of a batch in smaller ones: alone each message whose attempt is to be alone."""
    start = 0
    for alone, group in groupby(batch.attempts, is_alone):
        count = len(list(group))
        for size in [1] * count if alone else [count]:
            here = slice(start, start + size)
            yield replace(batch, payloads=batch.payloads[here], first=batch.first + start, times=batch.times[here])
            start += size
