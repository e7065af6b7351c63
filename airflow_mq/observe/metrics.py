"""Metrics, sent through Airflow to StatsD, DogStatsD or OpenTelemetry, as `[metrics]` of Airflow's configuration sets.

Planning a block, settling one, servicing in place and waiting for messages in the triggerer send metrics. Nothing is
read if Airflow's metrics are off. Errors of metrics are only logged.

A backend with tags gets `mq.depth.messages` with the tag `ring`, and `mq.origin.depth.messages` with the tags `ring`
and `origin`. One without tags gets ring and origin in the name: `mq.<ring>.depth.messages`, and
`mq.<ring>.origin.<origin>.depth.messages`. Metrics of single origins are sent only if `[airflow_mq] metrics_origins`
enables them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from airflow.providers.common.compat.sdk import conf

from airflow_mq import settings

if TYPE_CHECKING:
    from airflow_mq.engine.queue import MessageQueue
    from airflow_mq.engine.queue.blocks.block import Block
    from airflow_mq.engine.queue.inspect.queues import Backlog
    from airflow_mq.engine.queue.values import Serviced
    from airflow_mq.engine.rules.weight import Weight

log = logging.getLogger("airflow_mq.metrics")
P = ParamSpec("P")

#: Prefix of all names, after Airflow's own prefix.
PREFIX = "mq"
#: Default number of blocks of the ledger for fairness metrics.
BLOCKS = 20
#: Largest number of queues with messages for fairness metrics at every block; with more it takes seconds.
FEW_QUEUES = 20_000
#: Largest length of a ring or an origin in a name.
MOST_NAME = 80
#: Characters that separate tags in some backend, and those that Airflow refuses in names with tags of InfluxDB's style.
SEPARATORS, REFUSED = r"[\s,=|#;]", r"[^A-Za-z0-9_./-]"
#: Seconds between two backlog metrics of a poller.
WATCH_EVERY = 30.0

GAUGE, COUNTER, TIMER = "gauge", "counter", "timer"


@dataclass(frozen=True)
class Metric:
    """A metric: name, kind, unit and meaning."""

    name: str
    kind: str
    unit: str
    meaning: str


#: Of the waiting messages: when a block is planned, when one is settled, and by the triggerer.
BACKLOG = (
    Metric("depth.messages", GAUGE, "messages", "waiting or in flight"),
    Metric("depth.bytes", GAUGE, "bytes", "waiting or in flight"),
    Metric("depth.queues", GAUGE, "queues", "with messages that wait or are in flight"),
    Metric("oldest_age", GAUGE, "seconds", "since the oldest of these messages was sent; 0 without messages"),
    Metric("delayed", GAUGE, "messages", "not due yet"),
    Metric("set_aside", GAUGE, "messages", "set aside, waiting for a decision"),
    Metric("backlog.time", GAUGE, "weight", "time part of the waiting messages, by the ring's weigher"),
    Metric("backlog.size", GAUGE, "weight", "size part of the waiting messages, by the ring's weigher"),
    Metric("backlog.blocks", GAUGE, "blocks", "that the waiting messages would fill; absent without a service weight"),
)
#: When a block is planned.
PLANNED = (
    Metric("blocks.planned", COUNTER, "blocks", "planned"),
    Metric("plan.duration", TIMER, "milliseconds", "spent on planning"),
    Metric("plan.messages", GAUGE, "messages", "claimed by the latest block"),
    Metric("plan.time", GAUGE, "weight", "planned time of the latest block"),
    Metric("plan.size", GAUGE, "weight", "planned size of the latest block"),
)
#: When a block is settled, or a task has serviced queues in place.
SETTLED = (
    Metric("blocks.settled", COUNTER, "blocks", "settled, or serviced in place by one task"),
    Metric("block.duration", TIMER, "milliseconds", "from the plan of a block to its end, or of a service in place"),
    Metric("block.time", GAUGE, "weight", "used time of the latest block"),
    Metric("block.size", GAUGE, "weight", "used size of the latest block"),
    Metric("block.used", GAUGE, "part", "used part of the latest block's limit; 1 is the whole limit"),
    Metric("messages.processed", COUNTER, "messages", "processed"),
    Metric("messages.failed", COUNTER, "messages", "failed for good"),
    Metric("messages.set_aside", COUNTER, "messages", "set aside by blocks"),
    Metric("messages.returned", COUNTER, "messages", "requeued by blocks"),
    Metric("messages.expired", COUNTER, "messages", "expired before they were processed"),
)
FAIRNESS = (
    Metric("fairness.share_error", GAUGE, "part", "largest deviation of a share, in either direction; 0.05 is 5 %"),
    Metric("fairness.longest_wait", GAUGE, "blocks", "most consecutive blocks that started none of a queue's messages"),
    Metric("fairness.late", GAUGE, "blocks", "most blocks by which a queue was emptied later than with its fair share"),
    Metric("fairness.jain", GAUGE, "index", "Jain's index over received and promised shares; 1 is fair"),
)
#: Of single origins, as many as are asked for.
ORIGIN_BACKLOG = (
    Metric("origin.depth.messages", GAUGE, "messages", "of one origin, waiting or in flight"),
    Metric("origin.depth.bytes", GAUGE, "bytes", "of one origin, with those of set-aside messages"),
    Metric("origin.oldest_age", GAUGE, "seconds", "since the oldest message of the origin was sent"),
)
ORIGIN_FAIRNESS = (
    Metric("origin.share_error", GAUGE, "part", "deviation of the origin's share; below 0 it received too little"),
    Metric("origin.longest_wait", GAUGE, "blocks", "consecutive blocks that started none of the origin's messages"),
)
METRICS = (*BACKLOG, *PLANNED, *SETTLED, *FAIRNESS, *ORIGIN_BACKLOG, *ORIGIN_FAIRNESS)


def is_on() -> bool:
    """Return whether any backend of Airflow's metrics is on."""
    return any(
        conf.getboolean("metrics", name, fallback=False) for name in ("statsd_on", "statsd_datadog_enabled", "otel_on")
    )


