"""Attacks on `send` and `send_many` by a role that holds nothing but a grant to send."""

from __future__ import annotations

from contextlib import closing

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from airflow_mq import MessageQueue
from airflow_mq.engine.rules.errors import Busy
from airflow_mq.engine.store import StoreAddress
from airflow_mq.engine.store.roles import grant, revoke, sender_grants
from tests.store.test_roles import Roles, connect, owner, refuses, roles

__all__ = ["owner", "roles"]
pytestmark = pytest.mark.postgres


def name(address: StoreAddress) -> Identifier:
    """Return the role of an address as an identifier."""
    return Identifier(str(address.user))


@pytest.fixture
def acme(owner: StoreAddress, roles: Roles) -> StoreAddress:
    """The address of a sender of `acme` and its paths."""
    user = roles("acme")
    grant(owner, "sender", str(user.user), origins="acme|acme/*", priority="regular")
    return user


def test_code_of_a_sender_in_a_trusted_session_sends_with_the_senders_grant(
    owner: StoreAddress, acme: StoreAddress, roles: Roles
) -> None:
    """PostgreSQL runs functions of a table's index, and those of other definers, as their owner in any session."""
    with closing(connect(owner)) as connection:
        connection.execute(SQL("CREATE SCHEMA acme AUTHORIZATION {}").format(name(acme)))
        connection.execute("GRANT USAGE ON SCHEMA acme TO PUBLIC")
    with closing(connect(acme)) as connection:
        connection.execute(
            "CREATE FUNCTION acme.lookup(wanted text) RETURNS integer LANGUAGE sql SECURITY DEFINER AS "
            "$$ SELECT airflow_mq.send('default', wanted, 'planted') $$"
        )
        connection.execute("CREATE TABLE acme.data (value text)")
        connection.execute("INSERT INTO acme.data VALUES ('bolt')")
        connection.execute(
            "CREATE FUNCTION acme.index(value text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT value'"
        )
        connection.execute("CREATE INDEX ON acme.data (acme.index(value))")
        connection.execute(
            "CREATE OR REPLACE FUNCTION acme.index(value text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS "
            "$$ BEGIN PERFORM airflow_mq.send('default', value, 'planted'); RETURN value; END $$"
        )
    bolt = roles("bolt")
    grant(owner, "sender", str(bolt.user), origins="bolt")
    with closing(connect(bolt)) as connection:
        refuses(connection, "SELECT acme.lookup('bolt')")
        assert connection.execute("SELECT acme.lookup('acme')").fetchall() == [(1,)]
    with closing(connect(owner)) as connection:
        refuses(connection, "SELECT acme.lookup('bolt')", "REINDEX TABLE acme.data")
    with MessageQueue(owner.uri) as queue:
        assert queue.footprint("bolt").count == 0
        assert queue.footprint("acme").count == 1


def test_a_sender_cannot_name_another_role_as_the_caller(owner: StoreAddress, acme: StoreAddress) -> None:
    with closing(connect(acme)) as connection:
        refuses(
            connection,
            "INSERT INTO airflow_mq.outbox (caller, ring, origins, payloads, priority) "
            f"VALUES ('{owner.user}', 'default', '{{bolt}}', '{{x}}', 'regular')",
            "INSERT INTO airflow_mq.outbox VALUES ('postgres', 'default')",
            "SELECT caller FROM airflow_mq.outbox",
            "SELECT airflow_mq.accept()",
        )


def test_a_member_that_inherits_nothing_must_choose_its_group(
    owner: StoreAddress, acme: StoreAddress, roles: Roles
) -> None:
    member = roles("member")
    with closing(connect(owner)) as connection:
        connection.execute(SQL("ALTER ROLE {} NOINHERIT").format(name(member)))
        connection.execute(SQL("GRANT {} TO {}").format(name(acme), name(member)))
    with closing(connect(member)) as connection:
        refuses(connection, "SELECT airflow_mq.send('default', 'acme', 'x')")
        connection.execute(SQL("SET ROLE {}").format(name(acme)))
        connection.execute("SELECT airflow_mq.send('default', 'acme', 'x')")
        refuses(connection, "SELECT airflow_mq.send('default', 'bolt', 'x')")


def test_a_ring_without_a_grant_looks_like_no_ring(owner: StoreAddress, acme: StoreAddress) -> None:
    with MessageQueue(owner.uri) as queue:
        queue.admin.create_ring("secret")
    texts = set()
    with closing(connect(acme)) as connection:
        for ring in ("secret", "absent"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege) as error:
                connection.execute("SELECT airflow_mq.send(%s, 'acme', 'x')", (ring,))
            texts.add(f"{error.value}".replace(ring, "RING"))
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("SELECT airflow_mq.send_many(%s, '{}', '{}')", (ring,))
    assert len(texts) == 1


