"""What the API answers, by route: its description is made of this, and no answer leaves that is not of its shape.

The page's `types.ts` says the same to TypeScript.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, WithJsonSchema
from typing_extensions import TypedDict

Priority = Literal["regular", "high"]
Driver = Literal["sqlite", "postgresql"]
#: A time, as ISO 8601 in UTC.
Moment = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]


class _Said(TypedDict):
    """Plain values under names that are known, all of them, and no other."""


# Said to Pydantic, and after the class: to mypy it would be one more name.
_Said.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]


class Refusal(_Said):
    """Why something was not done, and what to do."""

    detail: str


class Weight(_Said):
    """Milliseconds and bytes."""

    time: int
    size: int


class Address(_Said):
    """Where a message lies."""

    origin: str
    page: int
    index: int
    priority: Priority


class May(_Said):
    """What somebody may do."""

    read: bool
    peek: bool
    write: bool
    trigger: bool


class Me(_Said):
    """Who asks."""

    user: str
    can: May
    refresh_seconds: int


class Store(_Said):
    """A connection, its rings, and what is wrong with it."""

    conn_id: str
    kind: Driver | None
    rings: list[str]
    error: str | None


# -- the ring --


class Arc(_Said):
    """A queue's part of the ring; with `more` its figures are at least these."""

    origin: str
    priority: Priority
    messages: int
    bytes: int
    more: bool
    in_flight: int
    paused: bool
    is_head: bool


class Rest(_Said):
    """The queues that are not drawn."""

    queues: int
    messages: int
    bytes: int


class Taken(_Said):
    """What a block took of a queue, or of all that are not told one by one, which have no origin."""

    origin: str | None
    priority: Priority | None
    weight: Weight
    messages: int
    reason: str


class Run(_Said):
    """A run of a DAG; its address is a path on this server."""

    dag_id: str
    run_id: str
    url: str


class Job(_Said):
    """What is known of the Spark job of a task's latest try: its id, and where Spark shows it."""

    id: str | None
    url: str | None


class Task(_Said):
    """A task of a run; its log is that of the latest try, unless `?try_number=` asks for another."""

    task_id: str
    map_index: int
    name: str
    state: str | None
    tries: int
    seconds: float | None
    url: str
    job: Job | None


class Block(_Said):
    """A block, and the run that planned it."""

    id: int
    key: str | None
    state: str
    by_hand: bool
    by: str
    planned_at: Moment
    ended_at: Moment | None
    deadline: Moment | None
    limit: Weight
    predicted: Weight
    used: Weight | None
    messages: int
    processed: int
    failed: int
    went_back: int
    set_aside: int
    expired: int
    by_queue: list[Taken]
    run: Run | None
    tasks: list[Task]


class Blocks(_Said):
    """Blocks, the latest first."""

    rows: list[Block]
    next: str | None


class Overview(_Said):
    """Whose turn it is, who waits, and the latest block."""

    ring: str
    order: str
    limit: Weight | None
    high: bool
    paths: bool
    now: Moment
    ready: int
    queues: int
    waiting_messages: int
    waiting_bytes: int
    exact: bool
    in_flight: int
    set_aside: int
    paused: int
    oldest: Moment | None
    head: str | None
    arcs: list[Arc]
    rest: Rest
    last_block: Block | None
    version: int


class Fair(_Said):
    """What a queue was promised, and what it received."""

    origin: str
    priority: Priority
    share: int
    promised: float | None
    received: float | None
    error: float | None
    longest_wait: float | None
    late: int
    blocks: int


class Fairness(_Said):
    """How fair the latest blocks were; the rows are those that were wronged most."""

    rows: list[Fair]
    jain: float | None
    blocks: int
    queues: int


# -- queues --


class Pause(_Said):
    """Why a queue is passed by, and until when."""

    reason: str
    who: str | None
    since: Moment | None
    until: Moment | None
    below: bool


class PausedOrigin(_Said):
    """An origin that is passed by, whether anything of it waits or not."""

    origin: str
    pause: Pause


class PausedOrigins(_Said):
    """The first of them, by name, and how many there are."""

    rows: list[PausedOrigin]
    total: int


class Queue(_Said):
    """A line of the table; rates are messages per minute."""

    origin: str
    priority: Priority
    messages: int
    bytes: int
    more: bool
    ready: int
    in_flight: int
    set_aside: int
    oldest: Moment | None
    paused: Pause | None
    share: int
    promised: float | None
    received: float | None
    in_rate: float
    out_rate: float
    why: str


