"""History of a message: from events, from the block that holds it, and from the store; also after its end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeAlias

from ....words import when
from ...rules.blob import Reference
from ...rules.errors import InvalidInput, StoreReadOnly
from ...rules.events import ERRORS, Event, EventRun, Fate
from ...rules.message import ID_BYTES, Address, check_address, check_origin, message_id, read_number
from ...rules.page import ASIDE, PROCESSED, Page
from ...rules.priority import books_of
from ...rules.weight import Weight
from ...store.attributes import was_of
from ...store.events import EventRow
from ...store.rows import InboxRow, rows_of, split_heap
from ...store.unit import Unit
from ...store.working_set import StoredSet
from ..session import RingSession
from ..values import moment
from .events import READS, ROWS, runs_of
from .messages import drop_payloads, holders
from .order import all_origins

#: Page and index.
_Place: TypeAlias = tuple[int, int]
_Runs = Iterator[tuple[EventRow, EventRun]]

#: Fates that end a message, and the words for them.
ENDS = {
    Fate.PROCESSED: "processed", Fate.DECLINED: "processed", Fate.BAD_FORMAT: "failed", Fate.CORRUPT: "failed",
    Fate.UNSUPPORTED: "failed", Fate.STACK_LIMIT: "failed", Fate.DISCARDED: "discarded", Fate.EXPIRED: "expired",
    Fate.TRANSFERRED: "transferred",
}  # fmt: skip
_STEPS = {
    **ENDS, Fate.RETURNED: "returned", Fate.SET_ASIDE: "set aside", Fate.ATTEMPTS_EXHAUSTED: "set aside",
    Fate.REQUEUED: "requeued", Fate.EXECUTED: "executed", Fate.SWEPT: "swept",
}  # fmt: skip
#: Fates whose events have the message's own address; those of queues and pages have another one.
_OWN = set(_STEPS) - {Fate.SWEPT}
_SETTLED = {*ENDS.values(), "executed", "set aside", "swept"}


@dataclass(frozen=True)
class Step:
    """One step in the history of a message."""

    #: `enqueued`, `planned`, `returned`, `untried`, `set aside`, `swept`, `requeued`, `executed`, `processed`,
    #: `failed`, `discarded`, `expired`, `transferred`.
    what: str
    address: Address
    at: datetime | None = None
    #: The block of the step; None for service in place and for decisions.
    block: int | None = None
    #: The actor or the policy that decided.
    actor: str | None = None
    why: str = ""
    weight: Weight | None = None


@dataclass(frozen=True)
class History:
    """Steps of a message, in order."""

    #: None if neither an event nor the store contains it, or if only the store does and its payloads may not be read.
    id: bytes | None
    #: Its addresses, in order: a message that is requeued after it was set aside, or that waited aside for the backoff
    #: of a relaxed queue, has a new one. For an id, the addresses of every message with these bytes.
    addresses: list[Address]
    steps: list[Step]
    #: `waiting`, `in flight`, `set aside`, `gone`, or `unknown`.
    state: str
    #: Time at which a delayed message joins its queue; it has no address until then.
    due: datetime | None = None

    @property
    def end(self) -> Step | None:
        """The step that ended it; None while it is stored."""
        ends = [step for step in self.steps if step.what in ENDS.values()]
        return ends[-1] if self.state == "gone" and ends else None


@dataclass
class _Path:
    """Addresses of one message, in order, and its steps."""

    addresses: list[Address]
    steps: list[Step] = field(default_factory=list)
    id: bytes | None = None
    sent: str | None = None
    #: Places that it left to wait aside.
    left: set[Address] = field(default_factory=set)
    due: datetime | None = None

    @property
    def is_settled(self) -> bool:
        """Whether it is gone or set aside."""
        return bool(self.steps) and self.steps[-1].what in _SETTLED

    def add(self, step: Step) -> None:
        """Add a step, preceded by the plan of its block."""
        steps = self.steps
        if steps and steps[-1].what == "untried" and steps[-1].block == step.block:
            # It was behind a requeued message, and was reported nevertheless.
            steps.pop()
        if step.block is not None and (not steps or steps[-1].block != step.block):
            steps.append(Step("planned", step.address, None, step.block))
        # The event of an execution follows that of its outcome.
        steps.insert(len(steps) - 1 if step.what == "executed" and self.is_settled else len(steps), step)


def history_of(session: RingSession, message: Address | bytes, origin: str | None) -> History:
    """See `Inspect.history`."""
    if origin is not None:
        check_origin(origin)
    if isinstance(message, Address):
        check_address(message)
        with suppress(StoreReadOnly), session.store.reading() as unit:
            return _Reader(session, unit).history([message])
        # The role may not read payloads, and an id is the hash of one.
        with session.store.reading() as unit:
            return _Reader(session, unit, hashes=False).history([message])
    if type(message) is not bytes or len(message) != ID_BYTES:
        raise InvalidInput(f"invalid message: expected an address, or an id of {ID_BYTES} bytes")
    with session.store.reading() as unit:
        reader = _Reader(session, unit)
        addresses = reader.named(message, origin)
        due = None if addresses else reader.due(message, origin)
        if due is not None:
            return History(message, [], [], "waiting", due)
        return replace(reader.history(addresses), id=message)


class _Reader:
    """Reads of one transaction about messages."""

    def __init__(self, session: RingSession, unit: Unit, hashes: bool = True) -> None:
        self.session, self.unit, self.ring_id, self.hashes = session, unit, session.ring_id, hashes

    def history(self, addresses: Iterable[Address]) -> History:
        """Return the history of the messages at some addresses."""
        paths: list[_Path] = []
        for address in addresses:
            if not any(address in path.addresses for path in paths):
                paths.append(self._path(address))
        states = [self._complete(path) for path in paths]
        state = next((state for state in states if state != "gone"), states[0] if states else "unknown")
        return History(
            next((path.id for path in paths if path.id), None),
            [address for path in paths for address in path.addresses],
            [step for path in paths for step in path.steps],
            state,
            next((path.due for path in paths if path.due), None),
        )

    # From events.

    def _path(self, address: Address) -> _Path:
        """Follow a message through its addresses."""
        links, left = self._links(address.book)
        back = {to: at for at, to in links.items()}
        place = (address.page, address.index)
        if place not in back and (was := self._was(address)):
            # No event names its new place yet.
            links[was], place = place, was
        while place in back:
            place = back[place]
        places = [place]
        while places[-1] in links:
            places.append(links[places[-1]])
        if places[-1] in left and (joined := self._joined(address.book, places[-1])):
            places.append(joined)
        path = _Path([Address(address.book, *place) for place in places])
        for row, run in self._runs(address.book):
            for at in path.addresses:
                _add(path, at, row, run)
        return path

    def _links(self, book: str) -> tuple[dict[_Place, _Place], set[_Place]]:
        """Return the next place of messages of a book, as far as events name it; and all that messages left to wait."""
        links: dict[_Place, _Place] = {}
        waits: list[Event] = []
        for _, run in self._runs(book):
            for event in run.unroll() if run.fate in (Fate.REQUEUED, Fate.RETURNED) else ():
                if event.moved_to:
                    links[event.page, event.index] = event.moved_to
                if event.wait:
                    waits.append(event)
        # A message that waited aside has the same id in its new place.
        seen: dict[bytes | None, list[_Place]] = {event.id: [] for event in waits}
        for _, run in self._runs(book) if waits else ():
            for at, id_ in enumerate(run.ids if run.fate in _OWN else (), start=run.first):
                if id_ in seen:
                    seen[id_].append((run.page, at))
        taken = set(links.values())
        for event in waits:
            # Forward only, so that no link closes a circle.
            behind = max(event.wait.behind, (event.page, event.index)) if event.wait else ()
            fresh = [place for place in seen[event.id] if place > behind and place not in taken]
            if fresh:
                links[event.page, event.index] = min(fresh)
                taken.add(min(fresh))
        return links, {(event.page, event.index) for event in waits}

    def _was(self, address: Address) -> _Place | None:
        """Return the place where a stored message waited aside from."""
        page = self.session.fresh_working_set(self.unit, [address.book]).page_at(address)
        if page is None:
            return None
        row_id = page.place_of(address.index)[0]
        for row in self.unit.inbox.heads(self.ring_id, {address.book: [row_id]}):
            return was_of(row.attributes)
        return None

    def _joined(self, book: str, place: _Place) -> _Place | None:
        """Return the place of a stored message that left another one to wait aside, and joined its queue since."""
        for index, page in self._pages(self.session.fresh_working_set(self.unit, [book]), book):
            rows = self.unit.inbox.heads(self.ring_id, {book: sorted(page.slices.row_ids)})
            row_id = next((row.id for row in rows if was_of(row.attributes) == place), None)
            item = next((at for at, (id_, _) in enumerate(page.slices.places()) if id_ == row_id), None)
            if item is not None and page.marks[item] != PROCESSED:
                return index, item
        return None

    def _pages(self, working_set: StoredSet, name: str) -> Iterator[tuple[int, Page]]:
        """Return all pages of a queue, with those of messages that lie in no stored page yet."""
        book = working_set.book(name)
        working_set.loader.pages.load_all(name)
        working_set.pull_all(book)
        yield from ((index, page) for (_, index), page in sorted(working_set.pages.items()) if page is not None)

    def _runs(self, book: str | None, also: str | None = None, id: bytes | None = None) -> _Runs:
        """Yield the events of a book and of another one, or of all; of an id, from rows that may contain it."""
        last = -1
        while True:
            rows = self.unit.events.after(self.ring_id, last, ROWS, origin=book, also=also)
            yield from ((row, run) for row in rows if id is None or id in bytes(row.data) for run in runs_of(row))
            if len(rows) < ROWS:
                return
            last = rows[-1].id

    def named(self, id: bytes, origin: str | None) -> list[Address]:
        """Return the addresses of messages with an id: from events, or else of waiting messages."""
        high, regular = (None, None) if origin is None else books_of(origin)
        found = [
            Address(run.origin, run.page, run.first + offset)
            for _, run in self._runs(regular, high, id)
            for offset, event_id in enumerate(run.ids)
            if event_id == id
        ]
        return list(dict.fromkeys(found or self._waiting(id, origin)))

    def _waiting(self, id: bytes, origin: str | None) -> Iterator[Address]:
        for name in books_of(origin) if origin is not None else all_origins(self.unit, self.ring_id):
            working_set = self.session.fresh_working_set(self.unit, [name])
            for index, page in self._pages(working_set, name):
                for item, payload in enumerate(working_set.payloads(name, page)):
                    if page.marks[item] != PROCESSED and message_id(payload) == id:
                        yield Address(name, index, item)
                drop_payloads(working_set, [page])

    def due(self, id: bytes, origin: str | None) -> datetime | None:
        """Return the time at which a delayed message with an id joins its queue."""
        books = None if origin is None else books_of(origin)
        due = last = -1
        while rows := self.unit.inbox.delayed(self.ring_id, due, last, ROWS):
            wanted: dict[int, int] = {}
            for due, row in rows:
                last = row.id
                if books is None or row.origin in books:
                    wanted[row.id] = due
            heaps = [InboxRow(*row) for row in self.unit.inbox.delayed_heaps(list(wanted))]
            found = [wanted[row.id] for row in heaps if id in _ids(row)]
            if found:
                return moment(min(found))
        return None

    # From the stored message.

    def _complete(self, path: _Path) -> str:
        """Add the send, the times of blocks and a live block to the steps; return the state of the message."""
        last = path.addresses[-1]
        working_set = self.session.fresh_working_set(self.unit, [last.book])
        page = working_set.page_at(last)
        arrival = None if page is None else working_set.loader.pages.arrivals([last]).get(last)
        state = "gone"
        if page is not None and page.marks[last.index] != PROCESSED:
            path.id = path.id or (working_set.id_of(last.book, page, last.index) if self.hashes else None)
            state = self._state(working_set, path, page)
        else:
            due = working_set.reading.put_off_from(last.book, (last.page, last.index))
            if due is not None:
                path.due, state = moment(due), "waiting"
        if not path.steps and state == "gone" and arrival is None:
            return "unknown"
        at = moment(arrival.at) if arrival else datetime.fromisoformat(path.sent) if path.sent else None
        first = next((step.block for step in path.steps if step.block is not None), None)
        before = None if at else self._planned_at(first) or next((step.at for step in path.steps), None)
        why = "" if before is None else f"some time before {when(before)}"
        steps = [
            replace(step, at=self._planned_at(step.block)) if step.what == "planned" else step for step in path.steps
        ]
        path.steps = [Step("enqueued", path.addresses[0], at, None, None, why), *steps]
        return state

    def _state(self, working_set: StoredSet, path: _Path, page: Page) -> str:
        last = path.addresses[-1]
        for block, claim in holders(self.unit, self.ring_id, self.unit.blocks.claims_on(self.ring_id, [last.book])):
            if claim.run_of(last):
                actor = str(block.details_json.get("by", "")) or None
                by_hand = "to be executed by hand" if block.by_hand else ""
                path.steps.append(Step("planned", last, moment(block.planned_at), block.number, actor, by_hand))
                return "in flight"
        behind = last.page < working_set.book(last.book).begin
        return "set aside" if page.marks[last.index] == ASIDE or behind else "waiting"

    def _planned_at(self, block: int | None) -> datetime | None:
        """Return the time at which a block was planned, if the store still keeps it."""
        if block is None:
            return None
        rows = self.unit.blocks.latest(self.ring_id, before=block + 1, limit=1)
        return moment(rows[0].planned_at) if rows and rows[0].number == block else None


def _ids(row: InboxRow) -> list[bytes]:
    """Return the ids of the messages of an inbox row."""
    notes = rows_of([row]).notes
    payloads = enumerate(split_heap(bytes(row.heap or b""), row.size, row.items, row.lengths))
    return [
        message_id(Reference.read(payload) if item in notes and notes[item].blob else payload)
        for item, payload in payloads
    ]


def _add(path: _Path, place: Address, row: EventRow, run: EventRun) -> None:
    """Add a run of events to the steps of a message if it concerns the message."""
    if run.page == place.page and run.fate in _OWN and 0 <= place.index - run.first < len(run.ids):
        at = place.index - run.first
        event = next(run.part(at, at + 1).unroll(row.block, row.at / 1_000_000))
        path.id, path.sent = path.id or event.id, path.sent or event.sent
        path.add(_step(event, place, moment(row.at)))
        if event.wait:
            path.left.add(place)
    elif place not in path.left and not path.is_settled and _concerns(run, place):
        step = _step(next(run.unroll(row.block, row.at / 1_000_000)), place, moment(row.at))
        if run.fate is Fate.RETURNED:
            first = Address(place.book, run.page, run.first + len(run.ids) - 1)
            step = replace(step, what="untried", why=f"{first} before it returned")
        path.add(step)


def _step(event: Event, place: Address, at: datetime) -> Step:
    why = event.why
    if event.fate in ERRORS:
        why = ERRORS[event.fate]
    elif event.fate is Fate.DECLINED:
        why = "without success"
    elif event.fate is Fate.TRANSFERRED:
        why = f"to {event.detail}"
    elif event.fate is Fate.ATTEMPTS_EXHAUSTED and event.last_error:
        why = f"{why}; the last error: {event.last_error}"
    return Step(_STEPS[event.fate], place, at, event.block, event.actor, why, event.weight)


def _concerns(run: EventRun, place: Address) -> bool:
    """Return whether events of another message, or of the queue, concern this message."""
    if run.fate is Fate.SWEPT:
        last = run.detail.partition(" to ")[2].partition(" ")[0]
        until = read_number(last)
        return run.page <= place.page and (until is None or place.page <= until)
    if run.fate is Fate.RETURNED:
        up_to = next(run.unroll()).untried_up_to
        here = (place.page, place.index)
        return up_to is not None and (run.page, run.first + len(run.ids) - 1) < here <= up_to
    return False


def count_ends(unit: Unit, ring: int, after: int) -> tuple[int, int]:
    """Return how many messages ended after an event row, as far as a bounded reading goes, and its last row."""
    count = 0
    for _ in range(READS):
        rows = unit.events.after(ring, after, ROWS)
        for row in rows:
            after, count = row.id, count + sum(len(run.ids) for run in runs_of(row) if run.fate in ENDS)
        if len(rows) < ROWS:
            break
    return count, after
