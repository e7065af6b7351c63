"""What the operators have in common: the queue they open, and how they read what authors write."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, BaseOperator

from airflow_mq import tracing
from airflow_mq.core.errors import InvalidWeight, MessageQueueError
from airflow_mq.core.weight import Weight
from airflow_mq.hooks import MessageQueueHook
from airflow_mq.operators import telemetry

if TYPE_CHECKING:
    from airflow_mq import MessageQueue

#: A key of a block has at most so many bytes; a longer one is told by its hash.
MOST_KEY = 900
#: How many live blocks are looked over for one whose run is over.
MOST_BLOCKS = 200


class QueueOperator(BaseOperator):
    """An operator that opens a queue.

    :param mq_conn_id: id of a connection of type `airflow_mq` (templated)
    :param ring: name of the ring; without it the connection's, without that `default` (templated)
    """

    template_fields: Sequence[str] = ("mq_conn_id", "ring")
    ui_color = "#e8f0e4"

    def __init__(self, *, mq_conn_id: str = MessageQueueHook.default_conn_name, ring: str | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.mq_conn_id = mq_conn_id
        self.ring = ring

    @contextmanager
    def opened(self, context: Mapping[str, Any], ring: str | None = None) -> Iterator[MessageQueue]:
        """The queue, which remembers who decides."""
        with open_queue(self.mq_conn_id, ring or self.ring, context) as queue:
            yield queue

    def get_openlineage_facets_on_start(self) -> Any:
        """What is known before the store is asked: the ring."""
        return telemetry.begun(self.mq_conn_id, self.ring)


@contextmanager
def open_queue(mq_conn_id: str, ring: str | None, context: Mapping[str, Any]) -> Iterator[MessageQueue]:
    """A queue by its connection; what is decided with it is recorded under the DAG and the user who triggered it."""
    with MessageQueueHook(mq_conn_id).queue(ring or None) as queue:
        queue.session.actor = who(context)
        try:
            yield queue
        finally:
            tracing.flush()


def server_name(context: Mapping[str, Any]) -> str:
    """Return the DAG and the task that run, as the ledger names what services a ring."""
    ti = context["ti"]
    return f"DAG {ti.dag_id!r}, task {ti.task_id!r}"


def who(context: Mapping[str, Any]) -> str:
    """Who decides: the task, and the person who triggered its run, if anybody did."""
    ti = context["ti"]
    person = getattr(context.get("dag_run"), "triggering_user_name", None)
    task = f"{ti.dag_id}.{ti.task_id}"
    return f"{person} by {task}" if person else task


def weight_of(value: Any, what: str) -> Weight | None:
    """A weight as an author wrote it: a pair, a mapping with `time` and `size`, or either of them as JSON text."""
    if isinstance(value, str):
        if not value.strip():
            return None
        try:
            value = json.loads(value)
        except ValueError:
            raise AirflowFailException(f"{what} reads [TIME, SIZE], say [600000, 1073741824], not {value!r}") from None
    if value is None:
        return None
    try:
        return Weight.of(value)
    except InvalidWeight as error:
        raise AirflowFailException(f"{what}: {error}") from None


def number_of(value: Any, what: str, kind: str = "a number of seconds") -> float | None:
    """A number as an author wrote it, perhaps in a template."""
    if value is None or value == "":
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        raise AirflowFailException(f"{what} is {kind}, not {value!r}") from None


# -- which block is whose --


def block_key(dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> str:
    """The key of the block that a task plans: its retries get the same one."""
    task = task_id if map_index < 0 else f"{task_id}[{map_index}]"
    key = f"{dag_id}/{run_id}/{task}"
    if len(key.encode()) <= MOST_KEY:
        return key
    return f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


def key_of(context: Mapping[str, Any], task_id: str | None = None) -> str:
    """The key of this task's block, or of another task's of the same run."""
    ti = context["ti"]
    own = task_id in (None, ti.task_id)
    map_index = ti.map_index if own and ti.map_index is not None else -1
    return block_key(ti.dag_id, ti.run_id, ti.task_id if own else str(task_id), map_index)


def holder_of(key: str | None) -> tuple[str, str] | None:
    """The DAG and the run that planned a block under this key, if it was a run of Airflow's."""
    dag_id, first, rest = (key or "").partition("/")
    run_id, last, task_id = rest.rpartition("/")
    return (dag_id, run_id) if first and last and dag_id and run_id and task_id else None


def release_finished(queue: MessageQueue, ti: Any, log: Any) -> int:
    """Release the blocks whose runs are over, before their time: nobody will settle them any more."""
    released = 0
    for block in queue.blocks.list("planned", limit=MOST_BLOCKS):
        holder = holder_of(block.key)
        if holder is None or holder == (ti.dag_id, ti.run_id) or not _is_over(ti, *holder):
            continue
        with suppress(MessageQueueError):
            queue.blocks.release(block)
            released += 1
            log.info("Released block %d: the run %s of %s that planned it is over.", block.id, holder[1], holder[0])
    return released


def _is_over(ti: Any, dag_id: str, run_id: str) -> bool:
    """Whether a run ended or was deleted. One of a DAG that this Airflow knows no run of is somebody else's."""
    alive = ti.get_dr_count(dag_id=dag_id, run_ids=[run_id], states=["queued", "running"])
    return not alive and bool(ti.get_dr_count(dag_id=dag_id))
