"""Writing back: everything that changed, in a few statements."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import islice

from ...core.claims import Claim
from ...core.errors import StoreCorrupt
from ...core.page import PROCESSED, Page
from ...core.priority import is_high, told
from .. import codec
from ..rejoining import dated
from .pages import Pages
from .tickets import ticket_of


class Saving(Pages):
    """The part of a shelf that writes."""

    def save(self) -> None:
        """Write everything that changed."""
        self._save_posted()
        self._save_pages()
        self._save_books()
        self._save_branches()
        unit, ring = self.unit, self.ring_id
        arrivals = self.arrivals(at for at, aside in self.asides.items() if aside is not None)
        unit.set_aside.save(ring, self.asides, self.now, self.block, arrivals)
        if arrivals:
            self.events = list(dated(self.events, arrivals))
        unit.events.save(ring, self.events, self.now, self.block)
        unit.rings.save_state(ring, self.state, self.ticket_floor(), self.look_floor())
        for step in self.after_save:
            step()
        self._begin_again()

    def ticket_floor(self) -> int:
        """No ready regular book has a smaller ticket than this."""
        tickets = [
            known.ticket for origin, known in self.origins.items() if known.ticket is not None and not is_high(origin)
        ]
        if self.least_skipped is not None:
            tickets.append(self.least_skipped)
        if self.whole_line is not None:
            unseen = (ticket for ticket, origin, _ in self.whole_line if origin not in self.origins)
            tickets += [ticket for ticket in (next(unseen, None),) if ticket is not None]
        elif not self.rest_done:
            tickets.append(self.ticket_cursor + 1)
        # Newcomers take their places in the ring by their first mail.
        tickets += islice((id_ for id_, _ in self.coming.newcomers if id_ >= self.state.ticket_floor), 1)
        return min(tickets, default=self.state.ticket_floor)

    def look_floor(self) -> int:
        """No mail with a smaller id than this is of an origin that is still to be met."""
        floor = min(self.look_cursor, max(self.look_horizon, self.state.look_floor))
        return min(floor, self.coming.newcomers[0][0]) if self.coming.newcomers else floor

    def claims(self, claims: Iterable[Claim]) -> list[tuple[int, str, bytes, bool]]:
        """Claims as rows, in the order of the visits, and whether each holds any message."""
        return [
            (seq, claim.origin, codec.pack_claim(claim), any(run.count for run in claim.runs))
            for seq, claim in enumerate(claims)
        ]

    def _save_posted(self) -> None:
        if not self.posted:
            return
        if not self.config.high and any(is_high(origin) for origin, _ in self.posted.values()):
            self.unit.rings.allow_high(self.ring_id)
        ids = dict(zip(self.posted, self.unit.fresh_ids(len(self.posted))))
        if min(ids.values()) < self.horizon:
            raise StoreCorrupt(
                f"id {min(ids.values())} was drawn below the horizon {self.horizon}: expected ids from the horizon on; "
                "nothing was changed; report this with the output of `airflow-mq check`"
            )
        self.unit.inbox.insert(
            self.ring_id,
            [(ids[old], *sent) for old, sent in self.posted.items() if old not in self.posted_said],
        )
        self.unit.inbox.insert_rejoined(
            self.ring_id, [self.posted_said[old].row(ids[old], *self.posted[old]) for old in self.posted_said]
        )
        for key in self.changed_pages:
            page = self.pages.get(key)
            if page is not None:
                page.slices = [part._replace(mail=ids.get(part.mail, part.mail)) for part in page.slices]
        for origin in self.posted_to:
            if origin in self.inboxes:
                self.inboxes[origin].rename(ids)
        for gone in self.removed_pages.values():
            gone.slices = [part._replace(mail=ids.get(part.mail, part.mail)) for part in gone.slices]
        for old, (origin, payload) in self.posted.items():
            self.payload_cache[origin, ids[old]] = [payload]
        self.posted, self.posted_to, self.posted_said = {}, {}, {}

    def _save_pages(self) -> None:
        let_go = self._let_go()
        gone: list[tuple[str, int]] = []
        shared: list[tuple[str, int, int]] = []
        loans: list[tuple[str, int, int]] = []
        for (origin, index), page in self.removed_pages.items():
            if page.has_loans:
                loans.extend((origin, part.mail, index) for part in page.slices)
                continue
            inner = page.slices[1:-1]
            gone.extend((origin, part.mail) for part in inner)
            shared.extend((origin, part.mail, index) for part in {page.slices[0], page.slices[-1]})
        changed = [(origin, self.pages.get((origin, index))) for origin, index in sorted(self.changed_pages)]
        self.unit.pages.save(
            self.ring_id,
            [(origin, page, page.kept(self.books[origin].begin)) for origin, page in changed if page is not None],
        )
        self.unit.pages.delete(self.ring_id, list(self.removed_pages))
        self.unit.inbox.delete(self.ring_id, gone)
        self.unit.inbox.delete_shared(self.ring_id, sorted(set(shared)))
        self.unit.payloads.release(sorted(let_go))
        self.unit.loans.release(self.ring_id, sorted(set(loans)))

    def _let_go(self) -> list[tuple[int, int]]:
        """Where messages lay that are gone now, and referred to payloads kept apart."""
        found: list[tuple[int, int]] = []
        for gone in self.removed_pages.values():
            found += _forget_blobs(gone, range(len(gone.marks)))
        for page in filter(None, map(self.pages.get, self.changed_pages)):
            if page.notes:
                found += _forget_blobs(page, [item for item in page.notes if page.marks[item] == PROCESSED])
        self.let_go_blobs = self.let_go_blobs or bool(found)
        return found

    def _save_books(self) -> None:
        moved = [origin for ring in (self.high, self.ring) for origin in ring.moved if self.books[origin].is_ready]
        tickets = dict(self.tickets)
        fresh = self.unit.fresh_ids(len(moved)) if moved else ()
        tickets.update((origin, ticket_of(origin, id_)) for origin, id_ in zip(moved, fresh))
        for ring, floor in ((self.ring, self.state.ticket_floor), (self.high, self._high_floor(tickets))):
            for place, origin in enumerate(reversed(ring.favoured), start=1):
                tickets[origin] = floor - place
        changed = self.changed_books | set(tickets) | set(self.waits)
        self._cut_inboxes(changed)
        rows = []
        for origin in sorted(changed):
            book, known = self.books[origin], self.origins[origin]
            known.ticket = tickets.get(origin, known.ticket) if book.is_ready else None
            wake_at = self.waits.get(origin, known.row.wake_at)
            ahead = codec.pack_numbers(sorted(known.cut.ahead)) if known.cut.ahead else b""
            rows.append(
                (origin, book.begin, book.end, book.count, book.message_count, book.size, known.ticket,
                 book.deficit, known.cut.floor, ahead, wake_at)
            )  # fmt: skip
        self.unit.books.save(self.ring_id, rows)

    def _cut_inboxes(self, origins: Iterable[str]) -> None:
        """Record which rows lie in pages now. Every row that a floor passes must be one of them."""
        passed: dict[str, set[int]] = {}
        wanted = []
        for origin in origins:
            inbox, known = self.inboxes.get(origin), self.origins[origin]
            if inbox is None:
                continue
            before, known.cut = known.cut, inbox.cut_now()
            if known.cut.floor > before.floor:
                passed[origin] = {*before.ahead, *inbox.taken}
                wanted.append((origin, before.floor, known.cut.floor))
        for origin, ids in self.unit.inbox.ids_between(self.ring_id, wanted):
            lost = sorted(set(ids) - passed[origin])
            if lost:
                raise StoreCorrupt(
                    f"saving would strand messages of {told(origin)}: inbox rows {lost[:5]} lie below its new floor "
                    f"{self.origins[origin].cut.floor} and in no page; nothing was changed; report this with the "
                    "output of `airflow-mq check`"
                )

    def _high_floor(self, fresh: Mapping[str, int]) -> int:
        """No high book has a smaller ticket: the walk begins with the one that has the smallest."""
        if not self.high.favoured:
            return 0
        stored = {origin: known.ticket for origin, known in self.origins.items() if known.ticket is not None}
        return min(ticket for origin, ticket in {**stored, **fresh}.items() if is_high(origin))

    def _begin_again(self) -> None:
        """What is written is no change any more; whoever goes on with this shelf looks anew."""
        for (origin, _), page in self.removed_pages.items():
            for part in page.slices:
                self.payload_cache.pop((origin, part.mail), None)
        self.forget_changes()
        self.fetched = 0
        self.tickets = {}
        self.header_cache = {}
        self.sent_cache = {}
        for ring in (self.ring, self.high):
            ring.moved.clear()
            ring.favoured = []
        for known in self.origins.values():
            known.posted = 0
        self.inboxes = {origin: inbox for origin, inbox in self.inboxes.items() if inbox.rows}
        for origin, inbox in self.inboxes.items():
            inbox.saved(self.origins[origin].cut)


def _forget_blobs(page: Page, items: Collection[int]) -> list[tuple[int, int]]:
    """Forget which of these items referred to payloads kept apart; tell their mails, and their places there."""
    blobs = {item for item, note in page.notes.items() if note.blob and item in items}
    if not blobs:
        return []
    page.notes.update({item: page.notes[item]._replace(blob=None) for item in blobs})
    found = ((part.mail, part.start + at) for part in page.slices for at in range(part.items))
    return [place for item, place in enumerate(found) if item in blobs]