def test_an_error_of_a_full_ring_has_no_counts(owner: StoreAddress, acme: StoreAddress) -> None:
    with MessageQueue(owner.uri) as queue:
        queue.admin.change_ring(max_origins=7)
        queue.enqueue_messages([(f"other-{number}", b"x") for number in range(4)])  # type: ignore[arg-type]
    with closing(connect(acme)) as connection:
        origins = [f"acme/{number}" for number in range(9)]
        with pytest.raises(psycopg.Error) as error:
            connection.execute("SELECT airflow_mq.send_many('default', %s, %s::bytea[])", (origins, ["x"] * 9))
        assert error.value.sqlstate == "MQ106"
        assert error.value.diag.message_primary == "origin limit reached: cannot add all origins of this call"
        assert not error.value.diag.message_detail


def test_an_error_of_a_full_group_has_no_bytes_of_others(owner: StoreAddress, roles: Roles) -> None:
    user = roles("a")
    grant(owner, "sender", str(user.user), origins="acme/a", priority="regular")
    with MessageQueue(owner.uri) as queue:
        queue.admin.change_ring(paths=True)
        queue.admin.set_origin("acme", quota=100)
        queue.enqueue_message("acme/b", b"x" * 73)
    with closing(connect(user)) as connection:
        with pytest.raises(psycopg.Error) as error:
            connection.execute("SELECT airflow_mq.send('default', 'acme/a', %s)", (b"x" * 60,))
        assert error.value.sqlstate == "MQ107"
        assert error.value.diag.message_primary == "queue 'acme' is full: it has no room for this call of 60 bytes"
    with MessageQueue(owner.uri) as queue:
        queue.admin.change_ring(paths=False)
        queue.admin.set_origin("acme/a", quota=100)
    with closing(connect(user)) as connection:
        connection.execute("SELECT airflow_mq.send('default', 'acme/a', %s)", (b"x" * 60,))
        with pytest.raises(
            psycopg.Error, match="queue 'acme/a' is full: 20 bytes must drain before this call of 60 bytes"
        ):
            connection.execute("SELECT airflow_mq.send('default', 'acme/a', %s)", (b"x" * 60,))


def test_an_open_transaction_with_a_new_origin_holds_up_no_other_work(owner: StoreAddress, acme: StoreAddress) -> None:
    with MessageQueue(owner.uri, busy_timeout=0.5) as queue:
        queue.admin.change_ring(max_origins=9)
        queue.enqueue_message("bolt", b"x")
        with closing(connect(acme)) as connection, connection.transaction():
            connection.execute("SELECT airflow_mq.send('default', 'acme', 'x')")
            queue.enqueue_message("bolt", b"y")
            queue.admin.change_ring(max_origins=8)
            with queue.store.writing() as unit:
                unit.rows("hold_config", ring=queue.session.ring_id)
            assert queue.service_queues(lambda delivery: None).processed == 2
            with pytest.raises(Busy, match="its origin limit"):
                queue.enqueue_message("cobalt", b"x")
        queue.enqueue_message("cobalt", b"x")


def test_no_weight_reaches_the_tables_that_blocks_cannot_read(owner: StoreAddress, acme: StoreAddress) -> None:
    with closing(connect(acme)) as connection:
        for weight in ("[5:6]={1,2}", "{{1,2}}", "{{1},{2}}", "{1,NaN}", "{1,Infinity}", "{1}", "{}", "{1,NULL}"):
            with pytest.raises(psycopg.Error) as error:
                connection.execute("SELECT airflow_mq.send('default', 'acme', 'x', weight => %s)", (weight,))
            assert error.value.sqlstate == "MQ103", weight
        connection.execute("SELECT airflow_mq.send_many('default', '[3:4]={acme,acme}', '[0:1]={x,y}', '[7:8]={k,l}')")
    with MessageQueue(owner.uri) as queue:
        assert [message.payload for message in queue.inspect.peek("acme")] == [b"x", b"y"]
        assert [payload for batch in queue.blocks.plan().batches() for payload in batch.payloads] == [b"x", b"y"]


def test_an_error_of_a_huge_weight_is_short(acme: StoreAddress) -> None:
    with closing(connect(acme)) as connection:
        with pytest.raises(psycopg.Error, match="invalid weight") as error:
            connection.execute("SELECT airflow_mq.send('default', 'acme', 'x', weight => array_fill(1, '{9999}'))")
        assert len(str(error.value.diag.message_primary)) < 200


