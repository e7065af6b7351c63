"""Hook of Airflow connections of type `airflow_mq`: the queue, its database, and a check of the connection."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, TimeoutError
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from shlex import quote
from threading import Thread
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from airflow_mq import failures, settings
from airflow_mq.connections import target_of
from airflow_mq.engine.rules.errors import (
    AddressRefused,
    InvalidInput,
    MessageQueueError,
    NetworkFileSystem,
    StoreBusy,
    StoreError,
    StoreUnreachable,
)
from airflow_mq.engine.store.address import StoreAddress, refuse_network_file_system
from airflow_mq.engine.store.pipelined import within
from airflow_mq.engine.store.postgres_errors import is_own_text
from airflow_mq.provider import BEHAVIOUR, CONNECTION_TYPE, FIELDS, HOOK_NAME
from airflow_mq.words import many

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from sqlalchemy import Engine

    from airflow_mq import MessageQueue
    from airflow_mq.engine.queue.sending.commands import Commands

TEST_SECONDS = 5.0
CONNECT_SECONDS = 4
MOST_QUEUES = 1_000
NO_FILE_STORE = (
    "no store can be read here; make one with `airflow-mq store upgrade`, or look at the path and at who may read it"
)


class MessageQueueHook(BaseHook):
    """Open the message queue that a connection names.

    :param mq_conn_id: id of a connection of type `airflow_mq`
    :param ring: name of the ring; the connection's if left out, or `default`
    """

    conn_name_attr = "mq_conn_id"
    default_conn_name = "airflow_mq_default"
    conn_type = CONNECTION_TYPE
    hook_name = HOOK_NAME

    def __init__(self, mq_conn_id: str = default_conn_name, ring: str | None = None, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.mq_conn_id = mq_conn_id
        self.ring = ring

    def address(self) -> StoreAddress:
        """Return the checked address of the store, password included."""
        return self.place()[0]

    def place(self, ring: str | None = None) -> tuple[StoreAddress, str]:
        """Return the store and the ring that `queue` would open, without opening them."""
        target = target_of(self.get_connection(self.mq_conn_id))
        # A template may render to nothing, and a native one to 0, which is no ring.
        named = (name for name in (ring, self.ring) if name not in (None, ""))
        return target.address, next(named, target.ring)

    def queue(self, ring: str | None = None) -> MessageQueue:
        """Open the queue, a context manager; the caller closes it."""
        from airflow_mq.observe.hooked import HookedQueue, carries_traces

        address, name = self.place(ring)
        queue = HookedQueue(address.uri, name, traces=carries_traces())
        queue.hook = self
        queue.store.filesystem_of, queue.store.options = object_storage, f"--conn-id {quote(self.mq_conn_id)}"
        if settings.flag("log_error_texts"):
            # Drivers of Spark jobs inherit the variable.
            os.environ[failures.VARIABLE] = "1"
        return queue

    @contextmanager
    def commands(self, connection: Any, ring: str | None = None) -> Iterator[Commands]:
        """Open commands within the transaction of a connection to the queue's database, such as another hook's.

        The connection is one of psycopg 3, `sqlite3` or SQLAlchemy; the caller commits and closes it. ::

            with MessageQueueHook().commands(connection) as commands:
                connection.execute("INSERT INTO orders ...")
                commands.push("orders", b"order 17").execute()
        """
        with self.queue(ring) as queue:
            yield queue.commands(connection)

    def get_sqlalchemy_engine(self, engine_kwargs: Mapping[str, object] | None = None) -> Engine:
        """Return an SQLAlchemy engine for the queue's database: one transaction takes rows and commands.

        The engine reads the address from the connection, as the queue does, and does not show it.
        """
        from sqlalchemy import create_engine

        from airflow_mq.engine.store.postgres import plain_connection

        address = self.address()
        is_file = address.path is not None
        url, connect = ("sqlite:///a file", _open_file) if is_file else ("postgresql+psycopg://", plain_connection)
        return create_engine(url, creator=partial(connect, address), **(engine_kwargs or {}))

    def get_conn(self) -> MessageQueue:
        """Open the queue; every hook has this name for it."""
        return self.queue()

    def test_connection(self) -> tuple[bool, str]:
        """Read the store, within seconds and without changing it, and return what it holds.

        Errors are described in our own words: a driver's may quote the whole address.
        """
        where = "this connection"
        try:
            address, ring = self.place()
            where = address.safe
            return _within(TEST_SECONDS, lambda: _look(address, ring))
        except Exception as error:
            return False, f"{where}: {told_safely(error)}"

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, object]:
        """Return how the form's own fields are shown; only Airflow before 3.2 asks."""
        return {name.replace("-", "_"): value for name, value in BEHAVIOUR.items()}

    @classmethod
    def get_connection_form_widgets(cls) -> dict[str, object]:
        """Return the form's further fields; only Airflow before 3.2 asks."""
        forms: Any = import_module("wtforms")
        # Airflow may replace wtforms; Python 3.10 finds the validators of a replacement only this way.
        rules: Any = forms.validators if sys.version_info < (3, 11) else import_module("wtforms.validators")

        def widget(label: object, description: object, schema: Any) -> object:
            kind = forms.IntegerField if "integer" in schema["type"] else forms.StringField
            checks = [rules.Optional(), *([rules.any_of(schema["enum"])] if "enum" in schema else [])]
            return kind(label, description=description, validators=checks, default=schema.get("default"))

        return {name: widget(**field) for name, field in FIELDS.items()}


