"""Message queue connections, opened for one request, and errors as responses without secrets."""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from shlex import quote
from threading import BoundedSemaphore
from typing import Literal

from airflow.models import Connection
from airflow.utils.session import create_session
from fastapi import HTTPException
from sqlalchemy import select

from airflow_mq.connections import Target, target_of
from airflow_mq.engine.queue import MessageQueue
from airflow_mq.engine.rules.errors import (
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
from airflow_mq.engine.store.pipelined import within
from airflow_mq.engine.store.rings import is_ring_name
from airflow_mq.hooks import told_safely
from airflow_mq.provider import CONNECTION_TYPE
from airflow_mq.settings import text

from .access import NO_CONNECTION, team_of
from .schemas import Schema

ENVIRONMENT = "AIRFLOW_CONN_"
#: Seconds that a request waits for a server, or for the ring.
PATIENCE = 4
#: Concurrent requests to stores: a server that does not answer must not use up Airflow's own threads.
AT_ONCE = 16
#: Concurrent requests to one store: a server that does not answer must not delay the others.
AT_ONCE_IN_ONE = 4
#: Seconds that a read may take.
MOST_SECONDS = 10.0
TOO_SLOW = (
    "timeout: this store needs more than {:.0f} seconds for this request; decisions that it made before then stand, so "
    "reload; the command line (airflow-mq) has no such limit"
)
NOT_READ = (
    "could not read this connection: Airflow's database or a secrets backend reported an error, or [airflow_mq] "
    "connections lists an id that does not exist; try again"
)
#: Status of each kind of error; of any other, 503.
STATUS: dict[type[MessageQueueError], int] = {
    InvalidInput: 422,
    UnknownRing: 404,
    UnknownBlock: 404,
    NotFound: 404,
    NotPermitted: 403,
    QueuePaused: 409,
    Busy: 409,
    Refused: 409,
}
_room = BoundedSemaphore(AT_ONCE)
_rooms: defaultdict[str, BoundedSemaphore] = defaultdict(lambda: BoundedSemaphore(AT_ONCE_IN_ONE))


class Store(Schema):
    """A connection with its rings, or the reason why they cannot be read."""

    conn_id: str
    kind: Literal["sqlite", "postgresql"] | None
    rings: list[str]
    error: str | None
    #: The command that the error suggests; empty if there is none.
    command: str


def connection_ids() -> list[str]:
    """Return the ids of message queue connections in Airflow's database, the environment and the settings."""
    return sorted(_stored() | {name for name in _named() if _is_ours(name)})


def is_listed(conn_id: str) -> bool:
    """Return whether a connection has exactly this id. Airflow's environment also finds it under other spellings."""
    return conn_id in _named() or conn_id in _stored()


def _stored() -> set[str]:
    with create_session() as session:
        return set(session.scalars(select(Connection.conn_id).where(Connection.conn_type == CONNECTION_TYPE)))


def _named() -> set[str]:
    of_environment = {
        name.removeprefix(ENVIRONMENT).lower()
        for name, value in os.environ.items()
        if name.startswith(ENVIRONMENT) and "airflow" in value.lower()
    }
    return of_environment | {name.strip() for name in text("connections").split(",") if name.strip()}


def _connection(conn_id: str) -> Connection:
    """Return a connection as the tasks of its team would get it."""
    team = team_of(conn_id)
    return Connection.get_connection_from_secrets(conn_id, **({} if team is None else {"team_name": team}))


def _is_ours(conn_id: str) -> bool:
    try:
        return bool(_connection(conn_id).conn_type == CONNECTION_TYPE)
    except Exception:
        # The connection does not exist, or its secrets backend failed: it is not shown.
        return False


def target(conn_id: str) -> Target:
    """Return the target of a message queue connection, or raise 404, or 503 for one that Airflow cannot read."""
    try:
        connection = _connection(conn_id) if is_listed(conn_id) else None
    except Exception:
        raise HTTPException(503, NOT_READ) from None
    if connection is None or connection.conn_type != CONNECTION_TYPE:
        raise HTTPException(404, NO_CONNECTION)
    found = target_of(connection)
    return replace(found, address=replace(found.address, connect_timeout=min(found.address.connect_timeout, PATIENCE)))


@contextmanager
def opened(
    conn_id: str, ring: str | None = None, actor: str | None = None, seconds: float = MOST_SECONDS
) -> Iterator[MessageQueue]:
    """Open a ring for one request; errors become responses.

    :param actor: the actor recorded with decisions.
    :param seconds: the request fails at its first statement after this time.
    """
    with ExitStack() as stack:
        _enter(stack, _room, "too many concurrent requests; retry in a few seconds")
        try:
            where = target(conn_id)
            # `target` raised for an unknown id, so there are at most as many semaphores as connections.
            refusal = (
                f"too many concurrent requests for {conn_id!r}, or its store does not answer; retry in a few seconds"
            )
            _enter(stack, _rooms[conn_id], refusal)
            limit = min(where.address.statement_timeout, math.ceil(seconds))
            address = replace(where.address, statement_timeout=limit)
            # A slow store reports its own timeout first; this one ends a request whose store never answers.
            stack.enter_context(within(seconds + 1))
            with MessageQueue(address, ring or where.ring, busy_timeout=PATIENCE, actor=actor) as queue:
                queue.store.probe, queue.store.options = _Deadline(seconds), f"--conn-id {quote(conn_id)}"
                yield queue
        except _TooSlow:
            raise HTTPException(503, TOO_SLOW.format(seconds)) from None
        except MessageQueueError as error:
            raise answered(error) from None


def _enter(stack: ExitStack, room: BoundedSemaphore, refusal: str) -> None:
    if not room.acquire(blocking=False):
        raise HTTPException(503, refusal, {"Retry-After": "2"})
    stack.callback(room.release)


class _TooSlow(Exception):
    """Raised when a request exceeds its time."""


class _Deadline:
    """A probe that raises before the first statement after its time; never between a commit and its return."""

    def __init__(self, seconds: float) -> None:
        self.until = time.monotonic() + seconds

    def __call__(self, statement: str) -> None:
        if time.monotonic() > self.until and statement != "committed":
            raise _TooSlow


def answered(error: MessageQueueError) -> HTTPException:
    """Return an error as a response. A driver's text may hold a secret, so store errors use our own text."""
    if isinstance(error, (SchemaTooOld, SchemaTooNew, InvalidInput, Refused)):
        status = next((status for kind, status in STATUS.items() if isinstance(error, kind)), 503)
        return HTTPException(status, str(error))
    return HTTPException(503, told_safely(error), {"Retry-After": "5"} if isinstance(error, StoreBusy) else None)


def described(conn_id: str) -> Store:
    """Return a connection with the rings of its store, or with the reason why they cannot be read."""
    store = Store(conn_id=conn_id, kind=None, rings=[], error=None, command="")
    commands = ["airflow-mq store upgrade"]
    try:
        where = target(conn_id)
        store.kind = where.address.driver
        if is_ring_name(where.ring):
            commands.append(f"airflow-mq ring create {where.ring}")
        with opened(conn_id, where.ring, seconds=PATIENCE) as queue:
            store.rings = sorted(queue.admin.rings(), key=lambda name: name != where.ring)
    except HTTPException as refused:
        store.error = str(refused.detail)
    except MessageQueueError as error:
        store.error = told_safely(error)
    # The text may quote a value of the connection: no other command is read from it.
    suggested = [command for command in commands if f"`{command}`" in (store.error or "")]
    store.command = f"{suggested[0]} --conn-id {quote(conn_id)}" if suggested else ""
    return store
