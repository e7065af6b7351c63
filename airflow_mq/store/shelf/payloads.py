"""The bytes of messages, as they lie in their mails, and what was said beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import IO

from ...core.blob import Reference
from ...core.claims import Claim
from ...core.errors import StoreCorrupt
from ...core.page import Page, Slice
from ...core.priority import told
from .. import codec
from ..blobs import open_blob
from ..thaw import headers_of, split
from .mail import Inboxes
from .memory import RING_SLICE
from .tickets import POSTED

#: How many bytes of messages are fetched at once for queues that are only likely to need them.
MOST_BYTES = 8 << 20
#: Of how many messages the headers are fetched together, where they are asked for one by one.
HEADERS_AT_ONCE = 256


class Payloads(Inboxes):
    """The part of a shelf that fetches what messages say."""

    def payloads(self, origin: str, page: Page) -> list[bytes]:
        """The messages of a page."""
        if page.resolved < len(page.slices):
            if not all(part.mail >= POSTED or (origin, part.mail) in self.payload_cache for part in _unresolved(page)):
                self._fetch_ahead(origin, page)
            self.fetch_payloads([(origin, page)])
        return page.payloads

    def payload(self, origin: str, page: Page, item: int) -> bytes:
        """One message of a page, without fetching the others."""
        mail, place = page.mail_of(item), page.place_of(item)
        self._cache_heaps({(origin, mail)} - self.payload_cache.keys())
        data = self._stretch(origin, mail, place, 1)[0]
        return Reference.read(data) if page.note(item).blob else data

    def fetch_payloads(self, pages: Iterable[tuple[str, Page]]) -> None:
        """The messages of many pages at once."""
        pages = list(pages)
        wanted = {
            (origin, part.mail)
            for origin, page in pages
            for part in _unresolved(page)
            if part.mail < POSTED and (origin, part.mail) not in self.payload_cache
        }
        self._cache_heaps(wanted)
        for origin, page in pages:
            first = len(page.payloads)
            for part in _unresolved(page):
                page.payloads += self._stretch(origin, part.mail, part.start, part.items)
            page.resolved = len(page.slices)
            for item, note in page.notes.items():
                if note.blob and first <= item < len(page.payloads):
                    with codec.reading("a reference to a payload that is kept apart"):
                        page.payloads[item] = Reference.read(page.payloads[item])

    def open_blob(self, reference: Reference) -> IO[bytes]:
        """A payload kept apart, as a file to read from."""
        return open_blob(self.unit.store, reference)

    def sent_at(self, origin: str, page: Page) -> Mapping[int, int]:
        """Times at which the messages of a page were enqueued, by index; of those that are stored already."""
        known = self.sent_cache.get((origin, page.index))
        if known is not None and known[0] == len(page.slices):
            return known[1]
        found = self.sent_of([(origin, page)])[origin, page.index]
        self.sent_cache[origin, page.index] = len(page.slices), found
        return found

    def sent_of(self, pages: Iterable[tuple[str, Page]]) -> dict[tuple[str, int], Mapping[int, int]]:
        """The same of many pages at once, by origin and page."""
        pages = list(pages)
        mails = sorted({(origin, part.mail) for origin, page in pages for part in page.slices if part.mail < POSTED})
        sent = self.unit.inbox.sent_at(self.ring_id, mails)
        found: dict[tuple[str, int], Mapping[int, int]] = {}
        for origin, page in pages:
            places = (part.mail for part in page.slices for _ in range(part.items))
            found[origin, page.index] = {item: sent[mail] for item, mail in enumerate(places) if mail in sent}
        return found

    def headers(
        self, origin: str, page: Page, first: int = 0, stop: int | None = None
    ) -> Mapping[int, Mapping[str, str]]:
        """Return the headers of the messages of a page by index, at least of those from `first` to before `stop`."""
        stop = len(page.lengths) if stop is None else stop
        known = self.header_cache.get((origin, page.index))
        if known is not None and known[0].start <= first and stop <= known[0].stop:
            return known[1]
        stop = max(stop, min(first + HEADERS_AT_ONCE, len(page.lengths)))
        mails = sorted(set(page.mails_of(range(first, stop))))
        rows = self.unit.inbox.attributes(self.ring_id, [(origin, mail) for mail in mails])
        said = {row.id: codec.read_json(bytes(row.attributes)) for row in rows}
        for mail in mails:
            if mail in self.posted_said:
                said[mail] = {"each": {"0": {"headers": self.posted_said[mail].headers}}}
        with codec.reading("what senders said beside their messages"):
            found = headers_of(page, said)
        self.header_cache[origin, page.index] = range(first, stop), found
        return found

    def expect(self, claims: Iterable[Claim]) -> None:
        """Fetch what settling these claims will need, messages included: their ids are told."""
        keys = [(claim.origin, run.page) for claim in claims for run in claim.runs]
        self.fetch_pages(keys)
        self.fetch_payloads((origin, page) for (origin, _), page in zip(keys, map(self.pages.get, keys)) if page)

    def _fetch_ahead(self, origin: str, page: Page) -> None:
        """Fetch the bytes of a page, and with them those that the walk will come to."""
        wanted = {(origin, part.mail) for part in _unresolved(page) if part.mail < POSTED}
        size = page.used
        for other in [origin, *self.circle(origin).upcoming(origin, RING_SLICE)] if self.wants_payloads else ():
            book = self.books[other]
            its = self.pages.get((other, book.begin)) if book.is_ready else None
            if its is not None and its.resolved < len(its.slices):
                wanted.update((other, part.mail) for part in _unresolved(its) if part.mail < POSTED)
                size += its.used
            inbox = self.inboxes.get(other)
            own = 0
            for row in inbox.rows if inbox else ():
                own += row.size
                if own > self.config.heap_size:
                    break
                wanted.add((other, row.id))
            size += own
            if size > MOST_BYTES:
                break
        self._cache_heaps(wanted - self.payload_cache.keys())

    def _cache_heaps(self, wanted: Iterable[tuple[str, int]]) -> None:
        borrowed = []
        for origin, id_, lengths, items, size, heap in self.unit.inbox.heaps(self.ring_id, sorted(wanted)):
            if heap:
                self.payload_cache[origin, id_] = split(heap, codec.unpack_lengths(lengths, items, size))
            else:
                borrowed.append((origin, id_))
            self.fetched += size
        for origin, id_, heap in self.unit.loans.heaps(self.ring_id, borrowed) if borrowed else ():
            self.payload_cache[origin, id_] = [bytes(heap)]

    def _stretch(self, origin: str, mail: int, start: int, count: int) -> list[bytes]:
        if mail >= POSTED:
            return [self.posted[mail][1]]
        whole = self.payload_cache.get((origin, mail))
        if whole is None:
            raise StoreCorrupt(f"mail {mail} of {told(origin)} is gone, though a page refers to it")
        return whole[start : start + count]


def _unresolved(page: Page) -> list[Slice]:
    """The stretches of a page whose messages were not fetched yet."""
    return page.slices[page.resolved :]
