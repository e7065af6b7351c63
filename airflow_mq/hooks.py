"""The way from an Airflow connection to the queue.

A connection of type `airflow_mq` names a store by its fields, and nothing but a store: the form is used inside the API
server, where whoever may edit a connection must be able neither to run code nor to learn a secret. So the drivers and
the keys of `extra` are closed sets, and what they name is checked as every address is (`airflow_mq.store.address`).

    PostgreSQL   host, port, login, password, schema (the database); extra: db_schema, sslmode, and time-outs
    SQLite       extra: path
    both         extra: driver (told by host or path if left out), ring; origins and priority: who may send
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from airflow_mq import failures, settings, tracing
from airflow_mq.core.errors import (
    AddressRefused,
    InvalidInput,
    MessageQueueError,
    NetworkFileSystem,
    StoreBusy,
    StoreError,
    StoreUnreachable,
)
from airflow_mq.provider import CONNECTION_TYPE, DRIVERS, HOOK_NAME, get_provider_info
from airflow_mq.store.address import (
    DEFAULT_PORT,
    DEFAULT_SCHEMA,
    NUMBERS,
    PERMITTED,
    StoreAddress,
    refuse_network_file_system,
    sqlite_address,
)
from airflow_mq.store.bounded import within
from airflow_mq.store.postgres_errors import is_own_text
from airflow_mq.words import many

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from airflow_mq import MessageQueue
    from airflow_mq.queue import Commands

EXTRA_KEYS = ("driver", "path", "db_schema", "sslmode", *NUMBERS, "ring", "origins", "priority")
DEFAULT_RING = "default"
TEST_SECONDS = 5.0
CONNECT_SECONDS = 4
BUSY_SECONDS = 60.0
MOST_QUEUES = 1_000
NO_FILE_STORE = (
    "no store can be read here; make one with `airflow-mq store upgrade`, or look at the path and at who may read it"
)


class MessageQueueHook(BaseHook):
    """Open the message queue that a connection names.

    :param mq_conn_id: id of a connection of type `airflow_mq`
    :param ring: name of the ring; without it the connection's, without that `default`
    """

    conn_name_attr = "mq_conn_id"
    default_conn_name = "airflow_mq_default"
    conn_type = CONNECTION_TYPE
    hook_name = HOOK_NAME

    def __init__(self, mq_conn_id: str = default_conn_name, ring: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.mq_conn_id = mq_conn_id
        self.ring = ring

    def address(self) -> StoreAddress:
        """Return the checked address of the store, password included."""
        return self._target().address

    def place(self, ring: str | None = None) -> tuple[StoreAddress, str]:
        """Return the store and the ring that would be opened; nothing is opened for it."""
        target = self._target()
        return target.address, ring or self.ring or target.ring

    def queue(self, ring: str | None = None) -> MessageQueue:
        """Open the queue; it is a context manager and wants to be closed."""
        from airflow_mq import MessageQueue

        target = self._target()
        queue = MessageQueue(target.address.uri, ring or self.ring or target.ring, traces=_traces())
        queue.store.filesystem_of = object_storage
        if settings.flag("log_error_texts"):
            # Drivers of Spark jobs inherit it.
            os.environ[failures.VARIABLE] = "1"
        return queue

    @contextmanager
    def commands(self, connection: Any, ring: str | None = None) -> Iterator[Commands]:
        """Commands within the open transaction of a connection to the queue's own database, say of another hook.

        The connection is one of psycopg 3, `sqlite3` or SQLAlchemy; it stays the caller's, and so does its commit. ::

            with MessageQueueHook().commands(connection) as commands:
                connection.execute("INSERT INTO orders ...")
                commands.push("orders", b"order 17").execute()
        """
        with self.queue(ring) as queue:
            yield queue.commands(connection)

    def get_sqlalchemy_engine(self, engine_kwargs: Mapping[str, Any] | None = None) -> Engine:
        """An engine of SQLAlchemy for the queue's own database: rows and commands of one transaction go over it.

        It knows the address from nowhere but the connection, as the queue does, and does not tell it.
        """
        from sqlalchemy import create_engine

        address = self.address()
        if address.path is not None:
            return create_engine("sqlite:///a file", creator=partial(_open_file, address), **(engine_kwargs or {}))

        from airflow_mq.store.postgres import plain_connection

        return create_engine(
            "postgresql+psycopg://", creator=partial(plain_connection, address), **(engine_kwargs or {})
        )

    def get_conn(self) -> MessageQueue:
        """Open the queue, by the name that every hook has for it."""
        return self.queue()

    def test_connection(self) -> tuple[bool, str]:
        """Look at the store, within seconds and without changing anything, and say what is there.

        What went wrong is told in our own words: those of a driver may hold the whole address.
        """
        where = "this connection"
        try:
            target = self._target()
            where = target.address.safe
            ring = self.ring or target.ring
            return _within(TEST_SECONDS, lambda: _look(target.address, ring))
        except Exception as error:
            return False, f"{where}: {told_safely(error)}"

    def _target(self) -> Target:
        return target_of(self.get_connection(self.mq_conn_id))

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Return how the form's own fields are shown; only Airflow before 3.2 asks."""
        told = get_provider_info()["connection-types"][0]["ui-field-behaviour"]
        return {name.replace("-", "_"): value for name, value in told.items()}

    @classmethod
    def get_connection_form_widgets(cls) -> dict[str, Any]:
        """Return the form's further fields; only Airflow before 3.2 asks."""
        forms: Any = import_module("wtforms")
        # Where Airflow puts something in the place of wtforms, Python 3.10 finds the validators only this way.
        rules: Any = forms.validators if sys.version_info < (3, 11) else import_module("wtforms.validators")

        def widget(label: str, description: str, schema: dict[str, Any]) -> Any:
            kind = forms.IntegerField if "integer" in schema["type"] else forms.StringField
            checks = [rules.Optional(), *([rules.any_of(schema["enum"])] if "enum" in schema else [])]
            return kind(label, description=description, validators=checks, default=schema.get("default"))

        fields = get_provider_info()["connection-types"][0]["conn-fields"]
        return {name: widget(**field) for name, field in fields.items()}


