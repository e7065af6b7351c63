"""Commands in the caller's transaction: committed or rolled back with its rows."""

from __future__ import annotations

import gc
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
import sqlalchemy.orm
from psycopg.rows import dict_row
from psycopg.types.json import set_json_loads
from sqlalchemy.ext.asyncio import create_async_engine

from airflow_mq import Done, Message, MessageQueue, Weight, Yield
from airflow_mq.engine.queue.tokens import ReferenceToken
from airflow_mq.engine.rules.errors import (
    AlreadyExecuted,
    Busy,
    ConnectionUnfit,
    InvalidInput,
    KeyConflict,
    MessageTooLong,
    NotPermitted,
    RecursiveDisallowed,
    SchemaTooNew,
    StoreBusy,
    StoreFull,
    TokenRefused,
    TooManyOrigins,
    UnknownRing,
)
from airflow_mq.engine.rules.message import message_id
from airflow_mq.engine.store import parse, upgrade
from tests.postgres_server import Server
from tests.store.queue.callers import STYLES, Caller, calling
from tests.store.queue.conftest import Maker, logged_events, serve


@pytest.fixture(params=STYLES)
def caller(request: pytest.FixtureRequest, make_queue: Maker) -> Iterator[Caller]:
    with calling(make_queue.uri, request.param) as caller:
        yield caller


def next_of(queue: MessageQueue, origin: str | None = None) -> ReferenceToken:
    token = queue.leases.view(origin).try_next()
    assert token is not None
    return token


def payloads(queue: MessageQueue, origin: str) -> list[bytes]:
    return [message.payload for message in queue.inspect.peek(origin, limit=100) if message.state != "reported"]


# Pushing.


def test_listeners_hear_of_a_push_that_ends_with_a_used_key(make_queue: Maker, caller: Caller) -> None:
    calls: list[tuple[str, int]] = []
    queue = make_queue(listeners=[lambda origin, footprint: calls.append((origin, footprint.count))])
    queue.enqueue_message("a", b"once", key="k")
    caller.run("INSERT INTO business VALUES ('1')")
    queue.commands(caller.connection).push("a", b"new", Message(b"once", key="k")).execute()
    caller.commit()
    serve(queue)
    assert calls == [("a", 1), ("a", 2), ("a", 0)]


def test_push_commits_and_rolls_back_with_the_callers_rows(queue: MessageQueue, caller: Caller) -> None:
    commands = queue.commands(caller.connection)
    caller.run("INSERT INTO business VALUES ('lost')")
    assert commands.push("a", b"lost").execute().count == 1
    caller.rollback()
    caller.run("INSERT INTO business VALUES ('kept')")
    pushed = commands.push("a", b"kept", b"too").execute()
    assert (pushed.count, pushed.size, pushed.repeated) == (2, 7, 0)
    with MessageQueue(queue.store.address.uri, "test") as other:
        assert payloads(other, "a") == []
    caller.commit()
    assert caller.rows() == ["kept"] and payloads(queue, "a") == [b"kept", b"too"]
    assert serve(queue) == [("a", b"kept"), ("a", b"too")]


def test_push_accepts_all_message_options(queue: MessageQueue, caller: Caller) -> None:
    caller.run("INSERT INTO business VALUES ('row')")
    commands = queue.commands(caller.connection)
    commands.push("a", b"1", headers={"trace": "7"}, weight=Weight(3, 4)).execute()
    commands.push("a", Message(b"2", key="k"), b"3").execute()
    assert commands.push("a", Message(b"2", key="k")).execute().repeated == 1
    commands.push("late", b"4", not_before=60).execute()
    commands.push("old", b"5", expires=0).execute()
    commands.push("many", *[b"%d" % number for number in range(300)]).execute()
    with pytest.raises(KeyConflict, match="made at"):
        commands.push("a", Message(b"other", key="k")).execute()
    caller.commit()
    messages = queue.inspect.peek("a")
    assert [message.payload for message in messages] == [b"1", b"2", b"3"]
    assert messages[0].headers == {"trace": "7"} and messages[0].weight == Weight(3, 4)
    assert queue.footprint("late").count == 0 and queue.inspect.explain("late").reason == "not due"
    assert (
        queue.footprint("many").count == 300 and [payload for origin, payload in serve(queue) if origin == "old"] == []
    )


