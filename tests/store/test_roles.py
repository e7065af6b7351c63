"""`airflow-mq store grant`: four kinds of roles, each tried against a real server."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from airflow_mq import MessageQueue
from airflow_mq.engine.rules.errors import InvalidInput, StoreReadOnly, UnknownRing
from airflow_mq.engine.store import StoreAddress, parse, upgrade
from airflow_mq.engine.store.roles import grant, like_patterns, revoke, sender_grants

Roles = Callable[[str], StoreAddress]
postgres = pytest.mark.postgres


@pytest.fixture
def owner(pg_uri: str) -> StoreAddress:
    """The address of the store for its owner."""
    return parse(pg_uri)


@pytest.fixture
def roles(owner: StoreAddress) -> Iterator[Roles]:
    """Create roles that can log in, and return their addresses; drop them afterwards.

    Roles belong to the whole server, which other tests share, so their names contain the database's.
    """
    names: list[str] = []
    with closing(psycopg.connect(autocommit=True, **owner.conninfo())) as connection:

        def create(kind: str) -> StoreAddress:
            name = f'Role "{kind}" of {owner.database}'
            names.append(name)
            connection.execute(SQL("CREATE ROLE {} LOGIN PASSWORD 'change me'").format(Identifier(name)))
            return replace(owner, user=name, password="change me")

        yield create
        for name in names:
            connection.execute(SQL("REASSIGN OWNED BY {} TO CURRENT_USER").format(Identifier(name)))
            connection.execute(SQL("DROP OWNED BY {}").format(Identifier(name)))
            connection.execute(SQL("DROP ROLE {}").format(Identifier(name)))


def connect(address: StoreAddress) -> psycopg.Connection[Any]:
    return psycopg.connect(autocommit=True, **address.conninfo())


def refuses(connection: psycopg.Connection[Any], *statements: str) -> None:
    """Require that the server refuses each statement for lack of rights."""
    for statement in statements:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement.encode())


@postgres
def test_a_runtime_role_does_what_tasks_do_and_no_more(owner: StoreAddress, roles: Roles) -> None:
    user = roles("runtime")
    grant(owner, "runtime", str(user.user))
    with MessageQueue(user.uri) as queue:
        queue.enqueue_messages("acme", [b"one", b"two"])
        queue.enqueue_message("acme", b"three", key="3")
        queue.payloads.enqueue("acme", b"x" * 200_000)
        queue.admin.set_origin("acme", share=2)
        block = queue.blocks.plan()
        queue.blocks.report(block, [batch.answer() for batch in block.batches()])
        assert queue.blocks.settle(block).processed == 4
        queue.admin.housekeep()
        assert queue.check() == []
    with closing(connect(user)) as connection:
        connection.execute("SELECT airflow_mq.send('default', 'acme', 'four')")
        refuses(
            connection,
            "CREATE TABLE airflow_mq.mine (x int)",
            "DROP TABLE airflow_mq.migration",
            "INSERT INTO airflow_mq.migration (version, name, checksum) VALUES (99, 'x', 'x')",
            "UPDATE airflow_mq.migration SET version = 99",
            "DELETE FROM airflow_mq.migration",
            "TRUNCATE airflow_mq.migration",
            "INSERT INTO airflow_mq.sender SELECT 'pg_monitor', 1, '*', '{%}', true",
            "CREATE OR REPLACE FUNCTION airflow_mq.accept() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        )


@postgres
def test_a_sender_sends_with_its_origins_and_touches_no_table(owner: StoreAddress, roles: Roles) -> None:
    user = roles("sender")
    name = str(user.user)
    grant(owner, "sender", name, origins="acme|acme/*|50%_a", priority="regular")
    (granted,) = sender_grants(owner)
    assert (granted.role, granted.ring, granted.origins, granted.priority) == (
        name,
        "default",
        "acme|acme/*|50%_a",
        "regular",
    )
    with closing(connect(user)) as connection:
        for origin in ("acme", "acme/orders", "acme/", "50%_a"):
            assert connection.execute("SELECT airflow_mq.send('default', %s, 'one')", (origin,)).fetchall() == [(1,)]
        connection.execute("SELECT airflow_mq.send_many('default', '{acme,acme/b}', ARRAY['a','b']::bytea[])")
        refuses(
            connection,
            "SELECT airflow_mq.send('default', 'other', 'x')",
            "SELECT airflow_mq.send('default', 'acme2', 'x')",
            "SELECT airflow_mq.send('default', 'ACME', 'x')",
            "SELECT airflow_mq.send('default', '50%xa', 'x')",
            "SELECT airflow_mq.send('default', '5_%_a', 'x')",
            "SELECT airflow_mq.send('default', 'acme', 'x', priority => 'high')",
            "SELECT airflow_mq.send_many('default', '{acme,other}', ARRAY['a','b']::bytea[])",
            "SELECT * FROM airflow_mq.inbox",
            "INSERT INTO airflow_mq.inbox (ring, size, origin, heap) VALUES (1, 1, 'acme', 'x')",
            "SELECT * FROM airflow_mq.sender",
            "SELECT config FROM airflow_mq.ring",
            "SELECT airflow_mq.check_room(1::smallint, '{a}', true)",
            "SELECT airflow_mq.store_messages('postgres', 'default', '{a}', '{x}', NULL, NULL, NULL, NULL, NULL, 'high')",
            "SELECT nextval('airflow_mq.id_seq')",
        )
        refuses(connection, "SELECT airflow_mq.send('default', E'\\x01acme', 'x')")
    with MessageQueue(owner.uri) as queue:
        assert queue.footprint("acme").count == 2
        assert [summary.payload for summary in queue.inspect.peek("acme")] == [b"one", b"a"]
        assert queue.check() == []


@postgres
def test_a_grant_holds_for_one_ring_and_for_members(owner: StoreAddress, roles: Roles) -> None:
    group, member = roles("group"), roles("member")
    with MessageQueue(owner.uri) as queue:
        queue.admin.create_ring("other")
    grant(owner, "sender", str(group.user), ring="other", origins="acme")
    with closing(connect(owner)) as connection:
        names = Identifier(str(group.user)), Identifier(str(member.user))
        connection.execute(SQL("GRANT {} TO {}").format(*names))
        # A pool logs in with its own role, and becomes a tenant's.
        connection.execute(SQL("SET ROLE {}").format(names[1]))
        connection.execute("SELECT airflow_mq.send('other', 'acme', 'x')")
        refuses(
            connection, "SELECT airflow_mq.send('other', 'b', 'x')", "SELECT airflow_mq.send('default', 'acme', 'x')"
        )
        connection.execute("RESET ROLE")
        connection.execute("SELECT airflow_mq.send('default', 'b', 'x')")
    with closing(connect(member)) as connection:
        connection.execute("SELECT airflow_mq.send('other', 'acme', 'x')")
        refuses(connection, "SELECT airflow_mq.send('default', 'acme', 'x')")


@postgres
def test_a_senders_own_functions_are_never_called(owner: StoreAddress, roles: Roles) -> None:
    """A definer's function that looked up names in the caller's path would run the caller's code with its rights."""
    user = roles("hostile")
    grant(owner, "sender", str(user.user), origins="acme")
    with closing(connect(owner)) as connection:
        connection.execute(SQL("CREATE SCHEMA mine AUTHORIZATION {}").format(Identifier(str(user.user))))
    with closing(connect(user)) as connection:
        connection.execute("SET search_path = mine, pg_catalog")
        for function in ("octet_length(bytea) RETURNS integer", "octet_length(text) RETURNS integer",
                         "sha256(bytea) RETURNS bytea", "has_table_privilege(name, text, text) RETURNS boolean"):  # fmt: skip
            connection.execute(
                f"CREATE FUNCTION mine.{function} LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE EXCEPTION 'called as %', current_user; END $$".encode()
            )
        connection.execute("CREATE TEMP TABLE ring (id int)")
        connection.execute("SELECT airflow_mq.send('default', 'acme', 'x', key => 'k')")
        connection.execute("DROP TABLE pg_temp.ring")
        refuses(connection, "SELECT airflow_mq.send('default', 'other', 'x')")