def object_storage(address: str) -> tuple[Any, str]:
    """Return the file system of external payloads, by Airflow's object storage: `s3://connection@bucket/folder`."""
    from airflow.sdk import ObjectStoragePath

    from airflow_mq.engine.store.blob_files import by_fsspec

    try:
        path = ObjectStoragePath(address)
        return path.fs, path.path
    except ValueError:
        # Airflow has no provider for this scheme.
        return by_fsspec(address)


def _open_file(address: StoreAddress) -> sqlite3.Connection:
    """Open a connection to a store that exists; do not create one."""
    from airflow_mq.engine.store.files import refuse_foreign_log

    refuse_foreign_log(address.file)
    return sqlite3.connect(address.file_uri("rw"), uri=True, timeout=60.0, check_same_thread=False)


# -- Kafka, by its own hook --


def kafka_consumer(kafka_config_id: str, topics: Sequence[str], group: str | None = None) -> Consumer:
    """Return a consumer of a connection of Airflow's Kafka provider, with the settings that exactly-once needs.

    No broker is contacted. The provider's hook resolves callbacks and tokens of clouds.
    """
    from airflow_mq.adapters.kafka import consumer

    try:
        base: Any = import_module("airflow.providers.apache.kafka.hooks.consume").KafkaConsumerHook
    except ImportError as error:
        raise InvalidInput(
            f"Kafka needs Airflow's provider for it: pip install 'airflow-mq[kafka]' ({error})"
        ) from None

    class Hook(base):
        """The provider's hook, with a consumer whose offsets the queue commits."""

        def _get_client(self, config: dict[str, Any]) -> Consumer:
            return consumer({**config, **({"group.id": group} if group else {})})

    return Hook(topics=list(topics), kafka_config_id=kafka_config_id).get_conn


# -- check of the store --


def _look(address: StoreAddress, ring: str) -> tuple[bool, str]:
    """Return whether the store can be used, and what it holds, without changing it."""
    from airflow_mq.engine.store import schema_status

    if address.path is not None:
        refuse_network_file_system(address.path)
        if not address.path.is_file():
            return False, f"{address.safe}: {NO_FILE_STORE}"
    hasty = replace(address, connect_timeout=min(address.connect_timeout, CONNECT_SECONDS))
    try:
        status = schema_status(hasty, timeout=CONNECT_SECONDS)
    except StoreError as error:
        # A person who may only edit connections must not learn whether a file is missing or unreadable.
        if address.path is None or isinstance(error, (AddressRefused, NetworkFileSystem, StoreBusy)):
            raise
        return False, f"{address.safe}: {NO_FILE_STORE}"
    try:
        status.require()
    except StoreError as error:
        is_missing = address.path is not None and status.state == "missing"
        return False, f"{address.safe}: {NO_FILE_STORE if is_missing else error}"
    return True, f"{address.safe}: schema {status.version}; ring {ring!r} holds {_measured(hasty, ring)}"


def _measured(address: StoreAddress, ring: str) -> str:
    """Return what the first queues of a ring hold as text, from a bounded reading."""
    from airflow_mq import MessageQueue

    with MessageQueue(address.uri, ring, busy_timeout=CONNECT_SECONDS) as queue:
        found = queue.inspect.queues(limit=MOST_QUEUES)
    count, size = sum(state.messages for state in found), sum(state.size for state in found)
    least = "at least " if len(found) >= MOST_QUEUES or any(state.more for state in found) else ""
    return f"{least}{many(count, 'message')} of {size:,} bytes in {many(len(found), 'queue')}"


def told_safely(error: Exception) -> str:
    """Return a description of an error that quotes no text of a driver's."""
    if isinstance(error, (AddressRefused, NetworkFileSystem)):
        return str(error)
    if isinstance(error, MessageQueueError):
        if is_own_text(str(error)):
            return str(error)
        return (type(error).__doc__ or type(error).__name__).partition("\n")[0]
    return f"it could not be looked at ({type(error).__name__})"


def _within(seconds: float, look: Callable[[], tuple[bool, str]]) -> tuple[bool, str]:
    """Return the result of `look` within `seconds`: name servers and disks have no timeout of their own."""
    found: Future[tuple[bool, str]] = Future()

    def work() -> None:
        try:
            with within(seconds):
                found.set_result(look())
        except Exception as error:
            found.set_exception(error)

    Thread(target=work, name="airflow-mq-test-connection", daemon=True).start()
    try:
        return found.result(seconds)
    except TimeoutError:
        raise StoreUnreachable() from None