def _if_on(report: Callable[Concatenate[MessageQueue, P], None]) -> Callable[Concatenate[MessageQueue, P], None]:
    """Return a report that is made if metrics are on, and whose errors are logged."""

    def attempt(queue: MessageQueue, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            if is_on():
                report(queue, *args, **kwargs)
        except Exception as error:
            log.warning("cannot send the metrics of ring %r (%s)", queue.ring, type(error).__name__)

    return attempt


@_if_on
def watched(queue: MessageQueue) -> None:
    """Send metrics of the backlog."""
    _backlog(queue)


@_if_on
def planned(queue: MessageQueue, block: Block, seconds: float) -> None:
    """Send metrics of a planned block and the backlog."""
    send(queue.ring, PLANNED, (1, seconds, block.messages, *block.predicted))
    # In Prometheus, a counter that begins with the first failures shows no increase.
    counters = [metric for metric in SETTLED if metric.kind == COUNTER]
    send(queue.ring, counters, [0] * len(counters))
    _backlog(queue)


@_if_on
def settled(queue: MessageQueue, result: Serviced, limit: Weight, seconds: float | None) -> None:
    """Send metrics of a settled block or of a service, the fairness of the latest blocks, and the backlog."""
    used = result.weight.part_of(limit)
    send(queue.ring, SETTLED, (1, seconds, *result.weight, used, *result.counts))
    if _backlog(queue).queues <= FEW_QUEUES:
        _fairness(queue)


def _backlog(queue: MessageQueue) -> Backlog:
    found = queue.inspect.backlog(origins_told())
    counts = (found.messages, found.size, found.queues, found.age or 0.0, found.delayed, found.set_aside)
    send(queue.ring, BACKLOG, (*counts, *found.weight, found.blocks))
    for origin in found.deepest:
        count = origin.messages - origin.set_aside
        send(queue.ring, ORIGIN_BACKLOG, (count, origin.size, origin.age or 0.0), origin.name)
    return found


def _fairness(queue: MessageQueue) -> None:
    blocks = settings.number("metrics_blocks", BLOCKS)
    if blocks < 1:
        return
    figures = queue.inspect.fairness(blocks)
    send(queue.ring, FAIRNESS, (figures.most_error, figures.longest_wait, figures.most_late, figures.jain))
    worst = sorted(figures.origins, key=lambda origin: (-origin.longest_wait, -abs(origin.error or 0.0), origin.name))
    for origin in worst[: origins_told()]:
        send(queue.ring, ORIGIN_FAIRNESS, (origin.error, origin.longest_wait), origin.name)


def origins_told() -> int:
    """Return the number of origins with metrics of their own."""
    # Metric backends pay for each name for ever.
    return min(max(settings.number("metrics_origins", 0), 0), 1_000)


def send(ring: str, metrics: Sequence[Metric], values: Iterable[float | None], origin: str | None = None) -> None:
    """Send the values of some metrics to Airflow, in their order; None is no value."""
    stats, unfit = backend(), unfit_in_tags()
    tags = {"ring": ring} if origin is None else {"ring": ring, "origin": origin}
    how = {"tags": {tag: as_name(text, unfit) for tag, text in tags.items()}} if unfit else {}
    for metric, value in zip(metrics, values, strict=True):
        if value is None:
            continue
        stat = f"{PREFIX}.{metric.name}" if unfit else untagged(metric.name, ring, origin)
        if metric.kind == TIMER:
            stats.timing(stat, timedelta(seconds=value), **how)
        elif metric.kind == GAUGE:
            stats.gauge(stat, value, **how)
        else:
            stats.incr(stat, int(value), **how)


def backend() -> Any:
    """Return Airflow's metrics module: the task SDK's since 3.2, before that its own."""
    try:
        from airflow.sdk.observability import stats
    except ImportError:
        from airflow.stats import Stats as stats
    return stats


def unfit_in_tags() -> str | None:
    """Return the characters that tags of the first backend that is on must not have; None if it has no tags."""
    if conf.getboolean("metrics", "statsd_datadog_enabled", fallback=False):
        return SEPARATORS if conf.getboolean("metrics", "statsd_datadog_metrics_tags", fallback=True) else None
    if conf.getboolean("metrics", "statsd_on", fallback=False):
        return REFUSED if conf.getboolean("metrics", "statsd_influxdb_enabled", fallback=False) else None
    return SEPARATORS if conf.getboolean("metrics", "otel_on", fallback=False) else None


def untagged(name: str, ring: str, origin: str | None = None) -> str:
    """Return the name of a metric with its ring and origin."""
    if origin is None:
        return f"{PREFIX}.{as_name(ring)}.{name}"
    return f"{PREFIX}.{as_name(ring)}.origin.{as_name(origin)}.{name.removeprefix('origin.')}"


def as_name(text: str, unfit: str = r"[^A-Za-z0-9_-]") -> str:
    """Return text as a part of a name. Changed text ends in a piece of its hash, so that names stay distinct.

    :param unfit: pattern of the characters that it must not have
    """
    plain = re.sub(unfit, "_", text)
    if plain == text and len(text) <= MOST_NAME:
        return plain
    return f"{plain[: MOST_NAME - 9]}-{blake2b(text.encode(), digest_size=4).hexdigest()}"