# -- from the connection's fields to an address --


@dataclass(frozen=True)
class Target:
    """The store and the ring that a connection names."""

    address: StoreAddress
    ring: str


def target_of(connection: Any) -> Target:
    """What a connection names, within the folder that Airflow's configuration allows, or `AddressRefused`."""
    return read_connection(connection, root=_sqlite_root())


def read_connection(connection: Any, *, root: Path | None = None) -> Target:
    """Return the store and the ring that a connection names, or raise `AddressRefused`."""
    extra = _read_extra(connection.extra)
    fields = {
        **{name: _filled(getattr(connection, name)) for name in ("host", "port", "login", "password", "schema")},
        **{key: _filled(extra.get(key)) for key in EXTRA_KEYS},
    }
    driver, ring = _driver(fields), fields.pop("ring") or DEFAULT_RING
    if driver == "sqlite":
        _refuse_filled(fields, driver, but=("driver", "path", *PERMITTED))
        permitted = {name: fields[name] for name in PERMITTED}
        return Target(sqlite_address(fields["path"] or "", root=root, **permitted), ring)
    _refuse_filled(fields, driver, but=tuple(name for name in fields if name != "path"))
    numbers: dict[str, Any] = {
        name: _whole_number(name, fields[name], default) for name, (default, _, _) in NUMBERS.items()
    }
    address = StoreAddress(
        "postgresql",
        host=fields["host"],
        port=_whole_number("port", fields["port"], DEFAULT_PORT),
        user=fields["login"],
        password=fields["password"],
        database=fields["schema"],
        schema=fields["db_schema"] or DEFAULT_SCHEMA,
        sslmode=fields["sslmode"],
        **numbers,
        origins=fields["origins"],
        priority=fields["priority"],
    )
    return Target(address, ring)


