"""A block as tasks: plan what fits, process it, settle it. `airflow_mq.block.block` puts them together.

The plan claims messages and moves nothing; its answer is a list of parts, plain and small however many
messages there are, over which the processing task is mapped. Settling always runs, whatever became of the
jobs. Each of the three may be retried, and cleared, at any time and in any order:

* a plan that is asked again while its block lives gets the same block, and a new one when that has ended;
* a part whose block has ended is skipped: its messages went back to their queues, for whoever comes next;
* a block that is settled twice is settled once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    Asset,
    AssetAlias,
    BaseHook,
)

from airflow_mq import lineage, tracing
from airflow_mq.core.errors import Busy, MessageQueueError, TokenRefused, UnknownBlock
from airflow_mq.core.weight import Weight
from airflow_mq.hooks import MessageQueueHook
from airflow_mq.links import BlockLink, PlanLink
from airflow_mq.operators import watching
from airflow_mq.operators.base import (
    QueueOperator,
    key_of,
    number_of,
    open_queue,
    release_finished,
    weight_of,
)
from airflow_mq.operators.connect import ConnectClient, Server, not_used, server_of
from airflow_mq.operators.processes import end_tree
from airflow_mq.processors import Part, Processor, Processors
from airflow_mq.spark import job as spark_job

if TYPE_CHECKING:
    from airflow_mq import Block, MessageQueue, Serviced

#: The XCom in which a plan leaves its block, and the one in which settling leaves what it came to.
BLOCK, SETTLED = "block", "settled"
#: How often a plan is begun anew because what it claimed had no processor.
PLANS = 3
#: The script that spark-submit runs.
JOB = Path(spark_job.__file__)
#: A job of fewer messages is taken to be over in seconds.
SMALL = 10_000
#: What the author may not say, because it is said when the task runs.
OURS = ("application", "application_args", "env_vars")
#: How many live blocks are looked over for one of this run's.
LOOKED_AT = 1_000


class ServiceQueuesOperator(QueueOperator):
    """Plan a block: claim what fits a weight, and say how it is cut into parts.

    Returns a list of parts to map `ProcessMessagesOperator` over; nothing to do gives an empty list, and the
    mapped task is skipped. The XCom `block` says which block it is. One plan at a time per ring, whoever asks:
    a plan waits for its turn, and then takes what is not in flight.

    :param processors: who takes which origin (`Processors`, or what its `to_json` wrote)
    :param limit: what the block may cost, `[time, size]`; without it the ring's service weight (templated)
    :param lease: seconds until anybody may release the block unless it is renewed; the ring's if left out (templated)
    :param share_below: processors with fewer messages than this share a Spark job
    :param patience: seconds to wait for somebody else who services the ring; then there is nothing to do this time
    """

    template_fields: Sequence[str] = (*QueueOperator.template_fields, "limit", "lease")
    operator_extra_links = (BlockLink(),)

    def __init__(
        self,
        *,
        processors: Processors | str,
        limit: Any = None,
        lease: Any = None,
        share_below: int = 10_000,
        patience: float = 60.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.processors = processors
        self.limit = limit
        self.lease = lease
        self.share_below = share_below
        self.patience = patience

    def execute(self, context: Any) -> list[Part]:
        """Plan, and return the parts."""
        processors, ti, began = processors_of(self.processors), context["ti"], tracing.now()
        with self.opened(context) as queue:
            release_finished(queue, ti, self.log)
            block = self._plan(queue, processors, key_of(context))
            trace = {} if block is None else watching.planned(queue, block, began)
            ti.xcom_push(key=BLOCK, value=None if block is None else told(queue, block, trace))
            if block is None:
                self.log.info("Somebody else services the ring %r; there is nothing to do this time.", queue.ring)
                return []
            return self._parts(queue, processors, block)

    def _plan(self, queue: MessageQueue, processors: Processors, key: str) -> Block | None:
        block: Block | None = None
        for _ in range(PLANS):
            block = self._plan_patiently(queue, key)
            nobody = processors.unrouted_of(block.origins) if block else []
            if block is None or not nobody:
                return block
            self._treat_unrouted(queue, processors, block, nobody)
            if len(nobody) < len(block.origins):
                # The others are served; what nobody takes goes back when the block settles.
                return block
            queue.release_block(block)
        return block and self._plan_patiently(queue, key)

    def _plan_patiently(self, queue: MessageQueue, key: str) -> Block | None:
        limit, lease = weight_of(self.limit, "limit"), number_of(self.lease, "lease")
        give_up = time.monotonic() + self.patience
        while True:
            try:
                return queue.plan_block(key, limit, lease=lease)
            except Busy as error:
                if time.monotonic() > give_up:
                    return None
                self.log.info("%s", error)

    def _treat_unrouted(self, queue: MessageQueue, processors: Processors, block: Block, nobody: Sequence[str]) -> None:
        shown = ", ".join(map(repr, nobody[:10])) + (f" and {len(nobody) - 10} more" if len(nobody) > 10 else "")
        if processors.unrouted == "refuse":
            queue.release_block(block)
            raise AirflowFailException(
                f"no processor takes {shown}; the block was released. Add a processor for them, or let "
                "Processors(unrouted='pause') pause such queues"
            )
        for origin in nobody:
            queue.pause(origin, "no processor takes this origin")
        self.log.warning("Paused %s: no processor takes them. Resume them when there is one.", shown)

    def _parts(self, queue: MessageQueue, processors: Processors, block: Block) -> list[Part]:
        counts: dict[str, int] = {}
        for claim in block.claims:
            counts[claim.whose] = counts.get(claim.whose, 0) + claim.messages
        parts = processors.parts(counts, self.share_below)
        self.log.info(
            "Block %d of ring %r holds %d messages of %d queues, planned at %s of %s, until %s.",
            block.id, queue.ring, block.messages, len(counts), block.planned.plus(block.overhead), block.limit,
            f"{block.deadline:%H:%M:%S} UTC",
        )  # fmt: skip
        for part in parts:
            self.log.info("  %-30s %8d messages, %s", part["name"], part["messages"], part["where"])
        return parts


class TaskStopped(BaseException):
    """The task was told to end while it processed messages in place."""


class MessageSparkHook(SparkSubmitHook):
    """Submits a job whose secrets reach it by its environment, and by nothing that others can read.

    `env_vars` of the provider's hook become `--conf` on some masters, which is a command line that everybody
    on the machine can read, and a page of Spark's UI. What is given here never leaves the environment of
    `spark-submit`, which a driver in client mode inherits.
    """

    #: What the job is told by its environment.
    environment: Mapping[str, str] = {}

    def _build_spark_submit_command(self, application: str) -> list[str]:
        command: list[str] = super()._build_spark_submit_command(application)
        self._env: dict[str, Any] | None = {**(getattr(self, "_env", None) or {}), **self.environment}
        return command

    @property
    def returncode(self) -> int | None:
        """How spark-submit ended, if it did."""
        return None if self._submit_sp is None else self._submit_sp.poll()

    def end_job(self) -> None:
        """End spark-submit with all that it started; a driver in Python is a child of the JVM."""
        if self._submit_sp is not None and self._submit_sp.poll() is None:
            end_tree(self._submit_sp.pid)


class ProcessMessagesOperator(SparkSubmitOperator):
    """Process one part of a block, on Spark or in place. Mapped over what `ServiceQueuesOperator` returns.

    A message reaches its processor and nothing else of the job: the command line is made of the ring, the
    author's rules and numbers; the store's address and the block's token travel by environment.

    :param part: which part of the block (mapped)
    :param processors: the same that the plan was made with
    :param plan_task_id: the task that planned the block
    :param mq_conn_id: id of a connection of type `airflow_mq` (templated)
    :param ring: name of the ring (templated)
    :param conn_id: the Spark connection, say `{"conn_type": "spark", "host": "local[*]"}`; of a Spark Connect
        server, say `{"conn_type": "spark_connect", "host": "spark", "port": 15002}`, no JVM is started for a job
    :param exchange: an object-storage path by which messages and outcomes travel, for clusters whose
        executors cannot reach the store (templated)
    :param lease: seconds by which a running job renews its block's life (templated)

    Everything else is as `SparkSubmitOperator` has it; what a processor says in `spark` comes on top.
    """

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields, "mq_conn_id", "ring", "exchange", "lease", "plan_task_id",
    )  # fmt: skip
    operator_extra_links = (BlockLink(), PlanLink())
    ui_color = "#e8f0e4"

    def __init__(
        self,
        *,
        part: Part,
        processors: Processors | str,
        plan_task_id: str = "plan",
        mq_conn_id: str = MessageQueueHook.default_conn_name,
        ring: str | None = None,
        exchange: str | None = None,
        lease: Any = None,
        **kwargs: Any,
    ) -> None:
        said = [name for name in OURS if kwargs.get(name)]
        if said:
            raise ValueError(f"{type(self).__name__} says {', '.join(said)} itself when it runs; leave that out")
        super().__init__(**kwargs)
        self.part = part
        self.processors = processors
        self.plan_task_id = plan_task_id
        self.mq_conn_id = mq_conn_id
        self.ring = ring
        self.exchange = exchange
        self.lease = lease
        self._running_in_place = False
        self._store: dict[str, str] = {}
        self._trace: dict[str, str] = {}
        self._touched: lineage.Touched | None = None
        self._client: ConnectClient | None = None

    def execute(self, context: Any) -> None:
        """Process the part; end well if there is nothing left to do."""
        processors = processors_of(self.processors)
        part = checked_part(self.part, processors)
        block = planned_block(context, self.plan_task_id)
        self.process(context, processors, part, block)

    def process(self, context: Any, processors: Processors, part: Part, block: Mapping[str, Any]) -> None:
        """Process a part of a block in the way that its processors ask for."""
        with open_queue(self.mq_conn_id, str(block["ring"]), context) as queue:
            refuse_ended(queue, str(block["token"]))
            self._touched = watching.taken(queue, str(block["token"]), processors, part)
            with watching.processing(queue, part, block) as carrier:
                self._trace = tracing.environment(carrier)
                if part["where"] == "in place":
                    self._in_place(queue, processors, part, str(block["token"]))
                else:
                    self._on_spark(context, queue, processors, part, block)

    def get_openlineage_facets_on_complete(self, ti: Any) -> Any:
        """The queues whose messages were processed."""
        return lineage.taken(self._touched)

    def _in_place(self, queue: MessageQueue, processors: Processors, part: Part, token: str) -> None:
        from airflow_mq.spark.store_side import run_in_place

        self._running_in_place = True
        try:
            tally = run_in_place(queue, token, processors, part, number_of(self.lease, "lease"))
        except TokenRefused as error:
            raise AirflowFailException(f"{error}; what was not reported before is back in its queues") from None
        finally:
            self._running_in_place = False
        self.log.info("%s: %s.", part["name"], tally)

    def _on_spark(
        self, context: Any, queue: MessageQueue, processors: Processors, part: Part, block: Mapping[str, Any]
    ) -> None:
        self._take_settings(context, processors[part["processors"][0]])
        token = str(block["token"])
        self._store = {} if self.exchange else {spark_job.STORE: queue.store.address.uri, spark_job.BLOCK: token}
        # The provider remembers a cluster's job by task, also when a run is cleared and has another block.
        self.external_id_key, self._K8S_DRIVER_STATUS_KEY = resume_keys(token)
        self.application = str(JOB)
        lease = number_of(self.lease, "lease")
        if not self.exchange:
            self.application_args = job_arguments(queue.ring, processors, part, None, lease)
            self._submit(context)
            return
        from airflow_mq.spark.exchange import hand_over, take_back
        from airflow_mq.spark.reporting import keeping_lease

        with keeping_lease(queue, token, lease):
            folder = hand_over(queue, token, processors, part, self.exchange)
            self.application_args = job_arguments(queue.ring, processors, part, folder, lease)
            try:
                self._submit(context)
            finally:
                # A job that failed half way has answered for its first half.
                self.log.info("%s: %d messages have an answer.", part["name"], take_back(queue, token, folder))

    def _submit(self, context: Any) -> None:
        server = server_of(BaseHook.get_connection(self._conn_id), self._conn_id)
        try:
            if server is None:
                super().execute(context)
            else:
                self._run_client(server)
        except AirflowException as error:
            job = self._client or self._hook
            if isinstance(job, (MessageSparkHook, ConnectClient)) and job.returncode == spark_job.REFUSED:
                raise AirflowFailException(
                    "the job came too late: its block was settled or released meanwhile, and what it had not "
                    "reported before is back in its queues"
                ) from error
            raise

    def _run_client(self, server: Server) -> None:
        """Run the job's client here; its work is done by a server that is warm."""
        settings = processors_of(self.processors)[self.part["processors"][0]].spark
        if ignored := not_used(settings, self.conf):
            self.log.warning("A Spark Connect server has its own settings; not used here: %s.", ", ".join(ignored))
        self.log.info("The job runs on the Spark Connect server %s.", server.address)
        said = {name: str(value) for name, value in (self.env_vars or {}).items()}
        environment = {**said, **server.environment, **self._trace, **self._store}
        self._client = ConnectClient([self.application, *self.application_args], environment, self.log)
        self._client.run()

    def _take_settings(self, context: Any, processor: Processor) -> None:
        """What the processor's author says to Spark, in place of what the task's author said."""
        if getattr(self, "name", "") == "arrow-spark":
            self.name: str = f"airflow_mq {self.part['name']}"
        for name, value in self.render_template(dict(processor.spark), context).items():
            place = name if hasattr(self, name) else f"_{name}"
            if not hasattr(self, place):
                raise AirflowFailException(f"spark of processor {processor.name!r}: SparkSubmitOperator has no {name}")
            if name in ("conf", "env_vars"):
                value = {**(getattr(self, place) or {}), **value}
            setattr(self, place, value)

    def _get_hook(self) -> SparkSubmitHook:
        """The provider's hook, with the secrets, and only for the master that the connection names."""
        connection = BaseHook.get_connection(self._conn_id)
        made = super()._get_hook()
        made.__class__ = MessageSparkHook
        on_cluster = made._connection["deploy_mode"] == "cluster"
        made.environment = {**job_environment(made._connection["master"], on_cluster), **self._trace, **self._store}
        refuse_other_master(made, connection, self._conn_id)
        if on_cluster and not self.exchange:
            raise AirflowFailException(
                f"the Spark connection {self._conn_id!r} asks for deploy mode cluster, where a driver has not this "
                "task's environment, and so no way to the store that is not public: say exchange='s3://…', or use "
                "deploy mode client"
            )
        if on_cluster and self._trace and (made._is_kubernetes or made._is_yarn):
            # A trace is no secret: it may travel as these do.
            made._env_vars = {**(made._env_vars or {}), **self._trace}
        if made._connection["master"].startswith("local"):
            from airflow_mq.spark.local import local_conf

            # On loopback, and quick to start; what the author says holds against it.
            known = {**os.environ, **made.environment}
            made._conf = {**local_conf(known, small=self.part["messages"] < SMALL), **(made._conf or {})}
        return made

    def on_kill(self) -> None:
        """End the job, with the driver."""
        if self._running_in_place:
            # The signal came while a function of the author's ran, which would take an Exception for its own.
            raise TaskStopped("the task was told to end; what it reported stays, the rest goes back")
        if self._client is not None:
            self._client.end()
        elif isinstance(self._hook, MessageSparkHook):
            self._hook.end_job()
            super().on_kill()


