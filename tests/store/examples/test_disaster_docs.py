"""The dump and restore of docs/how-to/upgrade.md: a dump while a block runs is restored, and the queue continues."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from airflow_mq import MessageQueue
from airflow_mq.engine.store import parse, upgrade
from tests.postgres_server import Server

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "upgrade.md"


@pytest.mark.postgres
def test_a_dump_is_restored(postgres_server: Server) -> None:
    (line,) = re.findall(r"^pg_dump (.*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    with postgres_server.database() as lost, postgres_server.database() as restored:
        upgrade(parse(lost))
        with MessageQueue(lost) as queue:
            queue.enqueue_messages("acme", [b"%d" % number for number in range(100)])
            queue.payloads.enqueue("birch", b"x" * 200_000)
            queue.blocks.plan(lease=0.001)
            postgres_server.run("pg_dump", *(word.replace("$AIRFLOW_MQ_STORE", lost) for word in shlex.split(line)))
        postgres_server.run("pg_restore", f"--dbname={restored}", "backup.dump")
        with MessageQueue(restored) as queue:
            assert queue.check() == []
            block = queue.blocks.plan()
            assert block.messages == 101, "the block of before is past its lease, and its messages returned"
            queue.blocks.report(block, [batch.answer() for batch in block.batches()])
            assert queue.blocks.settle(block).processed == 101
