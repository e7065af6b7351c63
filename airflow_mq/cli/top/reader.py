"""Reading of a ring in its own thread, so that keys work while the store is slow or away."""

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

#: The pause after a reading, at least, as a multiple of its duration.
_REST = 2.0
#: The number of blocks that an explanation looks ahead; the user waits for it.
_AHEAD = 20

#: A change of the view, applied in the thread that draws.
Update = Callable[[View], object]


class Reader:
    """Periodic reading, and actions that the user asked for; results are queued as updates of the view."""

    def __init__(self, queue: MessageQueue, interval: float, wake: Callable[[], None]) -> None:
        self.interval = interval
        #: Updates that the thread of the view has yet to apply.
        self.updates: SimpleQueue[Update] = SimpleQueue()
        self._wake = wake
        self._source = Source(queue)
        self._wanted: tuple[int, str, str] = (50, "", "turn")
        self._again, self._stopped = threading.Event(), False
        self._away_since: datetime | None = None
        self._thread = threading.Thread(target=self._run, name="airflow-mq-top", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and close the store."""
        self._stopped = True
        self._again.set()
        self._thread.join(2)
        if not self._thread.is_alive():
            self._source.close()

    def want(self, view: View, at_once: bool = False) -> None:
        """Set the size, search and order of the next readings."""
        self._wanted = (view.limit, view.search, view.sort)
        if at_once:
            self._again.set()

    def grant(self, wish: Wish) -> None:
        """Perform an action in a thread of its own."""
        threading.Thread(target=self._grant, args=(wish,), name=f"airflow-mq-{wish.what}", daemon=True).start()

    # In the thread.

    def _run(self) -> None:
        while not self._stopped:
            began = datetime.now(timezone.utc)
            self._put(self._look())
            took = (datetime.now(timezone.utc) - began).total_seconds()
            self._again.wait(max(self.interval, _REST * took))
            self._again.clear()

    def _look(self) -> Update:
        try:
            look = self._source.look(*self._wanted)
        except MessageQueueError as error:
            return self._lost(error)
        self._away_since = None
        return lambda view: view.see(look)

    def _lost(self, error: Exception) -> Update:
        self._away_since = self._away_since or datetime.now(timezone.utc)
        text = shown(without_passwords(str(error)))
        trouble = f"the store does not answer since {self._away_since:%H:%M:%S} UTC, trying again: {text}"
        return lambda view: setattr(view, "trouble", trouble)

    def _grant(self, wish: Wish) -> None:
        queue = self._source.queue
        try:
            if queue is None:
                raise MessageQueueError("the store does not answer")
            update = _done(queue, wish)
        except MessageQueueError as error:
            text = f"{wish.what} {shown(wish.origin)}: {without_passwords(str(error))}"
            update = _remark(text)
        self._put(update)
        self._again.set()

    def _put(self, update: Update) -> None:
        self.updates.put(update)
        self._wake()


def _done(queue: MessageQueue, wish: Wish) -> Update:
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


def _remark(text: str) -> Update:
    return lambda view: setattr(view, "remark", text)
