"""Queues: the table, one queue, and pauses, as schemas and routes. Each decision records its actor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from math import inf
from threading import Lock
from typing import Annotated, Literal, NamedTuple

from fastapi import APIRouter, Depends, HTTPException, Query
from pydantic import AwareDatetime

from airflow_mq.engine.queue import MessageQueue
from airflow_mq.engine.queue.inspect.queues import RECENT, QueueState
from airflow_mq.engine.queue.inspect.servicing import Servicing, State
from airflow_mq.engine.rules.fairness import OriginFairness
from airflow_mq.engine.rules.groups import names_above
from airflow_mq.engine.rules.priority import book_name, origin_of, priority_of
from airflow_mq.engine.store.books import QueueDepth
from airflow_mq.words import capitalised

from . import counting
from .access import Reader, Writer, same_site_only
from .runs import paused_by
from .schemas import Body, Origin, Priority, Reason, Remedy, Schema, Text, Weight
from .stores import opened

router = APIRouter()

Sort = Literal["origin", "messages", "bytes", "oldest", "received"]
#: Seconds that a sorted table waits for the count; then it sorts what is counted so far.
WAIT = 3.0
#: The latest blocks whose shares are computed.
BLOCKS = 20

#: An origin and a priority.
Key = tuple[str, str]


class Recent(NamedTuple):
    """The latest blocks, as of a version of the ring: fairness, and messages of the last ten minutes, by queue."""

    version: int
    #: When the first of these messages is older.
    until: datetime
    shares: Mapping[Key, OriginFairness]
    messages: Counter[Key]


_recent: dict[counting.Key, Recent] = {}
_lock = Lock()


class Pause(Schema):
    """A paused origin, with the reason and the end of its pause."""

    origin: str
    reason: str
    actor: str | None
    since: datetime | None
    until: datetime | None
    below: bool


class Pauses(Schema):
    """Paused origins by name, and their total number."""

    rows: list[Pause]
    total: int


class PauseChange(Schema):
    """Confirmation of a decision about an origin: whether it is paused now, and was paused or in a backoff before."""

    origin: str
    paused: bool
    was_paused: bool


class ResumeRequest(Body):
    """Request to resume an origin."""

    origin: Origin


class PauseRequest(ResumeRequest):
    """Request to pause an origin."""

    reason: Reason = ""
    until: AwareDatetime | None = None
    below: bool = False


class Queue(Schema):
    """A row of the queue table; rates are messages per minute."""

    origin: str
    priority: Priority
    messages: int
    size: int
    more: bool
    ready: int
    in_flight: int
    set_aside: int
    oldest: datetime | None
    paused: Pause | None
    share: int
    promised: float | None
    received: float | None
    in_rate: float
    out_rate: float
    state: State
    why: str


class Queues(Schema):
    """A page of the queue table; `counted` is true if all queues were counted before sorting."""

    rows: list[Queue]
    next: str | None
    total: int | None
    counted: bool


class Explained(Schema):
    """Why a queue is waiting, and what would change that."""

    reason: str
    sentence: str
    block: int | None
    remedies: list[Remedy]


class QueuePage(Schema):
    """A stored page of a queue."""

    page: int
    first: int
    messages: int
    size: int
    kept: int
    state: str


class Settings(Schema):
    """Settings of a queue."""

    share: int
    least: Weight | None
    most: Weight | None
    ordered: bool | None


class Budget(Schema):
    """A budget over time that pays for messages of a queue.

    What is left of each burst is milliseconds and bytes, and `level` is the smaller of them as a part of its burst.
    """

    path: str
    rate: Text | None
    rate_bytes: Text | None
    burst: int | None
    burst_bytes: int | None
    left: int | None
    left_bytes: int | None
    level: float
    wakes_at: datetime | None


class Quota(Schema):
    """A quota that counts messages of a queue: bytes, and the part that is stored."""

    path: str
    quota: int
    stored: int
    part: float


class QueueDetail(Queue):
    """One queue: its row, why it is waiting, its pages, its settings, its budgets and its quotas."""

    explain: Explained
    pages: list[QueuePage]
    settings: Settings
    budgets: list[Budget]
    quotas: list[Quota]


@router.get("/queues")
def queues(
    conn_id: str,
    ring: str,
    user: Reader,
    prefix: str = "",
    search: str = "",
    sort: Sort = "origin",
    after: str = "",
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> Queues:
    """Return a page of queues, by name or sorted; `counted` is true if all queues were counted before sorting."""
    by_name = sort == "origin" and not search
    cursor = "origin" if by_name else f"{sort}?" if search else sort
    place = _place(after, cursor)
    with opened(conn_id, ring) as queue:
        servicing = queue.inspect.servicing(paused_by(user))
        recent = _read_recent(conn_id, queue, servicing.now)
        if by_name:
            states = queue.inspect.queues(prefix, place, limit + 1)
            origins = list(dict.fromkeys(state.origin for state in states))
            following = f"{cursor}:{origins[limit - 1]}" if len(origins) > limit else None
            rows = _rows(queue, [state for state in states if state.origin in origins[:limit]], recent, servicing)
            return Queues(rows=rows, next=following, total=None, counted=True)
        count = counting.counted(conn_id, queue, WAIT)
        depths = dict(count.depths)
        names = _chosen(depths, recent.shares, prefix, search, sort)
        start = int(place or 0)
        wanted = [(origin_of(name), priority_of(name)) for name in names[start : start + limit]]
        rows = _rows(queue, queue.inspect.queues(among=wanted), recent, servicing, depths)
    following = f"{cursor}:{start + limit}" if start + limit < len(names) else None
    return Queues(rows=rows, next=following, total=len(names), counted=count.done)


def _place(after: str, cursor: str) -> str:
    """Return the position in a cursor: the last name, or an index in a sorted table."""
    key, colon, place = after.partition(":")
    if not after or (key == cursor and colon and (key == "origin" or (place.isdecimal() and len(place) < 14))):
        return place
    raise HTTPException(422, "invalid cursor in `after`: use the last response's `next` with the same sort and search")


def _chosen(
    depths: Mapping[str, QueueDepth], shares: Mapping[Key, OriginFairness], prefix: str, search: str, sort: Sort
) -> list[str]:
    """Return the names of the matching books, sorted."""
    wanted = search.casefold()
    received = {key: share.received or 0.0 for key, share in shares.items()}
    names = sorted(
        (name for name in depths if (origin := origin_of(name)).startswith(prefix) and wanted in origin.casefold()),
        key=origin_of,
    )
    ranks: dict[Sort, Callable[[str], float]] = {
        "origin": lambda name: 0,
        "messages": lambda name: -depths[name].messages,
        "bytes": lambda name: -depths[name].size,
        "oldest": lambda name: inf if (sent := depths[name].sent) is None else sent,
        "received": lambda name: -received.get((origin_of(name), priority_of(name)), 0.0),
    }
    return sorted(names, key=ranks[sort])


def _read_recent(conn_id: str, queue: MessageQueue, now: datetime) -> Recent:
    """Return what the latest blocks gave; cached until the ring or a figure changes."""
    (version, _), key = queue.inspect.ring_version(), counting.key_of(conn_id, queue)
    with _lock:
        known = _recent.get(key)
    if known is None or known.version != version or now >= known.until:
        shares = {(one.origin, one.priority): one for one in queue.inspect.fairness(BLOCKS, most=0).origins}
        messages: Counter[Key] = Counter()
        recent = timedelta(seconds=RECENT)
        until = now + recent
        for page in queue.inspect.ledger(limit=BLOCKS):
            if page.at > now - recent:
                until = min(until, page.at + recent)
                messages.update({(entry.origin, entry.priority): entry.messages for entry in page.entries})
        known = Recent(version, until, shares, messages)
        with _lock:
            if len(_recent) > 64:
                _recent.clear()
            _recent[key] = known
    return known


def _rows(
    queue: MessageQueue,
    states: Sequence[QueueState],
    recent: Recent,
    servicing: Servicing,
    depths: Mapping[str, QueueDepth] | None = None,
) -> list[Queue]:
    """Return rows of the table; with `depths`, these replace figures that are lower bounds."""
    paused, minutes = {pause.origin: pause for pause in queue.admin.paused()}, RECENT / 60
    rows = []
    for state in states:
        depth = (depths or {}).get(book_name(state.origin, state.priority))
        if depth is not None and state.more and depth.messages > state.messages:
            state = replace(state, messages=depth.messages, size=depth.size, more=False)
        key, pause = (state.origin, state.priority), paused.get(state.origin)
        share, messages, wait = recent.shares.get(key), recent.messages[key], servicing.wait_of(state, pause)
        # If no old message is left, the messages that blocks took recently also arrived recently.
        old = state.messages > state.recent + state.set_aside
        row = Queue.of(
            state,
            paused=pause,
            promised=share and share.promised,
            received=share and share.received,
            in_rate=(state.recent + (0 if old else messages)) / minutes,
            out_rate=messages / minutes,
            state=wait.state,
            why=wait.why,
        )
        rows.append(row)
    return rows


@router.get("/queue")
def queue(conn_id: str, ring: str, origin: str, user: Reader, priority: Priority = "regular") -> QueueDetail:
    """Return one queue: its row, why it is waiting, its pages and its settings."""
    with opened(conn_id, ring) as opened_queue:
        states = opened_queue.inspect.queues(among=[(origin, priority)])
        pages = opened_queue.inspect.pages(origin, priority)
        settings = opened_queue.inspect.origin_settings(origin)
        budgets = opened_queue.inspect.budgets(origin)
        quotas = opened_queue.inspect.fullness([origin])
        servicing = opened_queue.inspect.servicing(paused_by(user))
        found = opened_queue.inspect.explain(origin, ahead=20, priority=priority, is_dag_paused=servicing.is_dag_paused)
        if not (states or pages or budgets or quotas) and found.reason == "empty":
            raise HTTPException(404, "this queue is empty; its events record the outcomes of its messages")
        empty = QueueState(origin, priority, share=settings.share)
        recent = _read_recent(conn_id, opened_queue, servicing.now)
        (row,) = _rows(opened_queue, states or [empty], recent, servicing)
    explained = Explained.of(found, sentence=capitalised(found.sentence, origin, *names_above(origin)))
    return QueueDetail.of(row, explain=explained, pages=pages, settings=settings, budgets=budgets, quotas=quotas)


# Pauses.


@router.get("/paused")
def paused(conn_id: str, ring: str, user: Reader) -> Pauses:
    """Return paused origins, with and without waiting messages."""
    with opened(conn_id, ring) as queue:
        found = sorted(queue.admin.paused(), key=lambda pause: pause.origin)
    return Pauses.of(None, rows=found[:500], total=len(found))


@router.post("/pause", dependencies=[Depends(same_site_only)])
def pause(conn_id: str, ring: str, body: PauseRequest, user: Writer) -> PauseChange:
    """Pause an origin: blocks skip it, and it still accepts messages."""
    with opened(conn_id, ring, user.name) as queue:
        was_paused = any(pause.origin == body.origin for pause in queue.admin.paused())
        queue.admin.pause(body.origin, body.reason, body.until, below=body.below)
    return PauseChange(origin=body.origin, paused=True, was_paused=was_paused)


@router.post("/resume", dependencies=[Depends(same_site_only)])
def resume(conn_id: str, ring: str, body: ResumeRequest, user: Writer) -> PauseChange:
    """End the pause of an origin, and the backoff of its messages that returned."""
    with opened(conn_id, ring, user.name) as queue:
        was_paused = queue.admin.resume(body.origin)
    return PauseChange(origin=body.origin, paused=False, was_paused=was_paused)
