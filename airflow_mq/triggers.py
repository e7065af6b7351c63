"""Triggers that wait for ready queues or set-aside messages without holding a worker, and start DAGs.

All triggers of a ring share one poller, however many origins, assets and tasks wait for it. On PostgreSQL the poller
sleeps until a sender's `NOTIFY`, and also reads every `poll_interval` seconds, because a notification may be lost. On
SQLite it reads every `poll_interval` seconds.

An event is a hint that there is something to do; the store holds the truth. ::

    ready = Asset("orders-ready", watchers=[AssetWatcher(name="queue", trigger=QueueReadyTrigger())])
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.providers.common.compat.sdk import AirflowNotFoundException
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_mq.engine.rules.errors import (
    AddressRefused,
    InvalidInput,
    LoginRefused,
    NetworkFileSystem,
    SchemaMissing,
    SchemaTooNew,
    SchemaTooOld,
    StoreCorrupt,
    UnknownRing,
)
from airflow_mq.engine.store.pipelined import within
from airflow_mq.hooks import MessageQueueHook, told_safely
from airflow_mq.observe import metrics

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from airflow_mq import MessageQueue
    from airflow_mq.engine.queue.values import Pulse
    from airflow_mq.engine.store import StoreAddress

log = logging.getLogger("airflow_mq.triggers")
T = TypeVar("T")

#: Seconds between two reads without a notification.
POLL_INTERVAL = 5.0
#: Seconds after which an event is repeated while its cause lasts, in case the first was lost.
REPEAT_AFTER = 300.0
#: Seconds after which a read of the store is abandoned.
READ_SECONDS = 30.0
#: Seconds until a failed store is read again, at first and at most; reads until a missing connection counts as gone.
FIRST_RETRY, LAST_RETRY, READS = 1.0, 60.0, 6
#: Errors that last until a person changes something.
LASTING = (
    AddressRefused, InvalidInput, LoginRefused, NetworkFileSystem, SchemaMissing, SchemaTooNew, SchemaTooOld,
    StoreCorrupt, UnknownRing,
)  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """A bounded read of a ring; compared with the previous one, it shows what is new."""

    ring: str
    pulse: Pulse
    #: Number of set-aside messages, at most 1,000.
    waiting: int


class RingTrigger(BaseEventTrigger):
    """Base of the triggers of a ring, which share one poller.

    :param mq_conn_id: id of a connection of type `airflow_mq`
    :param ring: name of the ring; the connection's if left out
    :param poll_interval: seconds between two reads
    :param repeat_after: seconds after which an event is repeated while its cause lasts
    :param give_up: end with an event `{"error": …}` for an error that lasts, such as a deleted ring; a watcher of an
        asset waits until a person has repaired it
    """

    def __init__(
        self,
        mq_conn_id: str = MessageQueueHook.default_conn_name,
        ring: str | None = None,
        poll_interval: float = POLL_INTERVAL,
        repeat_after: float = REPEAT_AFTER,
        give_up: bool = False,
    ) -> None:
        super().__init__()
        self.mq_conn_id = mq_conn_id
        self.ring = ring
        self.poll_interval = poll_interval
        self.repeat_after = repeat_after
        self.give_up = give_up

    def serialize(self) -> tuple[str, dict[str, object]]:
        names = ("mq_conn_id", "ring", "poll_interval", "repeat_after", *(["give_up"] if self.give_up else []))
        kwargs = {name: getattr(self, name) for name in names}
        return f"{type(self).__module__}.{type(self).__qualname__}", kwargs

    def shared_stream_key(self) -> Hashable | None:
        """Return the key of the poller; triggers with the same key share one."""
        return ("airflow_mq", self.mq_conn_id, self.ring or "", str(self.poll_interval), self.give_up)

    @classmethod
    def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncGenerator[Reading | str, None]:
        """Read the ring while a trigger listens."""
        return cls(**kwargs).readings()

    async def readings(self) -> AsyncGenerator[Reading | str, None]:
        """Yield readings of the ring for ever, and with `give_up` the text of an error that lasts.

        A store that cannot be reached is read again after ever longer waits.
        """
        retry, seconds, poller = FIRST_RETRY, float(self.poll_interval), Poller(self.mq_conn_id, self.ring)
        try:
            while True:
                try:
                    async with poller:
                        while True:
                            yield await poller.read()
                            retry = FIRST_RETRY
                            await poller.sleep(seconds)
                except Exception as error:
                    # A secrets backend may raise anything.
                    where, cause = f"connection {self.mq_conn_id!r}", told_safely(error)
                    if self.give_up and isinstance(error, LASTING):
                        # An end of the stream would drop the text before any trigger has read it.
                        yield f"{where}: {cause}"
                    else:
                        log.warning("could not read %s: %s; trying again in %.0f s", where, cause, retry)
                await asyncio.sleep(retry)
                retry = min(retry * 2, LAST_RETRY)
        finally:
            poller.close()

    async def filter_shared_stream(
        self, shared_stream: AsyncIterator[Reading | str]
    ) -> AsyncGenerator[TriggerEvent, None]:
        """Yield events for the readings that are new to this trigger."""
        last: Reading | None = None
        sent_at = 0.0
        async for reading in shared_stream:
            if isinstance(reading, str):
                yield TriggerEvent({"error": reading})
                return
            news = self.news(reading)
            if news is None:
                # Messages that a block returns start no further one.
                last = last if reading.pulse.in_flight else None
            elif self.is_new(reading, last) or time.monotonic() - sent_at >= self.repeat_after:
                last, sent_at = reading, time.monotonic()
                yield TriggerEvent(news)
            elif last is not None:
                # The next message that is due fires again.
                last = replace(last, pulse=replace(last.pulse, due=reading.pulse.due))

    async def run(self) -> AsyncGenerator[TriggerEvent, None]:
        """Read the ring alone: for a deferred task, and if Airflow shares no pollers."""
        # Closed here rather than by garbage collection: a poller holds a connection.
        readings = self.readings()
        async with aclosing(readings), aclosing(self.filter_shared_stream(readings)) as events:
            async for event in events:
                yield event

    def news(self, reading: Reading) -> dict[str, object] | None:
        """Return the payload of an event, or None if there is nothing to do."""
        raise NotImplementedError

    def is_new(self, reading: Reading, last: Reading | None) -> bool:
        """Return whether the reading differs from that of the last event."""
        raise NotImplementedError


class QueueReadyTrigger(RingTrigger):
    """Fire when a block would find something to do: at once, then whenever messages are sent.

    Parameters are those of `RingTrigger`. The event: `{"ring": …, "ready": [the first origins], "due": …}`.
    """

    def news(self, reading: Reading) -> dict[str, object] | None:
        pulse = reading.pulse
        return {"ring": reading.ring, "ready": list(pulse.ready), "due": pulse.due} if pulse else None

    def is_new(self, reading: Reading, last: Reading | None) -> bool:
        pulse = reading.pulse
        return last is None or pulse.newest > last.pulse.newest or (pulse.due and not last.pulse.due)


class SetAsideTrigger(RingTrigger):
    """Fire when there are set-aside messages: at once, then whenever another one is set aside.

    Parameters are those of `RingTrigger`. The event: `{"ring": …, "waiting": their number, at most 1,000}`.
    """

    def news(self, reading: Reading) -> dict[str, object] | None:
        return {"ring": reading.ring, "waiting": reading.waiting} if reading.waiting else None

    def is_new(self, reading: Reading, last: Reading | None) -> bool:
        return last is None or reading.pulse.set_aside > last.pulse.set_aside


# -- the poller --


class Poller:
    """Reader of one ring; a thread of its own reads the store, so the event loop never blocks."""

    def __init__(self, mq_conn_id: str, ring: str | None) -> None:
        self.mq_conn_id, self.ring = mq_conn_id, ring
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="airflow-mq-trigger")
        self._queue: MessageQueue | None = None
        self._listening: AsyncConnection | None = None
        self._stack = AsyncExitStack()
        self._read_again = False
        self._missing = 0
        self._sent_at = -metrics.WATCH_EVERY

    @property
    def queue(self) -> MessageQueue:
        assert self._queue is not None
        return self._queue

    async def __aenter__(self) -> Poller:
        from airflow_mq import MessageQueue

        address, ring = await self._target()
        queue = self._queue = await self._in_thread(lambda: MessageQueue(address, ring))
        self._stack.push_async_callback(self._in_thread, queue.close)
        try:
            if address.driver == "postgresql":
                self._listening = await self._listen(address)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._listening = self._queue = None
        await self._stack.aclose()

    def close(self) -> None:
        """End the thread without waiting for it."""
        self._thread.shutdown(wait=False)

    async def _target(self) -> tuple[StoreAddress, str]:
        from asgiref.sync import sync_to_async

        # The triggerer's parent resolves connections, in a thread that it keeps for that.
        try:
            place: tuple[StoreAddress, str] = await sync_to_async(MessageQueueHook(self.mq_conn_id).place)(self.ring)
        except AirflowNotFoundException:
            self._missing += 1
            if self._missing < READS:
                # Airflow reports an error of a secrets backend or its database in the same way.
                raise
            raise AddressRefused("Airflow has no such connection") from None
        self._missing = 0
        return place

    async def _in_thread(self, call: Callable[[], T]) -> T:
        def bounded() -> T:
            with within(READ_SECONDS):
                return call()

        return await asyncio.get_running_loop().run_in_executor(self._thread, bounded)

    async def _listen(self, address: StoreAddress) -> AsyncConnection | None:
        import psycopg

        # Without notifications the poller still reads every few seconds.
        with suppress(psycopg.Error, UnicodeError, asyncio.TimeoutError):
            return await asyncio.wait_for(self._subscribed(address), READ_SECONDS)
        return None

    async def _subscribed(self, address: StoreAddress) -> AsyncConnection:
        import psycopg

        from airflow_mq.engine.store.postgres import SEARCH_PATH, configuring, wake_channel

        channel = wake_channel(address.schema, self.queue.session.ring_id)
        connection = await psycopg.AsyncConnection.connect(autocommit=True, **address.conninfo())
        await self._stack.enter_async_context(connection)
        await connection.execute(configuring([f"search_path = {SEARCH_PATH}"], connection.info.backend_pid))
        await connection.execute(b'LISTEN "%b"' % channel.encode())
        return connection

    async def read(self) -> Reading:
        reading = await self._in_thread(lambda: read_ring(self.queue))
        if time.monotonic() - self._sent_at >= metrics.WATCH_EVERY:
            self._sent_at = time.monotonic()
            await self._in_thread(lambda: metrics.watched(self.queue))
        return reading

    async def sleep(self, seconds: float) -> None:
        """Sleep until a notification, at most `seconds`."""
        if self._read_again:
            self._read_again = False
            # A sender notifies at most four times a second. Each event is a row of Airflow's database.
            await asyncio.sleep(min(seconds, POLL_INTERVAL))
        elif self._listening is None:
            await asyncio.sleep(seconds)
        else:
            self._read_again = await _notified(self._listening, seconds)


async def _notified(listening: AsyncConnection, seconds: float) -> bool:
    import psycopg

    try:
        async for _ in listening.notifies(timeout=seconds, stop_after=1):
            return True
    except psycopg.Error as error:
        raise ConnectionError("the listening connection was lost") from error
    return False


def read_ring(queue: MessageQueue) -> Reading:
    """Return a bounded read of a ring."""
    pulse = queue.inspect.pulse(10)
    waiting = len(queue.set_aside.list(limit=1_000)) if pulse.set_aside else 0
    return Reading(queue.ring, pulse, waiting)
