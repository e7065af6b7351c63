"""Looks at a ring in a thread of its own, so that keys are answered while a store is slow, or gone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timezone
from queue import SimpleQueue

from ...core.errors import MessageQueueError
from ...queue import MessageQueue
from ..output import shown, without_passwords
from .source import Source
from .view import View, Wish

#: A look rests for at least so many times what it took.
_REST = 2.0
#: How many blocks an explanation looks ahead: somebody waits for it.
_AHEAD = 20

#: What is told to whoever draws.
Told = Callable[[View], object]


class Reader:
    """Looks now and then, and does what was wished for; hands over what came of it."""

    def __init__(self, queue: MessageQueue, interval: float, wake: Callable[[], None]) -> None:
        self.interval = interval
        #: What happened since the last time; each is done to the view by whoever owns it.
        self.news: SimpleQueue[Told] = SimpleQueue()
        self._wake = wake
        self._source = Source(queue)
        self._wanted: tuple[int, str, str] = (50, "", "turn")
        self._again, self._stopped = threading.Event(), False
        self._away_since: datetime | None = None
        self._thread = threading.Thread(target=self._run, name="airflow-mq-top", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stopped = True
        self._again.set()
        self._thread.join(2)
        if not self._thread.is_alive():
            self._source.close()

    def want(self, view: View, at_once: bool = False) -> None:
        """What the next looks are to show."""
        self._wanted = (view.limit, view.search, view.sort)
        if at_once:
            self._again.set()

    def grant(self, wish: Wish) -> None:
        """Do what was wished for, beside the looks."""
        threading.Thread(target=self._grant, args=(wish,), name=f"airflow-mq-{wish.what}", daemon=True).start()

    # In the thread.

    def _run(self) -> None:
        while not self._stopped:
            began = datetime.now(timezone.utc)
            self._tell(self._look())
            took = (datetime.now(timezone.utc) - began).total_seconds()
            self._again.wait(max(self.interval, _REST * took))
            self._again.clear()

    def _look(self) -> Told:
        try:
            look = self._source.look(*self._wanted)
        except MessageQueueError as error:
            return self._lost(error)
        self._away_since = None
        return lambda view: view.see(look)

    def _lost(self, error: Exception) -> Told:
        self._away_since = self._away_since or datetime.now(timezone.utc)
        text = shown(without_passwords(str(error)))
        trouble = f"the store does not answer since {self._away_since:%H:%M:%S} UTC, trying again: {text}"
        return lambda view: setattr(view, "trouble", trouble)

    def _grant(self, wish: Wish) -> None:
        queue = self._source.queue
        try:
            if queue is None:
                raise MessageQueueError("the store does not answer")
            told = _done(queue, wish)
        except MessageQueueError as error:
            text = f"{wish.what} {shown(wish.origin)}: {without_passwords(str(error))}"
            told = _remark(text)
        self._tell(told)
        self._again.set()

    def _tell(self, told: Told) -> None:
        self.news.put(told)
        self._wake()


def _done(queue: MessageQueue, wish: Wish) -> Told:
    if wish.what == "explain":
        found = queue.inspect.explain(wish.origin, priority=wish.priority, ahead=_AHEAD)
        lines = [shown(found.sentence), *(f"would help: {shown(one)}" for one in found.remedies)]
        return lambda view: view.answer(lines)
    if wish.what == "pause":
        queue.admin.pause(wish.origin, wish.reason)
        return _remark(f"{shown(wish.origin)} is paused; p resumes it")
    was = queue.admin.resume(wish.origin)
    return _remark(
        f"{shown(wish.origin)} {'goes on' if was else 'was not paused by itself: resume the group above it'}"
    )


def _remark(text: str) -> Told:
    return lambda view: setattr(view, "remark", text)
