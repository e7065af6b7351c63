"""Response schemas of the JSON API.

FastAPI validates every response against these models and describes them in `openapi.json`, of which
`npm run types` makes the page's `types.ts`. Most of them are read from the attributes of the queue's own value types.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Priority = Literal["regular", "high"]


class Schema(BaseModel):
    """A closed object: every name is described, and no other is served."""

    model_config = ConfigDict(
        extra="forbid", from_attributes=True, validate_by_name=True, json_schema_serialization_defaults_required=True
    )


class Refusal(Schema):
    """The reason for an error status, and what to do."""

    detail: str


class Weight(Schema):
    """Milliseconds and bytes."""

    time: int
    size: int


class Address(Schema):
    """Place of a message."""

    origin: str
    page: int
    index: int
    priority: Priority


class Permissions(Schema):
    """Permissions of the signed-in user."""

    read: bool
    peek: bool
    write: bool
    trigger: bool


class Me(Schema):
    """The signed-in user, and the refresh interval of the page."""

    user: str
    can: Permissions
    refresh_seconds: int


class Store(Schema):
    """A connection with its rings, or the reason why they cannot be read."""

    conn_id: str
    kind: Literal["sqlite", "postgresql"] | None = None
    rings: list[str] = []
    error: str | None = None


# -- ring and blocks --


class Arc(Schema):
    """A queue's part of the drawn ring; with `more`, its figures are lower bounds."""

    origin: str
    priority: Priority
    messages: int
    bytes: int = Field(validation_alias="size")
    more: bool
    in_flight: int
    paused: bool
    is_head: bool = False


class Rest(Schema):
    """Totals of the queues that are not drawn."""

    queues: int
    messages: int
    bytes: int


class BlockShare(Schema):
    """Part of a block that one queue received; without an origin, that all unlisted queues received."""

    origin: str | None
    priority: Priority | None
    weight: Weight = Field(validation_alias="granted")
    messages: int
    reason: str


class Run(Schema):
    """A DAG run; its URL is a path on this server."""

    dag_id: str
    run_id: str
    url: str


class Job(Schema):
    """Spark application of a task's latest try, and its page in Spark's UI."""

    id: str | None
    url: str | None


class Task(Schema):
    """A task instance of a run; its URL shows the log of the latest try."""

    task_id: str
    map_index: int
    name: str
    state: str | None
    tries: int
    seconds: float | None
    url: str
    job: Job | None


class Block(Schema):
    """A block, and the run that planned it."""

    id: int
    key: str | None
    state: str
    by_hand: bool
    by: str
    planned_at: datetime
    ended_at: datetime | None
    deadline: datetime
    limit: Weight
    predicted: Weight
    used: Weight | None
    messages: int
    processed: int = 0
    failed: int = 0
    went_back: int = 0
    set_aside: int = 0
    expired: int = 0
    by_queue: list[BlockShare]
    run: Run | None
    tasks: list[Task] = []


class Blocks(Schema):
    """Blocks, latest first."""

    rows: list[Block]
    next: str | None


class Overview(Schema):
    """The ring: next queue, waiting queues, totals, and the latest block."""

    ring: str
    order: str
    limit: Weight | None
    high: bool
    paths: bool
    now: datetime
    ready: int
    queues: int
    waiting_messages: int
    waiting_bytes: int
    exact: bool
    in_flight: int
    set_aside: int
    paused: int
    oldest: datetime | None
    head: str | None
    arcs: list[Arc]
    rest: Rest
    last_block: Block | None
    version: int


class OriginFairness(Schema):
    """A queue's promised and received share of the latest blocks."""

    origin: str
    priority: Priority
    share: int
    promised: float | None
    received: float | None
    error: float | None
    longest_wait: float | None
    late: int
    blocks: int = Field(validation_alias="contended")


class Fairness(Schema):
    """Fairness of the latest blocks; the rows with the largest error come first."""

    rows: list[OriginFairness]
    jain: float | None
    blocks: int
    queues: int


# -- queues --


class Pause(Schema):
    """Reason and end of a pause."""

    reason: str
    actor: str | None
    since: datetime | None
    until: datetime | None
    below: bool


class PausedOrigin(Schema):
    """A paused origin, with or without waiting messages."""

    origin: str
    pause: Pause


