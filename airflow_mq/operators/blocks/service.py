"""Servicing in place: process what fits a weight in the task's own process."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_mq import metrics
from airflow_mq.core.errors import InvalidInput
from airflow_mq.operators.base import QueueOperator, server_name, weight_of
from airflow_mq.queue.session import limit_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_mq import Delivery, Serviced
    from airflow_mq.operators.base import GivenWeight
    from airflow_mq.queue.attempts import Answer, Processor

#: Parameter by which a function receives the delivery.
MESSAGE = "message"


class ServiceQueuesOperator(QueueOperator):
    """Service the ready queues within a weight, in this task's own process. ::

        ServiceQueuesOperator(task_id="service", processor="shop.orders:process", limit=[60_000, 1 << 28])

    Each message is processed and settled on its own: no other task and no Spark job takes part. To process a block on
    Spark, or by several tasks, use `airflow_mq.block.block`. Returns the counts of outcomes and the weight used.

    :param processor: called as `processor(payload, origin)`, and with `message=` (the `Delivery`) if it has that
        parameter; the return value is the message's outcome. A function, or its name: `shop.orders:process`
    :param limit: what the call may cost, `[time, size]`; the ring's service weight if left out (templated)
    """

    template_fields: Sequence[str] = (*QueueOperator.template_fields, "limit")

    def __init__(self, *, processor: Callable[..., Answer] | str, limit: GivenWeight = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.processor = processor
        self.limit = limit

    def execute(self, context: Context) -> dict[str, object]:
        function = _loaded(self.processor) if isinstance(self.processor, str) else self.processor
        with self.opened(context) as queue:
            limit, began = weight_of(self.limit, "limit"), time.monotonic()
            serviced = queue.service_queues(processor_of(function), limit, server=server_name(context))
            metrics.serviced(queue, serviced, limit_of(queue.config, limit), time.monotonic() - began)
        self.log.info("%s", serviced)
        return serviced_as_xcom(serviced)


def processor_of(function: Callable[..., Answer], fixed: Mapping[str, object] | None = None) -> Processor:
    """Return a processor of deliveries that calls `function(payload, origin)` with further arguments."""
    fixed = fixed or {}
    takes_message = MESSAGE in inspect.signature(function).parameters and MESSAGE not in fixed

    def process(delivery: Delivery) -> Answer:
        more = {MESSAGE: delivery} if takes_message else {}
        return function(delivery.payload, delivery.origin, **more, **fixed)

    return process


def serviced_as_xcom(serviced: Serviced) -> dict[str, object]:
    """Return the result of servicing as plain values."""
    return {**vars(serviced), "weight": list(serviced.weight)}


def _loaded(name: str) -> Callable[..., Answer]:
    from airflow_mq.spark.share import load_function

    try:
        return cast("Callable[..., Answer]", load_function(name))
    except InvalidInput as error:
        raise AirflowFailException(str(error)) from None
