"""A message's whole story, from events, from the block that holds it, and from where it lies; also when it is gone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from ...core.blob import Reference
from ...core.errors import InvalidInput
from ...core.events import ERRORS, Event, EventRun, Fate
from ...core.message import Address, check_address, check_origin, message_id, read_number
from ...core.page import ASIDE, PROCESSED, Page
from ...core.priority import books_of
from ...core.weight import Weight
from ...store import codec
from ...store.rows import PLANNED, inbox_row_of, split_row
from ...store.unit import Unit
from ...store.working_set import StoredSet
from ...words import when
from ..session import RingSession
from ..values import moment
from .reading import all_origins, page_at

#: Bytes of a message's name.
ID_BYTES = 32
_ROWS = 256
#: What ends a message.
ENDS = {
    Fate.PROCESSED: "processed", Fate.DECLINED: "processed", Fate.BAD_FORMAT: "failed", Fate.CORRUPT: "failed",
    Fate.UNSUPPORTED: "failed", Fate.STACK_LIMIT: "failed", Fate.DISCARDED: "discarded", Fate.EXPIRED: "expired",
    Fate.TRANSFERRED: "transferred",
}  # fmt: skip
_STEPS = {
    **ENDS, Fate.WENT_BACK: "went back", Fate.SET_ASIDE: "set aside", Fate.ATTEMPTS_EXHAUSTED: "set aside",
    Fate.REJUDGED: "requeued", Fate.EXECUTED: "executed", Fate.SWEPT: "swept",
}  # fmt: skip
#: What is told of a message by its own address; what happens to a queue, or a page, by another.
_OWN = set(_STEPS) - {Fate.SWEPT}
_SETTLED = {*ENDS.values(), "executed", "set aside", "swept"}


@dataclass(frozen=True)
class Step:
    """One thing that happened to a message."""

    #: `enqueued`, `planned`, `went back`, `untried`, `set aside`, `swept`, `requeued`, `executed`, `processed`,
    #: `failed`, `discarded`, `expired`, `transferred`.
    what: str
    address: Address
    at: datetime | None = None
    #: The block in which it happened; none, where it was serviced in place, or a person or a policy decided.
    block: int | None = None
    #: The actor of a decision: a person, a task or a policy.
    actor: str | None = None
    why: str = ""
    weight: Weight | None = None


@dataclass(frozen=True)
class History:
    """What became of a message, in order."""

    #: Its name, where anything tells it.
    id: bytes | None
    #: Where it lay, in order: a new address for each time that it went back into its queue after it was set aside.
    #: Of a story that was asked for by name, every message with these bytes.
    addresses: list[Address]
    steps: list[Step]
    #: Where it is now: `waiting`, `in flight`, `set aside`, `gone`, or `unknown`.
    state: str
    #: Of one that is for later, and so has no address yet: when it joins its queue.
    due: datetime | None = None

    @property
    def end(self) -> Step | None:
        """What ended it; nothing, as long as it is there."""
        last = self.steps[-1] if self.steps and self.state == "gone" else None
        ends = [step for step in self.steps if step.what in ENDS.values()]
        return ends[-1] if last is not None and ends else None


@dataclass
class _Path:
    """The addresses of one message, in order, and what is told of each."""

    addresses: list[Address]
    steps: list[Step] = field(default_factory=list)
    id: bytes | None = None
    sent: str | None = None

    @property
    def is_settled(self) -> bool:
        """Whether it is in nobody's way any more: gone, or set aside."""
        return bool(self.steps) and self.steps[-1].what in _SETTLED

    def add(self, step: Step) -> None:
        """One more step, and before it that its block planned it."""
        steps = self.steps
        if steps and steps[-1].what == "untried" and steps[-1].block == step.block:
            # It was behind one that went back, and was answered for all the same.
            steps.pop()
        if step.block is not None and (not steps or steps[-1].block != step.block):
            steps.append(Step("planned", step.address, None, step.block))
        # That somebody had it executed is told after what came of it.
        steps.insert(len(steps) - 1 if step.what == "executed" and self.is_settled else len(steps), step)


