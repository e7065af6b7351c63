"""Set-aside messages: list, requeue, discard and expire.

Messages that blocks set aside have rows of their own. Swept messages are found in the pages behind the window.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone

from typing_extensions import Unpack

from ...words import many
from ..rules import overweight as rules
from ..rules.claims import Scales
from ..rules.errors import InFlight, InvalidInput, NoPage, NotReapable, QueuePaused, Refused
from ..rules.events import Fate, decided
from ..rules.filters import FILTERS, Filters, Selection, checked, least_age
from ..rules.judging import ATTEMPTS, SIZE, SWEPT
from ..rules.message import Address, check_address, check_number, check_text, message_id
from ..rules.overweight import Judged
from ..rules.page import ASIDE, PROCESSED
from ..rules.priority import PAST_ALL, books_of, told
from ..rules.weight import Weight
from ..store import codec
from ..store.rows import LATEST
from ..store.set_aside import AsideRow
from ..store.unit import Unit
from ..store.working_set import StoredSet
from .blocks.blocks import claimed_by_hand, refuse_claimed_by_hand
from .servers import servers_of
from .session import RingSession, limit_of
from .values import SetAside, moment

#: Messages that one transaction decides about, and that one search for an error reads.
AT_ONCE = 500
#: Rows of events, and swept pages, that one statement reads.
EVENTS_AT_ONCE, PAGES_AT_ONCE = 16, 64
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=timezone.utc), timedelta(microseconds=1)


class Search:
    """A search over one snapshot."""

    def __init__(self, unit: Unit, working_set: StoredSet, wanted: Selection) -> None:
        self.unit, self.working_set, self.wanted = unit, working_set, wanted
        self.ring, self.now = working_set.ring_id, working_set.now
        self.least_age = least_age(wanted)

    def found(self, after: Address | None, limit: int) -> list[SetAside]:
        """Return messages in the order of their addresses, `limit` at a time; continue after the last one."""
        error = self.wanted.get("error")
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
        origin = self.wanted.get("origin")
        if origin is None:
            return self._between("", PAST_ALL, after, limit)
        found: list[SetAside] = []
        for name in books_of(origin) if self.working_set.config.high else (origin,):
            if after is None or name >= after.book:
                found += self._between(name, name, after, limit - len(found))
        return found

    def _between(self, first: str, last: str, after: Address | None, limit: int) -> list[SetAside]:
        """Return the messages of the books from `first` to `last`."""
        wanted, start = self.wanted, after if after is not None and after.book >= first else Address(first, 0, -1)
        found: list[SetAside] = []
        if wanted.get("reason") != SWEPT:
            found += self._recorded(start, last, limit)
        if wanted.get("reason") in (None, SWEPT) and "block" not in wanted:
            found += self._swept(last, start, limit)
        return sorted(found, key=lambda message: message.address)[:limit]

    def _recorded(self, start: Address, last: str, limit: int) -> list[SetAside]:
        """Return messages that blocks set aside, those of recorded ends included."""
        wanted, shown = self.wanted, self.working_set.reading.shown_asides()
        rows: dict[Address, AsideRow | None] = {
            Address(row.origin, row.page, row.item): row
            for row in self.unit.set_aside.after(
                self.ring,
                start,
                last,
                reason=wanted.get("reason"),
                before=LATEST if self.least_age is None else self.now - self.least_age,
                block=wanted.get("block"),
                arrived=wanted.get("arrived"),
                limit=limit + len(shown),
            )
        }
        rows |= {at: row for at, row in shown.items() if start < at and at.book <= last}
        found = (_set_aside(self.now, row) for row in rows.values() if row is not None)
        return [self._with_id(one) if one.address in shown else one for one in found if self._selects(one)]

    def _selects(self, message: SetAside) -> bool:
        wanted = self.wanted
        return (
            wanted.get("reason") in (None, message.reason)
            and wanted.get("block") in (None, message.block)
            and wanted.get("arrived") in (None, message.arrived_block)
            and (self.least_age is None or (message.age or 0.0) > self.least_age / 1_000_000)
        )

    def _with_id(self, message: SetAside) -> SetAside:
        """Return a message of a recorded end with its id, which foreseeing did not need."""
        at, page = message.address, self.working_set.page(message.address.book, message.address.page)
        if page is None or message.id != message_id(b""):
            return message
        return replace(message, id=self.working_set.id_of(at.book, page, at.index))

    def _swept(self, last: str, start: Address, limit: int) -> list[SetAside]:
        found: list[SetAside] = []
        loader = self.working_set.loader.pages
        origin, index = start.book, start.page
        while len(found) < limit:
            rows = self.unit.pages.with_set_aside(self.ring, origin, index, PAGES_AT_ONCE, last=last, swept=True)
            pages = loader.keep(rows)
            swept = [
                at
                for name, page in pages
                if page.index < self.working_set.book(name).begin
                for item, mark in enumerate(page.marks)
                if mark not in (PROCESSED, ASIDE) and (at := Address(name, page.index, item)) > start
            ]
            arrivals = loader.arrivals(swept)
            for address in swept:
                arrival, page = arrivals.get(address), self.working_set.pages[address.book, address.page]
                assert page is not None
                sent_at, block = (arrival.at, arrival.block) if arrival else (self.now, None)
                message = SetAside(
                    address,
                    page.extent(address.index),
                    SWEPT,
                    age=(self.now - sent_at) / 1_000_000,
                    arrived_at=moment(sent_at),
                    arrived_block=block,
                )
                if self._selects(message):
                    found.append(message)
            if len(rows) < PAGES_AT_ONCE:
                break
            origin, index = rows[-1].origin, rows[-1].page + 1
        return found


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


@dataclass
class Judgement:
    """Result of requeueing many set-aside messages."""

    #: Messages that fit now, with their old and new addresses.
    moved: list[Judged] = field(default_factory=list)
    #: Messages that stay set aside, each with the reason.
    stayed: list[Judged] = field(default_factory=list)
    #: Selected messages that were left out: swept ones, and those about which another decision came first.
    swept: int = 0
    gone: int = 0

    def add(self, judged: Judged) -> None:
        """Add the result of one message."""
        (self.stayed if judged.moved is None else self.moved).append(judged)

    def exclusions(self) -> list[str]:
        """Return how many selected messages were left out, and why, as sentences."""
        swept = f"{many(self.swept, 'swept message')} left out: only a selection of reason 'swept' requeues those."
        gone = f"{many(self.gone, 'message')} left out: another decision came first."
        return [sentence for count, sentence in ((self.swept, swept), (self.gone, gone)) if count]


class SetAsides:
    """Set-aside messages of a ring: list, requeue, discard and expire."""

    def __init__(self, session: RingSession) -> None:
        self.session, self.store, self.ring_id = session, session.store, session.ring_id
        #: Number of messages that `expire` deleted, including during housekeeping.
        self.expired = 0

    def list(
        self,
        origin: str | None = None,
        *,
        after: Address | None = None,
        limit: int = 100,
        errors: bool = False,
        **filters: Unpack[Filters],
    ) -> builtins.list[SetAside]:
        """Return set-aside messages in the order of their addresses, `limit` at a time; continue after the last one.

        The filters are `reason`, `block`, `arrived`, `older_than` and `error`.

        :param errors: return the last error of each message that was tried too often, also without `error`.
        """
        wanted = checked(Selection(origin=origin, **filters))
        check_number(limit, "a limit")
        with self.session.snapshot(names=None if origin is None else books_of(origin)) as (unit, working_set):
            search = Search(unit, working_set, wanted)
            found = search.found(after, limit)
            return search.with_errors(found) if errors and "error" not in wanted else found

    def refusals(self, messages: Sequence[SetAside], limit: Weight | None = None) -> builtins.list[str]:
        """Return for each of these messages why `requeue` would leave it set aside; empty if it fits now.

        :param limit: see `requeue`.
        """
        with self.session.snapshot(names=list({one.address.book for one in messages})) as (unit, working_set):
            limits, scales = self._limits(unit, limit), Scales(working_set)
            keys = dict.fromkeys((message.address.book, message.address.page) for message in messages)
            working_set.loader.load_books([name for name, _ in keys])
            working_set.loader.pages.fetch(keys)
            found = []
            for message in messages:
                address, page = message.address, working_set.page(message.address.book, message.address.page)
                if page is None or address.index >= len(page.lengths):
                    found.append("it is gone")
                    continue
                weight = message.weight or scales.weight(address.book, page, address.index)
                book = working_set.book(address.book)
                found.append(rules.why_set_aside(working_set, book, page, address.index, weight, limits(address)))
        return found

    def requeue(
        self,
        addresses: Address | Iterable[Address],
        why: str = "",
        *,
        limit: Weight | None = None,
        weigh: bool = False,
        forget_attempts: bool = False,
    ) -> Judgement:
        """Requeue set-aside messages that fit the present limits of blocks; all of one call, or none.

        A requeued message joins the end of its queue with a new address. It keeps its id, headers, attempts, expiry and
        time of arrival.

        :param why: the reason, recorded with the event.
        :param limit: the limit of the next blocks, in a ring whose blocks judge by their own. By default, that of the
            latest block of each DAG and program that takes the origin; a message stays if it fits none of them.
        :param weigh: ask the ring's weigher for the weight, instead of using the recorded one.
        :param forget_attempts: reset the attempts to zero, so that messages that were tried too often fit.
        """
        chosen = _chosen(addresses)
        check_text(why, "a reason")
        result = Judgement()
        self._cut_inboxes(chosen)
        with self.session.hold.transaction() as (unit, working_set):
            limits = self._limits(unit, limit)
            _prefetch(working_set, chosen)
            pages = list(dict.fromkeys((address.book, address.page) for address in chosen))
            known = {
                Address(row.origin, row.page, row.item): (codec.unpack_weight(row.weight), bytes(row.id))
                for row in unit.set_aside.of_pages(self.ring_id, pages)
            }
            refuse_claimed_by_hand(unit, self.ring_id, chosen)
            for address in chosen:
                weight, id_ = known.get(address, (None, None))
                weight = None if weigh else weight
                how = limits(address), self.session.actor, why
                result.add(rules.judge_again(working_set, address, weight, id_, *how, forget_attempts=forget_attempts))
        return result

    def requeue_all(
        self,
        why: str = "",
        *,
        limit: Weight | None = None,
        weigh: bool = False,
        forget_attempts: bool = False,
        **filters: Unpack[Selection],
    ) -> Judgement:
        """Requeue all messages that the filters of `list` select, some hundred in a transaction.

        Swept messages are requeued only by `reason="swept"`: a person set them aside on purpose. With `error`, the
        attempts are reset to zero: the cause of the error is fixed.
        """
        wanted = checked(filters)
        check_text(why, "a reason")
        result, forgets = Judgement(), forget_attempts or "error" in wanted
        with self.session.snapshot(stored=True) as (unit, _):
            limits = self._limits(unit, limit)

        def requeue(working_set: StoredSet, message: SetAside) -> None:
            weight, how = None if weigh else message.weight, (limits(message.address), self.session.actor, why)
            judged = rules.judge_again(working_set, message.address, weight, message.id, *how, forget_attempts=forgets)
            result.add(judged)

        for address, refusal in self._each(wanted, requeue, result, with_swept=wanted.get("reason") == SWEPT, cut=True):
            result.stayed.append(Judged(address, None, str(refusal)))
        return result

    def _limits(self, unit: Unit, limit: Weight | None) -> Callable[[Address], Sequence[Weight]]:
        """Return a function that returns the limits of the blocks that may meet a message."""
        config = self.session.config
        is_fixed = limit is not None or not config.judges_by_block
        servers = () if is_fixed else servers_of(unit, self.ring_id)

        def limits(address: Address) -> Sequence[Weight]:
            found = (server.limit_in(config) for server in servers if server.takes(address.origin))
            return [one for one in found if one is not None] or [limit_of(config, limit)]

        return limits

    def discard(self, addresses: Address | Iterable[Address], why: str) -> int:
        """Delete set-aside messages and record the reason; all of one call, or none. Return their number."""
        chosen = _chosen(addresses)
        _check_why(why)
        with self.session.hold.transaction() as (unit, working_set):
            working_set.loader.pages.fetch((address.book, address.page) for address in chosen)
            refuse_claimed_by_hand(unit, self.ring_id, chosen)
            for address in chosen:
                rules.discard(working_set, address, decided(why, self.session.actor))
        return len(chosen)

    def discard_all(self, why: str, **filters: Unpack[Selection]) -> int:
        """Delete all messages that the filters of `list` select, some hundred in a transaction; return their number.

        At least one filter is required. Messages of paused origins, and messages that a block executes, stay.
        """
        wanted = checked(filters)
        _check_why(why)
        if not wanted:
            raise InvalidInput(f"filters are missing: expected one of {', '.join(FILTERS)}")
        return self._drop(wanted, Fate.DISCARDED, why, self.session.actor)

    def expire(self) -> int:
        """Apply the ring's policies `discard_unreadable` and `set_aside_expires`; return the number of deletions."""
        self.session.reread_config()
        config, count = self.session.config, 0
        if config.discard_unreadable:
            why = "set aside after too many attempts"
            count += self._drop(Selection(reason=ATTEMPTS), Fate.DISCARDED, why, "policy discard_unreadable")
        if config.set_aside_expires is not None:
            seconds = config.set_aside_expires
            why = f"it waited for longer than {seconds:,.0f} seconds"
            count += self._drop(Selection(older_than=seconds), Fate.EXPIRED, why, "policy set_aside_expires")
        self.expired += count
        return count

    def cull(self, why: str = "more stale pages than the ring keeps") -> int:
        """Delete all pages that are old enough to be culled, with their messages; return the number of pages."""
        check_text(why, "a reason")
        reaped, origin, page = 0, "", 0
        while True:
            with self.session.snapshot() as (unit, working_set):
                rows = unit.pages.with_set_aside(self.ring_id, origin, page, AT_ONCE)
                working_set.loader.load_books([row.origin for row in rows])
                most = working_set.config.max_stale
                stale = [row for row in rows if row.page < rules.watermark(working_set.book(row.origin), most)]
            if not rows:
                return reaped
            for row in stale:
                try:
                    with self.session.hold.transaction() as (unit, working_set):
                        refuse_claimed_page(unit, self.ring_id, row.origin, row.page)
                        rules.reap_page(working_set, row.origin, row.page, why, self.session.actor)
                    reaped += 1
                except (NotReapable, NoPage, InFlight):
                    continue
            origin, page = rows[-1].origin, rows[-1].page + 1

    def count(self, most: int = 10_000) -> int:
        """Return the number of set-aside messages, at most `most`."""
        check_number(most, "a limit")
        with self.session.snapshot() as (unit, working_set):
            shift = working_set.reading.shift().set_aside
            return min(max(unit.set_aside.count(self.ring_id, most + max(-shift, 0)) + shift, 0), most)

    def _cut_inboxes(self, addresses: Iterable[Address]) -> None:
        """Cut the inboxes of these queues into pages, in bounded transactions: a requeued message comes behind them."""
        books, left = sorted({address.book for address in addresses}), 0
        while left <= 0:
            left = 20 * AT_ONCE
            with self.session.hold.transaction() as (_, working_set):
                working_set.loader.load_books(books)
                for book in map(working_set.book, books):
                    before = book.message_count
                    # A decision about a paused queue is refused.
                    if left > 0 and not book.is_paused and working_set.pull_some(book, left):
                        left -= book.message_count - before

    def _drop(self, wanted: Selection, fate: Fate, why: str, actor: str) -> int:
        dropped: list[Address] = []

        def drop(working_set: StoredSet, message: SetAside) -> None:
            rules.discard(working_set, message.address, decided(why, actor), fate, message.id)
            dropped.append(message.address)

        for _ in self._each(wanted, drop):
            continue
        return len(dropped)

    def _each(
        self,
        wanted: Selection,
        act: Callable[[StoredSet, SetAside], None],
        left_out: Judgement | None = None,
        *,
        with_swept: bool = True,
        cut: bool = False,
    ) -> Iterator[tuple[Address, Refused]]:
        """Act on all selected messages, some hundred in a transaction; yield the refusals.

        :param left_out: counts the messages that are left out
        :param cut: the messages are requeued
        """
        left_out = left_out or Judgement()
        after: Address | None = None
        while True:
            with self.session.snapshot(stored=True) as (unit, working_set):
                found = Search(unit, working_set, wanted).found(after, AT_ONCE)
            if not found:
                return
            after = found[-1].address
            refused: list[tuple[Address, Refused]] = []
            chosen = [message for message in found if with_swept or message.reason != SWEPT]
            left_out.swept += len(found) - len(chosen)
            addresses = [message.address for message in chosen]
            if cut:
                self._cut_inboxes(addresses)
            with self.session.hold.transaction() as (unit, working_set):
                _prefetch(working_set, addresses)
                held = claimed_by_hand(unit, self.ring_id, addresses)
                for message in chosen:
                    try:
                        if message.address in held:
                            raise held[message.address]
                        act(working_set, message)
                    except (QueuePaused, InFlight) as refusal:
                        refused.append((message.address, refusal))
                    except Refused:
                        # Another decision about the message came first.
                        left_out.gone += 1
            yield from refused
            if len(found) < AT_ONCE:
                return


