"""Surveys that run beside requests, so that the first answer need not wait for the last queue to be counted."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from threading import Event, Lock, Thread

from airflow_mq.core.errors import MessageQueueError
from airflow_mq.queue import MessageQueue, Survey

from .stores import target

log = logging.getLogger("airflow_mq.api")

#: A survey is taken anew when anything changed, but for no more than this part of the time, and of a second.
PART, LEAST = 10, 1.0
#: Surveys that nobody asked for in so many seconds are forgotten; and so many are kept at most.
IDLE, MOST = 120.0, 8


@dataclass
class Count:
    """The latest survey of a ring that is done, and the one that is being taken."""

    survey: Survey = field(default_factory=Survey)
    state: tuple[int, int] | None = None
    taken_at: float = 0.0
    took: float = 0.0
    running: Survey | None = None
    done: Event = field(default_factory=Event)
    asked_at: float = 0.0

    @property
    def best(self) -> Survey:
        """What is known by now."""
        return self.survey if self.survey.done or self.running is None else self.running


_counts: dict[tuple[str, str], Count] = {}
_lock = Lock()


def counted(conn_id: str, queue: MessageQueue, wait: float) -> Survey:
    """A survey of a ring: of this moment where that is quickly had, else how far it has come."""
    state = queue.inspect.ring_version()
    with _lock:
        count = _known(conn_id, queue.ring)
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


def _known(conn_id: str, ring: str) -> Count:
    now = time.monotonic()
    for key, old in list(_counts.items()):
        if old.running is None and now - old.asked_at > IDLE:
            del _counts[key]
    while len(_counts) >= MOST and (conn_id, ring) not in _counts:
        del _counts[min(_counts, key=lambda key: _counts[key].asked_at)]
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
        # Whoever asks next is told by the store itself what is wrong.
        log.warning("A ring of %s could not be counted (%s).", conn_id, type(error).__name__)
        running = None if isinstance(error, MessageQueueError) else running
    with _lock:
        if running is not None and running.done:
            count.survey, count.state = running, state
        count.taken_at = time.monotonic()
        count.took, count.running = count.taken_at - began, None
    count.done.set()
