"""The store and the ring of a command line, the place for results, and the end of a command by a signal."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from datetime import datetime
from typing import TYPE_CHECKING, NoReturn

from ..engine.rules.config import DEFAULT_RING
from ..engine.rules.errors import AddressRefused, MessageQueueError
from .command import UsageError
from .output import Output

if TYPE_CHECKING:
    from ..engine.queue import MessageQueue
    from ..engine.store import StoreAddress

VARIABLE = "AIRFLOW_MQ_STORE"
#: The connection of `airflow mq` where neither a store nor a connection is named, and of a development Airflow.
DEFAULT_CONN_ID = "airflow_mq_default"


class Session:
    """One run of the program."""

    def __init__(self, args: Namespace) -> None:
        self.out = Output(getattr(args, "json", False), getattr(args, "quiet", False))
        self.store: str | None = getattr(args, "store", None)
        self.conn_id: str | None = getattr(args, "conn_id", None)
        self.ring: str | None = getattr(args, "ring", None)
        #: The connection to use where neither a store nor a connection is named.
        self.default_conn_id: str | None = getattr(args, "default_conn_id", None)
        #: The address of the store without its password, once it is known.
        self.where: str | None = None
        #: The options with which commands in texts name the store.
        self.options = ""

    def address(self) -> StoreAddress:
        """Return the address of the named store."""
        address = self._named()
        self.where = address.safe
        return address

    def _named(self) -> StoreAddress:
        from ..engine.store import parse

        for name in ("store", "conn_id", "ring"):
            if getattr(self, name) == "":
                raise UsageError(f"--{name.replace('_', '-')} is empty: name one, or leave it out")
        if self.store and self.conn_id:
            raise UsageError("specify --store or --conn-id, not both")
        if self.conn_id:
            return self._connected(self.conn_id)
        uri = self.store or os.environ.get(VARIABLE)
        if uri:
            return parse(uri)
        if self.default_conn_id:
            return self._connected(self.default_conn_id)
        raise UsageError(
            "no store: expected --store sqlite:///queue.db or --store postgresql://user:password@host/database, "
            f"the variable {VARIABLE}, or an Airflow connection by --conn-id"
        )

    def queue(self, ring: str | None = None) -> MessageQueue:
        """Open the named queue; a context manager."""
        if ring == "":
            raise UsageError("the name of the ring is empty: name one, or leave it out")
        from ..engine.queue import MessageQueue
        from ..engine.store import open_store

        store = open_store(self.address())
        store.options = self.options
        try:
            return MessageQueue(store, ring or self.ring or DEFAULT_RING)
        except BaseException:
            store.close()
            raise

    def any_ring(self) -> MessageQueue:
        """Open a queue on the ring that every store has."""
        return self.queue(DEFAULT_RING)

    def _connected(self, conn_id: str) -> StoreAddress:
        # As Airflow's own commands do, to find connections in its database.
        os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
        try:
            from airflow_mq import hooks
        except ImportError as error:
            raise UsageError(f"--conn-id needs Airflow: pip install 'airflow-mq[airflow]' ({error})") from None
        try:
            # Airflow logs to standard output by default, from its first use on.
            with redirect_stdout(sys.stderr):
                _keep_logs_off_stdout()
                address, ring = hooks.MessageQueueHook(conn_id).place()
        except MessageQueueError:
            raise
        except Exception as error:
            # The text of Airflow's error may hold the address of its database.
            raise AddressRefused(
                f"Airflow has no connection {conn_id!r}, or cannot look it up ({type(error).__name__})"
            ) from None
        self.ring, self.options = self.ring or ring, f"--conn-id {shlex.quote(conn_id)}"
        return address


def _keep_logs_off_stdout() -> None:
    """Redirect log handlers from standard output to standard error."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream in (sys.stdout, sys.__stdout__):
            handler.setStream(sys.stderr)


def store_now(queue: MessageQueue) -> datetime:
    """Return the time of the store's clock."""
    from ..engine.queue.values import moment

    with queue.store.loose() as unit:
        return moment(unit.now())


@contextmanager
def at_sigterm(act: Callable[[], object]) -> Iterator[None]:
    """Act at SIGTERM; restore the handlers of SIGTERM and SIGINT at the end. Only a main thread gets signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    signal.signal(signal.SIGTERM, lambda *_: act())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interrupt() -> NoReturn:
    """End a command as Ctrl-C does."""
    raise KeyboardInterrupt
