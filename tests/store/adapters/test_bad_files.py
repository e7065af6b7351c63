"""A bad file is its own sender's trouble: everybody else's files are received all the same."""

from __future__ import annotations

import errno
import os
import socket
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest

from airflow_mq import MessageQueue
from airflow_mq.adapters import BATCH_BYTES, Changed, Received, receive
from airflow_mq.adapters.landing import Landing, LandingFolder, LandingPrefix, NotMoved, source
from airflow_mq.adapters.landing.folder import LocalPlace
from airflow_mq.engine.rules.errors import InvalidInput
from tests.store.adapters.conftest import contents
from tests.store.adapters.memory import MemoryVersions


class Ground:
    """A folder, or a prefix of an object store, in which files land."""

    def __init__(self, root: str, files: Any = None) -> None:
        self.root, self.files = root, files

    def drop(self, path: str, data: bytes) -> None:
        if self.files is not None:
            self.files.pipe_file(f"{self.root}/{path}", data)
            return
        file = Path(self.root, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    def look(self, pattern: str = "{origin}/*", **how: Any) -> Landing:
        if self.files is not None:
            return LandingPrefix(
                self.files, f"memory:/{self.root}", pattern, versions=MemoryVersions(self.files), **how
            )
        return LandingFolder(self.root, pattern, settle=0, **how)

    def left(self) -> list[str]:
        if self.files is not None:
            return sorted(path[len(self.root) + 1 :] for path in self.files.find(self.root))
        return sorted(str(path.relative_to(self.root)) for path in Path(self.root).rglob("*") if path.is_file())


@pytest.fixture
def folder(tmp_path: Path) -> Ground:
    (tmp_path / "landing").mkdir()
    return Ground(str(tmp_path / "landing"))


@pytest.fixture(params=["folder", "object store"])
def ground(request: pytest.FixtureRequest, folder: Ground) -> Iterator[Ground]:
    if request.param == "folder":
        yield folder
        return
    files, root = fsspec.filesystem("memory"), f"/bucket-{os.getpid()}"
    yield Ground(root, files)
    files.rm(root, recursive=True)


def test_other_content_under_the_same_time_and_size_is_another_message(queue: MessageQueue, folder: Ground) -> None:
    def drop(path: str, data: bytes) -> None:
        folder.drop(path, data)
        os.utime(f"{folder.root}/{path}", ns=(10**18, 10**18))

    large = 100_000
    for number in range(2):
        drop("acme/1", b"one%d" % number)
        drop("acme/2", b"%d" % number * large)
        drop("birch/1", b"b%d" % number)
        if number:
            # Killed before it moved the files: received again, and known.
            killed = folder.look()
            killed.commit = lambda arrived: None  # type: ignore[method-assign]
            assert receive(queue, killed).count == 3
            assert receive(queue, folder.look()) == Received(repeated=3)
        else:
            assert receive(queue, folder.look()).count == 3
    assert contents(queue)["birch"] == [b"b0", b"b1"] and queue.footprint("acme").count == 4
    assert all(path.startswith(".received/") for path in folder.left())


def test_a_line_that_changed_under_the_same_time_and_size(quick: MessageQueue, folder: Ground) -> None:
    for data in (b"a\nb\n", b"a\nc\n"):
        folder.drop("acme/1", data)
        os.utime(f"{folder.root}/acme/1", ns=(10**18, 10**18))
        receive(quick, folder.look(lines=True))
    assert contents(quick) == {"acme": [b"a", b"b", b"c"]}


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127 + "x", "x" + "é" * 127, "\udcff" * 255, "€" * 85])
def test_names_as_long_as_they_may_be(quick: MessageQueue, folder: Ground, name: str) -> None:
    for data in (b"one", b"two", b"", b""):
        Path(folder.root, "acme").mkdir(exist_ok=True)
        Path(folder.root, "acme", name).write_bytes(data)
        folder.drop("birch/1", b"b" + data)
        done = receive(quick, folder.look())
        assert (done.count, done.refused) == ((2, 0) if data else (1, 1))
    assert contents(quick)["acme"] == [b"one", b"two"]
    kept = sorted(os.listdir(f"{folder.root}/.refused/acme"))
    assert len(os.listdir(f"{folder.root}/.received/acme")) == 2 and len(kept) == 4
    assert sum(one.endswith(".why") for one in kept) == 2


