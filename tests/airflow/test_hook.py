"""The hook: a closed form (S3, S4), and a test button that changes nothing and shows no secret (S5)."""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import airflow_mq.engine.store as store
from airflow_mq import failures
from airflow_mq.engine.rules.errors import AddressRefused, NotPermitted, StoreUnreachable, UnknownRing
from airflow_mq.engine.rules.patterns import Permit

pytestmark = pytest.mark.airflow

CANARY = "hunter2canary"
POSTGRES = {
    "conn_type": "airflow_mq",
    "host": "db.example.com",
    "login": "u",
    "password": CANARY,
    "schema": "d",
}
Hook = Callable[..., Any]


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Hook:
    """Makes a hook for a connection of these fields."""
    from airflow_mq.hooks import MessageQueueHook

    def make(extra: Any = None, **fields: Any) -> Any:
        connection = {"conn_type": "airflow_mq", **fields}
        if extra is not None:
            connection["extra"] = extra if isinstance(extra, str) else json.dumps(extra)
        monkeypatch.setenv("AIRFLOW_CONN_MQ_SCENE", json.dumps(connection))
        return MessageQueueHook("mq_scene")

    return make


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "root").mkdir()
    monkeypatch.setenv("AIRFLOW__AIRFLOW_MQ__SQLITE_ROOT", str(tmp_path / "root"))
    return tmp_path / "root"


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Answer of the store to a question for its schema: an error, or a state."""

    def set_answer(answer: Any) -> None:
        def schema_status(address: Any, timeout: float) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return store.SchemaStatus({"missing": None, "older": 3, "newer": 5}[answer], 4)

        monkeypatch.setattr(store, "schema_status", schema_status, raising=False)

    return set_answer


def refused(hook: Any) -> str:
    with pytest.raises(AddressRefused) as caught:
        hook.address()
    assert CANARY not in str(caught.value)
    return str(caught.value)


# -- from fields to an address --


def test_the_connection_holds_the_sending_permit(hook: Hook, tmp_path: Path) -> None:
    extra = {"origins": "acme|acme/*", "priority": "regular"}
    assert hook(extra, **{**POSTGRES, "conn_type": "airflow_mq"}).address().permit == Permit("acme|acme/*", "regular")
    store.upgrade(store.parse(f"sqlite:///{tmp_path}/store.db"))
    with hook({"path": f"{tmp_path}/store.db", **extra}).queue() as queue:
        queue.enqueue_message("acme/orders", b"1")
        with pytest.raises(NotPermitted, match="'birch' does not"):
            queue.enqueue_message("birch", b"1")
    for wrong in ({"origins": "|"}, {"priority": "high"}, {"origins": ["acme"]}):
        assert refused(hook({**wrong}, **POSTGRES))


def test_the_fields_of_postgres(hook: Hook) -> None:
    extra = {"driver": "postgresql", "db_schema": "mq", "sslmode": "require", "connect_timeout": 3, "ring": "night"}

    address = hook(**POSTGRES, port=6432, extra=extra).address()

    assert address.safe == "postgresql://u@db.example.com:6432/d?schema=mq&sslmode=require&connect_timeout=3"
    assert address.password == CANARY


def test_the_fields_of_sqlite(hook: Hook, tmp_path: Path) -> None:
    assert hook({"driver": "sqlite", "path": f"{tmp_path}/store.db"}).address().path == tmp_path.resolve() / "store.db"


def test_what_the_form_leaves_empty_counts_as_left_out(hook: Hook, tmp_path: Path) -> None:
    empty = {"db_schema": "", "sslmode": None, "connect_timeout": None, "ring": ""}

    assert hook(**POSTGRES, extra={**empty, "driver": None, "path": ""}).address().safe == (
        "postgresql://u@db.example.com:5432/d"
    )
    assert hook({**empty, "path": f"{tmp_path}/store.db"}, host="", login="", schema="").address().driver == "sqlite"


def test_an_address_given_as_airflows_uri(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    made = hook()
    monkeypatch.setenv("AIRFLOW_CONN_MQ_SCENE", "airflow-mq://u:p%40@h:6432/d?driver=postgresql&connect_timeout=7")

    address = made.address()

    assert (address.password, address.port, address.connect_timeout) == ("p@", 6432, 7)


@pytest.mark.parametrize("driver", ["mysql", "SQLite", "postgres", "postgresql+psycopg", "sqlite3", "../x"])
def test_another_driver_is_refused(hook: Hook, driver: str) -> None:
    assert "one of sqlite, postgresql" in refused(hook(**POSTGRES, extra={"driver": driver}))


LOOK_ALIKES = ("Driver", "drivers", "extra__airflow_mq__driver", "__extra__", "load_extension")


@pytest.mark.parametrize(
    "key",
    [
        "service",
        "passfile",
        "sslkey",
        "sslrootcert",
        "options",
        "hostaddr",
        "dbname",
        "uri",
        "mode",
        "vfs",
        *LOOK_ALIKES,
    ],
)
def test_another_key_is_refused_by_name(hook: Hook, key: str) -> None:
    assert f"'{key}' in the extra of the connection is not known" in refused(hook(**POSTGRES, extra={key: CANARY}))


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ('{"ring": "a", "ring": "hunter2canary"}', "a key twice"),
        ("[1]", "not a JSON object"),
        ('"hunter2canary"', "not a JSON object"),
        ("{nope hunter2canary", "not JSON"),
        ("[" * 10_000, "not JSON"),
        ('{"ring": ' + "[" * 10_000 + "]" * 10_000 + "}", "not"),
        ('{"hunter2canary !": 1}', "a key in the extra"),
        ('{"ring": {"hunter2canary": 1}}', "ring in the extra of the connection is not text"),
        ('{"path": 7}', "not text"),
        ('{"connect_timeout": true}', "not text"),
        ('{"connect_timeout": 1.5}', "not text"),
        ('{"connect_timeout": 0}', "1 to 60"),
        ('{"connect_timeout": 61}', "1 to 60"),
        ('{"connect_timeout": -1}', "not a whole number"),
        ('{"statement_timeout": true}', "not text"),
        ('{"statement_timeout": 100000}', "not a whole number, or too large"),
        ('{"tcp_user_timeout": 30000}', "1 to 600"),
        ('{"keepalives": 0}', "is not known"),
        ('{"connect_timeout": "5; options=x"}', "not a whole number"),
        ('{"sslmode": "off"}', "sslmode"),
        ('{"db_schema": "mq; DROP"}', "schema"),
        ('{"path": "/tmp/store.db"}', "driver postgresql has no path"),
    ],
)
def test_another_extra_is_refused(extra: str, says: str) -> None:
    from airflow_mq.connections import target_of

    connection = SimpleNamespace(port=None, extra=extra, **POSTGRES)
    with pytest.raises(AddressRefused) as caught:
        target_of(connection)

    assert says in str(caught.value)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"host": "h1,/var/run/postgresql"}, "Unix socket"),
        ({"host": "/var/run/postgresql"}, "Unix socket"),
        ({"host": "postgresql://u@h"}, "one name or one IP address"),
        ({"host": None}, "no host"),
        ({"login": None}, "no user"),
        ({"schema": None}, "no database"),
        ({"schema": "host=evil passfile=x"}, "without = and ://"),
        ({"port": 70000}, "1 to 65535"),
        ({"port": 0}, "1 to 65535"),
    ],
)
def test_other_fields_of_postgres_are_refused(fields: dict[str, Any], says: str) -> None:
    from airflow_mq.connections import target_of

    connection = SimpleNamespace(**{**POSTGRES, "port": None, "extra": '{"driver": "postgresql"}', **fields})
    with pytest.raises(AddressRefused, match=says):
        target_of(connection)


@pytest.mark.parametrize("schema", [None, "tmp/queue.db"])
def test_a_connection_without_a_host_and_a_path_names_both(schema: str | None) -> None:
    """So is one that was written as `sqlite:////tmp/queue.db`, which Airflow reads as a schema."""
    from airflow_mq.connections import target_of

    connection = SimpleNamespace(host="", port=None, login=None, password=None, schema=schema, extra=None)
    with pytest.raises(AddressRefused, match=r"names no store: it needs a host \(PostgreSQL\), or a path in extra"):
        target_of(connection)


def test_several_hosts_have_the_port_of_the_connection(hook: Hook) -> None:
    address = hook(**{**POSTGRES, "host": "h1,h2:5434", "port": 5433}).address()

    assert address.safe == "postgresql://u@h1:5433,h2:5434/d?target_session_attrs=read-write"


@pytest.mark.parametrize(
    "path", ["", ":memory:", "file:store.db?mode=memory", "store.db?mode=rwc", "sqlite:///store.db", "/tmp/", "a\0b"]
)
def test_another_sqlite_path_is_refused(hook: Hook, path: str) -> None:
    refused(hook({"driver": "sqlite", "path": path}))


def test_a_sqlite_connection_has_no_field_of_postgres(hook: Hook) -> None:
    said = refused(hook({"driver": "sqlite", "path": "/tmp/x.db", "sslmode": "require"}, host="h", password=CANARY))

    assert "the driver sqlite has no host, password, sslmode" in said


def test_sqlite_paths_stay_below_the_configured_folder(hook: Hook, root: Path) -> None:
    assert hook({"driver": "sqlite", "path": "store.db"}).address().path == root.resolve() / "store.db"
    (root / "link.db").symlink_to("/etc/passwd")
    (root / "folder").symlink_to("/etc")

    for path in ("/etc/passwd", "../store.db", "folder/passwd", "link.db", f"{root}/../store.db"):
        refused(hook({"driver": "sqlite", "path": path}))


def test_the_queue_is_opened_on_the_ring_asked_for(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_mq.observe import hooked

    opened: list[tuple[str, str]] = []

    def open_queue(uri: str, ring: str, **how: Any) -> Any:
        opened.append((uri, ring))
        return SimpleNamespace(store=SimpleNamespace())

    monkeypatch.setattr(hooked, "HookedQueue", open_queue)
    made = hook(**POSTGRES, extra={"ring": "night"})

    made.get_conn()
    made.queue("day")
    made.ring = "noon"
    made.get_conn()
    hook(**POSTGRES).get_conn()

    assert [ring for _, ring in opened] == ["night", "day", "noon", "default"]
    assert {uri for uri, _ in opened} == {f"postgresql://u:{CANARY}@db.example.com:5432/d"}


# -- the test button --


def test_testing_a_missing_file_creates_nothing(hook: Hook, root: Path) -> None:
    ok, said = hook({"driver": "sqlite", "path": "store.db"}).test_connection()

    assert not ok
    assert "store.db: no store can be read here; make one with `airflow-mq store upgrade`" in said
    assert list(root.iterdir()) == []


def test_testing_does_not_distinguish_a_strange_file_from_a_missing_one(hook: Hook, root: Path) -> None:
    (root / "store.db").write_text("not a database")
    _, missing = hook({"driver": "sqlite", "path": "other.db"}).test_connection()
    _, strange = hook({"driver": "sqlite", "path": "store.db"}).test_connection()

    assert strange.replace("store.db", "") == missing.replace("other.db", "")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("missing", "The store has no schema yet; run `airflow-mq store upgrade`"),
        ("older", "the store has schema version 3, this client expects 4; run `airflow-mq store upgrade`"),
        ("newer", "the store has schema version 5, this client expects 4; upgrade airflow-mq here"),
        (StoreUnreachable(f"connection to u:{CANARY}@h failed"), "does not answer"),
        (UnknownRing(f"{CANARY}"), "no ring of this name"),
        (ValueError(f"password={CANARY}"), "it could not be looked at (ValueError)"),
        (sqlite3.DatabaseError(CANARY), "it could not be looked at (DatabaseError)"),
    ],
)
def test_problems_are_described_in_our_own_words(hook: Hook, answers: Any, answer: Any, says: str) -> None:
    answers(answer)

    ok, said = hook(**POSTGRES).test_connection()

    assert not ok
    assert said.startswith("postgresql://u@db.example.com:5432/d: ") and says in said
    assert CANARY not in said


def test_a_refused_connection_gives_the_reason(hook: Hook) -> None:
    ok, said = hook(**POSTGRES, extra={"service": CANARY}).test_connection()

    assert not ok
    assert said.startswith("this connection: 'service' in the extra") and CANARY not in said


def test_a_missing_connection_is_no_traceback() -> None:
    from airflow_mq.hooks import MessageQueueHook

    ok, said = MessageQueueHook("mq_nowhere").test_connection()

    assert not ok and said.startswith("this connection: it could not be looked at (")


def test_airflows_own_button_reaches_it(hook: Hook, root: Path) -> None:
    from airflow.models import Connection

    made = hook({"driver": "sqlite", "path": "store.db"})
    connection = Connection(conn_id=made.mq_conn_id, conn_type="airflow_mq", extra='{"path": "store.db"}')

    ok, said = connection.test_connection()

    assert not ok and "no store can be read here" in said


def test_testing_ends_in_time_whatever_hangs(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    import airflow_mq.hooks as hooks

    monkeypatch.setattr(hooks, "TEST_SECONDS", 0.2)
    hangs = threading.Event()
    monkeypatch.setattr(store, "schema_status", lambda address, timeout: hangs.wait(60), raising=False)
    began = time.monotonic()

    ok, said = hook(**POSTGRES).test_connection()

    assert time.monotonic() - began < 30
    assert not ok and "does not answer" in said
    hangs.set()


# -- the test button on real stores --


@pytest.fixture
def black_hole() -> Iterator[int]:
    """Port of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def fields_of(uri: str) -> dict[str, Any]:
    from airflow_mq.engine.store.address import parse

    address = parse(uri)
    if address.path is not None:
        return {"extra": {"driver": "sqlite", "path": str(address.path)}}
    names = {"host": address.host, "port": address.port, "login": address.user, "password": address.password}
    return {**names, "schema": address.database, "extra": {"driver": "postgresql"}}


