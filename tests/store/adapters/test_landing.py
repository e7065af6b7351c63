"""A landing folder: new files become messages, once."""

from __future__ import annotations

import os
import random
import time
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote

import fsspec
import pytest

from airflow_mq import MessageQueue, Weight
from airflow_mq.adapters import Adapter, Arrived, Changed, Received, key_for, receive
from airflow_mq.adapters.landing import LandingFolder, LandingPrefix, origin_pattern
from airflow_mq.adapters.landing.folder import LocalPlace
from airflow_mq.adapters.landing.lines import INLINE
from airflow_mq.engine.rules.blob import Reference
from airflow_mq.engine.rules.errors import InvalidInput
from tests.store.adapters.conftest import contents, die_in
from tests.store.adapters.memory import MemoryVersions


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "landing"
    made.mkdir()
    return made


def drop(folder: Path, path: str, data: bytes) -> Path:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return file


def look(folder: Path, pattern: str = "{origin}/*.json", **how: Any) -> LandingFolder:
    return LandingFolder(folder, pattern, **{"settle": 0, **how})


def left(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_new_files_become_messages_once(queue: MessageQueue, folder: Path) -> None:
    drop(folder, "acme/1.json", b"one")
    drop(folder, "acme/2.json", b"two")
    drop(folder, "birch/1.json", b"three")
    drop(folder, "acme/note.txt", b"no message")
    drop(folder, "acme/deep/4.json", b"no message")
    told: list[Received] = []
    assert receive(queue, look(folder), batch=2, progress=told.append) == Received(3, 11)
    assert told == [Received(2, 6), Received(3, 11)]
    assert contents(queue) == {"acme": [b"one", b"two"], "birch": [b"three"]}
    assert queue.inspect.peek("birch")[0].headers == {"path": "birch/1.json"}
    assert left(folder) == [
        ".received/acme/1.json", ".received/acme/2.json", ".received/birch/1.json", "acme/deep/4.json", "acme/note.txt",
    ]  # fmt: skip
    assert receive(queue, look(folder)) == Received()
    # The same name with something new in it is a new file; nothing that was received is overwritten.
    drop(folder, "acme/1.json", b"one, again")
    assert receive(queue, look(folder)) == Received(1, 10)
    assert len(list((folder / ".received/acme").glob("1.json*"))) == 2


def test_what_is_put_back_was_received_before(queue: MessageQueue, folder: Path) -> None:
    drop(folder, "acme/1.json", b"one")
    landing = look(folder)
    assert receive(queue, landing) == Received(1, 3)
    os.rename(folder / ".received/acme/1.json", folder / "acme/1.json")
    assert receive(queue, landing) == Received(repeated=1)
    assert left(folder) == [".received/acme/1.json"]


def test_each_line_can_be_a_message(queue: MessageQueue, folder: Path) -> None:
    drop(folder, "acme/1.csv", b"a\r\n\nb\n" + b"c" * 100_000 + b"\nlast")
    drop(folder, "acme/2.csv", b"\n")
    landing = look(folder, "{origin}/*.csv", lines=True, after="delete")
    first = receive(queue, landing, most=2, batch=2)
    assert first == Received(2, 2) and left(folder) == ["acme/1.csv", "acme/2.csv"]
    assert receive(queue, landing, batch=1) == Received(2, 100_004, refused=1)
    assert [peeked.headers["line"] for peeked in queue.inspect.peek("acme")] == ["1", "3", "4", "5"]
    assert left(folder) == [".refused/acme/2.csv", ".refused/acme/2.csv.why"]


def size_of(payload: bytes) -> int:
    return payload.size if isinstance(payload, Reference) else len(payload)


def test_only_the_line_ending_is_removed(queue: MessageQueue, folder: Path) -> None:
    ends = [b"\r", b"\r\r", b"\r\n", b"\r\r\n", b"\n", b"\n\r", b""]
    wanted = {}
    for index, (length, end) in enumerate(product((0, *range(INLINE - 3, INLINE + 3)), ends)):
        data = b"a" * length + b"b" + end
        drop(folder, f"o{index}/1.csv", data)
        wanted[f"o{index}"] = [len(line) for line in data.replace(b"\r\n", b"\n").split(b"\n") if line]
    receive(queue, look(folder, "{origin}/*.csv", lines=True))
    read = {origin: [size_of(peeked.payload) for peeked in queue.inspect.peek(origin)] for origin in wanted}
    assert read == wanted


def test_a_file_larger_than_a_page_becomes_an_external_payload(queue: MessageQueue, folder: Path) -> None:
    data = random.Random(1).randbytes(300_000)
    drop(folder, "acme/large.json", data)
    assert str(receive(queue, look(folder))) == "received 1 message of 300,000 bytes"
    (peeked,) = queue.inspect.peek("acme")
    with queue.payloads.open(peeked) as file:
        assert file.read() == data


def test_a_weight_and_a_priority_for_all_and_of_its_own(queue: MessageQueue) -> None:
    class Source:
        """Three messages, of which two carry a weight or a priority of their own."""

        def __init__(self) -> None:
            said: list[dict[str, Any]] = [{}, {"weight": Weight(7, 1)}, {"priority": "regular"}]
            self.has = [Arrived(str(n), "a", b"%d" % n, str(n), **one) for n, one in enumerate(said)]

        def fetch(self, most: int) -> list[Arrived]:
            return self.has[:most]

        def commit(self, arrived: Any) -> None:
            del self.has[: len(arrived)]

    # Without a size: that of a payload is known.
    assert receive(queue, cast(Adapter, Source()), weight=Weight(50, 2), priority="high") == Received(3, 3)
    found = {one.payload: (one.weight, one.address.priority) for one in queue.inspect.peek("a")}
    assert found == {
        b"0": (Weight(50, 2), "high"), b"1": (Weight(7, 1), "high"), b"2": (Weight(50, 2), "regular"),
    }  # fmt: skip


def test_what_can_never_be_a_message_is_moved_aside(make: Any, folder: Path) -> None:
    drop(folder, "acme/empty.json", b"")
    drop(folder, "birch/1.json", b"somebody else's")
    drop(folder, "acme/1.json", b"one")
    queue = make("origins=" + quote("acme*"))
    assert receive(queue, look(folder)) == Received(1, 3, refused=2)
    assert contents(queue) == {"acme": [b"one"]}
    assert left(folder) == [
        ".received/acme/1.json",
        ".refused/acme/empty.json", ".refused/acme/empty.json.why",
        ".refused/birch/1.json", ".refused/birch/1.json.why",
    ]  # fmt: skip
    assert "does not; send with one that does" in (folder / ".refused/birch/1.json.why").read_text()


def test_a_file_of_lines_that_is_put_aside_counts_once(
    make: Any, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    drop(folder, "acme/1.csv", b"1\n2\n")
    drop(folder, "birch/1.csv", b"a line\n" * 900)
    done = receive(make("origins=acme"), look(folder, "{origin}/*.csv", lines=True))
    assert done == Received(2, 2, refused=1)
    assert caplog.text.count("cannot be a message") == 1 and "'birch/1.csv:1' cannot be a message" in caplog.text
    assert left(folder) == [".received/acme/1.csv", ".refused/birch/1.csv", ".refused/birch/1.csv.why"]


def test_a_file_that_is_left_is_not_put_aside(
    queue: MessageQueue, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its queue is full at a line before the one that is too long."""
    monkeypatch.setattr("airflow_mq.adapters.landing.lines.LONGEST_LINE", 10)
    drop(folder, "acme/1.csv", b"1\n2\n" + b"3" * 20 + b"\n4\n")
    queue.admin.set_origin("acme", quota=100)
    done = receive(queue, look(folder, "{origin}/*.csv", lines=True))
    assert (done.count, done.left, done.refused) == (1, 1, 0)
    assert "acme/1.csv" in left(folder) and "cannot be a message" not in caplog.text


@pytest.fixture
def make(store_uri: str) -> Any:
    from airflow_mq.engine.store import parse, upgrade

    upgrade(parse(store_uri))
    opened = []

    def open_queue(parameters: str) -> MessageQueue:
        opened.append(MessageQueue(f"{store_uri}{'&' if '?' in store_uri else '?'}{parameters}"))
        return opened[-1]

    yield open_queue
    for queue in opened:
        queue.close()


def test_what_is_not_complete_is_left_alone(queue: MessageQueue, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("1.json.tmp", ".1.json", "_1.json", "lost+found", "1.json.part", "1.json~", "a.crdownload"):
        drop(folder, f"acme/{name}", b"half")
    drop(folder, "_temporary/1.json", b"half")
    drop(folder, "acme/2.json", b"just now")
    patient = look(folder, "{origin}/*", settle=600)
    assert receive(queue, patient) == Received()
    later = time.time() + 600
    monkeypatch.setattr("airflow_mq.adapters.landing.folder.time", SimpleNamespace(time=lambda: later))
    assert receive(queue, patient) == Received(1, 8)


def test_nothing_outside_of_the_folder_is_read(queue: MessageQueue, folder: Path, tmp_path: Path) -> None:
    outside = drop(tmp_path, "outside/secret.json", b"secret")
    (folder / "acme").mkdir()
    (folder / "acme/link.json").symlink_to(outside)
    (folder / "linked").symlink_to(outside.parent)
    os.mkfifo(folder / "acme/pipe.json")
    assert receive(queue, look(folder)) == Received()
    # A folder that becomes a link after it was looked at is no way out either.
    drop(folder, "birch/1.json", b"one")
    place = LocalPlace(folder)
    (found,) = place.files(0)
    os.rename(folder / "birch", tmp_path / "away")
    (folder / "birch").symlink_to(tmp_path / "away")
    with pytest.raises(Changed):
        place.open(found)
    assert place.move(found, ".received") is None
    assert (tmp_path / "away/1.json").exists() and outside.read_bytes() == b"secret"
    with pytest.raises(InvalidInput, match="leads out of its folder"):
        place.note("../note", "text")


def test_a_file_that_changes_meanwhile_is_received_as_it_is_then(queue: MessageQueue, folder: Path) -> None:
    file = drop(folder, "acme/1.json", b"one")
    landing = look(folder)
    arrived = landing.fetch(10)
    file.write_bytes(b"another")
    landing.commit(arrived)
    assert left(folder) == ["acme/1.json"]
    assert receive(queue, look(folder)) == Received(1, 7)
    # A file that is gone at the end, because another reader received it, is not reported.
    drop(folder, "acme/2.json", b"two")
    first, second = look(folder), look(folder)
    both = [first.fetch(9), second.fetch(9)]
    first.commit(both[0])
    second.commit(both[1])


def test_names_that_are_no_text(queue: MessageQueue, folder: Path) -> None:
    (folder / "acme").mkdir()
    with open(os.fsencode(folder) + b"/acme/\xff\n.json", "wb") as file:
        file.write(b"one")
    os.mkdir(os.fsencode(folder) + b"/\xfe")
    with open(os.fsencode(folder) + b"/\xfe/1.json", "wb") as file:
        file.write(b"two")
    assert receive(queue, look(folder)) == Received(1, 3, refused=1)


PROGRAM = """
import os, signal, sys
from airflow_mq import MessageQueue, Weight
from airflow_mq.adapters import receive
from airflow_mq.adapters.landing import LandingFolder

class Dying(LandingFolder):
    def commit(self, arrived):
        os.kill(os.getpid(), signal.SIGKILL)

with MessageQueue(os.environ["STORE"]) as queue:
    dying = Dying if os.environ["WHERE"] == "commit" else LandingFolder
    if os.environ["WHERE"] != "commit":
        queue.store.probe = lambda name: name == os.environ["WHERE"] and os.kill(os.getpid(), signal.SIGKILL)
    receive(queue, dying(os.environ["FOLDER"], "{origin}/*", lines="BY_LINE" in os.environ, settle=0), batch=3)
"""


@pytest.mark.slow
@pytest.mark.sqlite_first
@pytest.mark.crash
@pytest.mark.parametrize("lines", [False, True])
@pytest.mark.parametrize("where", ["claim_key", "commit", "committed"])
def test_killed_anywhere_nothing_is_lost_or_doubled(
    queue: MessageQueue, store_uri: str, folder: Path, where: str, lines: bool
) -> None:
    for number in range(8):
        drop(folder, f"acme/{number}", b"%d.1\n%d.2" % (number, number))
    environment = {"STORE": store_uri, "FOLDER": str(folder), "WHERE": where, **({"BY_LINE": "1"} if lines else {})}
    for _ in range(2):
        die_in(PROGRAM, environment)
        assert queue.check() == []
    receive(queue, look(folder, "{origin}/*", lines=lines))
    wanted = [b"%d.%d" % (number, line) for number in range(8) for line in (1, 2)]
    whole = [b"%d.1\n%d.2" % (number, number) for number in range(8)]
    assert contents(queue) == {"acme": wanted if lines else whole}
    assert left(folder) == [f".received/acme/{number}" for number in range(8)]


def test_an_object_store(queue: MessageQueue) -> None:
    files = fsspec.filesystem("memory")
    root = f"/bucket-{os.getpid()}-{id(queue)}"
    files.pipe({f"{root}/acme/eu/1.csv": b"a\nb", f"{root}/acme/us/2.csv": b"c", f"{root}/acme/x.tmp": b"d"})
    landing = LandingPrefix(files, f"memory:/{root}", "{origin*}/*.csv", lines=True, versions=MemoryVersions(files))
    assert receive(queue, landing) == Received(3, 3)
    assert contents(queue) == {"acme/eu": [b"a", b"b"], "acme/us": [b"c"]}
    assert sorted(files.find(root)) == [
        f"{root}/.received/acme/eu/1.csv", f"{root}/.received/acme/us/2.csv", f"{root}/acme/x.tmp",
    ]  # fmt: skip
    files.pipe({f"{root}/acme/eu/1.csv": b"a\nc", f"{root}/acme/us/2.csv": b""})
    assert receive(queue, landing) == Received(2, 2, refused=1)
    assert files.cat(f"{root}/.refused/acme/us/2.csv.why").startswith(b"acme/us/2.csv:1: invalid message of 0 bytes")
    assert len(files.find(f"{root}/.received")) == 3


def test_a_folder_by_its_address_has_no_way_out_either(queue: MessageQueue, folder: Path, tmp_path: Path) -> None:
    drop(tmp_path, "outside/secret.json", b"secret")
    (folder / "acme").symlink_to(tmp_path / "outside")
    drop(folder, "birch/1.json", b"one")
    landing = LandingPrefix(fsspec.filesystem("file"), f"file://{folder}", "{origin}/*.json", settle=0)
    assert receive(queue, landing) == Received(1, 3)
    assert isinstance(landing.place, LocalPlace)


def test_a_line_that_is_too_long_ends_its_file(
    queue: MessageQueue, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_mq.adapters.landing.lines.LONGEST_LINE", 10)
    drop(folder, "acme/1.csv", b"a\nb\n" + b"c" * 50 + b"\nd\n")
    assert receive(queue, look(folder, "{origin}/*.csv", lines=True)) == Received(2, 2, refused=1)
    assert "line 3 is longer" in (folder / ".refused/acme/1.csv.why").read_text()


@pytest.mark.parametrize(
    ("pattern", "regex"),
    [(None, None), ("*.json", None), ("{origin}/{origin}", None), (None, "("), (None, "(.*)"), ("{origin}", "(?P<origin>)")],
)  # fmt: skip
def test_patterns_that_take_no_origin(pattern: str | None, regex: str | None) -> None:
    with pytest.raises(InvalidInput):
        origin_pattern(pattern, regex)


def test_patterns() -> None:
    def taken(path: str, *how: str | None) -> str | None:
        found = origin_pattern(*(how if len(how) == 2 else (*how, None))).fullmatch(path)  # type: ignore[arg-type]
        return found["origin"] if found else None

    assert taken("a/b/c.json", "{origin}/**") == "a" and taken("a/b/c.json", "{origin*}/*.json") == "a/b"
    assert taken("in/a.b.csv", "in/{origin}.b.csv") == "a" and taken("in/aXb.csv", "in/{origin}.b.csv") is None
    assert taken("2026-01-01_acme_7", None, r"[^_]+_(?P<origin>[a-z]+)_\d+") == "acme"
    assert key_for("a", "x" * 2_000).startswith("sha256:")
    for wrong in ({"after": "burn"}, {"settle": -1}):
        with pytest.raises(InvalidInput):
            LandingFolder("/tmp", "{origin}", **wrong)
    with pytest.raises(InvalidInput, match="no folder"):
        LandingFolder("/no/such/folder", "{origin}")
