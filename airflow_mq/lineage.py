"""Lineage: which queues a task wrote to, and which it took from, told to OpenLineage where its provider is on.

A queue is a dataset: its store is the namespace, without who may open it, and its name is `ring/origin`. Of so many
queues, and no more, for a block may have thousands. Nothing is looked at where nobody wants to know.

When a task starts, it tells what it can say without asking the store; at its end, what it really touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from airflow_mq import MessageQueue
    from airflow_mq.store import StoreAddress

#: How many queues a task names.
MOST = 100


def is_wanted() -> bool:
    """Whether OpenLineage's provider is here, and on."""
    try:
        from airflow.providers.openlineage.conf import is_disabled
    except ImportError:
        return False
    try:
        return not is_disabled()
    except Exception:
        # How it is set up is for its own log to say.
        return False


class Source(NamedTuple):
    """Where messages are received from, as OpenLineage names it."""

    namespace: str
    name: str


def source_at(address: str) -> Source:
    """A folder, or a prefix of an object store, as OpenLineage names it; a connection in it is left out."""
    scheme, _, path = address.rpartition("://")
    if scheme in ("", "file"):
        return Source("file", path.rstrip("/") or "/")
    bucket, _, prefix = path.rpartition("@")[2].partition("/")
    return Source(f"{scheme}://{bucket}", prefix.rstrip("/") or "/")


@dataclass
class Touched:
    """The queues that a task wrote to, or took from, and how many messages of each."""

    namespace: str
    ring: str
    #: How the ring is set, as far as it tells a reader anything.
    settings: Mapping[str, Any]
    messages: Counter[str] = field(default_factory=Counter)

    def each(self, pairs: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """Count what is sent, on its way."""
        for origin, message in pairs:
            self.messages[origin] += 1
            yield origin, message

    @property
    def named(self) -> list[tuple[str, int]]:
        """Those with the most messages."""
        return self.messages.most_common(MOST)


def touched(queue: MessageQueue, messages: Iterable[tuple[str, int]] = ()) -> Touched | None:
    """What a task touches of a ring; nothing, where nobody wants to know."""
    if not is_wanted():
        return None
    weight, found = queue.config.service_weight, Counter[str]()
    for origin, count in messages:
        found[origin] += count
    settings = {"order": queue.config.order, "serviceWeight": list(weight) if weight else None}
    return Touched(namespace_of(queue.store.address), queue.ring, settings, found)


def namespace_of(address: StoreAddress) -> str:
    """The name of a store, without who opens it."""
    if address.driver == "sqlite":
        return f"airflow_mq://{address.path}"
    return f"airflow_mq://{address.host}:{address.port}/{address.database}/{address.schema}"


def begun(
    address: StoreAddress, ring: str, sources: Iterable[Source] = (), origin: str | None = None
) -> Any:  # fmt: skip
    """What OpenLineage is told of a task that starts: its ring, and which queue it will write to, if that is known."""
    from airflow.providers.common.compat.openlineage.facet import Dataset, OutputDataset

    outputs = [OutputDataset(namespace=namespace_of(address), name=f"{ring}/{origin}")] if origin else []
    inputs = [Dataset(namespace=one.namespace, name=one.name) for one in sources]
    return _told({"ring": ring}, inputs=inputs, outputs=outputs)


def written(what: Touched | None, sources: Iterable[Source] = ()) -> Any:
    """What OpenLineage is told of a task that sent."""
    if what is None:
        return None
    from airflow.providers.common.compat.openlineage.facet import (
        Dataset,
        OutputDataset,
        OutputStatisticsOutputDatasetFacet,
    )

    inputs = [Dataset(namespace=one.namespace, name=one.name) for one in sources]
    return _lineage(what, inputs=inputs, outputs=[
        OutputDataset(
            namespace=what.namespace, name=f"{what.ring}/{origin}",
            outputFacets={"outputStatistics": OutputStatisticsOutputDatasetFacet(rowCount=count)},
        )
        for origin, count in what.named
    ])  # fmt: skip


def taken(what: Touched | None, block: Mapping[str, Any] | None = None) -> Any:
    """What OpenLineage is told of a task that took messages; with what a block came to, by the one that settled it."""
    if what is None:
        return None
    from airflow.providers.common.compat.openlineage.facet import Dataset, RunFacet

    found = _lineage(what, inputs=[
        Dataset(namespace=what.namespace, name=f"{what.ring}/{origin}") for origin, _ in what.named
    ])  # fmt: skip
    if block is not None:
        told = {_camel(name): value for name, value in block.items() if name not in ("ring", "origins")}
        found.run_facets["airflow_mq_block"] = RunFacet().with_additional_properties(**told)
    return found


def _lineage(what: Touched, **datasets: Any) -> Any:
    ring = {"ring": what.ring, "queues": len(what.messages), "messages": what.messages.total(), **what.settings}
    return _told(ring, **datasets)


def _told(ring: Mapping[str, Any], **datasets: Any) -> Any:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.facet_v2 import JobFacet

    facet = JobFacet().with_additional_properties(**ring)
    return OperatorLineage(**datasets, job_facets={"airflow_mq_ring": facet})


def _camel(name: str) -> str:
    """A name as facets have it."""
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)
