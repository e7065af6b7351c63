"""Invariants of stored data: a read-only check that returns every violation."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .book import Book, Group
from .config import HEADER_SIZE
from .groups import SEPARATOR, groups_of, head_of
from .page import ASIDE, PROCESSED, WAITING, Page
from .priority import told


@dataclass(frozen=True)
class Violation:
    """A violated invariant and its place."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def check_book(book: Book, pages: Mapping[int, Page], in_ring: bool, heap_size: int) -> Iterator[Violation]:
    """Check a book against its pages."""
    where = f"book {told(book.origin)}"
    if book.end < book.begin:
        yield Violation(where, f"the window ends at {book.end}, before it begins at {book.begin}")
    if in_ring != book.is_ready:
        yield Violation(
            where, f"it is {'' if book.is_ready else 'not '}ready, but {'' if in_ring else 'not '}in the ring"
        )
    sums = {
        "pages": (book.count, len(pages)),
        "messages": (book.message_count, sum(page.remaining for page in pages.values())),
        "bytes": (book.size, sum(page.remaining_size for page in pages.values())),
    }
    for what, (count, found) in sums.items():
        if count != found:
            yield Violation(where, f"it counts {count} {what}, but {found} are stored")
    beyond = [index for index in pages if index >= book.end]
    if beyond:
        yield Violation(where, f"pages {beyond[:5]} lie behind its end at {book.end}")
    if book.is_ready and not any(book.begin <= index < book.end for index in pages):
        yield Violation(where, "its window holds no page")
    for page in pages.values():
        yield from check_page(book, page, heap_size)


def check_page(book: Book, page: Page, heap_size: int) -> Iterator[Violation]:
    """Check a page against its items."""
    where = f"page {page.index} of {told(book.origin)}"
    left = [page.held_of(item) for item, mark in enumerate(page.marks) if mark != PROCESSED]
    if page.is_complete:
        yield Violation(where, "every message is processed, yet it is stored")
    if page.remaining != len(left):
        yield Violation(where, f"it counts {page.remaining} unprocessed messages, but {len(left)} are marked so")
    if page.remaining_size != sum(left):
        yield Violation(where, f"it counts {page.remaining_size} unprocessed bytes, but {sum(left)} are marked so")
    if page.used != sum(page.lengths) + HEADER_SIZE * len(page.lengths):
        yield Violation(where, f"it counts {page.used} bytes in use, which is not the sum over its items")
    if page.used > heap_size:
        yield Violation(where, f"{page.used} bytes are in use, more than the {heap_size} of a page")
    if not 0 <= page.first_index <= len(page.lengths):
        yield Violation(where, f"its first item is {page.first_index} of {len(page.lengths)}")
    if sum(page.slices.counts) != len(page.lengths):
        yield Violation(where, "its slices and its lengths disagree on how many items there are")
    if page.index >= book.begin and any(mark == WAITING for mark in page.marks[: page.first_index]):
        yield Violation(where, "an item before the first unattempted one was never attempted")
    if any(mark not in (WAITING, PROCESSED, ASIDE) for mark in page.marks):
        yield Violation(where, "an item has a mark that does not exist")


def check_groups(groups: Collection[Group], owed: Sequence[str], origins: Collection[str]) -> Iterator[Violation]:
    """Check the groups of a ring with paths against its origins."""
    known = {path for origin in origins for path in (*groups_of(origin), origin + SEPARATOR)}
    for group in groups:
        where = f"group {group.path!r}"
        if group.path and group.path not in known:
            yield Violation(where, "no origin was ever in it")
        if max(group.deficit, group.level) > 0:
            yield Violation(where, f"its deficit is {group.deficit} and its level {group.level}: expected at most 0")
    yield from (
        Violation("ring", f"{origin!r} is listed to come first, but does not exist")
        for origin in set(owed) - set(origins)
    )
    heads = [head_of(origin) for origin in owed]
    if len(set(heads)) != len(heads):
        yield Violation("ring", f"several of {', '.join(owed)} are in one group, which comes first only once")


def check_asides(origin: str, pages: Mapping[int, Page], recorded: Collection[tuple[int, int]]) -> Iterator[Violation]:
    """Check set-aside messages against their records, by page and index."""
    marked = {(page.index, item) for page in pages.values() for item, mark in enumerate(page.marks) if mark == ASIDE}
    for page, item in sorted(marked - set(recorded)):
        yield Violation(f"page {page} of {origin!r}", f"item {item} is set aside, but its limit is not recorded")
    for page, item in sorted(set(recorded) - marked):
        yield Violation(f"page {page} of {origin!r}", f"item {item} is recorded as set aside, but is not")


def check_slices(
    origin: str, pages: Mapping[int, Page], lengths: Mapping[int, Sequence[int]], uncut: Collection[int]
) -> Iterator[Violation]:
    """Check pages against inbox rows: each item lies in exactly one page, with its length."""
    where = f"book {told(origin)}"
    seen: dict[int, set[int]] = {}
    for page in pages.values():
        at = 0
        for part in page.slices:
            row_lengths = lengths.get(part.row_id)
            lengths_here = page.lengths[at : at + part.items]
            at += part.items
            if row_lengths is None:
                yield Violation(where, f"page {page.index} refers to inbox row {part.row_id}, which is missing")
                continue
            if list(row_lengths[part.start : part.start + part.items]) != lengths_here:
                yield Violation(
                    where, f"page {page.index} and inbox row {part.row_id} disagree on the lengths of messages"
                )
            items = set(range(part.start, part.start + part.items))
            if items & seen.setdefault(part.row_id, set()):
                yield Violation(where, f"an item of inbox row {part.row_id} lies in two pages")
            seen[part.row_id] |= items
    for mail_id in lengths:
        if mail_id in uncut and mail_id in seen:
            yield Violation(where, f"inbox row {mail_id} is in a page, and would be cut again")
        if mail_id not in uncut and mail_id not in seen:
            yield Violation(where, f"inbox row {mail_id} is in no page, and would never be cut")
