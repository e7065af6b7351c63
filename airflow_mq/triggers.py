"""Triggers: wait for something to do without holding a worker, and start DAGs by it.

All triggers for a ring look through one poller, however many origins, assets and tasks wait for it. On
PostgreSQL it sleeps until a sender's `NOTIFY` and looks at once; it looks every `poll_interval` seconds
besides, because a notification is a hint that may be lost. On SQLite it looks every `poll_interval` seconds.

An event tells that there is something to do, and nothing to work from: what there is, is in the store. ::

    ready = Asset("orders-ready", watchers=[AssetWatcher(name="queue", trigger=QueueReadyTrigger())])
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_mq import metrics
from airflow_mq.core.errors import MessageQueueError
from airflow_mq.hooks import MessageQueueHook, told_safely
from airflow_mq.store.bounded import within

#: Seconds between two looks when nobody notifies.
POLL_INTERVAL = 5.0
#: Seconds after which what is still ready is told of again, in case that nobody came.
REPEAT_AFTER = 300.0
#: A sender tells at most four times a second: what it sent right behind a notification is found by a second look.
SECOND_LOOK = 0.3
#: Seconds after which a look at a store that does not answer is given up.
LOOK_SECONDS = 30.0
#: Seconds to wait before a store that failed is tried again: first, and at most.
FIRST_RETRY, LAST_RETRY = 1.0, 60.0


@dataclass(frozen=True)
class Look:
    """What one look found; compared with the one before, it tells whether something came."""

    ready: tuple[str, ...]
    due: bool
    newest: int
    set_aside: int
    waiting: int
    ring: str

    @property
    def anything(self) -> bool:
        """Whether a block would find anything."""
        return bool(self.ready) or self.due


class RingTrigger(BaseEventTrigger):
    """What the triggers of a ring have in common: the poller that they share.

    :param mq_conn_id: id of a connection of type `airflow_mq`
    :param ring: name of the ring; without it the connection's
    :param poll_interval: seconds between two looks
    :param repeat_after: seconds after which what has not changed is told of again
    """

    def __init__(
        self,
        mq_conn_id: str = MessageQueueHook.default_conn_name,
        ring: str | None = None,
        poll_interval: float = POLL_INTERVAL,
        repeat_after: float = REPEAT_AFTER,
    ) -> None:
        super().__init__()
        self.mq_conn_id = mq_conn_id
        self.ring = ring
        self.poll_interval = poll_interval
        self.repeat_after = repeat_after

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Where this class is, and how to make another one like it."""
        kwargs = {"mq_conn_id": self.mq_conn_id, "ring": self.ring, "poll_interval": self.poll_interval,
                  "repeat_after": self.repeat_after}  # fmt: skip
        return f"{type(self).__module__}.{type(self).__qualname__}", kwargs

    def shared_stream_key(self) -> Hashable | None:
        """Triggers with the same key share one poller."""
        return ("airflow_mq", self.mq_conn_id, self.ring or "", str(self.poll_interval))

    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncGenerator[Look, None]:
        """Look for as long as anybody wants to know."""
        interval = float(kwargs.get("poll_interval") or POLL_INTERVAL)
        conn_id = kwargs.get("mq_conn_id") or MessageQueueHook.default_conn_name
        async with aclosing(looks(conn_id, kwargs.get("ring"), interval)) as looking:
            async for look in looking:
                yield look

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Look]) -> AsyncGenerator[TriggerEvent, None]:
        """The looks that this trigger tells of."""
        last: Look | None = None
        told_at = 0.0
        async for look in shared_stream:
            news = self.news(look, last)
            if news is None:
                last = None
            elif self.is_new(look, last) or time.monotonic() - told_at >= self.repeat_after:
                last, told_at = look, time.monotonic()
                yield TriggerEvent(news)

    async def run(self) -> AsyncGenerator[TriggerEvent, None]:
        """Look alone: for a deferred task, and where Airflow shares no pollers."""
        # Closed here, and not when somebody collects garbage: a poller holds a connection.
        looking = looks(self.mq_conn_id, self.ring, self.poll_interval)
        async with aclosing(looking), aclosing(self.filter_shared_stream(looking)) as events:
            async for event in events:
                yield event

    def news(self, look: Look, last: Look | None) -> dict[str, Any] | None:
        """What there is to tell; nothing if there is nothing to do."""
        raise NotImplementedError

    def is_new(self, look: Look, last: Look | None) -> bool:
        """Whether something came since it was last told."""
        raise NotImplementedError


class QueueReadyTrigger(RingTrigger):
    """Fires when a block would find something to do: at once, then whenever something is sent.

    Parameters are those of `RingTrigger`. The event: `{"ring": …, "ready": [the first origins], "due": …}`.
    """

    def news(self, look: Look, last: Look | None) -> dict[str, Any] | None:
        """The first ready origins."""
        return {"ring": look.ring, "ready": list(look.ready), "due": look.due} if look.anything else None

    def is_new(self, look: Look, last: Look | None) -> bool:
        """Whether mail came."""
        return last is None or look.newest > last.newest or (look.due and not last.due)


