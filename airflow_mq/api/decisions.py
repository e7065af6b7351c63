"""Routes of decisions: set-aside messages, pauses, and the check. Each decision records its actor."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from inspect import signature
from threading import Lock
from typing import Annotated, Any, Literal

from airflow.api.common.trigger_dag import trigger_dag
from airflow.exceptions import AirflowException
from airflow.models.dag import DagModel
from airflow.utils.types import DagRunTriggeredByType
from fastapi import APIRouter, Depends, HTTPException, Query
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, WithJsonSchema, WrapValidator

from airflow_mq.core.errors import InvalidInput, Refused
from airflow_mq.core.message import Address
from airflow_mq.queue import MessageQueue, SetAside
from airflow_mq.store.rows import LATEST

from . import schemas, views
from .access import Reader, Writer
from .guard import same_site_only
from .settings import overweight_dag
from .stores import opened

log = logging.getLogger("airflow_mq.api")

Reason = Literal["overweight", "most", "fraction", "size", "attempts", "swept"]

router = APIRouter(prefix="/stores/{conn_id}/rings/{ring}")
writing = APIRouter(prefix="/stores/{conn_id}/rings/{ring}", dependencies=[Depends(same_site_only)])

#: Upper bounds: messages counted, decided about per request, and read per filtered request.
MOST_COUNTED, MOST_AT_ONCE, MOST_LOOKED_AT = 10_000, 500, 5_000
#: Characters of an error that a filter compares.
MOST_ERROR = 200
#: Seconds that a decision about many messages may take, and a check.
DECIDING, CHECKING = 60.0, 600.0
_checking = Lock()
NOT_STARTED = (
    "cannot trigger the DAG {} ({}): it must exist without import errors and have the params of "
    "dags/overweight_by_hand.py; [airflow_mq] overweight_dag names it"
)

HINT = "copy the store, then read the disaster recovery guide and the output of `airflow-mq check`"
#: Violations that a response lists.
MOST_VIOLATIONS = 1_000

Text = Annotated[str, Field(max_length=2_000)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class AddressFields(_Body):
    """The parts of a message's address."""

    origin: Annotated[str, Field(min_length=1, max_length=255)]
    page: Annotated[int, Field(ge=0, le=1 << 40)]
    index: Annotated[int, Field(ge=0, le=1 << 40)]
    priority: Literal["regular", "high"] = "regular"

    def address(self) -> Address:
        """Return the address."""
        return Address(self.origin, self.page, self.index, self.priority)


def _read_address(given: Any, by_fields: Callable[[Any], AddressFields]) -> AddressFields:
    """Accept an address as text, like every command prints it, or as its parts."""
    if not isinstance(given, str):
        return by_fields(given)
    address = Address.parse(given)
    return by_fields(
        {"origin": address.origin, "page": address.page, "index": address.index, "priority": address.priority}
    )


#: An address in a request: "acme:0:3", or {"origin": "acme", "page": 0, "index": 3}.
AddressAsked = Annotated[
    AddressFields,
    WrapValidator(_read_address),
    WithJsonSchema({"anyOf": [{"type": "string"}, AddressFields.model_json_schema()]}),
]


class ExecuteRequest(_Body):
    """Request to execute a message by hand."""

    address: AddressAsked
    note: Text = ""


class RequeueRequest(_Body):
    """Request to requeue messages: these, all, or all whose last error begins with a text."""

    addresses: Annotated[list[AddressAsked], Field(max_length=MOST_AT_ONCE)] = []
    all: bool = False
    error: Annotated[str, Field(min_length=1, max_length=MOST_ERROR)] | None = None
    forget_attempts: bool = False
    why: Text = ""


class DiscardRequest(_Body):
    """Request to discard messages, with the reason."""

    addresses: Annotated[list[AddressAsked], Field(min_length=1, max_length=MOST_AT_ONCE)]
    why: Annotated[str, Field(min_length=1, max_length=2_000)]


class PauseRequest(_Body):
    """Request to pause an origin."""

    origin: Annotated[str, Field(min_length=1, max_length=255)]
    reason: Text = ""
    until: AwareDatetime | None = None
    below: bool = False


