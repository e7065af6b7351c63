"""Statements in pipelines: their answers, errors in them, and prepared statements."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from airflow_mq.engine.store import parse, postgres
from airflow_mq.engine.store.pipelined import PipelinedConnection

pytestmark = pytest.mark.postgres

ONE = b"SELECT %(n)s::int8"


@pytest.fixture
def connection(pg_uri: str) -> Iterator[PipelinedConnection]:
    with postgres.connect(parse(pg_uri)) as opened:
        opened.run(b"CREATE TEMP TABLE seen (n int)")
        yield opened


def rows(
    connection: PipelinedConnection, text: bytes, values: dict[str, object] | None = None
) -> list[tuple[object, ...]]:
    return connection.later(text, values).rows()


def prepared(connection: PipelinedConnection) -> int:
    return len(rows(connection, b"SELECT FROM pg_prepared_statements"))


def names(connection: PipelinedConnection) -> set[object]:
    return {name for (name,) in rows(connection, b"SELECT name FROM pg_prepared_statements")}


def prepare_and_forget(connection: PipelinedConnection) -> None:
    """Let the connection prepare a statement that its session then forgets."""
    for _ in range(2 * postgres.PREPARE_AFTER):
        rows(connection, ONE, {"n": 1})
    connection.execute("DO 'BEGIN EXECUTE $a$ DEALLOCATE ALL $a$; END'")


def test_each_statement_of_a_pipeline_has_its_own_answer(connection: PipelinedConnection) -> None:
    for _ in range(2 * postgres.PREPARE_AFTER):
        requests = [connection.later(ONE, {"n": n}) for n in range(20)]
        written = connection.later(b"INSERT INTO seen SELECT unnest(%(n)b::int[])", {"n": [1, 2]})
        assert rows(connection, b"SELECT %(t)s::text, %(b)s", {"t": "é", "b": b"\0"}) == [("é", b"\0")]
        assert [request.rows() for request in requests] == [[(n,)] for n in range(20)]
        assert written.count() == 2
    assert prepared(connection) > 0


def test_a_parameter_that_occurs_twice_is_sent_once(connection: PipelinedConnection) -> None:
    assert rows(connection, b"SELECT %(a)s::int8 + %(b)s::int8 * %(a)s::int8", {"a": 3, "b": 5}) == [(18,)]


def test_answers_larger_than_all_buffers_arrive_while_requests_are_sent(connection: PipelinedConnection) -> None:
    data = bytes(3_000_000)
    requests = [connection.later(b"SELECT %(data)s::bytea", {"data": data}) for _ in range(8)]
    assert all(request.rows() == [(data,)] for request in requests)


def test_a_cursor_runs_after_the_statements_that_were_requested(connection: PipelinedConnection) -> None:
    connection.later(b"BEGIN")
    connection.execute("INSERT INTO seen VALUES (1)")
    connection.run(b"ROLLBACK")
    assert rows(connection, b"SELECT count(*) FROM seen") == [(0,)]


def test_the_first_error_of_a_pipeline_is_raised_and_nothing_of_it_stays(connection: PipelinedConnection) -> None:
    connection.later(b"INSERT INTO seen VALUES (1)")
    connection.later(b"SELECT 1 / %(n)s::int", {"n": 0})
    connection.later(b"SELECT nothing")
    with pytest.raises(psycopg.errors.DivisionByZero):
        connection.run(b"INSERT INTO seen VALUES (2)")
    assert rows(connection, b"SELECT count(*) FROM seen") == [(0,)]


def test_a_transaction_with_an_error_is_not_committed(connection: PipelinedConnection) -> None:
    connection.later(b"BEGIN")
    connection.later(b"INSERT INTO seen VALUES (1)")
    connection.later(b"INSERT INTO seen VALUES (%(n)s)", {"n": 1 << 40})
    with pytest.raises(psycopg.errors.NumericValueOutOfRange):
        connection.run(b"COMMIT")
    assert connection.pgconn.transaction_status == TransactionStatus.INERROR
    connection.rollback()
    assert rows(connection, b"SELECT count(*) FROM seen") == [(0,)]


def test_statements_that_the_session_forgot_are_prepared_again(connection: PipelinedConnection) -> None:
    prepare_and_forget(connection)
    assert rows(connection, ONE, {"n": 2}) == [(2,)]
    prepare_and_forget(connection)
    connection.later(b"BEGIN")
    connection.later(b"INSERT INTO seen VALUES (1)")
    assert rows(connection, ONE, {"n": 3}) == [(3,)]
    connection.run(b"COMMIT")
    assert rows(connection, b"SELECT count(*) FROM seen") == [(1,)]


def test_inserted_values_arrive(connection: PipelinedConnection) -> None:
    types = {"a": "int2", "b": "int4", "c": "bool", "d": "text", "e": "bytea"}
    connection.run(b"CREATE TEMP TABLE kinds (a int2, b int4, c bool, d text, e bytea)")
    row = (-7, 1 << 30, True, "é", b"\0")
    for _ in range(3):
        connection.insert(b"INSERT INTO kinds VALUES (%(a)s, %(b)s, %(c)s, %(d)s, %(e)s)", types, row)
    assert rows(connection, b"SELECT * FROM kinds") == [row] * 3
    connection.run(b"DELETE FROM kinds")
    others = [row, (1, -1, False, "", b"")]
    arrays = {name: f"{kind}[]" for name, kind in types.items()}
    text = b"INSERT INTO kinds SELECT * FROM unnest(%(a)b::int2[], %(b)b::int4[], %(c)b::bool[], %(d)b::text[], %(e)b::bytea[])"
    connection.insert(text, arrays, list(zip(*others)))
    assert rows(connection, b"SELECT * FROM kinds") == others
    assert prepared(connection) > 0


def test_an_insert_raises_the_error_of_the_server(connection: PipelinedConnection) -> None:
    for text in (b"INSERT INTO seen VALUES (1 / %(n)s)", b"INSERT INTO nowhere VALUES (%(n)s)"):
        for _ in range(2):
            with pytest.raises((psycopg.errors.DivisionByZero, psycopg.errors.UndefinedTable)):
                connection.insert(text, {"n": "int4"}, [0])
    assert rows(connection, ONE, {"n": 1}) == [(1,)]


def test_an_insert_that_the_session_forgot_is_prepared_again(connection: PipelinedConnection) -> None:
    for n in range(3):
        connection.insert(b"INSERT INTO seen VALUES (%(n)s)", {"n": "int4"}, [n])
        connection.execute("DEALLOCATE ALL")
        connection.later(b"BEGIN")
        connection.insert(b"INSERT INTO seen VALUES (%(n)s)", {"n": "int4"}, [10 + n])
        connection.run(b"COMMIT")
    assert rows(connection, b"SELECT n FROM seen ORDER BY n") == [(0,), (1,), (2,), (10,), (11,), (12,)]


def test_names_of_prepared_inserts_are_used_once(connection: PipelinedConnection) -> None:
    texts = [b"INSERT INTO seen VALUES (%(n)s)", b"INSERT INTO seen VALUES (1 + %(n)s)"]
    for text in texts:
        connection.insert(text, {"n": "int4"}, [1])
    connection.execute("DEALLOCATE airflow_mq_0")
    for text in texts:
        connection.insert(text, {"n": "int4"}, [1])
    assert rows(connection, b"SELECT n FROM seen ORDER BY n") == [(1,), (1,), (2,), (2,)]


def test_a_rollback_keeps_what_is_prepared(connection: PipelinedConnection) -> None:
    for _ in range(2 * postgres.PREPARE_AFTER):
        rows(connection, ONE, {"n": 1})
        connection.insert(b"INSERT INTO seen VALUES (%(n)s)", {"n": "int4"}, [1])
    before = names(connection)
    for fails in (False, True):
        connection.run(b"BEGIN")
        if fails:
            with pytest.raises(psycopg.errors.DivisionByZero):
                connection.run(b"SELECT 1 / 0")
        connection.rollback()
        assert connection.pgconn.transaction_status == TransactionStatus.IDLE
        assert rows(connection, ONE, {"n": 2}) == [(2,)]
        connection.insert(b"INSERT INTO seen VALUES (%(n)s)", {"n": "int4"}, [2])
    assert names(connection) >= before
    assert before


def test_an_insert_is_prepared_once_more_after_all_statements_were_dropped(connection: PipelinedConnection) -> None:
    text = b"INSERT INTO seen VALUES (%(n)s)"
    connection.insert(text, {"n": "int4"}, [1])
    rows(connection, ONE, {"n": 1})
    # The driver drops all statements after a change of the schema, and after a pipeline with an error.
    connection.run(b"CREATE TEMP TABLE dropped ()")
    for _ in range(2 * postgres.PREPARE_AFTER):
        rows(connection, ONE, {"n": 1})
    connection.run(b"DROP TABLE dropped")
    for n in range(5):
        for _ in range(2 * postgres.PREPARE_AFTER):
            rows(connection, ONE, {"n": n})
        connection.insert(text, {"n": "int4"}, [n])
    assert "airflow_mq_1" in names(connection)


def test_few_statements_stay_prepared(connection: PipelinedConnection) -> None:
    connection.prepared_max = 5
    for n in range(20):
        for _ in range(2 * postgres.PREPARE_AFTER):
            assert rows(connection, b"SELECT %d, %%(n)s::int8" % n, {"n": n}) == [(n, n)]
    connection.execute("SELECT 'the next statement makes room for itself'")
    assert prepared(connection) == 5


def test_statements_that_were_dropped_are_not_sent(connection: PipelinedConnection) -> None:
    connection.later(b"INSERT INTO seen VALUES (1)")
    connection.rollback()
    assert rows(connection, b"SELECT count(*) FROM seen") == [(0,)]


def test_any_use_of_the_connection_sends_what_was_requested_before(connection: PipelinedConnection) -> None:
    for use in (
        lambda: connection.execute("SELECT 1"),
        lambda: connection.run(b"INSERT INTO seen SELECT 2"),
        lambda: connection.insert(b"INSERT INTO seen VALUES (%(n)s)", {"n": "int4"}, [2]),
        lambda: connection.run(b"INSERT INTO seen SELECT 3"),
    ):
        written = connection.later(b"INSERT INTO seen SELECT max(n) + 1 FROM (SELECT n FROM seen UNION SELECT 0) s (n)")
        use()
        assert written.count() == 1
    assert rows(connection, b"SELECT n FROM seen ORDER BY n") == [(1,), (2,), (2,), (2,), (3,), (3,), (4,)]


def test_an_answer_of_a_pipeline_larger_than_all_buffers_arrives(connection: PipelinedConnection) -> None:
    data = bytes(9_000_000)
    large = connection.later(b"SELECT %(data)s::bytea || %(data)s::bytea", {"data": data})
    assert rows(connection, ONE, {"n": 1}) == [(1,)]
    assert large.rows() == [(data + data,)]


def test_the_error_of_a_statement_in_a_pipeline_is_raised_whatever_follows(connection: PipelinedConnection) -> None:
    for begin in (b"BEGIN", b"SELECT 1"):
        connection.later(begin)
        connection.later(b"SELECT 1 / %(n)s::int", {"n": 0})
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.run(b"INSERT INTO seen VALUES (1)")
        connection.rollback()
    assert rows(connection, b"SELECT count(*) FROM seen") == [(0,)]


def test_statements_that_an_error_kept_from_being_prepared_are_prepared_later(connection: PipelinedConnection) -> None:
    for _ in range(postgres.PREPARE_AFTER):
        rows(connection, ONE, {"n": 1})
    connection.later(b"SELECT 1 / %(n)s::int", {"n": 0})
    with pytest.raises(psycopg.errors.DivisionByZero):
        rows(connection, ONE, {"n": 1})
    # Within a transaction, nothing can be run again.
    connection.run(b"BEGIN")
    for n in range(2 * postgres.PREPARE_AFTER):
        assert rows(connection, ONE, {"n": n}) == [(n,)]
    assert prepared(connection) > 0


def test_the_same_statement_twice_in_a_pipeline(connection: PipelinedConnection) -> None:
    for _ in range(2 * postgres.PREPARE_AFTER):
        first, second = connection.later(ONE, {"n": 1}), connection.later(ONE, {"n": 2})
        third = rows(connection, ONE, {"n": 3})
        assert (first.rows(), second.rows(), third) == ([(1,)], [(2,)], [(3,)])


def test_a_connection_that_ends_with_one_statement_raises_its_reason(connection: PipelinedConnection) -> None:
    with pytest.raises(psycopg.errors.AdminShutdown):
        rows(connection, b"SELECT pg_terminate_backend(pg_backend_pid())")


def test_a_connection_that_ends_in_a_pipeline_raises_its_reason(connection: PipelinedConnection) -> None:
    connection.later(ONE, {"n": 1})
    connection.later(b"SELECT pg_terminate_backend(pg_backend_pid())")
    with pytest.raises(psycopg.errors.AdminShutdown):
        rows(connection, ONE, {"n": 2})
    with pytest.raises(psycopg.OperationalError):
        rows(connection, ONE, {"n": 3})
