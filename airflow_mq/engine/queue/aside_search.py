"""Search for set-aside messages: rows of messages that blocks set aside, and pages of swept messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import NamedTuple, TypedDict

from ..rules.errors import InvalidInput
from ..rules.events import Fate
from ..rules.judging import ATTEMPTS, REASONS, SIZE, SWEPT
from ..rules.message import Address, check_number, check_origin, check_seconds, check_text, message_id
from ..rules.page import ASIDE, PROCESSED, Page
from ..rules.priority import LAST, books_of
from ..store import codec
from ..store.rows import LATEST
from ..store.set_aside import AsideRow
from ..store.unit import Unit
from ..store.working_set import StoredSet
from .values import SetAside, moment

#: Messages that one transaction decides about, and that one search for an error reads.
AT_ONCE = 500
#: Rows of events, and swept pages, that one statement reads.
EVENTS_AT_ONCE, PAGES_AT_ONCE = 16, 64
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=timezone.utc), timedelta(microseconds=1)

Age = timedelta | float | int


class Filters(TypedDict, total=False):
    """Filters for set-aside messages."""

    #: `overweight` (too heavy for a full block), `most` (for its origin's share of one), `fraction` (for the ring's
    #: `most_of_limit`), `size` (larger than its `max_message_size`), `attempts` (tried too often), or `swept`.
    reason: str | None
    #: The block that set them aside.
    block: int | None
    #: Only messages that an earlier block set aside.
    before_block: int | None
    #: The first block that was planned after they were sent.
    arrived: int | None
    #: Only messages that were sent longer ago: a time span, or seconds.
    older_than: Age | None
    #: Only messages that were tried too often, and whose last error begins with this text, for example `KeyError`.
    error: str | None


class Wanted(NamedTuple):
    """An origin and `Filters` as a value."""

    origin: str | None = None
    reason: str | None = None
    block: int | None = None
    before_block: int | None = None
    arrived: int | None = None
    older_than: Age | None = None
    error: str | None = None

    def checked(self) -> Wanted:
        """Return the filters, or raise the error that makes them invalid."""
        if self.error is not None and (not check_text(self.error, "an error") or self.reason not in (None, ATTEMPTS)):
            raise InvalidInput(
                f"error={self.error[:40]!r} with reason={self.reason!r}: expected the beginning of an error's "
                f"text, and no reason but {ATTEMPTS!r}; only messages that were tried too often have an error"
            )
        if self.origin is not None:
            check_origin(self.origin)
        if self.reason is not None and self.reason not in REASONS:
            raise InvalidInput(f"invalid reason {str(self.reason)[:40]!r}: expected one of {', '.join(REASONS)}")
        for number in (self.block, self.before_block, self.arrived):
            if number is not None:
                check_number(number, "a block")
        self.before(LATEST)
        return self if self.error is None else self._replace(reason=ATTEMPTS)

    def before(self, now: int) -> int:
        """Return the time before which the messages were sent, in microseconds of the store's clock."""
        if self.older_than is None:
            return LATEST
        age = self.older_than
        seconds = age.total_seconds() if isinstance(age, timedelta) else age
        return now - int(check_seconds(seconds, "an age") * 1_000_000)


