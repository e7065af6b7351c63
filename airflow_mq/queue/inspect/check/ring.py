"""Check of a ring: its order, books, pages, groups and claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ....core.book import Book
from ....core.config import BLOCK_PARTS, RingConfig
from ....core.invariants import Violation, check_asides, check_book, check_branches, check_slices
from ....core.message import Address
from ....core.priority import MARK, is_high, told
from ....store import codec
from ....store.rows import LATEST, PLANNED
from ....store.unit import Unit
from ....store.working_set import StoredSet, level_of
from ...session import RingSession
from ..order import all_origins
from .inboxes import InboxBounds, check_inbox, inbox_bounds
from .loans import Loans, borrows
from .payloads import check_blobs, confirm_missing

#: Number of queues between two reports of progress.
_PROGRESS = 50


def check_ring(session: RingSession, progress: Callable[[int, int], object] | None = None) -> list[Violation]:
    """See `MessageQueue.check`."""
    missing: dict[str, str] = {}
    with session.snapshot() as (unit, working_set):
        names = list(all_origins(unit, session.ring_id))
        loans = Loans(session.ring_id, unit.loans.all(session.ring_id))
        bounds = inbox_bounds(unit, session.ring_id)
        found = list(_check_tickets(unit, session.ring_id))
        for done, name in enumerate(names):
            if progress is not None and done % _PROGRESS == 0:
                progress(done, len(names))
            found += _check_origin(session, unit, name, loans, bounds)
        found += _check_groups(working_set, names)
        found += loans.check()
        found += _check_claims(unit, session.ring_id)
        found += check_blobs(session, unit, missing)
    found += confirm_missing(session, missing)
    return found


def _check_tickets(unit: Unit, ring: int) -> Iterator[Violation]:
    low, top = level_of("")
    lowest = unit.books.count(ring, 0, low, top).lowest
    floor = unit.rings.floors(ring).ticket_floor
    if lowest is not None and lowest < floor:
        yield Violation(
            "ring", f"the smallest ticket is {lowest}, below the floor of {floor}; its queue would never be serviced"
        )


def _check_origin(session: RingSession, unit: Unit, origin: str, loans: Loans, bounds: InboxBounds) -> list[Violation]:
    working_set = session.fresh_working_set(unit)
    book, known = working_set.book(origin), working_set.stored[origin]
    pages = dict(working_set.loader.pages.read_all(origin))
    found = list(check_book(book, pages, known.ticket is not None, session.config.heap_size))
    found += _check_level(session.config, book, known.ticket)
    inbox_rows = unit.inbox.after(session.ring_id, [(origin, -1)], LATEST)
    lengths = {row.id: codec.unpack_lengths(bytes(row.lengths), row.items, row.size) for row in inbox_rows}
    uncut = {row.id for row in inbox_rows if not known.cut.has(row.id)}
    found += check_inbox(origin, known, uncut, bounds)
    if session.config.paths and book.deficit > 0 and not is_high(origin):
        found.append(Violation(f"book {origin!r}", f"its deficit is {book.deficit}, but paths=True allows none"))
    rows = unit.set_aside.after(session.ring_id, Address(origin, 0, -1), origin)
    found += check_asides(origin, pages, {(row.page, row.item) for row in rows})
    found += loans.check_pages(origin, pages, uncut, {row.id for row in inbox_rows if borrows(row)})
    # A released row exists only for its borrowers.
    lengths = {id_: its for id_, its in lengths.items() if (origin, id_) not in loans.released}
    return found + list(check_slices(origin, pages, lengths, uncut))


def _check_groups(working_set: StoredSet, origins: Sequence[str]) -> Iterator[Violation]:
    working_set.loader.load_branches()
    if working_set.branches and not working_set.config.paths:
        yield Violation("ring", "it stores groups of origins, but paths=False")
    yield from check_branches(
        working_set.branches.values(), working_set.owed, [one for one in origins if not is_high(one)]
    )


def _check_level(config: RingConfig, book: Book, ticket: int | None) -> Iterator[Violation]:
    low, top = level_of(book.origin)
    if ticket is not None and not low <= ticket <= top:
        yield Violation(f"book {told(book.origin)}", f"its ticket {ticket} belongs to the other priority")
    if is_high(book.origin) and not config.high:
        yield Violation(f"book {told(book.origin)}", "the ring has high=False; this queue would never be serviced")
    if book.origin == MARK and not 0 <= book.deficit <= BLOCK_PARTS:
        yield Violation("ring", f"high messages owe {book.deficit} parts of a block: expected 0 to {BLOCK_PARTS}")


def _check_claims(unit: Unit, ring: int) -> Iterator[Violation]:
    held: dict[tuple[str, int, int], int] = {}
    for origin, data, block, state in unit.blocks.in_flight(ring):
        if state != PLANNED:
            yield Violation(f"claim on {told(origin)}", f"block {block} holds it, but has ended")
        for page, item in codec.unpack_claim(origin, bytes(data)).places():
            other = held.setdefault((origin, page, item), block)
            if other != block:
                yield Violation(f"message {Address(origin, page, item)}", f"blocks {other} and {block} both hold it")
