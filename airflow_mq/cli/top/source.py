"""Store that may go away and come back while it is watched."""

from __future__ import annotations

import os
from contextlib import suppress

from ...core.errors import MessageQueueError
from ...queue import MessageQueue
from ...queue.inspect.top import Look, Watcher
from ...store import open_store
from ...store.bounded import within

#: Time-out of one reading, in seconds.
LOOK_SECONDS = 30.0


class Source:
    """Source of snapshots: reopened after an error, or if another file has taken the place of the store."""

    def __init__(self, queue: MessageQueue) -> None:
        self.address, self.ring = queue.store.address, queue.ring
        #: The queue, while its store answers.
        self.queue: MessageQueue | None = None
        self._take(queue)

    def look(self, limit: int, search: str, sort: str) -> Look:
        """Return a snapshot of the ring; raise an error of the store, and reopen it at the next call."""
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
        """Close the connections."""
        queue, self.queue = self.queue, None
        if queue is not None:
            with suppress(Exception):
                queue.close()

    def _take(self, queue: MessageQueue) -> None:
        self.queue, self._watcher, self._file = queue, Watcher(queue.session), _identity(queue)


def _identity(queue: MessageQueue) -> tuple[int, int] | None:
    """Return the device and inode of a SQLite store, or (-1, -1) if the file is gone."""
    path = queue.store.address.path
    if path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return (-1, -1)
    return found.st_dev, found.st_ino