class PausedOrigins(Schema):
    """Paused origins by name, and their total number."""

    rows: list[PausedOrigin]
    total: int


class Queue(Schema):
    """A row of the queue table; rates are messages per minute."""

    origin: str
    priority: Priority
    messages: int
    bytes: int
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
    block: int | None = None
    changes: list[str] = []


class QueuePage(Schema):
    """A stored page of a queue."""

    page: int
    first: int
    remaining: int = Field(validation_alias="messages")
    remaining_bytes: int = Field(validation_alias="size")
    kept: int
    state: str


class Settings(Schema):
    """Settings of a queue."""

    share: int
    least: Weight | None
    most: Weight | None
    ordered: bool


class QueueDetail(Queue):
    """One queue: its row, why it is waiting, its pages and its settings."""

    explain: Explained
    pages: list[QueuePage]
    settings: Settings


class Payload(Schema):
    """The beginning of a payload: as hexadecimal digits, and as text and JSON if it is valid."""

    shown: int
    truncated: bool
    text: str | None = None
    json_: Any = Field(None, alias="json")
    hex: str = ""
    external: str | None = None


class Message(Schema):
    """A message, read without claiming it."""

    address: Address
    text: str
    id: str
    size: int
    state: str
    attempts: int
    weight: Weight | None
    sent_at: datetime | None
    headers: dict[str, str]
    payload: Payload


class Messages(Schema):
    """The first messages of a queue or of a page."""

    rows: list[Message]


# -- forecast and events --


class ForecastShare(Schema):
    """Part of a forecast block that a queue would receive."""

    origin: str
    priority: Priority
    weight: Weight
    messages: int
    set_aside: int
    reason: str
    share: float


class SkippedQueue(Schema):
    """A queue from which a forecast block takes nothing."""

    origin: str
    priority: Priority
    reason: str


class ForecastBlock(Schema):
    """A block that would be planned next."""

    n: int
    order: str
    limit: Weight
    used: Weight
    messages: int
    queues: int
    by_queue: list[ForecastShare]
    left_out: list[SkippedQueue]


class Forecast(Schema):
    """The next blocks."""

    blocks: list[ForecastBlock]


class EventDetail(Schema):
    """Details of an event."""

    id: str | None
    weight: Weight | None
    success: bool | None
    error: str | None
    why: str | None
    actor: str | None
    text: str | None


class Event(Schema):
    """Outcome of one message."""

    id: str
    at: datetime | None
    kind: str
    origin: str
    priority: Priority
    page: int
    index: int
    block: int | None
    detail: EventDetail


class Events(Schema):
    """Events, latest first."""

    rows: list[Event]
    next: str | None


# -- set-aside messages, decisions, the check --


class SetAsideMessage(Schema):
    """A message kept for manual handling."""

    address: Address
    text: str
    id: str | None
    size: int
    asked: Weight | None
    limit: Weight | None
    fits_now: bool
    reason: str
    block: int | None
    at: datetime | None
    arrived_at: datetime | None
    age_seconds: float | None
    #: Error of the last attempt, if the message ran out of attempts.
    error: str | None


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

    address: Address
    detail: str


class Requeued(Schema):
    """Number of messages that were requeued."""

    requeued: int
    stayed: int
    refused: list[Stayed]


class Discarded(Schema):
    """Number of messages that were discarded."""

    discarded: int
    refused: list[Stayed]


class Paused(Schema):
    """Confirmation of a pause."""

    origin: str
    paused: bool = True


class Resumed(Schema):
    """Confirmation that a pause ended, and whether there was one."""

    origin: str
    was_paused: bool


class Violation(Schema):
    """An invariant that does not hold."""

    what: str
    where: str
    hint: str


class Checked(Schema):
    """Result of a check: the first violations, and their total number."""

    violations: list[Violation]
    count: int
    took_seconds: float


#: Responses of any route, beside its own.
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Refusal, "description": description}
    for status, description in {
        401: "You are not signed in",
        403: "You do not have this permission",
        404: "Not found, or no longer there",
        409: "In use, or decided by another request",
        422: "Invalid request",
        503: "The store does not answer, has another schema version, or would take too long",
    }.items()
}
