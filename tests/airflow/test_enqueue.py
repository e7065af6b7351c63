"""Enqueuing from a DAG: from what the author wrote, files and rows; once, and literally (B3)."""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from datetime import date
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mq import MessageQueue, Weight
from tests.airflow.stage import CONN_ID, Airflow, Run
from tests.proofs.crash.children import run_child

pytestmark = pytest.mark.airflow

TEMPLATE = "{{ 1/0 }}{% endraw %}"


@pytest.fixture
def run() -> Run:
    return Airflow().run()


def enqueue(**kwargs: Any) -> Any:
    """The operator for a source."""
    from airflow_mq.operators.enqueue import EnqueueFilesOperator, EnqueueMessagesOperator, EnqueueSqlOperator

    kinds = {"messages": EnqueueMessagesOperator, "files": EnqueueFilesOperator, "sql": EnqueueSqlOperator}
    (kind,) = (kinds[name] for name in kinds if name in kwargs)
    return kind(task_id="enqueue", mq_conn_id=CONN_ID, **kwargs)


def stored(queue: MessageQueue) -> list[tuple[str, bytes]]:
    """Return the waiting messages by origin."""
    return [(origin, one.payload) for origin, _ in queue.footprints() for one in queue.inspect.peek(origin)]


def test_messages_as_they_are_written(queue: MessageQueue, run: Run) -> None:
    messages = ["text", b"\x00bytes", {"any": "JSON"}, {"payload": "own", "origin": "b", "headers": {"h": "1"}}]

    done = run.execute(enqueue(origin="a", messages=messages))

    assert done == {"count": 4, "size": 27, "repeated": 0}
    assert stored(queue) == [("a", b"text"), ("a", b"\x00bytes"), ("a", b'{"any":"JSON"}'), ("b", b"own")]
    assert queue.inspect.peek("b")[0].headers == {"h": "1"}


def test_a_priority_for_all_and_one_of_its_own(queue: MessageQueue, run: Run) -> None:
    operator = enqueue(origin="a", messages=["x", {"payload": "y", "priority": "regular"}], priority="high")
    assert "priority" in operator.template_fields
    run.execute(operator)

    assert [(one.payload, one.address.priority) for one in queue.inspect.peek("a")] == [
        (b"x", "high"),
        (b"y", "regular"),
    ]


def test_dates_and_decimals_become_text_in_json(sqlite_queue: MessageQueue, run: Run) -> None:
    run.execute(enqueue(origin="a", messages=[{"at": date(2026, 1, 2), "sum": Decimal("1.50")}]))
    assert stored(sqlite_queue) == [("a", b'{"at":"2026-01-02","sum":"1.50"}')]


def test_a_retry_enqueues_nothing_twice_and_another_run_does(queue: MessageQueue, run: Run) -> None:
    operator = enqueue(origin="a", messages=["x", "x", "y"])

    assert run.execute(operator)["count"] == 3
    assert run.execute(operator) == {"count": 0, "size": 0, "repeated": 3}
    assert run.execute(operator, 1)["count"] == 3, "another map index is another task"
    assert run.airflow.run("r2").execute(operator)["count"] == 3
    assert run.execute(enqueue(origin="a", messages=["x"], idempotent=False))["count"] == 1


def test_a_source_that_changed_between_tries_is_reported(sqlite_queue: MessageQueue, run: Run) -> None:
    run.execute(enqueue(origin="a", messages=["x"]))

    with pytest.raises(Exception, match="returned other content than when this task enqueued before"):
        run.execute(enqueue(origin="a", messages=["z"]))


def test_a_retry_whose_source_returns_the_origins_in_another_order_sends_nothing_twice(
    sqlite_queue: MessageQueue, run: Run
) -> None:
    """Keys are unique in an origin, so only the order within an origin counts."""
    first, second = ({"origin": origin, "payload": origin} for origin in "ab")
    new = {"origin": "c", "payload": "new"}
    assert run.execute(enqueue(messages=[first, second]))["count"] == 2
    assert run.execute(enqueue(messages=[second, first])) == {"count": 0, "size": 0, "repeated": 2}
    assert run.execute(enqueue(messages=[new, second, first])) == {"count": 1, "size": 3, "repeated": 2}