class ResumeRequest(_Body):
    """Request to resume an origin."""

    origin: Annotated[str, Field(min_length=1, max_length=255)]


@router.get("/set-aside")
def set_aside(
    conn_id: str, ring: str, user: Reader, after: str = "", limit: Annotated[int, Query(ge=1, le=500)] = 50,
    reason: Reason | None = None,
    before_block: Annotated[int | None, Query(ge=0, le=LATEST)] = None,
    error: Annotated[str | None, Query(min_length=1, max_length=MOST_ERROR)] = None,
) -> schemas.SetAsideMessages:  # fmt: skip
    """Return set-aside messages by address: their weight, and whether it fits into a block now.

    `before_block` returns only messages that an earlier block set aside. `error` returns only messages whose last error
    begins with this text, as requeuing by `error` does. `total` is null if another filter is set, or if there are more
    messages than the server counts.
    """
    with opened(conn_id, ring) as queue:
        start = Address.parse(after) if after else None
        found, following = _matching(queue, start, limit, reason, before_block, error)
        most = queue.inspect.max_message_weight()
        total = _counted(queue, error) if reason is None and before_block is None else None
    rows = [views.set_aside(message, most) for message in found]
    return schemas.SetAsideMessages(rows=rows, next=following, total=None if total == MOST_COUNTED else total)


def _counted(queue: MessageQueue, error: str | None) -> int:
    if error is None:
        return queue.set_aside.count(MOST_COUNTED)
    return len(queue.set_aside.list(limit=MOST_COUNTED, error=error))


def _matching(
    queue: MessageQueue, after: Address | None, limit: int, reason: str | None, before: int | None, error: str | None
) -> tuple[list[SetAside], str | None]:
    found: list[SetAside] = []
    looked = 0
    while True:
        some = queue.set_aside.list(after=after, limit=limit + 1, reason=reason, error=error, errors=True)
        for one in some:
            if len(found) == limit:
                return found, str(found[-1].address)
            if before is None or (one.block is not None and one.block < before):
                found.append(one)
        if len(some) <= limit:
            return found, None
        after, looked = some[-1].address, looked + len(some)
        if looked > MOST_LOOKED_AT:
            return found, str(after)


@writing.post("/set-aside/execute")
def execute(conn_id: str, ring: str, body: ExecuteRequest, user: Writer) -> schemas.Executing:
    """Trigger the DAG that executes one set-aside message, in the name of the signed-in user."""
    dag_id = overweight_dag()
    if not user.may_trigger(dag_id):
        raise HTTPException(403, f"missing permission: triggering {dag_id}")
    address = body.address.address()
    with opened(conn_id, ring) as queue:
        asked = _waiting(queue, address)
    conf: dict[str, Any] = {"address": str(address), "connection": conn_id, "ring": ring}
    if asked.weight is not None:
        conf |= {"time_limit": asked.weight[0], "size_limit": asked.weight[1]}
    run = _triggered(dag_id, conf, user.name, body.note)
    url = views.run_url(dag_id, run.run_id)
    return schemas.Executing(dag_id=dag_id, run_id=run.run_id, url=url, paused=_is_paused(dag_id))


def _waiting(queue: MessageQueue, address: Address) -> SetAside:
    """Return a set-aside message by its address, or raise 404."""
    before = Address(address.origin, address.page, address.index - 1, address.priority)
    for one in queue.set_aside.list(address.origin, after=before, limit=1):
        if one.address == address:
            return one
    raise HTTPException(
        404, f"no set-aside message at {address}: it may have been executed, requeued or discarded meanwhile"
    )


def _triggered(dag_id: str, conf: dict[str, Any], user: str, note: str) -> Any:
    """Trigger a run by Airflow's own function, which validates the DAG's params and records the user."""
    said: dict[str, Any] = {"triggered_by": DagRunTriggeredByType.UI, "triggering_user_name": user, "conf": conf}
    if note and "note" in signature(trigger_dag).parameters:
        said["note"] = note
    try:
        run = trigger_dag(dag_id, **said)
    except (AirflowException, ValueError) as error:
        log.warning("could not trigger %s for %s: %s", dag_id, user, error)
        raise HTTPException(409, NOT_STARTED.format(dag_id, type(error).__name__)) from None
    if run is None:
        raise HTTPException(409, f"Airflow did not create a run of {dag_id}")
    return run


