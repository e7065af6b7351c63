"""Messages that are enqueued here: by a processor, or once more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.blob import Reference
from ...core.book import Book
from ...core.message import Address, header_bytes
from ...core.page import Note, Page
from ...core.weight import Weight
from ..rejoining import Said
from .payloads import Payloads


class Posting(Payloads):
    """The part of a shelf that takes messages in."""

    def post(self, origin: str, payload: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Enqueue on behalf of a processor: behind all that was sent before, in the same commit."""
        if headers:
            note = Note(blob=payload.size if isinstance(payload, Reference) else None, headers=header_bytes(headers))
            self.posted_said[self.next_posted] = Said(note, headers, self.now)
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

    def sent(self) -> list[tuple[Any, ...]]:
        """What was enqueued here, to be enqueued on another shelf."""
        found = self.posted_said
        return [(*sent, found[id_].headers) if id_ in found else sent for id_, sent in self.posted.items()]

    def rejoin(self, book: Book, page: Page, item: int, weight: Weight | None) -> Address:
        """Enqueue a stored message once more; all mail is cut, so that its address is known."""
        origin = book.origin
        arrival = self.arrivals([Address(origin, page.index, item)])[Address(origin, page.index, item)]
        headers = self.headers(origin, page, item, item + 1).get(item, {})
        note = page.note(item)._replace(weight=weight, arrived=arrival.block, headers=header_bytes(headers))
        self.posted_said[self.next_posted] = Said(note, headers, arrival.at)
        self.post(origin, self.payloads(origin, page)[item])
        while self.pull(book):
            pass
        last = self.page(origin, book.end - 1)
        assert last is not None
        return Address(origin, last.index, len(last.lengths) - 1)
