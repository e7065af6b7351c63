"""Worker: service a ring whenever it has messages, until it is stopped."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing

from ..rules.errors import Busy, CommitInDoubt, MessageQueueError, StoreBusy, StoreUnreachable, TokenRefused
from ..rules.weight import ZERO
from .holding import Lease
from .inspect.inspect import Inspect
from .service import Service, service_lease
from .session import RingSession
from .values import Serviced

log = logging.getLogger("airflow_mq.service")

#: Seconds between two reads: at first, and at most.
FIRST_PAUSE, LONGEST_PAUSE = 0.001, 1.0
#: Seconds of short pauses after the last messages or notification. A process that sends without a notification has
#: notified less than `WAKE_EVERY` seconds ago, so this lasts a little longer.
ACTIVE = 0.3


class Worker:
    """A loop of service calls that sleeps while nothing waits.

    :param service: makes a call that services the ring with this lease
    :param stop: ends the loop after the call under way
    """

    def __init__(
        self, session: RingSession, inspect: Inspect, service: Callable[[Lease], Service], stop: threading.Event
    ) -> None:
        self.session, self.inspect, self.service, self.stop = session, inspect, service, stop
        self.lease = service_lease(session, keeps=True)
        self.total = Serviced(weight=ZERO)
        self._pause, self._active_at = FIRST_PAUSE, time.monotonic()

    def run(self) -> Serviced:
        """Service the ring until the stop; return the sums of all calls."""
        sleeping = closing(self.session.store.sleeper(self.session.ring_id))
        with sleeping as sleeper, self.lease:
            # Listen first: then no message falls between the first read and the first sleep.
            sleeper.sleep(0)
            while not self.stop.is_set():
                try:
                    if self._is_productive():
                        self._active_at = time.monotonic()
                        continue
                except (Busy, StoreBusy, TokenRefused) as error:
                    self._try_later(error)
                except (CommitInDoubt, StoreUnreachable) as error:
                    self._try_later(error)
                    # Another process may have taken the ring over meanwhile.
                    self.lease.release()
                    self.stop.wait(LONGEST_PAUSE)
                    continue
                if sleeper.sleep(self._pause):
                    self._active_at = time.monotonic()
                is_active = time.monotonic() - self._active_at < ACTIVE
                self._pause = FIRST_PAUSE if is_active else min(self._pause * 2, LONGEST_PAUSE)
                if not is_active:
                    self.lease.release()
        return self.total

    def _is_productive(self) -> bool:
        """Service the ring if there may be messages; return whether anything came of it."""
        if not self._has_messages():
            return False
        done = self.service(self.lease).run()
        self.total = self.total.plus(done)
        return done.moved > 0

    def _try_later(self, error: MessageQueueError) -> None:
        log.warning("could not service ring %r: %s; trying again", self.session.ring, error)
        self._pause = LONGEST_PAUSE

    def _has_messages(self) -> bool:
        """Read the newest inbox row and the next delayed one; after a long pause, the ready queues too."""
        if self._pause >= LONGEST_PAUSE:
            pulse = self.inspect.pulse()
            return bool(pulse.ready) or pulse.due
        return self.lease.has_messages()
