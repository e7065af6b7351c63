"""A small model of everything that touches one inbox, explored over all interleavings.

Two senders keep transactions open. A settler posts to the queue as it settles. A service looks into the inbox in slices,
posts to the queue itself and saves under a new horizon each time. The model is of the database: a sequence, numbers of
transactions, snapshots and the ring's lock. What is under test is the code that the store runs: `Inbox`, `Cut` and
`horizon_of`. Each planted fault must be found, or the model proves nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from airflow_mq.engine.store.postgres import horizon_of
from airflow_mq.engine.store.rows import InboxRow
from airflow_mq.engine.store.working_set.inbox import Cut, Inbox

#: The step of an actor that has nothing left to do.
ENDED = -1


class Stranded(AssertionError):
    """A promise of the inbox is broken."""


@dataclass
class Database:
    """One inbox, and what a database knows of those who use it."""

    last: int = 0
    next_number: int = 1
    running: set[int] = field(default_factory=set)
    #: Ids that were drawn: the process, and whether it committed (none: not yet).
    rows: dict[int, tuple[str, bool | None]] = field(default_factory=dict)
    #: Who had committed when a row's transaction began.
    before: dict[str, frozenset[str]] = field(default_factory=dict)
    cut: Cut = field(default_factory=lambda: Cut(1, frozenset()))
    marks: list[list[int]] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)
    locked_by: str = ""
    leased: bool = False

    def copied(self) -> Database:
        """A copy that shares nothing that changes."""
        return replace(
            self, running=set(self.running), rows=dict(self.rows), before=dict(self.before), marks=list(self.marks),
            pages=list(self.pages),
        )  # fmt: skip

    def begin(self, who: str) -> int:
        """Give a transaction its number."""
        self.before[who] = frozenset(name for name, state in self.rows.values() if state)
        number = self.next_number
        self.next_number += 1
        self.running.add(number)
        return number

    def draw(self, who: str, *, committed: bool | None = None) -> int:
        """Draw an id for a row."""
        self.last += 1
        self.rows[self.last] = (who, committed)
        return self.last

    def end(self, who: str, number: int, *, commit: bool) -> None:
        """End a transaction."""
        self.running.discard(number)
        for id_, (name, state) in self.rows.items():
            if name == who and state is None:
                self.rows[id_] = (name, commit)

    def visible(self) -> list[int]:
        """The rows that a statement sees that begins now."""
        return sorted(id_ for id_, (_, state) in self.rows.items() if state)

    def check(self) -> None:
        """Every row that is stored, or will be, is in a page or will be met by a look."""
        if len(set(self.pages)) < len(self.pages):
            raise Stranded(f"a row lies in two pages: {self.pages}")
        for id_, (who, state) in self.rows.items():
            if state is not False and id_ not in self.pages and self.cut.has(id_):
                raise Stranded(f"row {id_} of {who} is in no page, and counts as cut: {self.cut}")
            if id_ in self.pages and not self.cut.has(id_):
                raise Stranded(f"row {id_} of {who} is in a page, and would be cut again: {self.cut}")
        if self.cut.floor > self.last + 1:
            raise Stranded(f"the floor {self.cut.floor} is above the last id {self.last}")

    def check_order(self) -> None:
        """Rows of one sender are in order, and behind those of senders that had committed when it began."""
        places = [(self.rows[id_][0], id_) for id_ in self.pages]
        for at, (who, id_) in enumerate(places):
            for name, other in places[at + 1 :]:
                if name == who and other < id_:
                    raise Stranded(f"rows {other} and {id_} of {who} changed places: {self.pages}")
                if name in self.before.get(who, ()) and name != who and other < id_:
                    raise Stranded(f"row {id_} of {who} overtook {other} of {name}: {self.pages}")


class Actor:
    """Something that takes one step at a time; steps are methods, by number."""

    inbox: Inbox

    def __init__(self, name: str) -> None:
        self.name, self.who, self.at, self.number = name, name, 0, 0

    def copied(self) -> Actor:
        """A copy that shares nothing that changes."""
        other = copy.copy(self)
        inbox = getattr(self, "inbox", None)
        if inbox is not None:
            other.inbox = copy.copy(inbox)
            other.inbox.read, other.inbox.rows = set(inbox.read), list(inbox.rows)
            other.inbox.taken = list(inbox.taken)
        return other

    def steps(self) -> list[Callable[[Database], None]]:
        raise NotImplementedError

    def may_go(self, db: Database) -> bool:
        return True

    def go(self, db: Database) -> None:
        steps = self.steps()
        steps[self.at](db)
        self.at = self.at + 1 if self.at + 1 < len(steps) else ENDED


class Sender(Actor):
    """Inserts rows in one transaction."""

    def __init__(self, name: str, rows: int, *, commits: bool = True, late_number: bool = False) -> None:
        super().__init__(name)
        self.rows, self.commits, self.late_number = rows, commits, late_number

    def steps(self) -> list[Callable[[Database], None]]:
        draws = [self._draw] * self.rows
        first = [*draws[:1], self._begin, *draws[1:]] if self.late_number else [self._begin, *draws]
        return [*first, self._end]

    def _begin(self, db: Database) -> None:
        self.number = db.begin(self.name)

    def _draw(self, db: Database) -> None:
        db.draw(self.name)

    def _end(self, db: Database) -> None:
        db.end(self.name, self.number, commit=self.commits)


class Holder(Actor):
    """Locks the ring, and reads the horizon."""

    ahead = 0

    def _read_last(self, db: Database) -> None:
        self.last = db.last + self.ahead

    def _lock(self, db: Database) -> None:
        self.who = f"{self.name} at step {self.at}"
        self.number = db.begin(self.who)
        db.locked_by = self.name

    def _snapshot(self, db: Database) -> None:
        oldest = min(db.running)
        mark = [self.number, self.last]
        self.horizon, self.marks = horizon_of(db.marks, mark, self.number, oldest)

    def _commit(self, db: Database) -> None:
        db.end(self.who, self.number, commit=True)
        db.locked_by = ""

    def look(self, db: Database, inbox: Inbox, new: int) -> None:
        asked = max(new, 2 * len(inbox.read)) + len(inbox.read)
        found = [id_ for id_ in db.visible() if id_ > inbox.start][:asked]
        inbox.add([InboxRow("a", id_, 1, 1, False, b"", b"") for id_ in found], asked)

    def save(self, db: Database, inbox: Inbox, posted: int) -> Cut:
        ids = [db.draw(self.who) for _ in range(posted)]
        if any(id_ < self.horizon for id_ in ids):
            raise Stranded(f"ids {ids} were drawn below the horizon {self.horizon}")
        cut = inbox.cut_now()
        db.pages += inbox.taken
        db.cut, db.marks = cut, self.marks
        return cut


class Settler(Holder):
    """Settles a block whose outcomes post two messages to the queue, which is idle: the first one is cut at once."""

    def steps(self) -> list[Callable[[Database], None]]:
        return [self._read_last, self._lock, self._snapshot, self._settle, self._commit]

    def may_go(self, db: Database) -> bool:
        return self.at != 1 or not db.locked_by

    def _settle(self, db: Database) -> None:
        if db.leased:
            # Beside a service: its books stay as they are.
            db.draw(self.who), db.draw(self.who)
            return
        inbox = Inbox(db.cut, self.horizon)
        while not inbox.rows and not inbox.empty:
            self.look(db, inbox, 2)
        if inbox.rows:
            inbox.take(1)
            self.save(db, inbox, 2)
            return
        # The inbox is empty: the first message that is posted is cut.
        ids = [db.draw(self.who), db.draw(self.who)]
        inbox.taken.append(ids[0])
        self.save(db, inbox, 0)


class Service(Holder):
    """Services the queue in slices, and posts to it."""

    slices = 2

    def steps(self) -> list[Callable[[Database], None]]:
        lease = [self._read_last, self._lock, self._snapshot, self._take_lease]
        a_slice = [self._look, self._look, self._read_last, self._lock, self._snapshot, self._save]
        return lease + a_slice * self.slices + [self._drop_lease]

    def may_go(self, db: Database) -> bool:
        return self.steps()[self.at].__name__ != "_lock" or not db.locked_by

    def _take_lease(self, db: Database) -> None:
        db.leased = True
        self.inbox = self._fresh(db.cut)
        self._commit(db)

    def _fresh(self, cut: Cut) -> Inbox:
        return Inbox(cut, self.horizon)

    def _look(self, db: Database) -> None:
        if not self.inbox.rows and not self.inbox.empty:
            self.look(db, self.inbox, 1)
        if self.inbox.rows:
            self.inbox.take(1)

    def _save(self, db: Database) -> None:
        cut = self.save(db, self.inbox, 1)
        if self.inbox.rows:
            self.inbox.saved(cut)
        else:
            self.inbox = self._fresh(cut)
        self._commit(db)

    def _drop_lease(self, db: Database) -> None:
        db.leased = False


def key_of(db: Database, actors: list[Actor]) -> Any:
    """All that decides what can follow."""
    parts: list[Any] = [
        db.last, db.next_number, frozenset(db.running), tuple(sorted(db.rows.items())), db.cut,
        tuple(map(tuple, db.marks)), tuple(db.pages), db.locked_by, db.leased, tuple(sorted(db.before.items())),
    ]  # fmt: skip
    for actor in actors:
        inbox = getattr(actor, "inbox", None)
        parts.append((actor.at, actor.number, getattr(actor, "last", 0), getattr(actor, "horizon", 0)))
        if inbox is not None:
            ids = tuple(row.id for row in inbox.rows)
            parts.append(
                (
                    inbox.cut,
                    inbox.horizon,
                    inbox.after,
                    frozenset(inbox.read),
                    ids,
                    tuple(inbox.taken),
                    inbox.empty,
                )
            )
    return tuple(parts)


def drain(db: Database) -> None:
    """Faults and senders are over: one more service reaches every row."""
    last = Service("drain")
    for _ in range(40):
        last.at = 0
        while last.at != ENDED:
            last.go(db)
        if all(id_ in db.pages for id_ in db.visible()[:-4]):
            break
    left = [id_ for id_ in db.visible() if id_ not in db.pages and db.cut.has(id_)]
    if left:
        raise Stranded(f"rows {left} are never met")


def explore(actors: list[Actor]) -> int:
    """Take all steps in all orders; return how many states there were."""
    seen: set[Any] = set()
    todo: list[tuple[Database, list[Actor]]] = [(Database(), actors)]
    while todo:
        db, now = todo.pop()
        ready = [at for at, actor in enumerate(now) if actor.at != ENDED and actor.may_go(db)]
        if not ready:
            assert all(actor.at == ENDED for actor in now), "a deadlock of the model"
            db.check_order()
            drain(db.copied())
            continue
        for at in ready:
            next_db, following = db.copied(), [*now[:at], now[at].copied(), *now[at + 1 :]]
            following[at].go(next_db)
            next_db.check()
            key = key_of(next_db, following)
            if key not in seen:
                seen.add(key)
                todo.append((next_db, following))
    return len(seen)


def casts() -> Iterator[tuple[str, list[Actor]]]:
    yield "a sender and two settlers", [Sender("s1", 2), Settler("one"), Settler("two")]
    yield "a sender, a settler and a service", [Sender("s1", 1), Settler("settler"), Service("service")]
    yield "a sender that rolls back", [Sender("s1", 1, commits=False), Sender("s2", 1), Service("service")]
    yield "two rows of one sender", [Sender("s1", 2), Sender("s2", 1), Service("service")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "actors"), list(casts()), ids=lambda value: value if isinstance(value, str) else "")
def test_no_row_is_stranded_in_any_interleaving(name: str, actors: list[Actor]) -> None:
    assert explore(actors) > 1_000


def find_a_fault() -> None:
    with pytest.raises(Stranded):
        for _, actors in casts():
            explore(actors)


@pytest.mark.parametrize("ahead", [1, 2, 32])
def test_a_last_id_read_ahead_is_found(monkeypatch: pytest.MonkeyPatch, ahead: int) -> None:
    """The fault of 0.2: the row of a sequence shows a value up to 32 ahead while `nextval` writes its log."""
    monkeypatch.setattr(Holder, "ahead", ahead)
    find_a_fault()


def test_a_number_after_the_id_is_found() -> None:
    with pytest.raises(Stranded):
        explore([Sender("s1", 1, late_number=True), Service("service")])


@pytest.mark.slow
def test_a_look_that_begins_behind_what_was_read_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inbox, "start", property(lambda inbox: inbox.after))
    with pytest.raises(Stranded, match="changed places"):
        explore([Sender("s1", 2), Sender("s2", 1), Service("service")])


def test_a_floor_beyond_the_horizon_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_now(inbox: Inbox) -> Cut:
        floor = max(inbox.cut.floor, inbox.next_id)
        return Cut(floor, frozenset(id_ for id_ in (*inbox.cut.ahead, *inbox.taken) if id_ >= floor))

    monkeypatch.setattr(Inbox, "cut_now", cut_now)
    find_a_fault()


def test_a_floor_that_passes_what_was_not_read_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_now(inbox: Inbox) -> Cut:
        floor = max(inbox.cut.floor, inbox.horizon)
        return Cut(floor, frozenset(id_ for id_ in (*inbox.cut.ahead, *inbox.taken) if id_ >= floor))

    monkeypatch.setattr(Inbox, "cut_now", cut_now)
    find_a_fault()


def test_rows_above_the_floor_that_are_forgotten_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Inbox.cut_now
    monkeypatch.setattr(Inbox, "cut_now", lambda inbox: real(inbox)._replace(ahead=frozenset(inbox.taken)))
    find_a_fault()