def test_keys_as_long_as_they_may_be(quick: MessageQueue) -> None:
    files, root = fsspec.filesystem("memory"), f"/bucket-{os.getpid()}"
    ground = Ground(root, files)
    path = f"acme/{'x' * (1_024 - len(root) - 6)}"
    for data in (b"one", b"two", b"", b""):
        ground.drop(path, data)
        receive(quick, ground.look())
    assert contents(quick) == {"acme": [b"one", b"two"]} and len(ground.left()) == 6
    assert all(len(f"{root}/{one}") <= 1_024 for one in ground.left())
    files.rm(root, recursive=True)


@pytest.mark.slow
def test_folders_without_end(quick: MessageQueue, ground: Ground, caplog: pytest.LogCaptureFixture) -> None:
    ground.drop("birch/1", b"one")
    ground.drop("/".join(["d"] * 128), b"deep")
    if ground.files is not None:
        ground.drop("/".join(["acme", *["d"] * 1_100, "1"]), b"too deep")
    path = f"{ground.root}/acme"
    for _ in range(1_100 if ground.files is None else 0):
        os.makedirs(path, exist_ok=True)
        path += "/d"
    try:
        assert receive(quick, ground.look("{origin*}/*")) == Received(2, 7)
    finally:
        # No program removes so deep a folder by recursion.
        while ground.files is None and len(path := path.rpartition("/")[0]) > len(ground.root):
            os.rmdir(path)
    assert "left alone 1 files or folders, more than 128 deep" in caplog.text


@pytest.mark.slow
def test_long_lines_are_never_whole_in_memory(quick: MessageQueue, folder: Ground) -> None:
    size = 16 << 20
    folder.drop("acme/1", b"short\n" + b"".join(b"%d" % number * size + b"\r\n" for number in range(4)) + b"\nlast")
    tracemalloc.start()
    try:
        assert receive(quick, folder.look(lines=True)) == Received(6, 4 * size + 9)
        assert tracemalloc.get_traced_memory()[1] < size
    finally:
        tracemalloc.stop()
    lines = quick.inspect.peek("acme")
    assert [one.headers["line"] for one in lines] == ["1", "2", "3", "4", "5", "7"]
    with quick.payloads.open(lines[2]) as kept:
        assert kept.read() == b"1" * size


def test_a_batch_has_so_many_bytes(ground: Ground) -> None:
    ground.drop("acme/1", (b"x" * 60_000 + b"\n") * 600)
    look = ground.look(lines=True)
    sizes = [sum(one.size for one in look.fetch(500)) for _ in range(3)]
    assert sum(sizes) == 600 * 60_000 and max(sizes) <= BATCH_BYTES + 60_000
    look.close()


@pytest.mark.slow
def test_bad_files_before_a_good_one(quick: MessageQueue, ground: Ground) -> None:
    for number in range(600):
        ground.drop(f"acme/{number:03}", b"")
    ground.drop("acme/good", b"a")
    ground.drop("birch/good", b"b")
    # Files that can never be messages are none of those that are asked for.
    assert receive(quick, ground.look(), most=1).count == 1
    assert receive(quick, ground.look(), most=1).count == 1
    assert contents(quick) == {"acme": [b"a"], "birch": [b"b"]}
    assert len(ground.left()) == 1_202


@pytest.mark.parametrize("lines", [False, True])
def test_origins_take_turns(quick: MessageQueue, ground: Ground, lines: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "TURN", 10)
    for number in range(1 if lines else 35):
        ground.drop(
            f"acme/{number:02}", b"".join(b"%02d\n" % line for line in range(35)) if lines else b"%02d" % number
        )
    ground.drop("birch/1", b"b")
    look = ground.look(lines=lines)
    arrived = []
    while fetched := look.fetch(7):
        arrived += fetched
    assert [one.origin for one in arrived].index("birch") == 10
    assert [one.payload for one in arrived if one.origin == "acme"] == [b"%02d" % number for number in range(35)]
    assert receive(quick, ground.look(lines=lines)).count == 36
    assert all(path.startswith(".received/") for path in ground.left())


