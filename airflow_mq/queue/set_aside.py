"""What was set aside: who looks for it, judges it again, lets it go; and the policies that do so by themselves."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

from ..core import overweight as rules
from ..core.changes import Aside
from ..core.errors import InFlight, InvalidInput, NoMessage, QueuePaused, Refused
from ..core.events import Fate, decided
from ..core.judging import ATTEMPTS, REASONS, SIZE, SWEPT
from ..core.message import Address, check_address, check_number, check_origin, check_seconds, check_text
from ..core.overweight import Judged
from ..core.page import ASIDE, PROCESSED, Page
from ..core.priority import LAST, books_of, told
from ..core.service import overweight_limit
from ..core.weight import Weight
from ..store import codec
from ..store.rows import LATEST
from ..store.set_aside import AsideRow
from ..store.unit import Unit
from ..store.working_set import StoredSet
from .blocks.blocks import refuse_claimed_by_hand
from .session import RingSession, limit_of
from .values import SetAside, moment

#: A decision about many messages is made of transactions of so many.
AT_ONCE = 500
#: Rows of events that are read at once for an error.
EVENTS_AT_ONCE = 16
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=timezone.utc), timedelta(microseconds=1)

Age = timedelta | float | int


@dataclass
class Judgement:
    """What came of judging many set-aside messages again."""

    #: Those that fit by now: where each lay, and where it goes on.
    moved: list[Judged] = field(default_factory=list)
    #: Those that stay, each with the reason.
    stayed: list[Judged] = field(default_factory=list)


class Wanted(NamedTuple):
    """Which set-aside messages are meant."""

    origin: str | None = None
    #: One of `overweight`, `most`, `fraction`, `size`, `attempts`, `swept`.
    reason: str | None = None
    #: The block that set them aside.
    block: int | None = None
    #: The first block that was planned after they were sent.
    arrived: int | None = None
    #: Those that were sent longer ago than this: a time span, or seconds.
    older_than: Age | None = None
    #: Those whose last attempt failed with this error: the beginning of its text.
    error: str | None = None

    def checked(self) -> Wanted:
        """The same, or the reason why it means nothing."""
        if self.error is not None:
            if not check_text(self.error, "an error") or self.reason not in (None, ATTEMPTS):
                raise InvalidInput(
                    f"error={self.error[:40]!r} with reason={self.reason!r}: expected the beginning of an error's "
                    f"text, and no reason but {ATTEMPTS!r}; only messages that were tried too often have an error"
                )
            return self._replace(reason=ATTEMPTS, error=None).checked()._replace(error=self.error)
        if self.origin is not None:
            check_origin(self.origin)
        if self.reason is not None and self.reason not in REASONS:
            raise InvalidInput(f"a message is set aside for {', '.join(REASONS)}, not {str(self.reason)[:40]!r}")
        for number, what in ((self.block, "a block"), (self.arrived, "a block")):
            if number is not None:
                check_number(number, what)
        self.before(LATEST)
        return self

    def before(self, now: int) -> int:
        """Arrived before this, in microseconds of the store's clock."""
        if self.older_than is None:
            return LATEST
        age = self.older_than
        seconds = age.total_seconds() if isinstance(age, timedelta) else age
        return now - int(check_seconds(seconds, "an age") * 1_000_000)


