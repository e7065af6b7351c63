"""Common base of the operators that enqueue: keys, origins, and the send itself."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_mq import failures
from airflow_mq.adapters import Changed
from airflow_mq.engine.rules.blob import Reference
from airflow_mq.engine.rules.errors import KeyConflict, NotPermitted
from airflow_mq.engine.rules.groups import SEPARATOR
from airflow_mq.engine.rules.message import Message, check_key
from airflow_mq.engine.rules.priority import REGULAR
from airflow_mq.installation import installation
from airflow_mq.keys import key_for
from airflow_mq.operators.base import QueueOperator, refuse_text_of, seconds_of, weight_of
from airflow_mq.words import many

if TYPE_CHECKING:
    from airflow.sdk import Context
    from jinja2 import Environment

    from airflow_mq.engine.queue import MessageQueue
    from airflow_mq.operators.base import GivenWeight

OriginOf = Callable[[Any], str]
#: A message with its origin.
Addressed = tuple[str, bytes | Message]
#: Scope of a message's own key: every sender to its origin, or one task of one run.
SCOPES = RING, RUN = "ring", "run"


class File(NamedTuple):
    """A file whose content is a payload."""

    size: int
    open: Callable[[], IO[bytes]]
    #: Changes with the file's content.
    version: str
    path: str


class Sourced(NamedTuple):
    """A message of a source."""

    origin: str
    #: Bytes, text, a `File`, or anything that becomes JSON.
    payload: Any
    #: Names the message in every run and for every sender; used unless `idempotent` is off.
    key: str | None = None
    #: `key`, `weight`, `headers` and `priority` that the author gave to this message.
    fields: Mapping[str, Any] = {}


class EnqueueOperator(QueueOperator):
    """Base of the operators that enqueue.

    :param origin: origin of all messages, or a function of the message (templated, if it is text)
    :param key_scope: `ring`: a message's own key is accepted once, whichever run sends it; `run`: once in each run
    :param idempotent: give messages keys; without keys a send is faster, and a retry may send twice
    :param weight: predicted cost of each message, `10m/1GiB` or `[milliseconds, bytes]` (templated)
    :param headers: headers of each message (templated)
    :param not_before: seconds until the messages join their queues (templated)
    :param expires: seconds until the messages expire (templated)
    :param priority: `high` messages are serviced before `regular` ones (templated)
    :param of_team: put the team of the DAG (of Airflow's multi-team) before each origin: `orders` becomes `team/orders`
    """

    template_fields: Sequence[str] = (
        *QueueOperator.template_fields, "origin", "weight", "headers", "not_before", "expires", "priority",
    )  # fmt: skip

    def __init__(
        self,
        *,
        origin: str | OriginOf | None = None,
        key_scope: str = RING,
        idempotent: bool = True,
        weight: GivenWeight = None,
        headers: Mapping[str, str] | None = None,
        not_before: float | str | None = None,
        expires: float | str | None = None,
        priority: str = REGULAR,
        of_team: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.origin = origin
        self.key_scope = key_scope
        self.idempotent = idempotent
        self.weight = weight
        self.headers = headers
        self.not_before = not_before
        self.expires = expires
        self.priority = priority
        self.of_team = of_team

    def source(self) -> Iterator[Sourced]:
        """Yield the messages."""
        raise NotImplementedError

    def _do_render_template_fields(
        self, parent: Any, template_fields: Iterable[str], context: Context, jinja_env: Environment, seen_oids: set[int]
    ) -> None:
        """Render all fields but an origin that is a function of the message: Airflow would call it, without one."""
        if parent is self:
            if callable(self.origin):
                template_fields = [name for name in template_fields if name != "origin"]
            self.before_rendering(jinja_env, seen_oids)
        super()._do_render_template_fields(parent, template_fields, context, jinja_env, seen_oids)
        if parent is self:
            self.after_rendering()

    def before_rendering(self, jinja_env: Environment, seen_oids: set[int]) -> None:
        """Prepare the fields; those of XComs and of mapped values are rendered already, and seen."""

    def after_rendering(self) -> None:
        """Finish the fields that were rendered."""

    def execute(self, context: Context) -> dict[str, int]:
        if self.key_scope not in SCOPES:
            raise AirflowFailException(
                f"invalid key_scope {self.key_scope!r}: expected {' or '.join(map(repr, SCOPES))}"
            )
        ti = context["ti"]
        # The same at every try and after a clear.
        map_index = -1 if ti.map_index is None else ti.map_index
        base = f"{installation()}:{ti.dag_id}/{ti.run_id}/{ti.task_id}/{map_index}"
        above = team_of(context) + SEPARATOR if self.of_team else ""
        with self.opened(context) as queue, self.observe(queue).sending(), ExitStack() as held:
            sent = self._send(queue, self._addressed(queue, held, base, above))
        self.log.info(
            "Enqueued %s of %d bytes on ring %r; %d were enqueued before.",
            many(sent["count"], "message"),
            sent["size"],
            queue.ring,
            sent["repeated"],
        )
        return sent

    def _send(self, queue: MessageQueue, addressed: Iterator[Addressed]) -> dict[str, int]:
        try:
            sent = queue.enqueue_messages(
                addressed,
                weight=weight_of(self.weight, "weight"),
                headers=self.headers or None,
                not_before=seconds_of(self.not_before, "not_before"),
                expires=seconds_of(self.expires, "expires"),
                priority=self.priority,
            )
        except KeyConflict as error:
            raise AirflowFailException(
                f"{error}. The source returned other content than when this task enqueued before: order the query, or "
                "name what identifies a message (key, key_column). A message's own key has to change with its "
                "content: add a version or a time of change to it, or set key_scope='run'"
            ) from None
        except NotPermitted as error:
            # A retry would be refused again.
            raise AirflowFailException(str(error)) from None
        return {"count": sent.count, "size": sent.size, "repeated": sent.repeated}

    def only_origin(self) -> str | None:
        return self.origin if isinstance(self.origin, str) and not self.of_team else None

    def origin_of(self, message: object, own: str | None) -> str:
        """Return the origin of a message: its own, or the operator's."""
        origin = self._common_origin(message) if own is None else own
        if not isinstance(origin, str):
            # Its value may be the message itself.
            raise AirflowFailException(
                f"a message has no origin (of type {type(origin).__name__}): set origin to text or to a function that "
                "returns text, or give each message an origin of its own"
            )
        return origin

    def _common_origin(self, message: object) -> object:
        if not callable(self.origin):
            refuse_text_of(self.origin, "origin")
            return self.origin
        try:
            return self.origin(message)
        except Exception as error:
            # The text of its error may quote the message.
            raise failures.loggable(error) from None

    def _addressed(self, queue: MessageQueue, held: ExitStack, base: str, above: str) -> Iterator[Addressed]:
        """Yield the messages of the source with their origins; external payloads are held until they are sent."""
        # A row of another origin, or another order of origins, changes no key.
        numbers: Counter[str] = Counter()
        for sourced in self.source():
            payload, number = sourced.payload, numbers[sourced.origin]
            numbers[sourced.origin] += 1
            if isinstance(payload, File):
                is_large = payload.size > queue.config.max_message_len
                try:
                    with payload.open() as file:
                        payload = held.enter_context(queue.payloads.put(file)).reference if is_large else file.read()
                except Changed:
                    raise Changed(
                        f"{sourced.payload.path!r} changed while the task read it; a retry reads it again"
                    ) from None
            key, fields = self._key(base, sourced, number), sourced.fields
            weight = None if fields.get("weight") is None else weight_of(fields["weight"], "weight of a message")
            options = key, weight, fields.get("headers"), fields.get("priority")
            data = as_bytes(payload)
            yield above + sourced.origin, Message(data, *options) if any(one is not None for one in options) else data

    def _key(self, base: str, sourced: Sourced, number: int) -> Any:
        """Return the idempotency key of a message, or None.

        :param number: its place among the messages of its origin that this task sends in this run
        """
        own = sourced.fields.get("key")
        if own is None:
            own = sourced.key if self.idempotent else None
        if own is not None:
            return check_key(own) if self.key_scope == RING else key_for(base, f"key {check_key(own)}")
        return key_for(base, f"message {number}") if self.idempotent else None


def as_bytes(payload: Any) -> bytes:
    """Return a payload as bytes: text in UTF-8, anything else as JSON."""
    if isinstance(payload, Reference):
        return payload
    if isinstance(payload, (bytes, bytearray, memoryview)):
        return bytes(payload)
    if isinstance(payload, str):
        return payload.encode()
    try:
        return json.dumps(payload, separators=(",", ":"), ensure_ascii=False, default=_text, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise AirflowFailException(
            f"a message cannot become JSON: {error}; encode the value in the query or message, or set payload_column"
        ) from None


def _text(value: object) -> str:
    """Return a date, a decimal and the like as text; that of binary data and of sets may differ in each run."""
    if isinstance(value, (bytes, bytearray, memoryview, set, frozenset)):
        raise TypeError(f"it contains a value of type {type(value).__name__}")
    return str(value)


def team_of(context: Context) -> str:
    """Return the team of a task's DAG; from Airflow 3.3 on, its run has it where there are teams."""
    team = getattr(context.get("dag_run"), "team_name", None)
    if not team:
        raise AirflowFailException(
            "of_team needs the team of this DAG, and it has none: set [core] multi_team and give its bundle a team, or "
            "leave of_team out"
        )
    return str(team)
