"""Batches of stored messages, with the facts that a processor may ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ..core.claims import Scales
from ..core.page import Page, Slices
from ..store.working_set import StoredSet
from ..store.working_set.payloads import times_by_item
from .values import Batch, Facts


class PageRuns(NamedTuple):
    """Ranges of messages of one page."""

    book: str
    page: Page
    runs: Sequence[range]


def load_batches(
    working_set: StoredSet, wanted: Iterable[PageRuns], *, block: int | None = None, scales: Scales | None = None
) -> list[Batch]:
    """Return a batch for each range of messages, fetched in a few statements.

    :param block: number of the block that holds the messages
    :param scales: predict the time of each message
    """
    wanted, loader = [one for one in wanted if one.runs], working_set.loader.payloads
    ranges = [(book, page, range(runs[0].start, runs[-1].stop)) for book, page, runs in wanted]
    loader.fetch_between(ranges)
    headers, found = loader.headers_of(ranges), []
    sent = loader.sent_of((book, page.slices_of(items.start, items.stop)) for book, page, items in ranges)
    for (book, page, runs), texts in zip(wanted, headers):
        attempts = {item: note.attempts for item, note in page.notes.items() if note.attempts}
        facts = partial(_facts, attempts, page.slices, sent)
        headers_of = partial(dict[int, Mapping[str, str]], texts)
        for run in runs:
            weights = scales.weights(book, page, run.start, run.stop) if scales else ()
            times = [weight.time for weight in weights]
            payloads = page.payloads[run.start : run.stop]
            found.append(
                Batch(book, payloads, page.index, run.start, headers_of, times=times, block=block, _facts=facts)
            )
    return found


def _facts(attempts: Mapping[int, int], slices: Slices, sent: Mapping[int, int | None]) -> Facts:
    return Facts(attempts, times_by_item(slices, sent))
