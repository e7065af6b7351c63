"""The queue: the core's rules over a store.

`MessageQueue` is what everybody holds in the hand: a DAG, a Spark job, a service, a
person at a terminal. Its parts are what they come for: sending, serving in place, blocks
that take time, deciding about single messages, looking without touching, and looking ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar, overload

from ..codecs import Codec, codec_of
from ..core.config import RingConfig
from ..core.invariants import Violation
from ..core.message import Address, BatchesFootprints, Footprint, Message
from ..core.overweight import Judged
from ..core.priority import REGULAR
from ..core.weight import UNLIMITED, Weight
from ..store import Store, StoreAddress
from .admin import Admin
from .attempts import BatchProcessor, Processor, batch_processor
from .blocks.blocks import Block, Blocks
from .blocks.settlement import BlockSettler
from .execution import Execution
from .inspect.backlog import Backlog, Depth
from .inspect.check.inboxes import Repair
from .inspect.explain import Explanation
from .inspect.forecast import ForeseenBlock, ForeseenQueue
from .inspect.headers import MessageHeaders
from .inspect.history import History, Step
from .inspect.inspect import Inspect
from .inspect.page import RingState
from .inspect.reading import Footprints, Reader
from .inspect.summaries import BlockState, PageState, QueueState
from .inspect.survey import QueueDepth, Survey
from .leases import Leases, View
from .payloads import Held, Payloads, StoredBlob
from .sending.call import When
from .sending.commands import Commands, Push, TransferToken
from .sending.inline import Inline
from .sending.sender import Sender
from .servers import Server
from .service import InPlace
from .session import Listener, RingSession
from .set_aside import Judgement, SetAsides
from .tokens import ReferenceToken, Tokens
from .typed import TypedBatch, TypedDelivery, TypedMessage, TypedPeeked, TypedQueue
from .values import Batch, Delivery, Enqueued, LedgerBlock, Paused, Peeked, Report, Serviced, SetAside

T = TypeVar("T")


class MessageQueue:
    """A fair, durable, weight-bounded message queue: one ring of one store.

    ::

        with MessageQueue("sqlite:///queue.db") as queue:
            queue.enqueue_message("acme", b"an order")
            queue.service_queues(print)

    A queue may be shared by threads. Its namespaces:

    - `blocks`: plan blocks, report on them, and settle or release them.
    - `set_aside`: list, requeue, discard and expire messages that are kept for manual handling.
    - `leases`: take one message at a time; complete, give back or transfer it.
    - `admin`: pause origins, set origins and the ring, and delete what has expired.
    - `inspect`: read queues, blocks, messages, events, figures and forecasts; nothing is written.
    - `payloads`: store and read external payloads.

    :param store: `sqlite:///path` or `postgresql://user:password@host/database`; its schema must
        exist (`airflow-mq store upgrade` makes it).
    :param ring: the name of one of the store's rings.
    :param listeners: called after a commit for each queue that changed, with its footprint.
    :param busy_timeout: seconds to wait for another process that services the ring.
    :param actor: recorded with decisions; by default, the user's name.
    :param traces: record the trace that is active when a message is sent (`airflow_mq.tracing`); by default, as the
        environment variable `AIRFLOW_MQ_TRACES` is set.
    """

    def __init__(
        self,
        store: str | StoreAddress | Store[Any],
        ring: str = "default",
        *,
        listeners: Sequence[Listener] = (),
        busy_timeout: float = 10.0,
        actor: str | None = None,
        traces: bool | None = None,
    ) -> None:
        session = RingSession(
            store, ring, listeners=listeners, busy_timeout=busy_timeout, actor=actor, traces=traces
        )  # fmt: skip
        settler = BlockSettler(session)
        self.session, self.store, self.ring = session, session.store, session.ring
        self._sender, self._footprints, self._reader = Sender(session), Footprints(session), Reader(session)
        self._in_place, self._execution = InPlace(session, settler), Execution(session)
        self._tokens = Tokens(session)
        self.blocks = Blocks(session, settler)
        self.set_aside = SetAsides(session)
        self.leases = Leases(session, settler, self.blocks, self._footprints, self._sender, self._tokens)
        self.admin = Admin(session, settler, self.set_aside)
        self.inspect = Inspect(session, self.blocks)
        self.payloads = Payloads(session, self._sender)

    @property
    def config(self) -> RingConfig:
        """The settings of the ring, as last read from the store."""
        return self.session.config

    def enqueue_message(
        self,
        origin: str,
        payload: bytes,
        *,
        key: str | None = None,
        weight: Weight | None = None,
        headers: Mapping[str, str] | None = None,
        not_before: When | None = None,
        expires: When | None = None,
        priority: str | None = None,
        inline: Inline | None = None,
    ) -> Enqueued:
        """Enqueue one message.

        :param origin: who sends it; names its queue.
        :param payload: its bytes, at least one.
        :param key: an idempotency key of the origin: the same message sent again with it is accepted once.
        :param weight: what it will cost, where the sender knows.
        :param headers: free-form text that travels beside it.
        :param not_before: when it joins its queue: a time, or so long from now.
        :param expires: when nobody wants it any more: a time, or so long from now.
        :param priority: `high` is serviced before all that is `regular`, within what is not kept for that.
        :param inline: what executes it at once, if nothing else waits in the ring; otherwise, and whatever goes wrong
            with that, it stays queued.
        """
        return self._sender.enqueue_message(
            origin, payload, key, weight, headers, not_before, expires, priority, inline
        )

    @overload
    def enqueue_messages(
        self, origin: str, messages: Iterable[bytes | Message], *, weight: Weight | None = None,
        headers: Mapping[str, str] | None = None, not_before: When | None = None, expires: When | None = None,
        priority: str = REGULAR,
    ) -> Enqueued: ...  # fmt: skip

    @overload
    def enqueue_messages(
        self, origin: Iterable[tuple[str, bytes | Message]], messages: None = None, *, weight: Weight | None = None,
        headers: Mapping[str, str] | None = None, not_before: When | None = None, expires: When | None = None,
        priority: str = REGULAR,
    ) -> Enqueued: ...  # fmt: skip

    def enqueue_messages(
        self,
        origin: str | Iterable[tuple[str, bytes | Message]],
        messages: Iterable[bytes | Message] | None = None,
        *,
        weight: Weight | None = None,
        headers: Mapping[str, str] | None = None,
        not_before: When | None = None,
        expires: When | None = None,
        priority: str = REGULAR,
    ) -> Enqueued:
        """Enqueue many messages, of one origin or of many; all of them or none.

        Either `enqueue_messages(origin, messages)` or `enqueue_messages(pairs)` with pairs of
        origin and message. An iterator of millions is read once and never held in memory.
        What is said by keyword holds for every message that does not say otherwise itself.
        """
        return self._sender.enqueue_messages(
            origin, messages, weight=weight, headers=headers, not_before=not_before, expires=expires, priority=priority
        )

    def commands(self, connection: Any) -> Commands:
        """Commands over a connection of the caller's to the same database: psycopg 3, `sqlite3`, or SQLAlchemy.

        See `Commands`. The connection stays the caller's, and so does the transaction that is open on it.
        """
        return Commands(self._sender, self._tokens, connection)

    def service_queues(
        self,
        processor: Processor | BatchProcessor,
        limit: Weight | None = None,
        *,
        slice_messages: int = 10_000,
        slice_seconds: float = 1.0,
        seed: bytes | None = None,
        progress: Callable[[Serviced], None] | None = None,
        server: str | None = None,
    ) -> Serviced:
        """Service the ready queues within a weight, in this process.

        :param processor: called for each message (or, made by `batch_processor`, for each batch).
            What it raises counts as *not now*: the message is tried again in a later call.
        :param limit: what this call may cost; the ring's service weight where it is not said.
        :param slice_messages: after so many messages, or `slice_seconds`, results are committed: what
            a crash lets be tried again.
        :param progress: called after each commit with what was done so far.
        :param server: the DAG that calls, as `explain` and `doctor` name it; by default, the queue's actor.
        """
        return self._in_place.service_queues(
            processor,
            limit,
            slice_messages=slice_messages,
            slice_seconds=slice_seconds,
            seed=seed,
            progress=progress,
            server=server,
        )

    def execute_overweight(
        self, address: Address, processor: Processor, limit: Weight = UNLIMITED, *, for_everything: bool = False
    ) -> Weight:
        """Execute one set-aside message now, within a weight; tell what it used.

        :param for_everything: the limit pays for keeping the books of it, too, and the errors
            are the coarser ones of the pallet's outer entry point. Only this entry point records
            that a processor reached its stack limit; the other one undoes all it stored when it fails.
        """
        return self._execution.execute_overweight(address, processor, limit, for_everything=for_everything)

    def reap_page(self, origin: str, page: int, why: str = "", *, priority: str = REGULAR) -> None:
        """Remove an old page of an origin, with what it still holds."""
        return self.admin.reap_page(origin, page, why, priority=priority)

    def sweep_queue(self, origin: str) -> int:
        """Move the windows past everything: what is left waits for a person. Tell how much that is."""
        return self.admin.sweep_queue(origin)

    def footprint(self, origin: str, priority: str | None = None, *, below: bool = False) -> Footprint:
        """How much of the store an origin takes: both of its books, or the one of this priority.

        :param below: together with all origins below it, as paths go.
        """
        return self._footprints.footprint(origin, priority, below=below)

    def footprints(self, prefix: str = "", after: str = "", limit: int = 100) -> list[tuple[str, Footprint]]:
        """The footprints of all origins by name, so many at a time: go on after the last one."""
        return self._footprints.footprints(prefix, after, limit)

    def batches_footprints(self, origin: str, messages: Iterable[bytes], max_ready_pages: int) -> BatchesFootprints:
        """What enqueuing the first 1, 2, 3 … of these would add, within so many ready pages.

        For a sender that wants a bound: the queue itself never refuses.
        """
        return self._sender.batches_footprints(origin, messages, max_ready_pages)

    def check(self, tell: Callable[[int, int], object] | None = None) -> list[Violation]:
        """Look over everything that is stored, and tell every violation. Writes nothing.

        :param tell: hears now and then how many queues were looked over, and how many there are.
        """
        return self._reader.check(tell)

    def repair(self, *, dry_run: bool = False) -> list[Repair]:
        """Return stranded messages to their queues, and return what was repaired.

        A message is stranded when the check reports that its mail "is in no page, and would never be cut". The next
        service or block tries it behind the messages of its origin that lie in pages already.

        :param dry_run: only find what there is to repair; change nothing
        """
        return self._reader.repair(dry_run=dry_run)

    def __len__(self) -> int:
        """How many messages are not processed yet, those on lease included. Never waits."""
        return self.leases.count(None)

    def __bool__(self) -> bool:
        """A queue is a queue, also an empty one."""
        return True

    def close(self) -> None:
        """Give back the connections."""
        self.store.close()

    @overload
    def typed(self, codec: Codec[T]) -> TypedQueue[T]: ...

    @overload
    def typed(self, codec: type[T]) -> TypedQueue[T]: ...

    def typed(self, codec: Any) -> TypedQueue[Any]:
        """The same queue with a type on both ends: a codec, or `bytes`, `str`, or a type that Pydantic validates."""
        return TypedQueue(self._sender, self._in_place, self.inspect, codec_of(codec))

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
    "BlockState",
    "Commands",
    "Delivery",
    "Depth",
    "Enqueued",
    "Explanation",
    "ForeseenBlock",
    "ForeseenQueue",
    "Held",
    "History",
    "Inline",
    "Judged",
    "Judgement",
    "LedgerBlock",
    "Listener",
    "MessageHeaders",
    "MessageQueue",
    "PageState",
    "Paused",
    "Peeked",
    "Processor",
    "Push",
    "QueueDepth",
    "QueueState",
    "ReferenceToken",
    "Report",
    "RingState",
    "Server",
    "Serviced",
    "SetAside",
    "Step",
    "StoredBlob",
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
