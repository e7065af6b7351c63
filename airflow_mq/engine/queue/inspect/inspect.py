"""Inspection of a ring: reads that change nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import date, timedelta
from itertools import chain, islice
from typing import Any

from ....bills import Header
from ....tariff import Tariff
from ...rules.book import IN_FLIGHT, QueueSettings
from ...rules.errors import InvalidInput
from ...rules.events import Event
from ...rules.fairness import Fairness
from ...rules.message import (
    MOST_ORIGIN_BYTES,
    Address,
    Message,
    check_address,
    check_number,
    check_origin,
    check_text,
)
from ...rules.orders import shuffled
from ...rules.patterns import OriginPatterns
from ...rules.priority import HIGH, REGULAR, book_name, books_of, check_priority, origin_of, priority_of
from ...rules.weight import Weight
from ...store.attributes import notes_of
from ...store.books import QueueDepth
from ...store.rows import AT_ONCE, LATEST, PLANNED, Fullness
from ...store.working_set import StoredSet
from ..bills import days_of, read_bill
from ..blocks import measures
from ..blocks.block import Block
from ..blocks.blocks import Blocks
from ..servers import ledger_pages
from ..session import RingSession, limit_of
from ..values import Batch, LedgerBlock, Peeked, Pulse, moment
from .events import events_after, latest_events
from .explain import AHEAD, Explainer
from .fairness import fairness_of
from .forecast import MOST_SEED, Conditions, ForecastBlock, foresight
from .history import History, count_ends, history_of
from .messages import MessageHeaders, headers_of, peek, waiting
from .order import asleep_books, books_asked, origins_from, ready_books, with_high
from .queues import (
    RECENT,
    Backlog,
    BudgetState,
    PageState,
    QueueState,
    RingState,
    backlog_of,
    budget_states,
    depths_of,
    live_blocks,
    page_states,
    queue_states,
)
from .quote import SECONDS, Offer, Quote, quote_of
from .reasons import Explanation
from .servicing import IsDagPaused, Servicing, unknown_pause
from .usage import Usage, usage_of

#: Reads of a bounded page of queues, if most of those that it finds are empty.
READS = 20
#: Origins whose waiting messages are read in one snapshot.
_ORIGINS = 16
#: Microseconds before the first count of ended messages that it includes.
ENDED_WITHIN = 60_000_000
#: Latest pages of the ledger that are searched for queues whose first messages are too heavy, and these queues.
MOST_PAGES, MOST_STUCK = 20, 100
#: Empty blocks after which a ring counts as one without work for a block.
LOOK_AHEAD = 8


class Inspect:
    """Reads of a ring that change nothing."""

    def __init__(self, session: RingSession, blocks: Blocks) -> None:
        self._session, self._store, self._ring_id, self._blocks = session, session.store, session.ring_id, blocks

    # Queues.

    def queues(
        self,
        prefix: str = "",
        after: str = "",
        limit: int = 50,
        *,
        among: Sequence[tuple[str, str]] | None = None,
    ) -> list[QueueState]:
        """Return the states of queues by name; an origin may have two queues. Empty queues are left out.

        The reading is bounded, and `QueueState.more` marks a queue of which not all was counted.

        :param prefix: the beginning of the origins' names
        :param after: the last origin of the page before
        :param limit: number of origins
        :param among: instead, these queues: pairs of an origin and a priority
        """
        for text in (prefix, after):
            # A prefix may be a whole origin with the separator.
            check_text(text, "the beginning of an origin", MOST_ORIGIN_BYTES + 1)
        check_number(limit, "a limit")
        names = [book_name(origin, check_priority(priority)) for origin, priority in among or ()]
        with self._session.snapshot(names=None if among is None else names) as (unit, working_set):
            if among is not None:
                return queue_states(unit, working_set, names, recent=RECENT)
            states: list[QueueState] = []
            shown: dict[str, None] = {}
            for _ in range(READS):
                origins = origins_from(unit, working_set, prefix, after, limit)
                states += queue_states(unit, working_set, with_high(working_set, origins), recent=RECENT)
                shown = dict.fromkeys(state.origin for state in states)
                if len(origins) < limit or len(shown) >= limit:
                    break
                # A queue may have rows and no state, where the end of its last block is recorded and not applied.
                after = origins[-1]
            kept = set(islice(shown, limit))
            return [state for state in states if state.origin in kept]

    def depths(self) -> Iterator[QueueDepth]:
        """Yield what each queue holds, all of one moment.

        The database counts some queues at a time. Until the last one, this object must not be used in this thread: its
        connection is in a transaction. Another `MessageQueue` of the same store may be.
        """
        with self._session.snapshot() as (unit, working_set):
            yield from depths_of(unit, working_set)

    def backlog(self, deepest: int = 0, oldest: int = 0) -> Backlog:
        """Return the totals of the ring.

        :param deepest: number of queues to return one by one, those with the most messages
        :param oldest: number of queues to return one by one, those whose first message was sent longest ago
        """
        for number in (deepest, oldest):
            check_number(number, "a number of queues")
        with self._session.snapshot() as (unit, working_set):
            return backlog_of(unit, working_set, deepest, oldest)

    def pages(self, origin: str, priority: str = REGULAR, limit: int = 100) -> list[PageState]:
        """Return the first stored pages of a queue, stale ones first, without messages that are in no page yet."""
        name = book_name(check_origin(origin), check_priority(priority))
        check_number(limit, "a limit")
        with self._session.snapshot(names=[name]) as (_, working_set):
            return page_states(working_set, name, limit)

    def origin_settings(self, origin: str) -> QueueSettings:
        """Return the settings of an origin, with the ring's defaults."""
        with self._session.snapshot(stored=True) as (_, working_set):
            book = working_set.book(check_origin(origin))
            return replace(book.settings, ordered=working_set.is_ordered(book))

    def budgets(self, origin: str | None = None, *, exhausted: bool = False) -> list[BudgetState]:
        """Return the budgets over time of origins and paths with their balances, by name.

        :param origin: only those that pay for its messages: its own, and with paths those of the groups that hold it
        :param exhausted: only those that were exhausted since they were last full
        """
        with self._session.snapshot() as (unit, working_set):
            found = budget_states(unit, working_set, None if origin is None else check_origin(origin))
        return [state for state in found if state.exhausted_at is not None or not exhausted]

    def fullness(self, origins: Iterable[str] | None = None) -> list[Fullness]:
        """Return how full queues and groups with a quota are: those of these origins; by default, all."""
        with self._session.store.reading() as unit:
            config = self._session.remember_config(unit.rings.named(self._session.ring).config)
            names = sorted(unit.origins.quotas(self._ring_id)) if origins is None else map(check_origin, origins)
            sizes = dict.fromkeys(names, 0)
            return self._session.store.fullness(unit, self._ring_id, sizes, has_paths=config.paths) if sizes else []

    # The ring.

    def ring(self, most: int = 60) -> RingState:
        """Return the ring from its head on; behind it queues without budget, and those that due messages join."""
        check_number(most, "a limit")
        with self._session.snapshot() as (unit, working_set):
            version = unit.rings.state(self._ring_id).version
            in_flight = sum(block.messages for block in live_blocks(unit, self._ring_id))
            # Those that woke since the last block are in both.
            names = dict.fromkeys(chain(islice(ready_books(working_set), most), asleep_books(working_set, most)))
            states = queue_states(unit, working_set, list(islice(names, most)), recent=RECENT)
            shown = [state for state in states if state.in_ring]
            joining = (state for name, state in _joining(working_set).items() if name not in names)
            shown += sorted(joining, key=lambda state: bool(state.skipped))[: most - len(shown)]
            due = next((moment(due) for due, _ in working_set.reading.delayed_rows(working_set.now, 1)), None)
            return RingState(moment(working_set.now), version, shown, in_flight, due)

    def put_off(self, most: int = 60) -> list[QueueState]:
        """Return the queues of the first delayed messages that were tried, each with the most attempts of these."""
        check_number(most, "a limit")
        attempts = Counter[str]()
        with self._session.snapshot() as (_, working_set):
            for _, row in working_set.reading.delayed_rows(-LATEST, most):
                # A message that was put off has a row of its own.
                if row.attributes and row.items == 1 and (note := notes_of(row.attributes, 1).get(0)):
                    attempts[row.origin] = max(attempts[row.origin], note.attempts)
            working_set.loader.load_books([*+attempts])
            return [
                QueueState(origin_of(name), priority_of(name), skipped=working_set.book(name).skipped, attempts=count)
                for name, count in (+attempts).items()
            ]

    def ring_order(self, limit: int = 100, priority: str = REGULAR, seed: bytes | None = None) -> list[str]:
        """Return the origins with ready books of this priority, from the head of the ring.

        :param seed: instead, in the shuffled order of a block with this seed
        """
        check_number(limit, "a limit")
        if seed is not None and not 1 <= len(seed) <= MOST_SEED:
            raise InvalidInput(f"a seed is 1 to {MOST_SEED} bytes")
        with self._session.snapshot() as (_, working_set):
            names = ready_books(working_set, priority)
            return [origin_of(name) for name in islice(names if seed is None else shuffled(names, seed), limit)]

    def ring_version(self) -> tuple[int, int]:
        """Return numbers that grow with every block and service, and with every send; until then, counts stay valid."""
        with self._store.loose() as unit:
            return unit.rings.state(self._ring_id).version, unit.rings.latest_id()

    def pulse(self, most: int = 1) -> Pulse:
        """Return whether a block would find messages, cheaply, for callers that ask repeatedly."""
        with self._session.snapshot() as (unit, working_set):
            newest, set_aside, due = unit.inbox.pulse(self._ring_id)
            asides = working_set.reading.shown_asides().values()
            set_aside = max(set_aside, *(row.at for row in asides if row is not None), 0)
            # Of many skipped queues only the names are read.
            working_set.keeps_places = True
            names: dict[str, list[str]] = defaultdict(list)
            for book in map(working_set.book, ready_books(working_set)):
                names[book.skipped].append(book.origin)
                if len(names[""]) >= most:
                    break
            waiting, busy = names[""], [*names[IN_FLIGHT], *working_set.skipped[IN_FLIGHT]]
            live = unit.blocks.latest(self._ring_id, PLANNED) if busy else ()
            if any(row.deadline <= working_set.now for row in live):
                # The next plan releases the blocks that are past their deadline.
                waiting, busy = [*waiting, *busy], []
            ready = dict.fromkeys(map(origin_of, waiting[:most]))
            joining = _joining(working_set).values() if due is not None and due <= working_set.now else ()
            # Many due messages of paused queues may hide others.
            is_due = any(one.more or not one.skipped for one in joining)
            return Pulse(tuple(ready), is_due, newest, set_aside, bool(busy))

    # Messages.

    def peek(
        self, origin: str, *, page: int | None = None, limit: int = 20, priority: str | None = None
    ) -> list[Peeked]:
        """Return the first unprocessed messages of an origin, high ones first, or of one of its pages.

        :param priority: only messages of this priority
        """
        found: list[Peeked] = []
        check_number(limit, "a limit")
        with self._session.snapshot(names=books_of(check_origin(origin))) as (unit, working_set):
            for name in books_asked(working_set, origin, priority):
                found += peek(unit, working_set, name, page, limit - len(found))
        return found

    def waiting(self, *origins: str, limit: int) -> Generator[Batch, None, None]:
        """Yield the first waiting messages of origins, high ones first: neighbours of a page together.

        Until the last one, this object must not be used in this thread, as for `depths`.

        :param limit: largest number of messages of each origin
        """
        for origin in origins:
            check_origin(origin)
        for start in range(0, len(origins), _ORIGINS):
            some = origins[start : start + _ORIGINS]
            with self._session.snapshot(names=[*chain(*map(books_of, some))]) as (_, working_set):
                yield from waiting(working_set, some, limit)

    def headers(
        self, block: str | Block, most: int, of_interest: Callable[[Mapping[str, str]], bool] = bool
    ) -> list[MessageHeaders]:
        """Return headers of interest of messages of a block: at most `most`, as many of each page if it has them."""
        check_number(most, "a number of messages")
        held = block if isinstance(block, Block) else self._blocks.get(block)
        with self._session.snapshot(names=[claim.origin for claim in held.claims]) as (_, working_set):
            return headers_of(working_set, held, most, of_interest)

    def history(self, message: Address | bytes, *, origin: str | None = None) -> History:
        """Return the events of a message in order, also after its end, while the ring keeps events.

        The history contains the send, the blocks that planned the message, its attempts, the limit that set it aside,
        decisions with their actors and reasons, and its end. The time of sending is exact for stored messages and for
        those that were ever set aside; of other ended messages, only the next block is known.

        :param message: any address that the message had, or its 32-byte `id`. An id selects all messages with the
            same bytes; if no event contains it, all waiting messages are searched
        :param origin: restrict the search for an id to one origin
        """
        return history_of(self._session, message, origin)

    def events(
        self,
        *,
        origin: str | None = None,
        name: str | None = None,
        block: int | None = None,
        id: bytes | None = None,
        after: int = 0,
        limit: int | None = None,
        follow: bool = False,
    ) -> Iterator[Event]:
        """Return the events of messages, in order; with `follow`, without end.

        :param after: the `seq` of an event after which to continue
        """
        events = events_after(self._session, after, origin=origin, block=block, follow=follow)
        matching = (event for event in events if (not name or event.name == name) and (not id or event.id == id))
        return islice(matching, limit if limit is None else max(limit, 0))

    def latest_events(
        self, before: int | None = None, limit: int = 100, *, origin: str | None = None, name: str | None = None
    ) -> tuple[list[Event], int | None]:
        """Return events, latest first, and the `seq` before which to continue; None at the end.

        :param name: only events of this name, from a bounded search: continue even if none was found
        """
        check_number(limit, "a limit")
        if origin is not None:
            check_origin(origin)
        top = LATEST if before is None else check_number(before, "an event")
        with self._store.loose() as unit:
            return latest_events(unit, self._ring_id, top, limit, origin=origin, name=name)

    def ended(self, after: int | None = None) -> tuple[int, int]:
        """Return how many messages ended (processed, failed, discarded, expired, transferred), and where to continue.

        :param after: the place that an earlier call returned; by default, the ends of the last minute count
        """
        with self._store.reading() as unit:
            if after is None:
                first = unit.events.first_since(self._ring_id, unit.now() - ENDED_WITHIN)
                after = unit.rings.latest_id() if first is None else first - 1
            return count_ends(unit, self._ring_id, after)

    # Reasons and forecasts.

    def explain(
        self,
        origin: str,
        *,
        limit: Weight | None = None,
        seed: bytes | None = None,
        ahead: int = AHEAD,
        priority: str | None = None,
        below: bool = False,
        is_dag_paused: IsDagPaused = unknown_pause,
    ) -> Explanation:
        """Return why the first message of a queue waits, which of the next blocks takes it, and what would change that.

        :param limit: limit of the blocks; by default, that of the DAG or program that services the queue
        :param seed: in a ring that shuffles, the seed of the next blocks
        :param ahead: number of blocks to forecast
        :param priority: of the messages; by default, high if a high message waits
        :param below: of all queues of this group of paths, explain the one that is serviced first
        :param is_dag_paused: returns whether the DAG of a server of the ring is paused; None if that is unknown
        """
        check_origin(origin)
        check_number(ahead, "a number of blocks")
        with self._store.reading() as unit:
            explainer = Explainer(self._session, unit, Conditions(limit, seed=seed), ahead, is_dag_paused)
            return explainer.of_queue(origin, priority, below=below)

    def explain_message(
        self,
        address: Address,
        *,
        limit: Weight | None = None,
        seed: bytes | None = None,
        ahead: int = AHEAD,
        is_dag_paused: IsDagPaused = unknown_pause,
    ) -> Explanation:
        """Return why a message waits, as `explain` does for the first message of a queue."""
        check_address(address)
        check_number(ahead, "a number of blocks")
        with self._store.reading() as unit:
            conditions = Conditions(limit, seed=seed)
            return Explainer(self._session, unit, conditions, ahead, is_dag_paused).of_message(address)

    def stuck(self, states: Sequence[QueueState], servicing: Servicing) -> list[Explanation]:
        """Explain the queues that no block of any server can service: of these, and of those recorded as stuck."""
        entries = chain.from_iterable(page.entries for page in self.ledger(limit=MOST_PAGES))
        recorded = dict.fromkeys((entry.origin, entry.priority) for entry in entries if entry.needs)
        known = {(state.origin, state.priority) for state in states}
        more = self.queues(among=[*islice((pair for pair in recorded if pair not in known), MOST_STUCK)])
        found = [state for state in (*states, *more) if servicing.wait_of(state, None).state in ("unserved", "stuck")]
        with self._store.reading() as unit:
            explainer = Explainer(self._session, unit, Conditions())
            return [explainer.of_queue(state.origin, state.priority, below=False) for state in found]

    def servicing(self, is_dag_paused: IsDagPaused = unknown_pause) -> Servicing:
        """Return the latest plans and services of the ring, which show whether one is overdue.

        :param is_dag_paused: returns whether the DAG of a server of the ring is paused; None if that is unknown
        """
        with self._session.snapshot(stored=True) as (unit, working_set):
            return Servicing.read(unit, self._ring_id, working_set.now, working_set.config, is_dag_paused)

    def dry_run(
        self,
        limit: Weight | None = None,
        *,
        shares: Mapping[str, int] | None = None,
        seed: bytes | None = None,
        **changes: object,
    ) -> ForecastBlock:
        """Return what the next block would take, queue by queue.

        :param limit: limit of the block; by default, that of the DAG or program that planned the latest block
            (`ForecastBlock.server`), or the ring's service weight
        :param shares: shares of some origins, instead of theirs
        :param seed: the seed of the order, required in a ring that shuffles
        :param changes: settings of the ring instead of its own, such as `order`
        """
        settings = {origin: {"share": share} for origin, share in (shares or {}).items()}
        with foresight(self._session, Conditions(limit, settings, seed, changes)) as future:
            return future.next_block()

    def forecast(
        self,
        blocks: int = 10,
        *,
        limit: Weight | None = None,
        shares: Mapping[str, int] | None = None,
        seed: bytes | None = None,
        every: float | timedelta | str | None = None,
        **changes: object,
    ) -> list[ForecastBlock]:
        """Return the next blocks if nothing changes and every message is done; fewer if the queues run empty.

        The parameters are those of `dry_run`; a seed counts for each of the blocks.

        :param every: seconds between two blocks, or text such as `10m`; by default, the usual interval of the DAG or
            program that planned the latest block. Blocks in progress end before the second one. `0` lets all come now
        """
        check_number(blocks, "a number of blocks")
        settings = {origin: {"share": share} for origin, share in (shares or {}).items()}
        with foresight(self._session, Conditions(limit, settings, seed, changes)) as future:
            return list(future.blocks(blocks, future.pace(every)))

    def quote(
        self,
        origin: str,
        messages: Iterable[bytes | Message] | None = None,
        *,
        count: int | None = None,
        weight: Weight | None = None,
        priority: str = REGULAR,
        limit: Weight | None = None,
        every: float | timedelta | str | None = None,
        seconds: float = SECONDS,
    ) -> Quote:
        """Return what it would mean to send messages now: when they finish, their charge, and whom they delay.

        The next blocks are forecast with and without them. What the latest blocks processed is assumed to arrive again.

        :param origin: their origin
        :param messages: the messages, of which only lengths and weights matter
        :param count: instead, a number of messages, of this weight each
        :param weight: the weight of each message that has none of its own
        :param priority: of messages without their own; all have the same one
        :param limit: limit of the blocks; by default, that of the latest DAG or program that takes the origin
        :param every: time between two blocks; by default, the usual one of that DAG or program
        :param seconds: time after which the quote ends, and is partial
        """
        if (messages is None) == (count is None) or (messages is None and weight is None):
            raise InvalidInput("a quote needs messages, or their number and the weight of each")
        name = book_name(check_origin(origin), check_priority(priority))
        # Without it, a ring that had no high message yet reads none.
        changes = {"high": True} if priority == HIGH else {}
        self._session.reread_config()
        offer = Offer(self._session.config.changed(**changes), name, None if weight is None else Weight.of(weight))
        with closing(offer.call):
            # The caller's iterator may be slow, and a transaction must not wait for it.
            if messages is not None:
                offer.add(messages)
            else:
                offer.add_alike(check_number(count, "a number of messages"))
            with foresight(self._session, Conditions(limit, seed=bytes(16), changes=changes), origin) as future:
                pace = future.pace(every, origin)
                if not pace.every:
                    why = "it is not known how often blocks come" if every is None else "blocks cannot come every 0 s"
                    raise InvalidInput(f"{why}: pass every, for example 10m (--every 10m)")
                return quote_of(future, offer, pace, seconds)

    def finds_work(
        self, limit: Weight | None = None, origins: Iterable[str] | None = None, server: str | None = None
    ) -> bool:
        """Return whether a block of this limit and these origins would take messages, perhaps after empty ones.

        An empty block may earn the credit with which a later one takes a message; `LOOK_AHEAD` blocks are tried.

        :param limit: limit of the blocks; by default, the ring's service weight
        :param origins: shell patterns of the origins that they service; by default, all
        :param server: the DAG that plans them, as `blocks.plan` names it
        """
        limit = limit_of(self._session.config, limit)
        conditions = Conditions(limit, seed=bytes(16), server=server, patterns=OriginPatterns.of(origins))
        with foresight(self._session, conditions) as future:
            return any(block.moves for block in future.blocks(LOOK_AHEAD))

    # The ledger.

    def ledger(self, *, block: int | None = None, limit: int = 100) -> list[LedgerBlock]:
        """Return the weights that blocks offered and granted, queue by queue, latest first."""
        check_number(limit, "a limit")
        first, last = (0, LATEST - 1) if block is None else (block, block)
        with self._store.loose() as unit:
            return ledger_pages(unit, self._ring_id, limit, first, last)

    def fairness(self, blocks: int = 100, *, most: int | None = None) -> Fairness:
        """Return promised and received shares and waits of each origin in the latest blocks of the ledger.

        `rules.fairness` defines the figures. Current shares, leasts and mosts apply. Queues that wait now are
        included, even if no block came to them. If more than 100,000 wait, the first ones in the ring's order are
        included, and `Fairness.partial` is set.

        :param blocks: number of blocks
        :param most: number of waiting queues to include, from the head of the ring
        """
        if not check_number(blocks, "a number of blocks"):
            raise InvalidInput(f"invalid number of blocks {blocks}: expected at least 1")
        with self._session.snapshot() as (unit, working_set):
            return fairness_of(working_set, ledger_pages(unit, self._ring_id, blocks), most)

    def usage(
        self,
        by: str = "origin",
        per: str = "day",
        *,
        since: date | None = None,
        until: date | None = None,
        of: str | None = None,
        tariff: Tariff | None = None,
        most: int | None = None,
    ) -> list[Usage]:
        """Return what was charged, in the order of periods and names.

        :param by: `origin`, `path` (the first part of each origin, or the next one below `of`), `processor` or `dag`
        :param per: `day` or `month`, of UTC
        :param since: the first day
        :param until: the day after the last one
        :param of: only this origin and all below it
        :param tariff: prices for `Usage.cost`
        :param most: raise `InvalidInput` if there are more rows
        """
        if of is not None:
            check_origin(of)
        with self._store.reading() as unit:
            ring = self._ring_id
            return usage_of(unit, ring, by, per, since=since, until=until, of=of, tariff=tariff, most=most)

    def bill_headers(self, month: date | None = None) -> list[Header]:
        """Return the published headers of closed days in order: those of a month, or all."""
        days = () if month is None else days_of(month)
        with self._store.reading() as unit:
            return [day.header for day in unit.bills.days(self._ring_id, *days)]

    def bill(self, of: str, month: date) -> Mapping[str, Any]:
        """Return the bill of a tenant for the closed days of a month, which `airflow-mq verify` checks.

        :param of: the tenant: the first part of its origins in a ring with paths, otherwise an origin
        """
        with self._store.reading() as unit:
            of = check_text(of, "a tenant", MOST_ORIGIN_BYTES)
            return read_bill(unit, self._session, of, month)

    def fits(self, processor: str | None = None) -> list[measures.Fit]:
        """Return the weights fitted to measured use, per processor and origin."""
        with self._store.loose() as unit:
            rows = unit.origins.measures(self._ring_id, processor)
        return [measures.fit(name, origin, data) for name, origin, data in rows]


def _joining(working_set: StoredSet) -> dict[str, QueueState]:
    """Return the queues that the first due messages join with the next block, by their books: with these messages."""
    found: dict[str, QueueState] = {}
    rows = working_set.reading.delayed_rows(-LATEST, AT_ONCE, until=working_set.now)
    for due, row in rows:
        one = found.get(row.origin) or QueueState(
            origin_of(row.origin), priority_of(row.origin), oldest=moment(due), age=(working_set.now - due) / 1_000_000,
            skipped=working_set.book(row.origin).skipped, more=len(rows) == AT_ONCE,
        )  # fmt: skip
        found[row.origin] = replace(one, messages=one.messages + row.items, size=one.size + row.size)
    return found