def _read_extra(text: str | None) -> dict[str, Any]:
    """The keys of `extra`; what is not known there is refused, and no value is repeated."""
    try:
        extra = json.loads(text or "{}", object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as error:
        if isinstance(error, AddressRefused):
            raise
        raise AddressRefused("the extra of the connection is not JSON") from None
    if not isinstance(extra, dict):
        raise AddressRefused("the extra of the connection is not a JSON object")
    for key, value in extra.items():
        if key not in EXTRA_KEYS:
            named = repr(key) if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]{0,39}", key) else "a key"
            raise AddressRefused(f"{named} in the extra of the connection is not known; it has {', '.join(EXTRA_KEYS)}")
        if not (value is None or isinstance(value, str) or (key in NUMBERS and type(value) is int)):
            raise AddressRefused(f"{key} in the extra of the connection is not text")
    return extra


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise AddressRefused("the extra of the connection has a key twice")
    return dict(pairs)


def _driver(fields: dict[str, Any]) -> str:
    told = fields["driver"] or ("sqlite" if fields["path"] and not fields["host"] else "postgresql")
    if told not in DRIVERS:
        raise AddressRefused(f"the driver of the connection is not known; it is one of {', '.join(DRIVERS)}")
    return str(told)


def _refuse_filled(fields: dict[str, Any], driver: str, *, but: tuple[str, ...]) -> None:
    filled = [name for name, value in fields.items() if value is not None and name not in but]
    if filled:
        raise AddressRefused(f"a connection with the driver {driver} has no {', '.join(filled)}; leave that empty")


def _filled(value: Any) -> Any:
    """The form sends what was left empty as nothing, or as empty text."""
    return None if value == "" else value


def _whole_number(name: str, value: Any, default: int) -> int:
    if value is None:
        return default
    if not re.fullmatch(r"[0-9]{1,5}", str(value)):
        raise AddressRefused(f"the {name} of the connection is not a whole number, or too large")
    return int(value)


def _sqlite_root() -> Path | None:
    folder = settings.text("sqlite_root")
    return Path(folder) if folder else None


def _traces() -> bool | None:
    """Whether messages carry traces; where Airflow's configuration does not say so, the environment may."""
    if not settings.flag("traces"):
        return None
    if not tracing.is_provided():
        _provide_tracers()
    return True


def _provide_tracers() -> None:
    """Airflow 3.1 gives its tasks no provider of tracers, and has its own way to say where spans go."""
    conf = settings.configuration()
    if not conf.getboolean("traces", "otel_on", fallback=False):
        return
    host, port = conf.get("traces", "otel_host", fallback=""), conf.get("traces", "otel_port", fallback="")
    said = any(os.environ.get(f"OTEL_EXPORTER_OTLP_{which}ENDPOINT") for which in ("", "TRACES_"))
    if host and port and not said:
        scheme = "https" if conf.getboolean("traces", "otel_ssl_active", fallback=False) else "http"
        # Drivers of Spark jobs inherit it.
        os.environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = f"{scheme}://{host}:{port}/v1/traces"
        os.environ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] = "http/protobuf"
    os.environ.setdefault("OTEL_SERVICE_NAME", conf.get("traces", "otel_service", fallback="Airflow"))
    tracing.provide()


def object_storage(address: str) -> tuple[Any, str]:
    """The file system of payloads kept apart, by Airflow's object storage: `s3://connection@bucket/folder`."""
    from airflow.sdk import ObjectStoragePath

    from airflow_mq.store.blob_files import by_fsspec

    try:
        path = ObjectStoragePath(address)
        return path.fs, path.path
    except ValueError:
        # Airflow has no provider for it.
        return by_fsspec(address)


def _open_file(address: StoreAddress) -> sqlite3.Connection:
    """A connection to a store that is there; none is made by looking for it."""
    from airflow_mq.store.files import refuse_foreign_log

    assert address.path is not None
    refuse_foreign_log(address.path)
    return sqlite3.connect(address.file_uri("rw"), uri=True, timeout=BUSY_SECONDS, check_same_thread=False)


# -- Kafka, by its own hook --


