"""Message queue of one ring: the entry point of DAGs, Spark jobs, services and the command line.

`MessageQueue` applies the rules to a store. It composes collaborators for sending, servicing in place,
blocks, leases, set-aside messages, administration, reading and external payloads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, TypeVar, overload

from typing_extensions import Unpack

from ...codecs import Codec, codec_of
from ..rules.config import RingConfig
from ..rules.invariants import Violation
from ..rules.message import Address, Footprint, Message
from ..rules.weight import UNLIMITED, Weight
from ..store import Store, StoreAddress
from .admin import Admin
from .attempts import BatchProcessor, Processor
from .blocks.blocks import Blocks
from .calls import checked, processor_of
from .context import is_inside
from .execution import execute_overweight
from .inspect.check.inboxes import Repair, repair_inboxes
from .inspect.check.ring import check_ring
from .inspect.inspect import Inspect
from .inspect.queues import footprint, footprints
from .leases import Leases
from .payloads import Payloads
from .sending.commands import Commands
from .sending.inline import Inline
from .sending.packing import Pairs
from .sending.sender import Sender, SendOptions, SendTerms
from .service import SLICE, Service, ServiceOptions, service_forever
from .session import Listener, RingSession
from .set_aside import SetAsides
from .typed import TypedQueue
from .values import Enqueued, Serviced

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
    :param traces: record the trace that is active when a message is sent (`airflow_mq.observe.traces`); by default,
        the value of the environment variable `AIRFLOW_MQ_TRACES`.
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
        session = RingSession(store, ring, listeners=listeners, busy_timeout=busy_timeout, actor=actor, traces=traces)
        self.session, self.store, self.ring = session, session.store, session.ring
        self._sender = Sender(session)
        self.blocks = Blocks(session)
        self.set_aside = SetAsides(session)
        self.leases = Leases(session)
        self.admin = Admin(session, self.set_aside)
        self.inspect = Inspect(session, self.blocks)
        self.payloads = Payloads(session, self._sender)
        #: `Admin.reap_page`: delete an old page of an origin.
        self.reap_page = self.admin.reap_page
        #: `Admin.sweep_queue`: set all messages of an origin aside.
        self.sweep_queue = self.admin.sweep_queue
        #: `batches_footprints(origin, messages, max_ready_pages)` returns what the first 1, 2, 3 … messages would add.
        #: A queue without a quota is never full; a sender with its own bound checks it by this method.
        self.batches_footprints = self._sender.batches_footprints

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
        inline: Inline | None = None,
        **options: Unpack[SendOptions],
    ) -> Enqueued:
        """Enqueue one message.

        The options are `weight`, `headers`, `not_before`, `expires` and `priority`: see `SendOptions`.

        :param origin: the sender; names its queue.
        :param payload: the bytes of the message, at least one.
        :param key: an idempotency key of the origin: a message with the same key is accepted once.
        :param inline: executes the message at once if no other message waits in the ring. Otherwise, and if the
            execution fails, the message stays in its queue.
        """
        return self._sender.enqueue_message(origin, payload, key, SendTerms.of(options), inline)

    @overload
    def enqueue_messages(
        self, origin: str, messages: Iterable[bytes | Message], **options: Unpack[SendOptions]
    ) -> Enqueued: ...

    @overload
    def enqueue_messages(self, origin: Pairs, messages: None = None, **options: Unpack[SendOptions]) -> Enqueued: ...

    def enqueue_messages(
        self, origin: str | Pairs, messages: Iterable[bytes | Message] | None = None, **options: Unpack[SendOptions]
    ) -> Enqueued:
        """Enqueue many messages, of one origin or of many; all of them or none.

        Call `enqueue_messages(origin, messages)`, or `enqueue_messages(pairs)` with pairs of origin and message. An
        iterator of millions is read once and never held in memory. The options are those of `enqueue_message`; they
        apply to each message that does not set the value itself.
        """
        return self._sender.enqueue_messages(origin, messages, SendTerms.of(options))

    def commands(self, connection: object) -> Commands:
        """Return commands over the caller's connection to the same database: psycopg 3, `sqlite3` or SQLAlchemy.

        See `Commands`. The caller keeps the connection and its open transaction.
        """
        return Commands(self.session, connection)

    def service_queues(
        self,
        processor: Processor | BatchProcessor,
        limit: Weight | None = None,
        *,
        slice_messages: int = SLICE,
        slice_seconds: float = 1.0,
        seed: bytes | None = None,
        progress: Callable[[Serviced], None] | None = None,
        server: str | None = None,
        origins: Iterable[str] | None = None,
    ) -> Serviced:
        """Service the ready queues within a weight, in this process.

        The call works in parts of `max_block_queues` queues, so its memory does not grow with their number. If another
        process takes the ring between two parts, the call ends, and the result has what was serviced until then.

        :param processor: called for each message (or, made by `batch_processor`, for each batch). A function of one
            parameter receives the `Delivery`; parameters named `payload`, `origin` and `message` receive these.
            An exception counts as *not now*: a later call tries the message again.
        :param limit: the largest weight of this call; by default, the ring's service weight.
        :param slice_messages: commit results after this many messages, or after `slice_seconds`. After a crash, only
            messages of the last slice are tried again.
        :param seed: determines the order of a ring with the order `shuffle`; by default, random bytes.
        :param progress: called after each commit with the results so far.
        :param server: the name of the calling DAG in `explain` and `doctor`; by default, the queue's actor.
        :param origins: case-sensitive shell patterns: the origins to service; by default, all.
        """
        processor = checked(processor)
        if is_inside(self.session.place):
            return Serviced()
        return Service(
            self.session, processor, limit, slice_messages=slice_messages, slice_seconds=slice_seconds,
            seed=seed, progress=progress, server=server, origins=origins,
        ).run()  # fmt: skip

    def service_forever(
        self,
        processor: Processor | BatchProcessor,
        limit: Weight | None = None,
        *,
        stop: threading.Event | None = None,
        **options: Unpack[ServiceOptions],
    ) -> Serviced:
        """Call `service_queues` whenever messages wait, until a stop; return the sums of all calls.

        In between, the worker sleeps. On PostgreSQL a sender's notification wakes it; on SQLite it reads the store
        at least twenty times a second. If another process holds the ring or the database cannot be reached, it tries
        again.

        :param stop: ends the worker after the call under way; without it, the worker ends by an exception only.
        """
        self.session.refuse_nested()
        call = partial(Service, self.session, checked(processor), limit, **options)
        return service_forever(self.session, self.inspect.pulse, call, stop or threading.Event())

    def execute_overweight(
        self, address: Address, processor: Processor, limit: Weight = UNLIMITED, *, for_everything: bool = False
    ) -> Weight:
        """Execute one set-aside message now, within a weight, and return the weight that it used.

        :param for_everything: behave as the pallet's extrinsic `execute_overweight`. The limit also pays for the
            bookkeeping (`costs.execution`), and a message that cannot be processed now raises `Refused`. If the
            processor reaches its stack limit, an event records it. Otherwise, behave as the pallet's function of
            the same name, which changes nothing when it fails.
        """
        processor = processor_of(processor)
        return execute_overweight(self.session, address, processor, limit, for_everything=for_everything)

    def footprint(self, origin: str, priority: str | None = None, *, below: bool = False) -> Footprint:
        """Return the footprint of an origin: of both books, or of the book of this priority.

        :param below: include all origins below it on its path.
        """
        return footprint(self.session, origin, priority, below=below)

    def footprints(self, prefix: str = "", after: str = "", limit: int = 100) -> list[tuple[str, Footprint]]:
        """Return the footprints of all origins by name, `limit` at a time; continue after the last one."""
        return footprints(self.session, prefix, after, limit)

    def check(self, progress: Callable[[int, int], object] | None = None) -> list[Violation]:
        """Check every invariant of the stored ring and return the violations. Nothing is written.

        :param progress: called from time to time with the number of checked queues and the total number.
        """
        return check_ring(self.session, progress)

    def repair(self, *, dry_run: bool = False) -> list[Repair]:
        """Put stranded messages back in their queues, and return the repairs.

        A message is stranded when the check reports that its inbox row "is in no page, and would never be cut". After
        the repair, it is tried after the messages of its origin that are in pages.

        :param dry_run: return the repairs without making them.
        """
        return repair_inboxes(self.session, dry_run=dry_run)

    def __len__(self) -> int:
        """Return the number of unprocessed messages, leased ones included. Does not wait for the ring lock."""
        return self.leases.count(None)

    def __bool__(self) -> bool:
        """Return true: an empty queue is a valid object, too."""
        return True

    def __reduce__(self) -> Any:
        raise TypeError("a MessageQueue cannot be pickled: open one where it is used, with the address of its store")

    def close(self) -> None:
        """Close the connections."""
        self.store.close()

    def typed(self, codec: Codec[T] | type[T]) -> TypedQueue[T]:
        """Return this queue with a type on both ends: a codec, `bytes`, `str`, or a type that Pydantic validates."""
        return TypedQueue(self, codec_of(codec))

    def __enter__(self) -> MessageQueue:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