def test_push_to_another_ring(make_queue: Maker, caller: Caller) -> None:
    here, there = make_queue(), make_queue("other")
    caller.run("INSERT INTO business VALUES ('row')")
    here.commands(caller.connection).push("a", b"1", ring="other").execute()
    with pytest.raises(UnknownRing):
        here.commands(caller.connection).push("a", b"1", ring="nowhere")
    caller.commit()
    assert payloads(here, "a") == [] and payloads(there, "a") == [b"1"]


def test_push_transfers_a_completion_of_another_ring(make_queue: Maker, caller: Caller) -> None:
    here, there = make_queue(), make_queue("other")
    there.enqueue_message("a", b"moved")
    token = next_of(there)
    caller.run("INSERT INTO business VALUES ('row')")
    completion = there.commands(caller.connection).complete(token)
    here.commands(caller.connection).push("b", completion).execute()
    caller.commit()
    assert payloads(here, "b") == [b"moved"] and there.footprint("a").count == 0


def test_error_names_the_line_of_the_command_and_keeps_the_transaction(queue: MessageQueue, caller: Caller) -> None:
    queue.enqueue_message("a", b"1")
    late = queue.leases.view("a", lease=0.0).try_next()
    caller.run("INSERT INTO business VALUES ('row')")
    commands = queue.commands(caller.connection)
    fine = commands.push("b", b"fine")
    too_long = commands.push("b", b"x" * 100_000)
    assert late is not None
    too_late = commands.complete(late)
    for command, error in ((too_long, MessageTooLong), (too_late, TokenRefused)):
        with pytest.raises(error, match=rf"made at .*{Path(__file__).name}:\d+ in test_error_names"):
            command.execute()
    assert Path(__file__).name in repr(fine)
    fine.execute()
    caller.commit()
    assert caller.rows() == ["row"] and payloads(queue, "b") == [b"fine"] and payloads(queue, "a") == [b"1"]


def test_command_executes_once(queue: MessageQueue, caller: Caller) -> None:
    queue.enqueue_messages("a", [b"1"])
    token = next_of(queue)
    caller.run("INSERT INTO business VALUES ('row')")
    commands = queue.commands(caller.connection)
    push, done = commands.push("b", b"2"), commands.complete(token)
    for command in (push, done):
        command.execute()
        with pytest.raises(AlreadyExecuted, match="once"):
            command.execute()
    with pytest.raises(AlreadyExecuted):
        commands.push("c", done)
    with pytest.raises(TokenRefused):
        commands.complete(token).execute()
    caller.commit()
    assert payloads(queue, "b") == [b"2"] and queue.footprint("a").count == 0


def test_invalid_arguments_are_rejected(queue: MessageQueue, caller: Caller) -> None:
    commands = queue.commands(caller.connection)
    wrong: Any
    for wrong in ("text", None, 7):
        with pytest.raises(InvalidInput, match="expected bytes, a Message"):
            commands.push("a", wrong)
    for call in (
        lambda: commands.push("a"), lambda: commands.push("", b"1"), lambda: commands.push("a\n", b"1"),
        lambda: commands.complete("no token"), lambda: commands.complete(wrong), lambda: commands.push("a", b"1", weight=wrong),
        lambda: commands.push("a", b"1", headers={"a": 1}),
    ):  # fmt: skip
        with pytest.raises(InvalidInput):
            call()
    caller.run("INSERT INTO business VALUES ('row')")
    with pytest.raises(InvalidInput, match="made at"):
        commands.push("a", b"").execute()


# Completing and transferring.


def test_complete_commits_and_rolls_back_with_the_callers_rows(queue: MessageQueue, caller: Caller) -> None:
    queue.enqueue_messages([("a", b"1"), ("b", b"2")])
    tokens = [next_of(queue), next_of(queue)]
    caller.run("INSERT INTO business VALUES ('lost')")
    assert queue.commands(caller.connection).complete(tokens).execute() == 2
    caller.rollback()
    assert payloads(queue, "a") == [b"1"] and tokens[0].fetch() == b"1"
    caller.run("INSERT INTO business VALUES ('kept')")
    queue.commands(caller.connection).complete(map(str, tokens)).execute()
    with pytest.raises(
        TokenRefused, match=r"block \d+ is past its deadline: it was completed or given back; it is too late"
    ):
        queue.commands(caller.connection).complete(tokens[0]).execute()
    caller.commit()
    assert queue.footprint("a").count == 0 and queue.inspect.peek("a")[0].state == "reported"
    assert queue.admin.housekeep() == 2
    assert sorted(logged_events(queue)) == [("Processed", "a", 0, 0), ("Processed", "b", 0, 0)]


