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
class Counted:
    """Depths of the queues of a ring, by the names of their books; `done` once all queues are counted."""

    depths: dict[str, QueueDepth] = field(default_factory=dict)
    done: bool = False

    @property
    def exact(self) -> bool:
        """Whether no queue is missing."""
        return self.done and len(self.depths) < MOST_QUEUES


@dataclass
class Count:
    """The latest finished count of a ring, and the running one."""

    finished: Counted = field(default_factory=Counted)
    state: tuple[int, int] | None = None
    taken_at: float = 0.0
    took: float = 0.0
    running: Counted | None = None
    done: Event = field(default_factory=Event)
    asked_at: float = 0.0


_counts: dict[tuple[str, str], Count] = {}
_lock = Lock()


def counted(conn_id: str, queue: MessageQueue, wait: float) -> Counted:
    """Return a count of a ring: finished if it takes less than `wait` seconds, else what is counted so far."""
    state = queue.inspect.ring_version()
    with _lock:
        count = _known(conn_id, queue.ring)
        if count is None:
            return Counted()
        fresh = count.finished.done and (
            count.state == state or time.monotonic() - count.taken_at < max(LEAST, PART * count.took)
        )
        if not fresh and count.running is None:
            count.running, count.done = Counted(), Event()
            Thread(target=_take, args=(conn_id, queue.ring, count, state), name="airflow-mq-count", daemon=True).start()
        done = count.done
    if not fresh:
        done.wait(wait)
    return count.finished if count.finished.done or count.running is None else count.running


def _known(conn_id: str, ring: str) -> Count | None:
    """Return the count of a ring; None while as many others run as are kept."""
    now = time.monotonic()
    for key, old in list(_counts.items()):
        if old.running is None and now - old.asked_at > IDLE:
            del _counts[key]
    while len(_counts) >= MOST and (conn_id, ring) not in _counts:
        idle = [key for key, old in _counts.items() if old.running is None]
        if not idle:
            return None
        del _counts[min(idle, key=lambda key: _counts[key].asked_at)]
    count = _counts.setdefault((conn_id, ring), Count())
    count.asked_at = now
    return count


def _take(conn_id: str, ring: str, count: Count, state: tuple[int, int]) -> None:
    began, running = time.monotonic(), count.running
    assert running is not None
    try:
        with MessageQueue(target(conn_id).address, ring) as queue:
            running.depths.update((depth.name, depth) for depth in islice(queue.inspect.depths(), MOST_QUEUES))
            running.done = True
    except Exception as error:
        # The next request to the store reports the cause.
        log.warning("A ring of %s could not be counted (%s).", conn_id, type(error).__name__)
    with _lock:
        if running.done:
            count.finished, count.state = running, state
        count.taken_at = time.monotonic()
        count.took, count.running = count.taken_at - began, None
    count.done.set()
