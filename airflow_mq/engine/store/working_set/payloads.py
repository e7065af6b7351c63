"""Loader of payloads, attributes and times of sending."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import accumulate, islice, takewhile

from ...rules.blob import Reference
from ...rules.changes import POSTED
from ...rules.errors import StoreCorrupt
from ...rules.message import PLAIN, Attributes, Posted
from ...rules.page import Facts, Page, Slices
from ...rules.priority import told
from ...rules.working_set import WorkingSet
from .. import codec
from ..attributes import StoredAttributes, pack_attributes
from .inboxes import InboxLoader
from .read_ahead import MOST_BYTES
from .source import LoadOptions, Source

#: Number of messages whose facts are fetched together, where the caller asks for them one by one.
FACTS_AT_ONCE = 256

Key = tuple[str, int]


class PayloadLoader:
    """Loads the contents of messages that lie in pages."""

    def __init__(self, working_set: WorkingSet, source: Source, inboxes: InboxLoader, options: LoadOptions) -> None:
        self.working_set, self.source, self.options = working_set, source, options
        self.inboxes, self.cache, self.read_ahead = inboxes, inboxes.cache, inboxes.read_ahead
        #: Attributes of the rows of messages that this operation enqueued.
        self._posted: dict[int, StoredAttributes] = {}
        self._facts: dict[Key, tuple[range, Facts]] = {}
        #: Number of fetches that brought rows of each queue, and the largest that a visit to a queue needed.
        self._fetches: Counter[str] = Counter()
        self._most_fetches = 0

    # Payloads.

    def load(self, origin: str, page: Page, stop: int | None = None) -> None:
        """Load the payloads of a page, at least those before `stop`, and fetch those that the walk will come to."""
        if self.options.without_payloads:
            page.payloads, page.resolved = [b""] * len(page.lengths), len(page.slices)
            return
        if self.options.with_payloads:
            _skip_gone(page)
        parts, is_known = _unresolved(page), self.cache.payloads.__contains__
        known = len(list(takewhile(is_known, parts.row_ids)))
        if known < len(parts):
            needed = _unresolved(page, stop)
            if known < len(needed):
                self._fetch_ahead(origin, needed)
                known = max(len(needed), len(list(takewhile(is_known, parts.row_ids))))
        self._resolve(origin, page, parts[:known])

    def one(self, origin: str, page: Page, item: int) -> bytes:
        """Return one message of a page, without fetching the others."""
        row_id, place = page.place_of(item)
        self._read({origin: [row_id]})
        (payload,) = self._stretches(origin, Slices([row_id], [place], [1]))
        return Reference.read(payload) if page.note(item).blob else payload

    def fetch(self, pages: Iterable[tuple[str, Page]]) -> None:
        """Complete the payloads of many pages at once."""
        self._complete([(origin, page, None) for origin, page in pages])

    def fetch_between(self, wanted: Sequence[tuple[str, Page, range]]) -> None:
        """Complete the payloads of ranges of many pages, without the rows before and behind them."""
        for _, page, items in wanted:
            _skip_gone(page, items.start)
        self._complete([(origin, page, items.stop) for origin, page, items in wanted])

    def _complete(self, wanted: Sequence[tuple[str, Page, int | None]]) -> None:
        """Read the messages of many pages before an item of each, or all."""
        self._read(_rows_of((origin, _unresolved(page, stop)) for origin, page, stop in wanted))
        for origin, page, stop in wanted:
            self._resolve(origin, page, _unresolved(page, stop))

    def _resolve(self, origin: str, page: Page, parts: Slices) -> None:
        """Append the payloads of the next stretches of a page; their rows are in the cache."""
        first = len(page.payloads)
        page.payloads += self._stretches(origin, parts)
        page.resolved += len(parts)
        for item, note in page.notes.items():
            if note.blob and first <= item < len(page.payloads):
                with codec.reading("a reference to an external payload"):
                    page.payloads[item] = Reference.read(page.payloads[item])

    def _fetch_ahead(self, origin: str, needed: Slices) -> None:
        """Fetch the payloads of some stretches, and those that the walk will come to, as far as the budget goes.

        Of each queue, these are the rows of a page, and of more pages once a visit needed several fetches.
        """
        messages, size = self.read_ahead.messages, min(self.read_ahead.size, MOST_BYTES)
        wanted = {origin: set(needed.row_ids)}
        self._most_fetches = max(self._most_fetches, self._fetches[origin] + 1)
        for name in [origin, *self.read_ahead.upcoming(origin, messages)] if self.options.with_payloads else ():
            own, left = wanted.setdefault(name, set()), self._most_fetches * self.working_set.config.heap_size
            for row_id, items, bytes_ in self._first_rows(name):
                if min(messages, size, left) <= 0:
                    break
                own.add(row_id)
                messages, size, left = messages - items, size - bytes_, left - bytes_
        self._fetches.update(name for name, own in wanted.items() if own.difference(self.cache.payloads))
        self.read_ahead.double()
        self._read(wanted)

    def _first_rows(self, origin: str) -> Iterator[tuple[int, int, int]]:
        """Yield the rows that a visit to this queue begins with, as far as they are known: id, messages, bytes."""
        book = self.working_set.books[origin]
        page = self.working_set.pages.get((origin, book.begin)) if book.is_ready else None
        if page is not None and page.resolved < len(page.slices):
            _skip_gone(page)
            at = len(page.payloads)
            for part in _unresolved(page):
                yield part.row_id, part.items, sum(page.lengths[at : at + part.items])
                at += part.items
        inbox = self.inboxes.inboxes.get(origin)
        for _, id_, size, items, *_ in inbox.rows if inbox else ():
            yield id_, items, size

    def _read(self, wanted: Mapping[str, Iterable[int]]) -> None:
        """Read the rows that are not in the cache."""
        self.cache.keep(self.source.heaps(_missing(wanted, self.cache.payloads)))

    def _stretches(self, origin: str, parts: Slices) -> list[bytes]:
        """Return the messages of stretches of rows in the cache."""
        found, cached = list[bytes](), self.cache.payloads
        for row_id, start, items in zip(parts.row_ids, parts.starts, parts.counts):
            row = cached.get(row_id)
            if row is None:
                raise StoreCorrupt(f"inbox row {row_id} of {told(origin)} is gone, though a page refers to it")
            if isinstance(row, bytes):
                found.append(row)
            else:
                found += row if len(row) == items else row[start : start + items]
        return found

    # Attributes and times of sending.

    def facts(self, origin: str, page: Page, first: int, stop: int) -> Facts:
        """Return facts about the messages of a page, at least about those from `first` to before `stop`."""
        known = self._facts.get((origin, page.index))
        if known is None or first < known[0].start or known[0].stop < stop:
            items = range(first, max(stop, min(first + FACTS_AT_ONCE, len(page.lengths))))
            known = self._facts[origin, page.index] = items, self.facts_of([(origin, page, items)])[0]()
        return known[1]

    def facts_of(self, wanted: Sequence[tuple[str, Page, range]]) -> list[Callable[[], Facts]]:
        """Read facts about messages of many pages; return for each page a function that returns them."""
        parts = ((origin, page.slices_of(items.start, items.stop)) for origin, page, items in wanted)
        missing = _missing(_rows_of(parts), self.cache.sent_at)
        self.cache.keep(self.source.unit.inbox.heads(self.source.ring_id, missing))
        sent, attributes = self.cache.sent_at, self.cache.attributes
        if self._posted:
            attributes = attributes | self._posted
        return [cache(partial(_facts_of, page, items, sent, attributes)) for _, page, items in wanted]

    # Messages that this operation enqueued, and the end of a save.

    def keep_posted(self, id_: int, posted: Posted) -> None:
        """Keep the attributes of a message that this operation enqueued."""
        if posted.attributes is not PLAIN:
            self._posted[id_] = StoredAttributes(pack_attributes(posted.attributes))

    def begin_again(self) -> None:
        """Go on after a save: all rows are stored now."""
        self.cache.begin_again()
        self._posted, self._facts = {}, {}


def _rows_of(parts: Iterable[tuple[str, Slices]]) -> dict[str, list[int]]:
    """Return the rows of stretches of pages, by queue."""
    rows: dict[str, list[int]] = {}
    for origin, own in parts:
        rows.setdefault(origin, []).extend(own.row_ids)
    return rows


def _missing(wanted: Mapping[str, Iterable[int]], known: Container[int]) -> dict[str, list[int]]:
    """Return the stored rows that are not known, in order, by queue; those that this operation enqueued are none."""
    missing = {origin: {id_ for id_ in ids if id_ not in known and id_ < POSTED} for origin, ids in wanted.items()}
    return {origin: sorted(ids) for origin, ids in missing.items() if ids}


def _facts_of(
    page: Page, items: range, sent: Mapping[int, int | None], attributes: Mapping[int, StoredAttributes]
) -> Facts:
    """Return facts about messages of a page, from the times and attributes of rows by id."""
    times, found = dict[int, int](), dict[int, Attributes]()
    with codec.reading("the attributes of messages"):
        for item, (row_id, place) in zip(items, islice(page.slices.places(), items.start, items.stop)):
            if (at := sent.get(row_id)) is not None:
                times[item] = at
            if row_id in attributes and (own := attributes[row_id].of(place)) is not PLAIN:
                found[item] = own
    return Facts(page.notes, times, found)


def _unresolved(page: Page, stop: int | None = None) -> Slices:
    """Return the stretches of a page whose payloads are not loaded, all or those with messages before `stop`."""
    parts = page.slices[page.resolved :]
    if stop is None:
        return parts
    return parts[: bisect_left(list(accumulate(parts.counts, initial=len(page.payloads))), stop, hi=len(parts))]


def _skip_gone(page: Page, before: int | None = None) -> None:
    """Let a page that is processed in part begin with empty payloads: no step reads those of processed messages.

    :param before: do so for messages before this one only
    """
    gone = page.gone if before is None else min(page.gone, before)
    for part in _unresolved(page):
        if len(page.payloads) + part.items > gone:
            break
        page.payloads += [b""] * part.items
        page.resolved += 1
