"""Background thread that repeats an action until it is stopped, and the one that renews a lease."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from typing_extensions import Self

log = logging.getLogger("airflow_mq.ticker")

#: Renewals within the time of a lease of a ring, a service's included, or of a block: one of them may come late.
RENEWALS = 3


class Ticker:
    """A daemon thread that repeats an action; as a context manager it runs while the block does.

    :param action: called after each wait; returns the seconds until the next call, or None to end the thread
    :param first: seconds until the first call
    :param name: name of the thread
    :param patience: seconds that `stop` waits for a call in progress; without it, until the call returns
    """

    def __init__(
        self, action: Callable[[], float | None], first: float, name: str, patience: float | None = None
    ) -> None:
        self._action, self._wait, self._patience = action, first, patience
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; safe before `start`, twice, and from within the action."""
        self._stopped.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(self._patience)

    def _run(self) -> None:
        wait: float | None = self._wait
        while wait is not None and not self._stopped.wait(wait):
            wait = self._action()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()


class Renewal(Ticker):
    """A thread that renews a lease several times within its time, and soon again after an error.

    :param renew: renews the lease; returns False if it has ended
    :param lease: the seconds of the lease
    :param what: what is leased
    """

    def __init__(self, renew: Callable[[], bool], lease: float, what: str, patience: float | None = None) -> None:
        self._renew, self._what, self._between = renew, what, lease / RENEWALS
        super().__init__(self._try, self._between, "airflow-mq-lease", patience)

    def _try(self) -> float | None:
        try:
            return self._between if self._renew() else None
        except Exception as error:
            log.warning("the lease of %s could not be renewed (%s); trying again", self._what, type(error).__name__)
            return min(1.0, self._between)
