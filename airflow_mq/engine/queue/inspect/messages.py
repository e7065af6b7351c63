"""Messages in the store: a peek at those of a queue, and the headers of those of a block."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from ...rules.book import Book
from ...rules.claims import Claim, ClaimRun
from ...rules.message import PLAIN, Address
from ...rules.page import ASIDE, PROCESSED, WAITING, Page
from ...store.blocks import ClaimRow
from ...store.rows import LATEST, PLANNED, BlockRow
from ...store.unit import Unit
from ...store.working_set import StoredSet
from ...store.working_set.payloads import FACTS_AT_ONCE
from ..batches import PageRuns, grouped, load_batches, neighbours
from ..blocks.block import Block
from ..blocks.reports import answers_of
from ..values import Batch, Peeked, moment
from .order import books_asked

#: Bytes of pages whose payloads are fetched together.
_GROUP = 8 << 20

#: Pages and indices of messages of one book.
Items = set[tuple[int, int]]


@dataclass(frozen=True)
class MessageHeaders:
    """Headers of a message."""

    address: Address
    headers: Mapping[str, str]


def claimed_by(working_set: StoredSet, names: Iterable[str]) -> dict[str, Items]:
    """Return the messages of books that live blocks hold."""
    found: dict[str, Items] = {}
    for row in working_set.reading.claims_of(list(names)):
        found.setdefault(row.origin, set()).update(row.claim.places())
    return found


def holders(unit: Unit, ring: int, claims: Sequence[ClaimRow]) -> Iterator[tuple[BlockRow, Claim]]:
    """Yield planned blocks with their claims among these, the latest block first."""
    for block in unit.blocks.latest(ring, PLANNED) if claims else ():
        yield from ((block, row.claim) for row in claims if row.block == block.id)


def in_flight(unit: Unit, working_set: StoredSet, name: str) -> tuple[Items, Items]:
    """Return the messages of a book that live blocks hold, and those of them that are reported."""
    claimed = claimed_by(working_set, [name]).get(name, set())
    reports = unit.blocks.reports_on(working_set.ring_id, [name])
    answers = answers_of(data for _, data in reports).get(name)
    return claimed, answers.items() & claimed if answers else set()


def free_items(page: Page, taken: Collection[tuple[int, int]]) -> Iterator[int]:
    """Yield the messages of a page that wait and that no block has taken."""
    marks = enumerate(page.marks)
    return (item for item, mark in marks if mark == WAITING and (page.index, item) not in taken)


def first_free(working_set: StoredSet, book: Book, taken: Collection[tuple[int, int]]) -> tuple[Page, int] | None:
    """Return the page and the index of the first message of a book that waits and that no block has taken."""
    pages = working_set.window(book, pulls=True)
    return next(((page, item) for page in pages for item in free_items(page, taken)), None)


def peek(unit: Unit, working_set: StoredSet, name: str, page: int | None, limit: int) -> Iterator[Peeked]:
    """Yield the first unprocessed messages of a book, or of one of its pages."""
    book = working_set.book(name)
    working_set.loader.pages.look_far(name)
    if page is None:
        working_set.pull_some(book, limit)
    else:
        working_set.page_at(Address(name, page, LATEST))
    claimed, reported = in_flight(unit, working_set, name)
    for stored in working_set.window(book) if page is None else filter(None, [working_set.page(name, page)]):
        if limit <= 0:
            return
        index, items = stored.index, (item for item, mark in enumerate(stored.marks) if mark != PROCESSED)
        chosen = list(islice(items, limit))
        if not chosen:
            continue
        payloads = working_set.payloads(name, stored)
        _, sent, attributes = working_set.loader.facts(name, stored, chosen[0], chosen[-1] + 1)
        for item in chosen:
            if (index, item) in claimed:
                state = "reported" if (index, item) in reported else "in flight"
            else:
                state = "set aside" if stored.marks[item] == ASIDE or index < book.begin else "waiting"
            note, at = stored.note(item), moment(sent[item]) if item in sent else None
            address, headers = Address(name, index, item), attributes.get(item, PLAIN).headers or {}
            yield Peeked(address, payloads[item], state, headers, at, note.attempts, note.weight)
        limit -= len(chosen)


def waiting(working_set: StoredSet, origins: Sequence[str], limit: int) -> Iterator[Batch]:
    """Yield the first waiting messages of origins, neighbours of a page together; fetch payloads in groups."""
    books = {origin: books_asked(working_set, origin) for origin in origins}
    names = list(chain.from_iterable(books.values()))
    working_set.loader.inboxes.look_at(names)
    claimed = claimed_by(working_set, names)

    def all_runs() -> Iterator[PageRuns]:
        for own in books.values():
            left = limit
            for name in own:
                for runs in _waiting_runs(working_set, name, left, claimed.get(name, ())):
                    left -= sum(map(len, runs.runs))
                    yield runs

    for group in grouped(all_runs(), _GROUP, lambda runs: runs.page.used):
        yield from load_batches(working_set, group)
        drop_payloads(working_set, (page for _, page, _ in group))


def _waiting_runs(
    working_set: StoredSet, name: str, limit: int, claimed: Collection[tuple[int, int]]
) -> Iterator[PageRuns]:
    """Yield the ranges of the first waiting messages of a book, page by page."""
    book = working_set.book(name)
    working_set.loader.pages.look_far(name)
    working_set.pull_some(book, limit + len(claimed))
    for page in working_set.window(book):
        if limit <= 0:
            return
        runs = list(neighbours(islice(free_items(page, claimed), limit)))
        limit -= sum(map(len, runs))
        yield PageRuns(name, page, runs)


def drop_payloads(working_set: StoredSet, pages: Iterable[Page]) -> None:
    """Forget the payloads of pages, so that a walk over a queue does not keep them all."""
    for page in pages:
        page.payloads, page.resolved = [], 0
    working_set.loader.cache.clear()


def headers_of(
    working_set: StoredSet, block: Block, most: int, is_wanted: Callable[[Mapping[str, str]], bool]
) -> list[MessageHeaders]:
    """Return wanted headers of messages of a block, at most `most`: as many of each page, then more of any."""
    places = [(at, claim.origin, run) for claim in block.claims for at, run in enumerate(claim.runs) if run.count]
    # One page of every queue, before a second one of any.
    runs = [(name, run) for _, name, run in sorted(places, key=lambda place: place[0])[:256]]
    working_set.loader.pages.fetch([(name, run.page) for name, run in runs])
    found: dict[Address, MessageHeaders] = {}
    for share in (max(1, most // max(1, len(runs))), most):
        with_more: list[tuple[str, ClaimRun]] = []
        for name, run in runs:
            page = working_set.pages.get((name, run.page))
            if page is not None and len(found) < most:
                wanted = (own for own in _headers(working_set, name, page, run) if is_wanted(own.headers))
                some = {own.address: own for own in islice(wanted, share)}
                found |= some
                with_more += [(name, run)] * (len(some) == share)
        runs = with_more
    return [*found.values()][:most]


def _headers(working_set: StoredSet, name: str, page: Page, run: ClaimRun) -> Iterator[MessageHeaders]:
    """Yield the messages of a run that have attributes; keep those of a part of it only."""
    items = set(run.handed_out())
    for first in range(run.first, run.first + run.count, FACTS_AT_ONCE):
        part = range(first, min(first + FACTS_AT_ONCE, run.first + run.count))
        (read,) = working_set.loader.payloads.facts_of([(name, page, part)])
        attributes = read().attributes
        working_set.loader.cache.clear()
        for item, own in attributes.items():
            if item in items:
                yield MessageHeaders(Address(name, page.index, item), own.headers)
