"""Assets that are queues: `airflow-mq://CONNECTION/RING/ORIGIN`. ::

    orders = queue_asset("airflow_mq_default", "shop", "acme/orders")
    EnqueueMessagesOperator(task_id="send", outlets=[orders], …)

Without an origin the asset is the whole ring; without a ring it is the connection's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, quote, unquote, urlsplit

from airflow.sdk import Asset

from airflow_mq.engine.rules.errors import InvalidInput
from airflow_mq.provider import SCHEME

if TYPE_CHECKING:
    from airflow.providers.common.compat.openlineage.facet import Dataset


def queue_asset(
    mq_conn_id: str, ring: str | None = None, origin: str | None = None, extra: dict[str, Any] | None = None
) -> Asset:
    """Return the asset of a queue, or of a ring; Airflow's registry of factories calls it for the scheme."""
    if origin and not ring:
        raise InvalidInput(f"origin {origin!r:.80} without a ring: name the ring as well")
    parts = [quote(part, safe=safe) for part, safe in ((ring, ""), (origin, "/")) if part]
    return Asset(uri="/".join([f"{SCHEME}://{quote(mq_conn_id, safe='')}", *parts]), extra=extra or {})


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """Return the address of an asset, or raise `ValueError`: it names a connection, and no server or user."""
    if not uri.netloc or "@" in uri.netloc or ":" in uri.netloc or uri.query:
        raise ValueError(f"invalid address of a queue: expected {SCHEME}://CONNECTION/RING/ORIGIN")
    return uri


def convert_asset_to_openlineage(asset: Asset, lineage_context: object) -> Dataset | None:
    """Return the data set of a queue, as the operators name it; None if the connection cannot be read."""
    from airflow.providers.common.compat.openlineage.facet import Dataset

    from airflow_mq.hooks import MessageQueueHook
    from airflow_mq.observe.lineage import namespace_of

    uri = urlsplit(asset.uri)
    ring, _, origin = uri.path.strip("/").partition("/")
    try:
        address, name = MessageQueueHook(unquote(uri.netloc)).place(unquote(ring) or None)
    except Exception:
        # The tasks that use the connection report what is wrong with it.
        return None
    return Dataset(namespace=namespace_of(address), name=f"{name}/{unquote(origin)}".rstrip("/"))
