"""Migrations: applied once, recognised again, and the same when a person applies them."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import psycopg
import pytest

from airflow_mq import MessageQueue, RingConfig
from airflow_mq.cli import main
from airflow_mq.engine.rules.errors import SchemaTooNew, SchemaTooOld, StoreCorrupt, StoreReadOnly
from airflow_mq.engine.store import StoreAddress, parse, schema_status, upgrade, upgrade_sql
from airflow_mq.engine.store.schema import _TABLE
from airflow_mq.engine.store.statements import migrations

pytestmark = pytest.mark.empty_store


def run(address: StoreAddress, script: str) -> None:
    """Run a script by hand, as a person at a prompt would."""
    if address.driver == "sqlite":
        connection = sqlite3.connect(str(address.path))
        connection.executescript(script)
        connection.close()
    else:
        with psycopg.connect(address.uri, autocommit=True) as prompt:
            prompt.execute(script.encode())


def table(address: StoreAddress, name: str) -> str:
    return f"mq_{name}" if address.driver == "sqlite" else f'"{address.schema}".{name}'


def schema_of(address: StoreAddress) -> list[Any]:
    """Return all tables, indexes and triggers as the database describes them."""
    if address.driver == "sqlite":
        connection = sqlite3.connect(str(address.path))
        rows = connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()
        connection.close()
        return rows
    with psycopg.connect(address.uri) as prompt:
        return prompt.execute(
            "SELECT c.relname, c.relkind, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, "
            "pg_get_expr(d.adbin, d.adrelid), pg_get_indexdef(c.oid) "
            "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 "
            "LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum "
            "WHERE n.nspname = %s ORDER BY c.relname, a.attnum",
            (address.schema,),
        ).fetchall()


def test_upgrading_twice_does_nothing_the_second_time(store_uri: str) -> None:
    address = parse(store_uri)
    assert schema_status(address).state == "missing"
    assert upgrade(address) == [name for _, name, _ in migrations("sqlite")]
    assert schema_status(address).state == "current"
    before = schema_of(address)
    assert upgrade(address) == []
    assert schema_of(address) == before


def test_an_edited_migration_is_refused(store_uri: str) -> None:
    address = parse(store_uri)
    upgrade(address)
    run(address, f"UPDATE {table(address, 'migration')} SET checksum = 'other'")
    with pytest.raises(StoreCorrupt, match="in another wording"):
        upgrade(address)


@pytest.mark.parametrize("newest", [1, 2, 15])
def test_an_unreleased_store_is_refused_and_stays_as_it_is(
    store_uri: str, newest: int, capsys: pytest.CaptureFixture[str]
) -> None:
    address = parse(store_uri)
    run(address, _TABLE["sqlite" if address.driver == "sqlite" else "postgres"].format(schema=address.schema))
    for version in range(1, newest + 1):
        name = "0001_initial" if version == 1 else f"{version:04}_more"
        values = f"(version, name, checksum) VALUES ({version}, '{name}', 'of then')"
        run(address, f"INSERT INTO {table(address, 'migration')} {values}")
    before = schema_of(address)
    sentence = (
        f"an unreleased airflow-mq made this store (schema version {newest}), and no release reads it; "
        "drain it with that version, and start a new store"
    )
    assert (schema_status(address).state, schema_status(address).version) == ("unreleased", newest)
    for use in (upgrade, MessageQueue):
        with pytest.raises(SchemaTooOld) as refused:
            use(address)
        assert str(refused.value) == sentence
    for words in (["upgrade"], ["sql"]):
        assert main(["--store", store_uri, "store", *words]) != 0
        said = capsys.readouterr()
        assert sentence in said.err and not said.out
    assert main(["--store", store_uri, "store", "version"]) == 1
    assert sentence in capsys.readouterr().out
    assert main(["--store", store_uri, "doctor", "--json"]) == 1
    found, others = json.loads(capsys.readouterr().out)["findings"]
    assert (found["check"], found["level"], f"{found['what']}; {found['do']}") == ("schema", "wrong", sentence)
    assert others["check"] == "other checks"
    assert schema_of(address) == before


@pytest.mark.parametrize(("ahead", "error"), [(99, SchemaTooNew), (-99, SchemaTooOld)])
def test_clients_of_another_version_raise_with_a_remedy(store_uri: str, ahead: int, error: type[Exception]) -> None:
    address = parse(store_uri)
    upgrade(address)
    run(address, f"UPDATE {table(address, 'migration')} SET version = version + {ahead}")
    with pytest.raises(error, match="upgrade"):
        MessageQueue(store_uri)
    if ahead > 0:
        with pytest.raises(error):
            upgrade(address)


def test_an_open_client_of_an_older_version_is_refused_and_changes_nothing(store_uri: str) -> None:
    address = parse(store_uri)
    upgrade(address)
    newest = migrations("sqlite")[-1][0]
    refused = f"the store has schema version {newest + 1}, this client expects {newest}; upgrade airflow-mq here"
    with MessageQueue(store_uri) as queue:
        queue.enqueue_message("acme", b"before")
        block = queue.blocks.plan()
        queue.enqueue_message("acme", b"waiting")
        run(
            address,
            f"INSERT INTO {table(address, 'migration')} (version, name, checksum) VALUES ({newest + 1}, 'next', '')",
        )
        before = (queue.footprint("acme"), queue.blocks.list())
        for operation in (
            queue.blocks.plan,
            lambda: queue.blocks.settle(block),
            lambda: queue.service_queues(lambda delivery: None),
            lambda: queue.leases.view().try_next(),
            lambda: queue.admin.change_ring(max_attempts=7),
        ):
            with pytest.raises(SchemaTooNew, match=refused):
                operation()
        assert (queue.footprint("acme"), queue.blocks.list()) == before


@pytest.mark.parametrize("change", ["ALTER TABLE {inbox} RENAME COLUMN heap TO body", "DROP TABLE {sent_key}"])
def test_an_open_sender_whose_table_changed_gets_an_error_with_both_versions(store_uri: str, change: str) -> None:
    address = parse(store_uri)
    upgrade(address)
    newest = migrations("sqlite")[-1][0]
    with MessageQueue(store_uri) as queue:
        queue.enqueue_message("acme", b"before", key="before")
        names = {name: table(address, name) for name in ("inbox", "sent_key")}
        run(address, change.format(**names))
        row = f"INSERT INTO {table(address, 'migration')} (version, name, checksum) VALUES ({newest + 1}, 'next', '')"
        run(address, row)
        with pytest.raises(SchemaTooNew, match=f"schema version {newest + 1}, this client expects {newest}; upgrade"):
            queue.enqueue_message("acme", b"after", key="after")
        if "inbox" in change:
            with pytest.raises(SchemaTooNew, match="upgrade airflow-mq here"):
                queue.enqueue_message("acme", b"plain")


def test_what_a_person_applies_by_hand_is_the_same(store_uri: str) -> None:
    address = parse(store_uri)
    run(address, upgrade_sql("sqlite" if address.driver == "sqlite" else "postgres", address.schema))
    assert schema_status(address).state == "current"
    by_hand = schema_of(address)
    assert upgrade(address) == []
    assert schema_of(address) == by_hand
    with MessageQueue(store_uri) as queue:
        assert queue.enqueue_message("acme", b"a").count == 1
        assert queue.service_queues(lambda delivery: None).processed == 1
        assert queue.check() == []


def test_a_store_that_a_person_makes_by_hand_has_a_ring(store_uri: str) -> None:
    address = parse(store_uri)
    run(address, upgrade_sql("sqlite" if address.driver == "sqlite" else "postgres", address.schema))
    with MessageQueue(store_uri) as queue:
        assert queue.admin.rings() == ["default"] and queue.config == RingConfig()
        assert queue.enqueue_message("acme", b"a").count == 1
        assert queue.service_queues(lambda delivery: None).processed == 1
        assert queue.check() == []


def test_by_hand_and_by_the_program_make_the_same(store_uri: str) -> None:
    address = parse(store_uri)
    upgrade(address)
    by_program = schema_of(address)
    if address.driver == "sqlite":
        assert address.path is not None
        address.path.unlink()
        run(address, upgrade_sql("sqlite"))
    else:
        run(address, f'DROP SCHEMA "{address.schema}" CASCADE')
        run(address, upgrade_sql("postgres", address.schema))
    assert schema_of(address) == by_program


def test_a_store_that_is_current_needs_no_statements() -> None:
    for dialect in ("sqlite", "postgres"):
        assert "CREATE TABLE" in upgrade_sql(dialect).partition("migration")[2]
        newest = migrations(dialect)[-1][0]
        assert "INSERT INTO" not in upgrade_sql(dialect, since=newest)


def test_both_databases_are_at_the_same_version() -> None:
    assert [version for version, *_ in migrations("sqlite")] == [version for version, *_ in migrations("postgres")]


@pytest.mark.postgres
def test_a_schema_of_any_name(pg_uri: str) -> None:
    address = parse(f"{pg_uri}?schema=acme_mq")
    assert upgrade(address) != []
    assert schema_status(parse(pg_uri)).state == "missing"
    with MessageQueue(address) as queue:
        assert queue.enqueue_message("acme", b"a").count == 1


@pytest.mark.postgres
def test_the_transaction_id_is_drawn_before_the_id(pg_uri: str) -> None:
    """Were it the other way round, a mark could miss an inbox row that is on its way."""
    address = parse(pg_uri)
    upgrade(address)
    with psycopg.connect(pg_uri) as prompt:
        row = prompt.execute(
            "SELECT column_default FROM information_schema.columns "
            "WHERE table_schema = %s AND table_name = 'inbox' AND column_name = 'id'",
            (address.schema,),
        ).fetchone()
        assert row is not None
        default = row[0]
        assert default.index("pg_current_xact_id()") < default.index("nextval")
        # A new transaction has no id of its own; drawing one number of an inbox row gives it one.
        prompt.commit()
        drawn = prompt.execute(
            f"SELECT pg_current_xact_id_if_assigned(), ({default}), pg_current_xact_id_if_assigned()"
        )
        before, id_, after = drawn.fetchone() or (None, None, None)
    assert id_ is not None and after is not None and before is None


@pytest.mark.postgres
def test_every_table_can_be_published(pg_uri: str) -> None:
    """PostgreSQL deletes no row of a published table without a replica identity."""
    upgrade(parse(pg_uri))
    with psycopg.connect(pg_uri, autocommit=True) as prompt:
        prompt.execute("CREATE PUBLICATION everything FOR ALL TABLES")
        lacking = prompt.execute(
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = 'airflow_mq' AND c.relkind = 'r' AND NOT EXISTS (SELECT FROM pg_index i WHERE "
            "i.indrelid = c.oid AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END)"
        ).fetchall()
        assert lacking == []
        with MessageQueue(pg_uri) as queue:
            queue.enqueue_messages("a", [b"one", b"two"])
            queue.enqueue_message("a", b"three", not_before=-1)
            done: list[bytes] = []
            queue.service_queues(lambda delivery: done.append(delivery.payload))
            assert sorted(done) == [b"one", b"three", b"two"] and queue.check() == []
            prompt.execute("ALTER TABLE airflow_mq.inbox REPLICA IDENTITY NOTHING")
            queue.enqueue_message("a", b"four")
            with pytest.raises(StoreReadOnly, match="the server: cannot delete from table .inbox. because it does not"):
                queue.service_queues(lambda delivery: None)
