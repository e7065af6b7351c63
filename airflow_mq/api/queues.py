"""Routes of queues: the table, one queue, and its messages."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Annotated, Literal

from fastapi import APIRouter, HTTPException, Query

from airflow_mq.core.priority import HIGH, book_name, origin_of, priority_of
from airflow_mq.queue import MessageQueue, Paused, QueueDepth, QueueState, Server
from airflow_mq.queue.inspect.page import Received
from airflow_mq.queue.inspect.summaries import LATELY
from airflow_mq.words import when

from . import schemas, views
from .access import Peeker, Reader
from .counting import counted
from .stores import opened

router = APIRouter(prefix="/stores/{conn_id}/rings/{ring}")

Sort = Literal["origin", "messages", "bytes", "oldest", "received"]
Priority = Literal["regular", "high"]
#: Seconds that a sorted table waits for the count; then it sorts what is counted so far.
WAIT = 3.0
#: Paused origins listed one by one.
MOST_PAUSED = 500
#: The latest blocks whose shares are computed.
BLOCKS = 20

#: Shares of the latest blocks, and the DAGs and programs that planned them, as of a page of the ledger.
Lately = tuple[int | None, Mapping[tuple[str, str], Received], Sequence[Server]]
_shares: dict[tuple[str, str], Lately] = {}
_lock = Lock()


@router.get("/queues")
def queues(
    conn_id: str, ring: str, user: Reader,
    prefix: str = "", search: str = "", sort: Sort = "origin", after: str = "",
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> schemas.Queues:  # fmt: skip
    """Return a page of queues, by name or sorted; `counted` is true if all queues were counted before sorting."""
    place = _read_cursor(after, sort if not search else f"{sort}?")
    with opened(conn_id, ring) as queue:
        got, servers = _received(conn_id, queue)
        if sort == "origin" and not search:
            found = queue.inspect.queues(prefix, str(place or ""), limit + 1)
            origins = list(dict.fromkeys(one.origin for one in found))
            more = len(origins) > limit
            found = [one for one in found if one.origin in set(origins[:limit])]
            following = _cursor(sort, origins[limit - 1]) if more else None
            rows = _rows(queue, found, got, servers)
            return schemas.Queues(rows=rows, next=following, total=None, counted=True)
        survey = counted(conn_id, queue, WAIT)
        names = _chosen(dict(survey.depths), got, prefix, search, sort)
        start = int(place or 0)
        wanted = [(origin_of(name), priority_of(name)) for name in names[start : start + limit]]
        rows = _rows(queue, queue.inspect.queues(among=wanted), got, servers, survey.depths)
    more = start + limit < len(names)
    key = sort if not search else f"{sort}?"
    following = _cursor(key, start + limit) if more else None
    return schemas.Queues(rows=rows, next=following, total=len(names), counted=survey.done)


def _chosen(
    depths: Mapping[str, QueueDepth], got: Mapping[tuple[str, str], Received], prefix: str, search: str, sort: Sort
) -> list[str]:
    names: Sequence[str] = list(depths)
    if prefix:
        names = [name for name in names if origin_of(name).startswith(prefix)]
    if search:
        wanted = search.casefold()
        names = [name for name in names if wanted in origin_of(name).casefold()]
    by_name = sorted(names, key=origin_of)
    if sort == "messages":
        return sorted(by_name, key=lambda name: -depths[name].messages)
    if sort == "bytes":
        return sorted(by_name, key=lambda name: -depths[name].size)
    if sort == "oldest":
        return sorted(by_name, key=lambda name: depths[name].first)
    if sort == "received":
        nothing = Received()
        return sorted(by_name, key=lambda name: -(got.get((origin_of(name), priority_of(name)), nothing).received or 0))
    return by_name


def _cursor(sort: str, place: str | int) -> str:
    return base64.urlsafe_b64encode(json.dumps([sort, place]).encode()).decode()


def _read_cursor(text: str, sort: str) -> str | int | None:
    """Return the position in a cursor: the last name, or an index in a sorted table."""
    if not text:
        return None
    try:
        key, place = json.loads(base64.urlsafe_b64decode(text.encode()))
        if key == sort and (type(place) is str if sort == "origin" else type(place) is int and 0 <= place < 1 << 40):
            return place  # type: ignore[no-any-return]
    except (ValueError, TypeError, RecursionError, binascii.Error):
        pass
    raise HTTPException(422, "invalid cursor in `after`: use the last response's `next` with the same sort and search")


def _received(conn_id: str, queue: MessageQueue) -> tuple[Mapping[tuple[str, str], Received], Sequence[Server]]:
    """Return shares and servers of the latest blocks; cached until the next block is planned."""
    latest = queue.inspect.latest_ledger_block()
    with _lock:
        known = _shares.get((conn_id, queue.ring))
    if known is None or known[0] != latest:
        known = (*queue.inspect.shares(BLOCKS), queue.inspect.servers())
        with _lock:
            if len(_shares) > 64:
                _shares.clear()
            _shares[conn_id, queue.ring] = known
    return known[1:]


def _rows(
    queue: MessageQueue, found: Sequence[QueueState], got: Mapping[tuple[str, str], Received],
    servers: Sequence[Server], depths: Mapping[str, QueueDepth] | None = None,
) -> list[schemas.Queue]:  # fmt: skip
    paused = {one.origin: one for one in queue.admin.paused()}
    depths = depths or {}
    return [
        row(one, paused.get(one.origin), got.get((one.origin, one.priority), Received()), servers,
            depths.get(book_name(one.origin, one.priority)))
        for one in found
    ]  # fmt: skip


def row(
    one: QueueState, pause: Paused | None, got: Received, servers: Sequence[Server], depth: QueueDepth | None = None
) -> schemas.Queue:  # fmt: skip
    """Return a row of the table."""
    minutes = LATELY / 60
    # If no old message is left, the messages that blocks took recently also arrived recently.
    old = one.messages > one.lately + one.set_aside
    deeper = depth is not None and one.more and depth.messages > one.messages
    return schemas.Queue(
        origin=one.origin, priority=one.priority, messages=depth.messages if depth and deeper else one.messages,
        bytes=depth.size if depth and deeper else one.size, more=one.more and not deeper,
        ready=one.ready, in_flight=one.in_flight, set_aside=one.set_aside, oldest=one.oldest, paused=pause,
        share=one.share, promised=got.promised, received=got.received,
        in_rate=(one.lately + (0 if old else got.messages)) / minutes, out_rate=got.messages / minutes,
        why=_why(one, pause, servers),
    )  # fmt: skip


def _why(one: QueueState, pause: Paused | None, servers: Sequence[Server]) -> str:
    """Return why a queue is waiting, from bounded reads; `explain` of one queue is exact."""
    if one.skipped == "paused":
        reason = f": {pause.reason}" if pause is not None and pause.reason else ""
        return f"paused{reason}" if pause is not None else "paused together with its group"
    if one.wakes_at is not None:
        return f"the last attempt failed; next attempt after {when(one.wakes_at)}"
    if not one.ready:
        return "all messages are set aside" if one.set_aside else "all messages are in flight"
    if one.skipped == "in flight":
        return "its first messages are in flight"
    if servers and not any(server.takes(one.origin) for server in servers):
        return "no DAG that services this ring takes this origin"
    return "waiting for its turn"


@router.get("/paused")
def paused(conn_id: str, ring: str, user: Reader) -> schemas.PausedOrigins:
    """Return paused origins, with and without waiting messages."""
    with opened(conn_id, ring) as queue:
        found = sorted(queue.admin.paused(), key=lambda pause: pause.origin)
    rows = [schemas.PausedOrigin(origin=pause.origin, pause=pause) for pause in found[:MOST_PAUSED]]
    return schemas.PausedOrigins(rows=rows, total=len(found))


@router.get("/queue")
def queue(conn_id: str, ring: str, origin: str, user: Reader, priority: Priority = "regular") -> schemas.QueueDetail:
    """Return one queue: its row, why it is waiting, its pages and its settings."""
    with opened(conn_id, ring) as opened_queue:
        found = opened_queue.inspect.queues(among=[(origin, priority)])
        pages = opened_queue.inspect.pages(origin, priority)
        settings = opened_queue.inspect.origin_settings(origin)
        if not found and not pages:
            raise HTTPException(404, "this queue is empty; its events record the outcomes of its messages")
        got, servers = _received(conn_id, opened_queue)
        nothing = QueueState(origin, priority, 0, 0, False, 0, 0, None, "", None, settings.share, 0)
        (row,) = _rows(opened_queue, found or [nothing], got, servers)
        explained = _explained(opened_queue, origin, priority)
    return schemas.QueueDetail(
        **dict(row), explain=explained, pages=pages,
        settings=schemas.Settings(
            share=settings.share, least=settings.least, most=settings.most, ordered=bool(settings.ordered)
        ),
    )  # fmt: skip


def _explained(queue: MessageQueue, origin: str, priority: str) -> schemas.Explained:
    if queue.inspect.has_many_newcomers():
        sentence = "many queues of this ring are new; the reason is known after the next block."
        return schemas.Explained(reason="new", sentence=sentence)
    if queue.config.service_weight is None and not any(one.limit for one in queue.inspect.servers()):
        sentence = "this ring has no service weight: each block sets its own limit, so there is no forecast."
        return schemas.Explained(reason="turn", sentence=sentence)
    found = queue.inspect.explain(origin, ahead=20, priority=priority)
    return schemas.Explained(
        reason=found.reason, sentence=found.sentence, block=found.block, changes=list(found.remedies)
    )


@router.get("/messages")
def messages(
    conn_id: str, ring: str, origin: str, user: Peeker, priority: Priority = "regular",
    page: Annotated[int | None, Query(ge=0, le=1 << 40)] = None, limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> schemas.Messages:  # fmt: skip
    """Return the first messages of a queue or of a page, without claiming them."""
    with opened(conn_id, ring) as queue:
        found = queue.inspect.peek(origin, page=page, limit=limit, priority=priority)
    return schemas.Messages(rows=[views.message(message) for message in found])


assert HIGH == "high", "the query parameter accepts the priorities of the core"
