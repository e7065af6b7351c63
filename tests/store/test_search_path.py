"""Functions, operators, types and tables that another role puts before PostgreSQL's own are never used."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

import airflow_mq
from airflow_mq import Message, MessageQueue, RingConfig, Weight, Yield
from airflow_mq.cli.doctor import _look
from airflow_mq.engine.queue.values import Delivery
from airflow_mq.engine.rules.errors import MessageTooLong
from airflow_mq.engine.store import parse, schema_status, upgrade, upgrade_sql
from airflow_mq.engine.store.schema import _TABLE
from airflow_mq.engine.store.statements import migrations
from airflow_mq.testing.scratch import beside
from tests.store.queue.callers import STYLES, Caller
from tests.store.test_pooler import pooled
from tests.store.test_statements import NAMES

pytestmark = [pytest.mark.postgres, pytest.mark.empty_store]

PACKAGE = Path(airflow_mq.__file__).parent
#: Everything that is or may hold a statement.
TEXTS = [path.read_text("utf-8") for kind in ("sql", "py") for path in PACKAGE.rglob(f"*.{kind}")]
OPERATORS = ["=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "||", "->", "->>", "@>", "~", "?", "&", "|"]
TYPES = ["text", "bytea", "bigint", "integer", "smallint", "boolean", "jsonb", "double precision", "numeric", "name",
         "timestamp with time zone", "interval", "oid", "xid8", '"char"', "regclass"]  # fmt: skip

SHADOWS = """
CREATE SCHEMA evil;
CREATE SEQUENCE evil.called;
GRANT USAGE ON SCHEMA evil TO PUBLIC;
SET search_path = pg_catalog;
DO $make$
DECLARE
    one record;
    arguments text;
    made text;
    stand_in text;
    body text := $$ BEGIN
        PERFORM pg_catalog.nextval('evil.called'::pg_catalog.regclass);
        RAISE EXCEPTION 'another role''s function was called';
    END $$;
BEGIN
    FOR one IN
        SELECT p.oid, p.proname, pg_get_function_arguments(p.oid) AS arguments, pg_get_function_result(p.oid) AS result
        FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname = ANY(%(functions)s)
    LOOP
        FOREACH stand_in IN ARRAY ARRAY[''] || %(types)s LOOP
            arguments := one.arguments;
            made := one.result;
            IF stand_in <> '' THEN
                arguments := replace(replace(replace(replace(arguments, 'VARIADIC ', ''), 'anyarray', stand_in || '[]'),
                                     'anyelement', stand_in), '"any"', stand_in);
                made := replace(replace(made, 'anyarray', stand_in || '[]'), 'anyelement', stand_in);
                CONTINUE WHEN arguments = one.arguments;
            END IF;
            BEGIN
                EXECUTE format('CREATE FUNCTION evil.%%I(%%s) RETURNS %%s LANGUAGE plpgsql AS %%L',
                               one.proname, arguments, made, body);
            EXCEPTION WHEN OTHERS THEN
                NULL;  -- of a kind that only PostgreSQL itself can make
            END;
        END LOOP;
    END LOOP;
    FOR one IN
        SELECT o.oid, o.oprname, format_type(o.oprleft, NULL) AS lefts, format_type(o.oprright, NULL) AS rights,
               format_type(o.oprresult, NULL) AS result
        FROM pg_operator o WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprname = ANY(%(operators)s)
        AND format_type(o.oprleft, NULL) = ANY(%(types)s) AND format_type(o.oprright, NULL) = ANY(%(types)s)
    LOOP
        EXECUTE format('CREATE FUNCTION evil.operator_%%s(%%s, %%s) RETURNS %%s LANGUAGE plpgsql AS %%L',
                       one.oid, one.lefts, one.rights, one.result, body);
        EXECUTE format('CREATE OPERATOR evil.%%s (LEFTARG = %%s, RIGHTARG = %%s, FUNCTION = evil.operator_%%s)',
                       one.oprname, one.lefts, one.rights, one.oid);
    END LOOP;
    FOREACH made IN ARRAY ARRAY['text', 'bytea', 'jsonb', 'regclass', 'timestamptz'] LOOP
        EXECUTE format('CREATE TYPE evil.%%I AS ENUM ()', made);
    END LOOP;
    FOR one IN
        SELECT c.relname FROM pg_class c
        WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relname = ANY(%(tables)s)
    LOOP
        EXECUTE format('CREATE TABLE evil.%%I ()', one.relname);
    END LOOP;