def kafka_consumer(kafka_config_id: str, topics: Sequence[str], group: str | None = None) -> Any:
    """A consumer of a connection of Airflow's Kafka provider, with the settings that exactly-once needs.

    Making it asks no broker. The hook resolves what a connection may say: callbacks, tokens of clouds.
    """
    from airflow_mq.adapters.kafka import consumer

    try:
        base: Any = import_module("airflow.providers.apache.kafka.hooks.consume").KafkaConsumerHook
    except ImportError as error:
        raise InvalidInput(
            f"Kafka needs Airflow's provider for it: pip install 'airflow-mq[kafka]' ({error})"
        ) from None

    class Hook(base):
        """The provider's hook, but for what a consumer is told of offsets."""

        def _get_client(self, config: dict[str, Any]) -> Any:
            return consumer({**config, **({"group.id": group} if group else {})})

    made: Any = Hook(topics=list(topics), kafka_config_id=kafka_config_id).get_conn
    return made


# -- looking at the store --


def _look(address: StoreAddress, ring: str) -> tuple[bool, str]:
    """Say what is in the store, which is only read."""
    from airflow_mq.store import schema_status

    if address.path is not None:
        refuse_network_file_system(address.path)
        if not address.path.is_file():
            return False, f"{address.safe}: {NO_FILE_STORE}"
    hasty = replace(address, connect_timeout=min(address.connect_timeout, CONNECT_SECONDS))
    try:
        status = schema_status(hasty, timeout=CONNECT_SECONDS)
    except StoreError as error:
        # Whether a file is missing, locked away or something else is nobody's business who may only edit connections.
        if address.path is None or isinstance(error, (AddressRefused, NetworkFileSystem, StoreBusy)):
            raise
        return False, f"{address.safe}: {NO_FILE_STORE}"
    if status.state != "current":
        return False, f"{address.safe}: {_behind(address, status)}"
    return True, f"{address.safe}: schema {status.version}; ring {ring!r} holds {_measured(hasty, ring)}"


def _measured(address: StoreAddress, ring: str) -> str:
    """The sum of the footprints of a ring's queues, as far as they can be added up quickly."""
    from airflow_mq import MessageQueue

    with MessageQueue(address.uri, ring, busy_timeout=CONNECT_SECONDS) as queue:
        found = [footprint for _, footprint in queue.footprints(limit=MOST_QUEUES)]
    count, size, pages = (sum(getattr(one, part) for one in found) for part in ("count", "size", "pages"))
    most = "more than " if len(found) == MOST_QUEUES else ""
    return f"{most}{many(count, 'message')} of {size:,} bytes in {many(pages, 'page')} of {many(len(found), 'queue')}"


def _behind(address: StoreAddress, status: Any) -> str:
    if status.state == "missing":
        return NO_FILE_STORE if address.path else "there is no schema yet; make it with `airflow-mq store upgrade`"
    if status.state == "older":
        return f"schema {status.version} is older than {status.expected}; bring it up with `airflow-mq store upgrade`"
    return f"schema {status.version} is newer than {status.expected}; install a newer airflow-mq here"


def told_safely(error: Exception) -> str:
    """What is safe to say of an error: our own words, which hold nothing of a driver's."""
    if isinstance(error, (AddressRefused, NetworkFileSystem)):
        return str(error)
    if isinstance(error, MessageQueueError):
        if is_own_text(str(error)):
            return str(error)
        return (type(error).__doc__ or "").partition("\n")[0]
    return f"it could not be looked at ({type(error).__name__})"


def _within(seconds: float, look: Callable[[], tuple[bool, str]]) -> tuple[bool, str]:
    """What `look` returns, but no later than this: neither a name server nor a disk has a timeout to set."""
    answers: SimpleQueue[tuple[bool, str] | Exception] = SimpleQueue()

    def work() -> None:
        try:
            with within(seconds):
                answers.put(look())
        except Exception as error:
            answers.put(error)

    Thread(target=work, name="airflow-mq-test-connection", daemon=True).start()
    try:
        answer = answers.get(timeout=seconds)
    except Empty:
        raise StoreUnreachable() from None
    if isinstance(answer, Exception):
        raise answer
    return answer
