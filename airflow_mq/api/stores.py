"""Connections of our type, opened for one request; and errors as answers that hold no secret."""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from threading import BoundedSemaphore
from typing import Any

from airflow.models import Connection
from airflow.utils.session import create_session
from fastapi import HTTPException
from sqlalchemy import select

from airflow_mq.core.errors import (
    Busy,
    InvalidInput,
    MessageQueueError,
    NotFound,
    NotPermitted,
    QueuePaused,
    Refused,
    SchemaTooNew,
    SchemaTooOld,
    StoreBusy,
    UnknownBlock,
    UnknownRing,
)
from airflow_mq.hooks import Target, target_of, told_safely
from airflow_mq.provider import CONNECTION_TYPE
from airflow_mq.queue import MessageQueue
from airflow_mq.store.bounded import within

from . import schemas
from .access import NO_CONNECTION, team_of
from .settings import connections

ENVIRONMENT = "AIRFLOW_CONN_"
#: Seconds that a request waits for a server, or for somebody else who holds the ring.
PATIENCE = 4
#: Requests that may be in stores at the same time: a server that does not answer must not hold up Airflow's own.
AT_ONCE = 16
#: Requests that may be in one store: a server that does not answer must not hold up the others.
AT_ONCE_IN_ONE = 4
#: Seconds that a look may take.
MOST_SECONDS = 10.0
_room = BoundedSemaphore(AT_ONCE)
_rooms: defaultdict[str, BoundedSemaphore] = defaultdict(lambda: BoundedSemaphore(AT_ONCE_IN_ONE))


def connection_ids() -> list[str]:
    """The connections of our type: of Airflow's database, of the environment, and those that the settings name."""
    with create_session() as session:
        found = set(session.scalars(select(Connection.conn_id).where(Connection.conn_type == CONNECTION_TYPE)))
    found |= {name for name in _named() if _is_ours(name)}
    return sorted(found)


def _named() -> set[str]:
    of_environment = {
        name.removeprefix(ENVIRONMENT).lower()
        for name, value in os.environ.items()
        if name.startswith(ENVIRONMENT) and "airflow" in value.lower()
    }
    return of_environment | set(connections())


def _connection(conn_id: str) -> Any:
    """Return a connection as the tasks of its team would get it."""
    team = team_of(conn_id)
    return Connection.get_connection_from_secrets(conn_id, **({} if team is None else {"team_name": team}))


def _is_ours(conn_id: str) -> bool:
    try:
        return bool(_connection(conn_id).conn_type == CONNECTION_TYPE)
    except Exception:
        # It is gone, or cannot be read: what cannot be named is not shown.
        return False


def target(conn_id: str) -> Target:
    """What a connection names, if it is one of ours."""
    try:
        connection = _connection(conn_id)
    except Exception:
        connection = None
    if connection is None or connection.conn_type != CONNECTION_TYPE:
        raise HTTPException(404, NO_CONNECTION)
    found = target_of(connection)
    return replace(found, address=replace(found.address, connect_timeout=min(found.address.connect_timeout, PATIENCE)))


@contextmanager
def opened(
    conn_id: str, ring: str | None = None, who: str | None = None, seconds: float = MOST_SECONDS
) -> Iterator[MessageQueue]:
    """The queue that a connection and a ring name, for one request; what goes wrong is answered.

    :param who: recorded with decisions.
    :param seconds: after which it is given up, at its next statement.
    """
    with ExitStack() as stack:
        _enter(stack, _room, "too many ask at once; try again in a moment")
        try:
            where = target(conn_id)
            # Kept for connections that there are, so there are never more of these than of connections.
            _enter(stack, _rooms[conn_id], f"too many ask for {conn_id!r} at once, or its store does not answer")
            limit = min(where.address.statement_timeout, math.ceil(seconds))
            address = replace(where.address, statement_timeout=limit)
            # A store that answers late has its own time-out, and says so; this ends what never answers.
            stack.enter_context(within(seconds + 1))
            with MessageQueue(address, ring or where.ring, busy_timeout=PATIENCE, actor=who) as queue:
                queue.store.probe = _Deadline(seconds)
                yield queue
        except _TooSlow:
            raise HTTPException(
                503,
                f"this takes longer than {seconds:.0f} seconds on this store; the command line has the time: "
                "airflow-mq",
            ) from None
        except MessageQueueError as error:
            raise answered(error) from None


def _enter(stack: ExitStack, room: BoundedSemaphore, refusal: str) -> None:
    if not room.acquire(blocking=False):
        raise HTTPException(503, refusal, {"Retry-After": "2"})
    stack.callback(room.release)


class _TooSlow(Exception):
    """A request took too long."""


class _Deadline:
    """Called before each statement: nobody waits for an answer for ever, and nothing is left half done by a look."""

    def __init__(self, seconds: float) -> None:
        self.until = time.monotonic() + seconds

    def __call__(self, statement: str) -> None:
        if time.monotonic() > self.until and statement != "committed":
            raise _TooSlow


def answered(error: MessageQueueError) -> HTTPException:
    """An error as an answer. Of a store's it says what our own words say: a driver's may hold a secret."""
    if isinstance(error, (SchemaTooOld, SchemaTooNew, InvalidInput, Refused)):
        return HTTPException(_status(error), str(error))
    return HTTPException(503, told_safely(error), {"Retry-After": "5"} if isinstance(error, StoreBusy) else None)


def _status(error: MessageQueueError) -> int:
    for kind, status in (
        (InvalidInput, 422),
        (UnknownRing, 404),
        (UnknownBlock, 404),
        (NotFound, 404),
        (NotPermitted, 403),
        (QueuePaused, 409),
        (Busy, 409),
        (Refused, 409),
    ):
        if isinstance(error, kind):
            return status
    return 503


def described(conn_id: str) -> schemas.Store:
    """Return a connection with the rings of its store, or with the reason why they cannot be read."""
    store = schemas.Store(conn_id=conn_id)
    try:
        where = target(conn_id)
        store.kind = where.address.driver
        with opened(conn_id, where.ring, seconds=PATIENCE) as queue:
            store.rings = sorted(queue.admin.rings(), key=lambda name: name != where.ring)
    except HTTPException as refused:
        store.error = str(refused.detail)
    except MessageQueueError as error:
        store.error = told_safely(error)
    return store
