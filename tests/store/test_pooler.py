"""Poolers of connections: a client prepares no statement that another client of the same server session could run."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pytest

from airflow_mq import MessageQueue
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.engine.store.pipelined import PipelinedConnection

pytestmark = pytest.mark.postgres

#: Head of the message by which a server, or a pooler in its place, names its process.
KEY_DATA = b"K\0\0\0\x0c"


def relay(source: socket.socket, target: socket.socket, *, renames: bool = False) -> None:
    """Forward all bytes; replace the process id that the server names."""
    with source, suppress(OSError):
        while data := source.recv(1 << 16):
            place = data.find(KEY_DATA) + len(KEY_DATA)
            if renames and place >= len(KEY_DATA):
                data = data[:place] + b"\0\0\0\1" + data[place + 4 :]
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def pooled(uri: str) -> Iterator[str]:
    """Yield an address that names another process than the one that answers, as PgBouncer does."""
    port = parse(uri).port
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    client = listener.accept()[0]
                    server = socket.create_connection(("127.0.0.1", port))
                    threading.Thread(target=relay, args=(client, server), daemon=True).start()
                    back = {"renames": True}
                    threading.Thread(target=relay, args=(server, client), kwargs=back, daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield uri.replace(f":{port}/", f":{listener.getsockname()[1]}/")


@pytest.fixture
def pooled_uri(pg_uri: str) -> Iterator[str]:
    upgrade(parse(pg_uri))
    with pooled(pg_uri) as uri:
        yield uri


def prepared_after_sending(uri: str) -> int:
    with MessageQueue(uri) as queue:
        for number in range(5):
            queue.enqueue_message("acme", b"an order", key=f"order-{number}")
        return int(queue.store.lent().connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()[0])


def test_a_client_of_the_server_prepares_statements(pg_uri: str) -> None:
    upgrade(parse(pg_uri))
    assert prepared_after_sending(pg_uri) > 0


def test_a_client_of_a_pooler_prepares_no_statement(pooled_uri: str) -> None:
    assert prepared_after_sending(pooled_uri) == 0


def shown(connection: PipelinedConnection) -> tuple[Any, ...]:
    names = ("search_path", "synchronous_commit", "statement_timeout", "lock_timeout", "enable_seqscan")
    statement = f"SELECT {', '.join(f'current_setting({name!r})' for name in names)}"
    connection.flush()
    # As the session of the pool answers, without the settings that our own statements carry.
    row = psycopg.Connection.execute(connection, statement).fetchone()
    assert row is not None
    return row


def test_each_transaction_carries_its_settings_through_a_pooler(pg_uri: str, pooled_uri: str) -> None:
    with psycopg.connect(pg_uri, autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{admin.info.dbname}" SET synchronous_commit = off')
    ours = ("pg_catalog, pg_temp", "on", "5min", "10s", "off")
    with MessageQueue(pooled_uri) as queue:
        connection = queue.store.lent().connection
        # The session belongs to the pool: what stays in it would meet the pool's other clients.
        theirs = shown(connection)
        assert theirs == ('"$user", public', "off", "0", "0", "on")
        for unit in (queue.store.writing(), queue.store.writing(at_once=True), queue.store.reading()):
            with unit as opened:
                assert shown(opened.connection) == ours
            assert shown(connection) == theirs
        with queue.store.writing(patience=2):
            assert shown(connection)[3] == "2s"
        with psycopg.connect(pg_uri, autocommit=True) as admin:
            admin.execute(f"ALTER DATABASE \"{admin.info.dbname}\" SET default_transaction_isolation = 'serializable'")
        queue.store.drop(connection)
        with queue.store.writing():
            isolation = queue.store.lent().connection.execute("SHOW transaction_isolation").fetchone()
        assert isolation == ("read committed",)


def test_a_session_of_its_own_keeps_the_settings(pg_uri: str) -> None:
    upgrade(parse(pg_uri))
    with MessageQueue(pg_uri) as queue:
        assert shown(queue.store.lent().connection) == ("pg_catalog, pg_temp", "on", "5min", "10s", "off")


def test_settings_that_change_how_values_are_read_have_no_effect(pg_uri: str, pooled_uri: str) -> None:
    with psycopg.connect(pg_uri, autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{admin.info.dbname}" SET array_nulls = off')
    for uri in (pg_uri, pooled_uri):
        with MessageQueue(uri) as queue:
            queue.enqueue_messages([("acme", b"one"), ("bolt", b"two")])
            assert queue.service_queues(lambda delivery: None).processed == 2
