"""Messages that are enqueued here: by a processor, or once more."""

from __future__ import annotations

from ...core.book import Book
from ...core.message import Address
from ...core.page import Page
from ...core.weight import Weight
from ..rejoining import Rejoining
from .payloads import Payloads


class Posting(Payloads):
    """The part of a shelf that takes messages in."""

    def post(self, origin: str, payload: bytes) -> None:
        """Enqueue on behalf of a processor: behind all that was sent before, in the same commit."""
        self.posted[self.next_posted] = (origin, payload)
        self.posted_to.setdefault(origin, []).append(self.next_posted)
        self.next_posted += 1
        if self.beside:
            return
        book = self.book(origin)
        if self.listening:
            while self.pull(book):
                pass
        elif not book.is_ready:
            self.pull(book)

    def rejoin(self, book: Book, page: Page, item: int, weight: Weight | None) -> Address:
        """Enqueue a stored message once more; all mail is cut, so that its address is known."""
        origin = book.origin
        arrival = self.arrivals([Address(origin, page.index, item)])[Address(origin, page.index, item)]
        note = page.note(item)._replace(weight=weight, arrived=arrival.block)
        headers = self.headers(origin, page).get(item, {})
        self.rejoining[self.next_posted] = Rejoining(note, headers, arrival.at)
        self.post(origin, self.payloads(origin, page)[item])
        while self.pull(book):
            pass
        last = self.page(origin, book.end - 1)
        assert last is not None
        return Address(origin, last.index, len(last.lengths) - 1)
