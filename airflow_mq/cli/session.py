"""What a command works with: the store and the ring that were named, and a place for answers."""

from __future__ import annotations

import logging
import os
import sys
from argparse import Namespace
from contextlib import redirect_stdout
from datetime import datetime
from typing import TYPE_CHECKING

from ..core.errors import AddressRefused, MessageQueueError
from .command import UsageError
from .output import Output

if TYPE_CHECKING:
    from ..queue import MessageQueue
    from ..store import StoreAddress

DEFAULT_RING = "default"
VARIABLE = "AIRFLOW_MQ_STORE"


class Session:
    """One call of the command line."""

    def __init__(self, args: Namespace) -> None:
        self.out = Output(getattr(args, "json", False), getattr(args, "quiet", False))
        self.store: str | None = getattr(args, "store", None)
        self.conn_id: str | None = getattr(args, "conn_id", None)
        self.ring: str | None = getattr(args, "ring", None)
        #: What is used where neither a store nor a connection was named.
        self.default_conn_id: str | None = getattr(args, "default_conn_id", None)
        #: The store, once it is known, as it may be shown.
        self.where: str | None = None

    def address(self) -> StoreAddress:
        """The store that was named."""
        address = self._named()
        self.where = address.safe
        return address

    def _named(self) -> StoreAddress:
        from ..store import parse

        if self.store and self.conn_id:
            raise UsageError("say --store or --conn-id, not both")
        if self.conn_id:
            return self._connected(self.conn_id)
        uri = self.store or os.environ.get(VARIABLE)
        if uri:
            return parse(uri)
        if self.default_conn_id:
            return self._connected(self.default_conn_id)
        raise UsageError(
            f"which store? say --store sqlite:///queue.db or --store postgresql://user:password@host/database, "
            f"set {VARIABLE}, or name a connection of Airflow by --conn-id"
        )

    def queue(self, ring: str | None = None) -> MessageQueue:
        """The queue that was named; a context manager."""
        from ..queue import MessageQueue
        from ..store import open_store

        store = open_store(self.address())
        try:
            return MessageQueue(store, ring or self.ring or DEFAULT_RING)
        except BaseException:
            store.close()
            raise

    def any_ring(self) -> MessageQueue:
        """A queue on the ring that every store has, to reach the store by."""
        return self.queue(DEFAULT_RING)

    def _connected(self, conn_id: str) -> StoreAddress:
        # Airflow's own commands say the same, so that connections in its database are found.
        os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
        try:
            from airflow_mq import hooks
        except ImportError as error:
            raise UsageError(f"--conn-id needs Airflow: pip install 'airflow-mq[airflow]' ({error})") from None
        try:
            # Airflow logs to where answers go, and sets that up whenever it is first needed.
            with redirect_stdout(sys.stderr):
                _keep_logs_off_stdout()
                target = hooks.MessageQueueHook(conn_id)._target()
        except MessageQueueError:
            raise
        except Exception as error:
            # What Airflow says may hold the address of its own database.
            raise AddressRefused(
                f"Airflow has no connection {conn_id!r}, or cannot look it up ({type(error).__name__})"
            ) from None
        self.ring = self.ring or target.ring
        return target.address


def _keep_logs_off_stdout() -> None:
    """Let what has logged to stdout so far log to stderr."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream in (sys.stdout, sys.__stdout__):
            handler.setStream(sys.stderr)


def store_now(queue: MessageQueue) -> datetime:
    """The time by the store's clock, by which everything is judged."""
    from ..queue.values import moment

    with queue.store.loose() as unit:
        return moment(unit.now())
