"""Only the owner can read a SQLite store and the payload files: whatever the umask of the process allows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_mq import MessageQueue
from airflow_mq.engine.store import parse, upgrade


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """A process that shares all files that it does not protect."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.suffix or path.name: path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()}


def test_a_store_and_its_payload_files(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'store.db'}"
    upgrade(parse(uri))
    with MessageQueue(uri) as queue:
        queue.admin.change_ring(blob_path=str(tmp_path / "blobs"))
        written: dict[str, int] = {}

        def pieces() -> Iterator[bytes]:
            for _ in range(2):
                yield b"x" * (5 << 20)
                written.update(modes(tmp_path))

        queue.payloads.enqueue("acme", pieces())
        written.update(modes(tmp_path))
    assert written == dict.fromkeys((".db", ".db-wal", ".db-shm", ".part", ".blob"), 0o600)


def test_a_file_that_is_there_keeps_its_rights(tmp_path: Path) -> None:
    """An operator may share a store with a group."""
    path = tmp_path / "store.db"
    path.touch(0o660)
    upgrade(parse(f"sqlite:///{path}"))
    upgrade(parse(f"sqlite:///{path}"))
    with MessageQueue(f"sqlite:///{path}"):
        assert set(modes(tmp_path).values()) == {0o660}
