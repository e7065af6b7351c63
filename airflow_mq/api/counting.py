"""Counts of all queues, taken beside requests: a response contains what is counted so far."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from itertools import islice
from threading import Event, Lock, Thread

from airflow_mq.engine.queue import MessageQueue
from airflow_mq.engine.store.books import QueueDepth

from .stores import target

log = logging.getLogger("airflow_mq.api")

#: A changed ring is counted again, using at most one part in `PART` of the time, and at most every `LEAST` seconds.
PART, LEAST = 10, 1.0
#: Unused counts are dropped after `IDLE` seconds; at most `MOST` are kept.
IDLE, MOST = 120.0, 8
#: Queues that a count keeps at most.
MOST_QUEUES = 250_000


@dataclass
class Count:
    """Depths of the queues of a ring by the names of their books, as far as they are counted."""

    #: The version of the ring when the count began.
    state: tuple[int, int]
    depths: dict[str, QueueDepth] = field(default_factory=dict)
    #: Whether all queues are counted; when that was, in how many seconds, and the last request for it.
    done: bool = False
    taken_at: float = 0.0
    took: float = 0.0
    asked_at: float = 0.0
    ended: Event = field(default_factory=Event)

    @property
    def exact(self) -> bool:
        """Whether no queue is missing."""
        return self.done and len(self.depths) < MOST_QUEUES


#: A ring, by its connection, the place of its store, which a changed connection replaces, and its name.
Key = tuple[str, str, str]
#: The latest finished count of each ring, and the running ones.
_counts: dict[Key, Count] = {}
_running: dict[Key, Count] = {}
_lock = Lock()


def key_of(conn_id: str, queue: MessageQueue) -> Key:
    """Return the key by which values of a ring are cached."""
    return conn_id, queue.store.address.place, queue.ring


def counted(conn_id: str, queue: MessageQueue, wait: float) -> Count:
    """Return a count of a ring: finished if it takes less than `wait` seconds, else what is counted so far."""
    key, state, now = key_of(conn_id, queue), queue.inspect.ring_version(), time.monotonic()
    with _lock:
        known, running = _counts.get(key), _running.get(key)
        if known is not None:
            known.asked_at = now
        _forget(now)
        if known is not None and (known.state == state or now - known.taken_at < max(LEAST, PART * known.took)):
            return known
        if running is None:
            if len(_running) >= MOST:
                return known or Count(state)
            running = _running[key] = Count(state, asked_at=now)
            Thread(target=_take, args=(key, running), name="airflow-mq-count", daemon=True).start()
    running.ended.wait(wait)
    with _lock:
        return _counts.get(key, running)


def _forget(now: float) -> None:
    """Drop counts without recent requests, and the least recent ones of too many."""
    recent = sorted(_counts, key=lambda key: -_counts[key].asked_at)
    for key in recent[MOST - 1 :] + [key for key in recent[: MOST - 1] if now - _counts[key].asked_at > IDLE]:
        del _counts[key]


def _take(key: Key, count: Count) -> None:
    conn_id, _, ring = key
    began = time.monotonic()
    try:
        with MessageQueue(target(conn_id).address, ring) as queue:
            count.depths.update((depth.name, depth) for depth in islice(queue.inspect.depths(), MOST_QUEUES))
            count.done = key_of(conn_id, queue) == key
    except Exception as error:
        # The next request to the store reports the cause.
        log.warning("A ring of %s could not be counted (%s).", conn_id, type(error).__name__)
    count.taken_at = time.monotonic()
    count.took = count.taken_at - began
    with _lock:
        del _running[key]
        if count.done:
            _counts[key] = count
    count.ended.set()