class Queues(_Said):
    """A page of the table; `counted`: of all queues, when it was sorted."""

    rows: list[Queue]
    next: str | None
    total: int | None
    counted: bool


class Explained(_Said):
    """Why a queue waits, and what would change that."""

    reason: str
    sentence: str
    block: int | None
    changes: list[str]


class PageOfQueue(_Said):
    """A page of a queue."""

    page: int
    first: int
    remaining: int
    remaining_bytes: int
    kept: int
    state: str


class Settings(_Said):
    """How a queue is set."""

    share: int
    least: Weight | None
    most: Weight | None
    ordered: bool


class OneQueue(Queue):
    """A queue with all that is told of one."""

    explain: Explained
    pages: list[PageOfQueue]
    settings: Settings


class Payload(_Said):
    """The beginning of a payload: in hexadecimal, and as text and JSON where it is that."""

    shown: int
    truncated: bool
    text: str | None
    json: Any
    hex: str
    kept_apart: str | None


class Message(_Said):
    """A message that was looked at."""

    address: Address
    text: str
    id: str
    size: int
    state: str
    attempts: int
    weight: Weight | None
    sent_at: Moment | None
    not_before: Moment | None
    expires: Moment | None
    headers: dict[str, str]
    payload: Payload


class Messages(_Said):
    """The first messages of a queue, or of a page."""

    rows: list[Message]


# -- what was, and what would be --


class Foreseen(_Said):
    """What a foreseen block takes of a queue, and which part of it that is."""

    origin: str
    priority: Priority
    weight: Weight
    messages: int
    set_aside: int
    reason: str
    share: float


class LeftOut(_Said):
    """A queue of which a foreseen block takes nothing."""

    origin: str
    priority: Priority
    reason: str


class ForeseenBlock(_Said):
    """A block as it would be."""

    n: int
    order: str
    limit: Weight
    used: Weight
    messages: int
    queues: int
    by_queue: list[Foreseen]
    left_out: list[LeftOut]


class Forecast(_Said):
    """The next blocks."""

    blocks: list[ForeseenBlock]


class EventDetail(_Said):
    """What an event says beside where and when."""

    id: str | None
    weight: Weight | None
    success: bool | None
    error: str | None
    why: str | None
    who: str | None
    text: str | None


class Event(_Said):
    """What became of a message."""

    id: str
    at: Moment | None
    kind: str
    origin: str
    priority: Priority
    page: int
    index: int
    block: int | None
    detail: EventDetail


class Events(_Said):
    """Events, the latest first."""

    rows: list[Event]
    next: str | None


# -- what waits for a person, and what people decide --


class Aside(_Said):
    """A message that waits for a person."""

    address: Address
    text: str
    id: str | None
    size: int
    asked: Weight | None
    limit: Weight | None
    fits_now: bool
    reason: str
    block: int | None
    at: Moment | None
    arrived_at: Moment | None
    age_seconds: float | None
    #: Why the last attempt failed, of a message that was tried too often.
    error: str | None


class Asides(_Said):
    """Messages that wait, by their addresses."""

    rows: list[Aside]
    next: str | None
    total: int | None


class Executing(Run):
    """The run that executes a message; it waits where its DAG is paused."""

    paused: bool


class Stayed(_Said):
    """A message about which nothing was decided, and why."""

    address: Address
    detail: str


class Judged(_Said):
    """How many went back to their queues."""

    judged: int
    stayed: int
    refused: list[Stayed]


class Discarded(_Said):
    """How many were dropped."""

    discarded: int
    refused: list[Stayed]


class Paused(_Said):
    """A queue that is passed by now."""

    origin: str
    paused: bool


class Resumed(_Said):
    """A queue that is served again."""

    origin: str
    was_paused: bool


class Violation(_Said):
    """A rule that does not hold."""

    what: str
    where: str
    hint: str


class Checked(_Said):
    """What a check found: the first violations, and how many there are in all."""

    violations: list[Violation]
    count: int
    took_seconds: float


#: What any route may answer instead.
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Refusal, "description": said}
    for status, said in {
        401: "Nobody is signed in",
        403: "Whoever is signed in may not do this",
        404: "There is no such thing, or not any more",
        409: "It is in use, or was decided meanwhile",
        422: "This makes no sense",
        503: "The store does not answer, is of another version, or would take too long",
    }.items()
}
