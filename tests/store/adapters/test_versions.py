"""Object stores that change under the reader's hands: no version is lost, whenever it was written."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from itertools import count
from typing import Any

import fsspec
import pytest

from airflow_mq import MessageQueue
from airflow_mq.adapters import Received, receive
from airflow_mq.adapters.landing import LandingFolder, LandingPrefix
from airflow_mq.engine.rules.errors import InvalidInput
from tests.store.adapters.conftest import contents
from tests.store.adapters.memory import MemoryVersions

#: What a landing calls of a file system.
CALLS = ("call_s3", "exists", "info", "ls", "makedirs", "open", "pipe_file", "rm_file", "cp_file", "mv", "find")


class Meddler:
    """Writes to a store right before one of the calls that a landing makes."""

    def __init__(self, files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls, self.write, self.at = 0, lambda: None, -1
        for name in CALLS:
            if hasattr(files, name):
                monkeypatch.setattr(files, name, self._before(getattr(files, name)))

    def _before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **how: Any) -> Any:
            at, self.calls = self.calls, self.calls + 1
            if at == self.at:
                self.at = -1
                self.write()
            return call(*args, **how)

        return called

    def set(self, at: int, write: Callable[[], None]) -> None:
        self.calls, self.at, self.write = 0, at, write


def meddle_at_each_step(
    queue: MessageQueue, files: Any, root: str, meddler: Meddler, new: bytes = b"two", **how: Any
) -> int:
    """Write a second version at each step in turn; return how many steps there are."""
    # Made before: what it asks the store for then is not about the object.
    for step in count():
        origin = f"o{step}"
        path = f"{root}/{step}/{origin}/1"
        files.pipe_file(path, b"one")
        look = LandingPrefix(files, f"{root}/{step}", "{origin}/*", **how)
        meddler.set(step, lambda path=path: files.pipe_file(path, new))  # type: ignore[misc]
        receive(queue, look)
        done, meddler.at = meddler.at == -1, -1
        receive(queue, LandingPrefix(files, f"{root}/{step}", "{origin}/*", **how))
        assert contents(queue)[origin] in ([b"one"], [b"one", new], [new])
        if not done:
            return step
        assert contents(queue)[origin][-1:] == [new], f"lost at step {step}"
        files.invalidate_cache()
        assert files.exists(path) == (how["after"] == "keep")
    raise AssertionError("unreachable")


@pytest.mark.parametrize("after", ["move", "delete", "keep"])
@pytest.mark.parametrize("new", [b"two", b"a longer one"])
def test_a_version_written_at_any_step_is_received(
    quick: MessageQueue, monkeypatch: pytest.MonkeyPatch, after: str, new: bytes
) -> None:
    files, root = fsspec.filesystem("memory"), f"/bucket-{uuid.uuid4().hex}"
    meddler = Meddler(files, monkeypatch)
    assert meddle_at_each_step(quick, files, root, meddler, new, after=after, versions=MemoryVersions(files)) > 3
    files.store.clear()


def test_what_can_never_be_a_message_is_not_lost_either(quick: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    files, root = fsspec.filesystem("memory"), f"/bucket-{uuid.uuid4().hex}"
    meddler = Meddler(files, monkeypatch)
    for step in range(20):
        files.pipe_file(f"{root}/o{step}/1", b"")
        look = LandingPrefix(files, root, "{origin}/*", versions=MemoryVersions(files))
        meddler.set(step, lambda step=step: files.pipe_file(f"{root}/o{step}/1", b"good"))  # type: ignore[misc]
        receive(quick, look)
        done, meddler.at = meddler.at == -1, -1
        receive(quick, LandingPrefix(files, root, "{origin}/*", versions=MemoryVersions(files)))
        if not done:
            break
        assert contents(quick)[f"o{step}"] == [b"good"]
    assert 3 < step < 19
    files.rm(root, recursive=True)


def test_a_store_that_cannot_delete_one_version(quick: MessageQueue) -> None:
    class Other(fsspec.get_filesystem_class("memory")):  # type: ignore[misc]
        protocol = "other"

    files, root = Other(), f"/bucket-{uuid.uuid4().hex}"
    for after in ("move", "delete"):
        with pytest.raises(InvalidInput, match="one version of an object in a store of 'other'.*after='keep'"):
            LandingPrefix(files, root, "{origin}/*", after=after)
    files.pipe_file(f"{root}/acme/1", b"one")
    files.pipe_file(f"{root}/acme/2", b"")
    assert receive(quick, LandingPrefix(files, root, "{origin}/*", after="keep")) == Received(1, 3, refused=1)
    assert receive(quick, LandingPrefix(files, root, "{origin}/*", after="keep")) == Received()
    assert len(files.find(root)) == 4
    files.rm(root, recursive=True)


def test_files_that_are_kept_where_they_are(queue: MessageQueue, tmp_path: Any) -> None:
    def drop(name: str, data: bytes) -> None:
        (tmp_path / "acme").mkdir(exist_ok=True)
        (tmp_path / "acme" / name).write_bytes(data)

    def look(**how: Any) -> LandingFolder:
        return LandingFolder(tmp_path, "{origin}/*", settle=0, after="keep", **how)

    drop("1", b"one")
    drop("x" * 255, b"two")
    drop("empty", b"")
    assert receive(queue, look()) == Received(2, 6, refused=1)
    # Beyond the window of the keys: receipts do not end.
    queue.admin.change_ring(key_window=0)
    queue.admin.housekeep()
    assert receive(queue, look()) == Received()
    drop("1", b"another")
    assert receive(queue, look(lines=True)) == Received(1, 7)
    assert receive(queue, look(lines=True)) == Received()
    assert sorted(os.listdir(tmp_path / "acme")) == ["1", "empty", "x" * 255]
