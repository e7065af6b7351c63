"""Verdict of a run: compare what the clients acknowledged with what the store recorded."""

from __future__ import annotations

import itertools
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psycopg

from airflow_mq import Delivery, Done, Event, MessageQueue, Outcome, Weight
from airflow_mq.engine.rules.errors import MessageQueueError
from airflow_mq.engine.rules.events import Fate
from airflow_mq.engine.rules.message import message_id

from .journal import Entry, read_journals
from .letters import ARCHIVE, CHILDREN, MOVED, Call, Letter, read_letter

#: Fates after which a message is no longer in the store.
ENDS = (Fate.PROCESSED, Fate.DECLINED, Fate.BAD_FORMAT, Fate.CORRUPT, Fate.UNSUPPORTED, Fate.STACK_LIMIT,
        Fate.DISCARDED, Fate.EXPIRED)  # fmt: skip
DRAIN_SECONDS = 120.0


@dataclass(frozen=True)
class Fault:
    """A fault of a run, with its times on the monotonic clock."""

    name: str
    began: float
    ended: float


@dataclass
class Verdict:
    """Figures of one run. Nothing may be lost, settled twice, stored twice, out of order or stuck."""

    accepted: int = 0
    lost: int = 0
    settled_twice: int = 0
    stored_twice: int = 0
    order_broken: int = 0
    weight_exceeded: int = 0
    #: Findings of `check()`, by the housekeeper in the run and after it.
    findings: int = 0
    #: Clients that did not end, and messages that could not be serviced after the run.
    stuck: int = 0
    #: Transactions of which only the order or only its message was stored.
    torn: int = 0
    #: Largest time from the end of a fault until each role made progress; None if one made none.
    recovered_in: float | None = 0.0
    #: The same for each fault.
    recoveries: list[float] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return self.accepted > 0 and self.is_sound

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong, even if nothing was accepted."""
        bad = ("lost", "settled_twice", "stored_twice", "order_broken", "weight_exceeded", "findings", "stuck", "torn")
        return not any(getattr(self, name) for name in bad) and self.recovered_in is not None

    def __str__(self) -> str:
        figures = {
            name: value for name, value in asdict(self).items() if name not in ("recoveries", "errors", "examples")
        }
        return ", ".join(f"{name} {value}" for name, value in figures.items())


def judge(
    folder: Path, uri: str, faults: Sequence[Fault], stuck: int, forgotten: tuple[float, float] | None = None
) -> Verdict:
    """Drain the store and return the verdict.

    :param forgotten: times between which acknowledgements do not count, because a backup of the first time was
        restored at the second.
    """
    entries = read_journals(folder)
    verdict = Verdict(stuck=stuck)
    findings = [entry.text("text") for entry in entries if entry.kind == "violation"]
    events: list[Event] = []
    kept: set[bytes | None] = set()
    for ring in ("default", ARCHIVE):
        with MessageQueue(uri, ring) as queue:
            verdict.stuck += _drain(queue)
            findings += [str(violation) for violation in queue.check()]
            events += queue.inspect.events()
            kept |= {row.id for row in queue.set_aside.list(limit=1_000)}
    verdict.findings = len(findings)
    verdict.examples += findings[:5]
    compare(verdict, entries, events, kept, forgotten)
    verdict.torn = _torn(uri, entries, events)
    verdict.weight_exceeded = sum(bool(entry.values.get("over")) for entry in entries)
    verdict.recovered_in = recovery(entries, faults)
    verdict.recoveries = [each for each in recoveries(entries, faults) if each is not None]
    errors = Counter(f"{entry.text('action')}: {entry.text('error')}" for entry in entries if entry.kind == "error")
    verdict.errors = dict(errors.most_common())
    return verdict


def _drain(queue: MessageQueue) -> int:
    """Service everything that is left and return the number of messages that remain."""
    deadline = time.monotonic() + DRAIN_SECONDS
    while time.monotonic() < deadline:
        for block in queue.blocks.list("planned"):
            try:
                queue.blocks.release(block.token)
            except MessageQueueError:
                # Its deadline passed in between.
                continue
        queue.service_queues(_finish, Weight(10**7, 1 << 40))
        if not _waiting(queue):
            return 0
    return _waiting(queue)


def _finish(delivery: Delivery) -> Outcome:
    letter = read_letter(delivery.payload)
    return Done(enqueue=[(CHILDREN, letter.child)]) if letter is not None and letter.is_parent else Done()


def _waiting(queue: MessageQueue) -> int:
    return sum(footprint.count for _, footprint in queue.footprints(limit=1_000))


def _calls(entries: Iterable[Entry], kind: str) -> dict[tuple[int, int], tuple[float, Call]]:
    found = ((entry.at, Call.of(entry)) for entry in entries if entry.kind == kind)
    return {(call.sender, call.number): (at, call) for at, call in found}


def compare(
    verdict: Verdict,
    entries: Sequence[Entry],
    events: Sequence[Event],
    kept: set[bytes | None],
    forgotten: tuple[float, float] | None = None,
) -> None:
    """Count the accepted messages, and what the store recorded wrongly of them."""
    known: dict[bytes, Letter] = {}
    for _, call in _calls(entries, "intent").values():
        known.update({message_id(letter.payload): letter for letter in call.letters})
    ends: dict[bytes, list[Event]] = defaultdict(list)
    for event in events:
        if event.fate in ENDS and event.id is not None:
            ends[event.id].append(event)
    for at, call in _calls(entries, "accepted").values():
        if forgotten is not None and forgotten[0] < at < forgotten[1]:
            continue
        for letter in call.letters:
            verdict.accepted += 1
            wanted = [letter.payload, letter.child] if letter.is_parent else [letter.payload]
            if any(message_id(payload) not in ends and message_id(payload) not in kept for payload in wanted):
                verdict.lost += 1
                verdict.examples.append(f"lost: {letter} in {call.origin}")
    for identity, found in ends.items():
        places = {event.address for event in found}
        verdict.settled_twice += len(found) - len(places)
        verdict.stored_twice += len(places) - 1
        if len(found) > 1:
            verdict.examples.append(f"twice: {known.get(identity)} at {sorted(map(str, places))}")
    _compare_order(verdict, events, known)


def _compare_order(verdict: Verdict, events: Sequence[Event], known: dict[bytes, Letter]) -> None:
    """Count the messages that a sender sent after another one to the same origin and that were stored before it."""
    places: dict[tuple[str, int], list[tuple[int, int, int, int]]] = defaultdict(list)
    seen: set[bytes] = set()
    for event in events:
        if event.id is None or event.id in seen or event.origin in MOVED or event.fate not in (*ENDS, Fate.TRANSFERRED):
            continue
        seen.add(event.id)
        if letter := known.get(event.id):
            places[event.origin, letter.sender].append((event.page, event.index, letter.call, letter.part))
    for (origin, _), row in places.items():
        row.sort()
        for before, after in itertools.pairwise(row):
            if after[2:] < before[2:]:
                verdict.order_broken += 1
                verdict.examples.append(f"order of {origin}: {before} before {after}")


def _torn(uri: str, entries: Iterable[Entry], events: Iterable[Event]) -> int:
    ended = {event.id for event in events if event.fate in ENDS}
    connection = sqlite3.connect(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:") else psycopg.connect(uri)
    with closing(connection):
        orders = set(connection.execute("SELECT sender, number FROM orders").fetchall())
    calls = [call for _, call in _calls(entries, "intent").values() if call.way == "transaction"]
    stored = {(call.sender, call.number) for call in calls if message_id(call.letters[0].payload) in ended}
    return len(orders ^ stored)


def recovery(entries: Sequence[Entry], faults: Sequence[Fault]) -> float | None:
    """Return the largest time from the end of a fault until each role made progress; None if one made none."""
    times = recoveries(entries, faults)
    return None if None in times else max((time for time in times if time is not None), default=0.0)


def recoveries(entries: Sequence[Entry], faults: Sequence[Fault]) -> list[float | None]:
    """Return the time from the end of each fault until each role made progress; None if one made none."""
    progress: dict[str, list[float]] = defaultdict(list)
    for entry in entries:
        if entry.kind == "progress":
            progress[entry.text("of")].append(entry.at)
    return [_recovery(progress.values(), fault) for fault in faults]


def _recovery(progress: Iterable[list[float]], fault: Fault) -> float | None:
    first = [next((at - fault.ended for at in times if at > fault.ended), None) for times in progress]
    return None if None in first else round(max((at for at in first if at is not None), default=0.0), 1)
