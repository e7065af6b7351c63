"""The queue: the core's rules over a store.

`MessageQueue` is what everybody holds in the hand: a DAG, a Spark job, a service, a
person at a terminal. Its parts are what they come for: sending, serving in place, blocks
that take time, deciding about single messages, looking without touching, and looking ahead.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, TypeVar, overload

from ..codecs import Codec, codec_of
from ..core.overweight import Judged
from .asides import Judgement
from .attempts import BatchProcessor, Processor, batch_processor
from .base import Listener
from .blobs import Held, Keeping, StoredBlob
from .blocks import Block, Blocks
from .carrying import Carried, Carrying
from .commanding import Commanding, Commands, Push, TransferToken
from .deciding import Deciding
from .explaining import Explaining, Explanation
from .foreseeing import ForeseenBlock, ForeseenQueue
from .inline import Inline
from .looks.for_metrics import Backlog, Depth, Gauging
from .looks.for_page import Glancing, RingGlance
from .looks.glances import BlockGlance, PageGlance, QueueGlance
from .looks.survey import QueueDepth, Survey, Surveying
from .reading import Reading
from .servers import Server
from .serving import Serving
from .story import Step, Story, Telling
from .typed import TypedBatch, TypedDelivery, TypedMessage, TypedPeeked, TypedQueue
from .values import Batch, Delivery, Enqueued, LedgerBlock, Paused, Peeked, Report, Serviced, SetAside
from .viewing import ReferenceToken, View

T = TypeVar("T")


class MessageQueue(
    Commanding, Keeping, Serving, Explaining, Glancing, Surveying, Telling, Deciding, Carrying, Gauging, Blocks, Reading
):  # fmt: skip
    """A fair, durable, weight-bounded message queue: one ring of one store.

    ::

        with MessageQueue("sqlite:///queue.db") as queue:
            queue.enqueue_message("acme", b"an order")
            queue.service_queues(print)

    :param store: `sqlite:///path` or `postgresql://user:password@host/database`; its schema must
        exist (`airflow-mq store upgrade` makes it).
    :param ring: which of the store's rings.
    :param listeners: called after a commit for each queue that changed, with its footprint.
    :param busy_timeout: seconds to wait for somebody else who services the ring.
    :param who: recorded with decisions; the user's name where it is not said.
    :param traces: whether messages carry the trace that is active when they are sent (`airflow_mq.tracing`); where it
        is not said, the environment variable `AIRFLOW_MQ_TRACES` says it.

    An object may be shared by threads.
    """

    @overload
    def typed(self, codec: Codec[T]) -> TypedQueue[T]: ...

    @overload
    def typed(self, codec: type[T]) -> TypedQueue[T]: ...

    def typed(self, codec: Any) -> TypedQueue[Any]:
        """The same queue with a type on both ends: a codec, or `bytes`, `str`, or a type that Pydantic validates."""
        return TypedQueue(self, codec_of(codec))

    def __enter__(self) -> MessageQueue:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


__all__ = [
    "Backlog",
    "Batch",
    "BatchProcessor",
    "Block",
    "BlockGlance",
    "Carried",
    "Commands",
    "Delivery",
    "Depth",
    "Enqueued",
    "Explanation",
    "ForeseenBlock",
    "ForeseenQueue",
    "Held",
    "Inline",
    "Judged",
    "Judgement",
    "LedgerBlock",
    "Listener",
    "MessageQueue",
    "PageGlance",
    "Paused",
    "Peeked",
    "Processor",
    "Push",
    "QueueDepth",
    "QueueGlance",
    "ReferenceToken",
    "Report",
    "RingGlance",
    "Server",
    "Serviced",
    "SetAside",
    "Step",
    "StoredBlob",
    "Story",
    "Survey",
    "TransferToken",
    "TypedBatch",
    "TypedDelivery",
    "TypedMessage",
    "TypedPeeked",
    "TypedQueue",
    "View",
    "batch_processor",
]
