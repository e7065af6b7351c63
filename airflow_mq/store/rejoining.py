"""Inbox rows with attributes: requeued messages with their arrival, and messages that processors send with headers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from ..core.changes import Posted
from ..core.events import EventRun, Fate, with_arrival
from ..core.message import Address
from ..core.page import NO_NOTE
from . import codec
from .inbox import blob_attributes
from .rows import Arrival

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def rejoined_row(id_: int, posted: Posted) -> tuple[int, str, int, bytes, bytes, int]:
    """Return the inbox row of a message that comes with more than its bytes."""
    note, origin, payload = posted.note or NO_NOTE, posted.origin, posted.payload
    facts: dict[str, Any] = {
        "weight": note.weight, "attempts": note.attempts, "expires": note.expires, "arrived": note.arrived,
        "headers": dict(posted.headers),
    }  # fmt: skip
    kept = {name: value for name, value in facts.items() if value}
    plain = {**({"each": {"0": kept}} if kept else {}), **blob_attributes([payload])}
    attributes = codec.write_json(plain) if plain else b""
    return id_, origin, len(payload), attributes, bytes(payload), posted.sent_at or 0


def dated(runs: Iterable[EventRun], arrivals: Mapping[Address, Arrival]) -> Iterator[EventRun]:
    """Yield events; add the time of sending to those of set-aside messages, which may wait for long."""
    for run in runs:
        if run.fate not in (Fate.SET_ASIDE, Fate.ATTEMPTS_EXHAUSTED):
            yield run
            continue
        last: EventRun | None = None
        for offset, id_ in enumerate(run.ids):
            arrival = arrivals.get(Address(run.origin, run.page, run.first + offset))
            told = run.detail if arrival is None else with_arrival(run.detail, _readable(arrival.at))
            if last is None or last.detail != told:
                if last is not None:
                    yield last
                last = replace(run, first=run.first + offset, ids=[], weights=[], detail=told)
            last.ids.append(id_)
        if last is not None:
            yield last


def _readable(at: int) -> str:
    return (_EPOCH + timedelta(microseconds=at)).isoformat()
