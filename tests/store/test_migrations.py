"""Migrations: applied once, recognised again, and the same when a person applies them."""

from __future__ import annotations

import sqlite3
from itertools import takewhile
from typing import Any

import psycopg
import pytest

from airflow_mq import MessageQueue
from airflow_mq.core.errors import SchemaTooNew, SchemaTooOld, StoreCorrupt
from airflow_mq.core.message import message_id
from airflow_mq.store import StoreAddress, parse, schema_status, upgrade, upgrade_sql
from airflow_mq.store.statements import migrations
from tests.model.clock import Clock

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


@pytest.mark.parametrize("change", ["ALTER TABLE {mail} RENAME COLUMN heap TO body", "DROP TABLE {sent_key}"])
def test_an_open_sender_whose_table_changed_gets_an_error_with_both_versions(store_uri: str, change: str) -> None:
    address = parse(store_uri)
    upgrade(address)
    newest = migrations("sqlite")[-1][0]
    with MessageQueue(store_uri) as queue:
        queue.enqueue_message("acme", b"before", key="before")
        names = {name: table(address, name) for name in ("mail", "sent_key")}
        run(address, change.format(**names))
        row = f"INSERT INTO {table(address, 'migration')} (version, name, checksum) VALUES ({newest + 1}, 'next', '')"
        run(address, row)
        with pytest.raises(SchemaTooNew, match=f"schema version {newest + 1}, this client expects {newest}; upgrade"):
            queue.enqueue_message("acme", b"after", key="after")
        if "mail" in change:
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


def test_keys_of_before_they_had_origins_still_refuse_what_was_sent(
    store_uri: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = parse(store_uri)
    earlier = {
        dialect: list(takewhile(lambda one: "keys_by_origin" not in one[1], migrations(dialect)))
        for dialect in ("sqlite", "postgres")
    }
    with monkeypatch.context() as patch:
        patch.setattr("airflow_mq.store.schema.migrations", earlier.__getitem__)
        upgrade(address)
    now, digest = clock.now, message_id(b"acme\0order")
    for key, age in (("fresh", 3_600), ("stale", 90_000)):
        blob = f"x'{digest.hex()}'" if address.driver == "sqlite" else f"'\\x{digest.hex()}'"
        run(address, f"INSERT INTO {table(address, 'sent_key')} (ring, key, digest, at) "
            f"VALUES (1, '{key}', {blob}, {now - age * 1_000_000})")  # fmt: skip
    assert [name for name in upgrade(address) if "keys_by_origin" in name]
    with MessageQueue(store_uri) as queue:
        assert queue.enqueue_message("acme", b"order", key="fresh").repeated == 1
        assert queue.enqueue_message("acme", b"order", key="stale").count == 1
        assert queue.enqueue_message("globex", b"order", key="fresh").count == 1
        # Whose the key was is not known, so it does not stand in the way of another message.
        assert queue.enqueue_message("acme", b"other", key="fresh").count == 1
        clock.advance(90_000)
        queue.admin.housekeep()
        assert queue.enqueue_message("acme", b"order", key="fresh").count == 1


@pytest.mark.postgres
def test_a_schema_of_any_name(pg_uri: str) -> None:
    address = parse(f"{pg_uri}?schema=acme_mq")
    assert upgrade(address) != []
    assert schema_status(parse(pg_uri)).state == "missing"
    with MessageQueue(address) as queue:
        assert queue.enqueue_message("acme", b"a").count == 1


@pytest.mark.postgres
def test_the_transaction_id_is_drawn_before_the_id(pg_uri: str) -> None:
    """Were it the other way round, a mark could miss mail that is on its way."""
    address = parse(pg_uri)
    upgrade(address)
    with psycopg.connect(pg_uri) as prompt:
        row = prompt.execute(
            "SELECT column_default FROM information_schema.columns "
            "WHERE table_schema = %s AND table_name = 'mail' AND column_name = 'id'",
            (address.schema,),
        ).fetchone()
        assert row is not None
        default = row[0]
        assert default.index("pg_current_xact_id()") < default.index("nextval")
        # A new transaction has no id of its own; drawing one number of mail gives it one.
        prompt.commit()
        drawn = prompt.execute(
            f"SELECT pg_current_xact_id_if_assigned(), ({default}), pg_current_xact_id_if_assigned()"
        )
        before, id_, after = drawn.fetchone() or (None, None, None)
    assert id_ is not None and after is not None and before is None
