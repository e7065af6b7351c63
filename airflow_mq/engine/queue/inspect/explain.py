"""Explanations: which case of `reasons` a message is, with its facts, and the block that takes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from itertools import chain, takewhile
from operator import attrgetter
from typing import Any

from ....words import capitalised, many, when
from ...rules.blob import Reference
from ...rules.book import BACKOFF, BUDGET, IN_FLIGHT, PAUSED
from ...rules.characters import LISTED, listed
from ...rules.claims import Claim, ClaimRun, Scales
from ...rules.config import RingConfig
from ...rules.events import NOT_TRIED, Event, Fate
from ...rules.groups import is_below, names_above, ranges_of
from ...rules.judging import ATTEMPTS, FRACTION, MOST, OVERWEIGHT, SIZE, SWEPT, bounds_of, in_words
from ...rules.message import Address
from ...rules.page import ASIDE, PROCESSED, Page
from ...rules.priority import MARK, REGULAR, book_name, books_of, check_priority, origin_of, priority_of
from ...rules.weight import LARGEST, UNLIMITED, ZERO, Weight, max_message_weight
from ...store import blobs, codec
from ...store.rows import LATEST, BlockRow, settings_of
from ...store.unit import Unit
from ..servers import Server, servers_of
from ..session import RingSession
from ..values import moment
from .events import last_event, latest_events
from .forecast import Conditions, ForecastBlock, Foresight
from .messages import first_free, free_items, holders, in_flight
from .order import ready_books
from .queues import BudgetState
from .reasons import CASES, ERRORS, ONLY_MORE, WAITS_FOR_A_BLOCK, Explanation, Remedy
from .servicing import IsDagPaused, Servicing, unknown_pause

#: Default number of blocks to forecast.
AHEAD = 100
#: Visits (`ForecastBlock.visits`) after which an explanation forecasts no further block, and those of the forecasts
#: that look for remedies, all together: about half a second of CPU each.
MOST_VISITS, MOST_REMEDY_VISITS = 3_000, 2_000
#: New queues with which a ring with paths has too many for a forecast: a block meets all of them.
MOST_NEWCOMERS = 500
#: Latest events of a queue that are searched for the last error of a message.
LOOKED_AT = 1_000
#: Reasons for which a message is set aside that a higher limit would change.
_LIMITS = (OVERWEIGHT, MOST, FRACTION, SIZE)
#: Factors by which a limit is raised to find a remedy.
_WIDER = (2, 8, 64)


@dataclass(frozen=True)
class Explainer:
    """The conditions of explanations in one ring."""

    session: RingSession
    unit: Unit
    conditions: Conditions
    ahead: int = 0
    is_dag_paused: IsDagPaused = unknown_pause

    def of_queue(self, origin: str, priority: str | None, *, below: bool) -> Explanation:
        """See `Inspect.explain`."""
        if below:
            ahead = 0 if self.has_many_newcomers else self.ahead
            name = _first_below(Foresight(self.session, self.unit, self.conditions), origin, ahead)
            origin, priority = origin_of(name), priority_of(name)
        name, config = book_name(origin, check_priority(priority or REGULAR)), self.config
        names = books_of(origin) if priority is None and config.high else [name]
        first, *others = (_Question(self, name).of_queue() for name in names)
        for found in others:
            # A high message that is in flight or set aside does not hide regular ones that wait.
            if not first.address and (found.reason != "empty" or first.reason == "empty"):
                first = found
        return _with_last_error(self.unit, self.session, first)

    def of_message(self, address: Address) -> Explanation:
        """See `Inspect.explain_message`."""
        found = _Question(self, address.book).of_message(address)
        add = _with_fate if found.reason == "gone" else _with_last_error
        return add(self.unit, self.session, found)

    @cached_property
    def has_many_newcomers(self) -> bool:
        """Whether the ring has paths and many queues that no block has loaded yet; the next loads them all."""
        rows = self.session.rows_not_looked_at(self.unit, 10 * MOST_NEWCOMERS) if self.config.paths else ()
        return len(set(rows)) > MOST_NEWCOMERS

    @cached_property
    def servers(self) -> Sequence[Server]:
        """All servers of the ring."""
        return servers_of(self.unit, self.session.ring_id)

    @cached_property
    def config(self) -> RingConfig:
        """The stored configuration of the ring."""
        return self.session.remember_config(self.unit.rings.named(self.session.ring).config)


def _first_below(future: Foresight, group: str, ahead: int) -> str:
    """Return the book of a group that a block services first, or else the first ready one, or one with messages."""
    ready = next((name for name in ready_books(future.working_set()) if is_below(origin_of(name), group)), None)
    if ready is None:
        unit, ring = future.overlay.unit, future.session.ring_id
        ranges = ((mark + first, mark + past) for first, past in ranges_of(group) for mark in ("", MARK))
        found = (unit.books.names(ring, "", first, past, 1, delayed=True) for first, past in ranges)
        return next(chain.from_iterable(found), group)
    claims = (claim for block in future.blocks(ahead) for claim in block.claims if claim.messages)
    return next((claim.origin for claim in claims if is_below(claim.whose, group)), ready)


def _with_last_error(unit: Unit, session: RingSession, found: Explanation) -> Explanation:
    """Add the number of attempts, and the reason for which the last one failed."""
    address = found.address
    if address is None:
        return found
    events = latest_events(unit, session.ring_id, LATEST, LOOKED_AT, origin=address.origin)[0]
    event = next((event for event in events if _has_error(event, address)), None)
    if event is None and not found.attempts:
        return found
    error = " ".join(event.last_error.split()) if event is not None else ""
    clauses = [found.sentence.removesuffix(".")]
    if found.attempts:
        clauses.append(f"it was tried {many(found.attempts, 'time')} without success")
    if event is not None and error.startswith(NOT_TRIED):
        clauses.append(f"it was {error.replace(NOT_TRIED, f'not tried{_in_block(event)}:', 1)}")
    elif error:
        clauses.append(f"the last error: {error}")
    remedies = [*found.remedies]
    if found.attempts and found.reason in WAITS_FOR_A_BLOCK:
        remedies.append(Remedy("a processor that succeeds; its errors", session.cli(ERRORS)))
    return replace(found, sentence=f"{'; '.join(clauses)}.", remedies=remedies, last_error=error)


def _with_fate(unit: Unit, session: RingSession, found: Explanation) -> Explanation:
    """Add the last event of a message that is gone."""
    fate = None if found.address is None else last_event(unit, session.ring_id, found.address)
    if fate is None:
        return found
    more = f" to {fate.detail}" if fate.fate is Fate.TRANSFERRED else ""
    if fate.moved_to is not None:
        page, index = fate.moved_to
        more = f"; it goes on at {replace(fate.address, page=page, index=index)}"
    return replace(found, sentence=f"{found.address} is gone: {fate.name}{_in_block(fate)}{more}.")


def _in_block(event: Event) -> str:
    return "" if event.block is None else f" in block {event.block}"


def _has_error(event: Event, address: Address) -> bool:
    """Return whether an event has the error of a message, or the reason for which it was not tried."""
    if event.fate not in (Fate.RETURNED, Fate.ATTEMPTS_EXHAUSTED):
        return False
    if event.address == address:
        return True
    up_to = event.untried_up_to
    here, there = (address.page, address.index), (event.page, event.index)
    same = event.priority == address.priority and event.why.startswith(NOT_TRIED)
    return same and up_to is not None and there < here <= up_to


class _Question:
    """A question about a queue, or one of its messages."""

    def __init__(self, asked: Explainer, name: str) -> None:
        self.asked, self.session, self.unit, self.name = asked, asked.session, asked.unit, name
        self.ahead, self.is_dag_paused, conditions = asked.ahead, asked.is_dag_paused, asked.conditions
        #: The message, its page if it is there, and the words for it.
        self.address: Address | None = None
        self.page: Page | None = None
        self.subject = ""
        #: Visits that forecasts of remedies may still make.
        self.spare_visits = MOST_REMEDY_VISITS
        self.origin = origin_of(name)
        config = asked.config
        self.is_known = conditions.seed is not None or config.order != "shuffle"
        #: All servers of the ring, and those that take this origin; none if the caller sets a limit.
        self.all_servers = asked.servers if conditions.limit is None else []
        self.servers = [server for server in self.all_servers if server.takes(self.origin)]
        conditions = conditions if self.is_known else replace(conditions, seed=b"unknown")
        server = next(iter(self.servers), None)
        #: Whether the weight of the next blocks is known.
        self.is_limited = any((config.service_weight, conditions.limit, server and server.limit))
        if self.is_limited:
            self._assume(conditions, server)
        else:
            self._assume(replace(conditions, limit=UNLIMITED), None)
        self.now, self.working_set = self.future.overlay.now, self.future.working_set()
        self.book = self.working_set.book(name)
        self.held = list(self._held([name]))
        self.taken = {place for _, claim in self.held for place in claim.places()}

    def _assume(self, conditions: Conditions, server: Server | None) -> None:
        """Forecast with the blocks of a server."""
        self.server, self.conditions = server, conditions if server is None else conditions.of(server)
        self.future = Foresight(self.session, self.unit, self.conditions)

    def _ask(self, address: Address, subject: str) -> None:
        """Ask about a message."""
        self.address, self.subject, self.page = address, subject, self.working_set.page_at(address)

    def _answer(self, case: str, block: int | None = None, **facts: object) -> Explanation:
        address = self.address
        attempts = 0 if address is None or self.page is None else self.page.note(address.index).attempts
        facts |= {"origin": self.origin, "address": address, "subject": self.subject}
        reason, sentence, remedies = CASES[case]
        parts = ([part.format(**facts) for part in remedy] for remedy in remedies)
        helpful = [Remedy(text, self.session.cli(*command) if command else "") for text, *command in parts]
        return Explanation(self.origin, address, reason, sentence.format(**facts), block, helpful, attempts)

    def of_queue(self) -> Explanation:
        """Return why the first message waits."""
        first = self._first_waiting()
        if first is None:
            return self._nothing_waits()
        self._ask(first, f"the first message of {self.origin}, {first},")
        return self._waits(first)

    def of_message(self, address: Address) -> Explanation:
        """Return why a message waits."""
        self._ask(address, str(address))
        for block, claim in self.held:
            run = claim.run_of(address)
            if run is not None:
                return self._is_held(address, block, run)
        if self.page is None:
            return self._is_not_there(address)
        mark = self.page.marks[address.index]
        if mark == PROCESSED:
            return self._is_gone(address)
        if mark == ASIDE or address.page < self.book.begin:
            return self._is_set_aside(address)
        return self._waits(address)

    # Messages that no block takes.

    def _nothing_waits(self) -> Explanation:
        count, due = self._delayed()
        if self.held:
            found = self._answer("all in flight", holders=self._holders())
        elif due is not None:
            found = self._answer("not due", messages=_messages(count, f" of {self.origin}"), due=when(moment(due)))
        else:
            found = self._answer("all set aside" if self.book.message_count else "empty", count=self.book.message_count)
        if (pause := self._pause()) is None:
            return found
        paused = self._answer(PAUSED, None, **pause)
        sentence = f"{found.sentence.removesuffix('.')}; {paused.sentence}"
        return replace(found, sentence=sentence, remedies=[*found.remedies, *paused.remedies])

    def _is_held(self, address: Address, block: BlockRow, run: ClaimRun) -> Explanation:
        decision, case, why = run.decisions.get(address.index), "executed" if block.by_hand else "processed", ""
        if decision is not None and decision.exceeded is not None:
            case, (reason, limit) = "to be set aside", decision.exceeded
            why = in_words(reason, decision.weight, limit, self._extent())
        elif decision is not None:
            case = "to be dropped"
        elif (address.page, address.index) in in_flight(self.unit, self.working_set, self.name)[1]:
            case = "reported"
        return self._answer(case, held_by=_named(block), number=block.number, why=why)

    def _delayed(self) -> tuple[int, int | None]:
        """Return the number of messages of the queue that are not due, and when the first of them is."""
        return self.future.overlay.delayed_of(self.name, self.now)

    def _is_gone(self, address: Address) -> Explanation:
        due = self.future.overlay.put_off_from(self.name, (address.page, address.index))
        return self._answer("gone") if due is None else self._answer("waits aside", due=when(moment(due)))

    def _is_not_there(self, address: Address) -> Explanation:
        if address.page < self.book.end and self.working_set.page(self.name, address.page) is None:
            return self._is_gone(address)
        later = self._delayed()[0]
        return self._answer("nowhere", later=f"; {_messages(later)} not due yet, and have no address" if later else "")

    def _is_set_aside(self, address: Address) -> Explanation:
        rows = self.unit.set_aside.of_pages(self.session.ring_id, [(self.name, address.page)])
        row = next((row for row in rows if row.item == address.index), None)
        if row is None:
            return self._answer(
                "set aside", why=in_words(SWEPT if address.page < self.book.begin else ATTEMPTS, None, None, 0)
            )
        weight, limit = codec.unpack_weight(row.weight), codec.unpack_weight(row.weight_limit)
        case = "set aside by a limit" if row.reason in _LIMITS else "set aside"
        return self._answer(case, why=in_words(row.reason, weight, limit, self._extent()))

    # Messages that wait for a block.

    def _waits(self, address: Address) -> Explanation:
        """Return why a message waits; first what is overdue, if it waits for a block that does not come."""
        found = self._waits_for(address)
        if found.reason not in WAITS_FOR_A_BLOCK:
            return found
        servicing = Servicing.read(self.unit, self.session.ring_id, self.now, self.asked.config, self.is_dag_paused)
        overdue = servicing.overdue(self.origin, self._sent_at(address))
        if overdue is not None:
            sentence = f"{overdue.sentence} {capitalised(found.sentence, self.origin)}"
            remedies = [overdue.remedy, *found.remedies] if servicing.ever else found.remedies
        elif self.name in servicing.at_most:
            sentence = (
                f"{found.sentence.removesuffix('.')}; its most was used up in block {servicing.at_most[self.name]}."
            )
            unset = (self.session.cli("queue set", name, "--unset most") for name, _ in self._mosts())
            remedies = [*found.remedies, *(Remedy("a larger most, or none", command) for command in unset)]
        else:
            return found
        return replace(found, sentence=sentence, remedies=remedies)

    def _waits_for(self, address: Address) -> Explanation:
        if self.book.skipped:
            return self._skipped()
        hindered = self._hindered(address)
        if hindered is not None:
            return hindered
        if not self.is_known:
            return self._answer("chance")
        if not self.is_limited:
            return self._answer("unlimited")
        if self.asked.has_many_newcomers:
            return self._answer("new")
        first: ForecastBlock | None = None
        visits, blocks, note = 0, self.ahead, ""
        for block in self.future.blocks(self.ahead):
            first = first or block
            verdict = block.verdict(address)
            if verdict is not None:
                return self._is_taken(address, first, block, verdict)
            visits += block.visits
            if visits >= MOST_VISITS and block.number < self.ahead:
                blocks, note = block.number, "; an explanation forecasts no more blocks of this size"
                break
        if self.future.working_set().book(self.name).skipped == BUDGET:
            # No time passes in this forecast.
            whose = [bucket.path for bucket in self.working_set.buckets_of(self.book)]
            return self._answer("budget spent", whose=" or ".join(whose), name=whose[-1])
        found = self._later(address, first)
        sentence = f"{self.subject} is not tried in the next {many(blocks, 'block')}: {found.sentence}{note}."
        return replace(found, sentence=sentence, remedies=self._remedies(address, found.reason, blocks, first))

    def _hindered(self, address: Address) -> Explanation | None:
        """Return that no server takes the origin, or that its first message is too heavy for all; None otherwise."""
        if self.servers or not self.all_servers:
            return self._stuck(address)
        takers = listed(self.all_servers, lambda server: f"{server.title} takes {server.patterns}", between="; ")
        return self._answer("unserved", servers=takers)

    def _stuck(self, address: Address) -> Explanation | None:
        first, config, limit = self._first_waiting(), self.future.config, self.future.limit
        page = None if first is None else self.working_set.page(self.name, first.page)
        if first is None or page is None:
            return None
        weight = Scales(self.working_set).weight(self.name, page, first.index)
        room = max_message_weight(limit, config.costs) or ZERO
        bounds = bounds_of(config, limit).of(self.book.settings.most)
        if not weight.exceeds(room) or bounds.exceeded(weight, page.extent(first.index)):
            return None
        for server in self.servers:
            other = server.room_in(config)
            if other is None or not weight.exceeds(other):
                self._assume(self.conditions, server)
                return None
        needs = "needs" if first == address else f"waits behind {first}, which needs"
        rooms = [f"the {server.room_in(config)} that blocks of {server.title}" for server in self.servers[:LISTED]]
        more = [f"what those of {len(self.servers) - LISTED:,} more"] if len(self.servers) > LISTED else []
        carried = " and ".join(rooms + more) or f"the {room} that such blocks"
        least = limit.at_least(weight.plus(config.costs.overhead))
        return self._answer("stuck", needs=needs, weight=weight, carried=carried, least=least)

    def _skipped(self) -> Explanation:
        facts: dict[str, object] = {}
        if self.book.skipped == PAUSED:
            facts = self._pause() or {}
        elif self.book.skipped == IN_FLIGHT:
            facts = {"holders": self._holders()}
        elif self.book.skipped == BACKOFF:
            facts = {"wake_at": when(moment(self.working_set.stored[self.name].row.wake_at))}
        elif self.book.skipped == BUDGET:
            last = max(self.working_set.buckets_of(self.book), key=attrgetter("wake_at"))
            state = BudgetState.of(last, self.working_set.loader.settings(last.path), self.now)
            facts = {"whose": last.path, "budget": state, "wake_at": when(moment(last.wake_at)), "name": last.path}
        return self._answer(self.book.skipped, None, **facts)

    def _pause(self) -> dict[str, object] | None:
        """Return the facts of the pause of the origin, or of a group above it; None without one."""
        rows, above = self.unit.origins.paused(self.session.ring_id, self.now), self._groups()
        row = next((row for row in rows if row.origin == self.origin or (row.origin in above and row.below)), None)
        if row is None:
            return None
        what = f"{row.origin}, with all below it," if row.below else row.origin
        ends = "" if row.until is None else f" until {when(moment(row.until))}"
        why = f": {row.reason}" if row.reason else ""
        return {"what": what, "ends": ends, "actor": row.actor, "why": why, "name": row.origin}

    def _groups(self) -> Sequence[str]:
        """Return the groups above the origin."""
        return list(names_above(self.origin)) if self.future.config.paths else []

    # The block that takes a message, and the reason for which no earlier one does.

    def _is_taken(self, address: Address, first: ForecastBlock, block: ForecastBlock, verdict: str) -> Explanation:
        whose = f" of {self.server.title}" if self.server is not None and self.server.is_dag else ""
        when = f"the next block{whose}" if block.number == 1 else f"block {block.number}{whose} from now"
        if verdict == "set aside":
            return self._is_too_much(address, when, block)
        if verdict == "expired":
            return self._answer("expired", block=block.number, when=when)
        lacks = self._lacks(address)
        if block.number == 1:
            return self._answer("next", block=1, when=when, lacks=lacks)
        found = self._later(address, first)
        remedies = self._remedies(address, found.reason, block.number - 1, first)
        sentence = f"{self.subject} runs in {when}: {found.sentence}{lacks}."
        return replace(found, sentence=sentence, block=block.number, remedies=remedies)

    def _lacks(self, address: Address) -> str:
        """Return that the external payload of a message is missing; nothing if it is not."""
        if self.page is None or not self.page.note(address.index).blob:
            return ""
        working_set = self.session.fresh_working_set(self.unit, [self.name])
        page = working_set.page_at(address)
        reference = working_set.payloads(self.name, page)[address.index] if page is not None else None
        if not isinstance(reference, Reference) or blobs.is_there(self.session.store, self.unit, reference):
            return ""
        return f"; its payload {reference.hash.hex()} is not there, so it is dropped then as Unsupported"

    def _is_too_much(self, address: Address, when: str, block: ForecastBlock) -> Explanation:
        decision = block.decision(address)
        assert decision is not None and decision.exceeded is not None
        (reason, limit), weight, size = decision.exceeded, decision.weight, self._extent()
        why = in_words(reason, weight, limit, size).removeprefix("it ")
        # Servicing itself costs as much in a block with a higher limit.
        wider = Weight(*(now + max(part - most, 0) for now, part, most in zip(block.limit, weight, limit)))
        facts = {"why": why, "weight": weight, "size": size, "wider": wider.typed}
        return self._answer(reason if reason in _LIMITS else OVERWEIGHT, block.number, when=when, **facts)

    def _later(self, address: Address, first: ForecastBlock | None) -> Explanation:
        """Return why no earlier block takes a message, as a clause."""
        assert self.page is not None
        weight, behind = Scales(self.working_set).weight(self.name, self.page, address.index), self._behind(address)
        reason = first.queue(self.origin, priority_of(self.name)).reason if first else ""
        if behind:
            case = "behind"
        elif reason in ("spent", MOST):
            case = "group spent" if self.future.config.paths else "most spent" if reason == MOST else "spent"
        else:
            case = "limit" if reason == "limit" and first and not _is_full(first, weight) else "turn"
        return self._answer(case, behind=behind, weight=weight)

    def _remedies(self, address: Address, reason: str, most: int, first: ForecastBlock | None) -> list[Remedy]:
        """Return the changes that bring a message forward, found by forecasts as far as these may go."""
        remedies: list[Remedy] = []
        for times in _WIDER:
            if remedies or (first is not None and first.visits * times > self.spare_visits):
                break
            wider = _times(self.future.limit, times)
            remedies += self._if_sooner(f"with a limit of {wider}", address, most, limit=wider)
        for change, conditions in self._changes(reason):
            remedies += self._if_sooner(change, address, most, **conditions)
        return remedies or [Remedy(ONLY_MORE)]

    def _changes(self, reason: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield changes that may help, with the conditions of their forecasts."""
        if self.future.config.order != "deficit":
            yield "in the order deficit", {"changes": {**self.conditions.changes, "order": "deficit"}}
            return
        # A share changes the credit of a visit, not the turn.
        if reason != "turn":
            share = min(2 * self.book.settings.share, 1 << 20)
            yield f"with a share of {share}", {"settings": {self.origin: {"share": share}}}
        for name, most in self._mosts():
            wider = _times(most, 2)
            yield f"with a most of {wider} for {name}", {"settings": {name: {"most": list(wider)}}}

    def _mosts(self) -> list[tuple[str, Weight]]:
        """Return the *most* of the origin, and those of the groups above it, with their names."""
        rows = self.unit.origins.settings(self.session.ring_id, [self.origin, *self._groups()])
        return [(name, most) for name, settings in rows if (most := settings_of(settings).most) is not None]

    def _if_sooner(self, change: str, address: Address, most: int, **conditions: Any) -> list[Remedy]:
        """Return a change as a remedy if one of the next `most` blocks then takes a message."""
        for block in Foresight(self.session, self.unit, replace(self.conditions, **conditions)).blocks(most):
            if block.verdict(address) == "processed":
                return [Remedy(f"{change}, it runs in block {block.number} from now")]
            self.spare_visits -= block.visits
            if self.spare_visits <= 0:
                break
        return []

    # The stored queue.

    def _held(self, names: Sequence[str]) -> Iterator[tuple[BlockRow, Claim]]:
        """Yield the live blocks that hold messages of these books, with their claims."""
        found = holders(self.unit, self.session.ring_id, self.future.overlay.claims_of(names))
        return ((block, claim) for block, claim in found if block.deadline > self.now)

    def _holders(self) -> str:
        held = self._held(books_of(self.origin))
        return " and ".join(dict.fromkeys(_named(block) for block, _ in held if not block.by_hand))

    def _first_waiting(self) -> Address | None:
        found = first_free(self.working_set, self.book, self.taken)
        return None if found is None else Address(self.name, found[0].index, found[1])

    def _behind(self, address: Address) -> int:
        """Return the number of waiting messages before a message in its queue."""
        pages = takewhile(lambda page: page.index <= address.page, self.working_set.window(self.book))
        places = ((page.index, item) for page in pages for item in free_items(page, self.taken))
        return sum(place < (address.page, address.index) for place in places)

    def _sent_at(self, address: Address) -> datetime | None:
        row_ids = [] if self.page is None else [self.page.place_of(address.index)[0]]
        rows = self.unit.inbox.heads(self.session.ring_id, {self.name: row_ids})
        return moment(rows[0].sent_at) if rows else None

    def _extent(self) -> int:
        return 0 if self.page is None or self.address is None else self.page.extent(self.address.index)


def _times(weight: Weight, factor: int) -> Weight:
    return Weight(*(min(factor * part, LARGEST) for part in weight))


def _is_full(block: ForecastBlock, weight: Weight) -> bool:
    """Return whether a block has nothing left of what a message needs."""
    left = [block.limit[part] - block.planned[part] - block.overhead[part] for part in (0, 1)]
    return any(weight[part] and not left[part] for part in (0, 1))


def _named(block: BlockRow) -> str:
    return f"block {block.number}, which lives until {when(moment(block.deadline))}"


def _messages(count: int, whose: str = "") -> str:
    return f"{count:,} messages{whose} are" if count != 1 else f"1 message{whose} is"
