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
    loader, found = working_set.loader.payloads, list[Batch]()
    # A group reads from the first to the last message of each of its pages.
    held = (one for one in wanted if one.runs)
    for group in grouped(held, AT_ONCE, lambda one: one.page.held(one.runs[0].start, one.runs[-1].stop)):
        ranges = [(book, page, range(runs[0].start, runs[-1].stop)) for book, page, runs in group]
        loader.fetch_between(ranges)
        for (book, page, runs), facts in zip(group, loader.facts_of(ranges)):
            found += [
                Batch(book, page.payloads[run.start : run.stop], page.index, run.start, block=block, _facts=facts)
                for run in runs
            ]
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


def cut(batch: Batch, is_alone: Callable[[int], bool]) -> Iterator[Batch]:
    """Yield the messages of a batch in smaller ones: alone each message whose attempt is to be alone."""
    start = 0
    for alone, group in groupby(batch.attempts, is_alone):
        count = len(list(group))
        for size in [1] * count if alone else [count]:
            here = slice(start, start + size)
            yield replace(batch, payloads=batch.payloads[here], first=batch.first + start)
            start += size


def neighbours(items: Iterable[int]) -> Iterator[range]:
    """Yield the ranges of neighbours."""
    start = stop = -1
    for item in items:
        if item != stop:
            if start >= 0:
                yield range(start, stop)
            start = item
        stop = item + 1
    if start >= 0:
        yield range(start, stop)
