"""Counts of all queues, taken beside requests: a response contains what is counted so far."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from threading import Event, Lock, Thread

from airflow_mq.engine.queue import MessageQueue, Survey
from airflow_mq.engine.rules.errors import MessageQueueError

from .stores import target

log = logging.getLogger("airflow_mq.api")

#: A changed ring is counted again, using at most one part in `PART` of the time, and at most every `LEAST` seconds.
PART, LEAST = 10, 1.0
#: Unused counts are dropped after `IDLE` seconds; at most `MOST` are kept.
IDLE, MOST = 120.0, 8


@dataclass
class Count:
    """The latest finished count of a ring, and the running one."""

    survey: Survey = field(default_factory=Survey)
    state: tuple[int, int] | None = None
    taken_at: float = 0.0
    took: float = 0.0
    running: Survey | None = None
    done: Event = field(default_factory=Event)
    asked_at: float = 0.0

    @property
    def best(self) -> Survey:
        """Return the finished count, or what the running one has so far."""
        return self.survey if self.survey.done or self.running is None else self.running


_counts: dict[tuple[str, str], Count] = {}
_lock = Lock()


def counted(conn_id: str, queue: MessageQueue, wait: float) -> Survey:
    """Return a count of a ring: finished if it takes less than `wait` seconds, else what is counted so far."""
    state = queue.inspect.ring_version()
    with _lock:
        count = _known(conn_id, queue.ring)
        if count is None:
            return Survey()
        fresh = count.survey.done and (
            count.state == state or time.monotonic() - count.taken_at < max(LEAST, PART * count.took)
        )
        if not fresh and count.running is None:
            count.running, count.done = Survey(), Event()
            Thread(
                target=_take, args=(conn_id, queue.ring, count, state), name="airflow-mq-survey", daemon=True
            ).start()
        done = count.done
    if not fresh:
        done.wait(wait)
    return count.best


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
            queue.inspect.survey(running)
    except Exception as error:
        # The next request to the store reports the cause.
        log.warning("A ring of %s could not be counted (%s).", conn_id, type(error).__name__)
        running = None if isinstance(error, MessageQueueError) else running
    with _lock:
        if running is not None and running.done:
            count.survey, count.state = running, state
        count.taken_at = time.monotonic()
        count.took, count.running = count.taken_at - began, None
    count.done.set()