def test_message_is_transferred_repeatedly(make_queue: Maker, caller: Caller) -> None:
    """At any commit, the message is in exactly one queue, in either ring, and keeps its identity."""
    queue, other = make_queue(heap_size=200), make_queue("other")
    neighbours = [b"before", b"the message", b"after"]
    queue.enqueue_messages("in", neighbours, headers={"trace": "7"})
    serve(queue, lambda delivery: None if delivery.payload == b"before" else Yield())

    def places() -> list[str]:
        places_of_message = []
        for ring in (queue, other):
            assert ring.check() == []
            for origin, footprint in ring.footprints():
                places_of_message += [f"{ring.ring}/{origin}"] * sum(
                    p == b"the message" for p in payloads(ring, origin)
                )
                assert footprint.count == len(payloads(ring, origin))
        return places_of_message

    route = [(queue, "verify"), (other, "publish"), (other, "publish"), (queue, "in"), (queue, "end")]
    source, origin = queue, "in"
    for target, to in route:
        token = next_of(source, origin)
        while token.fetch() != b"the message":
            token.complete()
            token = next_of(source, origin)
        assert places() == [f"{source.ring}/{origin}"] and token.headers == {"trace": "7"}
        caller.run(f"INSERT INTO business VALUES ('{to}')")
        moved = source.commands(caller.connection).transfer(token, to, ring=target.ring).execute()
        assert (moved.count, moved.size) == (1, 11)
        if not caller.sqlite:
            assert places() == [f"{source.ring}/{origin}"], "not moved before the commit"
        caller.commit()
        assert places() == [f"{target.ring}/{to}"], "moved, whether settled or not"
        source.admin.housekeep()
        assert places() == [f"{target.ring}/{to}"]
        source, origin = target, to
    for ring in (queue, other):
        for token in ring.leases.view():
            token.complete()
    assert places() == []
    assert caller.run(f"SELECT count(*) FROM {queue.store.prefix}inbox") == [(0,)]
    caller.rollback()
    name = message_id(b"the message")
    events = [(e.name, e.origin, e.detail) for ring in (queue, other) for e in ring.inspect.events(id=name)]
    assert events == [
        ("Returned", "in", ""), ("Transferred", "in", "verify"), ("Transferred", "verify", "other/publish"),
        ("Transferred", "in", "end"), ("Processed", "end", ""),
        ("Transferred", "publish", "publish"), ("Transferred", "publish", "test/in"),
    ]  # fmt: skip


def test_composed_commands_execute_together(queue: MessageQueue, caller: Caller) -> None:
    queue.enqueue_messages([("a", b"1"), ("b", b"2"), ("c", b"3")])
    first, second, third = next_of(queue), next_of(queue), next_of(queue)
    caller.run("INSERT INTO business VALUES ('row')")
    commands = queue.commands(caller.connection)
    released = commands.complete([first, second])
    push = commands.push("out", b"first", released, b"last")
    assert queue.footprint("out").count == 0 and first.fetch() == b"1", "a command has no effect before its execution"
    for again in (released.execute, lambda: commands.push("elsewhere", released)):
        with pytest.raises(AlreadyExecuted, match="belongs to the push that was made at"):
            again()
    assert push.execute().count == 4
    with pytest.raises(AlreadyExecuted):
        released.execute()
    caller.commit()
    assert payloads(queue, "out") == [b"first", b"1", b"2", b"last"]
    with calling(queue.store.address.uri, "driver") as other, pytest.raises(InvalidInput, match="one connection"):
        queue.commands(other.connection).push("out", commands.complete(third))


def test_failed_push_transfers_nothing_and_can_be_retried(queue: MessageQueue, caller: Caller) -> None:
    queue.enqueue_messages([("a", b"1"), ("b", b"2")])
    first, second = next_of(queue), next_of(queue)
    second.complete()
    caller.run("INSERT INTO business VALUES ('row')")
    commands = queue.commands(caller.connection)
    with pytest.raises(TokenRefused):
        commands.push("out", commands.complete(first), commands.complete(second)).execute()
    with pytest.raises(InvalidInput, match="not_before"):
        commands.push("out", commands.complete(first), not_before=60).execute()
    caller.commit()
    assert first.fetch() == b"1" and queue.footprint("out").count == 0
    caller.run("INSERT INTO business VALUES ('row')")
    commands.transfer(first, "out", weight=Weight(5, 5)).execute()
    caller.commit()
    assert queue.inspect.peek("out")[0].weight == Weight(5, 5)


