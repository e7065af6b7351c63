"""Queue that a hook opened: whether its messages carry traces, and the lineage of a task of any operator.

Airflow collects the lineage if a plugin reads it, such as OpenLineage's. This package's operators report theirs
themselves.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.lineage.hook import get_hook_lineage_collector
from airflow.providers.common.compat.sdk import conf

from airflow_mq import settings
from airflow_mq.engine.queue import MessageQueue
from airflow_mq.observe import lineage, traces
from airflow_mq.observe.traces import harmless
from airflow_mq.provider import SCHEME

if TYPE_CHECKING:
    from airflow_mq.engine.queue.values import Enqueued, Serviced
    from airflow_mq.hooks import MessageQueueHook


class HookedQueue(MessageQueue):
    """A queue whose sends and services are reported for a hook."""

    hook: MessageQueueHook
    #: Called with each origin to which messages were sent, and their number.
    note_sent: Callable[[str, int], object] | None = None

    def enqueue_message(self, origin: str, payload: bytes, **options: Any) -> Enqueued:
        sent = super().enqueue_message(origin, payload, **options)
        self._sent({origin: 1})
        return sent

    def enqueue_messages(self, origin: Any, messages: Any = None, **options: Any) -> Enqueued:
        origins: Counter[str] = Counter()
        if messages is None and not isinstance(origin, (str, bytes)):
            sent = super().enqueue_messages(_counting(origin, origins), **options)
        else:
            sent = super().enqueue_messages(origin, messages, **options)
            origins[origin] = sent.count + sent.repeated
        self._sent(origins)
        return sent

    def _sent(self, origins: Mapping[str, int]) -> None:
        for origin in islice(origins, lineage.MOST):
            self._report("add_output_asset", origin)
        if self.note_sent is not None:
            for origin, count in origins.items():
                self.note_sent(origin, count)

    def service_queues(self, *args: Any, **options: Any) -> Serviced:
        serviced = super().service_queues(*args, **options)
        self._report("add_input_asset", None)
        return serviced

    @harmless
    def _report(self, how: str, origin: str | None) -> None:
        named = {"mq_conn_id": self.hook.mq_conn_id, "ring": self.ring, "origin": origin}
        getattr(get_hook_lineage_collector(), how)(context=self.hook, scheme=SCHEME, asset_kwargs=named)


def _counting(pairs: Iterable[Any], origins: Counter[str]) -> Iterator[Any]:
    """Yield pairs of origin and message, and count their origins."""
    for pair in pairs:
        # A row of a driver is a pair as well. The queue refuses all else.
        with suppress(TypeError, ValueError):
            name, _ = pair
            if isinstance(name, str):
                origins[name] += 1
        yield pair


def carries_traces() -> bool | None:
    """Return whether messages carry traces; None leaves the decision to the environment."""
    if not settings.flag("traces"):
        return None
    if not traces.is_provided():
        _provide_tracers()
    return True


def _provide_tracers() -> None:
    """Provide tracers from Airflow's configuration: Airflow 3.1 gives its tasks no provider."""
    if not conf.getboolean("traces", "otel_on", fallback=False):
        return
    host, port = conf.get("traces", "otel_host", fallback=""), conf.get("traces", "otel_port", fallback="")
    is_set = any(os.environ.get(f"OTEL_EXPORTER_OTLP_{which}ENDPOINT") for which in ("", "TRACES_"))
    if host and port and not is_set:
        scheme = "https" if conf.getboolean("traces", "otel_ssl_active", fallback=False) else "http"
        # Drivers of Spark jobs inherit the variable.
        os.environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = f"{scheme}://{host}:{port}/v1/traces"
        os.environ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] = "http/protobuf"
    os.environ.setdefault("OTEL_SERVICE_NAME", conf.get("traces", "otel_service", fallback="Airflow"))
    traces.provide()
