"""Process one part of a block, on Spark or in place."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, BaseHook

from airflow_mq import lineage, tracing
from airflow_mq.core.errors import TokenRefused
from airflow_mq.hooks import MessageQueueHook
from airflow_mq.links import BlockLink, PlanLink
from airflow_mq.operators import telemetry
from airflow_mq.operators.base import number_of, open_queue
from airflow_mq.operators.blocks.xcoms import checked_part, planned_block, processors_of, refuse_ended
from airflow_mq.operators.spark.connect import ConnectClient, Server, not_used, server_of
from airflow_mq.operators.spark.hook import (
    JOB,
    MessageSparkHook,
    job_arguments,
    job_environment,
    refuse_other_master,
    resume_keys,
)
from airflow_mq.operators.spark.job_listener import SPARK_JOB, JobListener
from airflow_mq.operators.spark.masters import require_master, require_server, silent_master
from airflow_mq.processors import Part, Processor, Processors
from airflow_mq.spark import job as spark_job
from airflow_mq.words import many

if TYPE_CHECKING:
    from airflow_mq import MessageQueue

#: A job of fewer messages is taken to be over in seconds.
SMALL = 10_000
#: What the author may not say, because it is said when the task runs.
OURS = ("application", "application_args", "env_vars", "conn_id")
#: Id of the Spark connection, unless another is named.
SPARK_CONNECTION = "spark_default"


class TaskStopped(BaseException):
    """The task was told to end while it processed messages in place."""


class ProcessMessagesOperator(SparkSubmitOperator):
    """Process one part of a block, on Spark or in place. Mapped over what `PlanBlockOperator` returns.

    A message reaches its processor and nothing else of the job: the command line is made of the ring, the
    author's rules and numbers; the store's address and the block's token travel by environment.

    :param part: which part of the block (mapped)
    :param processors: the same that the plan was made with
    :param plan_task_id: the task that planned the block
    :param mq_conn_id: id of a connection of type `airflow_mq` (templated)
    :param ring: name of the ring (templated)
    :param spark_conn_id: the Spark connection, say `{"conn_type": "spark", "host": "local[*]"}`; of a Spark Connect
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
        spark_conn_id: str = SPARK_CONNECTION,
        exchange: str | None = None,
        lease: Any = None,
        **kwargs: Any,
    ) -> None:
        given = [name for name in OURS if kwargs.get(name)]
        if given:
            raise ValueError(
                f"invalid argument {', '.join(given)}: {type(self).__name__} sets it when it runs; leave it out"
            )
        super().__init__(conn_id=spark_conn_id, **kwargs)
        self.part = part
        self.processors = processors
        self.plan_task_id = plan_task_id
        self.mq_conn_id = mq_conn_id
        self.ring = ring
        self.spark_conn_id = spark_conn_id
        self.exchange = exchange
        self.lease = lease
        self._running_in_place = False
        self._store: dict[str, str] = {}
        self._trace: dict[str, str] = {}
        self._touched: lineage.Touched | None = None
        self._client: ConnectClient | None = None
        self._listener: JobListener | None = None

    def execute(self, context: Any) -> None:
        """Process the part; end well if there is nothing left to do."""
        processors = processors_of(self.processors)
        part = checked_part(self.part, processors)
        block = planned_block(context, self.plan_task_id)
        self.process(context, processors, part, block)

    def process(self, context: Any, processors: Processors, part: Part, block: Mapping[str, Any]) -> None:
        """Process a part of a block in the way that its processors ask for."""
        from airflow_mq.spark.store_side import reporting_failure

        with open_queue(self.mq_conn_id, str(block["ring"]), context) as queue:
            token = str(block["token"])
            refuse_ended(queue, token)
            self._touched = telemetry.taken(queue, token, processors, part)
            with reporting_failure(queue, token, processors, part), telemetry.processing(queue, part, block) as carrier:
                self._trace = tracing.environment(carrier)
                if part["where"] == "in place":
                    self._in_place(queue, processors, part, token)
                else:
                    self._on_spark(context, queue, processors, part, block)

    def get_openlineage_facets_on_start(self) -> Any:
        """The ring."""
        return telemetry.begun(self.mq_conn_id, self.ring)

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
        from airflow_mq.spark.lease import keeping_lease

        with keeping_lease(queue, token, lease):
            folder = hand_over(queue, token, processors, part, self.exchange)
            self.application_args = job_arguments(queue.ring, processors, part, folder, lease)
            try:
                self._submit(context)
            finally:
                # A job that failed half way has answered for its first half.
                self.log.info("%s: answers for %s.", part["name"], many(take_back(queue, token, folder), "message"))

    def _submit(self, context: Any) -> None:
        self._listener = JobListener(lambda known: context["ti"].xcom_push(key=SPARK_JOB, value=known))
        server = server_of(BaseHook.get_connection(self.spark_conn_id), self.spark_conn_id)
        try:
            if server is None:
                super().execute(context)
            else:
                require_server(server.address, self.spark_conn_id)
                self._run_client(server)
        except AirflowException as error:
            job = self._client or self._hook
            if isinstance(job, (MessageSparkHook, ConnectClient)) and job.returncode == spark_job.REFUSED:
                raise AirflowFailException(
                    "the job came too late: its block was settled or released meanwhile, and what it had not "
                    "reported before is back in its queues"
                ) from error
            if isinstance(job, MessageSparkHook) and job.returncode:
                # The provider's text is the command and the last lines of output, which may quote messages.
                raise AirflowException(self._failure(job.returncode)) from None
            raise

    def _failure(self, code: int) -> str:
        cause = (self._listener.cause or "").rstrip(".") if self._listener else ""
        if self._listener and self._listener.is_master_silent and self._hook:
            cause = silent_master(self._hook._connection["master"], self.spark_conn_id)
        return (
            f"the Spark job {self.part['name']!r} failed: {cause or 'it printed no cause'}. Error code is: {code}; the "
            "output is in this task's log"
        )

    def _run_client(self, server: Server) -> None:
        """Run the job's client here; its work is done by a server that is warm."""
        settings = processors_of(self.processors)[self.part["processors"][0]].spark
        if ignored := not_used(settings, self.conf):
            self.log.warning("A Spark Connect server has its own settings; not used here: %s.", ", ".join(ignored))
        self.log.info("The job runs on the Spark Connect server %s.", server.address)
        said = {name: str(value) for name, value in (self.env_vars or {}).items()}
        environment = {**said, **server.environment, **self._trace, **self._store}
        self._client = ConnectClient([self.application, *self.application_args], environment, self.log)
        self._client.run(self._listener)

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
        connection = BaseHook.get_connection(self.spark_conn_id)
        made = super()._get_hook()
        made.__class__ = MessageSparkHook
        made.listener = self._listener
        on_cluster = made._connection["deploy_mode"] == "cluster"
        made.environment = {**job_environment(made._connection["master"], on_cluster), **self._trace, **self._store}
        refuse_other_master(made, connection, self.spark_conn_id)
        if on_cluster and not self.exchange:
            raise AirflowFailException(
                f"deploy mode 'cluster' of Spark connection {self.spark_conn_id!r} cannot pass the store's credentials "
                "to the driver: set exchange='s3://…', or use deploy mode 'client'"
            )
        require_master(made._connection["master"], self.spark_conn_id)
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
