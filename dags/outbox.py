"""## Rows and messages in one transaction, and two stages

`order` writes its rows and enqueues in one transaction: both are stored, or neither. `verify` processes each message
and passes it on, in one transaction with its verdict; `publish` completes it. At every commit a message is in exactly
one place. A task that is killed holds one message for a minute; its retry, or the next run, continues from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow.sdk import Param, dag, task

FORM = {"orders": Param(3, type="integer", minimum=0, title="Orders", description="Orders that a run places.")}


@contextmanager
def shop() -> Iterator[tuple[Any, Any]]:
    """Open the queue, and an engine for rows in the same database."""
    from airflow_mq.hooks import MessageQueueHook

    hook = MessageQueueHook()
    engine = hook.get_sqlalchemy_engine()
    try:
        with hook.queue() as queue:
            yield queue, engine
    finally:
        engine.dispose()


@dag(schedule=None, params=FORM, doc_md=__doc__, tags=["airflow_mq"], default_args={"retries": 2})
def outbox() -> None:
    @task
    def order(params: Any = None, run_id: Any = None) -> None:
        """Place orders; a retry skips those that are placed."""
        from sqlalchemy import text

        insert = text("INSERT INTO shop_order VALUES (:run, :n) ON CONFLICT DO NOTHING")
        with shop() as (queue, engine):
            with engine.begin() as connection:
                connection.execute(text("CREATE TABLE IF NOT EXISTS shop_order (run text, n integer, UNIQUE (run, n))"))
            for number in range(params["orders"]):
                with engine.begin() as connection:
                    if connection.execute(insert, {"run": run_id, "n": number}).rowcount:
                        queue.commands(connection).push("shop/verify", f"order {number} of {run_id}".encode()).execute()

    @task
    def stage(origin: str, rows: str, to: str | None) -> None:
        """Write a row for each message, and pass it on or complete it, in one transaction."""
        from sqlalchemy import column, insert, table, text

        with shop() as (queue, engine):
            with engine.begin() as connection:
                connection.execute(text(f"CREATE TABLE IF NOT EXISTS {rows} (what text UNIQUE)"))
            for token in queue.leases.view(origin, lease=60):
                what = token.fetch().decode()
                with engine.begin() as connection:
                    connection.execute(insert(table(rows, column("what"))), {"what": what})
                    commands = queue.commands(connection)
                    done = commands.complete(token)
                    (commands.push(to, done) if to else done).execute()

    verify = stage.override(task_id="verify")("shop/verify", "shop_verdict", "shop/publish")
    order() >> verify >> stage.override(task_id="publish")("shop/publish", "shop_published", None)


outbox()