class Search:
    """A search over one snapshot."""

    def __init__(self, unit: Unit, working_set: StoredSet, wanted: Wanted) -> None:
        self.unit, self.working_set, self.wanted = unit, working_set, wanted
        self.ring, self.now = working_set.ring_id, working_set.now

    def found(self, after: Address | None, limit: int) -> list[SetAside]:
        """Return messages in the order of their addresses, `limit` at a time; continue after the last one."""
        error = self.wanted.error
        if error is None:
            return self._of_books(after, limit)
        found: list[SetAside] = []
        while len(found) < limit:
            some = self._of_books(after, AT_ONCE)
            found += [message for message in self.with_errors(some) if message.error.startswith(error)]
            if len(some) < AT_ONCE:
                break
            after = some[-1].address
        return found[:limit]

    def with_errors(self, messages: Sequence[SetAside]) -> list[SetAside]:
        """Return these messages with the last error of each that was tried too often."""
        settled = {
            (message.address.book, (message.at - _EPOCH) // _MICROSECOND)
            for message in messages
            if message.reason == ATTEMPTS and message.at
        }
        errors: dict[Address, str] = {}
        for book, at in settled:
            errors |= self._errors_at(book, at)
        return [replace(message, error=errors.get(message.address, "")) for message in messages]

    def _errors_at(self, book: str, at: int) -> dict[Address, str]:
        """Return the last errors, from events, of the messages of a book that were set aside at this time."""
        errors: dict[Address, str] = {}
        first = self.unit.events.first_since(self.ring, at)
        last = LATEST if first is None else first - 1
        while rows := self.unit.events.after(self.ring, last, EVENTS_AT_ONCE, origin=book):
            last = rows[-1].id
            for _, origin, block, settled_at, data in rows:
                # Events of one transaction have the same time, and neighbouring ids.
                if settled_at != at:
                    return errors
                for run in codec.unpack_events(origin, bytes(data)):
                    if run.fate is Fate.ATTEMPTS_EXHAUSTED:
                        errors |= {event.address: event.last_error for event in run.unroll(block, at / 1_000_000)}
        return errors

    def _of_books(self, after: Address | None, limit: int) -> list[SetAside]:
        origin = self.wanted.origin
        if origin is None:
            return self._between("", LAST, after, limit)
        found: list[SetAside] = []
        for name in books_of(origin) if self.working_set.config.high else (origin,):
            if after is None or name >= after.book:
                found += self._between(name, name, after, limit - len(found))
        return found

    def _between(self, first: str, last: str, after: Address | None, limit: int) -> list[SetAside]:
        """Return the messages of the books from `first` to `last`."""
        wanted, found = self.wanted, list[SetAside]()
        start = after if after is not None and after.book >= first else Address(first, 0, -1)
        if wanted.reason != SWEPT:
            shown = self.working_set.reading.shown_asides()
            rows = self.unit.set_aside.after(
                self.ring,
                start,
                last,
                reason=wanted.reason,
                before=wanted.before(self.now),
                block=wanted.block,
                before_block=LATEST if wanted.before_block is None else wanted.before_block,
                arrived=wanted.arrived,
                limit=limit + len(shown),
            )
            found = [_set_aside(self.now, row) for row in rows]
            if shown:
                found = [message for message in found if message.address not in shown]
                added = [_set_aside(self.now, row) for row in shown.values() if row is not None]
                found += [message for message in added if self._is_between(message, start, last)]
                found = sorted(found, key=lambda message: message.address)[:limit]
                found = [self._with_id(message) if message.address in shown else message for message in found]
            if wanted.block is not None and wanted.arrived is not None:
                found = [message for message in found if message.arrived_block == wanted.arrived]
        if wanted.reason in (None, SWEPT) and wanted.block is wanted.before_block is None:
            found = sorted([*found, *self._swept(last, start, limit)], key=lambda message: message.address)
        return found[:limit]

    def _with_id(self, message: SetAside) -> SetAside:
        """Return a message of a recorded end with its id, which foreseeing did not need."""
        at, page = message.address, self.working_set.page(message.address.book, message.address.page)
        if page is None or message.id != message_id(b""):
            return message
        return replace(message, id=self.working_set.id_of(at.book, page, at.index))

    def _is_between(self, message: SetAside, start: Address, last: str) -> bool:
        """Return whether a message of a recorded end is one of those that the store would find."""
        wanted, at = self.wanted, message.address
        return (
            start < at
            and at.book <= last
            and wanted.reason in (None, message.reason)
            and wanted.block in (None, message.block)
            and (wanted.before_block is None or (message.block is not None and message.block < wanted.before_block))
            and wanted.arrived in (None, message.arrived_block)
            and (message.age or 0.0) > (self.now - wanted.before(self.now)) / 1_000_000
        )

    def _swept(self, last: str, start: Address, limit: int) -> list[SetAside]:
        found: list[SetAside] = []
        loader, before = self.working_set.loader.pages, self.wanted.before(self.now)
        origin, index = start.book, start.page
        while len(found) < limit:
            rows = self.unit.pages.with_set_aside(self.ring, origin, index, PAGES_AT_ONCE, last=last, swept=True)
            pages = loader.keep(rows)
            swept = [at for name, page in pages for at in self._left_behind(name, page) if at > start]
            arrivals = loader.arrivals(swept)
            for address in swept:
                arrival, page = arrivals.get(address), self.working_set.pages[address.book, address.page]
                assert page is not None
                sent_at, block = (arrival.at, arrival.block) if arrival else (self.now, None)
                if sent_at < before and self.wanted.arrived in (None, block):
                    found.append(
                        SetAside(
                            address,
                            page.extent(address.index),
                            SWEPT,
                            age=(self.now - sent_at) / 1_000_000,
                            arrived_at=moment(sent_at),
                            arrived_block=block,
                        )
                    )
            if len(rows) < PAGES_AT_ONCE:
                break
            origin, index = rows[-1].origin, rows[-1].page + 1
        return found

    def _left_behind(self, origin: str, page: Page) -> Iterator[Address]:
        if page.index < self.working_set.book(origin).begin:
            for item, mark in enumerate(page.marks):
                if mark not in (PROCESSED, ASIDE):
                    yield Address(origin, page.index, item)


def _set_aside(now: int, row: AsideRow) -> SetAside:
    limit, is_size = codec.unpack_weight(row.weight_limit), row.reason == SIZE
    return SetAside(
        address=Address(row.origin, row.page, row.item),
        size=row.size,
        reason=row.reason,
        id=bytes(row.id),
        weight=codec.unpack_weight(row.weight),
        limit=None if is_size else limit,
        block=row.block,
        at=moment(row.at),
        age=(now - row.arrived_at) / 1_000_000,
        arrived_at=moment(row.arrived_at),
        arrived_block=row.arrived_block,
        most_bytes=limit[1] if is_size and limit is not None else None,
    )