@postgres
def test_a_reader_sees_counts_and_events_and_no_payloads(owner: StoreAddress, roles: Roles) -> None:
    user = roles("reader")
    grant(owner, "reader", str(user.user))
    with MessageQueue(owner.uri) as queue:
        queue.enqueue_messages("acme", [b"canary-1", b"canary-2"])
        queue.enqueue_message("acme", b"canary-3", headers={"a": "b"})
        block = queue.blocks.plan()
        queue.blocks.report(block, [batch.answer() for batch in block.batches()])
        queue.blocks.settle(block)
        queue.enqueue_message("acme", b"canary-4")
        queue.enqueue_message("acme", b"canary-5", not_before=-1)
        queue.enqueue_message("late", b"canary-6", not_before=3_600)
        # Past its deadline: forecasts assume its end, without the reports that this role may not read.
        queue.blocks.plan(lease=0)
        queue.enqueue_message("acme", b"canary-7")
    commands = (
        "queue list", "status", "queue show acme", "queue paused", "block list", f"block show {block.token}",
        "ring list", "ring show", "message events", "set-aside list", "report fairness", "report ledger",
        "explain acme", "block dry-run", "block forecast", "message history acme:0:0", "message history acme:1:0",
    )  # fmt: skip
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", "airflow_mq", "--store", user.uri, *command.split()], capture_output=True, text=True,
        )  # fmt: skip
        # The block that is overdue needs a person.
        assert done.returncode == (command == "status"), f"{command}: {done.stderr}"
        assert "canary" not in done.stdout
    refused = subprocess.run(
        [sys.executable, "-m", "airflow_mq", "--store", user.uri, "message", "list", "acme"], capture_output=True, text=True,
    )  # fmt: skip
    assert (refused.returncode, refused.stdout) == (4, "")
    assert "may not read" in refused.stderr and "permission denied for table inbox" in refused.stderr
    with closing(connect(user)) as connection:
        refuses(
            connection,
            "SELECT data FROM airflow_mq.outcome",
            "SELECT heap FROM airflow_mq.inbox",
            "SELECT * FROM airflow_mq.inbox",
            "SELECT heap FROM airflow_mq.delayed",
            "SELECT data FROM airflow_mq.chunk",
            "SELECT lease_token FROM airflow_mq.ring_state",
            "SELECT digest FROM airflow_mq.sent_key",
            "SELECT airflow_mq.send('default', 'acme', 'x')",
            "DELETE FROM airflow_mq.event",
        )
        # Without the right, PostgreSQL 15 refuses `status` and `top`, and PostgreSQL 18 counts all events as new.
        assert connection.execute("SELECT pg_sequence_last_value('airflow_mq.id_seq')").fetchone() != (None,)