def test_a_look_holds_so_many_files(quick: MessageQueue, ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MOST_FILES", 8)
    for origin, count in (("acme", 30), ("birch", 5), *((f"o{number}", 1) for number in range(10))):
        for number in range(count):
            ground.drop(f"{origin}/{number:02}", b"%02d" % number)
    order: list[str] = []
    look = ground.look()
    commit = look.commit
    look.commit = lambda arrived: (order.extend(one.origin for one in arrived), commit(arrived))  # type: ignore
    assert receive(quick, look, batch=4).count == 45
    assert contents(quick)["acme"] == [b"%02d" % number for number in range(30)]
    assert contents(quick)["birch"] == [b"%02d" % number for number in range(5)]


def test_a_file_that_cannot_be_moved(
    quick: MessageQueue, folder: Ground, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rename = os.rename

    def refused(source: str, *more: Any, **how: Any) -> None:
        if source == "bad":
            raise PermissionError(1, "Operation not permitted")
        rename(source, *more, **how)

    monkeypatch.setattr(os, "rename", refused)
    folder.drop("acme/bad", b"one")
    folder.drop("acme/good", b"two")
    folder.drop("birch/bad", b"")
    folder.drop("birch/good", b"three")
    reason = r"1 received file could not be moved out of .* \(first: 'acme/bad': .*not permitted"
    with pytest.raises(NotMoved, match=reason):
        receive(quick, folder.look())
    assert contents(quick) == {"acme": [b"one", b"two"], "birch": [b"three"]}
    assert "'acme/bad' is in the queue and cannot be moved" in caplog.text.replace('"', "'")
    assert folder.left() == [".received/acme/good", ".received/birch/good", "acme/bad", "birch/bad"]
    folder.drop("acme/more", b"four")
    with pytest.raises(NotMoved, match=reason):
        receive(quick, folder.look())
    # A run that ends before the last file reports it when the source is closed.
    folder.drop("acme/new", b"five")
    look = folder.look()
    assert receive(quick, look, most=1) == Received(1, 4, repeated=1)
    with pytest.raises(NotMoved, match=reason):
        look.close()


def test_a_file_that_is_named_as_a_folder_was(quick: MessageQueue, folder: Ground) -> None:
    folder.drop("acme", b"one")
    assert receive(quick, folder.look("{origin}")).count == 1
    os.rename(f"{folder.root}/.received/acme", f"{folder.root}/.received/birch")
    folder.drop("birch/deep/1", b"two")
    assert receive(quick, folder.look("{origin}/**")) == Received(1, 3)
    assert folder.left() == [".received/1", ".received/birch"]


def test_a_large_file_that_changes_before_it_is_read(quick: MessageQueue, ground: Ground) -> None:
    ground.drop("acme/1", b"a" * 100_000)
    ground.drop("birch/1", b"b")
    look = ground.look()
    fetch = look.fetch

    def changing(most: int) -> Any:
        arrived = fetch(most)
        if len(arrived) == 2:
            ground.drop("acme/1", b"A" * 100_001)
        return arrived

    look.fetch = changing  # type: ignore[method-assign]
    assert receive(quick, look) == Received(1, 1)
    assert receive(quick, ground.look()) == Received(1, 100_001)


def test_a_file_that_grows_while_it_is_read(folder: Ground) -> None:
    folder.drop("acme/1", b"a" * 100_000)
    (one,) = folder.look().fetch(9)
    assert one.content is not None
    with one.content() as file:
        assert len(file.read(60_000)) == 60_000
        with open(f"{folder.root}/acme/1", "ab") as more:
            more.write(b"more")
        with pytest.raises(Changed):
            file.read(60_000)


def test_a_ring_that_takes_no_further_origins(queue: MessageQueue, ground: Ground) -> None:
    queue.admin.change_ring(max_origins=1)
    queue.enqueue_message("birch", b"zero")
    ground.drop("acme/1", b"one")
    ground.drop("birch/1", b"two")
    assert receive(queue, ground.look()) == Received(1, 3, left=1)
    assert ground.left() == [".received/birch/1", "acme/1"]
    queue.admin.change_ring(max_origins=2)
    assert receive(queue, ground.look()) == Received(1, 3)


def test_a_file_larger_than_any_message(quick: MessageQueue, folder: Ground) -> None:
    folder.drop("birch/1", b"one")
    folder.drop("acme/1", b"")
    os.truncate(f"{folder.root}/acme/1", 3 << 30)
    assert receive(quick, folder.look()) == Received(1, 3, refused=1)
    assert "at most 2,147,483,647" in Path(folder.root, ".refused/acme/1.why").read_text()


def test_a_path_that_no_header_holds(quick: MessageQueue, ground: Ground) -> None:
    look = ground.look()
    arrivals = look._arrivals

    def wordy() -> Any:
        for one in arrivals():
            yield replace(one, headers={"path": "x" * 70_000}) if one.origin == "acme" else one

    look._arrivals = wordy  # type: ignore[method-assign]
    ground.drop("acme/1", b"one")
    ground.drop("birch/1", b"two")
    assert receive(quick, look) == Received(1, 3, refused=1)


def test_a_wrong_weight_is_no_fault_of_the_files(quick: MessageQueue, folder: Ground) -> None:
    folder.drop("acme/1", b"one")
    with pytest.raises(ValueError):
        receive(quick, folder.look(), weight=(-1, 0))  # type: ignore[arg-type]
    assert folder.left() == ["acme/1"]


def failing(ground: Ground, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the file `bad` fail when it is opened, or looked up in an object store."""
    owner, name = (os, "open") if ground.files is None else (ground.files, "info")
    works = getattr(owner, name)

    def fails(path: Any, *more: Any, **how: Any) -> Any:
        if str(path).endswith("bad"):
            raise OSError(number, os.strerror(number))
        return works(path, *more, **how)

    monkeypatch.setattr(owner, name, fails)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EINVAL])
@pytest.mark.parametrize("size", [10, 100_000])
@pytest.mark.parametrize("lines", [False, True])
def test_a_file_with_an_error_of_its_own_stays_with_those_behind_it(
    quick: MessageQueue, ground: Ground, monkeypatch: pytest.MonkeyPatch, lines: bool, size: int, number: int
) -> None:
    for path, content in (("acme/bad", b"x" * size), ("acme/later", b"y"), ("birch/1", b"two")):
        ground.drop(path, content)
    with monkeypatch.context() as patch:
        failing(ground, number, patch)
        assert receive(quick, ground.look(lines=lines)) == Received(1, 3, left=2, unreadable=1)
    assert receive(quick, ground.look(lines=lines)) == Received(2, size + 1)
    assert len(quick.inspect.peek("acme")[1].payload) == 1


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM, errno.EBUSY, errno.ECONNRESET])
def test_an_error_of_the_process_or_the_place_ends_the_run(
    quick: MessageQueue, ground: Ground, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    ground.drop("acme/bad", b"one")
    with monkeypatch.context() as patch:
        failing(ground, number, patch)
        with pytest.raises(OSError) as error:
            receive(quick, ground.look())
    assert error.value.errno == number


@pytest.mark.parametrize("size", [10, 100_000])
@pytest.mark.parametrize("kind", ["folder", "socket", "gone"])
def test_a_file_that_is_replaced_between_listing_and_opening(
    quick: MessageQueue, folder: Ground, monkeypatch: pytest.MonkeyPatch, kind: str, size: int
) -> None:
    folder.drop("acme/1", b"x" * size)
    folder.drop("birch/1", b"two")
    monkeypatch.chdir(folder.root)
    look = folder.look()
    files = look.place.files

    def replaced(settle: float) -> Iterator[Any]:
        found = list(files(settle))
        os.unlink("acme/1")
        if kind == "folder":
            os.mkdir("acme/1")
        elif kind == "socket":
            with socket.socket(socket.AF_UNIX) as made:
                made.bind("acme/1")
        yield from found

    monkeypatch.setattr(look.place, "files", replaced)
    assert receive(quick, look) == Received(1, 3)
    assert contents(quick) == {"birch": [b"two"]}


def test_a_folder_in_place_of_a_file_leaves_no_handle_open(folder: Ground) -> None:
    folder.drop("acme/1", b"one")
    place = LocalPlace(folder.root)
    (found,) = place.files(0)
    os.unlink(f"{folder.root}/acme/1")
    os.mkdir(f"{folder.root}/acme/1")
    about, opened = os.stat(f"{folder.root}/acme/1"), len(os.listdir("/dev/fd"))
    # Also if the folder was there when the listing asked for the size.
    for identity in (found.identity, (about.st_ino, about.st_mtime_ns, about.st_size)):
        with pytest.raises(Changed):
            place.open(replace(found, identity=identity))
    assert len(os.listdir("/dev/fd")) == opened


def test_an_object_that_is_deleted_between_its_lookup_and_its_opening(
    quick: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, root = fsspec.filesystem("memory"), f"/bucket-{os.getpid()}"
    ground, opened = Ground(root, files), files.open
    ground.drop("acme/1", b"x" * 100_000)
    ground.drop("birch/1", b"two")

    def gone(path: str, *more: Any, **how: Any) -> Any:
        if path.endswith("acme/1"):
            raise FileNotFoundError(path)
        return opened(path, *more, **how)

    monkeypatch.setattr(files, "open", gone)
    assert receive(quick, ground.look()) == Received(1, 3)
    files.rm(root, recursive=True)


# -- files that are received by lines in several runs --


def part(queue: MessageQueue, ground: Ground, **how: Any) -> Received:
    """Receive lines in a run of its own."""
    look = ground.look(lines=True)
    try:
        return receive(queue, look, **how)
    finally:
        look.close()


def notes(ground: Ground) -> list[str]:
    return [path for path in ground.left() if path.endswith(".part")]


@pytest.fixture
def hasty(quick: MessageQueue) -> MessageQueue:
    """A queue whose keys end at once: the window passes between two runs."""
    quick.admin.change_ring(key_window=0)
    return quick


@pytest.mark.parametrize("after", ["move", "delete", "keep"])
def test_a_run_continues_after_the_last_stored_line(hasty: MessageQueue, ground: Ground, after: str) -> None:
    ground.drop("acme/1", b"a\n\nb\r\n" + b"c" * 100_000 + b"\n\nd\ne\n\n")
    ground.drop("birch/1", b"one\ntwo\n")
    ground.drop("birch/unfinished.tmp", b"three")
    done = []
    for most, noted in ((1, 1), (2, 1), (1, 1), (1, 0), (2, 0)):
        look = ground.look(lines=True, after=after)
        done.append(receive(hasty, look, most=most))
        look.close()
        assert len(notes(ground)) == noted
    assert [one.count for one in done] == [1, 2, 1, 1, 2] and sum(one.repeated for one in done) == 0
    peeked = hasty.inspect.peek("acme")
    assert [one.headers["line"] for one in peeked] == ["1", "3", "4", "6", "7"]
    assert contents(hasty)["birch"] == [b"one", b"two"]
    assert receive(hasty, ground.look(lines=True, after=after)) == Received() and notes(ground) == []


@pytest.mark.parametrize("window", [0, 86_400])
def test_a_queue_with_a_quota_receives_each_line_once(quick: MessageQueue, ground: Ground, window: float) -> None:
    quick.admin.change_ring(key_window=window)
    quick.admin.set_origin("acme", quota=200)
    lines = [b"line %d" % number for number in range(20)]
    ground.drop("acme/1", b"\n".join(lines))
    ground.drop("acme/2", b"last")
    seen, runs = list[bytes](), 0
    while len(seen) < 21 and runs < 30:
        assert part(quick, ground).repeated == 0
        quick.service_queues(lambda delivery: seen.append(delivery.payload))
        runs += 1
    assert seen == [*lines, b"last"] and 5 < runs < 30
    part(quick, ground)
    assert all(path.startswith(".received/") for path in ground.left()) and notes(ground) == []


def test_a_run_that_died_before_its_note_repeats_lines_by_key(quick: MessageQueue, ground: Ground) -> None:
    ground.drop("acme/1", b"a\nb\nc\nd\ne\n")
    assert part(quick, ground, most=1) == Received(1, 1)
    # Not closed, as if it was killed: the note is that of the first run.
    receive(quick, ground.look(lines=True), most=2)
    assert part(quick, ground, most=1) == Received(1, 1, repeated=2)
    assert part(quick, ground) == Received(1, 1)
    assert contents(quick) == {"acme": [b"a", b"b", b"c", b"d", b"e"]} and notes(ground) == []


def test_a_note_that_cannot_be_written_or_removed_is_no_error(
    quick: MessageQueue, ground: Ground, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    ground.drop("acme/1", b"a\nb\nc\n")
    look = ground.look(lines=True)
    monkeypatch.setattr(look.place, "note", refused)
    receive(quick, look, most=1)
    look.close()
    assert "cannot note how far 'acme/1' was received" in caplog.text and notes(ground) == []
    assert part(quick, ground, most=1) == Received(1, 1, repeated=1)
    look = ground.look(lines=True)
    monkeypatch.setattr(look.place, "remove", refused)
    assert receive(quick, look) == Received(1, 1) and len(notes(ground)) == 1


def test_a_note_of_any_size_is_read_in_part(ground: Ground) -> None:
    ground.drop(".received/acme/1", b"1" * 100_000)
    assert len(ground.look().place.read(".received/acme/1")) < 1_000


def test_a_file_that_is_replaced_between_two_runs_is_received_from_its_first_line(
    hasty: MessageQueue, ground: Ground
) -> None:
    ground.drop("acme/1", b"a\nb\nc\n")
    assert part(hasty, ground, most=2).count == 2
    ground.drop("acme/1", b"a\nb\nx\ny\n")
    assert part(hasty, ground).count == 4
    assert contents(hasty) == {"acme": [b"a", b"b", b"a", b"b", b"x", b"y"]}


@pytest.mark.parametrize(
    ("data", "added"), [(b"A\nb\nd\n", [b"A", b"d"]), (b"a\nb\nC\n", [b"C"]), (b"ab\nabc", [b"ab", b"abc"])]
)
def test_a_file_that_is_replaced_under_its_time_and_size_loses_no_line(
    quick: MessageQueue, folder: Ground, data: bytes, added: list[bytes]
) -> None:
    for content, most in ((b"a\nb\nc\n", 2), (data, 9)):
        folder.drop("acme/1", content)
        os.utime(f"{folder.root}/acme/1", ns=(10**18, 10**18))
        part(quick, folder, most=most)
    assert contents(quick) == {"acme": [b"a", b"b", *added]}


def test_a_file_that_is_replaced_during_a_run_leaves_no_note(hasty: MessageQueue, ground: Ground) -> None:
    ground.drop("acme/1", b"a\nb\nc\nd\n")
    assert part(hasty, ground, most=1).count == 1 and len(notes(ground)) == 1
    look = ground.look(lines=True)
    commit = look.commit

    def replacing(arrived: Any) -> None:
        commit(arrived)
        ground.drop("acme/1", b"new\n")

    look.commit = replacing  # type: ignore[method-assign]
    # Lines that were read before are received.
    assert receive(hasty, look, batch=1).count == 2
    look.close()
    assert notes(ground) == []
    assert part(hasty, ground).count == 1
    assert contents(hasty) == {"acme": [b"a", b"b", b"c", b"new"]}
    # Likewise if lines are committed only after that.
    ground.drop("acme/2", b"a\nb\nc\n")
    look = ground.look(lines=True)
    arrived = list(look.fetch(1))
    ground.drop("acme/2", b"x\n")
    look.commit([*arrived, *look.fetch(9)])
    look.close()
    assert notes(ground) == [] and "acme/2" in ground.left()


def test_a_file_with_a_line_that_was_not_stored_is_not_put_away(hasty: MessageQueue, ground: Ground) -> None:
    ground.drop("acme/1", b"a\nb\nc\nd\n")
    look = ground.look(lines=True)
    look.commit(look.fetch(1))
    look.fetch(1)  # The receiver failed.
    look.commit(look.fetch(9))
    look.close()
    assert "acme/1" in ground.left()
    assert part(hasty, ground) == Received(3, 3)


def test_a_turn_that_ends_before_a_line_that_is_too_long(
    quick: MessageQueue, ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "TURN", 2)
    monkeypatch.setattr("airflow_mq.adapters.landing.lines.LONGEST_LINE", 10)
    ground.drop("acme/1", b"a\nb\n" + b"c" * 70_000 + b"\nd\ne\nf\n")
    ground.drop("birch/1", b"one\n")
    assert receive(quick, ground.look(lines=True)) == Received(3, 5, refused=1)
    assert contents(quick) == {"acme": [b"a", b"b"], "birch": [b"one"]}


def test_a_path_without_the_optional_origin_does_not_match(quick: MessageQueue, folder: Ground) -> None:
    for path in ("acme/1", "acme/2", "1", "2"):
        folder.drop(path, path.encode())
    look = folder.look(None, regex="(?:(?P<origin>[a-z]+)/)?[0-9]")  # type: ignore[arg-type]
    assert receive(quick, look) == Received(2, 12)
    assert (look.unmatched, sorted(folder.left())[2:]) == (2, ["1", "2"])


@pytest.mark.parametrize("size", [10, 100_000])
@pytest.mark.parametrize("lines", [False, True])
def test_a_file_that_may_not_be_read_stays_with_those_behind_it(
    quick: MessageQueue,
    folder: Ground,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    lines: bool,
    size: int,
) -> None:
    opened = LocalPlace.open

    def refused(self: LocalPlace, found: Any) -> Any:
        if found.path == "acme/2":
            raise PermissionError(13, "Permission denied")
        return opened(self, found)

    monkeypatch.setattr(LocalPlace, "open", refused)
    for path, content in (("acme/1", b"one"), ("acme/2", b"x" * size), ("acme/3", b"y" * size), ("birch/1", b"two")):
        folder.drop(path, content)
    done = receive(quick, folder.look(after="keep", lines=lines))
    # No later file passes it, even one that can be read, and the first one does not wait for it.
    assert done == Received(2, 6, left=2, unreadable=1)
    assert str(done) == "received 2 messages of 6 bytes; 1 cannot be read; 2 left at the source; the log states why"
    assert [record.getMessage() for record in caplog.records] == [
        "'acme/2' is left for a later run: it cannot be read: Permission denied"
    ]
    # Another mode changes neither the time nor the size of a file.
    monkeypatch.setattr(LocalPlace, "open", opened)
    assert receive(quick, folder.look(after="keep", lines=lines)) == Received(2, 2 * size)
    assert len(quick.inspect.peek("acme")[0].payload) == 3


@pytest.mark.parametrize("lines", [False, True])
def test_a_file_whose_receipt_may_not_be_looked_up_stays(
    quick: MessageQueue, folder: Ground, monkeypatch: pytest.MonkeyPatch, lines: bool
) -> None:
    def refused(self: LocalPlace, path: str) -> bool:
        raise PermissionError(13, "Permission denied")

    folder.drop("acme/1", b"one")
    with monkeypatch.context() as patch:
        patch.setattr(LocalPlace, "read", refused)
        assert receive(quick, folder.look(after="keep", lines=lines)) == Received(left=1, unreadable=1)
    assert receive(quick, folder.look(after="keep", lines=lines)) == Received(1, 3)


def test_a_landing_folder_that_may_not_be_read_is_an_error(
    quick: MessageQueue, folder: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.drop("acme/1", b"one")
    folder.drop("birch/1", b"two")
    scandir, denied = os.scandir, [os.stat(folder.root).st_ino, os.stat(f"{folder.root}/acme").st_ino]

    def refused(opened: int) -> Any:
        if os.fstat(opened).st_ino in denied:
            raise PermissionError(13, "Permission denied")
        return scandir(opened)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(
        InvalidInput, match=r"cannot read the landing folder '.*' \(Permission denied\): expected one that"
    ):
        receive(quick, folder.look())
    # The others below it are received.
    del denied[0]
    look = folder.look()
    assert receive(quick, look) == Received(1, 3, unreadable=1)
    assert str(receive(quick, look)) == "received 0 messages of 0 bytes; 1 cannot be read"
    denied.clear()
    assert receive(quick, look) == Received(1, 3)
