"""A store that may go away and come back while somebody watches it."""

from __future__ import annotations

import os
from contextlib import suppress

from ...core.errors import MessageQueueError
from ...queue import MessageQueue
from ...queue.inspect.top import Look, Watcher
from ...store import open_store
from ...store.bounded import within

#: Seconds after which a look at a store that does not answer is given up.
LOOK_SECONDS = 30.0


class Source:
    """Where looks come from: opened anew where it was lost, or where another file lies in its place."""

    def __init__(self, queue: MessageQueue) -> None:
        self.address, self.ring = queue.store.address, queue.ring
        #: The queue, as long as its store answers.
        self.queue: MessageQueue | None = None
        self._take(queue)

    def look(self, limit: int, search: str, sort: str) -> Look:
        """See how the ring stands; raises what is wrong with the store, and tries anew the next time."""
        try:
            with within(LOOK_SECONDS):
                return self._look(limit, search, sort)
        except MessageQueueError:
            self.close()
            raise

    def _look(self, limit: int, search: str, sort: str) -> Look:
        if self.queue is not None and self._file != _identity(self.queue):
            self.close()
        if self.queue is None:
            self._take(MessageQueue(open_store(self.address), self.ring))
        return self._watcher.look(limit, search=search, sort=sort)

    def close(self) -> None:
        """Give back the connections."""
        queue, self.queue = self.queue, None
        if queue is not None:
            with suppress(Exception):
                queue.close()

    def _take(self, queue: MessageQueue) -> None:
        self.queue, self._watcher, self._file = queue, Watcher(queue.session), _identity(queue)


def _identity(queue: MessageQueue) -> tuple[int, int] | None:
    """Which file a store on a file is, if it is there."""
    path = queue.store.address.path
    if path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return (-1, -1)
    return found.st_dev, found.st_ino
