"""Common base of the operators: the queue that they open, and the arguments that authors write."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow.providers.common.compat.sdk import AirflowFailException, BaseOperator

from airflow_mq.engine.rules.characters import shown
from airflow_mq.engine.rules.errors import InvalidInput, InvalidWeight, MessageQueueError
from airflow_mq.engine.rules.units import check_seconds
from airflow_mq.engine.rules.weight import Weight
from airflow_mq.hooks import MessageQueueHook
from airflow_mq.installation import installation
from airflow_mq.keys import Run, block_key, run_of
from airflow_mq.observe import lineage, traces
from airflow_mq.observe.task import TaskObserver

#: A weight as an author writes it: a pair, a mapping with `time` and `size`, or either as JSON text.
GivenWeight: TypeAlias = "Weight | Sequence[float] | Mapping[str, float] | str | None"

#: Warning about messages that no outcome was reported for.
RETURNED = "%s returned without an outcome, and will be tried again: `%s` shows why."

#: Text of None, a list, a mapping, a set and a tuple; a mapping of JSON begins otherwise.
_MADE_TEXT = re.compile(r"None|\[.*\]|\{'.*\}|\(['\d].*,.*\)", re.DOTALL)
_KINDS = {"N": "None", "[": "a list", "{": "a mapping or set", "(": "a tuple"}

if TYPE_CHECKING:
    from logging import Logger

    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

    from airflow_mq import MessageQueue


class TaskStopped(BaseException):
    """The end of a task that was processing messages in its own process."""


class Observed:
    """Lineage of a task: when it starts, what is known without the store; when it ends, what it touched."""

    mq_conn_id: str
    ring: str | None
    _observer: TaskObserver | None = None

    def datasets(self) -> list[lineage.Source]:
        """Return the sources from which the task receives messages."""
        return []

    def only_origin(self) -> str | None:
        """Return the queue to which the task sends, if it is known before."""
        return None

    def observe(self, queue: MessageQueue) -> TaskObserver:
        """Return the observer of this task and its open queue."""
        if self._observer is None or self._observer.queue is not queue:
            self._observer = TaskObserver(queue)
        return self._observer

    def get_openlineage_facets_on_start(self) -> OperatorLineage | None:
        sources, origin = self.datasets(), self.only_origin()
        if not lineage.is_wanted():
            return None
        try:
            address, ring = MessageQueueHook(self.mq_conn_id).place(self.ring)
        except Exception:
            # The task itself reports what is wrong with the connection.
            return None
        return lineage.begun(address, ring, sources, origin)

    def get_openlineage_facets_on_complete(self, ti: RuntimeTaskInstanceProtocol) -> OperatorLineage | None:
        if self._observer is None:
            return self.get_openlineage_facets_on_start()
        return self._observer.lineage(self.datasets())


class QueueOperator(Observed, BaseOperator):
    """Base of the operators that open a queue.

    :param mq_conn_id: id of a connection of type `airflow_mq` (templated)
    :param ring: name of the ring; the connection's if left out, or `default` (templated)
    """

    template_fields: Sequence[str] = ("mq_conn_id", "ring")
    ui_color = "#e8f0e4"

    def __init__(self, *, mq_conn_id: str = MessageQueueHook.default_conn_name, ring: str | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.mq_conn_id = mq_conn_id
        self.ring = ring

    def opened(self, context: Context, ring: str | None = None) -> AbstractContextManager[MessageQueue]:
        """Open the queue; its decisions are recorded under this task."""
        return open_queue(self.mq_conn_id, self.ring if ring is None else ring, context)


@contextmanager
def open_queue(mq_conn_id: str, ring: str | None, context: Context) -> Iterator[MessageQueue]:
    """Open the queue of a connection; its decisions are recorded under the task and who triggered the run."""
    with MessageQueueHook(mq_conn_id).queue(ring) as queue:
        task = f"{context['ti'].dag_id}.{context['ti'].task_id}"
        person = getattr(context.get("dag_run"), "triggering_user_name", None)
        queue.session.actor = f"{person} by {task}" if person else task
        try:
            yield queue
        finally:
            traces.flush()


def server_name(context: Context, task_id: str | None = None) -> str:
    """Return the DAG and the task that run, or another task of it, as the ledger names what services a ring."""
    ti = context["ti"]
    return f"DAG {ti.dag_id!r} of Airflow {installation()!r}, task {task_id or ti.task_id!r}"


def weight_of(value: GivenWeight, name: str) -> Weight | None:
    """Return a weight that an author wrote: as `Weight.of` reads it, or as JSON, into which templates render it."""
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            value = json.loads(value.strip() or "null")
    if value is None:
        return None
    try:
        return Weight.of(value)
    except InvalidWeight as error:
        raise AirflowFailException(str(error).replace("weight", name, 1)) from None


def refuse_text_of(value: object, name: str) -> None:
    """Refuse text that Airflow made of another value, where an author's template is one expression."""
    if isinstance(value, str) and _MADE_TEXT.fullmatch(value):
        # It may contain payloads.
        raise AirflowFailException(
            f"invalid {name}: Airflow made text of {_KINDS[value[0]]}; pass the value or an XCom (task.output), or "
            "create the DAG with render_template_as_native_obj=True"
        )


