"""Statements without a cursor: pipelines, errors in them, and prepared statements."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from airflow_mq.engine.store import direct, parse, postgres
from airflow_mq.engine.store.direct import DirectConnection

pytestmark = pytest.mark.postgres

ONE = b"SELECT %(n)s::int8"


@pytest.fixture
def connection(pg_uri: str) -> Iterator[DirectConnection]:
    with postgres.connect(parse(pg_uri)) as opened:
        opened.run(b"CREATE TEMP TABLE seen (n int)")
        yield opened


def prepared(connection: DirectConnection) -> int:
    return int(connection.rows(b"SELECT count(*) FROM pg_prepared_statements")[0][0])


def prepare_and_forget(connection: DirectConnection) -> None:
    """Let the connection prepare a statement that its session then forgets."""
    for _ in range(2 * direct.PREPARE_AFTER):
        connection.rows(ONE, {"n": 1})
    connection.execute("DEALLOCATE ALL")


def test_each_statement_of_a_pipeline_has_its_own_answer(connection: DirectConnection) -> None:
    for _ in range(2 * direct.PREPARE_AFTER):
        requests = [connection.later(ONE, {"n": n}) for n in range(20)]
        written = connection.later(b"INSERT INTO seen SELECT unnest(%(n)b::int[])", {"n": [1, 2]})
        assert connection.rows(b"SELECT %(t)s::text, %(b)s", {"t": "é", "b": b"\0"}) == [("é", b"\0")]
        assert [request.rows() for request in requests] == [[(n,)] for n in range(20)]
        assert written.count() == 2
    assert prepared(connection) > 0


def test_a_parameter_that_occurs_twice_is_sent_once(connection: DirectConnection) -> None:
    assert connection.rows(b"SELECT %(a)s::int8 + %(b)s::int8 * %(a)s::int8", {"a": 3, "b": 5}) == [(18,)]


def test_answers_larger_than_all_buffers_arrive_while_requests_are_sent(connection: DirectConnection) -> None:
    data = bytes(3_000_000)
    requests = [connection.later(b"SELECT %(data)s::bytea", {"data": data}) for _ in range(8)]
    assert all(request.rows() == [(data,)] for request in requests)


def test_a_cursor_runs_after_the_statements_that_were_requested(connection: DirectConnection) -> None:
    connection.later(b"BEGIN")
    connection.execute("INSERT INTO seen VALUES (1)")
    connection.run(b"ROLLBACK")
    assert connection.rows(b"SELECT count(*) FROM seen") == [(0,)]


def test_the_first_error_of_a_pipeline_is_raised_and_nothing_of_it_stays(connection: DirectConnection) -> None:
    connection.later(b"INSERT INTO seen VALUES (1)")
    connection.later(b"SELECT 1 / %(n)s::int", {"n": 0})
    connection.later(b"SELECT nothing")
    with pytest.raises(psycopg.errors.DivisionByZero):
        connection.run(b"INSERT INTO seen VALUES (2)")
    assert connection.rows(b"SELECT count(*) FROM seen") == [(0,)]


def test_a_transaction_with_an_error_is_not_committed(connection: DirectConnection) -> None:
    connection.later(b"BEGIN")
    connection.later(b"INSERT INTO seen VALUES (1)")
    connection.later(b"INSERT INTO seen VALUES (%(n)s)", {"n": 1 << 40})
    with pytest.raises(psycopg.errors.NumericValueOutOfRange):
        connection.run(b"COMMIT")
    assert connection.pgconn.transaction_status == TransactionStatus.INERROR
    connection.run(b"ROLLBACK")
    assert connection.rows(b"SELECT count(*) FROM seen") == [(0,)]


def test_statements_that_the_session_forgot_are_prepared_again(connection: DirectConnection) -> None:
    prepare_and_forget(connection)
    assert connection.rows(ONE, {"n": 2}) == [(2,)]
    prepare_and_forget(connection)
    connection.later(b"BEGIN")
    connection.later(b"INSERT INTO seen VALUES (1)")
    assert connection.rows(ONE, {"n": 3}) == [(3,)]
    connection.run(b"COMMIT")
    assert connection.rows(b"SELECT count(*) FROM seen") == [(1,)]


def test_few_statements_stay_prepared(connection: DirectConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "MOST_PREPARED", 5)
    for _ in range(2 * direct.PREPARE_AFTER):
        for n in range(20):
            assert connection.rows(b"SELECT %d, %%(n)s::int8" % n, {"n": n}) == [(n, n)]
    assert prepared(connection) == 5


def test_statements_that_were_dropped_are_not_sent(connection: DirectConnection) -> None:
    connection.later(b"INSERT INTO seen VALUES (1)")
    connection.forget()
    assert connection.rows(b"SELECT count(*) FROM seen") == [(0,)]


@pytest.mark.parametrize("count", [1, 3])
def test_started_statements_are_answered_when_they_are_wanted(connection: DirectConnection, count: int) -> None:
    for _ in range(2 * direct.PREPARE_AFTER):
        started = [connection.later(ONE, {"n": n}) for n in range(count)]
        connection.start()
        assert connection.pgconn.transaction_status == TransactionStatus.ACTIVE
        behind = connection.later(ONE, {"n": 9})
        assert [request.rows() for request in started] == [[(n,)] for n in range(count)]
        assert behind.rows() == [(9,)]


def test_any_use_of_the_connection_takes_the_answers_of_started_statements(connection: DirectConnection) -> None:
    for use in (
        lambda: connection.start(),
        lambda: connection.execute("SELECT 1"),
        lambda: connection.copy_in(b"COPY seen FROM STDIN", [b"1\n"]),
        lambda: connection.run(b"INSERT INTO seen SELECT 2"),
    ):
        started = connection.later(ONE, {"n": 1})
        connection.start()
        use()
        assert started.result is not None and started.rows() == [(1,)]
    assert connection.rows(b"SELECT n FROM seen ORDER BY n") == [(1,), (2,)]


def test_a_started_answer_larger_than_all_buffers_arrives(connection: DirectConnection) -> None:
    data = bytes(9_000_000)
    started = connection.later(b"SELECT %(data)s::bytea || %(data)s::bytea", {"data": data})
    connection.start()
    assert connection.rows(ONE, {"n": 1}) == [(1,)]
    assert started.rows() == [(data + data,)]


def test_the_error_of_a_started_statement_is_raised_when_its_answer_is_taken(connection: DirectConnection) -> None:
    for begin in (b"BEGIN", b"SELECT 1"):
        connection.later(begin)
        connection.later(b"SELECT 1 / %(n)s::int", {"n": 0})
        connection.start()
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.run(b"INSERT INTO seen VALUES (1)")
        connection.forget()
        connection.run(b"ROLLBACK")
    assert connection.rows(b"SELECT count(*) FROM seen") == [(0,)]


def test_started_statements_that_the_session_forgot_are_prepared_again(connection: DirectConnection) -> None:
    prepare_and_forget(connection)
    started = connection.later(ONE, {"n": 2})
    connection.start()
    assert started.rows() == [(2,)]


def test_a_connection_that_ends_after_a_statement_was_started_raises_its_reason(connection: DirectConnection) -> None:
    started = connection.later(b"SELECT pg_terminate_backend(pg_backend_pid())")
    connection.start()
    with pytest.raises(psycopg.errors.AdminShutdown):
        started.rows()


def test_a_connection_that_ends_in_a_pipeline_raises_its_reason(connection: DirectConnection) -> None:
    connection.later(ONE, {"n": 1})
    connection.later(b"SELECT pg_terminate_backend(pg_backend_pid())")
    with pytest.raises(psycopg.errors.AdminShutdown):
        connection.rows(ONE, {"n": 2})
    with pytest.raises(psycopg.OperationalError):
        connection.rows(ONE, {"n": 3})