class SetAsideTrigger(RingTrigger):
    """Fires when messages wait for a person: at once, then whenever another one is set aside.

    Parameters are those of `RingTrigger`. The event: `{"ring": …, "waiting": how many, a thousand at most}`.
    """

    def news(self, look: Look, last: Look | None) -> dict[str, Any] | None:
        """How many messages wait for a person."""
        return {"ring": look.ring, "waiting": look.waiting} if look.waiting else None

    def is_new(self, look: Look, last: Look | None) -> bool:
        """Whether another one was set aside."""
        return last is None or look.set_aside > last.set_aside


# -- the poller --


async def looks(mq_conn_id: str, ring: str | None, poll_interval: float) -> AsyncGenerator[Look, None]:
    """Look again and again, for ever. A store that cannot be reached is tried again, ever more patiently."""
    retry, poller = FIRST_RETRY, Poller(mq_conn_id, ring)
    try:
        while True:
            try:
                async with poller:
                    while True:
                        yield await poller.look()
                        retry = FIRST_RETRY
                        await poller.sleep(poll_interval)
            except (MessageQueueError, OSError) as error:
                cause = told_safely(error)
                poller.log(f"Could not look at connection {mq_conn_id!r}: {cause}. Trying again in {retry:.0f} s.")
            await asyncio.sleep(retry)
            retry = min(retry * 2, LAST_RETRY)
    finally:
        poller.close()


class Poller:
    """Looks at one ring. The store is only ever touched by a thread of its own, so the loop is never held up."""

    def __init__(self, mq_conn_id: str, ring: str | None) -> None:
        self.mq_conn_id, self.ring = mq_conn_id, ring
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="airflow-mq-trigger")
        self._queue: Any = None
        self._listening: Any = None
        self._stack = AsyncExitStack()
        self._look_again = False
        self._told_at = -metrics.WATCH_EVERY

    def log(self, what: str) -> None:
        """Tell the triggerer's log."""
        import logging

        logging.getLogger("airflow_mq.triggers").warning("%s", what)

    async def __aenter__(self) -> Poller:
        address, ring = await self._target()
        self._queue = await self._in_thread(lambda: _open(address, ring))
        if address.driver == "postgresql":
            self._listening = await self._listen(address)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._listening = None
        await self._stack.aclose()
        queue, self._queue = self._queue, None
        if queue is not None:
            await self._in_thread(queue.close)

    def close(self) -> None:
        """Let go of the thread."""
        self._thread.shutdown(wait=False)

    async def _target(self) -> tuple[Any, str]:
        from asgiref.sync import sync_to_async

        # Connections are asked of the triggerer's parent, by the thread that it keeps for that.
        target = await sync_to_async(MessageQueueHook(self.mq_conn_id)._target)()
        return target.address, self.ring or target.ring

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        def bounded() -> Any:
            with within(LOOK_SECONDS):
                return call()

        return await asyncio.get_running_loop().run_in_executor(self._thread, bounded)

    async def _listen(self, address: Any) -> Any:
        import psycopg

        # Without notifications it still looks every few seconds.
        with suppress(psycopg.Error, UnicodeError, asyncio.TimeoutError):
            return await asyncio.wait_for(self._subscribed(address), LOOK_SECONDS)
        return None

    async def _subscribed(self, address: Any) -> Any:
        import psycopg

        from airflow_mq.store.postgres import SEARCH_PATH, conninfo, wake_channel

        channel = wake_channel(address.schema, self._queue.ring_id)
        connection = await psycopg.AsyncConnection.connect(autocommit=True, **conninfo(address))
        await self._stack.enter_async_context(connection)
        await connection.execute(f"SET search_path = {SEARCH_PATH}".encode())
        await connection.execute(b'LISTEN "%b"' % channel.encode())
        return connection

    async def look(self) -> Look:
        """Look once."""
        look: Look = await self._in_thread(lambda: _look(self._queue))
        if time.monotonic() - self._told_at >= metrics.WATCH_EVERY:
            self._told_at = time.monotonic()
            await self._in_thread(lambda: metrics.watched(self._queue))
        return look

    async def sleep(self, seconds: float) -> None:
        """Sleep until somebody notifies, at most so long."""
        if self._look_again:
            self._look_again = False
            await asyncio.sleep(SECOND_LOOK)
        elif self._listening is None:
            await asyncio.sleep(seconds)
        else:
            self._look_again = await self._notified(seconds)

    async def _notified(self, seconds: float) -> bool:
        import psycopg

        try:
            async for _ in self._listening.notifies(timeout=seconds, stop_after=1):
                return True
        except psycopg.Error as error:
            raise ConnectionError("the connection that listens was lost") from error
        return False


def _open(address: Any, ring: str) -> Any:
    from airflow_mq import MessageQueue

    return MessageQueue(address, ring)


def _look(queue: Any) -> Look:
    pulse = queue.inspect.pulse(10)
    waiting = len(queue.set_aside.list(limit=1_000)) if pulse.set_aside else 0
    return Look(tuple(pulse.ready), pulse.due, pulse.newest, pulse.set_aside, waiting, queue.ring)
