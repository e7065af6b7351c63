"""Commands in a transaction, as docs/sending.md has them, with SQLAlchemy, psycopg, and the hook of Airflow."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
import sqlalchemy

from airflow_mq import MessageQueue
from airflow_mq.engine.queue.sending.commands import Commands
from airflow_mq.engine.store import parse, upgrade
from tests.store.queue.callers import STYLES, calling


def place_order(commands: Commands, connection: Any, number: int, fails: bool = False) -> None:
    """Write a row and push a message in the open transaction, as a task does."""
    text = f"INSERT INTO business VALUES ('{number}')"
    connection.exec_driver_sql(text) if hasattr(connection, "exec_driver_sql") else connection.execute(text)
    commands.push("orders", b"order %d" % number).execute()
    if fails:
        raise RuntimeError("the task failed after both")


@pytest.mark.parametrize("style", STYLES)
def test_an_outbox(store_uri: str, style: str) -> None:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue, calling(store_uri, style) as caller:
        commands = queue.commands(caller.connection)
        for number in range(6):
            try:
                place_order(commands, caller.connection, number, fails=number % 2 == 1)
                caller.commit()
            except RuntimeError:
                caller.rollback()
        assert caller.rows() == ["0", "2", "4"]
        assert [one.payload for one in queue.inspect.peek("orders")] == [b"order 0", b"order 2", b"order 4"]


@pytest.mark.parametrize("style", STYLES)
def test_a_pipeline_of_two_stages(store_uri: str, style: str) -> None:
    """At every commit each message is in exactly one place, and the rows show its stage."""
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue, calling(store_uri, style) as caller:
        queue.enqueue_messages("verify", [b"%d" % number for number in range(4)])

        def stage(origin: str, to: str | None) -> None:
            for token in queue.leases.view(origin):
                what = token.fetch().decode()
                commands = queue.commands(caller.connection)
                caller.run(f"INSERT INTO business VALUES ('{origin} {what}')")
                done = commands.complete(token)
                (commands.push(to, done) if to else done).execute()
                caller.commit()
                count = {name: queue.footprint(name).count for name in ("verify", "publish")}
                assert sum(count.values()) + sum(row.startswith("publish") for row in caller.rows()) == 4
                assert count["verify"] + sum(row.startswith("verify") for row in caller.rows()) == 4

        stage("verify", "publish")
        stage("publish", None)
        assert len(caller.rows()) == 8 and queue.check() == []
        queue.admin.housekeep()
        names = [event.name for event in queue.inspect.events()]
        assert names.count("Transferred") == names.count("Processed") == 4


@pytest.mark.airflow
def test_through_the_hook_of_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_mq.hooks import MessageQueueHook

    path = tmp_path / "store.db"
    upgrade(parse(f"sqlite:///{path}"))
    fields = {"host": None, "port": None, "login": None, "password": None, "schema": None}
    named = SimpleNamespace(**fields, extra=f'{{"path": "{path}"}}')
    monkeypatch.setattr(MessageQueueHook, "get_connection", lambda self, conn_id: named)
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")

    def task(number: int, fails: bool) -> None:
        with engine.begin() as connection, MessageQueueHook().commands(connection) as commands:
            place_order(commands, connection, number, fails)

    with calling(f"sqlite:///{path}", "driver") as caller:
        task(1, False)
        with pytest.raises(RuntimeError):
            task(2, True)
        assert caller.rows() == ["1"]
    engine.dispose()
    with MessageQueueHook().queue() as queue:
        assert [one.payload for one in queue.inspect.peek("orders")] == [b"order 1"]


@pytest.mark.postgres
def test_psycopg_as_its_users_write_it(pg_uri: str) -> None:
    upgrade(parse(pg_uri))
    with MessageQueue(pg_uri) as queue, psycopg.connect(pg_uri, autocommit=True) as connection:
        connection.execute("CREATE TABLE business (what text)")
        with pytest.raises(RuntimeError), connection.transaction():
            place_order(queue.commands(connection), connection, 1, fails=True)
        with connection.transaction():
            place_order(queue.commands(connection), connection, 2)
        assert [one.payload for one in queue.inspect.peek("orders")] == [b"order 2"]