def test_transfer_to_a_ring_with_smaller_pages_is_rejected(make_queue: Maker, caller: Caller) -> None:
    queue, small = make_queue(), make_queue("small", heap_size=64)
    queue.enqueue_message("a", b"x" * 100)
    token = next_of(queue)
    caller.run("INSERT INTO business VALUES ('row')")
    with pytest.raises(MessageTooLong):
        queue.commands(caller.connection).transfer(token, "a", ring="small").execute()
    caller.commit()
    assert token.fetch() == b"x" * 100 and small.footprint("a").count == 0


@pytest.mark.parametrize("held", [False, True])
def test_first_high_messages_are_transferred_all_or_none(make_queue: Maker, held: bool) -> None:
    queue, small = make_queue(patience=0.5), make_queue("small", heap_size=64)
    queue.enqueue_messages([("a", b"x"), ("b", b"x" * 100)], priority="high")
    first, second = next_of(queue, "a"), next_of(queue, "b")
    with pytest.raises(MessageTooLong):
        queue.leases.transfer([first, second], "c", ring="small")
    assert first.fetch() == b"x" and second.fetch() == b"x" * 100 and small.footprints() == []
    with ExitStack() as stack:
        if held and not make_queue.uri.startswith("sqlite"):
            # Another transaction has the settings of the ring.
            stack.enter_context(make_queue("small").store.writing()).rings.held_config(small.session.ring_id)
            with pytest.raises(Busy):
                queue.leases.transfer(first, "c", ring="small")
            assert first.fetch() == b"x" and small.footprints() == []
    queue.leases.transfer(first, "c", ring="small")
    assert serve(small) == [("c", b"x")] and queue.footprint("a").count == 0
    second.give_back()


def test_a_refused_push_marks_no_ring_as_one_with_high_messages(make_queue: Maker, caller: Caller) -> None:
    queue = make_queue()
    caller.run("INSERT INTO business VALUES ('row')")
    with pytest.raises(MessageTooLong):
        queue.commands(caller.connection).push("a", Message(b"x" * 100_000, priority="high")).execute()
    caller.commit()
    assert not make_queue().config.high


@pytest.mark.parametrize("how", ["serve", "block", "discard", "reap", "forecast"])
def test_transferred_messages_end_like_any_other(make_queue: Maker, how: str) -> None:
    """An inbox row spans three pages; some of its messages are transferred, all end in another way."""
    queue = make_queue(heap_size=120, max_stale=0, service_weight=Weight(1_000, 1_000_000))
    sent = [b"%030d" % number for number in range(8)]
    queue.enqueue_messages("a", sent)
    heavy = Weight(5_000, 0) if how in ("discard", "reap") else None
    with calling(make_queue.uri, "driver") as caller:
        for number in range(8):
            token = next_of(queue, "a")
            if number in (1, 2, 6):
                caller.run("INSERT INTO business VALUES ('row')")
                queue.commands(caller.connection).transfer(token, "out", weight=heavy).execute()
                caller.commit()
            else:
                token.complete()
            assert queue.check() == []
        queue.admin.housekeep()
        assert queue.footprint("a").pages == 0 and payloads(queue, "out") == [sent[1], sent[2], sent[6]]
        if how == "serve":
            assert [payload for _, payload in serve(queue)] == [sent[1], sent[2], sent[6]]
        elif how == "block":
            block = queue.blocks.plan()
            assert [payload for batch in block.batches() for payload in batch.payloads] == [sent[1], sent[2], sent[6]]
            queue.blocks.report(block, [batch.answer() for batch in block.batches()])
            assert queue.blocks.settle(block).processed == 3
        elif how == "forecast":
            assert queue.inspect.dry_run().messages == 3 and len(list(queue.inspect.forecast(3))) >= 1
            assert [payload for _, payload in serve(queue)] == [sent[1], sent[2], sent[6]]
        else:
            serve(queue)
            assert len(queue.set_aside.list()) == 3
            if how == "discard":
                queue.set_aside.discard([aside.address for aside in queue.set_aside.list()], "not wanted")
            else:
                queue.sweep_queue("out")
                for page in sorted({aside.address.page for aside in queue.set_aside.list()}):
                    queue.reap_page("out", page, "old")
        assert queue.check() == []
        caller.rollback()
        assert caller.run(f"SELECT count(*) FROM {queue.store.prefix}inbox") == [(0,)]


