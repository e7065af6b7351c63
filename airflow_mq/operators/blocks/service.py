"""Servicing in place: process what fits a weight in the task's own process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, AirflowSkipException

from airflow_mq.engine.queue.attempts import BatchProcessor
from airflow_mq.engine.queue.calls import checked
from airflow_mq.engine.queue.inspect.reasons import ERRORS
from airflow_mq.engine.queue.session import limit_of
from airflow_mq.engine.queue.values import Batch
from airflow_mq.engine.rules.errors import Busy, InvalidInput, TokenRefused, UnknownBlock
from airflow_mq.operators.base import RETURNED, Observed, QueueOperator, TaskStopped, open_queue, server_name, weight_of
from airflow_mq.operators.blocks.xcoms import refuse_ended
from airflow_mq.words import many, outcomes, weight

if TYPE_CHECKING:
    from logging import Logger

    from airflow.sdk import Context

    from airflow_mq import Delivery, MessageQueue, Serviced
    from airflow_mq.engine.queue.attempts import Answer, Processor
    from airflow_mq.observe.traces import Carrier
    from airflow_mq.operators.base import GivenWeight
    from airflow_mq.operators.blocks.xcoms import PlannedBlock
    from airflow_mq.processors import Part, Processors
    from airflow_mq.spark.attempts import Function
    from airflow_mq.spark.share import Reported


class Servicing(Observed):
    """A task that processes messages in its own process: how it services queues, and how it ends."""

    log: Logger
    _is_processing = False

    @contextmanager
    def processing(
        self, context: Context, processors: Processors, part: Part, block: PlannedBlock
    ) -> Iterator[tuple[MessageQueue, Carrier]]:
        """Open the queue of a block while a part of it is processed; yield it with the trace of the processing.

        An error that keeps the part from its processors is reported: its messages go back without an attempt.
        """
        from airflow_mq.spark.store_side import reporting_failure

        token = block["token"]
        with open_queue(self.mq_conn_id, block["ring"], context) as queue:
            refuse_ended(queue, token)
            observed = self.observe(queue).processing(block, part, processors)
            with reporting_failure(queue, token, processors, part), observed as carrier:
                yield queue, carrier

    def service(
        self, queue: MessageQueue, context: Context, process: Processor | BatchProcessor, given: GivenWeight
    ) -> Serviced:
        """Service the queues within a weight."""
        limit, observer, has_begun = weight_of(given, "limit"), self.observe(queue), False
        call: Any = process.process if isinstance(process, BatchProcessor) else process

        def observed(tried: Delivery | Batch) -> Any:
            nonlocal has_begun
            has_begun = True
            observer.touch(tried.origin, len(tried.payloads) if isinstance(tried, Batch) else 1)
            return call(tried)

        watched = BatchProcessor(observed) if isinstance(process, BatchProcessor) else observed
        try:
            with self.processing_here():
                serviced = queue.service_queues(watched, limit, server=server_name(context))
        except Busy as error:
            if has_begun:
                raise AirflowException(f"{error}. Messages since the last commit are tried again") from None
            raise AirflowSkipException(f"{error}. Nothing was serviced this time") from None
        most = limit_of(queue.config, limit)
        observer.serviced(serviced, most)
        self.log.info(
            "Serviced %s: %s; weight %s of %s.",
            many(serviced.origins, "queue"), outcomes(vars(serviced)), weight(serviced.weight), weight(most),
        )  # fmt: skip
        if serviced.returned:
            self.log.warning(RETURNED, many(serviced.returned, "message"), queue.session.cli(ERRORS))
        return serviced

    def process_here(
        self,
        queue: MessageQueue,
        token: str,
        processors: Processors,
        part: Part,
        lease: float | None = None,
        function: Function | None = None,
    ) -> Reported:
        """Process a part of a block; a function takes the place of the processors' own."""
        from airflow_mq.spark.store_side import run_in_place

        try:
            with self.processing_here():
                tally = run_in_place(queue, token, processors, part, lease, function)
        except (TokenRefused, UnknownBlock) as error:
            raise AirflowFailException(
                f"{str(error).rstrip('.')}; messages without an outcome are back in their queues"
            ) from None
        self.log.info("%s: %s.", part["name"], tally)
        return tally

    @contextmanager
    def processing_here(self) -> Iterator[None]:
        """Let the end of the task end what it is processing."""
        self._is_processing = True
        try:
            yield
        finally:
            self._is_processing = False

    def on_kill(self) -> None:
        if self._is_processing:
            # The signal arrived while the author's function ran, which may catch an Exception.
            raise TaskStopped("the task was ended: finished messages stay finished, the others go back")


class ServiceQueuesOperator(Servicing, QueueOperator):
    """Service the ready queues within a weight, in this task's own process. ::

        ServiceQueuesOperator(task_id="service", processor="shop.orders:process", limit=[60_000, 1 << 28])

    Each message is processed and settled on its own: no other task and no Spark job takes part. To process a block on
    Spark, or by several tasks, use `airflow_mq.block.block`. Returns the counts of outcomes and the weight used.

    :param processor: a function, a batch processor, or its name: `shop.orders:process`. A function's signature decides
        what it receives: one parameter the `Delivery`, or `payload`, `origin` and `message`; it returns the outcome
    :param limit: `10m/1GiB` or `[milliseconds, bytes]`; the ring's service weight if left out (templated)
    """

    template_fields: Sequence[str] = (*QueueOperator.template_fields, "limit")

    def __init__(
        self, *, processor: Callable[..., Answer] | BatchProcessor | str, limit: GivenWeight = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.processor = processor
        self.limit = limit

    def execute(self, context: Context) -> dict[str, object]:
        from airflow_mq.spark.share import load_function

        given = self.processor
        try:
            process = checked(cast("Any", load_function(given)) if isinstance(given, str) else given)
        except InvalidInput as error:
            raise AirflowFailException(str(error)) from None
        with self.opened(context) as queue:
            return serviced_as_xcom(self.service(queue, context, process, self.limit))


def serviced_as_xcom(serviced: Serviced) -> dict[str, object]:
    return {**vars(serviced), "weight": list(serviced.weight)}
