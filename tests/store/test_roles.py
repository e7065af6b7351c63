"""The statements of docs/security.md make a role that sends and services, and makes no table."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from airflow_mq import MessageQueue
from airflow_mq.store import parse, upgrade
from airflow_mq.store.postgres import conninfo

PAGE = Path(__file__).parents[2] / "docs" / "security.md"


@pytest.mark.postgres
@pytest.mark.empty_store
def test_a_role_of_the_documentation_can_do_what_tasks_do_and_no_more(pg_uri: str) -> None:
    (statements,) = re.findall(r"```sql\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    owner = parse(pg_uri)
    upgrade(owner)
    role = f"queue_user_{owner.database}"  # roles are of the whole server, which other tests share
    statements = statements.replace("queue_user", f'"{role}"')
    user = replace(owner, user=role, password="change me")
    with psycopg.connect(autocommit=True, **conninfo(owner)) as connection:
        try:
            connection.execute(statements.encode())
            with MessageQueue(user.uri) as queue:
                queue.enqueue_messages("acme", [b"one", b"two"])
                queue.enqueue_message("acme", b"three", key="3")
                queue.payloads.enqueue("acme", b"x" * 200_000)
                queue.admin.set_origin("acme", share=2)
                block = queue.blocks.plan()
                queue.blocks.report(block, [batch.answer() for batch in block.batches()])
                assert queue.blocks.settle(block).processed == 4
                queue.admin.housekeep()
                assert queue.check() == []
            with psycopg.connect(autocommit=True, **conninfo(user)) as theirs:
                for refused in (
                    "CREATE TABLE airflow_mq.mine (x int)",
                    "DROP TABLE airflow_mq.migration",
                    "INSERT INTO airflow_mq.migration (version, name, checksum) VALUES (99, 'x', 'x')",
                    "UPDATE airflow_mq.migration SET version = 99",
                    "DELETE FROM airflow_mq.migration",
                    "TRUNCATE airflow_mq.migration",
                ):
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        theirs.execute(refused)
        finally:
            connection.execute(f'DROP OWNED BY "{role}"'.encode())
            connection.execute(f'DROP ROLE "{role}"'.encode())