def test_files_are_messages_of_their_folders(queue: MessageQueue, run: Run, tmp_path: Path) -> None:
    for name, text in (("acme/1.csv", TEMPLATE), ("acme/2.csv", "2"), ("zebra/1.csv", "3"), ("zebra/note.txt", "-")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    files = {"files": f"{tmp_path}/*/*.csv", "origin_pattern": r"/(?P<origin>[^/]+)/[^/]+$"}

    assert run.execute(enqueue(**files))["count"] == 3
    assert run.execute(enqueue(**files))["repeated"] == 3
    assert stored(queue) == [("acme", TEMPLATE.encode()), ("acme", b"2"), ("zebra", b"3")]


def test_a_file_that_no_page_holds_is_stored_apart(queue: MessageQueue, run: Run, tmp_path: Path) -> None:
    large = bytes(range(256)) * (queue.config.max_message_len // 256 + 1)
    (tmp_path / "1.csv").write_bytes(large)
    (tmp_path / "2.csv").write_bytes(b"small")
    (tmp_path / "3.csv").write_bytes(large)
    files = enqueue(files=f"{tmp_path}/*.csv", origin="acme")

    assert run.execute(files) == {"count": 3, "size": 2 * len(large) + 5, "repeated": 0}
    assert run.execute(files) == {"count": 0, "size": 0, "repeated": 3}

    first, small, third = queue.inspect.peek("acme")
    assert small.payload == b"small" and first.payload == third.payload
    with queue.payloads.open(first) as kept:
        assert kept.read() == large
    (blob,) = queue.payloads.list()
    # Two messages hold it now, and the uploads of both runs no longer.
    assert (blob.references, blob.held_until) == (2, None)
    queue.service_queues(lambda delivery: None, Weight(10**6, 10**9))
    queue.payloads.sweep()
    assert queue.payloads.list() == []


def test_external_payloads_are_stored_where_a_connection_leads(
    sqlite_queue: MessageQueue, run: Run, tmp_path: Path
) -> None:
    from airflow.sdk.io import attach
    from fsspec.implementations.memory import MemoryFileSystem

    from airflow_mq.hooks import MessageQueueHook

    store = MemoryFileSystem()
    attach("s3", "lake", fs=store)
    sqlite_queue.admin.change_ring(blob_path=f"s3://lake@{tmp_path.name}/blobs")
    large = b"x" * 100_000
    (tmp_path / "1.csv").write_bytes(large)

    assert run.execute(enqueue(files=f"{tmp_path}/*.csv", origin="acme"))["count"] == 1

    (file,) = store.find(tmp_path.name)
    assert store.cat_file(file) == large
    with MessageQueueHook(CONN_ID).queue() as queue:
        with queue.payloads.open(queue.inspect.peek("acme")[0]) as kept:
            assert kept.read() == large
        queue.service_queues(lambda delivery: None, Weight(10**6, 10**9))
        queue.admin.housekeep()
        assert store.find(tmp_path.name) == [] and queue.check() == []


def test_files_of_an_object_store_by_a_connection(sqlite_queue: MessageQueue, run: Run, tmp_path: Path) -> None:
    from airflow.sdk import ObjectStoragePath
    from airflow.sdk.io import attach
    from fsspec.implementations.dirfs import DirFileSystem
    from fsspec.implementations.local import LocalFileSystem

    # Where names begin with a bucket's, and not with a slash.
    store = DirFileSystem(str(tmp_path), LocalFileSystem(auto_mkdir=True))
    attach("s3", tmp_path.name, fs=store)
    for name in ("1.csv", "2.csv", "note.txt"):
        store.pipe_file(f"bucket/in/acme/{name}", name.encode())
    address = f"s3://{tmp_path.name}@bucket/in/*/*.csv"

    for files in (address, ObjectStoragePath(address)):
        run.execute(enqueue(files=files, origin_pattern=r"/(?P<origin>[^/]+)/[^/]+$"))

    # The same files have the same keys.
    assert stored(sqlite_queue) == [("acme", b"1.csv"), ("acme", b"2.csv")]


@pytest.mark.parametrize("address", ["{}", "file://{}"])
def test_a_large_file_is_streamed(sqlite_queue: MessageQueue, run: Run, tmp_path: Path, address: str) -> None:
    size = 32 << 20
    with open(tmp_path / "1.csv", "wb") as file:
        file.truncate(size)
    files = enqueue(files=address.format(f"{tmp_path}/*.csv"), origin="acme")

    tracemalloc.start()
    try:
        assert run.execute(files)["count"] == 1
        assert tracemalloc.get_traced_memory()[1] < size // 2
    finally:
        tracemalloc.stop()
    assert [blob.size for blob in sqlite_queue.payloads.list()] == [size]


def test_files_of_an_object_store_and_paths_as_messages(sqlite_queue: MessageQueue, run: Run, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "1.csv").write_text("1")

    run.execute(enqueue(files=f"file://{tmp_path}/deep/*.csv", origin=lambda path: Path(path).parent.name))
    run.execute(enqueue(files=f"{tmp_path}/deep/*.csv", origin="paths", payload="path", idempotent=False))

    assert stored(sqlite_queue) == [("deep", b"1"), ("paths", f"{tmp_path}/deep/1.csv".encode())]


@pytest.mark.parametrize("address", ["{}", "file://{}"])
def test_links_lead_to_no_other_file(
    sqlite_queue: MessageQueue, run: Run, tmp_path: Path, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/key.csv").write_text("secret")
    (tmp_path / "real/acme").mkdir(parents=True)
    (tmp_path / "in").symlink_to("real")
    (tmp_path / "in/acme/1.csv").write_text("1")
    (tmp_path / "in/acme/2.csv").symlink_to(tmp_path / "secret/key.csv")
    (tmp_path / "in/acme/3.csv").symlink_to("1.csv")
    (tmp_path / "in/evil").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "in/acme/4.csv")

    # The author's own part of the path may be a link.
    for pattern in ("in/*/*.csv", "in/**/*.csv", "in/acme/1.csv", "in/acme/2.csv", "in/evil/key.csv"):
        files = enqueue(files=address.format(f"{tmp_path}/{pattern}"), origin="a", idempotent=False)
        assert run.execute(files)["count"] == (pattern != "in/acme/2.csv")
        run.execute(enqueue(files=address.format(f"{tmp_path}/{pattern}"), origin="p", payload="path"))

    found = stored(sqlite_queue)
    assert [payload for origin, payload in found if origin == "a"] == [b"1"] * 3 + [b"secret"]
    assert not any(b"2.csv" in payload or b"evil/key" in payload for _, payload in found[:-1])
    assert "left out 3 files, whose paths pass a link" in caplog.text


def test_a_folder_that_cannot_be_read_is_reported(
    sqlite_queue: MessageQueue,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Python's search leaves out what it cannot read, so that a task could succeed without a message."""
    landing = tmp_path / "in"
    (landing / "acme/deep").mkdir(parents=True)
    (landing / "closed").mkdir()
    (landing / "lost+found").mkdir()
    for name in ("acme/1.csv", "acme/deep/2.csv", "closed/3.csv"):
        (landing / name).write_text(name)
    # Root may read any folder.
    scandir, lexists = os.scandir, os.path.lexists
    monkeypatch.setattr(os, "access", lambda path, rights: not {"closed", "lost+found"} & set(Path(path).parts))
    monkeypatch.setattr(os, "scandir", lambda path: scandir("/dev/null" if "closed" in str(path) else path))
    monkeypatch.setattr(os.path, "lexists", lambda path: "closed" not in str(path) and lexists(path))
    for pattern in ("closed/*.csv", "closed/3.csv", "closed/**"):
        with pytest.raises(Exception, match=f"folder cannot be read: '{landing}/closed', of files="):
            run.execute(enqueue(files=f"{landing}/{pattern}", origin="a"))
    for pattern, count in (("*/*.csv", 1), ("**/*.csv", 2), ("**", 2), ("*/**", 2)):
        caplog.clear()
        assert run.execute(enqueue(files=f"{landing}/{pattern}", origin=pattern))["count"] == count
        (warning,) = [record.getMessage() for record in caplog.records if record.name == "airflow_mq.adapters"]
        assert warning == f"{landing}/{pattern}: cannot read the folder 'closed/'"


def test_a_folder_of_any_rights_keeps_no_file_of_others(caplog: pytest.LogCaptureFixture) -> None:
    """A sender may change the rights of its own folder."""
    from airflow_mq.operators.enqueue.files import matching

    def search() -> None:
        caplog.clear()
        for pattern in ("*/*.csv", "*/1.csv"):
            assert [name for name, _ in matching(f"{landing}/{pattern}")] == [f"{landing}/acme/1.csv"]
            assert f"{landing}/{pattern}: cannot read the folder 'odd/'" in caplog.text
        with pytest.raises(Exception, match=f"folder cannot be read: '{landing}/odd'"):
            list(matching(f"{landing}/odd/1.csv"))

    def unprivileged(probe: Callable[[str], None]) -> None:
        if os.geteuid() == 0:
            os.setuid(65_534)
        search()

    with tempfile.TemporaryDirectory() as landing:
        Path(landing).chmod(0o755)
        for name in ("acme", "odd"):
            Path(landing, name).mkdir()
            Path(landing, name, "1.csv").write_text(name)
        # Its names can be listed, or its files found by name.
        for rights in (0o444, 0o111):
            Path(landing, "odd").chmod(rights)
            run_child(unprivileged)
        Path(landing, "odd").chmod(0o755)


def test_a_link_that_replaces_a_file_while_it_is_read_is_not_followed(tmp_path: Path) -> None:
    from airflow_mq.adapters import Changed
    from airflow_mq.operators.enqueue.files import matching

    (tmp_path / "secret").write_text("secret")
    (tmp_path / "1.csv").write_text("1")
    ((path, file),) = matching(f"{tmp_path}/*.csv")
    (tmp_path / "1.csv").unlink()
    (tmp_path / "1.csv").symlink_to("secret")
    with pytest.raises(Changed):
        file.open()
    assert path == f"{tmp_path}/1.csv"


@pytest.mark.parametrize("size", [1_000, 100_000])
@pytest.mark.parametrize("address", ["{}", "file://{}", "s3://torn@{}"])
def test_a_file_that_changes_while_it_is_read_is_not_enqueued(
    sqlite_queue: MessageQueue, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, size: int
) -> None:
    from airflow.sdk.io import attach
    from fsspec.implementations.dirfs import DirFileSystem
    from fsspec.implementations.local import LocalFileSystem

    from airflow_mq.adapters.landing.folder import LocalPlace

    path = tmp_path / "2.csv"
    (tmp_path / "1.csv").write_bytes(b"1")
    path.write_bytes(b"a" * size)

    def changing(opened: Any) -> Any:
        def open_and_change(*args: Any, **kwargs: Any) -> Any:
            file = opened(*args, **kwargs)
            if "2.csv" in str(args):
                path.write_bytes(b"b" * size)
                os.utime(path, ns=(10**18, 10**18))
            return file

        return open_and_change

    store = DirFileSystem("/", LocalFileSystem())
    attach("s3", "torn", fs=store)
    files = enqueue(files=address.format(f"{tmp_path}/*.csv").replace("@/", "@"), origin="acme")
    with monkeypatch.context() as patched:
        patched.setattr(LocalPlace, "open", changing(LocalPlace.open))
        patched.setattr(store, "open", changing(store.open))
        with pytest.raises(Exception, match=r"2.csv' changed while the task read it; a retry reads it again"):
            run.execute(files)
    assert stored(sqlite_queue) == []
    assert run.execute(files)["count"] == 2


@pytest.mark.parametrize("payload", ["content", "path"])
def test_names_that_are_not_utf_8(sqlite_queue: MessageQueue, run: Run, tmp_path: Path, payload: str) -> None:
    name = os.fsencode(tmp_path) + b"/\xff.csv"
    with open(name, "wb") as file:
        file.write(b"1")
    run.execute(enqueue(files=f"{tmp_path}/*.csv", origin="acme", payload=payload))
    assert stored(sqlite_queue) == [("acme", b"1" if payload == "content" else name)]


def test_paths_of_this_machine_keep_their_form_and_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys contain both, so that what an earlier version sent is not sent again."""
    from airflow.sdk import ObjectStoragePath

    from airflow_mq.adapters.versions import version_tag
    from airflow_mq.operators.enqueue.files import matching

    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a/1.csv").write_text("1")
    status = os.stat("a/1.csv")
    version = f"{status.st_mtime_ns}+1"
    for pattern in ("*/*.csv", "a/*.csv", "a/1.csv", f"{tmp_path}/*/1.csv", f"{tmp_path}/a/1.csv"):
        ((path, file),) = matching(pattern)
        assert (path, file.version) == (f"{tmp_path}/a/1.csv" if "/" in pattern[:1] else "a/1.csv", version)
    ((path, file),) = matching(f"file://{tmp_path}/*/*.csv")
    (there,) = ObjectStoragePath(f"file://{tmp_path}").glob("*/*.csv")
    assert (path, file.version) == (str(there), version_tag(there.stat()))
    assert list(matching("/nowhere.csv")) == []
    with pytest.raises(Exception, match="folder not found: 'nowhere'"):
        list(matching("nowhere/*.csv"))


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A database behind a hook, with an outbox."""
    from airflow.providers.common.compat.sdk import BaseHook

    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE outbox (id INTEGER, tenant TEXT, body TEXT)")
        connection.executemany(
            "INSERT INTO outbox VALUES (?, ?, ?)", [(1, "acme", TEMPLATE), (2, "zebra", "2"), (3, "acme", "3")]
        )
    hook = SimpleNamespace(get_conn=lambda: sqlite3.connect(path), get_cursor=None)
    monkeypatch.setattr(BaseHook, "get_connection", classmethod(_or_shop(BaseHook.get_connection, hook)))


def _or_shop(known: Any, hook: Any) -> Any:
    def get_connection(cls: Any, conn_id: str) -> Any:
        return SimpleNamespace(get_hook=lambda: hook) if conn_id == "shop" else known(conn_id)

    return get_connection


@pytest.mark.usefixtures("shop")
def test_rows_of_a_query(queue: MessageQueue, run: Run) -> None:
    sql = {"sql": "SELECT * FROM outbox ORDER BY id", "sql_conn_id": "shop"}
    columns = {"origin_column": "tenant", "payload_column": "body", "key_column": "id"}

    assert run.execute(enqueue(**sql, **columns))["count"] == 3
    assert (
        run.execute(enqueue(sql_conn_id="shop", sql="SELECT * FROM outbox ORDER BY id DESC", **columns))["repeated"]
        == 3
    )
    run.execute(enqueue(**sql, origin=lambda row: f"whole {row['tenant']}", idempotent=False))

    found = stored(queue)
    assert found[:3] == [("acme", TEMPLATE.encode()), ("acme", b"3"), ("whole acme", _row(1, "acme", TEMPLATE))]
    assert len(found) == 6


def _row(number: int, tenant: str, body: str) -> bytes:
    return json.dumps({"id": number, "tenant": tenant, "body": body}, separators=(",", ":")).encode()


@pytest.mark.usefixtures("shop")
def test_a_row_with_a_key_of_its_own_is_sent_once_whatever_the_run(queue: MessageQueue, run: Run) -> None:
    rows = {"sql": "SELECT * FROM outbox ORDER BY id", "sql_conn_id": "shop", "origin_column": "tenant"}

    assert run.execute(enqueue(**rows, key_column="id"))["count"] == 3
    for run_id in ("r2", "r3"):
        assert run.airflow.run(run_id).execute(enqueue(**rows, key_column="id")) == {
            "count": 0, "size": 0, "repeated": 3,
        }  # fmt: skip
    # The key is the caller's own: another sender that uses it sends the same message.
    assert queue.enqueue_message("zebra", _row(2, "zebra", "2"), key="2").repeated == 1

    again = enqueue(**rows, key_column="id", key_scope="run")
    assert [run.airflow.run(run_id).execute(again)["count"] for run_id in ("r2", "r3", "r3")] == [3, 3, 0]
    # Places in a result are the run's own, and so is what has no keys.
    assert [run.airflow.run(run_id).execute(enqueue(**rows))["count"] for run_id in ("r2", "r3", "r3")] == [3, 3, 0]
    assert [run.execute(enqueue(**rows, key_column="id", idempotent=False))["count"] for _ in range(2)] == [3, 3]


def test_a_message_with_a_key_of_its_own_is_sent_once_whatever_the_run(sqlite_queue: MessageQueue, run: Run) -> None:
    said = {"origin": "a", "messages": [{"payload": "x", "key": "k"}, "y"]}

    assert run.execute(enqueue(**said))["count"] == 2
    assert run.airflow.run("r2").execute(enqueue(**said)) == {"count": 1, "size": 1, "repeated": 1}
    assert run.airflow.run("r2").execute(enqueue(**said, key_scope="run")) == {"count": 1, "size": 1, "repeated": 1}
    assert run.airflow.run("r3").execute(enqueue(**said, key_scope="run"))["count"] == 2


@pytest.mark.parametrize("address", ["{}/*.csv", "file://{}/*.csv"])
def test_a_file_is_sent_once_until_it_changes(
    sqlite_queue: MessageQueue, run: Run, tmp_path: Path, address: str
) -> None:
    files = {"files": address.format(tmp_path), "origin": "a"}
    (tmp_path / "1.csv").write_text("1")

    assert run.execute(enqueue(**files))["count"] == 1
    assert run.airflow.run("r2").execute(enqueue(**files)) == {"count": 0, "size": 0, "repeated": 1}
    (tmp_path / "1.csv").write_text("another")
    assert run.airflow.run("r3").execute(enqueue(**files))["count"] == 1
    assert run.airflow.run("r3").execute(enqueue(**files, key_scope="run"))["count"] == 1


@pytest.mark.parametrize("scope", ["ring", "run"])
@pytest.mark.parametrize("key", ["", 0, 17])
def test_a_key_that_is_none_is_refused(sqlite_queue: MessageQueue, run: Run, key: Any, scope: str) -> None:
    """Else each run would send the message again."""
    from airflow_mq.engine.rules.errors import InvalidInput

    with pytest.raises(InvalidInput, match="key"):
        run.execute(enqueue(origin="a", messages=[{"payload": "x", "key": key}], key_scope=scope))
    assert stored(sqlite_queue) == []


@pytest.mark.usefixtures("shop")
def test_a_row_whose_content_changed_under_its_key_is_reported(sqlite_queue: MessageQueue, run: Run) -> None:
    keyed = {"sql_conn_id": "shop", "origin": "a", "payload_column": "body", "key_column": "id"}
    run.execute(enqueue(sql="SELECT id, body FROM outbox", **keyed))
    with pytest.raises(Exception, match="has to change with its content"):
        run.airflow.run("r2").execute(enqueue(sql="SELECT id, 'new' AS body FROM outbox", **keyed))


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    ("kwargs", "says"),
    [
        ({"messages": ["x"]}, "has no origin"),
        ({"messages": 7, "origin": "a"}, "of type int"),
        ({"messages": [{"payload": "x", "origin": 17}]}, "has no origin .of type int"),
        ({"messages": [{"payload": "x", "orign": "a"}], "origin": "a"}, "unknown field orign"),
        ({"sql": "SELECT 1", "origin": "a"}, "sql_conn_id"),
        ({"sql": "SELECT 1 AS x", "sql_conn_id": "shop", "origin_column": "y"}, "no column 'y': it has x"),
        (
            {"sql": "SELECT 1 AS x, 2 AS x, 3", "sql_conn_id": "shop", "origin": "a"},
            "columns of the query are named 'x'",
        ),
        *(
            (
                {"sql": "SELECT x'6161' AS x", "sql_conn_id": "shop", "origin": "a", column: "x"},
                "binary data in column 'x'",
            )
            for column in ("origin_column", "key_column")
        ),
        (
            {"messages": ["x"], "origin": "a", "not_before": "soon"},
            "invalid not_before .soon.: expected seconds from 0 to 1e9",
        ),
        ({"messages": ["x"], "origin": "a", "key_scope": "day"}, "invalid key_scope 'day': expected 'ring' or 'run'"),
        ({"files": "/x/*", "origin": "a", "payload": "Path"}, "invalid payload 'Path': expected 'content' or 'path'"),
        ({"files": "/x/*", "origin_pattern": "("}, r"origin_pattern: invalid regular expression '\('"),
        ({"files": "/x/*", "origin_pattern": "(.*)"}, "origin_pattern: .* expected a group origin"),
        (
            {"sql": "SELECT x'00' AS x", "sql_conn_id": "shop", "origin": "a"},
            "JSON: it contains a value of type bytes; enc",
        ),
        ({"messages": [{"x": bytearray(1)}], "origin": "a"}, "value of type bytearray; encode"),
        ({"messages": [{"x": [memoryview(b"1")]}], "origin": "a"}, "value of type memoryview; encode"),
        ({"messages": [{"x": {"y"}}], "origin": "a"}, "value of type set; encode"),
        ({"messages": [{"x": float("nan")}], "origin": "a"}, "cannot become JSON: Out of range float values"),
        ({"messages": [{("x", "y"): 1}], "origin": "a"}, "cannot become JSON: keys must be str"),
    ],
)
def test_what_cannot_be_meant_is_refused(sqlite_queue: MessageQueue, run: Run, kwargs: Any, says: str) -> None:
    from airflow.providers.common.compat.sdk import AirflowFailException

    # Airflow itself reports an argument that is missing.
    with pytest.raises((AirflowFailException, TypeError), match=says):
        run.execute(enqueue(**kwargs))
    assert stored(sqlite_queue) == []


@pytest.mark.parametrize("kind", ["EnqueueMessagesOperator", "EnqueueFilesOperator", "EnqueueSqlOperator"])
def test_an_operator_requires_its_source_and_takes_no_other(kind: str) -> None:
    from airflow_mq.operators import enqueue

    sources = {"EnqueueMessagesOperator": "messages", "EnqueueFilesOperator": "files", "EnqueueSqlOperator": "sql"}
    given = {"sql_conn_id": "shop"} if kind == "EnqueueSqlOperator" else {}
    operator = partial(getattr(enqueue, kind), task_id="enqueue", origin="a", **given)
    with pytest.raises(Exception, match=sources.pop(kind)):
        operator()
    for other in sources.values():
        with pytest.raises(Exception, match=other):
            operator(**dict.fromkeys(["messages", "files", "sql"], "x"))


def test_a_weight_and_a_due_time_travel_along(sqlite_queue: MessageQueue, run: Run) -> None:
    run.execute(enqueue(origin="a", messages=["x"], weight="[7, 1]"))
    run.execute(enqueue(origin="b", messages=["later"], not_before="3600", idempotent=False))

    assert sqlite_queue.inspect.peek("a")[0].weight in (None, (7, 1))
    block = sqlite_queue.blocks.plan()
    assert (block.planned, block.origins) == ((7, 1), ["a"])
    sqlite_queue.blocks.release(block)


def test_who_may_not_send_fails_at_once(sqlite_queue: MessageQueue, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.common.compat.sdk import AirflowFailException

    extra = {"path": str(sqlite_queue.store.address.path), "origins": "acme*", "priority": "regular"}
    monkeypatch.setenv("AIRFLOW_CONN_CONFINED", json.dumps({"conn_type": "airflow_mq", "extra": extra}))
    operator = enqueue(origin="birch", messages=["an order"])
    operator.mq_conn_id = "confined"
    with pytest.raises(AirflowFailException, match=r"match 'acme\*', and 'birch' does not"):
        run.execute(operator)
    operator.origin = "acme/orders"
    assert run.execute(operator)["count"] == 1


def test_keys_that_are_long_or_odd_are_hashed() -> None:
    from airflow_mq.keys import key_for

    assert key_for("dag/run/task/-1", "0") == "dag/run/task/-1/0"
    assert key_for("x" * 999, "0").startswith("sha256:")
    assert key_for("run", "a\nb") != key_for("run", "a\nc")


def test_of_a_team(sqlite_queue: MessageQueue, run: Run) -> None:
    """A run with the team of its DAG."""
    from airflow_mq.operators.enqueue.base import team_of

    operator = enqueue(origin="orders", messages=["x", {"payload": "y", "origin": "mail"}], of_team=True)
    context = run.context("enqueue")
    context["dag_run"].team_name = "sales"
    operator.execute(context)
    assert {origin for origin, _ in stored(sqlite_queue)} == {"sales/orders", "sales/mail"}
    context["dag_run"].team_name = None
    with pytest.raises(Exception, match="it has none"):
        team_of(context)


def test_airflow_passes_the_team_to_a_task() -> None:
    import airflow
    from airflow.sdk.api.datamodels._generated import DagRun

    # Teams came with Airflow 3.3; before it `of_team` is refused, as for a DAG that has none.
    assert ("team_name" in DagRun.model_fields) == (airflow.__version__ >= "3.3")


def test_a_row_without_a_payload_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.common.compat.sdk import AirflowFailException

    from airflow_mq.operators.enqueue import rows

    hook = SimpleNamespace(get_cursor=None, get_conn=lambda: sqlite3.connect(":memory:"))
    connection = SimpleNamespace(get_hook=lambda: hook)
    monkeypatch.setattr(rows.BaseHook, "get_connection", lambda name: connection)
    sql = "SELECT 'one' AS body UNION ALL SELECT NULL"
    operator = rows.EnqueueSqlOperator(
        task_id="rows", sql=sql, sql_conn_id="shop", origin="acme", payload_column="body"
    )
    source = operator.source()
    assert next(source).payload == "one"
    with pytest.raises(AirflowFailException, match="NULL in column 'body'"):
        next(source)