class Histories:
    """Histories of messages."""

    def __init__(self, session: RingSession) -> None:
        self.session, self.store, self.ring_id = session, session.store, session.ring_id

    def history(self, message: Address | bytes, *, origin: str | None = None) -> History:
        """See `Inspect.history`."""
        if isinstance(message, Address):
            check_address(message)
            with self.store.reading() as unit:
                return self._told(unit, [message])
        if type(message) is not bytes or len(message) != ID_BYTES:
            raise InvalidInput(f"a message is told by its address, or by its name of {ID_BYTES} bytes")
        if origin is not None:
            check_origin(origin)
        with self.store.reading() as unit:
            found = self._named(unit, message, origin)
            due = None if found else self._due(unit, message, origin)
            if due is not None:
                return History(message, [], [], "waiting", due)
            return replace(self._told(unit, found), id=message)

    def _told(self, unit: Unit, addresses: Iterable[Address]) -> History:
        paths: list[_Path] = []
        for address in addresses:
            if not any(address in path.addresses for path in paths):
                paths.append(self._path(unit, address))
        states = [self._complete(unit, path) for path in paths]
        steps = [step for path in paths for step in path.steps]
        state = next((one for one in states if one != "gone"), states[0] if states else "unknown")
        id_ = next((path.id for path in paths if path.id), None)
        return History(id_, [one for path in paths for one in path.addresses], steps, state)

    # From events.

    def _path(self, unit: Unit, address: Address) -> _Path:
        """Follow a message through the places at which it lay."""
        origin, there = address.book, (address.page, address.index)
        links: dict[tuple[int, int], tuple[int, int]] = {}
        for _, _, run in self._runs(unit, origin, {Fate.REJUDGED}):
            for event in run.unroll():
                if event.moved_to:
                    links[event.page, event.index] = event.moved_to
        back = {to: at for at, to in links.items()}
        first = there
        while first in back:
            first = back[first]
        places = [first]
        while places[-1] in links:
            places.append(links[places[-1]])
        path = _Path([Address(origin, *place) for place in places])
        for block, at, run in self._runs(unit, origin):
            for place in path.addresses:
                self._add(path, place, block, at, run)
        return path

    def _add(self, path: _Path, place: Address, block: int | None, at: int, run: EventRun) -> None:
        """Take note of a run of events, if it tells of this message."""
        if run.page == place.page and run.fate in _OWN and 0 <= place.index - run.first < len(run.ids):
            event = next(_single(run, place.index - run.first).unroll(block, at / 1_000_000))
            path.id, path.sent = path.id or event.id, path.sent or event.sent
            path.add(_step(event, place, moment(at)))
        elif not path.is_settled and _concerns(run, place):
            event = next(run.unroll(block, at / 1_000_000))
            step = _step(event, place, moment(at))
            if run.fate is Fate.WENT_BACK:
                first = Address(place.book, run.page, run.first + len(run.ids) - 1)
                step = replace(step, what="untried", why=f"{first} before it went back")
            path.add(step)

    def _runs(
        self,
        unit: Unit,
        book: str | None,
        fates: set[Fate] | None = None,
        name: bytes | None = None,
        also: str | None = None,
    ) -> Iterator[tuple[int | None, int, EventRun]]:
        """Runs of events of a book (also of another), or of all, in order: the block, the time, and the run."""
        last = -1
        while True:
            rows = unit.events.after(self.ring_id, last, _ROWS, origin=book, also=also)
            for last, whose, block, at, data in rows:  # noqa: B007
                packed = bytes(data)
                if name is None or name in packed:
                    for run in codec.unpack_events(whose, packed):
                        if fates is None or run.fate in fates:
                            yield block, at, run
            if len(rows) < _ROWS:
                return

    def _named(self, unit: Unit, name: bytes, origin: str | None) -> list[Address]:
        """Where messages of this name lay, or lie."""
        found: dict[Address, None] = {}
        high, regular = (None, None) if origin is None else books_of(origin)
        for _, _, run in self._runs(unit, regular, name=name, also=high):
            for offset, id_ in enumerate(run.ids):
                if id_ == name:
                    found[Address(run.origin, run.page, run.first + offset)] = None
        if not found:
            found.update(dict.fromkeys(self._waiting(unit, name, origin)))
        return list(found)

    def _waiting(self, unit: Unit, name: bytes, origin: str | None) -> Iterator[Address]:
        for one in books_of(origin) if origin is not None else all_origins(unit, self.ring_id):
            working_set = self.session.fresh_working_set(unit)
            book = working_set.book(one)
            working_set.loader.pages.load_all(one)
            while working_set.pull(book):
                pass
            for (_, index), page in sorted(working_set.pages.items()):
                for item, payload in enumerate(working_set.payloads(one, page)) if page is not None else ():
                    if page is not None and page.marks[item] != PROCESSED and message_id(payload) == name:
                        yield Address(one, index, item)

    def _due(self, unit: Unit, name: bytes, origin: str | None) -> datetime | None:
        """When a message of this name joins its queue, if one is for later."""
        books = None if origin is None else books_of(origin)
        due = last = -1
        while rows := unit.inbox.delayed_after(self.ring_id, due, last, _ROWS):
            for due, row in rows:
                last = row.id
                if books is None or row.origin in books:
                    notes = inbox_row_of(row).notes
                    for item, payload in enumerate(split_row(row, bytes(row.heap or b""))):
                        apart = item in notes and notes[item].blob
                        if message_id(Reference.read(payload) if apart else payload) == name:
                            return moment(due)
        return None

    # From what is stored.

    def _complete(self, unit: Unit, path: _Path) -> str:
        """Put before and behind what events tell what the store tells; say where it is now."""
        last = path.addresses[-1]
        working_set = self.session.fresh_working_set(unit)
        page = page_at(working_set, last)
        there = page is not None and last.index < len(page.marks) and page.marks[last.index] != PROCESSED
        lies_there = page is not None and last.index < len(page.marks)
        arrival = working_set.loader.pages.arrivals([last]).get(last) if lies_there else None
        if page is not None and there:
            path.id = path.id or working_set.id_of(last.book, page, last.index)
        state = self._state(unit, working_set, path, page) if page is not None and there else "gone"
        if not path.steps and state == "gone" and arrival is None:
            return "unknown"
        at = moment(arrival.at) if arrival else datetime.fromisoformat(path.sent) if path.sent else None
        why = ""
        planned = self._planned_at(unit, path.steps)
        if at is None and planned is not None:
            why = f"some time before {when(planned)}"
        path.steps = [
            Step("enqueued", path.addresses[0], at, None, None, why),
            *(replace(step, at=self._block_planned_at(unit, step.block)) if step.what == "planned" else step
              for step in path.steps),
        ]  # fmt: skip
        return state

    def _state(self, unit: Unit, working_set: StoredSet, path: _Path, page: Page) -> str:
        last = path.addresses[-1]
        for block in unit.blocks.latest(self.ring_id, PLANNED):
            for origin, data in unit.blocks.claims(block.id):
                runs: Any = codec.unpack_claim(origin, bytes(data)).runs if origin == last.book else ()
                if any(run.page == last.page and run.first <= last.index < run.first + run.count for run in runs):
                    actor = str(block.details_json.get("by", "")) or None
                    by_hand = "to be executed by hand" if block.by_hand else ""
                    path.steps.append(Step("planned", last, moment(block.planned_at), block.number, actor, by_hand))
                    return "in flight"
        behind = last.page < working_set.book(last.book).begin
        return "set aside" if page.marks[last.index] == ASIDE or behind else "waiting"

    def _planned_at(self, unit: Unit, steps: Iterable[Step]) -> datetime | None:
        first = next((step.block for step in steps if step.block is not None), None)
        return self._block_planned_at(unit, first) or next((step.at for step in steps), None)

    def _block_planned_at(self, unit: Unit, block: int | None) -> datetime | None:
        """When a block was planned, as long as it is remembered."""
        if block is None:
            return None
        rows = unit.blocks.latest(self.ring_id, before=block + 1, limit=1)
        return moment(rows[0].planned_at) if rows and rows[0].number == block else None


def _single(run: EventRun, offset: int) -> EventRun:
    """The run of this one event."""
    weights = run.weights[offset : offset + 1]
    return replace(run, first=run.first + offset, ids=run.ids[offset : offset + 1], weights=weights)


def _step(event: Event, place: Address, at: datetime) -> Step:
    why = event.why
    if event.fate in ERRORS:
        why = ERRORS[event.fate]
    elif event.fate is Fate.DECLINED:
        why = "without success"
    elif event.fate is Fate.TRANSFERRED:
        why = f"to {event.detail}"
    return Step(_STEPS[event.fate], place, at, event.block, event.actor, why, event.weight)


def _concerns(run: EventRun, place: Address) -> bool:
    """Whether what is told of another message, or of the queue, happened to this message, too."""
    if run.fate is Fate.SWEPT:
        last = run.detail.partition(" to ")[2].partition(" ")[0]
        until = read_number(last)
        return run.page <= place.page and (until is None or place.page <= until)
    if run.fate is Fate.WENT_BACK:
        up_to = next(run.unroll()).untried_up_to
        here = (place.page, place.index)
        return up_to is not None and (run.page, run.first + len(run.ids) - 1) < here <= up_to
    return False