class SetAsides:
    """Set-aside messages of a ring: list, requeue, discard and expire."""

    def __init__(self, session: RingSession) -> None:
        self.session, self.store, self.ring_id = session, session.store, session.ring_id

    def list(
        self, origin: str | None = None, *, after: Address | None = None, limit: int = 100, reason: str | None = None,
        block: int | None = None, arrived: int | None = None, older_than: Age | None = None, error: str | None = None,
        errors: bool = False,
    ) -> builtins.list[SetAside]:  # fmt: skip
        """Messages that wait for a person: where they lie, what they ask for, and by which limit they were judged.

        In the order of their addresses, so many at a time: go on after the last one.

        :param reason: only those that were set aside for this: `overweight` (a full block cannot carry it), `most`
            (nor its origin's share of one), `fraction` (more than the ring's `most_of_limit`), `size` (more than its
            `max_message_size`), `attempts` (tried too often), `swept`.
        :param block: only those that this block set aside.
        :param arrived: only those that were sent before this block, and after the one before it.
        :param older_than: only those that were sent longer ago: a time span, or seconds.
        :param error: only those that were tried too often, and whose last error begins like this, say `KeyError`.
        :param errors: return the last error of each message that was tried too often, also without `error`.
        """
        wanted = Wanted(origin, reason, block, arrived, older_than, error).checked()
        check_number(limit, "a limit")
        with self.session.snapshot() as (unit, working_set):
            found = _found(unit, working_set, wanted, after, limit)
            return _with_errors(unit, working_set, found) if errors and error is None else found

    def requeue(
        self, addresses: Address | Iterable[Address], why: str = "", *, limit: Weight | None = None,
        weigh: bool = False, forget_attempts: bool = False,
    ) -> Judgement:  # fmt: skip
        """Judge set-aside messages by what the ring allows now; those that fit go back into their queues.

        A message that goes back goes on behind everything that was sent to its queue, as old as it is: with its id,
        headers, attempts, expiry and time of arrival, at a new address. All of one call, or none.

        :param why: the reason, kept with the event
        :param limit: what a block may cost, in a ring without a service weight
        :param weigh: ask the ring's weigher anew, instead of believing the weight a message was set aside for
        :param forget_attempts: count attempts from zero again, so that a message that was tried too often goes back
        """
        chosen = _chosen(addresses)
        check_text(why, "a reason")
        result = Judgement()
        with self.session.transaction(skip_in_flight=False) as (unit, working_set):
            full = self._full(working_set, limit)
            self._prepare(unit, working_set, chosen)
            known = _known(unit, working_set, chosen)
            for at in chosen:
                refuse_claimed_by_hand(unit, self.ring_id, at)
                if forget_attempts:
                    rules.forget_attempts(working_set, at)
                _sort(
                    result,
                    rules.judge_again(working_set, at, known.get(at), full, self.session.actor, why, weigh=weigh),
                )
        return result

    def requeue_all(
        self, why: str = "", *, limit: Weight | None = None, weigh: bool = False, origin: str | None = None,
        reason: str | None = None, block: int | None = None, arrived: int | None = None, older_than: Age | None = None,
        error: str | None = None, forget_attempts: bool = False,
    ) -> Judgement:  # fmt: skip
        """The same for all that are meant, in transactions of some hundred each; the filters are those of `list`.

        What was swept is judged only where that is asked for (`reason="swept"`): a person put it aside on purpose.
        With `error`, the attempts of the messages count from zero again: what caused the error is fixed.
        """
        wanted = Wanted(origin, reason, block, arrived, older_than, error).checked()
        anew = forget_attempts or error is not None
        check_text(why, "a reason")
        result = Judgement()

        def judge(working_set: StoredSet, one: SetAside) -> None:
            full = self._full(working_set, limit)
            if anew:
                rules.forget_attempts(working_set, one.address)
            _sort(
                result,
                rules.judge_again(working_set, one.address, _aside(one), full, self.session.actor, why, weigh=weigh),
            )

        for address, refusal in self._each(wanted, judge, lambda one: one.reason != SWEPT or reason == SWEPT):
            result.stayed.append(Judged(address, None, str(refusal)))
        return result

    def discard(self, addresses: Address | Iterable[Address], why: str) -> int:
        """Drop set-aside messages, with a recorded reason; tell how many there were. All of one call, or none."""
        chosen = _chosen(addresses)
        _check_why(why)
        with self.session.transaction(skip_in_flight=False) as (unit, working_set):
            working_set.loader.pages.fetch((at.book, at.page) for at in chosen)
            for at in chosen:
                refuse_claimed_by_hand(unit, self.ring_id, at)
                rules.discard(working_set, at, decided(why, self.session.actor))
        return len(chosen)

    def discard_all(
        self, why: str, *, origin: str | None = None, reason: str | None = None, block: int | None = None,
        arrived: int | None = None, older_than: Age | None = None, error: str | None = None,
    ) -> int:  # fmt: skip
        """Drop all set-aside messages that are meant, in transactions of some hundred each; tell how many there were.

        The filters are those of `list`; say at least one. What is paused, or executed right now, stays.
        """
        wanted = Wanted(origin, reason, block, arrived, older_than, error).checked()
        _check_why(why)
        if wanted == Wanted():
            raise InvalidInput(
                "say which: origin, reason, block, arrived, older_than or error; nobody discards everything"
            )
        return self._drop(wanted, Fate.DISCARDED, why, self.session.actor)

    def expire(self) -> int:
        """Let go of what the ring's policies say: `set_aside_expires` and `discard_unreadable`; tell how many."""
        config, count = self.session.config, 0
        if config.discard_unreadable:
            why = "no processor could read it"
            count += self._drop(Wanted(reason=ATTEMPTS), Fate.DISCARDED, why, "policy discard_unreadable")
        if config.set_aside_expires is not None:
            seconds = config.set_aside_expires
            why = f"it waited for longer than {seconds:,.0f} seconds"
            count += self._drop(Wanted(older_than=seconds), Fate.EXPIRED, why, "policy set_aside_expires")
        return count

    def cull(self, why: str = "more stale pages than the ring keeps") -> int:
        """Reap every page that is old enough to be culled, with the messages it holds; tell how many pages went."""
        check_text(why, "a reason")
        reaped, last = 0, Address("", 0, -1)
        while pages := self._kept_pages(last):
            for origin, page in pages:
                last = Address(origin, page + 1, -1)
                try:
                    with self.session.transaction(skip_in_flight=False) as (unit, working_set):
                        refuse_claimed_page(unit, self.ring_id, origin, page)
                        rules.reap_page(working_set, origin, page, why, self.session.actor)
                    reaped += 1
                except Refused:
                    continue
        return reaped

    def count(self, most: int = 10_000) -> int:
        """How many messages wait for a person, of at most so many."""
        check_number(most, "a limit")
        with self.store.loose() as unit:
            return min(unit.set_aside.count(self.ring_id, most), most)

    # How decisions about many are made.

    def _drop(self, wanted: Wanted, fate: Fate, why: str, actor: str) -> int:
        dropped: list[Address] = []

        def drop(working_set: StoredSet, one: SetAside) -> None:
            rules.discard(working_set, one.address, decided(why, actor), fate, one.id)
            dropped.append(one.address)

        for _ in self._each(wanted, drop, lambda one: True):
            continue
        return len(dropped)

    def _each(
        self, wanted: Wanted, act: Callable[[StoredSet, SetAside], None], means: Callable[[SetAside], bool]
    ) -> Iterator[tuple[Address, Refused]]:
        """Decide about all that are meant, some hundred in a transaction; tell which refused, and why."""
        after: Address | None = None
        while True:
            with self.session.snapshot() as (unit, working_set):
                found = _found(unit, working_set, wanted, after, AT_ONCE)
            if not found:
                return
            after = found[-1].address
            refused: list[tuple[Address, Refused]] = []
            with self.session.transaction(skip_in_flight=False) as (unit, working_set):
                chosen = [one for one in found if means(one)]
                self._prepare(unit, working_set, [one.address for one in chosen])
                for one in chosen:
                    try:
                        refuse_claimed_by_hand(unit, self.ring_id, one.address)
                        act(working_set, one)
                    except (QueuePaused, InFlight) as refusal:
                        refused.append((one.address, refusal))
                    except (NoMessage, Refused):
                        # Somebody else decided about it meanwhile.
                        continue
            yield from refused
            if len(found) < AT_ONCE:
                return

    def _prepare(self, unit: Unit, working_set: StoredSet, addresses: Sequence[Address]) -> None:
        """Fetch what deciding about these will need, in a few statements."""
        keys = list(dict.fromkeys((at.book, at.page) for at in addresses))
        working_set.loader.pages.fetch(keys)
        working_set.loader.payloads.fetch(
            (origin, page) for origin, at in keys if (page := working_set.pages.get((origin, at)))
        )
        working_set.loader.pages.arrivals(at for at in addresses if _is_there(working_set, at))

    def _full(self, working_set: StoredSet, limit: Weight | None) -> Weight:
        """What a full block leaves for a message."""
        return overweight_limit(working_set, limit_of(working_set.config, limit, "by which to judge"))

    def _kept_pages(self, after: Address) -> builtins.list[tuple[str, int]]:
        with self.store.loose() as unit:
            rows = unit.pages.kept(self.ring_id, after.book, after.page, AT_ONCE)
        return [(row.origin, row.page) for row in rows]


