"""Set-aside messages, and the decisions about them: schemas and routes. Each decision records its actor."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from inspect import signature
from typing import Annotated, Literal, cast

from airflow.api.common.trigger_dag import trigger_dag
from airflow.exceptions import AirflowException
from airflow.utils.types import DagRunTriggeredByType
from fastapi import APIRouter, Depends, HTTPException, Query
from pydantic import Field
from sqlalchemy.exc import SQLAlchemyError

from airflow_mq.engine.queue import MessageQueue
from airflow_mq.engine.queue.values import SetAside
from airflow_mq.engine.rules import message as rules
from airflow_mq.engine.rules.errors import Busy, InFlight, InvalidInput, Refused
from airflow_mq.engine.rules.filters import Selection
from airflow_mq.settings import text

from . import schemas
from .access import Reader, Writer, same_site_only
from .runs import Run, is_dag_paused, run_url
from .schemas import AddressAsked, Body, Hex, Schema, Text, Weight
from .stores import opened

log = logging.getLogger("airflow_mq.api")

router = APIRouter()
WRITING = [Depends(same_site_only)]

Reason = Literal["overweight", "most", "fraction", "size", "attempts", "swept"]

#: Upper bounds: messages counted, and decided about per request.
MOST_COUNTED, MOST_AT_ONCE = 10_000, 500
#: Characters of an error that a filter compares.
MOST_ERROR = 200
#: Seconds that a decision about many messages may take.
DECIDING = 60.0
NOT_STARTED = (
    "cannot trigger the DAG {} ({}): it must exist without import errors, have the params of "
    "dags/overweight_by_hand.py, and list this connection among those it permits; [airflow_mq] overweight_dag names it"
)

NO_LIMIT = "this ring has no service weight: requeue it on the command line, with --service-weight"
NOT_STORED = (
    "Airflow's metadata database reported an error: a run of {} may or may not have been created; look at its runs "
    "before you try again"
)


class SetAsideMessage(Schema):
    """A message kept for manual handling."""

    address: Text
    id: Hex
    size: int
    weight: Weight | None
    limit: Weight | None
    #: The limit of bytes that it exceeds.
    most_bytes: int | None
    #: Why a requeue would leave it set aside; empty if it fits now.
    stays: str
    reason: str
    block: int | None
    at: datetime | None
    arrived_at: datetime | None
    #: Seconds since it was enqueued.
    age: float | None
    #: Error of the last attempt, if the message ran out of attempts.
    error: str


class SetAsideMessages(Schema):
    """Set-aside messages, ordered by address."""

    rows: list[SetAsideMessage]
    next: str | None
    total: int | None


class Executing(Run):
    """The run that executes a message; it waits while its DAG is paused."""

    paused: bool


class Stayed(Schema):
    """A message that was not changed, and why."""

    address: Text
    why: str


class Decided(Schema):
    """Number of messages that were requeued or discarded, and of those that stay, with the first of them.

    `excluded` states how many selected messages were left out of the decision, and why.
    """

    done: int
    stayed: int
    refused: list[Stayed]
    excluded: list[str]


class ExecuteRequest(Body):
    """Request to execute a message by hand."""

    address: AddressAsked
    note: schemas.Reason = ""


class Filtered(Body):
    """Filters of a list, or of a decision about all messages that the list shows."""

    reason: Reason | None = None
    error: Annotated[str, Field(min_length=1, max_length=MOST_ERROR)] | None = None

    def filters(self) -> Selection:
        """Return the filters that are set."""
        return cast(Selection, self.model_dump(include=set(Filtered.model_fields), exclude_none=True))


class RequeueRequest(Filtered):
    """Request to requeue messages: these, all, or all that filters select."""

    addresses: list[AddressAsked] = Field(default_factory=list, max_length=MOST_AT_ONCE)
    all: bool = False
    forget_attempts: bool = False
    why: schemas.Reason = ""


class DiscardRequest(Body):
    """Request to discard messages, with the reason."""

    addresses: Annotated[list[AddressAsked], Field(min_length=1, max_length=MOST_AT_ONCE)]
    why: Annotated[schemas.Reason, Field(min_length=1)]


@router.get("/set-aside")
def set_aside(
    conn_id: str,
    ring: str,
    user: Reader,
    filtered: Annotated[Filtered, Depends()],
    after: str = "",
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> SetAsideMessages:
    """Return set-aside messages by address: their weight, and whether a requeue would move them now.

    `error` returns only messages whose last error begins with this text. A request to requeue accepts the same filters.
    `total` is null if the filters select more messages than the server counts.
    """
    filters = filtered.filters()
    with opened(conn_id, ring) as queue:
        start = rules.Address.parse(after) if after else None
        found = queue.set_aside.list(after=start, limit=limit + 1, errors=True, **filters)
        following = str(found[limit - 1].address) if len(found) > limit else None
        found = found[:limit]
        limited = queue.config.service_weight is not None
        stays = queue.set_aside.refusals(found) if limited else [NO_LIMIT] * len(found)
        if filters:
            total = len(queue.set_aside.list(limit=MOST_COUNTED, **filters))
        else:
            total = queue.set_aside.count(MOST_COUNTED)
    rows = [SetAsideMessage.of(message, stays=refusal) for message, refusal in zip(found, stays, strict=True)]
    return SetAsideMessages(rows=rows, next=following, total=None if total == MOST_COUNTED else total)


def overweight_dag() -> str:
    """Return the id of the DAG that executes one set-aside message."""
    return text("overweight_dag", "overweight_by_hand")


@router.post("/set-aside/execute", dependencies=WRITING)
def execute(conn_id: str, ring: str, body: ExecuteRequest, user: Writer) -> Executing:
    """Trigger the DAG that executes one set-aside message, in the name of the signed-in user."""
    dag_id = overweight_dag()
    if not user.may_trigger(dag_id):
        raise HTTPException(403, f"missing permission: triggering {dag_id}")
    address = body.address
    with opened(conn_id, ring) as queue:
        message = _waiting(queue, address)
    conf = {"address": str(address), "connection": conn_id, "ring": ring}
    if message.weight is not None:
        conf["limit"] = message.weight.typed
    run_id = _triggered(dag_id, conf, user.name, body.note)
    return Executing(dag_id=dag_id, run_id=run_id, url=run_url(dag_id, run_id), paused=is_dag_paused(dag_id) is True)


def _waiting(queue: MessageQueue, address: rules.Address) -> SetAside:
    """Return a set-aside message by its address, or raise 404."""
    before = rules.Address(address.origin, address.page, address.index - 1, address.priority)
    for message in queue.set_aside.list(address.origin, after=before, limit=1):
        if message.address == address:
            return message
    raise HTTPException(
        404, f"no set-aside message at {address}: it may have been executed, requeued or discarded meanwhile"
    )


def _triggered(dag_id: str, conf: dict[str, str], user: str, note: str) -> str:
    """Trigger a run by Airflow's own function, which validates the DAG's params and records the user."""
    noted = {"note": note} if note and "note" in signature(trigger_dag).parameters else {}
    try:
        run = trigger_dag(dag_id, triggered_by=DagRunTriggeredByType.UI, triggering_user_name=user, conf=conf, **noted)
    except SQLAlchemyError as error:
        log.warning("could not trigger %s for %s: %s", dag_id, user, getattr(error, "orig", error))
        raise HTTPException(503, NOT_STORED.format(dag_id)) from None
    except (AirflowException, ValueError) as error:
        log.warning("could not trigger %s for %s: %s", dag_id, user, error)
        raise HTTPException(409, NOT_STARTED.format(dag_id, type(error).__name__)) from None
    if run is None:
        raise HTTPException(409, f"Airflow did not create a run of {dag_id}")
    return str(run.run_id)


@router.post("/set-aside/requeue", dependencies=WRITING)
def requeue(conn_id: str, ring: str, body: RequeueRequest, user: Writer) -> Decided:
    """Requeue set-aside messages that fit into a block now; the others stay set aside."""
    by_addresses, filters = "addresses" in body.model_fields_set, body.filters()
    if [by_addresses, body.all, bool(filters)].count(True) != 1:
        raise HTTPException(422, "specify exactly one of addresses, all, filters")
    with opened(conn_id, ring, user.name, DECIDING) as queue:
        if not by_addresses:
            result = queue.set_aside.requeue_all(body.why, forget_attempts=body.forget_attempts, **filters)
            done, stayed, refused = len(result.moved), len(result.stayed), result.stayed[:MOST_AT_ONCE]
            return Decided.of(None, done=done, stayed=stayed, refused=refused, excluded=result.exclusions())
        why, forget = body.why, body.forget_attempts
        return _decided(body.addresses, lambda some: queue.set_aside.requeue(some, why, forget_attempts=forget))


@router.post("/set-aside/discard", dependencies=WRITING)
def discard(conn_id: str, ring: str, body: DiscardRequest, user: Writer) -> Decided:
    """Discard set-aside messages permanently; an event records the actor and the reason."""
    with opened(conn_id, ring, user.name, DECIDING) as queue:
        return _decided(body.addresses, lambda some: queue.set_aside.discard(some, body.why))


def _decided(addresses: Iterable[rules.Address], decide: Callable[[Sequence[rules.Address]], object]) -> Decided:
    """Decide about messages, each once; return how many were rejected or stay, and why."""
    chosen = list(dict.fromkeys(addresses))
    refused = _refused(chosen, decide)
    return Decided(done=len(chosen) - len(refused), stayed=len(refused), refused=refused, excluded=[])


def _refused(addresses: Sequence[rules.Address], decide: Callable[[Sequence[rules.Address]], object]) -> list[Stayed]:
    """Decide about messages at once; after a rejection, about each half: it does not stop the others."""
    try:
        return [Stayed(address=str(one.address), why=one.why) for one in getattr(decide(addresses), "stayed", ())]
    except (Refused, InvalidInput) as error:
        half = len(addresses) // 2
        # A ring that is in use makes each half wait as well.
        if half and (isinstance(error, InFlight) or not isinstance(error, Busy)):
            return _refused(addresses[:half], decide) + _refused(addresses[half:], decide)
        return [Stayed(address=str(address), why=str(error)) for address in addresses]
