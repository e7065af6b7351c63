"""Real faults of SQLite: the model of a disk, a short run of a power loss with its control, and all in `make soak`."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from .disk import Disk
from .recording import Change
from .scenarios import ROOT, SCENARIOS

STORE = "/store/queue.db"
#: Runs of each scenario in `make soak`.
SOAK_RUNS = {"power-loss": 1_000, "disk-full": 50, "killed-checkpoints": 100, "stopped-transactions": 10}


@pytest.mark.soak
@pytest.mark.crash
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_run(name: str) -> None:
    """Run a scenario in a program of its own, and require the result that is expected of it."""
    if not SCENARIOS[name].is_possible():
        pytest.skip(f"{name} needs {SCENARIOS[name].requirement}")
    runs = str(SOAK_RUNS.get(name, 20))
    command = [sys.executable, "-m", "lab.powerloss", "--scenario", name, "--runs", runs, "--seed", "2"]
    program = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert program.returncode == 0, program.stderr[-3_000:] + program.stdout


def write(offset: int, data: bytes) -> Change:
    return Change("W", STORE, 7, offset, data)


def disk_of(*changes: Change, lies: bool = False) -> Disk:
    """Return a disk on which a synced file has three sectors of a's, and then these changes."""
    disk = Disk(Path("/run"), lies)
    for change in (Change("C", STORE, 7, 0, b""), write(0, b"a" * 1_536), synced(), Change("S", "/store", 1, 0, b"")):
        disk.change(change)
    for change in changes:
        disk.change(change)
    return disk


def synced() -> Change:
    return Change("S", STORE, 7, 0, b"")


def losses(disk: Disk) -> set[bytes | None]:
    """Return the first byte of each sector after many power losses."""
    images = [disk.after_loss(random.Random(seed)).get(STORE) for seed in range(400)]
    return {None if image is None else image[::512] for image in images}


def test_a_synced_write_is_there() -> None:
    assert losses(disk_of(write(512, b"b" * 512), synced())) == {b"aba"}


def test_of_later_writes_any_sectors_are_there() -> None:
    changes = [write(0, b"b" * 512), write(1_024, b"c" * 512)]
    assert losses(disk_of(*changes)) == {b"aaa", b"baa", b"aac", b"bac"}


def test_a_sector_has_one_of_its_versions() -> None:
    assert losses(disk_of(write(0, b"b" * 512), write(0, b"c" * 512))) == {b"aaa", b"baa", b"caa"}


def test_a_new_size_may_be_there() -> None:
    assert losses(disk_of(Change("T", STORE, 7, 512, b""))) == {b"aaa", b"a"}


def test_an_unlink_may_be_there_until_its_folder_is_synced() -> None:
    unlink = Change("U", STORE, 0, 0, b"")
    assert losses(disk_of(unlink)) == {b"aaa", None}
    assert losses(disk_of(unlink, Change("S", "/store", 1, 0, b""))) == {None}


def test_a_rename_may_be_there() -> None:
    draft = "/store/queue.draft"
    create = [Change("C", draft, 8, 0, b""), Change("W", draft, 8, 0, b"new"), Change("S", draft, 8, 0, b"")]
    rename = Change("R", draft, 0, 0, STORE.encode())
    assert {image and image[:1] for image in losses(disk_of(*create, rename))} == {b"a", b"n"}


def test_a_disk_that_lies_may_lose_all() -> None:
    assert None in losses(disk_of(lies=True))


def test_the_world_outside_loses_nothing() -> None:
    disk = disk_of(Change("W", "/run/sender-0.journal", 9, 0, b"accepted"))
    assert disk.after_loss(random.Random(1))["/run/sender-0.journal"] == b"accepted"
