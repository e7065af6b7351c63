"""Programs without the package that write rows of their own, and send with SQL in the same transaction, under a quota."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from airflow_mq import MessageQueue
from airflow_mq.engine.store import StoreAddress
from airflow_mq.engine.store.roles import grant
from tests.store.test_roles import Roles, connect, owner, roles

__all__ = ["owner", "roles"]
pytestmark = pytest.mark.postgres
#: More rows than a check reads before it writes sums.
MANY = 130
Connection = psycopg.Connection[Any]


@pytest.fixture
def shop(owner: StoreAddress, roles: Roles) -> StoreAddress:
    """The address of a program that has a table of its own, and may send as `acme`."""
    user = roles("shop")
    grant(owner, "sender", str(user.user), origins="acme|acme/*", priority="regular")
    with closing(connect(owner)) as connection:
        connection.execute(SQL("CREATE SCHEMA shop AUTHORIZATION {}").format(Identifier(str(user.user))))
    with closing(connect(user)) as connection:
        connection.execute("CREATE TABLE shop.invoice (number integer PRIMARY KEY)")
    return user


@pytest.fixture
def program(shop: StoreAddress) -> Iterator[Connection]:
    """A connection of the program, which begins its transactions itself."""
    with closing(connect(shop)) as connection:
        yield connection


@pytest.fixture
def queue(owner: StoreAddress) -> Iterator[MessageQueue]:
    """A ring in which `acme` may store 1,000 bytes."""
    with MessageQueue(owner.uri) as queue:
        queue.admin.set_origin("acme", quota=1_000)
        yield queue
        assert queue.check() == []


def order(connection: Connection, number: int, size: int, **values: Any) -> None:
    """Write an invoice, then send a message of a size."""
    connection.execute("INSERT INTO shop.invoice VALUES (%s)", (number,))
    named = "".join(f", {name} => %({name})s" for name in values)
    text = f"SELECT airflow_mq.send('default', 'acme', %(payload)b{named})"
    connection.execute(text.encode(), {"payload": b"x" * size, **values})


def invoices(connection: Connection) -> list[int]:
    return [number for (number,) in connection.execute("SELECT number FROM shop.invoice ORDER BY 1")]


def stored(queue: MessageQueue) -> int:
    with queue.store.loose() as unit:
        (found,) = queue.store.fullness(unit, queue.session.ring_id, {"acme": 0}, has_paths=False)
    return found.stored


def sums(queue: MessageQueue) -> list[tuple[int, int]]:
    """Return the sums of inbox rows: the id below which rows are in one, and their bytes."""
    with queue.store.reading() as unit:
        return unit.connection.execute(  # type: ignore[attr-defined, no-any-return]
            "SELECT below, total FROM airflow_mq.inbox_sum ORDER BY below"
        ).fetchall()


def full(connection: Connection, number: int, size: int, lacks: int, **values: Any) -> None:
    """Check that an order is refused by its own SQLSTATE, with the bytes that must drain and no figures of others."""
    with pytest.raises(psycopg.Error) as error, connection.transaction():
        order(connection, number, size, **values)
    assert error.value.sqlstate == "MQ107"
    assert error.value.diag.message_primary == (
        f"queue 'acme' is full: {lacks} bytes must drain before this call of {size} bytes"
    )


def test_orders_fill_a_queue_up_to_its_quota_and_are_undone_whole_beyond(
    program: Connection, queue: MessageQueue
) -> None:
    for number in range(9):
        with program.transaction():
            order(program, number, 100)
    assert stored(queue) == 900
    full(program, 9, 101, 1)
    full(program, 9, 101, 1, key="order 9")
    full(program, 9, 101, 1, not_before="2100-01-01")
    assert invoices(program) == list(range(9)) and stored(queue) == 900
    # The key of a refused order was not used.
    with program.transaction():
        order(program, 9, 100, key="order 9")
    with program.transaction():
        order(program, 10, 100, key="order 9")
    assert stored(queue) == 1_000 and invoices(program) == list(range(11))
    full(program, 11, 1, 1)
    queue.service_queues(lambda delivery: None)
    assert stored(queue) == 0
    with program.transaction():
        order(program, 11, 1_000)


def test_a_transaction_counts_what_it_sent_itself_and_a_rollback_leaves_nothing(
    program: Connection, queue: MessageQueue
) -> None:
    with pytest.raises(psycopg.Error) as error, program.transaction():
        for number in range(11):
            order(program, number, 100)
    assert error.value.sqlstate == "MQ107" and invoices(program) == [] and stored(queue) == 0
    with program.transaction(force_rollback=True):
        for number in range(10):
            order(program, number, 100)
    assert invoices(program) == [] and stored(queue) == 0
    with program.transaction():
        order(program, 1, 1_000)
    assert stored(queue) == 1_000


def test_an_order_that_is_refused_in_a_savepoint_leaves_the_others(program: Connection, queue: MessageQueue) -> None:
    with program.transaction():
        order(program, 1, 600)
        full(program, 2, 401, 1)
        with program.transaction(force_rollback=True):
            order(program, 3, 400)
            full(program, 4, 1, 1)
        # What was rolled back to a savepoint counts no longer.
        with program.transaction():
            order(program, 5, 300)
        order(program, 6, 100)
        full(program, 7, 1, 1)
        assert stored(queue) == 0
    assert invoices(program) == [1, 5, 6] and stored(queue) == 1_000
    assert [len(message.payload or b"") for message in queue.inspect.peek("acme")] == [600, 300, 100]


def test_a_trigger_that_sends_refuses_the_row_of_its_table(program: Connection, queue: MessageQueue) -> None:
    program.execute(
        "CREATE FUNCTION shop.enqueue() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "PERFORM airflow_mq.send('default', 'acme', convert_to(repeat('x', NEW.number), 'UTF8')); RETURN NEW; END $$"
    )
    program.execute("CREATE TRIGGER enqueue AFTER INSERT ON shop.invoice FOR EACH ROW EXECUTE FUNCTION shop.enqueue()")
    program.execute("INSERT INTO shop.invoice VALUES (300), (700)")
    refused = "queue 'acme' is full: 1 bytes must drain before this call of 1 bytes"
    with pytest.raises(psycopg.Error, match=refused) as error:
        program.execute("INSERT INTO shop.invoice VALUES (1)")
    assert error.value.sqlstate == "MQ107"
    assert invoices(program) == [300, 700] and stored(queue) == 1_000


def test_orders_are_counted_between_the_sums_of_other_senders(
    program: Connection, shop: StoreAddress, queue: MessageQueue
) -> None:
    """An order writes no sum. Open, committed or rolled back, no sum of another sender misses it or counts it twice."""
    queue.admin.set_origin("acme", quota=100_000)
    with closing(connect(shop)) as other:

        def send(count: int) -> None:
            for _ in range(count):
                other.execute("SELECT airflow_mq.send('default', 'acme', 'abc')")

        for number in range(MANY):
            with program.transaction():
                order(program, number, 2)
        assert sums(queue) == [] and stored(queue) == 2 * MANY
        send(2)
        before = sums(queue)
        assert len(before) > 1 and stored(queue) == 2 * MANY + 6
        with program.transaction(force_rollback=True):
            order(program, 1_000, 50)
            send(MANY)
        with program.transaction():
            order(program, 1_001, 50)
            with program.transaction(force_rollback=True):
                order(program, 1_002, 50)
            send(MANY)
            assert stored(queue) == 2 * MANY + 6 + 2 * 3 * MANY
        exact = 2 * MANY + 6 + 2 * 3 * MANY + 50
        assert stored(queue) == exact
        send(2)
        assert len(sums(queue)) > len(before) and stored(queue) == exact + 6
        queue.service_queues(lambda delivery: None)
        assert stored(queue) == 0


def test_no_sum_passes_a_message_of_an_open_transaction(
    program: Connection, shop: StoreAddress, queue: MessageQueue
) -> None:
    """A program that wrote before another one began to send has no number by which sums could wait for that one."""
    queue.admin.set_origin("acme", quota=100_000)
    text = "SELECT airflow_mq.send('default', 'acme', 'abc')"
    with closing(connect(shop)) as late, closing(connect(shop)) as third:
        program.execute("BEGIN")
        program.execute("INSERT INTO shop.invoice VALUES (1)")
        late.execute("BEGIN")
        late.execute("INSERT INTO shop.invoice VALUES (2)")
        late.execute("SELECT airflow_mq.send('default', 'acme', 'a message that is committed late')")
        for _ in range(2 * MANY):
            program.execute(text)
        program.execute("COMMIT")
        for _ in range(MANY):
            third.execute(text)
        late.execute("COMMIT")
    assert stored(queue) == 9 * MANY + 32


def test_sums_of_a_transaction_that_sends_first_are_rolled_back_with_it(
    program: Connection, queue: MessageQueue
) -> None:
    queue.admin.set_origin("acme", quota=100_000)
    text = "SELECT airflow_mq.send('default', 'acme', 'abc')"
    for number in range(MANY):
        with program.transaction():
            order(program, number, 3)
    with program.transaction(force_rollback=True):
        program.execute(text)
        program.execute("INSERT INTO shop.invoice VALUES (1000)")
    assert sums(queue) == [] and stored(queue) == 3 * MANY
    with program.transaction():
        with program.transaction(force_rollback=True):
            program.execute(text)
        order(program, 1_000, 3)
    assert sums(queue) == [] and stored(queue) == 3 * MANY + 3
    with program.transaction():
        program.execute(text)
        order(program, 1_001, 3)
    # The first sum is the mark from which the next ones count.
    assert len(sums(queue)) == 1 and stored(queue) == 3 * MANY + 9
    program.execute(text)
    assert len(sums(queue)) > 1 and stored(queue) == 3 * MANY + 12


def test_open_transactions_do_not_count_each_other(
    program: Connection, shop: StoreAddress, queue: MessageQueue
) -> None:
    """The quota is exceeded by what the transactions that were open at the same time sent, and by no later call."""
    with closing(connect(shop)) as other:
        with program.transaction(), other.transaction():
            order(program, 1, 600)
            order(program, 2, 400)
            order(other, 3, 500)
            order(other, 4, 500)
        assert stored(queue) == 2_000
        full(other, 5, 1, 1_001)


def test_a_transaction_with_one_snapshot_counts_what_was_there_at_its_start(
    program: Connection, shop: StoreAddress, queue: MessageQueue
) -> None:
    with closing(connect(shop)) as other:
        with program.transaction():
            program.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
            order(program, 1, 400)
            with other.transaction():
                order(other, 2, 600)
            full(program, 3, 601, 1)
        full(program, 3, 1, 1)
    assert stored(queue) == 1_000
