"""What must always be true of what is stored; a read-only check that tells every violation."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .book import Book, Branch
from .config import HEADER_SIZE
from .groups import SEPARATOR, groups_of, head_of
from .page import ASIDE, PROCESSED, WAITING, Page
from .priority import told


@dataclass(frozen=True)
class Violation:
    """A broken promise: where, and what."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def check_book(book: Book, pages: Mapping[int, Page], in_ring: bool, heap_size: int) -> Iterator[Violation]:
    """A book against its pages."""
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
    for what, (said, found) in sums.items():
        if said != found:
            yield Violation(where, f"it counts {said} {what}, but {found} are stored")
    beyond = [index for index in pages if index >= book.end]
    if beyond:
        yield Violation(where, f"pages {beyond[:5]} lie behind its end at {book.end}")
    if book.is_ready and not any(book.begin <= index < book.end for index in pages):
        yield Violation(where, "its window holds no page")
    for page in pages.values():
        yield from check_page(book, page, heap_size)


def check_page(book: Book, page: Page, heap_size: int) -> Iterator[Violation]:
    """A page against itself."""
    where = f"page {page.index} of {told(book.origin)}"
    left = [page.held_of(item) for item, mark in enumerate(page.marks) if mark != PROCESSED]
    if page.is_complete:
        yield Violation(where, "every message is processed, yet it is stored")
    if page.remaining != len(left):
        yield Violation(where, f"it counts {page.remaining} unprocessed messages, but {len(left)} are marked so")
    if page.remaining_size != sum(left):
        yield Violation(where, f"it counts {page.remaining_size} unprocessed bytes, but {sum(left)} are marked so")
    if page.used != sum(page.lengths) + HEADER_SIZE * len(page.lengths):
        yield Violation(where, f"it says that {page.used} bytes are in use, which its items do not add up to")
    if page.used > heap_size:
        yield Violation(where, f"{page.used} bytes are in use, more than the {heap_size} of a page")
    if not 0 <= page.first_index <= len(page.lengths):
        yield Violation(where, f"its first item is {page.first_index} of {len(page.lengths)}")
    if sum(part.items for part in page.slices) != len(page.lengths):
        yield Violation(where, "its slices and its lengths disagree on how many items there are")
    if page.index >= book.begin and any(mark == WAITING for mark in page.marks[: page.first_index]):
        yield Violation(where, "an item before the first unattempted one was never attempted")
    if any(mark not in (WAITING, PROCESSED, ASIDE) for mark in page.marks):
        yield Violation(where, "an item has a mark that does not exist")


def check_branches(branches: Collection[Branch], owed: Sequence[str], origins: Collection[str]) -> Iterator[Violation]:
    """The groups of a ring with paths, against the origins there are."""
    known = {path for origin in origins for path in (*groups_of(origin), origin + SEPARATOR)}
    for branch in branches:
        where = f"group {branch.path!r}"
        if branch.path and branch.path not in known:
            yield Violation(where, "no origin was ever in it")
        if max(branch.deficit, branch.level) > 0:
            yield Violation(where, f"its deficit is {branch.deficit} and its level {branch.level}, yet nobody saves up")
    yield from (Violation("ring", f"{origin!r} comes first, and never was") for origin in set(owed) - set(origins))
    heads = [head_of(origin) for origin in owed]
    if len(set(heads)) != len(heads):
        yield Violation("ring", f"of {', '.join(owed)} some are of one group, which comes first only once")


def check_asides(origin: str, pages: Mapping[int, Page], told: Collection[tuple[int, int]]) -> Iterator[Violation]:
    """What was set aside against what is remembered of it: by page and index."""
    marked = {(page.index, item) for page in pages.values() for item, mark in enumerate(page.marks) if mark == ASIDE}
    for page, item in sorted(marked - set(told)):
        yield Violation(f"page {page} of {origin!r}", f"item {item} is set aside, and nobody knows by which limit")
    for page, item in sorted(set(told) - marked):
        yield Violation(f"page {page} of {origin!r}", f"item {item} is listed as set aside, and is not")


def check_slices(
    origin: str, pages: Mapping[int, Page], lengths: Mapping[int, Sequence[int]], uncut: Collection[int]
) -> Iterator[Violation]:
    """Pages against the mail they are cut over: each item in one page, as long as it says."""
    where = f"book {told(origin)}"
    seen: dict[int, set[int]] = {}
    for page in pages.values():
        at = 0
        for part in page.slices:
            mail = lengths.get(part.mail)
            its = page.lengths[at : at + part.items]
            at += part.items
            if mail is None:
                yield Violation(where, f"page {page.index} refers to mail {part.mail}, which is gone")
                continue
            if list(mail[part.start : part.start + part.items]) != its:
                yield Violation(where, f"page {page.index} and mail {part.mail} disagree on the lengths of messages")
            items = set(range(part.start, part.start + part.items))
            if items & seen.setdefault(part.mail, set()):
                yield Violation(where, f"an item of mail {part.mail} lies in two pages")
            seen[part.mail] |= items
    for mail_id in lengths:
        if mail_id in uncut and mail_id in seen:
            yield Violation(where, f"mail {mail_id} is in a page, and would be cut again")
        if mail_id not in uncut and mail_id not in seen:
            yield Violation(where, f"mail {mail_id} is in no page, and would never be cut")
