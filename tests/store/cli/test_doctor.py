"""`doctor`: each thing that can be wrong is found, with what to do about it."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from airflow_mq import MessageQueue, Weight, Yield
from airflow_mq.cli import doctor
from airflow_mq.engine.rules.errors import Busy
from airflow_mq.engine.store import parse
from airflow_mq.engine.store.roles import grant
from tests.proofs.model.clock import SECOND, stopped_clock
from tests.store.cli.conftest import Terminal

pytestmark = pytest.mark.usefixtures("careful_server")


def bad(mq: Terminal) -> list[dict[str, Any]]:
    """Return the checks that the doctor reports as wrong."""
    found = mq.json("doctor", code=1)
    assert found["ok"] is False
    wrong = [one for one in found["findings"] if one["level"] == "wrong"]
    assert wrong and all(one["do"] for one in wrong)
    return wrong


def test_days_that_a_clock_ahead_closed(mq: Terminal, queue: MessageQueue) -> None:
    with stopped_clock() as clock:
        now = clock.now = round(time.time()) * SECOND
        queue.enqueue_message("acme", b"x")
        queue.service_queues(lambda delivery: None)
        for days in (1, 40):
            clock.now = now + days * 86_400 * SECOND
            queue.admin.housekeep()
            clock.now = now + (days == 1) * 86_400 * SECOND
            checks = [one["check"] for one in mq.json("doctor", code=1)["findings"] if one["level"] == "wrong"]
            assert ("bills of default" in checks) == (days == 40)
        assert "no day is closed" in mq("status", code=1).out
        clock.now = now + 45 * 86_400 * SECOND
        assert "no day is closed" not in mq("status").out


def test_a_store_in_order(mq: Terminal) -> None:
    found = mq.json("doctor")

    assert found["ok"] is True
    assert {"schema", "clock", "ring default", "blocks of default", "settings", "bloat"} <= {
        one["check"] for one in found["findings"]
    }
    assert "nothing is wrong" in mq("doctor").out
    assert mq("doctor", "--quiet").out == ""


@pytest.mark.empty_store
def test_a_store_without_tables(empty: Terminal) -> None:
    (found,) = bad(empty)

    assert found["check"] == "schema" and "store upgrade" in found["do"]
    assert "other checks: left out" in empty("doctor", code=1).out


def test_a_clock_that_is_off(mq: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time
    with stopped_clock() as store:
        monkeypatch.setattr(doctor.time, "time", lambda: store.now / SECOND - 90)
        (found,) = bad(mq)
    assert found["check"] == "clock" and "90 s ahead" in found["what"]

    monkeypatch.setattr(doctor.time, "time", lambda: real() + 10)
    assert [one["level"] for one in mq.json("doctor")["findings"] if one["check"] == "clock"] == ["note"]


def test_settings_of_a_ring_that_hurt(mq: Terminal) -> None:
    mq("ring", "create", "hasty", "--lease", "2")
    mq("ring", "create", "tight", "--service-weight", "10/100")

    assert {one["check"] for one in bad(mq)} == {"ring hasty", "ring tight"}


@pytest.mark.slow
def test_a_block_past_its_deadline(mq: Terminal, queue: MessageQueue) -> None:
    mq("enqueue", "acme", "x")
    block = queue.blocks.plan(lease=0.01)
    time.sleep(0.1)

    (found,) = bad(mq)
    assert block.token in found["do"]
    mq("block", "release", block.token)
    mq("doctor")


@pytest.mark.slow
def test_an_empty_block_past_its_deadline_holds_up_nothing(mq: Terminal, queue: MessageQueue) -> None:
    queue.blocks.plan(lease=0.01)
    time.sleep(0.1)
    mq("doctor")

    # Its decision sets the message aside when it is settled.
    queue.enqueue_message("heavy", b"x", weight=Weight(1 << 40, 0))
    block = queue.blocks.plan(lease=0.01)
    time.sleep(0.1)
    assert block.messages == 0 and block.token in bad(mq)[0]["do"]


def test_who_holds_a_ring(mq: Terminal, queue: MessageQueue) -> None:
    notes: list[Any] = []

    def look(_: Any) -> None:
        notes.extend(one for one in mq.json("doctor")["findings"] if one["check"] == "hold on default")

    mq("enqueue", "acme", "x")
    queue.service_queues(look)
    assert f"process {os.getpid()}" in notes[0]["what"]

    table = "mq_ring_state" if queue.store.address.driver == "sqlite" else f'"{queue.store.address.schema}".ring_state'
    blob = "x'00'" if queue.store.address.driver == "sqlite" else "'\\x00'"
    set_lease = f"UPDATE {table} SET lease_holder = 'a ghost', lease_token = {blob}, lease_until = "
    queue.store.lent().connection.execute(set_lease + str((int(time.time()) + 9999) * 1_000_000))
    assert "a ghost" in bad(mq)[0]["what"]
    with MessageQueue(mq.uri, busy_timeout=0.1) as other, pytest.raises(Busy, match="a ghost"):
        other.blocks.plan()
    queue.store.lent().connection.execute(bad(mq)[0]["do"].partition("let others take the ring: ")[2])
    assert queue.blocks.plan()
    queue.store.lent().connection.execute(set_lease + str((int(time.time()) + 9999) * 1_000_000))
    queue.store.lent().connection.execute(set_lease + "1")
    assert "a ghost stopped" in str(mq.json("doctor")["findings"])


@pytest.fixture
def sqlite(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A store on SQLite."""
    return made(Terminal(capsys, f"sqlite:///{tmp_path / 'store.db'}"), monkeypatch)