def refuse_claimed_page(unit: Unit, ring: int, origin: str, page: int) -> None:
    """A page of which a block holds a message, or that it passed, stays."""
    for whose, data in unit.blocks.claims_on(ring, [origin]):
        if any(run.page == page for run in codec.unpack_claim(whose, data).runs):
            raise InFlight(f"a block holds page {page} of {told(origin)}; wait until it ends")


def _chosen(addresses: Address | Iterable[Address]) -> list[Address]:
    wanted = [addresses] if isinstance(addresses, Address) else list(addresses)
    for one in wanted:
        check_address(one)
    return wanted


def _check_why(why: str) -> None:
    if not check_text(why, "a reason"):
        raise InvalidInput("say why: a discarded message leaves nothing but this reason")


def _sort(result: Judgement, judged: Judged) -> None:
    (result.stayed if judged.moved is None else result.moved).append(judged)


def _is_there(working_set: StoredSet, at: Address) -> bool:
    page = working_set.pages.get((at.book, at.page))
    return page is not None and at.index < len(page.lengths)


def _aside(one: SetAside) -> Aside | None:
    if one.id is None:
        return None
    return Aside(one.id, one.size, one.weight, one.limit, one.reason)


# Finding them: what blocks set aside has a row each; what was swept is told by its pages.


