"""A SQLite file that is deleted or replaced while it is open takes no message, and no log is applied to another file."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from airflow_mq import MessageQueue
from airflow_mq.engine.rules.errors import CommitInDoubt, StoreMissing, StoreReplaced
from airflow_mq.engine.store import parse, schema_status, upgrade


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[MessageQueue]:
    """A queue with one message in the file and in its backup, and another one in the log."""
    uri = f"sqlite:///{tmp_path / 'store.db'}"
    upgrade(parse(uri))
    with MessageQueue(uri) as queue:
        queue.enqueue_message("acme", b"backed up")
        with closing(sqlite3.connect(tmp_path / "store.db")) as source, closing(sqlite3.connect(backup(queue))) as copy:
            source.backup(copy)
        queue.enqueue_message("acme", b"not backed up")
        yield queue


def place(queue: MessageQueue) -> Path:
    assert queue.store.address.path is not None
    return queue.store.address.path


def backup(queue: MessageQueue) -> Path:
    return place(queue).with_name("backup.db")


def payloads(queue: MessageQueue) -> list[bytes]:
    return [message.payload for message in queue.inspect.peek("acme")]


def delete(queue: MessageQueue) -> None:
    place(queue).unlink()


def replace(queue: MessageQueue) -> None:
    os.replace(backup(queue), place(queue))


@pytest.mark.parametrize("change", [delete, replace])
def test_nothing_is_acknowledged_or_read(queue: MessageQueue, change: Callable[[MessageQueue], None]) -> None:
    change(queue)
    error, text = (StoreMissing, "there is no file") if change is delete else (StoreReplaced, "was replaced")
    for use in (
        lambda: queue.enqueue_message("acme", b"lost"),
        lambda: queue.enqueue_messages("acme", [b"lost"] * 200),
        lambda: queue.footprint("acme"),
        queue.blocks.plan,
    ):
        with pytest.raises(error, match=text):
            use()


def test_no_command_is_written_into_it(queue: MessageQueue) -> None:
    with closing(sqlite3.connect(place(queue), isolation_level=None)) as connection:
        commands = queue.commands(connection)
        connection.execute("BEGIN IMMEDIATE")
        commands.push("acme", b"kept").execute()
        replace(queue)
        with pytest.raises(StoreReplaced, match="was replaced"):
            commands.push("acme", b"lost").execute()
        connection.execute("ROLLBACK")


def test_a_file_that_is_replaced_at_the_commit_is_in_doubt(queue: MessageQueue) -> None:
    queue.store.probe = lambda name: replace(queue) if name == "commit" else None
    with pytest.raises(CommitInDoubt, match="replaced by another one"):
        queue.enqueue_message("acme", b"lost")
    queue.store.probe = None


def test_the_log_of_another_file_is_never_applied(queue: MessageQueue) -> None:
    replace(queue)
    address = queue.store.address
    for use in (lambda: MessageQueue(address), lambda: schema_status(address), lambda: upgrade(address)):
        with pytest.raises(StoreReplaced, match="belongs to another file"):
            use()
    with pytest.raises(StoreReplaced, match="was replaced"):
        queue.footprint("acme")
    queue.close()
    for kind in ("wal", "shm"):
        os.rename(f"{address.path}-{kind}", f"{address.path}-{kind}.old")
    with MessageQueue(address) as restored:
        assert payloads(restored) == [b"backed up"]
        restored.enqueue_message("acme", b"later")
        assert restored.check() == []


def test_closing_a_file_that_was_replaced_leaves_the_log_of_the_new_one(queue: MessageQueue) -> None:
    replace(queue)
    for kind in ("wal", "shm"):
        os.unlink(f"{place(queue)}-{kind}")
    with MessageQueue(queue.store.address) as restored:
        restored.enqueue_message("acme", b"later")
        queue.close()
        assert os.path.exists(f"{place(queue)}-wal")
        restored.enqueue_message("acme", b"last")
        assert payloads(restored) == [b"backed up", b"later", b"last"]


def test_a_file_that_was_copied_with_its_log_is_taken(queue: MessageQueue, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    copy = tmp_path / "elsewhere" / "store.db"
    for kind in ("", "-wal"):
        shutil.copy2(f"{place(queue)}{kind}", f"{copy}{kind}")  # with attributes, as cp -a copies them
    with MessageQueue(f"sqlite:///{copy}") as copied:
        assert payloads(copied) == [b"backed up", b"not backed up"]
