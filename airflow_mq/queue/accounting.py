"""Who got what, and who waited: the ledger's pages, and what waits now, as figures."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from math import inf

from ..core.book import Book
from ..core.claims import Scales
from ..core.errors import InvalidInput
from ..core.fairness import Fairness, Promise, judge, rounds_of, together
from ..core.groups import names_above
from ..core.message import check_number
from ..core.orders import Entry, parts_of
from ..core.page import WAITING
from ..core.priority import HIGH, REGULAR, book_name, origin_of
from ..core.ring import Ring
from ..core.weight import ZERO, Weight
from ..store import codec
from ..store.shelf import SqlShelf
from .reading import Reading

#: A queue of so many messages is looked through for what it still asks for.
COUNTED = 4096


class Accounting(Reading):
    """The part of the queue that gives account."""

    def fairness(self, blocks: int = 100, *, most: int | None = None) -> Fairness:
        """What each origin was promised and got of the latest blocks of the ledger, and how long it waited.

        The definitions are in `airflow_mq.core.fairness`. Shares, leasts and mosts count as they are set
        now. What waits at this moment is looked at, too: so a queue is missed by no check while it waits,
        though a ledger has no line for a queue that a block did not come to.

        :param blocks: how many blocks to look back.
        :param most: look at no more than so many of those that wait, from the head on. What is said of the others
            is what the ledger says.
        """
        if not check_number(blocks, "a number of blocks"):
            raise InvalidInput("fairness is told over at least 1 block")
        with self._looking() as (unit, shelf):
            rows = unit.rows("ledger", ring=self.ring_id, before=1 << 62, first=0, limit=blocks)[::-1]
            pages = [codec.unpack_ledger(bytes(data)) for _, _, data in rows]
            parts = parts_of(_limit(shelf.config.service_weight, pages))
            numbers = [row[0] for row in rows]
            due = {row[0] for row in unit.rows("due", ring=self.ring_id, now=shelf.now)}
            first = partial(_first, most=most)
            levels = {
                REGULAR: _judge_level(
                    shelf, REGULAR, pages, parts, _ready_since(shelf, first(shelf.ring), numbers, due)
                )
            }
            if shelf.config.high:
                ready = _ready_since(shelf, first(shelf.high), numbers, due)
                levels[HIGH] = _judge_level(shelf, HIGH, pages, parts, ready)
            return together(levels)


def _first(ring: Ring, most: int | None) -> Iterable[str]:
    return ring if most is None else islice(ring, most) if most else ()


def _judge_level(
    shelf: SqlShelf, priority: str, pages: Sequence[Sequence[Entry]], parts: Callable[[Weight], int],
    ready: Mapping[str, int],
) -> Fairness:  # fmt: skip
    """The figures of the queues of one priority."""
    own = [[entry for entry in page if entry.priority == priority] for page in pages]
    origins = {entry.origin for page in own for entry in page} | set(ready)
    paths = shelf.config.paths and priority == REGULAR
    promises = promises_of(shelf, origins, parts, paths=paths, leasts=priority == REGULAR)
    left = {origin: _left(shelf, shelf.book(book_name(origin, priority)), parts) for origin in ready}
    return judge(rounds_of(own, parts, ready), promises, left=left, paths=paths)


def _limit(service_weight: Weight | None, pages: Iterable[Sequence[Entry]]) -> Weight:
    """What a full block is; where each call says its limit, the most that any block gave."""
    if service_weight is not None:
        return service_weight
    most = ZERO
    for page in pages:
        given = ZERO
        for entry in page:
            given = given.plus(entry.granted)
        most = most.at_least(given)
    return most


def promises_of(
    shelf: SqlShelf, origins: Iterable[str], parts: Callable[[Weight], int], *, paths: bool = False, leasts: bool = True
) -> Mapping[str, Promise]:
    """What is set for these origins, and for groups; a least and a most are kept by the deficit order alone."""
    names = set(origins)
    shelf.load_books(sorted(names))
    if paths:
        names.update(name for origin in list(names) for name in names_above(origin))
    found = {}
    for origin in sorted(names):
        standing = shelf.standing(origin) if paths else shelf.book(origin).standing
        least, most = (standing.least, standing.most) if shelf.config.order == "deficit" else (None, None)
        promise = Promise(standing.share, parts(least) if least and leasts else 0)
        found[origin] = promise if most is None else Promise(promise.share, promise.least, parts(most))
    return found


def _ready_since(shelf: SqlShelf, ring: Iterable[str], blocks: Sequence[int], due: Container[int]) -> dict[str, int]:
    """From which of these blocks on each queue that a block could take now had something to take."""
    found: dict[str, int] = {}
    for name in ring:
        book = shelf.book(name)
        mail = None if book.passed_by else first_mail(shelf, book)
        if mail is not None:
            # Ids of mail and blocks come from one counter; what is due has not joined yet.
            found[origin_of(name)] = len(blocks) if mail in due else sum(1 for block in blocks if block < mail)
    return found


def first_mail(shelf: SqlShelf, book: Book) -> int | None:
    """The mail in which the first message that waits arrived."""
    for index in range(book.begin, book.end):
        page = shelf.page(book.origin, index)
        if page is None or page.is_attempted:
            continue
        place = page.first_index
        for part in page.slices:
            if place < part.items:
                return part.mail
            place -= part.items
    return None


def _left(shelf: SqlShelf, book: Book, parts: Callable[[Weight], int]) -> float:
    """What a queue still asks for; where it is much, nobody counts it, and it counts as without end."""
    while book.message_count <= COUNTED and shelf.pull(book):
        pass
    if book.message_count > COUNTED:
        return inf
    scales, found = Scales(shelf), 0
    for index in range(book.begin, book.end):
        page = shelf.page(book.origin, index)
        for item, mark in enumerate(page.marks) if page is not None else ():
            if page is not None and mark == WAITING:
                found += parts(scales.weight(book.origin, page, item))
    return found
