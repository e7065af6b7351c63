"""A program that sends messages under a span and runs two blocks: one on Spark, and one in place.

The second block has the message that the processor of the first block enqueued.
"""

from __future__ import annotations

from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics import stats_utils
from opentelemetry import metrics, trace

from airflow_mq.hooks import MessageQueueHook
from airflow_mq.observe import traces
from airflow_mq.processors import Processor, Processors
from tests.airflow.stage import CONN_ID, FUNCTION, Airflow


def main() -> None:
    """Send, and run a block."""
    stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=False)
    provider = traces.provide()
    assert provider is not None
    with (
        trace.get_tracer("shop").start_as_current_span("checkout"),
        MessageQueueHook(CONN_ID).queue() as queue,
    ):
        queue.enqueue_messages("a1", [b"x", b"next", b"bad"])
    for where in ("spark", "in place"):
        processors, run = Processors([Processor("all", FUNCTION, where=where)]), Airflow().run()
        run.plan(processors)
        run.process(0, processors)
        run.settle()
    provider.shutdown()
    metrics.get_meter_provider().shutdown()


if __name__ == "__main__":
    main()