@pytest.mark.slow
def test_an_unreachable_host_is_given_up_in_time(hook: Hook, black_hole: int) -> None:
    began = time.monotonic()

    ok, said = hook(**{**POSTGRES, "host": "127.0.0.1", "port": black_hole}).test_connection()

    assert time.monotonic() - began < 30
    assert not ok and "does not answer" in said and CANARY not in said


def test_a_wrong_password_is_not_repeated(hook: Hook, pg_uri: str) -> None:
    ok, said = hook(**{**fields_of(pg_uri), "password": CANARY}).test_connection()

    assert not ok and CANARY not in said and "could not be looked at" not in said
    assert "the server refused the user or the password; correct login and password" in said


@pytest.mark.empty_store
def test_the_check_shows_schema_ring_and_footprint(hook: Hook, store_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import airflow_mq
    from airflow_mq.engine.store.address import parse

    made = hook(**fields_of(store_uri))
    assert made.test_connection()[0] is False
    store.upgrade(parse(store_uri))
    with made.get_conn() as queue:
        queue.enqueue_messages("here", [b"one", b"three"])
    before = everything(store_uri)

    ok, said = made.test_connection()

    assert ok, said
    version = store.schema_status(parse(store_uri)).version
    assert f"schema {version}; ring 'default' holds 2 messages of 8 bytes in 1 queue" in said
    # It reads no queue to its end.
    monkeypatch.setattr("airflow_mq.engine.queue.inspect.queues.MOST_ROWS", 2)
    with made.get_conn() as queue:
        for _ in range(3):
            queue.enqueue_message("there", b"x")
    before = everything(store_uri)
    assert "at least 4 messages of 10 bytes in 2 queues" in made.test_connection()[1]
    assert everything(store_uri) == before
    assert airflow_mq.__version__


def everything(uri: str) -> dict[str, bytes]:
    """The files beside a SQLite store."""
    from airflow_mq.engine.store.address import parse

    path = parse(uri).path
    return {file.name: file.read_bytes() for file in path.parent.iterdir() if file.is_file()} if path else {}


def test_the_configuration_lets_logs_show_texts_of_errors(monkeypatch: pytest.MonkeyPatch, sqlite_queue: Any) -> None:
    from airflow_mq.hooks import MessageQueueHook

    monkeypatch.setenv(failures.VARIABLE, "")
    with MessageQueueHook("mq_stage").queue():
        assert not failures.texts_allowed()
    monkeypatch.setenv("AIRFLOW__AIRFLOW_MQ__LOG_ERROR_TEXTS", "True")
    with MessageQueueHook("mq_stage").queue():
        assert failures.texts_allowed()