@pytest.fixture
def postgres(pg_uri: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A store on PostgreSQL."""
    return made(Terminal(capsys, pg_uri), monkeypatch)


def made(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("AIRFLOW_MQ_STORE", terminal.uri)
    terminal("store", "upgrade")
    return terminal


#: Copies a leased message a thousand times.
LEASES = """
    INSERT INTO mq_block (id, ring, number, token, seconds, deadline, planned_at, details)
    WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 1000)
    SELECT id + 1000 + n, ring, number + n, randomblob(16), seconds, deadline, planned_at, details
    FROM n, (SELECT * FROM mq_block ORDER BY number DESC LIMIT 1)
"""


def test_a_block_past_its_deadline_before_many_that_live(sqlite: Terminal) -> None:
    with MessageQueue(sqlite.uri) as queue:
        queue.enqueue_messages([("acme", b"x"), ("other", b"x")])
        block = queue.blocks.plan(origins=["acme"])
        assert queue.leases.view("other").try_next()
        queue.store.lent().connection.execute(LEASES)
        queue.store.lent().connection.execute("UPDATE mq_block SET deadline = 1 WHERE number = ?", (block.id,))
        assert len(queue.blocks.list("planned", limit=2_000)) == 1_002
    for command in ("doctor", "status"):
        assert f"block release {block.token}" in sqlite(command, code=1).out


def test_a_file_whose_tables_were_changed(sqlite: Terminal) -> None:
    with closing(sqlite3.connect(parse(sqlite.uri).file)) as connection:
        connection.executescript("DROP INDEX mq_page_with_set_aside; DROP TRIGGER mq_inbox_leaves_blobs")
    (found,) = bad(sqlite)
    assert found["what"].endswith(
        ": trigger inbox_leaves_blobs of inbox is missing, index page_with_set_aside is missing"
    )
    # A table can be read without them.
    assert {"clock", "ring default", "disk"} <= {one["check"] for one in sqlite.json("doctor", code=1)["findings"]}
    with closing(sqlite3.connect(parse(sqlite.uri).file)) as connection:
        connection.execute("DROP TABLE mq_ring")
    assert "other checks: left out" in sqlite("doctor", code=1).out


@pytest.mark.postgres
def test_a_schema_whose_tables_were_changed(postgres: Terminal) -> None:
    with psycopg.connect(**parse(postgres.uri).conninfo(), autocommit=True) as connection:
        connection.execute('ALTER TABLE "airflow_mq".book DISABLE TRIGGER one_row')
        connection.execute('DROP FUNCTION "airflow_mq".new_origins CASCADE')
        connection.execute(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'airflow_mq.inbox_by_id'::regclass"
        )
        connection.execute("""UPDATE "airflow_mq".migration SET checksum = 'other'""")
        (found,) = bad(postgres)
        assert found["check"] == "schema" and found["what"].endswith(
            ": migration 0001_baseline was applied in another wording, index inbox_by_id is missing, function new_origins "
            "is missing, trigger one_row of book is missing"
        )
        connection.execute('DROP TABLE "airflow_mq".ring CASCADE')
        assert "and 1 more" not in bad(postgres)[0]["what"] and "table ring is missing" in bad(postgres)[0]["what"]
        assert "other checks: left out" in postgres("doctor", code=1).out


def test_a_log_that_grew(sqlite: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageQueue(sqlite.uri) as queue:
        queue.enqueue_message("acme", b"x")
        monkeypatch.setattr(doctor, "LARGE_LOG", 100)

        assert [one["check"] for one in bad(sqlite)] == ["log"]


def test_an_empty_file_and_a_full_disk(sqlite: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageQueue(sqlite.uri) as queue:
        queue.enqueue_messages("acme", [b"x" * 60_000] * 50)
        queue.store.lent().connection.execute("DELETE FROM mq_inbox")
        monkeypatch.setattr(doctor, "FREE_BYTES", 1000)
        monkeypatch.setattr(doctor, "LITTLE_ROOM", 1 << 60)

        assert [one["check"] for one in bad(sqlite)] == ["bloat", "disk"]


def test_a_file_that_others_may_read(sqlite: Terminal) -> None:
    with MessageQueue(sqlite.uri) as queue:
        queue.enqueue_message("acme", b"x")
        path = queue.store.address.path
        assert path is not None

        def rights() -> dict[str, Any]:
            (found,) = [one for one in sqlite.json("doctor")["findings"] if one["check"] == "rights"]
            return dict(found)

        assert rights()["level"] == "ok"
        path.chmod(0o640)
        assert rights()["level"] == "note" and f"chmod 600 {path}," in rights()["do"]


@pytest.mark.postgres
def test_a_transaction_that_stays_open(postgres: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "IDLE", 0.0)
    with psycopg.connect(postgres.uri, application_name="the culprit") as connection:
        connection.execute("SELECT 1")

        found = bad(postgres)

    assert "the culprit" in found[0]["what"] and "pg_terminate_backend" in found[0]["do"]


@pytest.mark.postgres
@pytest.mark.parametrize("table", ["ring", "inbox_sum"])
def test_a_session_that_holds_locks_of_the_store(
    postgres: Terminal, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    monkeypatch.setattr(doctor, "IDLE", 0.0)
    with psycopg.connect(postgres.uri, application_name="the culprit", autocommit=True) as connection:
        connection.execute("SELECT 1")
        assert {one["level"] for one in postgres.json("doctor")["findings"] if one["check"] == "transactions"} == {"ok"}
        connection.execute(f"SELECT pg_advisory_lock('airflow_mq.{table}'::regclass::oid::integer, 1)".encode())

        (found,) = bad(postgres)

    assert "the culprit" in found["what"] and "holds locks of the store without a transaction" in found["what"]


@pytest.mark.postgres
def test_a_session_that_holds_locks_and_hides_its_activity(postgres: Terminal) -> None:
    with psycopg.connect(postgres.uri, autocommit=True, options="-c track_activities=off") as connection:
        connection.execute("SELECT pg_advisory_lock('airflow_mq.ring'::regclass::oid::integer, 1)")
        assert {one["level"] for one in postgres.json("doctor")["findings"] if one["check"] == "transactions"} == {"ok"}


@pytest.mark.postgres
def test_settings_of_the_server_that_hurt(postgres: Terminal) -> None:
    with psycopg.connect(postgres.uri, autocommit=True) as connection:
        connection.execute(f'ALTER DATABASE "{connection.info.dbname}" SET synchronous_commit = off')

    assert "synchronous_commit is off" in bad(postgres)[0]["what"]


@pytest.mark.postgres
def test_rights_that_let_another_role_run_code(postgres: Terminal) -> None:
    with psycopg.connect(postgres.uri, autocommit=True) as connection:
        role = f"other {connection.info.dbname}"  # roles are of the whole server, which other tests share
        connection.execute(f'CREATE ROLE "{role}"')
        try:
            connection.execute("GRANT CREATE ON SCHEMA airflow_mq TO PUBLIC")
            connection.execute(f'GRANT TRIGGER, SELECT ON airflow_mq.inbox TO "{role}"')
            connection.execute(f'GRANT SELECT, UPDATE, DELETE ON airflow_mq.migration TO "{role}"')

            found = {one["do"]: one["what"] for one in bad(postgres)}
            assert set(found) == {
                "REVOKE CREATE ON SCHEMA airflow_mq FROM PUBLIC",
                f'REVOKE TRIGGER ON airflow_mq.inbox FROM "{role}"',
            }
            for statement in found:
                connection.execute(statement)
            (left,) = [one for one in postgres.json("doctor")["findings"] if one["check"] == "rights"]
            assert (left["level"], left["do"]) == (
                "note", f'REVOKE DELETE, UPDATE ON airflow_mq.migration FROM "{role}"',
            )  # fmt: skip
            connection.execute(left["do"])
            assert "no other role may" in str(postgres.json("doctor")["findings"])
        finally:
            connection.execute(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"')


@pytest.mark.postgres
def test_tables_full_of_dead_rows(postgres: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageQueue(postgres.uri) as queue:
        monkeypatch.setattr(doctor, "DEAD_ROWS", 100)
        connection = queue.store.lent().connection
        connection.execute('ALTER TABLE "airflow_mq".inbox SET (autovacuum_enabled = off)')
        queue.enqueue_messages([(f"origin {number}", b"x") for number in range(500)])
        connection.execute('DELETE FROM "airflow_mq".inbox')
        give_up = time.monotonic() + 60
        while (
            connection.execute("SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'inbox'").fetchone()[0] < 500
        ):
            assert time.monotonic() < give_up
            time.sleep(0.2)

        assert "table inbox has 500 dead rows" in bad(postgres)[0]["what"]


def test_a_queue_that_no_dag_takes(mq: Terminal) -> None:
    mq("enqueue", "zebra", "x")
    with MessageQueue(mq.uri) as queue:
        queue.blocks.settle(queue.blocks.plan(server="DAG 'orders' of Airflow 'here', task 'plan'", origins=["a*"]))

    (found,) = bad(mq)

    assert found["check"] == "servers of default" and "DAG 'orders', task 'plan' takes a*" in found["what"]
    assert "DAG 'orders', task 'plan' services the origins a* with a limit of" in mq("doctor", code=1).out


def test_what_to_do_about_a_ring_names_it(mq: Terminal) -> None:
    mq("ring", "create", "night")
    with MessageQueue(mq.uri, "night") as queue:
        queue.enqueue_message("acme", b"x", weight=Weight(1_000, 1))
        server = "DAG 'orders' of Airflow 'here', task 'plan'"
        queue.blocks.settle(queue.blocks.plan(limit=Weight(10, 1 << 20), server=server))
    (found,) = bad(mq)
    assert found["do"].endswith("airflow-mq ring change --set set_aside_above=block --ring night")


@pytest.mark.postgres
def test_rights_that_are_wider_than_needed(postgres: Terminal) -> None:
    address = parse(postgres.uri)
    with psycopg.connect(postgres.uri, autocommit=True) as connection:
        database = connection.info.dbname
        sender, reader, runtime, group, former = (
            f"{kind} {database}" for kind in ("sender", "reader", "runtime", "group", "former")
        )

        def findings(code: int = 0) -> dict[str, str]:
            found = [one for one in postgres.json("doctor", code=code)["findings"] if one["check"] == "grants"]
            return {one["do"]: f"{one['level']}: {one['what']}" for one in found}

        try:
            for kind, role in (("sender", sender), ("sender", group), ("reader", reader), ("runtime", runtime)):
                grant(address, kind, role)  # type: ignore[arg-type]
            assert findings() == {"": "ok: no role has more rights on the tables than its kind needs"}

            grant(address, "sender", former)
            ((number,),) = connection.execute("SELECT oid FROM pg_roles WHERE rolname = %s", (former,)).fetchall()
            connection.execute(f'DROP OWNED BY "{former}"; DROP ROLE "{former}"')
            for statement in (
                f'GRANT SELECT, DELETE ON airflow_mq.inbox TO "{sender}"',
                f'GRANT INSERT ON airflow_mq.outbox TO "{sender}"',
                f'GRANT SELECT (data) ON airflow_mq.chunk TO "{sender}"',
                f'GRANT pg_read_all_data TO "{group}"',
                f'GRANT SELECT (heap) ON airflow_mq.inbox TO "{reader}"',
                f'GRANT SELECT ON airflow_mq.chunk TO "{reader}"',
                "GRANT SELECT ON airflow_mq.event TO PUBLIC",
                "GRANT EXECUTE ON FUNCTION airflow_mq.send TO PUBLIC",
            ):
                connection.execute(statement.encode())
            found = findings(code=1)
            tables = "airflow_mq.chunk, airflow_mq.inbox"
            assert set(found) == {
                "REVOKE SELECT ON airflow_mq.event FROM PUBLIC",
                "REVOKE EXECUTE ON FUNCTION airflow_mq.send FROM PUBLIC",
                f'REVOKE DELETE, INSERT, SELECT ON {tables}, airflow_mq.outbox FROM "{sender}"',
                f'REVOKE pg_read_all_data FROM "{group}"',
                f'REVOKE SELECT ON {tables} FROM "{reader}", then airflow-mq store grant reader "{reader}"',
                f"airflow-mq store revoke {number}",
            }
            for statement, what in found.items():
                is_note = "reader" in statement or "store revoke" in statement
                assert what.startswith("note: " if is_note else "wrong: ")
                if statement.startswith("airflow-mq "):
                    postgres(*statement.split()[1:])
                else:
                    connection.execute(statement.split(", then")[0].encode())
            for kind, role in (("sender", sender), ("reader", reader)):
                grant(address, kind, role)  # type: ignore[arg-type]
            assert findings() == {"": "ok: no role has more rights on the tables than its kind needs"}

            connection.execute(f'GRANT INSERT, UPDATE ON airflow_mq.sender TO "{runtime}"')
            rights = [one for one in postgres.json("doctor")["findings"] if one["check"] == "rights"]
            assert [one["do"] for one in rights] == [f'REVOKE INSERT, UPDATE ON airflow_mq.sender FROM "{runtime}"']
        finally:
            for role in (sender, reader, runtime, group):
                connection.execute(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"')


@pytest.mark.slow
def test_a_dag_that_stopped_planning(mq: Terminal, queue: MessageQueue) -> None:
    mq("enqueue", "acme", "x")
    (never,) = [one for one in mq.json("doctor")["findings"] if "serviced" in one["what"]]
    assert (never["level"], never["what"]) == ("note", "No block has ever serviced this ring.")

    with stopped_clock() as clock:
        clock.now = int(time.time()) * SECOND - 1_200 * SECOND
        for _ in range(4):
            queue.blocks.release(queue.blocks.plan(server="DAG 'first_steps' of Airflow 'here', task 'plan'"))
            clock.advance(300)
        clock.advance(540)
        found = [one for one in bad(mq) if one["check"] == "servers of default"]

    assert len(found) == 1 and "usually every 5 min). Is DAG first_steps paused?" in found[0]["what"]
    assert found[0]["do"] == "airflow dags unpause first_steps"


def test_a_message_that_fails_in_every_block(mq: Terminal, queue: MessageQueue) -> None:
    queue.enqueue_message("acme", b"x")

    def failing(code: int = 0) -> list[tuple[str, str]]:
        findings = mq.json("status", code=code)["findings"]
        return [(one["level"], one["what"]) for one in findings if one["check"] == "messages of default"]

    assert failing() == []
    for times in (1, 2, 3):
        queue.service_queues(lambda delivery: Yield("their API is down"))
        what = f"the first message of acme was tried {times} time{'s' * (times > 1)} without success"
        assert failing(int(times == 3)) == [("wrong" if times == 3 else "note", what)]
        assert f"Its first message was tried {times} time" in mq("queue", "list").out
    (found,) = [one for one in bad(mq) if one["check"] == "messages of default"]
    assert "the last error: their API is down" in mq(*found["do"].split()[1:]).out
    queue.admin.pause("acme")
    assert failing() == [("note", f"{what}; paused")]


def test_queues_that_fail_together_are_one_finding(mq: Terminal, queue: MessageQueue) -> None:
    for number in range(7):
        queue.enqueue_message(f"o{number}", b"x")
    for _ in range(3):
        queue.service_queues(lambda delivery: Yield("their API is down"))
    queue.admin.pause("o6")

    (found,) = [one for one in bad(mq) if one["check"] == "messages of default"]
    names = "o0, o1, o2, o3, o4 and 1 more"
    assert found["what"] == f"the first messages of 6 queues were tried without success, up to 3 times: {names}"
    assert mq(*found["do"].split()[1:]).out.count("their API is down") == 20
    (paused,) = [one for one in mq.json("status", code=1)["findings"] if one["level"] == "note"]
    assert paused["what"] == "the first message of o6 was tried 3 times without success; paused"


def test_a_ring_that_nothing_services(mq: Terminal) -> None:
    mq("enqueue", "acme", "x")
    with stopped_clock() as clock:
        clock.now = int(time.time() + 700) * SECOND
        found = [one for one in bad(mq) if one["check"] == "servers of default"]

    assert [one["what"] for one in found] == ["No block has ever serviced this ring."]