END
$make$;
"""


def called(pattern: str) -> list[str]:
    """Every name in a statement of ours that this pattern finds."""
    return sorted({name for text in TEXTS for name in re.findall(pattern, text)})


@pytest.fixture
def shadowed_uri(pg_uri: str) -> Iterator[str]:
    """A database in which another role has made functions, operators, types and tables of PostgreSQL's names."""
    said = {"functions": called(r"\b([a-z_0-9]+)\("), "operators": OPERATORS, "types": TYPES,
            "tables": called(r"\b(pg_[a-z_]+)\b")}  # fmt: skip
    with psycopg.connect(pg_uri, autocommit=True, cursor_factory=psycopg.ClientCursor) as admin:
        admin.execute(SHADOWS, said)
    yield pg_uri
    with psycopg.connect(pg_uri, autocommit=True, options="-c search_path=pg_catalog") as admin:
        # A sequence counts calls even if they were rolled back or their error was suppressed.
        assert admin.execute("SELECT is_called FROM evil.called").fetchone() == (False,)


@pytest.fixture
def hostile_uri(shadowed_uri: str) -> str:
    """Yield the database with sessions that find these functions before PostgreSQL's own."""
    with psycopg.connect(shadowed_uri, autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{admin.info.dbname}" SET search_path = evil, public, pg_catalog')
    return shadowed_uri


def test_without_our_search_path_the_shadows_are_called(hostile_uri: str) -> None:
    calls = ["unnest(ARRAY['a', 'b'])", "count(1::bigint)", "max(1)", "split_part('a', 'b', 1)", "1 = 1", "'a'::name = 'b'::name",
             "nextval('evil.called')", "pg_notify('a', 'b')", "coalesce(sum(1), 0)", "'{}'::pg_catalog.jsonb -> 'a'",
             "pg_current_xact_id()", "octet_length('\\x00'::pg_catalog.bytea)", "now()", "clock_timestamp()"]  # fmt: skip
    with psycopg.connect(hostile_uri, autocommit=True) as connection:
        for call in calls:
            with pytest.raises(psycopg.errors.RaiseException, match="another role's"):
                connection.execute(f"SELECT {call}".encode())
        for cast in ("'a'::text", "'{}'::jsonb", "1 FROM pg_database WHERE oid IS NULL"):
            with pytest.raises((psycopg.errors.InvalidTextRepresentation, psycopg.errors.UndefinedColumn)):
                connection.execute(f"SELECT {cast}".encode())
        connection.execute("SELECT pg_catalog.setval('evil.called'::pg_catalog.regclass, 1::bigint, false)")


def use(queue: MessageQueue) -> set[str]:
    """Do what tasks, services and people do with a queue; return the statements that ran."""
    ran: set[str] = set()
    queue.store.probe = ran.add
    for ring, config in {
        "rotation": RingConfig(order="rotation", max_attempts=2, ordered=False),
        "paths": RingConfig(paths=True, order="deficit", max_origins=1000, service_weight=Weight(1_000_000, 1 << 30)),
    }.items():
        queue.admin.create_ring(ring, config)
        # The same store and so the same probe; the caller that opened it closes it.
        _use_ring(MessageQueue(queue.store, ring))
    queue.store.identity(anew=True)
    return ran


def _use_ring(queue: MessageQueue) -> None:
    soon = timedelta(seconds=0.01)
    queue.enqueue_message("a/one", b"one")
    queue.enqueue_message("a/one", b"two", key="two", headers={"x": "y"})
    queue.enqueue_message("a/two", b"three", priority="high")
    queue.enqueue_messages([(f"b/{number}", b"x" * 100) for number in range(150)])
    queue.enqueue_messages([("a/one", Message(b"heavy", weight=Weight(1 << 60, 1)))])
    queue.enqueue_message("late", b"later", not_before=soon)
    queue.payloads.enqueue("a/blob", b"x" * 200_000)
    queue.admin.set_origin("a/one", share=2, least=Weight(1, 1))
    queue.admin.pause("b/1", reason="a reason", below=queue.config.paths)
    queue.inspect.dry_run()
    queue.admin.resume("b/1")
    queue.service_queues(lambda delivery: None if delivery.headers or delivery.origin[0] == "a" else Yield())
    queue.enqueue_messages("a/two", [b"1", b"2", b"3"])
    block = queue.blocks.plan(key="a block")
    queue.blocks.renew(block)
    queue.blocks.report(block, [batch.answer() for batch in block.batches() if batch.headers and batch.sent_at])
    queue.blocks.reported(block)
    queue.blocks.settle(block)
    queue.enqueue_messages("c", [b"1", b"2"])
    for finish in (
        queue.leases.complete,
        lambda token: token.give_back(),
        lambda token: queue.leases.transfer(token, to="d"),
    ):
        token = queue.leases.view("c").try_next()
        assert token is not None and token.fetch()
        finish(token)
    queue.blocks.release(queue.blocks.plan())
    _settle_during_a_service(queue)
    _look_at(queue)
    queue.admin.force_set_head("d")
    for aside in queue.set_aside.list(limit=10):
        queue.set_aside.requeue(aside.address)
    queue.set_aside.discard_all("not wanted", origin="a/one")
    queue.sweep_queue("d")
    queue.set_aside.cull()
    queue.admin.change_ring(keep_events=0.0)
    queue.payloads.sweep()
    queue.admin.housekeep()
    assert queue.check() == []


def _settle_during_a_service(queue: MessageQueue) -> None:
    """Record the end of a block, which the service applies."""
    queue.enqueue_message("e", b"1")
    block = queue.blocks.plan(origins=["e"])
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.enqueue_message("f", b"1")

    def settle(delivery: Delivery) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(queue.blocks.settle, block.id).result()
        queue.footprint("e")

    queue.service_queues(settle)


def _look_at(queue: MessageQueue) -> None:
    for look_at in (
        queue.footprint,
        queue.inspect.explain,
        queue.inspect.peek,
        queue.inspect.pages,
        queue.inspect.origin_settings,
    ):
        look_at("c")
    for overview in (
        queue.footprints,
        queue.inspect.ring_order,
        queue.inspect.ring,
        queue.inspect.queues,
        queue.blocks.list,
        queue.payloads.list,
        queue.inspect.fairness,
        queue.inspect.ledger,
        queue.admin.paused,
        queue.inspect.latest_events,
        lambda: list(queue.inspect.depths()),
        queue.inspect.backlog,
        queue.inspect.pulse,
        queue.inspect.forecast,
        queue.set_aside.count,
        queue.inspect.fits,
        queue.admin.rings,
        queue.inspect.ring_version,
    ):
        overview()
    queue.inspect.backlog(deepest=3)
    queue.inspect.backlog(oldest=3)
    queue.set_aside.list(block=1)
    queue.set_aside.list(arrived=1)
    for event in list(queue.inspect.events(limit=3)):
        queue.inspect.history(event.id, origin=event.origin)


def test_no_connection_of_ours_calls_them(hostile_uri: str) -> None:
    address = parse(hostile_uri)
    assert schema_status(address).state == "missing"
    upgrade(address)
    with MessageQueue(address) as queue:
        ran = use(queue)
        list(_look(queue))
    assert len(ran & NAMES["postgres"]) > 0.7 * len(NAMES["postgres"])
    with beside(address) as made, MessageQueue(made) as queue:
        queue.enqueue_message("a", b"x")


@pytest.mark.parametrize("style", STYLES)
def test_no_command_on_a_connection_of_the_callers_calls_them(shadowed_uri: str, style: str) -> None:
    address = parse(shadowed_uri)
    upgrade(address)
    caller = Caller(shadowed_uri, style)
    caller.run("SET search_path = evil, public, pg_catalog")
    caller.commit()
    with MessageQueue(address) as queue:
        queue.enqueue_messages("a", [b"1", b"2"])
        queue.payloads.enqueue("a", b"x" * 200_000)
        with queue.payloads.put(b"y" * 200_000) as blob:
            commands = queue.commands(caller.connection)
            caller.run("SHOW search_path")
            commands.push("b", b"x", blob.reference, Message(b"z", key="k"), headers={"x": "y"}).execute()
        commands.complete(queue.leases.next() or "").execute()
        caller.commit()
        for _ in range(2):
            commands.transfer(queue.leases.view("a").try_next() or "", to="c").execute()
            assert caller.run("SHOW search_path") == [("evil, public, pg_catalog",)]
            caller.commit()
        queue.service_queues(lambda delivery: None)
        assert queue.check() == []
    caller.close()


def test_through_a_pooler_no_connection_of_ours_calls_them(hostile_uri: str) -> None:
    with pooled(hostile_uri) as uri:
        upgrade(parse(uri))
        with MessageQueue(uri) as queue:
            use(queue)


def test_the_callers_search_path_is_given_back(pg_uri: str) -> None:
    upgrade(parse(pg_uri))
    with MessageQueue(pg_uri) as queue, psycopg.connect(pg_uri) as connection:
        commands = queue.commands(connection)

        def path() -> Any:
            return connection.execute("SHOW search_path").fetchone()

        before = path()
        commands.push("a", b"x").execute()
        assert path() == before
        connection.execute("""SET search_path = public, "it's", pg_temp""")
        commands.push("a", b"x").execute()
        with pytest.raises(MessageTooLong):
            commands.push("a", b"x" * 10_000_000).execute()
        assert path() == ("""public, "it's", pg_temp""",)
        connection.commit()
        assert path() == ("""public, "it's", pg_temp""",), "what the caller set for the session stays"
        connection.execute("SET LOCAL search_path = pg_temp")
        commands.push("a", b"x").execute()
        assert path() == ("pg_temp",)
        connection.commit()
        assert path() == ("""public, "it's", pg_temp""",)
        connection.execute("CREATE TABLE business (what int)")


def test_a_store_that_is_made_among_shadows_calls_none(hostile_uri: str) -> None:
    """A person may run the statements one by one, under the search path of the session."""
    address = parse(hostile_uri)
    with psycopg.connect(hostile_uri, autocommit=True) as prompt:
        prompt.execute(
            "CREATE FUNCTION evil.nextval(pg_catalog.text) RETURNS bigint LANGUAGE sql AS 'SELECT 77::bigint'"
        )
        prompt.execute(
            "SET search_path = pg_catalog, evil"
        )  # As public is: behind, and yet preferred for a plain text.
        prompt.execute(_TABLE["postgres"].format(schema=address.schema).encode())
        for _, _, text in migrations("postgres"):
            prompt.execute(text.replace("{s}", address.prefix).encode())
        prompt.execute("SET search_path = pg_catalog")
        assert prompt.execute(BOUND, {"schema": address.schema}).fetchall() == []


#: Defaults that call a function of another schema.
BOUND = """
SELECT c.relname, p.oid::regprocedure FROM pg_catalog.pg_attrdef a
JOIN pg_catalog.pg_class c ON c.oid = a.adrelid AND c.relnamespace = to_regnamespace(%(schema)s)
JOIN pg_catalog.pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.objid = a.oid
JOIN pg_catalog.pg_proc p ON d.refclassid = 'pg_proc'::regclass AND d.refobjid = p.oid
"""


def test_what_a_person_applies_by_hand_calls_none(hostile_uri: str) -> None:
    address = parse(hostile_uri)
    with psycopg.connect(hostile_uri, autocommit=True) as prompt:
        prompt.execute(upgrade_sql("postgres", address.schema).encode())
    assert schema_status(address).state == "current"
    assert upgrade(address) == []
    with MessageQueue(address) as queue:
        queue.enqueue_message("a", b"x")


def test_every_connection_is_opened_in_one_place() -> None:
    def using(pattern: str) -> set[str]:
        texts = {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
        return {name for name, text in texts.items() if re.search(pattern, text, re.MULTILINE)}

    assert using(r"connect\(.*conninfo\b|= .*psycopg\.connect\b") == {"engine/store/postgres.py", "triggers.py"}
    # The hook's engine is the caller's, and so is its search path: see `airflow_mq.engine.store.guest`.
    assert using(r"\bplain_connection\b") == {"engine/store/postgres.py", "hooks.py"}
