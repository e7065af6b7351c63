"""Pages, and with each of them those that the walk will come to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...core.message import Address
from ...core.page import WAITING, Page
from .. import codec
from ..rows import LATEST, Arrival, PageRow
from ..thaw import page_of
from .books import Books
from .known import PageBase
from .memory import RING_SLICE


class Pages(Books):
    """The part of a shelf that fetches pages."""

    def fetch_page(self, origin: str, index: int) -> Page | None:
        """A page, and with it the next ones of the queues that the walk will come to."""
        book = self.book(origin)
        if not book.begin <= index < book.end:
            self._keep_pages(self.unit.pages.between(self.ring_id, [(origin, index, index)], 1))
            return self.pages.get((origin, index))
        look = self.page_look[origin] = min(self.page_look.get(origin, 1) * 2, 256)
        wanted = [(origin, index, min(index + look // 2, book.end) - 1)]
        for other in self.circle(origin).upcoming(origin, RING_SLICE):
            its = self.books[other]
            ahead = range(its.begin, min(its.begin + 2, its.end)) if not its.passed_by else ()
            missing = [at for at in ahead if (other, at) not in self.pages]
            if missing:
                wanted.append((other, missing[0], missing[-1]))
        self._keep_pages(self.unit.pages.between(self.ring_id, wanted, look))
        for at in range(index, wanted[0][2] + 1):
            self.pages.setdefault((origin, at), None)
        return self.pages[origin, index]

    def fetch_pages(self, wanted: Iterable[tuple[str, int]]) -> None:
        """Single pages, many at once."""
        missing = [key for key in dict.fromkeys(wanted) if key not in self.pages]
        self.load_books(origin for origin, _ in missing)
        if missing:
            self._keep_pages(self.unit.pages.between(self.ring_id, [(origin, at, at) for origin, at in missing], 1))

    def keep(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[str, Page]]:
        """Take pages that somebody fetched."""
        found = [PageRow(*row) for row in rows]
        self.load_books(row.origin for row in found)
        self._keep_pages(found)
        for row in found:
            page = self.pages.get((row.origin, row.page))
            if page is not None:
                yield row.origin, page

    def keep_all(self, origin: str) -> None:
        """Fetch all stored pages of an origin, however old."""
        self._keep_pages(self.unit.pages.between(self.ring_id, [(origin, 0, LATEST)], LATEST))

    def pages_of(self, origin: str) -> Iterator[tuple[int, Page]]:
        """All stored pages of an origin, however old."""
        for row in self.unit.pages.between(self.ring_id, [(origin, 0, LATEST)], LATEST):
            yield row.page, page_of(row)

    def _keep_pages(self, rows: list[PageRow]) -> None:
        fresh = []
        for row in rows:
            key = (row.origin, row.page)
            if key not in self.pages and key not in self.removed_pages:
                self.pages[key] = page = page_of(row)
                self.page_base[key] = PageBase.of(page)
                fresh.append((row.origin, page))
        relaxed = [origin for origin, _ in fresh if self.origins[origin].row.in_flight] if fresh else []
        if relaxed and self.planning:
            self._hide_claimed(sorted(set(relaxed)))

    def _hide_claimed(self, origins: list[str]) -> None:
        """What other blocks hold of a relaxed queue looks processed to a plan."""
        for origin, data in self.unit.blocks.claims_on(self.ring_id, origins):
            for run in codec.unpack_claim(origin, data).runs:
                page = self.pages.get((origin, run.page))
                if page is not None:
                    for item in range(run.first, min(run.first + run.count, len(page.marks))):
                        if page.marks[item] == WAITING:
                            page.mark_processed(item)

    def arrivals(self, addresses: Iterable[Address]) -> dict[Address, Arrival]:
        """When messages that lie in pages here were sent, and the first block since."""
        wanted = list(addresses)
        items: dict[tuple[str, int], list[Address]] = {}
        for at in wanted:
            if at not in self.arrived and self.pages.get((at.book, at.page)) is not None:
                items.setdefault((at.book, at.page), []).append(at)
        mails: dict[Address, tuple[str, int]] = {}
        for key, its in items.items():
            page = self.pages[key]
            found = page.mails_of(at.index for at in its) if page is not None else ()
            mails.update(zip(its, ((key[0], mail) for mail in found)))
        told = self.unit.inbox.arrivals(self.ring_id, sorted(set(mails.values())))
        for at, mail in mails.items():
            page, arrival = self.pages[at.book, at.page], told.get(mail)
            if arrival is not None and page is not None:
                self.arrived[at] = arrival._replace(block=page.note(at.index).arrived or arrival.block)
        return {at: self.arrived[at] for at in wanted if at in self.arrived}
