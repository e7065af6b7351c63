"""Processing: one part of a block, on Spark or in the task's process."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, BaseHook

from airflow_mq.engine.rules.errors import InvalidInput, TokenRefused, UnknownBlock
from airflow_mq.hooks import MessageQueueHook
from airflow_mq.links import BlockLink, PlanLink
from airflow_mq.observe import traces
from airflow_mq.operators.base import seconds_of
from airflow_mq.operators.blocks.service import Servicing
from airflow_mq.operators.blocks.xcoms import (
    PlannedBlock,
    checked_part,
    exchange_at,
    planned_block,
)
from airflow_mq.operators.spark.connect import USED, ConnectClient, Server, server_of
from airflow_mq.operators.spark.hook import (
    JOB,
    MessageSparkHook,
    job_arguments,
    merged,
    refuse_other_master,
    resume_keys,
    spark_options,
)
from airflow_mq.operators.spark.job_listener import SPARK_JOB, JobListener
from airflow_mq.operators.spark.masters import require_master, require_server, silent_master
from airflow_mq.operators.spark.processes import signal_of
from airflow_mq.processors import AnyProcessors, Part, Processors
from airflow_mq.spark import arguments
from airflow_mq.words import many

if TYPE_CHECKING:
    from airflow.sdk import Context, ObjectStoragePath
    from pydantic import JsonValue

    from airflow_mq import MessageQueue

#: A job of fewer messages is expected to take seconds.
SMALL = 10_000
#: Arguments that the operator sets when it runs.
OURS = ("application", "application_args", "env_vars", "conn_id")
#: Id of the Spark connection, unless another is named.
SPARK_CONNECTION = "spark_default"
#: Key in the extra of a Spark connection by which the provider reaches YARN.
RESOURCE_MANAGER = "yarn_resourcemanager_webapp_address"
#: Name of a job that the provider's operator gives where the author gives none.
UNNAMED = "arrow-spark"
TOO_LATE = (
    "the job came too late: its block was settled or released; messages without an outcome are back in their queues"
)


class ProcessMessagesOperator(Servicing, SparkSubmitOperator):
    """Process one part of a block, on Spark or in place. Mapped over the parts that `PlanBlockOperator` returns.

    A message reaches its processor and nothing else of the job. The command line consists of the ring, the author's
    rules and numbers; the store's address and the block's token travel by environment. All further parameters are those
    of `SparkSubmitOperator`, with its templated fields; a processor's `spark={…}` adds to them.

    :param part: which part of the block (mapped)
    :param processors: the same that the plan was made with
    :param plan_task_id: the task that planned the block (templated)
    :param mq_conn_id: id of a connection of type `airflow_mq` (templated)
    :param ring: name of the ring (templated)
    :param spark_conn_id: id of the Spark connection, such as `{"conn_type": "spark", "host": "local[*]"}`; for a Spark
        Connect server, such as `{"conn_type": "spark_connect", "host": "spark", "port": 15002}`, a job starts no JVM
        (templated)
    :param exchange: an address of object storage by which messages and outcomes travel, for clusters whose executors
        cannot reach the store; with `ObjectStoragePath("s3://aws@bucket/queues")` this task uses the connection `aws`,
        and the job what the cluster has (templated)
    :param lease: seconds by which a running job renews its block's lease (templated)
    """

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields, "mq_conn_id", "ring", "exchange", "lease", "plan_task_id",
        "spark_conn_id",
    )  # fmt: skip
    operator_extra_links = (BlockLink(), PlanLink())
    ui_color = "#e8f0e4"

    def __init__(
        self,
        *,
        part: Part,
        processors: AnyProcessors,
        plan_task_id: str = "plan",
        mq_conn_id: str = MessageQueueHook.default_conn_name,
        ring: str | None = None,
        spark_conn_id: str = SPARK_CONNECTION,
        exchange: str | ObjectStoragePath | None = None,
        lease: float | str | None = None,
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
        self._options: dict[str, Any] = {}
        self._store: dict[str, str] = {}
        self._trace: dict[str, str] = {}
        self._client: ConnectClient | None = None
        self._listener: JobListener | None = None

    def execute(self, context: Context) -> None:
        processors = Processors.of(self.processors)
        part = checked_part(self.part, processors)
        self.process(context, processors, part, planned_block(context, self.plan_task_id))

    def process(self, context: Context, processors: Processors, part: Part, block: PlannedBlock) -> None:
        """Process a part of a block in the way that its processors ask for."""
        # The provider's operator stored it before it was rendered.
        self._conn_id = self.spark_conn_id
        with self.processing(context, processors, part, block) as (queue, carrier):
            self._trace = traces.environment(carrier)
            if part["where"] == "in place":
                self.process_here(queue, block["token"], processors, part, seconds_of(self.lease, "lease"))
            else:
                self._on_spark(context, queue, processors, part, block["token"])

    def _on_spark(self, context: Context, queue: MessageQueue, processors: Processors, part: Part, token: str) -> None:
        processor = processors[part["processors"][0]]
        try:
            self._options = spark_options(processor, self.render_template(dict(processor.spark), context))
        except InvalidInput as error:
            raise AirflowFailException(str(error)) from None
        self._store = {} if self.exchange else {arguments.STORE: queue.store.address.uri, arguments.BLOCK: token}
        # The provider stores a cluster's job by task; a run that is cleared has another block.
        self.external_id_key, self._K8S_DRIVER_STATUS_KEY = resume_keys(token)
        self.application = str(JOB)
        lease = seconds_of(self.lease, "lease")
        if not self.exchange:
            self.application_args = job_arguments(queue.ring, processors, part, None, lease)
            self._submit(context)
            return
        from airflow_mq.spark.exchange import hand_over, take_back
        from airflow_mq.spark.lease import BlockLease

        keeper = BlockLease(queue, token, lease, self._end_job)
        try:
            with keeper:
                folder = hand_over(queue, token, processors, part, exchange_at(self.exchange))
                self.application_args = job_arguments(queue.ring, processors, part, folder, lease)
                if keeper.refused:
                    raise keeper.refused
                try:
                    self._submit(context)
                    if keeper.refused:
                        raise keeper.refused
                finally:
                    # A job that failed half way has reported its first half.
                    self.log.info("%s: outcomes of %s.", part["name"], many(take_back(queue, token, folder), "message"))
        except Exception as error:
            if keeper.refused or isinstance(error, (TokenRefused, UnknownBlock)):
                raise AirflowFailException(TOO_LATE) from error
            raise

    def _submit(self, context: Context) -> None:
        self._listener = listener = JobListener(lambda known: context["ti"].xcom_push(key=SPARK_JOB, value=known))
        server = server_of(BaseHook.get_connection(self.spark_conn_id), self.spark_conn_id)
        try:
            if server is None:
                super().execute(context)
            else:
                require_server(server.address, self.spark_conn_id)
                self._run_client(server, listener)
        except AirflowException as error:
            job = self._client or self._hook
            code = job.returncode if isinstance(job, (MessageSparkHook, ConnectClient)) else None
            if code == arguments.REFUSED:
                raise AirflowFailException(TOO_LATE) from error
            # The provider's text is the command and the last lines of output, which may quote messages.
            text = self._failure(job, code) if isinstance(job, MessageSparkHook) and code else ""
            if code == arguments.NOT_LOADED:
                from airflow_mq.spark.share import NotLoaded

                raise NotLoaded(text or str(error)) from None
            if text:
                raise AirflowException(text) from None
            raise

    def _failure(self, hook: MessageSparkHook, code: int) -> str:
        cause = (self._listener.cause or "").rstrip(".") if self._listener else ""
        if self._listener and self._listener.is_master_silent:
            cause = silent_master(hook.master, self.spark_conn_id)
        failed = f"the Spark job {self.part['name']!r} failed: {cause or signal_of(code) or 'it printed no cause'}"
        return f"{failed}. Error code is: {code}; the output is in this task's log"

    def _run_client(self, server: Server, listener: JobListener) -> None:
        """Run the job's client in a child of this task; a running server does the work."""
        given = {*self._options, *(["conf"] if self.conf else [])}
        if unused := sorted(given.difference(USED)):
            self.log.warning("A Spark Connect server has its own settings; ignored here: %s.", ", ".join(unused))
        self.log.info("The job runs on the Spark Connect server %s.", server.address)
        env_vars = {name: str(value) for name, value in self._options.get("env_vars", {}).items()}
        environment = {**env_vars, **server.environment, **self._trace, **self._store, **listener.environment}
        self._client = ConnectClient([self.application, *self.application_args], environment, self.log)
        self._client.run(listener)

    def _get_hook(self) -> SparkSubmitHook:
        """Return a hook with the job's secrets, for the master that the connection names."""
        connection = BaseHook.get_connection(self.spark_conn_id)
        hook = MessageSparkHook(
            secrets={**self._store, **(self._listener.environment if self._listener else {})},
            trace=self._trace,
            listener=self._listener,
            small=self.part["messages"] < SMALL,
            **merged(self._hook_arguments(), self._options),
        )
        refuse_other_master(hook.master, connection, self.spark_conn_id)
        if hook.is_cluster and not self.exchange:
            raise AirflowFailException(
                f"deploy mode 'cluster' of Spark connection {self.spark_conn_id!r} cannot pass the store's credentials "
                "to the driver: set exchange='s3://…', or use deploy mode 'client'"
            )
        if hook._is_yarn_cluster_mode and not connection.extra_dejson.get(RESOURCE_MANAGER):
            raise AirflowFailException(
                f"deploy mode 'cluster' of Spark connection {self.spark_conn_id!r} needs the resource manager's "
                f"address to end applications: set {RESOURCE_MANAGER!r} in its extra, such as 'http://resource-manager:8088'"
            )
        require_master(hook.master, self.spark_conn_id)
        if self._options.get("track_driver_via_k8s_api"):
            hook._validate_track_driver_via_k8s_api_config()
        return hook

    def poll_until_complete(self, external_id: JsonValue, context: Context) -> None:
        # The provider does not keep which application a retry has found again, and could not end it.
        if isinstance(self._hook, MessageSparkHook) and self._hook._is_yarn_cluster_mode:
            self._hook._yarn_application_id = str(external_id)
        super().poll_until_complete(external_id, context)

    def _hook_arguments(self) -> dict[str, Any]:
        """Return the arguments of the provider's hook: its operator stores each, some with an underscore in front."""
        values = vars(self)
        names = [(name, key) for name in signature(SparkSubmitHook).parameters for key in (f"_{name}", name)]
        arguments = {name: values[key] for name, key in names if key in values}
        if arguments.get("name") == UNNAMED:
            arguments["name"] = f"airflow_mq {self.part['name']}"
        return arguments

    def on_kill(self) -> None:
        Servicing.on_kill(self)
        self._end_job()

    def _end_job(self) -> None:
        if self._client is not None:
            self._client.end()
        elif isinstance(self._hook, MessageSparkHook):
            # The provider deletes a driver's pod only while spark-submit runs, which has no child then.
            if not self._hook.is_cluster:
                self._hook.end_job()
            SparkSubmitOperator.on_kill(self)
            self._hook.end_job()