def _is_paused(dag_id: str) -> bool:
    found = DagModel.get_current(dag_id)
    return bool(found is not None and found.is_paused)


@writing.post("/set-aside/requeue")
def requeue(conn_id: str, ring: str, body: RequeueRequest, user: Writer) -> schemas.Requeued:
    """Requeue set-aside messages that fit into a block now; the others stay set aside."""
    if [bool(body.addresses), body.all, body.error is not None].count(True) != 1:
        raise HTTPException(422, "specify exactly one of addresses, all, error")
    refused: list[schemas.Stayed] = []
    with opened(conn_id, ring, user.name, DECIDING) as queue:
        if not body.addresses:
            result = queue.set_aside.requeue_all(body.why, error=body.error, forget_attempts=body.forget_attempts)
            stayed = [_refusal(one.address, one.why) for one in result.stayed[:MOST_AT_ONCE]]
            return schemas.Requeued(requeued=len(result.moved), stayed=len(result.stayed), refused=stayed)

        def requeued(address: Address) -> bool:
            result = queue.set_aside.requeue(address, body.why, forget_attempts=body.forget_attempts)
            refused.extend(_refusal(one.address, one.why) for one in result.stayed)
            return bool(result.moved)

        moved = _each(body.addresses, requeued, refused)
    return schemas.Requeued(requeued=moved, stayed=len(refused), refused=refused)


@writing.post("/set-aside/discard")
def discard(conn_id: str, ring: str, body: DiscardRequest, user: Writer) -> schemas.Discarded:
    """Discard set-aside messages for good; an event records the actor and the reason."""
    refused: list[schemas.Stayed] = []
    with opened(conn_id, ring, user.name, DECIDING) as queue:
        count = _each(body.addresses, lambda address: queue.set_aside.discard(address, body.why) > 0, refused)
    return schemas.Discarded(discarded=count, refused=refused)


def _each(asked: Iterable[AddressFields], act: Callable[[Address], bool], refused: list[schemas.Stayed]) -> int:
    """Decide about each message separately: one rejection does not stop the others."""
    count = 0
    for one in asked:
        address = one.address()
        try:
            count += act(address)
        except (Refused, InvalidInput) as error:
            refused.append(_refusal(address, str(error)))
    return count


def _refusal(address: Address, why: str) -> schemas.Stayed:
    return schemas.Stayed(address=address, detail=why)


@writing.post("/pause")
def pause(conn_id: str, ring: str, body: PauseRequest, user: Writer) -> schemas.Paused:
    """Pause an origin: blocks skip it, and it still accepts messages."""
    until: datetime | None = body.until
    with opened(conn_id, ring, user.name) as queue:
        queue.admin.pause(body.origin, body.reason, until, below=body.below)
    return schemas.Paused(origin=body.origin)


@writing.post("/resume")
def resume(conn_id: str, ring: str, body: ResumeRequest, user: Writer) -> schemas.Resumed:
    """Resume an origin."""
    with opened(conn_id, ring, user.name) as queue:
        was = queue.admin.resume(body.origin)
    return schemas.Resumed(origin=body.origin, was_paused=was)


@writing.post("/check")
def check(conn_id: str, ring: str, user: Writer) -> schemas.Checked:
    """Check every invariant of the ring. A check reads the whole store, so only one runs at a time."""
    if not _checking.acquire(blocking=False):
        raise HTTPException(409, "another check is running; wait until it ends")
    began = time.monotonic()
    try:
        with opened(conn_id, ring, user.name, CHECKING) as queue:
            found = queue.check()
    finally:
        _checking.release()
    violations = [schemas.Violation(what=each.what, where=each.where, hint=HINT) for each in found[:MOST_VIOLATIONS]]
    return schemas.Checked(violations=violations, count=len(found), took_seconds=round(time.monotonic() - began, 3))