class SettleBlockOperator(QueueOperator):
    """Settle a block: give each message its outcome, whatever became of the jobs, and say how it went.

    Runs always (`all_done`). What nobody reported on goes back to its queue. The run turns red when a job
    failed, although its block is settled. The XCom `settled` says what the block came to.

    :param plan_task_id: the task that planned the block
    :param process_task_id: the mapped task that processed it
    :param outlet: an asset to emit again while anything is ready, so that a DAG scheduled by it goes on
    :param notifiers: called when the block set messages aside for a person, with `airflow_mq` in their context
    :param exchange: the path by which messages and outcomes travelled; the block's folder there is removed (templated)
    """

    template_fields: Sequence[str] = (*QueueOperator.template_fields, "exchange")
    operator_extra_links = (BlockLink(), PlanLink())

    def __init__(
        self,
        *,
        plan_task_id: str = "plan",
        process_task_id: str = "process",
        outlet: Asset | None = None,
        notifiers: Any = (),
        exchange: str | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("trigger_rule", "all_done")
        # By way of an alias, because a plain outlet is emitted whatever happened.
        alias = None if outlet is None else AssetAlias(f"airflow_mq ready: {outlet.name}"[:1500])
        if alias is not None:
            kwargs["outlets"] = [*(kwargs.get("outlets") or ()), alias]
        super().__init__(**kwargs)
        self._alias = alias
        self.plan_task_id = plan_task_id
        self.process_task_id = process_task_id
        self.outlet = outlet
        self.exchange = exchange
        self.notifiers = [notifiers] if callable(notifiers) else list(notifiers)
        self._touched: lineage.Touched | None = None
        self._summary: Mapping[str, Any] | None = None

    def execute(self, context: Any) -> dict[str, Any] | None:
        """Settle; fail if a job failed."""
        states = task_states(context, [self.plan_task_id, self.process_task_id])
        said = context["ti"].xcom_pull(task_ids=self.plan_task_id, key=BLOCK)
        with self.opened(context, said["ring"] if said else None) as queue:
            summary = self._summary = self._settle(queue, context, said)
            if self.exchange and said:
                self._clear_folder(queue, str(said["token"]), self.exchange)
            self._emit_again(queue, context, summary)
        context["ti"].xcom_push(key=SETTLED, value=summary)
        if summary and summary["set_aside"]:
            self._notify(context, summary)
        failed = sorted(task for task, state in states.items() if state in ("failed", "upstream_failed"))
        if failed:
            raise AirflowFailException(
                f"{', '.join(failed[:10])} failed. {'The block is settled' if summary else 'There was no block'}; "
                "what was not reported is back in its queues, and a later block takes it"
            )
        return summary

    def get_openlineage_facets_on_complete(self, ti: Any) -> Any:
        """The queues of the block, and what it came to."""
        return lineage.taken(self._touched, self._summary)

    def _settle(self, queue: MessageQueue, context: Any, said: Mapping[str, Any] | None) -> dict[str, Any] | None:
        token = said["token"] if said else None
        summary: dict[str, Any] | None = None
        refusal: Exception | None = None
        if said and token:
            try:
                summary = self._settle_one(queue, said, said.get("trace"))
            except (TokenRefused, UnknownBlock) as error:
                refusal = error
        for block in queue.blocks("planned", limit=LOOKED_AT):
            # A plan that was cleared afterwards, or whose answer was lost: nobody processes it.
            if block.key == key_of(context, self.plan_task_id):
                more = self._settle_one(queue, told(queue, block))
                summary = summary or more
        if refusal is not None:
            raise AirflowFailException(f"{refusal}. What was not reported is back in its queues") from None
        if summary is None:
            self.log.info("There is no block to settle.")
        return summary

    def _settle_one(
        self, queue: MessageQueue, said: Mapping[str, Any], trace: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        watched = watching.Settling(queue, str(said["token"]), trace)
        self._touched = self._touched or watching.taken(queue, str(said["token"]))
        summary = summary_of(said, queue.settle_block(said["token"]))
        self.log.info("%s", readable(summary))
        watched.told(summary)
        return summary

    def _emit_again(self, queue: MessageQueue, context: Any, summary: Mapping[str, Any] | None) -> None:
        """Emit the outlet while anything is ready; not after a block in which nothing moved, or it would spin."""
        if self.outlet is None or (summary and summary["messages"] and not summary["moved"]):
            return
        pulse = queue.pulse()
        if pulse:
            context["outlet_events"][self._alias].add(self.outlet)
            self.log.info("There is more to do, for %s: %s is emitted.", list(pulse.ready) or "later", self.outlet.name)

    def _clear_folder(self, queue: MessageQueue, token: str, path: str) -> None:
        from airflow_mq.spark.exchange import clear

        try:
            clear(queue, token, path)
        except Exception as error:
            self.log.warning("The block's folder below %s could not be removed (%s).", path, type(error).__name__)

    def _notify(self, context: Any, summary: Mapping[str, Any]) -> None:
        for notifier in self.notifiers:
            try:
                notifier({**context, "airflow_mq": dict(summary)})
            except Exception:
                self.log.exception("A notifier failed; the block is settled all the same.")


# -- what the three tell each other --


def told(queue: MessageQueue, block: Block, trace: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A block as its plan tells the other tasks of it; with its trace, if it has one."""
    return {
        "id": block.id,
        "token": block.token,
        "ring": queue.ring,
        "messages": block.messages,
        "planned": list(block.planned.plus(block.overhead)),
        "limit": list(block.limit),
        **({"trace": dict(trace)} if trace else {}),
    }


def planned_block(context: Any, plan_task_id: str) -> Mapping[str, Any]:
    """The block that a plan told of."""
    said = context["ti"].xcom_pull(task_ids=plan_task_id, key=BLOCK)
    if not isinstance(said, Mapping) or not said.get("token"):
        raise AirflowSkipException(f"{plan_task_id} planned no block; there is nothing to process")
    return said


def processors_of(given: Processors | str) -> Processors:
    """Processors as an author gave them, or as they are kept with the DAG."""
    return given if isinstance(given, Processors) else Processors.from_json(given)


def checked_part(given: Any, processors: Processors) -> Part:
    """A part as it came back from an XCom, of which nothing is taken on trust."""
    try:
        names = [processors[name] for name in given["processors"]]
        part, parts, messages = (given[name] for name in ("part", "parts", "messages"))
        whole = all(type(number) is int for number in (part, parts, messages))
        if not (names and whole and 0 <= part < parts <= max(one.split for one in names) and messages >= 0):
            raise ValueError("its numbers cannot be")
        if any(one.where != given["where"] for one in names):
            raise ValueError("its processors run elsewhere")
        shown = str(given["name"])[:200]
    except (KeyError, TypeError, ValueError, MessageQueueError) as error:
        raise AirflowFailException(f"this is no part of a block: {error}; clear the task that planned it") from None
    return Part(
        name=shown, processors=[one.name for one in names], part=part, parts=parts, messages=messages,
        where=names[0].where,
    )  # fmt: skip


def refuse_ended(queue: MessageQueue, token: str) -> None:
    """Skip what belongs to a block that has ended; fail if it ended before its time."""
    try:
        block = queue.block(token)
    except UnknownBlock:
        raise AirflowSkipException("the block is gone; plan again to process what went back to its queues") from None
    if block.state == "settled":
        raise AirflowSkipException(
            f"block {block.id} was settled before; what it did not process is back in its queues: a later block "
            "takes it, or clear the task that plans"
        )
    if block.state == "released" or block.deadline < datetime.now(timezone.utc):
        raise AirflowFailException(
            f"block {block.id} was not begun before its lease ran out at {block.deadline:%H:%M:%S} UTC; its messages "
            "are back in their queues, and a later block takes them. Give blocks a longer lease, or the task more slots"
        )


def task_states(context: Any, task_ids: Iterable[str]) -> dict[str, str]:
    """The states of other tasks of this run, mapped ones each."""
    ti = context["ti"]
    known = ti.get_task_states(dag_id=ti.dag_id, task_ids=list(task_ids), run_ids=[ti.run_id])
    return {task: str(state) for task, state in (known.get(ti.run_id) or {}).items()}


def summary_of(said: Mapping[str, Any], result: Serviced) -> dict[str, Any]:
    """What a block came to, plain."""
    moved = result.processed + result.failed + result.set_aside + result.expired
    return {
        "block": said["id"], "ring": said["ring"], "messages": said["messages"], "limit": list(said["limit"]),
        "planned": list(said["planned"]), "used": list(result.weight), "origins": result.origins,
        "processed": result.processed, "failed": result.failed, "set_aside": result.set_aside,
        "went_back": result.went_back, "expired": result.expired, "moved": moved,
    }  # fmt: skip


def readable(summary: Mapping[str, Any]) -> str:
    """What a block came to, for people."""
    share = 100 * Weight(*summary["used"]).part_of(Weight(*summary["limit"]))
    used, limit = ("/".join(f"{part:,}" for part in summary[name]) for name in ("used", "limit"))
    counts = ", ".join(
        f"{summary[name]:,} {words}"
        for name, words in (
            ("processed", "processed"), ("failed", "failed for good"), ("set_aside", "set aside for a person"),
            ("went_back", "went back"), ("expired", "expired"),
        )
        if summary[name]
    )  # fmt: skip
    return (
        f"Block {summary['block']} of ring {summary['ring']!r} is settled: {counts or 'nothing'} of "
        f"{summary['messages']:,} messages of {summary['origins']:,} queues; weight {used} of {limit} ({share:.0f} %)."
    )


# -- what a job is told --


def job_arguments(
    ring: str, processors: Processors, part: Part, exchange: str | None, lease: float | None
) -> list[str]:
    """The command line of a job: the author's words and numbers, and nothing of any message."""
    said = [
        "--ring", ring, "--routes", processors.routes_json(), "--processors", ",".join(part["processors"]),
        "--part", str(part["part"]), "--parts", str(part["parts"]),
    ]  # fmt: skip
    if exchange:
        said += ["--exchange", exchange]
    if lease is not None:
        said += ["--lease", f"{lease:g}"]
    return said


def resume_keys(token: str) -> tuple[str, str]:
    """Under which keys a block's job on a cluster is remembered: a retry finds it again, another block does not."""
    block = hashlib.sha256(token.encode()).hexdigest()[:16]
    return f"spark_job_id_{block}", f"k8s_driver_status_{block}"


def job_environment(master: str, on_cluster: bool = False) -> dict[str, str]:
    """What `spark-submit` needs of its environment: this Python, its Spark unless there is another, and a Java.

    :param on_cluster: the driver runs elsewhere, where this Python is not
    """
    from airflow_mq.spark.java import spark_environment

    said = spark_environment(loopback=master.startswith("local"))
    if on_cluster:
        for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
            said.pop(name, None)
    found = shutil.which("spark-submit")
    if "SPARK_HOME" in os.environ or (found and Path(found).parent != Path(sys.executable).parent):
        # Somebody chose a Spark for this machine.
        said.pop("SPARK_HOME", None)
        said.pop("PATH", None)
    return said


def refuse_other_master(hook: SparkSubmitHook, connection: Any, conn_id: str) -> None:
    """The provider falls back to YARN, with a line in the log, when it does not understand a connection."""
    master = hook._connection["master"]
    named = f"{connection.conn_type}://{connection.host or ''}"
    if master == "yarn" and "yarn" not in (connection.host, connection.conn_type):
        raise AirflowFailException(
            f"the Spark connection {conn_id!r} ({named}) is not understood, and would silently become YARN; write it "
            'as JSON: {"conn_type": "spark", "host": "local[*]"}'
        )
    if not connection.host and connection.conn_type == "spark":
        raise AirflowFailException(f"the Spark connection {conn_id!r} names no master; say host, for example local[*]")