@pytest.mark.postgres
def test_source_of_a_copy_is_deleted_while_the_copy_transfers(pg_uri: str) -> None:
    """A second transfer is open while the first queue settles and deletes the row that had the bytes."""
    queue = Maker(pg_uri)()
    queue.enqueue_messages("a", [b"moved", b"rest"])
    queue.leases.transfer(next_of(queue, "a"), "b")
    moved, rest = next_of(queue, "b"), next_of(queue, "a")
    with psycopg.connect(pg_uri) as connection:
        queue.commands(connection).transfer(moved, "c").execute()
        rest.complete()
        assert queue.footprint("a").pages == 0 and queue.check() == []
    assert queue.check() == []
    queue.admin.housekeep()
    assert queue.check() == []
    last = next_of(queue, "c")
    assert last.fetch() == b"moved"
    last.complete()
    with psycopg.connect(pg_uri) as connection:
        assert connection.execute('SELECT * FROM "airflow_mq".inbox').fetchall() == []
    queue.close()


# Unsuitable connections.


def test_connection_to_another_database_is_rejected(
    queue: MessageQueue, tmp_path: Path, postgres_server: Server
) -> None:
    other = sqlite3.connect(tmp_path / "other.db", isolation_level=None)
    other.execute("BEGIN")
    with postgres_server.database() as uri:
        upgrade(parse(uri))
        with psycopg.connect(uri) as connection:
            for wrong in (other, connection):
                with pytest.raises(ConnectionUnfit, match="another (file|database)|the queue is on"):
                    queue.commands(wrong).push("a", b"1").execute()
            assert connection.execute("SELECT 1").fetchone() == (1,), "the connection stays usable"
    other.close()
    for nothing in (None, object(), "sqlite://"):
        with pytest.raises(ConnectionUnfit, match="it takes a connection of psycopg 3"):
            queue.commands(nothing).push("a", b"1").execute()
    assert queue.footprint("a").count == 0


