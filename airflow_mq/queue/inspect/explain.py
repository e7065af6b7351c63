"""Reasons for which a message waits, the block that takes it, and what would change that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from ...core.blob import Reference
from ...core.claims import Claim, ClaimRun, Scales, Verdict
from ...core.config import DAY
from ...core.events import NOT_TRIED, Event, Fate
from ...core.groups import is_below, names_above
from ...core.judging import ATTEMPTS, FRACTION, MOST, OVERWEIGHT, SIZE, SWEPT, bounds_of, in_words
from ...core.message import Address
from ...core.page import ASIDE, PROCESSED, WAITING, Page
from ...core.priority import REGULAR, book_name, books_of, check_priority, origin_of, priority_of
from ...core.service import overweight_limit
from ...core.weight import LARGEST, ZERO, Weight, max_message_weight
from ...store import blobs, codec
from ...store.rows import LATEST, PLANNED, BlockRow, standing_of
from ...store.unit import Unit
from ...words import many, when
from ..ledger import ledger_pages
from ..servers import Server, servers_of
from ..session import RingSession
from ..values import moment
from .events import latest_events
from .forecast import Conditions, ForecastBlock, Foresight
from .messages import in_flight, page_at
from .order import ready_books

#: Default number of blocks to forecast.
AHEAD = 100
#: Visits (`ForecastBlock.visits`) after which an explanation forecasts no further block, and those of the forecasts
#: that look for remedies, all together: about half a second of CPU each.
MOST_VISITS, MOST_REMEDY_VISITS = 3_000, 2_000
#: Pages of the ledger that are searched for stuck queues.
LEDGER_PAGES = 20
#: Latest events of a queue that are searched for the last error of a message.
LOOKED_AT = 1_000
#: Reasons for which a message is set aside that a higher limit would change.
_LIMITS = (OVERWEIGHT, MOST, FRACTION, SIZE)
#: Factors by which a limit is raised to find a remedy.
_WIDER = (2, 8, 64)
#: Servers that an explanation names.
_NAMED = 4
_ONLY_MORE = "blocks more often: no wider limit or most, larger share or other order that was tried brings it forward"
_UNHOLD = "that block settled or, if no process works on it, released: airflow-mq block list --state planned"


@dataclass(frozen=True)
class Explanation:
    """The reason for which a message, or the first one of a queue, waits."""

    origin: str
    #: The message; of a queue, the first one that waits.
    address: Address | None
    #: `next` (the next block takes it), `turn`, `limit`, `spent`, `behind`, `overweight`, `expired`, `paused`,
    #: `in flight`, `reported`, `backoff`, `not due`, `set aside`, `gone`, `empty`, `nowhere`, `chance`, `stuck` (its
    #: queue waits behind a message that is heavier than any block that services it), or `unserved` (no DAG or program
    #: that services the ring takes this origin).
    reason: str
    #: The reason as a sentence.
    sentence: str
    #: Number of the next block that tries it if nothing changes, from 1; None if none does, or if that is unknown.
    block: int | None = None
    #: Changes that would help.
    remedies: Sequence[str] = ()
    #: Number of failed attempts.
    attempts: int = 0
    #: Error of the latest attempt, or the reason for which no processor got the message.
    last_error: str = ""


def explain_queue(
    session: RingSession,
    unit: Unit,
    origin: str,
    priority: str | None,
    conditions: Conditions,
    ahead: int,
    *,
    below: bool,
) -> Explanation:
    """See `Inspect.explain`."""
    if below:
        name = _first_below(Foresight(session, unit, conditions), origin, ahead)
        origin, priority = origin_of(name), priority_of(name)
    name = book_name(origin, check_priority(priority or REGULAR))
    if priority is None and session.remember_config(unit.rings.named(session.ring).config).high:
        high, found = (_Question(session, unit, book, conditions, ahead).of_queue() for book in books_of(origin))
        # A high message that is in flight or set aside does not hide regular ones that wait.
        if high.address or (found.reason == "empty" and high.reason != "empty"):
            found = high
    else:
        found = _Question(session, unit, name, conditions, ahead).of_queue()
    return _with_last_error(unit, session.ring_id, found)


def explain_message(
    session: RingSession, unit: Unit, address: Address, conditions: Conditions, ahead: int
) -> Explanation:
    """See `Inspect.explain_message`."""
    found = _Question(session, unit, address.book, conditions, ahead).of_message(address)
    add = _with_fate if found.reason == "gone" else _with_last_error
    return add(unit, session.ring_id, found)


def stuck_queues(session: RingSession, unit: Unit, most: int) -> list[Explanation]:
    """See `Inspect.stuck`."""
    if not servers_of(unit, session.ring_id):
        return []
    working_set, pages = session.fresh_working_set(unit), ledger_pages(unit, session.ring_id, LEDGER_PAGES)
    recorded = (book_name(entry.origin, entry.priority) for page in pages for entry in page.entries if entry.needs)
    names = [*islice(recorded, most), *islice(ready_books(working_set), most)]
    found = (_Question(session, unit, name, Conditions(), 0).stuck() for name in dict.fromkeys(names))
    return [explanation for explanation in found if explanation is not None]


def _first_below(future: Foresight, group: str, ahead: int) -> str:
    """Return the book of a group that a block services first, or else the first ready one."""
    ready = next((name for name in ready_books(future.working_set()) if is_below(origin_of(name), group)), None)
    if ready is None:
        return group
    claims = (claim for block in future.blocks(ahead) for claim in block.claims if claim.messages)
    return next((claim.origin for claim in claims if is_below(claim.whose, group)), ready)


def _with_last_error(unit: Unit, ring: int, found: Explanation) -> Explanation:
    """Add the number of attempts, and the reason for which the last one failed."""
    address = found.address
    if address is None:
        return found
    events = latest_events(unit, ring, LATEST, LOOKED_AT, origin=address.origin)[0]
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
    return replace(found, sentence=f"{'; '.join(clauses)}.", last_error=error)


def _with_fate(unit: Unit, ring: int, found: Explanation) -> Explanation:
    """Add the last event of a message that is gone."""
    before: int | None = LATEST
    while before is not None:
        events, before = latest_events(unit, ring, before, LOOKED_AT, origin=found.origin)
        fate = next((event for event in events if event.address == found.address), None)
        if fate is not None:
            more = f" to {fate.detail}" if fate.fate is Fate.TRANSFERRED else ""
            if fate.moved_to is not None:
                page, index = fate.moved_to
                more = f"; it goes on at {replace(fate.address, page=page, index=index)}"
            sentence = f"{found.address} is gone: {fate.name}{_in_block(fate)}{more}."
            return replace(found, sentence=sentence)
    return found


def _in_block(event: Event) -> str:
    return "" if event.block is None else f" in block {event.block}"


def _has_error(event: Event, address: Address) -> bool:
    """Return whether an event has the error of a message, or the reason for which it was not tried."""
    if event.fate not in (Fate.WENT_BACK, Fate.ATTEMPTS_EXHAUSTED):
        return False
    if event.address == address:
        return True
    up_to = event.untried_up_to
    here, there = (address.page, address.index), (event.page, event.index)
    same = event.priority == address.priority and event.why.startswith(NOT_TRIED)
    return same and up_to is not None and there < here <= up_to


class _Question:
    """A question about a queue, or one of its messages."""

    def __init__(self, session: RingSession, unit: Unit, name: str, conditions: Conditions, ahead: int) -> None:
        self.session, self.unit, self.name, self.ahead = session, unit, name, ahead
        #: Visits that forecasts of remedies may still make.
        self.spare_visits = MOST_REMEDY_VISITS
        self.origin, ring = origin_of(name), session.ring_id
        config = session.remember_config(unit.rings.named(session.ring).config)
        self.is_known = conditions.seed is not None or config.order != "shuffle"
        #: All servers of the ring, and those that take this origin; none if the caller sets a limit.
        self.all_servers = servers_of(unit, ring) if conditions.limit is None else []
        self.servers = [server for server in self.all_servers if server.takes(self.origin)]
        conditions = conditions if self.is_known else replace(conditions, seed=b"unknown")
        self._assume(conditions, next(iter(self.servers), None))
        self.now, self.working_set = self.future.overlay.now, self.future.working_set()
        self.book = self.working_set.book(name)
        self.held = list(self._held([name]))
        self.taken = {place for _, claim in self.held for place in claim.places()}

    def _assume(self, conditions: Conditions, server: Server | None) -> None:
        """Forecast with the blocks of a server."""
        self.server, self.conditions = server, conditions if server is None else conditions.of(server)
        self.future = Foresight(self.session, self.unit, self.conditions)

    def _answer(
        self, reason: str, sentence: str, *remedies: str, address: Address | None = None, block: int | None = None
    ) -> Explanation:
        page = None if address is None else self.working_set.page(self.name, address.page)
        there = page is not None and address is not None and address.index < len(page.lengths)
        attempts = page.note(address.index).attempts if page is not None and address is not None and there else 0
        return Explanation(self.origin, address, reason, sentence, block, list(remedies), attempts)

    def of_queue(self) -> Explanation:
        """Return why the first message waits."""
        address = self._first_waiting()
        return self._nothing_waits() if address is None else self._waits(address, self._subject(address))

    def stuck(self) -> Explanation | None:
        """Return that no server takes the queue or carries its first message; None if one does."""
        address = None if self.book.skipped else self._first_waiting()
        return None if address is None else self._hindered(address, self._subject(address))

    def of_message(self, address: Address) -> Explanation:
        """Return why a message waits."""
        for block, claim in self.held:
            run = claim.run_of(address)
            if run is not None:
                return self._is_held(address, block, run)
        page = page_at(self.working_set, address)
        if page is None or address.index >= len(page.lengths):
            return self._is_not_there(address)
        mark = page.marks[address.index]
        if mark == PROCESSED:
            return self._is_gone(address)
        if mark == ASIDE or address.page < self.book.begin:
            return self._is_set_aside(address)
        return self._waits(address, str(address))

    def _subject(self, address: Address) -> str:
        return f"the first message of {self.origin}, {address},"

    # Messages that no block takes.

    def _nothing_waits(self) -> Explanation:
        if self.held:
            return self._answer(
                "in flight", f"all that waits of {self.origin} is in flight, in {self._holders()}.", _UNHOLD
            )
        count, due = self.unit.inbox.delayed_of(self.session.ring_id, self.name, self.now)
        if due is not None:
            sentence = f"{_messages(count, f' of {self.origin}')} not due before {when(moment(due))}."
            return self._answer("not due", sentence, "nothing but time: its sender set this time")
        if not self.book.message_count:
            return self._answer("empty", f"{self.origin} has no messages.")
        left = f"all that is left of {self.origin} is set aside ({self.book.message_count:,})"
        remedy = f"airflow-mq set-aside list --origin {self.origin}"
        return self._answer("set aside", f"{left}, and waits for a person.", remedy)

    def _is_held(self, address: Address, block: BlockRow, run: ClaimRun) -> Explanation:
        decision, reason = run.decisions.get(address.index), "in flight"
        if decision is not None and decision.verdict is Verdict.EXPIRED:
            sentence = f"{address} has expired: it is dropped when {_named(block)}, is settled."
        elif decision is not None:
            why = in_words(decision.reason, decision.weight, decision.limit, self._extent(address))
            sentence = f"{address} is set aside when {_named(block)}, is settled: {why}."
        elif (address.page, address.index) in in_flight(self.unit, self.session.ring_id, self.name)[1]:
            reason = "reported"
            sentence = f"{address} was answered for in block {block.number}, and goes when that is settled."
        else:
            doing = "is being executed by hand" if block.by_hand else "is being processed"
            sentence = f"{address} {doing} in {_named(block)}."
        return self._answer(reason, sentence, _UNHOLD, address=address)

    def _is_gone(self, address: Address) -> Explanation:
        return self._answer("gone", f"{address} is gone: it was processed, or dropped.", address=address)

    def _is_not_there(self, address: Address) -> Explanation:
        if address.page < self.book.end and self.working_set.page(self.name, address.page) is None:
            return self._is_gone(address)
        later = self.unit.inbox.delayed_of(self.session.ring_id, self.name, self.now)[0]
        more = f"; {_messages(later)} not due yet, and have no address" if later else ""
        return self._answer("nowhere", f"no message was ever at {address}{more}.", address=address)

    def _is_set_aside(self, address: Address) -> Explanation:
        rows = self.unit.set_aside.of_pages(self.session.ring_id, [(self.name, address.page)])
        row = next((row for row in rows if row.item == address.index), None)
        if row is None:
            why = in_words(SWEPT if address.page < self.book.begin else ATTEMPTS, None, None, 0)
        else:
            weight, limit = codec.unpack_weight(row.weight), codec.unpack_weight(row.weight_limit)
            why = in_words(row.reason, weight, limit, self._extent(address))
        remedies = [f"airflow-mq set-aside execute {address} --processor module:function"]
        if row is not None and row.reason in _LIMITS:
            remedies.append(f"a higher limit, then airflow-mq set-aside requeue {address} --why …")
        remedies.append(f"airflow-mq set-aside discard {address} --why …")
        sentence = f"{address} is set aside: {why}; it waits for a person."
        return self._answer("set aside", sentence, *remedies, address=address)

    # Messages that wait for a block.

    def _waits(self, address: Address, subject: str) -> Explanation:
        if self.book.skipped:
            reason, sentence, remedy = self._skipped()
            return self._answer(reason, sentence, remedy, address=address)
        hindered = self._hindered(address, subject)
        if hindered is not None:
            return hindered
        if not self.is_known:
            sentence = f"{subject} waits for its turn, which is drawn anew for each block, as this ring shuffles."
            return self._answer(
                "chance", sentence, "specify the seed of the next blocks to get an answer", address=address
            )
        first: ForecastBlock | None = None
        visits, blocks, note = 0, self.ahead, ""
        for block in self.future.blocks(self.ahead):
            first = first or block
            verdict = block.verdict(address)
            if verdict is not None:
                return self._is_taken(address, subject, first, block, verdict)
            visits += block.visits
            if visits >= MOST_VISITS and block.number < self.ahead:
                blocks, note = block.number, "; an explanation forecasts no more blocks of this size"
                break
        reason, why = self._reason(address, first)
        sentence = f"{subject} is not tried in the next {many(blocks, 'block')}: {why}{note}."
        return self._answer(reason, sentence, *self._remedies(address, reason, blocks, first), address=address)

    def _hindered(self, address: Address, subject: str) -> Explanation | None:
        """Return that no server takes the origin, or that its first message is too heavy for all; None otherwise."""
        if self.servers or not self.all_servers:
            return self._stuck(address, subject)
        named = "; ".join(f"{server.name} takes {server.patterns}" for server in self.all_servers[:_NAMED])
        more = f"; and {len(self.all_servers) - _NAMED:,} more" if len(self.all_servers) > _NAMED else ""
        waits = f"{subject} waits for a processor: no DAG or program that services this ring takes {self.origin}"
        remedy = f"a processor whose origins match {self.origin}, in one of these DAGs or in another"
        return self._answer("unserved", f"{waits} ({named}{more}).", remedy, address=address)

    def _stuck(self, address: Address, subject: str) -> Explanation | None:
        first, config, limit = self._first_waiting(), self.future.config, self.future.limit
        weight = self._weight(first) if first is not None else None
        room = max_message_weight(limit, config.costs) or ZERO
        if first is None or weight is None or not weight.exceeds(room):
            return None
        bounds = bounds_of(config, overweight_limit(self.working_set, limit)).of(self.book.standing.most)
        if bounds.exceeded(weight, self._extent(first)):
            return None
        for server in self.servers:
            other = server.room_in(config)
            if other is None or not weight.exceeds(other):
                self._assume(self.conditions, server)
                return None
        whose = f"blocks of {self.server.name}" if self.server is not None else "such blocks"
        what = f"needs {weight}" if first == address else f"waits behind {first}, which needs {weight}"
        least = limit.at_least(weight.plus(config.costs.overhead))
        return self._answer(
            "stuck",
            f"{subject} {what}, more than the {room} that {whose} can carry: it stays where it is.",
            f"a limit of at least {least} for these blocks",
            "setting it aside: airflow-mq ring change --set set_aside_above=block",
            address=address,
        )

    def _skipped(self) -> tuple[str, str, str]:
        if self.book.skipped == "paused":
            rows = self.unit.origins.paused(self.session.ring_id, self.now)
            above = self._groups()
            row = next(row for row in rows if row.origin == self.origin or (row.origin in above and row.below))
            ends = "" if row.until is None else f" until {when(moment(row.until))}"
            what = f"{row.origin}, with all below it," if row.below else row.origin
            sentence = f"{what} is paused{ends} by {row.actor}{': ' if row.reason else ''}{row.reason}."
            return "paused", sentence, f"airflow-mq queue resume {row.origin}"
        if self.book.skipped == "in flight":
            sentence = f"{self.origin} is ordered, and messages before it are in flight, in {self._holders()}."
            return "in flight", sentence, _UNHOLD
        wake_at = when(moment(self.working_set.stored[self.name].row.wake_at))
        sentence = f"a message of {self.origin} went back; its queue is tried again from {wake_at} on."
        return "backoff", sentence, "a shorter backoff of the ring, for what goes back from then on"

    def _groups(self) -> Sequence[str]:
        """Return the groups above the origin."""
        return list(names_above(self.origin)) if self.future.config.paths else []

    # The block that takes a message, and the reason for which no earlier one does.

    def _is_taken(
        self, address: Address, subject: str, first: ForecastBlock, block: ForecastBlock, verdict: str
    ) -> Explanation:
        whose = f" of {self._named_server(self.server)}" if self.server is not None and self.server.is_dag else ""
        when = f"the next block{whose}" if block.number == 1 else f"block {block.number}{whose} from now"
        if verdict == "set aside":
            return self._is_too_much(address, subject, when, block)
        if verdict == "expired":
            reason, sentence = "expired", f"{address} has expired: {when} drops it."
            remedies = ["that it is sent again, to expire later"]
        elif block.number == 1:
            reason, sentence, remedies = "next", f"{subject} runs in {when}{self._lacks(address)}.", []
        else:
            reason, why = self._reason(address, first)
            sentence = f"{subject} runs in {when}: {why}{self._lacks(address)}."
            remedies = self._remedies(address, reason, block.number - 1, first)
        return self._answer(reason, sentence, *remedies, address=address, block=block.number)

    def _named_server(self, server: Server) -> str:
        """Return the name of a server, with the time of its latest block if that is more than a day ago."""
        age = (moment(self.now) - server.at).total_seconds()
        return f"{server.name} (which planned its last block at {when(server.at)})" if age > DAY else server.name

    def _lacks(self, address: Address) -> str:
        """Return that the external payload of a message is missing; nothing if it is not."""
        page = self.working_set.page(self.name, address.page)
        if page is None or not page.note(address.index).blob:
            return ""
        working_set = self.session.fresh_working_set(self.unit)
        page = page_at(working_set, address)
        reference = working_set.payloads(self.name, page)[address.index] if page is not None else None
        if not isinstance(reference, Reference) or blobs.is_there(self.session.store, self.unit, reference):
            return ""
        return f"; its payload {reference.hash.hex()} is not there, so it is dropped then as Unsupported"

    def _is_too_much(self, address: Address, subject: str, when: str, block: ForecastBlock) -> Explanation:
        decision = block.decision(address)
        assert decision is not None
        reason, weight, size = decision.reason, decision.weight, self._extent(address)
        why = in_words(reason, weight, decision.limit, size).removeprefix("it ")
        # Servicing itself costs as much in a block with a higher limit.
        wider = Weight(*(now + max(part - most, 0) for now, part, most in zip(block.limit, weight, decision.limit)))
        remedies = {
            MOST: f"a most that allows {weight}: airflow-mq queue set {self.origin} --most …",
            FRACTION: f"a most_of_limit that allows {weight}: airflow-mq ring change --set most_of_limit=…",
            SIZE: f"a max_message_size of {size}: airflow-mq ring change --set max_message_size={size}",
        }
        service_weight = f"airflow-mq ring change --service-weight {wider.time}/{wider.size}"
        remedy = remedies.get(reason, f"a limit that leaves {weight} for a message: {service_weight}")
        sentence = f"{subject} {why}: {when} sets it aside."
        return self._answer("overweight", sentence, remedy, address=address, block=block.number)

    def _reason(self, address: Address, first: ForecastBlock | None) -> tuple[str, str]:
        behind = self._behind(address)
        if behind:
            return "behind", f"{behind:,} of its own queue come before it"
        weight, reason = self._weight(address), first.queue(self.origin, priority_of(self.name)).reason if first else ""
        if reason == "spent" and self.future.config.paths:
            return "spent", "it, or a group that holds it, had its share or its most of the blocks before"
        if reason == "spent":
            return "spent", f"it weighs {weight}, for which its queue has not saved enough yet"
        if reason == "limit" and first and not _is_full(first, weight):
            return "limit", f"it weighs {weight}, more than others leave of the blocks before"
        return "turn", "the blocks before are full when its turn would come"

    def _remedies(self, address: Address, reason: str, most: int, first: ForecastBlock | None) -> list[str]:
        """Return the changes that bring a message forward, found by forecasts as far as these may go."""
        remedies = []
        for times in _WIDER:
            if first is not None and first.visits * times > self.spare_visits:
                break
            wider = _times(self.future.limit, times)
            conditions = replace(self.conditions, limit=wider)
            remedies += self._if_sooner(f"with a limit of {wider}", address, most, conditions)
            if remedies:
                break
        if self.future.config.order != "deficit":
            conditions = replace(self.conditions, changes={**self.conditions.changes, "order": "deficit"})
            remedies += self._if_sooner("in the order deficit", address, most, conditions)
            return remedies or [_ONLY_MORE]
        # A share changes the credit of a visit, not the turn.
        if reason != "turn":
            share = min(2 * self.book.standing.share, 1 << 20)
            conditions = replace(self.conditions, shares={self.origin: share})
            remedies += self._if_sooner(f"with a share of {share}", address, most, conditions)
        for name, settings in self.unit.origins.settings(self.session.ring_id, [self.origin, *self._groups()]):
            now = standing_of(settings).most
            if now is not None:
                wider = _times(now, 2)
                conditions = replace(self.conditions, mosts={name: wider})
                remedies += self._if_sooner(f"with a most of {wider} for {name}", address, most, conditions)
        return remedies or [_ONLY_MORE]

    def _if_sooner(self, change: str, address: Address, most: int, conditions: Conditions) -> list[str]:
        """Return a change as a remedy if one of the next `most` blocks then takes a message."""
        for block in Foresight(self.session, self.unit, conditions).blocks(most):
            if block.verdict(address) == "processed":
                return [f"{change}, it runs in block {block.number} from now"]
            self.spare_visits -= block.visits
            if self.spare_visits <= 0:
                break
        return []

    # The stored queue.

    def _held(self, names: Sequence[str]) -> Iterator[tuple[BlockRow, Claim]]:
        """Yield the live blocks that hold messages of these books, with their claims."""
        if not self.future.overlay.claims_of(names):
            return
        for block in self.unit.blocks.latest(self.session.ring_id, PLANNED):
            for origin, data in self.unit.blocks.claims(block.id) if block.deadline > self.now else ():
                if origin in names:
                    yield block, codec.unpack_claim(origin, bytes(data))

    def _holders(self) -> str:
        held = self._held(books_of(self.origin))
        return " and ".join(dict.fromkeys(_named(block) for block, _ in held if not block.by_hand))

    def _first_waiting(self) -> Address | None:
        index = self.book.begin
        while index < self.book.end or self.working_set.pull(self.book):
            page = self.working_set.page(self.name, index)
            for item in self._waiting(page) if page is not None else ():
                return Address(self.name, index, item)
            if index < self.book.end - 1 or not self.working_set.pull(self.book):
                index += 1
        return None

    def _waiting(self, page: Page) -> Iterator[int]:
        places = ((page.index, item) for item, mark in enumerate(page.marks) if mark == WAITING)
        return (place[1] for place in places if place not in self.taken)

    def _behind(self, address: Address) -> int:
        """Return the number of waiting messages before a message in its queue."""
        pages = (self.working_set.page(self.name, index) for index in range(self.book.begin, address.page + 1))
        places = ((page.index, item) for page in pages if page is not None for item in self._waiting(page))
        return sum(place < (address.page, address.index) for place in places)

    def _extent(self, address: Address) -> int:
        page = self.working_set.page(self.name, address.page)
        return page.extent(address.index) if page is not None else 0

    def _weight(self, address: Address) -> Weight | None:
        page = self.working_set.page(self.name, address.page)
        return None if page is None else Scales(self.working_set).weight(self.name, page, address.index)


def _times(weight: Weight, factor: int) -> Weight:
    return Weight(*(min(factor * part, LARGEST) for part in weight))


def _is_full(block: ForecastBlock, weight: Weight | None) -> bool:
    """Return whether a block has nothing left of what a message needs."""
    left = [block.limit[part] - block.planned[part] - block.overhead[part] for part in (0, 1)]
    return weight is not None and any(weight[part] and not left[part] for part in (0, 1))


def _named(block: BlockRow) -> str:
    return f"block {block.number}, which lives until {when(moment(block.deadline))}"


def _messages(count: int, whose: str = "") -> str:
    return f"{count:,} messages{whose} are" if count != 1 else f"1 message{whose} is"