@pytest.mark.parametrize("zone", ["X-167", "X167", "UTC"])
@pytest.mark.parametrize("time", ["0001-12-31 12:00+00 BC", "9999-12-31 12:00+00", "10000-01-02 00:00+00"])
def test_no_time_zone_moves_the_bounds_of_times(acme: StoreAddress, zone: str, time: str) -> None:
    with closing(connect(acme)) as connection:
        connection.execute(f"SET TimeZone = '{zone}'".encode())
        for name in ("not_before", "expires"):
            send = f"SELECT airflow_mq.send('default', 'acme', 'x', {name} => %s)".encode()
            with pytest.raises(psycopg.Error, match=f"invalid {name}: expected a time before the year 9999"):
                connection.execute(send, (time,))
            connection.execute(send, ("9999-12-30 23:00+00",))


def test_a_huge_origin_meets_no_pattern(owner: StoreAddress, acme: StoreAddress) -> None:
    """Matching takes time that grows with a power of the length."""
    grant(owner, "sender", str(acme.user), origins="a*a*a*a*b")
    with closing(connect(acme)) as connection:
        connection.execute("SET statement_timeout = '5s'")
        with pytest.raises(psycopg.Error) as error:
            connection.execute("SELECT airflow_mq.send('default', repeat('a', 1000000), 'x')")
        assert error.value.sqlstate == "MQ100"


def test_a_sender_locks_no_ring(owner: StoreAddress, acme: StoreAddress, roles: Roles) -> None:
    """The first high message marks its ring. A grant marks it before, so that no open transaction holds up others."""
    bolt = roles("bolt")
    for user in (acme, bolt):
        grant(owner, "sender", str(user.user), origins="*")
    with closing(connect(acme)) as first, closing(connect(bolt)) as second, first.transaction():
        first.execute("SELECT airflow_mq.send('default', 'acme', 'x', priority => 'high')")
        second.execute("SET lock_timeout = '2s'")
        second.execute("SELECT airflow_mq.send('default', 'bolt', 'x', priority => 'high')")


def test_a_grant_of_a_dropped_role_permits_no_role_and_can_be_revoked(owner: StoreAddress, roles: Roles) -> None:
    with closing(connect(owner)) as connection:
        former = f"former of {owner.database}"
        connection.execute(SQL("CREATE ROLE {}").format(Identifier(former)))
        grant(owner, "sender", former, origins="acme")
        connection.execute(SQL("DROP OWNED BY {}").format(Identifier(former)))
        connection.execute(SQL("DROP ROLE {}").format(Identifier(former)))
    heir = roles("heir")
    grant(owner, "sender", str(heir.user), origins="heir")
    with closing(connect(heir)) as connection:
        refuses(connection, "SELECT airflow_mq.send('default', 'acme', 'x')")
    (left,) = [one for one in sender_grants(owner) if one.origins == "acme"]
    assert left.role.isdecimal()
    revoke(owner, left.role)
    assert [one.origins for one in sender_grants(owner)] == ["heir"]


def test_a_grant_revoked_during_a_transaction_ends_at_once(owner: StoreAddress, acme: StoreAddress) -> None:
    with closing(connect(acme)) as connection, connection.transaction(force_rollback=True):
        connection.execute("SELECT airflow_mq.send('default', 'acme', 'x')")
        with closing(connect(owner)) as other:
            other.execute("DELETE FROM airflow_mq.sender")
        refuses(connection, "SELECT airflow_mq.send('default', 'acme', 'x')")


def test_no_right_of_the_schema_is_public(owner: StoreAddress) -> None:
    """Functions are executable by PUBLIC unless a migration revokes it: a new one that forgets to fails here."""
    with closing(connect(owner)) as connection:
        rows = connection.execute(
            "SELECT p.oid::regprocedure::text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace, "
            "aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a "
            "WHERE n.nspname = 'airflow_mq' AND a.grantee = 0 UNION ALL "
            "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, "
            "aclexplode(c.relacl) a WHERE n.nspname = 'airflow_mq' AND a.grantee = 0 UNION ALL "
            "SELECT n.nspname FROM pg_namespace n, aclexplode(n.nspacl) a "
            "WHERE n.nspname = 'airflow_mq' AND a.grantee = 0"
        ).fetchall()
        paths = connection.execute(
            "SELECT p.proname, p.proconfig FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace "
            "WHERE n.nspname = 'airflow_mq' AND p.prosecdef"
        ).fetchall()
    assert rows == []
    assert paths and all(config == ["search_path=pg_catalog, pg_temp"] for _, config in paths)
