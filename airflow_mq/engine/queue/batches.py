"""Batches of stored messages, with the facts that a processor may ask for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple, TypeVar

from ..rules.page import Page
from ..store.working_set import StoredSet
from .values import Batch

T = TypeVar("T")
#: Bytes of messages that are read at once.
AT_ONCE = 512 << 10


class PageRuns(NamedTuple):
    """Ranges of messages of one page."""

    book: str
    page: Page
    runs: Sequence[range]


def load_batches(working_set: StoredSet, wanted: Iterable[PageRuns], block: int | None = None) -> list[Batch]:
    """Return a batch for each range of messages.

    :param block: number of the block that holds the messages
    """
    found: list[Batch] = []
    for group in grouped([one for one in wanted if one.runs], AT_ONCE, _size_of):
        found += _batches_of(working_set, group, block)
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


def _batches_of(working_set: StoredSet, wanted: Sequence[PageRuns], block: int | None) -> list[Batch]:
    """Read the rows of ranges of messages, and make batches of them."""
    loader = working_set.loader.payloads
    ranges = [(book, page, range(runs[0].start, runs[-1].stop)) for book, page, runs in wanted]
    loader.fetch_between(ranges)
    found = []
    for (book, page, runs), facts in zip(wanted, loader.facts_of(ranges)):
        for run in runs:
            payloads = page.payloads[run.start : run.stop]
            found.append(Batch(book, payloads, page.index, run.start, block=block, _facts=facts))
    return found


def cut(batch: Batch, is_alone: Callable[[int], bool]) -> Iterator[Batch]:
    """Yield the messages of a batch in smaller ones: alone each message whose attempt is to be alone."""
    start = 0
    for alone, group in groupby(batch.attempts, is_alone):
        count = len(list(group))
        for size in [1] * count if alone else [count]:
            here = slice(start, start + size)
            yield replace(batch, payloads=batch.payloads[here], first=batch.first + start)
            start += size