def seconds_of(value: object, name: str) -> float | None:
    """Return a duration that an author wrote, perhaps in a template; None for none or empty text."""
    try:
        return None if value is None or value == "" else check_seconds(value, name, bare=True)
    except InvalidInput as error:
        raise AirflowFailException(str(error)) from None


def number_of(value: object, name: str, kind: str, most: float = 1 << 53) -> float | None:
    """Return a number from 0 to `most` that an author wrote, perhaps in a template; None for none or empty text.

    Whole numbers up to the default are exact as numbers with a fraction.
    """
    if value is None or value == "":
        return None
    try:
        if 0 <= (number := float(value)) <= most:  # type: ignore[arg-type]
            return number
    except (TypeError, ValueError, OverflowError):
        pass
    raise AirflowFailException(f"invalid {name} {shown(value, 80, repr)}: expected {kind}")


def whole_of(value: object, name: str, kind: str = "a whole number") -> int | None:
    """Return a whole number that an author wrote, perhaps in a template; None for none or empty text."""
    number = number_of(value, name, kind)
    if number is None:
        return None
    if number != int(number):
        raise AirflowFailException(f"invalid {name} {shown(value, 80, repr)}: expected {kind}")
    return int(number)


def key_of(context: Context, task_id: str | None = None) -> str:
    """Return the key of this task's block, or of another task's of the same run."""
    ti = context["ti"]
    own = task_id in (None, ti.task_id)
    map_index = ti.map_index if own and ti.map_index is not None else -1
    return block_key(installation(), ti.dag_id, ti.run_id, ti.task_id if own else str(task_id), map_index)


def release_finished(queue: MessageQueue, ti: RuntimeTaskInstanceProtocol, log: Logger) -> int:
    """Release the blocks whose runs have ended, which no task will settle; return how many.

    A block of another Airflow ends with its lease, unless its tasks settle it.
    """
    released, own = 0, installation()
    for block in queue.blocks.each("planned"):
        run = run_of(block.key, own)
        if run is None or run == (ti.dag_id, ti.run_id) or not _has_ended(ti, run):
            continue
        with suppress(MessageQueueError):
            queue.blocks.release(block)
            released += 1
            log.info("Released block %d: the run %s of %s that planned it has ended.", block.id, run.run_id, run.dag_id)
    return released


def _has_ended(ti: RuntimeTaskInstanceProtocol, run: Run) -> bool:
    """Return whether a run ended or was deleted."""
    return not ti.get_dr_count(dag_id=run.dag_id, run_ids=[run.run_id], states=["queued", "running"])