@postgres
@pytest.mark.empty_store
def test_an_installer_creates_and_upgrades_and_owns_what_there_is(owner: StoreAddress, roles: Roles) -> None:
    user = roles("installer")
    with closing(connect(owner)) as connection:
        database = Identifier(str(owner.database))
        connection.execute(SQL("GRANT CREATE ON DATABASE {} TO {}").format(database, Identifier(str(user.user))))
    assert upgrade(user)
    grant(user, "sender", str(roles("sender of an installer").user), origins="acme")


@postgres
@pytest.mark.empty_store
def test_the_roles_of_the_checklist(owner: StoreAddress, roles: Roles) -> None:
    """Those of docs/go-live.md suffice to create the tables and to use them."""
    installer, user = roles("owner"), roles("user")
    page = (Path(__file__).parents[2] / "docs/go-live.md").read_text("utf-8")
    (statements,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    with closing(connect(owner)) as connection:
        for role in (installer, user):
            connection.execute(SQL("DROP ROLE {}").format(Identifier(str(role.user))))
        names = {"queue_owner": installer.user, "queue_user": user.user, "queue ": owner.database}
        for name, ours in names.items():
            statements = statements.replace(name, f"{Identifier(str(ours)).as_string(connection)} ")
        connection.execute(statements.replace("…", "change me").encode())
    assert upgrade(installer)
    grant(installer, "runtime", str(user.user))
    with MessageQueue(user) as queue:
        queue.enqueue_message("acme", b"x")


@postgres
def test_a_role_that_is_created_can_log_in_with_a_password(owner: StoreAddress, roles: Roles) -> None:
    user = roles("created")
    name = Identifier(str(user.user))
    with closing(connect(owner)) as connection:
        connection.execute(SQL("DROP ROLE {}").format(name))
        grant(owner, "runtime", str(user.user))
        connection.execute(SQL("ALTER ROLE {} PASSWORD 'change me'").format(name))
    with MessageQueue(user) as queue:
        queue.enqueue_message("acme", b"x")


@postgres
def test_an_owner_that_may_not_create_roles_names_the_statement(owner: StoreAddress, roles: Roles) -> None:
    """The owner of docs/go-live.md is one."""
    installer = roles("installer")
    grant(owner, "installer", str(installer.user))
    for kind in ("runtime", "sender", "reader"):
        with pytest.raises(InvalidInput, match='may not create roles: first run CREATE ROLE "new role" LOGIN$'):
            grant(installer, kind, "new role")  # type: ignore[arg-type]


@postgres
def test_a_store_changes_hands(owner: StoreAddress, roles: Roles) -> None:
    installer, sender = roles("new installer"), roles("sender")
    grant(owner, "installer", str(installer.user))
    assert upgrade(installer) == []
    grant(installer, "sender", str(sender.user), origins="acme")
    with closing(connect(installer)) as connection:
        connection.execute("ALTER TABLE airflow_mq.inbox ADD COLUMN later integer")
        connection.execute("ALTER TABLE airflow_mq.inbox DROP COLUMN later")
    with closing(connect(sender)) as connection:
        connection.execute("SELECT airflow_mq.send('default', 'acme', 'x')")


@postgres
def test_rights_on_later_tables_change_hands_with_the_store(owner: StoreAddress, roles: Roles) -> None:
    installer, runtime = roles("new installer"), roles("runtime")
    name = str(runtime.user)
    grant(owner, "runtime", name)
    grant(owner, "installer", str(installer.user))
    with (
        closing(connect(installer)) as upgrading,
        closing(connect(owner)) as former,
        closing(connect(runtime)) as connection,
    ):
        upgrading.execute("CREATE TABLE airflow_mq.later (id serial)")
        connection.execute("INSERT INTO airflow_mq.later VALUES (DEFAULT)")
        revoke(owner, name)
        grant(owner, "reader", name)
        for creator in (upgrading, former):
            creator.execute("CREATE TABLE airflow_mq.later_still (id integer)")
            refuses(connection, "SELECT id FROM airflow_mq.later_still", "DELETE FROM airflow_mq.later_still")
            creator.execute("DROP TABLE airflow_mq.later_still")


@postgres
def test_rights_that_another_role_gave_on_its_own_tables_stay(owner: StoreAddress, roles: Roles) -> None:
    installer, reader = roles("new installer"), roles("reader")
    query = (
        "SELECT d.defaclrole, d.defaclacl::text FROM pg_default_acl d "
        "JOIN pg_namespace n ON n.oid = d.defaclnamespace WHERE n.nspname = 'airflow_mq' AND d.defaclrole <> n.nspowner"
    )
    with closing(connect(owner)) as connection:
        other, name = (Identifier(str(one.user)) for one in (roles("other"), reader))
        connection.execute(
            SQL("ALTER DEFAULT PRIVILEGES FOR ROLE {} IN SCHEMA airflow_mq GRANT SELECT ON TABLES TO {}").format(
                other, name
            )
        )
        (before,) = connection.execute(query).fetchall()
        grant(owner, "installer", str(installer.user))
        assert connection.execute(query).fetchall() == [before]


@postgres
def test_the_owner_keeps_its_rights(owner: StoreAddress, roles: Roles) -> None:
    installer, sender = roles("installer"), roles("sender")
    grant(owner, "installer", str(installer.user))
    grant(installer, "sender", str(sender.user), origins="acme")
    with pytest.raises(InvalidInput, match=r"owns the tables: first `airflow-mq store grant installer` another role"):
        revoke(owner, str(installer.user))
    with closing(connect(sender)) as connection:
        connection.execute("SELECT airflow_mq.send('default', 'acme', 'x')")
    with closing(connect(owner)) as connection:
        (row,) = connection.execute("SELECT current_user")
    grant(owner, "installer", row[0])
    revoke(owner, str(installer.user))
    with closing(connect(sender)) as connection:
        connection.execute("SELECT airflow_mq.send('default', 'acme', 'x')")


@postgres
def test_a_revoked_role_has_no_rights(owner: StoreAddress, roles: Roles) -> None:
    user = roles("former")
    name = str(user.user)
    for kind in ("sender", "runtime", "reader"):
        grant(owner, kind, name)  # type: ignore[arg-type]
    revoke(owner, name)
    assert sender_grants(owner) == []
    with closing(connect(user)) as connection:
        refuses(
            connection,
            "SELECT airflow_mq.send('default', 'acme', 'x')",
            "SELECT id FROM airflow_mq.inbox",
            "SELECT name FROM airflow_mq.ring",
        )


@postgres
@pytest.mark.parametrize("kind", ["runtime", "reader"])
def test_only_the_owner_grants(owner: StoreAddress, roles: Roles, kind: Any) -> None:
    user, other = roles("runtime"), roles("other")
    grant(owner, "runtime", str(user.user))
    for call in (lambda: grant(user, kind, str(other.user)), lambda: revoke(user, str(other.user))):
        with pytest.raises(StoreReadOnly, match="nothing was changed; use the tables' owner|may not read or write"):
            call()


@postgres
def test_a_grant_that_cannot_be_made_names_the_reason(owner: StoreAddress, roles: Roles) -> None:
    name = str(roles("sender").user)
    with pytest.raises(UnknownRing, match="unknown ring 'none': create it"):
        grant(owner, "sender", name, ring="none")
    with pytest.raises(InvalidInput, match="expected patterns with the wildcards"):
        grant(owner, "sender", name, origins="[a-z]")
    with pytest.raises(InvalidInput, match="unknown role 'no-such-role'"):
        revoke(owner, "no-such-role")


@postgres
def test_a_role_that_may_write_the_tables_is_not_restricted(owner: StoreAddress, roles: Roles) -> None:
    name = str(roles("tasks").user)
    grant(owner, "runtime", name)
    for role in (name, str(owner.user)):
        with pytest.raises(InvalidInput, match=f"'{role}' may write the tables, so no grant restricts it"):
            grant(owner, "sender", role, origins="acme")
    assert sender_grants(owner) == []
    revoke(owner, name)
    grant(owner, "sender", name, origins="acme")
    assert [one.role for one in sender_grants(owner)] == [name]


def test_sqlite_has_no_roles(sqlite_uri: str) -> None:
    with pytest.raises(InvalidInput, match="roles require a store on PostgreSQL"):
        grant(parse(sqlite_uri), "reader", "anna")


def test_shell_patterns_become_like_patterns() -> None:
    assert like_patterns("acme|acme/*|a?c|50%_\\x") == ["acme", "acme/%", "a_c", "50\\%\\_\\\\x"]
