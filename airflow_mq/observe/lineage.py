"""Lineage for OpenLineage: which queues a task wrote to, and which it took messages from.

A queue is a dataset: its store is the namespace, without credentials, and its name is `ring/origin`. A task names at
most `MOST` queues, because a block may have thousands. If OpenLineage is off, nothing is read.

A task that starts reports what is known without the store; when it completes, what it used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from airflow.providers.common.compat.openlineage.facet import Dataset
    from airflow.providers.openlineage.extractors import OperatorLineage

    from airflow_mq import MessageQueue
    from airflow_mq.engine.store import StoreAddress

#: Queues that a task names, or one call with a hook: as many as Airflow collects.
MOST = 100


def is_wanted() -> bool:
    """Return whether OpenLineage's provider is installed and on."""
    try:
        from airflow.providers.openlineage.conf import is_disabled
    except ImportError:
        return False
    try:
        return not is_disabled()
    except Exception:
        # The provider logs errors of its configuration.
        return False


class Source(NamedTuple):
    """A source of received messages, as OpenLineage names it."""

    namespace: str
    name: str


def source_at(address: str) -> Source:
    """Return a folder, or a prefix of an object store, without the connection in its address."""
    scheme, _, path = address.rpartition("://")
    if scheme in ("", "file"):
        return Source("file", path.rstrip("/") or "/")
    bucket, _, prefix = path.rpartition("@")[2].partition("/")
    return Source(f"{scheme}://{bucket}", prefix.rstrip("/") or "/")


@dataclass
class Touched:
    """The queues that a task sent to or took messages from."""

    namespace: str
    ring: str
    #: Settings of the ring that matter to a reader.
    settings: Mapping[str, object]
    #: Messages by origin.
    messages: Counter[str] = field(default_factory=Counter)
    #: Whether the task sent the messages.
    is_output: bool = False
    #: Summary of the block that the task settled.
    block: Mapping[str, object] | None = None


def touched(queue: MessageQueue) -> Touched | None:
    """Return an empty record of a task's queues, or None if lineage is off."""
    if not is_wanted():
        return None
    weight = queue.config.service_weight
    settings = {"order": queue.config.order, "serviceWeight": list(weight) if weight else None}
    return Touched(namespace_of(queue.store.address), queue.ring, settings)


def namespace_of(address: StoreAddress) -> str:
    """Return the name of a store, without credentials."""
    if address.driver == "sqlite":
        return f"airflow_mq://{address.path}"
    return f"airflow_mq://{address.authority}/{address.database}/{address.schema}"


def begun(
    address: StoreAddress, ring: str, sources: Iterable[Source] = (), origin: str | None = None
) -> OperatorLineage:
    """Return the lineage of a task that starts: its ring, and the queue that it will write to, if known."""
    from airflow.providers.common.compat.openlineage.facet import OutputDataset

    outputs = [OutputDataset(namespace=namespace_of(address), name=f"{ring}/{origin}")] if origin else []
    return _operator_lineage({"ring": ring}, _inputs(sources), outputs)


def completed(what: Touched, sources: Iterable[Source] = ()) -> OperatorLineage:
    """Return the lineage of a task that ended: the queues with the most messages, and the block that it settled."""
    from airflow.providers.common.compat.openlineage.facet import (
        OutputDataset,
        OutputStatisticsOutputDatasetFacet,
        RunFacet,
    )

    inputs, outputs = _inputs(sources), []
    for origin, count in what.messages.most_common(MOST):
        name = f"{what.ring}/{origin}"
        if what.is_output:
            facets = {"outputStatistics": OutputStatisticsOutputDatasetFacet(rowCount=count)}
            outputs.append(OutputDataset(namespace=what.namespace, name=name, outputFacets=facets))
        else:
            inputs += _inputs([Source(what.namespace, name)])
    ring = {"ring": what.ring, "queues": len(what.messages), "messages": what.messages.total(), **what.settings}
    lineage = _operator_lineage(ring, inputs, outputs)
    if what.block is not None:
        values = {_camel(name): value for name, value in what.block.items() if name not in ("ring", "origins")}
        lineage.run_facets["airflow_mq_block"] = RunFacet().with_additional_properties(**values)
    return lineage


def _inputs(sources: Iterable[Source]) -> list[Dataset]:
    from airflow.providers.common.compat.openlineage.facet import Dataset

    return [Dataset(namespace=source.namespace, name=source.name) for source in sources]


def _operator_lineage(ring: Mapping[str, object], inputs: list[Dataset], outputs: list[Dataset]) -> OperatorLineage:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.facet_v2 import JobFacet

    facet = JobFacet().with_additional_properties(**ring)
    return OperatorLineage(inputs=inputs, outputs=outputs, job_facets={"airflow_mq_ring": facet})


def _camel(name: str) -> str:
    """Return a name in camel case, as facets have it."""
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)