@pytest.mark.postgres
def test_postgres_connection_must_be_in_a_transaction(pg_uri: str) -> None:
    queue = Maker(pg_uri)()

    def push(connection: Any) -> None:
        queue.commands(connection).push("a", b"1").execute()

    with psycopg.connect(pg_uri, autocommit=True) as connection:
        with pytest.raises(ConnectionUnfit, match=r"with connection\.transaction"):
            push(connection)
        with connection.transaction():
            push(connection)
        with connection.pipeline(), pytest.raises(ConnectionUnfit, match="pipeline"):
            push(connection)
    with pytest.raises(ConnectionUnfit, match="closed"):
        push(connection)
    with psycopg.connect(pg_uri, row_factory=dict_row) as connection:
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT * FROM nowhere")
        with pytest.raises(ConnectionUnfit, match="failed before"):
            push(connection)
        connection.rollback()
        before = connection.execute("SELECT name, setting FROM pg_settings ORDER BY name").fetchall()
        push(connection)
        assert connection.execute("SELECT name, setting FROM pg_settings ORDER BY name").fetchall() == before
    assert queue.footprint("a").count == 2
    engine = sqlalchemy.create_engine(pg_uri.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as core:
        push(core)
        core.rollback()
        push(core)
        core.commit()
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as loose:
        with pytest.raises(ConnectionUnfit, match="without AUTOCOMMIT"):
            push(loose)
        assert not loose.in_transaction()
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as loose:
        loose.exec_driver_sql("SELECT 1")
        with pytest.raises(ConnectionUnfit, match="commits each statement"):
            push(loose)
    with pytest.raises(ConnectionUnfit, match="closed"):
        push(loose)
    with sqlalchemy.orm.Session(engine) as session:
        with pytest.raises(ConnectionUnfit, match=r"session\.connection\(\)"):
            push(session)
        push(session.connection())
        session.commit()
    with pytest.raises(ConnectionUnfit, match="asynchronous"):
        push(create_async_engine(engine.url).connect())
    engine.dispose()
    assert queue.footprint("a").count == 4
    queue.close()


def test_sqlite_connection_must_be_in_a_transaction(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    queue = Maker(f"sqlite:///{path}")()

    def push(connection: Any) -> None:
        queue.commands(connection).push("a", b"1").execute()

    for level in (None, "", "DEFERRED", "IMMEDIATE"):
        connection = sqlite3.connect(path, isolation_level=level)
        connection.row_factory, connection.text_factory = sqlite3.Row, bytes
        with pytest.raises(ConnectionUnfit, match="no open transaction"):
            push(connection)
        assert not connection.in_transaction, "the queue must not begin a transaction"
        connection.execute("BEGIN")
        push(connection)
        assert connection.in_transaction
        connection.commit()
        connection.close()
    assert queue.footprint("a").count == 4
    with pytest.raises(ConnectionUnfit, match="closed"):
        push(connection)
    aside = sqlite3.connect(tmp_path / "mine.db", isolation_level=None)
    aside.execute(f"ATTACH '{path}' AS theirs")
    aside.execute("BEGIN")
    with pytest.raises(ConnectionUnfit, match="attached to this connection as 'theirs'"):
        push(aside)
    aside.close()
    # SQLite rejects writes of a transaction that read before another program wrote.
    late = sqlite3.connect(path, isolation_level=None, timeout=0.1)
    late.execute("BEGIN")
    late.execute("SELECT count(*) FROM mq_inbox").fetchall()
    queue.enqueue_message("a", b"2")
    with pytest.raises(StoreBusy):
        push(late)
    assert late.in_transaction
    late.execute("ROLLBACK")
    push_full = sqlite3.connect(path, isolation_level=None)
    push_full.execute("BEGIN IMMEDIATE")
    pages = push_full.execute("PRAGMA page_count").fetchone()[0]
    push_full.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreFull):
        for _ in range(50):
            queue.commands(push_full).push("b", b"x" * 60_000).execute()
    for connection in (late, push_full):
        connection.close()
    queue.close()


@pytest.mark.postgres
def test_a_command_reads_json_in_its_own_way(pg_uri: str) -> None:
    queue = Maker(pg_uri)(max_origins=1)
    with psycopg.connect(pg_uri) as connection:
        set_json_loads(partial(json.loads, parse_float=Decimal), connection)
        assert queue.commands(connection).push("a", Message(b"1", key="k")).execute().count == 1
        with pytest.raises(TooManyOrigins):
            queue.commands(connection).push("b", b"2").execute()
        assert connection.execute("SELECT '1.5'::jsonb").fetchone() == (Decimal("1.5"),)
    assert payloads(queue, "a") == [b"1"]
    queue.close()


def test_a_command_reads_text_in_its_own_way(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    queue = Maker(f"sqlite:///{path}")(max_origins=2)
    queue.enqueue_messages("a", [b"1", b"2"])
    first, connection = next_of(queue, "a"), sqlite3.connect(path, isolation_level=None)
    connection.text_factory = bytes
    connection.execute("BEGIN IMMEDIATE")
    commands = queue.commands(connection)
    commands.transfer(first, "b").execute()
    with pytest.raises(TooManyOrigins):
        commands.push("c", b"3").execute()
    assert connection.execute("SELECT 'text'").fetchone() == (b"text",)
    connection.execute("COMMIT")
    connection.close()
    assert payloads(queue, "b") == [b"1"]
    queue.close()


def test_newer_schema_is_rejected(make_queue: Maker) -> None:
    queue = make_queue()
    with calling(make_queue.uri, "driver") as caller:
        caller.run(f"UPDATE {queue.store.prefix}migration SET version = version + 90")
        caller.commit()
        caller.run("INSERT INTO business VALUES ('row')")
        with pytest.raises(SchemaTooNew, match="made at"):
            queue.commands(caller.connection).push("a", b"1").execute()
        caller.run(f"UPDATE {queue.store.prefix}migration SET version = version - 90")
        caller.commit()
        assert caller.rows() == ["row"]


def test_commands_are_rejected_inside_a_processor(make_queue: Maker) -> None:
    queue = make_queue()
    queue.enqueue_message("a", b"1")
    with calling(make_queue.uri, "driver") as caller:

        def processor(delivery: object) -> Done:
            with pytest.raises(RecursiveDisallowed):
                queue.commands(caller.connection).push("b", b"2").execute()
            return Done()

        serve(queue, processor)


def test_commands_do_not_import_sqlalchemy() -> None:
    code = (
        "import sys, sqlite3, tempfile, airflow_mq\n"
        "from airflow_mq.testing.scratch import scratch_queue\n"
        "with scratch_queue() as queue:\n"
        "    mine = sqlite3.connect(queue.store.address.path, isolation_level=None)\n"
        "    mine.execute('BEGIN')\n"
        "    queue.commands(mine).push('a', b'1').execute()\n"
        "    mine.execute('COMMIT')\n"
        "    mine.close()\n"
        "    assert queue.footprint('a').count == 1\n"
        "assert 'sqlalchemy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# Bytes of transfers.


@pytest.mark.postgres
def test_transfer_brings_no_payload_to_the_client(pg_uri: str, tmp_path: Path) -> None:
    """The database copies the bytes: the traffic of the connection contains none of them."""
    size = 1 << 20
    queue = Maker(pg_uri)(heap_size=size + 5)
    queue.enqueue_message("a", b"x" * size)
    token = next_of(queue)
    path = tmp_path / "traffic"
    with path.open("wb") as file, psycopg.connect(pg_uri) as connection:
        connection.pgconn.trace(file.fileno())
        queue.commands(connection).transfer(token, "out").execute()
        connection.commit()
        connection.pgconn.untrace()
    traffic = path.read_bytes()
    assert b"INSERT INTO" in traffic
    assert b"xxxx" not in traffic and b"78787878" not in traffic and len(traffic) < 50_000
    queue.admin.housekeep()
    assert queue.footprint("out").size == size and queue.check() == []
    assert [payload for _, payload in serve(queue)] == [b"x" * size]
    queue.close()


def test_external_payload_is_transferred_by_reference(make_queue: Maker, caller: Caller) -> None:
    queue = make_queue()
    data = b"x" * 200_000
    queue.payloads.enqueue("a", data, headers={"trace": "7"})
    with queue.payloads.put(b"y" * 100_000) as blob:
        caller.run("INSERT INTO business VALUES ('row')")
        queue.commands(caller.connection).push("a", blob.reference).execute()
        caller.commit()
    token = next_of(queue)
    with queue.payloads.open(token.fetch()) as file:
        assert file.read() == data
    caller.run("INSERT INTO business VALUES ('row')")
    queue.commands(caller.connection).transfer(token, "b").execute()
    caller.commit()
    queue.admin.housekeep()
    assert queue.check() == [] and len(queue.payloads.list()) == 2
    for token in queue.leases.view():
        with queue.payloads.open(token.fetch()) as file:
            assert len(file.read()) in (100_000, 200_000)
        token.complete()
    assert queue.check() == [] and queue.payloads.list() == []


def test_transfer_keeps_or_changes_the_headers(queue: MessageQueue, caller: Caller) -> None:
    commands = queue.commands(caller.connection)
    given: tuple[dict[str, str] | None, ...] = (None, {}, {"new": "2"})
    for headers in given:
        queue.enqueue_message("a", b"1", headers={"old": "1"})
        token = next_of(queue, "a")
        caller.run("INSERT INTO business VALUES ('row')")
        commands.push("b", commands.complete(token), headers=headers).execute()
        caller.commit()
    assert [message.headers for message in queue.inspect.peek("b")] == [{"old": "1"}, {}, {"new": "2"}]


def test_a_command_over_the_store_reads_the_clock_within_its_transaction(queue: MessageQueue) -> None:
    queue.enqueue_message("a", b"1")
    commands = queue.commands(queue.store)
    sent = commands.push("b", b"0", commands.complete(next_of(queue, "a")), b"2", expires=60).execute()
    assert sent.count == 3 and payloads(queue, "b") == [b"0", b"1", b"2"]


def test_transfer_keeps_or_changes_the_priority(queue: MessageQueue, caller: Caller) -> None:
    caller.run("INSERT INTO business VALUES ('row')")
    commands = queue.commands(caller.connection)
    commands.push("a", b"regular").execute()
    commands.push("a", b"high", priority="high").execute()
    with pytest.raises(InvalidInput, match="priority"):
        commands.push("a", b"1", priority="urgent")
    caller.commit()
    token = next_of(queue, "a")
    assert token.fetch() == b"high"
    caller.run("INSERT INTO business VALUES ('row')")
    commands.transfer(token, "b").execute()
    caller.commit()
    assert [(message.payload, message.address.priority) for message in queue.inspect.peek("b")] == [(b"high", "high")]
    token = next_of(queue, "b")
    caller.run("INSERT INTO business VALUES ('row')")
    commands.push("c", commands.complete(token), priority="regular").execute()
    caller.commit()
    assert [message.address.priority for message in queue.inspect.peek("c")] == ["regular"]
    queue.admin.housekeep()
    assert sorted(payload for _, payload in serve(queue)) == [b"high", b"regular"]


@pytest.mark.parametrize("kind", ["push", "message", "transfer"])
@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_the_first_high_message_of_a_ring_holds_up_no_other(make_queue: Maker, kind: str, isolation: str) -> None:
    if make_queue.uri.startswith("sqlite"):
        pytest.skip("SQLite has one writer at a time")
    queue, other = make_queue(patience=0.5), make_queue(patience=0.5)
    queue.enqueue_message("a", b"x")
    token = next_of(queue, "a") if kind == "transfer" else None
    with calling(make_queue.uri, "driver") as caller:
        caller.run(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
        caller.run("INSERT INTO business VALUES ('row')")
        commands = queue.commands(caller.connection)
        if kind == "push":
            commands.push("b", b"high", priority="high").execute()
        elif token is None:
            commands.push("b", Message(b"high", priority="high")).execute()
        else:
            commands.push("b", commands.complete(token), priority="high").execute()
        other.admin.change_ring(max_stale=7)
        assert other.enqueue_message("c", b"high", priority="high").count == 1
        caller.commit()
    assert sorted(serve(make_queue())[:2]) == [("b", b"x" if token else b"high"), ("c", b"high")]


def test_permit_confines_push(make_queue: Maker) -> None:
    make_queue()
    confined = MessageQueue(replace(parse(make_queue.uri), origins="acme/*", priority="regular"), "test")
    with calling(make_queue.uri, "driver") as caller:
        caller.run("INSERT INTO business VALUES ('row')")
        commands = confined.commands(caller.connection)
        for push in (lambda: commands.push("birch", b"1"), lambda: commands.push("acme/a", b"1", priority="high")):
            with pytest.raises(NotPermitted):
                push()
        commands.push("acme/a", b"1").execute()
        caller.commit()
    assert payloads(confined, "acme/a") == [b"1"]
    confined.close()


def test_push_and_transfer_respect_max_origins(make_queue: Maker, caller: Caller) -> None:
    queue = make_queue(max_origins=1)
    queue.enqueue_message("a", b"1")
    token = next_of(queue)
    caller.run("INSERT INTO business VALUES ('row')")
    commands = queue.commands(caller.connection)
    for command in (commands.push("b", b"2"), commands.transfer(token, "b")):
        with pytest.raises(TooManyOrigins, match="made at"):
            command.execute()
    commands.push("a", b"2").execute()
    caller.commit()
    assert payloads(queue, "a") == [b"1", b"2"] and token.fetch() == b"1"


@pytest.mark.slow
def test_a_command_that_is_never_executed_is_logged(
    caller: Caller, queue: MessageQueue, caplog: pytest.LogCaptureFixture
) -> None:
    """A push looks like a call that sends; a failed one, or a completion that was pushed, is not forgotten."""
    gc.collect()
    caplog.clear()  # of commands that other tests made
    queue.enqueue_message("source", b"moved")
    queue.leases.transfer(next_of(queue, "source"), "target")
    queue.enqueue_message("source", b"kept")
    token = next_of(queue, "source")
    caller.run("INSERT INTO business VALUES ('row')")
    commands = queue.commands(caller.connection)
    commands.push("acme", b"sent").execute()
    with pytest.raises(MessageTooLong):
        commands.push("acme", b"x" * 70_000).execute()
    for refused in ({"to": "no\norigin"}, {"to": "acme", "ring": "nowhere"}):
        with pytest.raises((InvalidInput, UnknownRing)):
            commands.transfer(token, **refused)
    completion = commands.complete(token)
    for wrong in ((completion, 5), (5, completion), (completion, completion)):
        with pytest.raises(InvalidInput, match="invalid message|duplicate completion"):
            commands.push("acme", *wrong)  # type: ignore[arg-type]
    del completion, wrong
    gc.collect()
    assert not caplog.messages
    commands.push("acme", b"forgotten")
    gc.collect()
    caller.commit()
    (text,) = caplog.messages
    assert text.startswith("push never executed: nothing was changed; it was made at ")
    assert "test_commanding.py" in text
    assert payloads(queue, "acme") == [b"sent"]
