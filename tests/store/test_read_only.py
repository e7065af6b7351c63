"""Read-only SQLite files and folders: writers get an error with the path and the remedy; readers read where they can."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_mq import MessageQueue
from airflow_mq.engine.rules.errors import StoreReadOnly, StoreUnreachable
from airflow_mq.engine.store import parse, upgrade
from tests.disk import can_mount, small_disk
from tests.proofs.crash.children import run_child

NOBODY = 65_534
WRITES: list[Callable[[MessageQueue], object]] = [
    lambda queue: queue.enqueue_message("acme", b"lost"),
    lambda queue: queue.enqueue_messages("acme", [b"lost"] * 200),
    lambda queue: queue.blocks.plan(),
    lambda queue: queue.service_queues(lambda delivery: None),
]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder with a store of one message; every user may search the folders above."""
    above = Path(tempfile.mkdtemp(prefix="mq-read-only-"))
    above.chmod(0o755)
    (above / "store").mkdir()
    fill(above / "store")
    yield above / "store"
    (above / "store").chmod(0o755)
    shutil.rmtree(above)


def fill(folder: Path) -> None:
    upgrade(parse(uri_of(folder)))
    with MessageQueue(uri_of(folder)) as queue:
        queue.enqueue_message("acme", b"kept")


def uri_of(folder: Path) -> str:
    return f"sqlite:///{folder / 'queue.db'}"


def hand_over(folder: Path, mode: int, file_mode: int) -> None:
    """Set the modes of a folder and its files, and make them belong to a user to whom modes apply."""
    for path in folder.iterdir():
        path.chmod(file_mode)
    folder.chmod(mode)
    if os.geteuid() == 0:
        for path in (*folder.iterdir(), folder):
            os.chown(path, NOBODY, NOBODY)


def as_its_owner(work: Callable[[], None]) -> None:
    """Run `work` in a process of that user."""

    def unprivileged(probe: Callable[[str], None]) -> None:
        if os.geteuid() == 0:
            os.setuid(NOBODY)
        work()

    run_child(unprivileged)


def refuse_writes(folder: Path, place: Path) -> None:
    """Require of each write and of an upgrade an error with the read-only place and the remedy."""
    text = f"cannot write to {re.escape(repr(str(place)))}.*give this user write access"
    with pytest.raises(StoreReadOnly, match=text):
        upgrade(parse(uri_of(folder)))
    for write in WRITES:
        with pytest.raises(StoreReadOnly, match=text), MessageQueue(uri_of(folder)) as queue:
            write(queue)


def require_reads(folder: Path) -> None:
    with MessageQueue(uri_of(folder)) as queue:
        assert [message.payload for message in queue.inspect.peek("acme")] == [b"kept"]
        assert queue.footprint("acme").count == 1 and queue.check() == []


def test_a_read_only_file_can_be_read(folder: Path) -> None:
    hand_over(folder, 0o755, 0o400)
    as_its_owner(lambda: refuse_writes(folder, folder / "queue.db"))
    as_its_owner(lambda: require_reads(folder))


def test_a_read_only_folder_is_named(folder: Path) -> None:
    hand_over(folder, 0o555, 0o600)
    as_its_owner(lambda: refuse_writes(folder, folder))

    def read() -> None:
        # A reader of a log needs its shared memory, which it could not create.
        with pytest.raises(StoreReadOnly, match="to their folder"), MessageQueue(uri_of(folder)) as queue:
            queue.footprint("acme")

    as_its_owner(read)


def test_a_file_in_use_in_a_read_only_folder_can_be_read_and_written(folder: Path) -> None:
    with MessageQueue(uri_of(folder)) as queue:
        queue.footprint("acme")
        hand_over(folder, 0o555, 0o600)
        as_its_owner(lambda: require_reads(folder))

        def write() -> None:
            with MessageQueue(uri_of(folder)) as other:
                other.enqueue_message("acme", b"another one")

        as_its_owner(write)
        assert queue.footprint("acme").count == 2


def test_a_file_without_rights_is_named(folder: Path) -> None:
    hand_over(folder, 0o755, 0o000)

    def use() -> None:
        text = f"{re.escape(repr(str(folder / 'queue.db')))} cannot be used.*check that this user may read and write"
        with pytest.raises(StoreUnreachable, match=text), MessageQueue(uri_of(folder)) as queue:
            queue.footprint("acme")

    as_its_owner(use)


def test_a_disk_that_is_mounted_read_only_is_named_and_usable_again() -> None:
    if not can_mount():
        pytest.skip("needs the right to mount a tmpfs")
    with small_disk(20) as folder:
        fill(folder)
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        refuse_writes(folder, folder / "queue.db")
        subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)
        require_reads(folder)
        with MessageQueue(uri_of(folder)) as queue:
            assert queue.service_queues(lambda delivery: None).processed == 1