def _found(unit: Unit, working_set: StoredSet, wanted: Wanted, after: Address | None, limit: int) -> list[SetAside]:
    if wanted.error is None:
        return _found_there(unit, working_set, wanted, after, limit)
    found: list[SetAside] = []
    while len(found) < limit:
        some = _found_there(unit, working_set, wanted, after, AT_ONCE)
        found += [one for one in _with_errors(unit, working_set, some) if one.error.startswith(wanted.error)]
        if len(some) < AT_ONCE:
            break
        after = some[-1].address
    return found[:limit]


def _with_errors(unit: Unit, working_set: StoredSet, some: Sequence[SetAside]) -> list[SetAside]:
    """Return these messages with the last error of each that was tried too often."""
    settled = {
        (one.address.book, (one.at - _EPOCH) // _MICROSECOND) for one in some if one.reason == ATTEMPTS and one.at
    }
    errors: dict[Address, str] = {}
    for book, at in settled:
        errors |= _errors_at(unit, working_set.ring_id, book, at)
    return [replace(one, error=errors.get(one.address, "")) for one in some]


def _errors_at(unit: Unit, ring: int, book: str, at: int) -> dict[Address, str]:
    """Return the last errors of the messages of a book that were set aside at this time, as their events have them."""
    errors: dict[Address, str] = {}
    first = unit.events.first_since(ring, at)
    last = LATEST if first is None else first - 1
    while rows := unit.events.after(ring, last, EVENTS_AT_ONCE, origin=book):
        last = rows[-1].id
        for _, whose, block, settled_at, data in rows:
            # Events of one transaction have one time, and ids beside each other.
            if settled_at != at:
                return errors
            for run in codec.unpack_events(whose, bytes(data)):
                if run.fate is Fate.ATTEMPTS_EXHAUSTED:
                    errors |= {event.address: event.last_error for event in run.unroll(block, at / 1_000_000)}
    return errors


def _found_there(
    unit: Unit, working_set: StoredSet, wanted: Wanted, after: Address | None, limit: int
) -> list[SetAside]:
    if wanted.origin is None:
        return _found_in(unit, working_set, wanted, ("", LAST), after, limit)
    found: list[SetAside] = []
    for name in books_of(wanted.origin) if working_set.config.high else (wanted.origin,):
        if after is None or name >= after.book:
            found += _found_in(unit, working_set, wanted, (name, name), after, limit - len(found))
    return found


def _found_in(
    unit: Unit, working_set: StoredSet, wanted: Wanted, books: tuple[str, str], after: Address | None, limit: int
) -> list[SetAside]:
    """What is meant of the books with these names, and of those between."""
    start = after if after is not None and after.book >= books[0] else Address(books[0], 0, -1)
    found: list[SetAside] = []
    if wanted.reason != SWEPT:
        rows = unit.set_aside.after(
            working_set.ring_id,
            start,
            books[1],
            reason=wanted.reason,
            before=wanted.before(working_set.now),
            block=wanted.block,
            arrived=wanted.arrived,
            limit=limit,
        )
        found = [_set_aside(working_set.now, row) for row in rows]
        if wanted.block is not None and wanted.arrived is not None:
            found = [one for one in found if one.arrived_block == wanted.arrived]
    if wanted.reason in (None, SWEPT) and wanted.block is None:
        found = sorted(
            [*found, *_swept(unit, working_set, wanted, books[1], start, limit)], key=lambda one: one.address
        )
    return found[:limit]


def _known(unit: Unit, working_set: StoredSet, chosen: Sequence[Address]) -> dict[Address, Aside]:
    """Why these were set aside."""
    pages = list(dict.fromkeys((at.book, at.page) for at in chosen))
    rows = unit.set_aside.of_pages(working_set.ring_id, pages)
    return {
        Address(row.origin, row.page, row.item): Aside(
            bytes(row.id), 0, codec.unpack_weight(row.weight), codec.unpack_weight(row.weight_limit), row.reason
        )
        for row in rows
    }


def _set_aside(now: int, row: AsideRow) -> SetAside:
    judged_by, by_size = codec.unpack_weight(row.weight_limit), row.reason == SIZE
    return SetAside(
        Address(row.origin, row.page, row.item), row.size, row.reason, bytes(row.id), codec.unpack_weight(row.weight),
        None if by_size else judged_by, row.block, moment(row.at), (now - row.arrived_at) / 1_000_000,
        moment(row.arrived_at), row.arrived_block, judged_by[1] if by_size and judged_by is not None else None,
    )  # fmt: skip


def _swept(unit: Unit, working_set: StoredSet, wanted: Wanted, last: str, start: Address, limit: int) -> list[SetAside]:
    found: list[SetAside] = []
    origin, page, before = start.book, start.page, wanted.before(working_set.now)
    while len(found) < limit:
        rows = unit.pages.swept(working_set.ring_id, origin, page, last, 64)
        swept = [
            one for its in working_set.loader.pages.keep(rows) for one in _left_behind(working_set, *its) if one > start
        ]
        arrivals = working_set.loader.pages.arrivals(swept)
        for one in swept:
            arrival, its_page = arrivals.get(one), working_set.pages[one.book, one.page]
            assert its_page is not None
            at = arrival.at if arrival else working_set.now
            if at < before and (wanted.arrived is None or (arrival and arrival.block == wanted.arrived)):
                found.append(SetAside(
                    one, its_page.extent(one.index), SWEPT, age=(working_set.now - at) / 1_000_000,
                    arrived_at=moment(at), arrived_block=arrival.block if arrival else None,
                ))  # fmt: skip
        if len(rows) < 64:
            break
        origin, page = rows[-1].origin, rows[-1].page + 1
    return found


def _left_behind(working_set: StoredSet, origin: str, page: Page) -> Iterator[Address]:
    if page.index < working_set.book(origin).begin:
        for item, mark in enumerate(page.marks):
            if mark not in (PROCESSED, ASIDE):
                yield Address(origin, page.index, item)
