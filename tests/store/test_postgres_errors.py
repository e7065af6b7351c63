"""Errors of PostgreSQL: each cause has one class and one text, and nothing of the driver's escapes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg import errors

from airflow_mq import MessageQueue, Weight
from airflow_mq.engine.rules.errors import (
    Busy,
    CommitInDoubt,
    LoginRefused,
    MessageQueueError,
    SchemaMissing,
    StoreBusy,
    StoreFull,
    StoreReadOnly,
    StoreUnreachable,
)
from airflow_mq.engine.store import open_store, parse, upgrade
from airflow_mq.engine.store import postgres_errors as known
from airflow_mq.engine.store.postgres import connect
from airflow_mq.hooks import told_safely
from tests.interruption import before_statement
from tests.proofs.crash.proxy import Proxy, error_response
from tests.waiting import eventually

CANARY = "c4n4ry-s3cr3t"
PLENTY = Weight(1 << 40, 1 << 40)
pytestmark = pytest.mark.postgres


@contextmanager
def admin(uri: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(uri, autocommit=True) as connection:
        yield connection


def set_for_all(uri: str, setting: str) -> None:
    """Set a default of the database, which sessions get when they begin."""
    with admin(uri) as connection:
        (name,) = connection.execute("SELECT current_database()").fetchone() or ("",)
        connection.execute(f'ALTER DATABASE "{name}" SET {setting}'.encode())


def wrong(uri: str, what: str) -> str:
    address = replace(parse(uri), connect_timeout=30)
    changed: dict[str, dict[str, Any]] = {
        "password": {"password": CANARY},
        "user": {"user": "nobody", "password": CANARY},
        "database": {"database": "nowhere"},
        "port": {"port": 1, "password": CANARY},
        "host": {"host": "nowhere.invalid", "password": CANARY},
        "label": {"host": "a" * 64 + ".invalid", "password": CANARY},
        "tls": {"sslmode": "require"},
    }
    return replace(address, **changed[what]).uri


@pytest.mark.parametrize(
    ("what", "cause"),
    [
        ("password", known.LOGIN),
        ("user", known.LOGIN),
        ("database", known.DATABASE),
        ("port", known.REFUSED),
        ("host", known.HOST),
        ("label", known.HOST),
        ("tls", known.TLS),
    ],
)
def test_a_connection_that_fails_has_one_name_and_one_text(pg_uri: str, what: str, cause: MessageQueueError) -> None:
    address = parse(wrong(pg_uri, what))
    for call in (lambda: MessageQueue(address), lambda: upgrade(address), lambda: connect(address)):
        with pytest.raises(type(cause)) as caught:
            call()
        assert str(caught.value) == str(cause) == told_safely(caught.value)
        assert CANARY not in str(caught.value)


def test_a_server_that_accepts_connections_and_stays_silent_is_a_time_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = parse(f"postgresql://u:{CANARY}@127.0.0.1:{server.getsockname()[1]}/d?connect_timeout=1")
        with pytest.raises(StoreUnreachable) as caught:
            open_store(address)
    assert str(caught.value) == str(known.NO_CONNECTION)


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ('FATAL:  no pg_hba.conf entry for host "1.2.3.4", user "u", database "d", no encryption', known.NO_RULE),
        ('FATAL:  role "SSL" does not exist', known.LOGIN),
        ('FATAL:  password authentication failed for user "timeout expired"', known.LOGIN),
        ("fe_sendauth: no password supplied", known.NO_PASSWORD),
        ('auth method "none" requirement failed: server did not complete authentication', known.METHOD),
        ("FATAL:  sorry, too many clients already", known.TOO_MANY),
        ("FATAL:  remaining connection slots are reserved for roles with …", known.TOO_MANY),
        ("FATAL:  the database system is starting up", known.STARTING),
        ("session is read-only\nconnection failed: Connection refused", known.NO_PRIMARY),
        ("SSL error: certificate verify failed", known.TLS),
        ('root certificate file "/x" does not exist', known.TLS),
        ("could not receive data from server: No route to host", known.NETWORK),
        ("server closed the connection unexpectedly", known.LOST),
    ],
)
def test_words_of_a_failed_connection(said: str, cause: MessageQueueError) -> None:
    ours = known.named_on_connecting(psycopg.OperationalError(f'connection to server at "timed out" failed: {said}'))
    assert (type(ours), str(ours)) == (type(cause), str(cause))


def test_every_text_names_a_remedy_and_is_unique() -> None:
    texts = [str(value) for value in vars(known).values() if isinstance(value, MessageQueueError)]
    assert len(set(texts)) == len(texts) > 20
    for text in texts:
        assert known.is_own_text(text) and (";" in text or "run `" in text), text


def test_connecting_and_its_settings_are_translated(pg_uri: str) -> None:
    """A connection cut at the first statement, the setting of its session, raises our error, too."""
    with Proxy(pg_uri) as proxy:
        found = open_store(proxy.uri)
        proxy.cut_before(b"lock_timeout")
        for call in (
            found.lent,
            lambda: found.loose().__enter__(),
            lambda: found.writing(at_once=True).__enter__(),
        ):
            proxy.cut_before(b"lock_timeout")
            with pytest.raises(StoreUnreachable, match="connection was lost"):
                call()
        found.close()


def test_a_password_changed_under_a_queue(pg_uri: str) -> None:
    """A later connection fails as the first would have: by name."""
    with admin(pg_uri) as connection, MessageQueue(pg_uri) as queue:
        connection.execute(b"CREATE ROLE passing LOGIN SUPERUSER PASSWORD 'first'")
        try:
            address = replace(parse(pg_uri), user="passing", password="first")
            with MessageQueue(address) as theirs:
                connection.execute(b"ALTER ROLE passing PASSWORD 'second'")
                theirs.store.drop(theirs.store.lent().connection)
                with pytest.raises(StoreUnreachable) as caught:
                    theirs.enqueue_message("a", b"x")
                assert str(caught.value) == str(known.LOGIN)
        finally:
            connection.execute(b"DROP ROLE passing")
        assert queue.footprint("a").count == 0


def test_a_server_that_is_read_only(pg_uri: str) -> None:
    set_for_all(pg_uri, "default_transaction_read_only = on")
    with MessageQueue(pg_uri) as queue:
        for call in (
            lambda: queue.enqueue_message("a", b"x"),
            queue.blocks.plan,
            lambda: queue.admin.pause("a", "why"),
        ):
            with pytest.raises(StoreReadOnly) as caught:
                call()
            assert str(caught.value) == str(known.READ_ONLY)


def test_a_user_without_rights(pg_uri: str) -> None:
    with admin(pg_uri) as connection:
        connection.execute(b"CREATE ROLE bare LOGIN PASSWORD 'bare'")
        try:
            address = replace(parse(pg_uri), user="bare", password="bare")
            connection.execute(b"GRANT USAGE ON SCHEMA airflow_mq TO bare")
            with pytest.raises(StoreReadOnly) as caught:
                MessageQueue(address)
            assert str(caught.value) == f"{known.NO_RIGHTS} (the server: permission denied for table migration)"
            assert known.is_own_text(str(caught.value))
            (name,) = connection.execute("SELECT current_database()").fetchone() or ("",)
            connection.execute(f'REVOKE CONNECT ON DATABASE "{name}" FROM PUBLIC'.encode())
            with pytest.raises(StoreUnreachable) as refused:
                MessageQueue(address)
            assert str(refused.value) == str(known.NOT_INTO_DATABASE)
            connection.execute(b"ALTER ROLE bare NOLOGIN")
            with pytest.raises(StoreUnreachable) as refused:
                MessageQueue(address)
            assert str(refused.value) == str(known.NO_LOGIN)
        finally:
            connection.execute(b"DROP OWNED BY bare; DROP ROLE bare")


@pytest.mark.parametrize("what", ["send", "send a few", "plan", "look"])
def test_a_lock_on_a_table_is_not_the_ring(pg_uri: str, what: str) -> None:
    with MessageQueue(pg_uri, busy_timeout=0.2) as queue, psycopg.connect(pg_uri) as other:
        calls: dict[str, Callable[[], object]] = {
            "send": lambda: queue.enqueue_message("a", b"x"),
            "send a few": lambda: queue.enqueue_messages("a", [b"x", b"y"]),
            "plan": lambda: queue.blocks.plan(limit=PLENTY),
            "look": lambda: queue.admin.rings(),
        }
        table = {"plan": "ring_state", "look": "ring"}.get(what, "inbox")
        other.execute(f"LOCK TABLE airflow_mq.{table} IN ACCESS EXCLUSIVE MODE".encode())
        with pytest.raises(StoreBusy, match=f"table '{table}' stayed locked .*process {other.info.backend_pid}"):
            calls[what]()
        other.rollback()
        calls[what]()


def test_a_row_that_another_holds_is_the_ring(pg_uri: str) -> None:
    with MessageQueue(pg_uri) as holder, MessageQueue(pg_uri, busy_timeout=0.2) as queue:
        with holder.store.writing() as unit:
            unit.lock(holder.session.ring_id)
            with pytest.raises(Busy) as caught:
                queue.blocks.plan(limit=PLENTY)
        assert str(caught.value) == str(known.LOCKED)


def test_a_statement_time_out_is_named(pg_uri: str) -> None:
    with MessageQueue(pg_uri) as queue:
        queue.store.lent().connection.execute("SET statement_timeout = '100ms'")
        with pytest.raises(StoreBusy) as caught, queue.store.loose() as unit:
            unit.connection.execute("SELECT pg_sleep(10)")  # type: ignore[attr-defined]
        assert str(caught.value) == str(known.CANCELLED)
        queue.store.lent().connection.execute("RESET statement_timeout")
        assert queue.footprint("a").count == 0


@pytest.mark.parametrize("at", ["insert_block", "commit"])
def test_a_transaction_that_was_idle_for_too_long_is_named_and_did_not_happen(pg_uri: str, at: str) -> None:
    with MessageQueue(pg_uri) as queue, admin(pg_uri) as other:
        queue.enqueue_message("a", b"x")
        connection = queue.store.lent().connection
        connection.execute("SET idle_in_transaction_session_timeout = '100ms'")

        def wait_until_it_is_gone() -> None:
            asked = "SELECT 1 FROM pg_stat_activity WHERE pid = %s"
            eventually(lambda: not other.execute(asked, (connection.info.backend_pid,)).fetchone())

        before_statement(queue, at, wait_until_it_is_gone)
        with pytest.raises(StoreUnreachable) as caught:
            queue.blocks.plan(limit=PLENTY)
        assert str(caught.value) == str(known.IDLE_TRANSACTION)
        assert queue.blocks.list("planned") == []
        assert queue.blocks.plan(limit=PLENTY).messages == 1


@pytest.mark.parametrize("how", ["settle", "send"])
def test_a_panic_at_a_commit_is_in_doubt(pg_uri: str, how: str) -> None:
    """The server wrote the commit and failed behind it, or before it: its answer does not show which."""
    panic = error_response("PANIC", "53100", "could not write to file: No space left on device")
    with Proxy(pg_uri) as proxy, MessageQueue(proxy.uri) as queue:
        if how == "send":
            proxy.answer(b"plain message", panic)
            with pytest.raises(CommitInDoubt, match="result is unknown"):
                queue.enqueue_message("a", b"plain message")
        else:
            before_statement(queue, "commit", lambda: proxy.answer(b"COMMIT", panic))
            with pytest.raises(CommitInDoubt, match="result is unknown"):
                queue.enqueue_message("a", b"plain message", key="k")
        assert queue.footprint("a").count == 1


def test_a_full_disk_before_the_commit_is_not_in_doubt(pg_uri: str) -> None:
    full = error_response("ERROR", "53100", "could not extend file")
    with Proxy(pg_uri) as proxy, MessageQueue(proxy.uri) as queue:
        proxy.answer(b"INSERT", full + b"Z\x00\x00\x00\x05E")
        with pytest.raises(StoreFull, match="free some space"):
            queue.enqueue_message("a", b"message", key="k")


def test_busy_takes_no_longer_than_the_busy_timeout(store_uri: str) -> None:
    """The lease ends shortly before the time is over, and then another transaction holds the row: one time-out."""
    upgrade(parse(store_uri))
    patience = 12.0
    with MessageQueue(store_uri) as holder, MessageQueue(store_uri, busy_timeout=patience) as queue:
        token = b"t" * 16
        with holder.store.writing() as unit:
            until = unit.lock(holder.session.ring_id).now + 60_000_000
            unit.run("take_lease", ring=holder.session.ring_id, token=token, until=until, holder="a service elsewhere")
        ready, held, over = threading.Event(), threading.Event(), threading.Event()

        def hold_the_row() -> None:
            # A thread has a connection of its own.
            len(holder)
            ready.set()
            time.sleep(patience * 0.5)
            with holder.store.writing() as unit:
                unit.lock(holder.session.ring_id)
                held.set()
                over.wait(30)

        thread = threading.Thread(target=hold_the_row)
        thread.start()
        assert ready.wait(60)
        began = time.monotonic()
        try:
            with pytest.raises((Busy, StoreBusy)):
                queue.blocks.plan(limit=PLENTY)
            took = time.monotonic() - began
        finally:
            over.set()
            thread.join()
        assert held.is_set() and patience * 0.9 <= took < patience * 1.9


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.InvalidPassword(), LoginRefused), (errors.UndefinedTable(), SchemaMissing),
        (errors.OutOfMemory(), StoreUnreachable), (errors.DeadlockDetected(), StoreBusy),
        (errors.IoError(), StoreUnreachable), (errors.AdminShutdown(), StoreUnreachable),
        (errors.TransactionTimeout() if hasattr(errors, "TransactionTimeout") else errors.AdminShutdown(), StoreUnreachable),
    ],
)  # fmt: skip
def test_states_have_names(error: psycopg.Error, expected: type[MessageQueueError]) -> None:
    ours = known.named(error)
    assert type(ours) is expected and known.is_own_text(str(ours))