def refuse_claimed_page(unit: Unit, ring: int, origin: str, page: int) -> None:
    """Raise `InFlight` if a block claimed a message of a page, or passed the page."""
    for row in unit.blocks.claims_on(ring, [origin]):
        if any(run.page == page for run in row.claim.runs):
            raise InFlight(f"a block holds page {page} of {told(origin)}; wait until it ends")


def _chosen(addresses: Address | Iterable[Address]) -> list[Address]:
    """Return the addresses, each once."""
    given = [addresses] if isinstance(addresses, Address) else addresses
    return list(dict.fromkeys(map(check_address, given)))


def _check_why(why: str) -> None:
    if not check_text(why, "a reason"):
        raise InvalidInput("why is empty: expected a reason; it is all that a discarded message leaves")


def _prefetch(working_set: StoredSet, addresses: Sequence[Address]) -> None:
    """Load what decisions about these messages need, in a few statements."""
    keys, pages = list(dict.fromkeys((address.book, address.page) for address in addresses)), working_set.pages
    loader = working_set.loader
    loader.pages.fetch(keys)
    loader.payloads.fetch(((origin, page) for origin, at in keys if (page := pages.get((origin, at)))))
    loader.pages.arrivals(
        address
        for address in addresses
        if (page := pages.get((address.book, address.page))) is not None and address.index < len(page.lengths)
    )
