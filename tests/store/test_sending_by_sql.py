"""`send` and `send_many` of the database: the same rows, limits and errors as the Python client."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_mq import Message, MessageQueue, RingConfig, Weight
from airflow_mq.engine.rules.characters import INVISIBLE
from airflow_mq.engine.rules.errors import (
    EmptyMessage,
    InvalidInput,
    InvalidOrigin,
    KeyConflict,
    MessageQueueError,
    MessageTooLong,
    QueueFull,
    TooManyOrigins,
    UnknownRing,
)
from airflow_mq.engine.store import codec, parse

pytestmark = pytest.mark.postgres
PAGE = Path(__file__).parents[2] / "docs" / "sending.md"

#: The SQLSTATE of each error that a sender can cause, as docs/sending.md lists them.
STATES: dict[str, type[MessageQueueError]] = {
    "MQ100": InvalidOrigin,
    "MQ101": EmptyMessage,
    "MQ102": MessageTooLong,
    "MQ103": InvalidInput,
    "MQ104": UnknownRing,
    "MQ105": KeyConflict,
    "MQ106": TooManyOrigins,
    "MQ107": QueueFull,
}


@pytest.fixture
def connection(pg_uri: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection of a program that does not use the package."""
    with closing(psycopg.connect(autocommit=True, **parse(pg_uri).conninfo())) as opened:
        yield opened


def send(connection: psycopg.Connection[Any], ring: str, origin: str, payload: bytes, **values: Any) -> int:
    """Call `airflow_mq.send`."""
    named = "".join(f", {name} => %({name})s" for name in values)
    text = f"SELECT airflow_mq.send(%(ring)s, %(origin)s, %(payload)b{named})"
    row = connection.execute(text.encode(), {"ring": ring, "origin": origin, "payload": payload, **values}).fetchone()
    assert row is not None
    return int(row[0])


def stored(queue: MessageQueue) -> list[tuple[Any, ...]]:
    """Return all messages of a ring in order: origin, priority, payload, headers, weight and expiry."""
    with queue.session.store.reading() as unit:
        assert unit.connection is not None  # type: ignore[attr-defined]
        rows = unit.connection.execute(  # type: ignore[attr-defined]
            "SELECT origin, items, size, lengths, attributes, heap FROM airflow_mq.inbox WHERE ring = %s ORDER BY id",
            (queue.session.ring_id,),
        ).fetchall()
    messages = []
    for origin, items, size, lengths, attributes, heap in rows:
        start, common = 0, codec.read_json(bytes(attributes)) if attributes else {}
        for place, length in enumerate(codec.unpack_lengths(bytes(lengths), items, size)):
            own = {**common.get("all", {}), **common.get("each", {}).get(str(place), {})}
            payload = bytes(heap)[start : start + length]
            messages.append((origin, payload, own.get("headers"), own.get("weight"), own.get("expires")))
            start += length
    return sorted(messages, key=lambda message: message[0])


def outcome(call: Any) -> int | type[MessageQueueError]:
    """Return how many messages a call stored, or the class of its error."""
    try:
        result = call()
    except psycopg.Error as error:
        assert error.sqlstate in STATES, error
        return STATES[error.sqlstate]
    except MessageQueueError as error:
        return next((state for state in STATES.values() if type(error) is state), InvalidInput)
    return result if isinstance(result, int) else result.count


def test_send_stores_what_enqueue_message_stores(connection: psycopg.Connection[Any], pg_uri: str) -> None:
    expires = datetime.now(timezone.utc) + timedelta(hours=1)
    with MessageQueue(pg_uri, "default") as queue:
        queue.admin.create_ring("sql")
        values = {"headers": {"trace": "é"}, "weight": Weight(3, 2**64 - 1), "expires": expires, "priority": "high"}
        assert queue.enqueue_message("acme", b"one", key="k", **values).count == 1  # type: ignore[arg-type]
        sent = {**values, "headers": '{"trace": "é"}', "weight": [3, 2**64 - 1]}
        assert send(connection, "sql", "acme", b"one", key="k", **sent) == 1
        assert send(connection, "sql", "acme", b"one", key="k", **sent) == 0
        with MessageQueue(pg_uri, "sql") as other:
            assert stored(other) == stored(queue)
            assert other.config.high and other.check() == []
            assert [message.payload for message in other.inspect.peek("acme")] == [b"one"]


def test_the_statements_of_the_documentation_run(connection: psycopg.Connection[Any]) -> None:
    (statements,) = re.findall(r"```sql\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    counts = [connection.execute(text.encode()).fetchall() for text in statements.split(";\n") if text.strip()]
    assert counts == [[(1,)], [(1,)], [(2,)]]


def test_settings_of_a_client_change_nothing(connection: psycopg.Connection[Any], pg_uri: str) -> None:
    for name, value in (
        ("standard_conforming_strings", "off"),
        ("TimeZone", "Asia/Kolkata"),
        ("DateStyle", "SQL, DMY"),
        ("search_path", "nowhere"),
        ("bytea_output", "escape"),
    ):
        connection.execute("SELECT pg_catalog.set_config(%s, %s, false)", (name, value))
    for text in ("one", "two"):
        send = "SELECT airflow_mq.send('default', 'acme', %s, key => %s, headers => '{\"day\": \"1\"}')"
        assert connection.execute(send, (text.encode(), text)).fetchone() == (1,)
    with pytest.raises(psycopg.Error, match="origin") as refused:
        connection.execute("SELECT airflow_mq.send('default', E'a\u200b', 'x'::bytea)")
    assert refused.value.sqlstate == "MQ100"
    with MessageQueue(pg_uri) as queue:
        assert [peeked.payload for peeked in queue.inspect.peek("acme")] == [b"one", b"two"]


def test_a_replica_that_cannot_send_gets_an_error(connection: psycopg.Connection[Any]) -> None:
    """PostgreSQL runs no trigger of a view in sessions that apply changes of a publication."""
    send = "SELECT airflow_mq.send('default', 'acme', 'x'::bytea)"
    connection.execute("SET session_replication_role = replica")
    with pytest.raises(psycopg.Error, match="nothing was stored: session_replication_role is not origin"):
        connection.execute(send)
    connection.execute("SET session_replication_role = origin")
    assert connection.execute(send).fetchone() == (1,)


def test_the_documentation_lists_every_error() -> None:
    listed = re.findall(r"^\| `(MQ\d+)` \| `(\w+)`", PAGE.read_text("utf-8"), re.MULTILINE)
    assert dict(listed) == {state: error.__name__ for state, error in STATES.items()}


def test_a_key_of_one_client_is_a_key_of_the_other(connection: psycopg.Connection[Any], pg_uri: str) -> None:
    with MessageQueue(pg_uri) as queue:
        assert queue.enqueue_message("acme", b"one", key="python").count == 1
        assert send(connection, "default", "acme", b"one", key="python") == 0
        assert send(connection, "default", "acme", b"two", key="sql") == 1
        assert queue.enqueue_message("acme", b"two", key="sql").repeated == 1
        with pytest.raises(KeyConflict):
            queue.enqueue_message("acme", b"three", key="sql")
        with pytest.raises(psycopg.Error, match="idempotency key 'python' of origin 'acme'") as error:
            send(connection, "default", "acme", b"three", key="python")
        assert error.value.sqlstate == "MQ105"
        assert send(connection, "default", "other", b"three", key="python") == 1


def test_a_message_that_is_due_later_waits(connection: psycopg.Connection[Any], pg_uri: str) -> None:
    with MessageQueue(pg_uri) as queue:
        later = datetime.now(timezone.utc) + timedelta(hours=1)
        send(connection, "default", "acme", b"later", not_before=later)
        send(connection, "default", "acme", b"now", not_before=datetime.now(timezone.utc) - timedelta(hours=1))
        assert [payload for batch in queue.blocks.plan().batches() for payload in batch.payloads] == [b"now"]


def test_times_that_no_message_could_meet(connection: psycopg.Connection[Any], pg_uri: str) -> None:
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    later = datetime.now(timezone.utc) + timedelta(days=2)
    with MessageQueue(pg_uri) as queue:
        for expires in (later, later - timedelta(days=1)):
            times = {"not_before": later, "expires": expires}
            with pytest.raises(InvalidInput):
                queue.enqueue_message("a", b"x", **times)  # type: ignore[arg-type]
            with pytest.raises(psycopg.Error, match="invalid expires: expected a time after not_before") as error:
                send(connection, "default", "a", b"x", **times)
            assert error.value.sqlstate == "MQ103"
        assert send(connection, "default", "a", b"x", expires=epoch) == 1
        assert queue.service_queues(lambda delivery: None).processed == 0


def test_many_messages_keep_their_order_and_share_rows(connection: psycopg.Connection[Any], pg_uri: str) -> None:
    with MessageQueue(pg_uri) as queue:
        queue.admin.change_ring(heap_size=70_000)
        origins = [f"origin-{number % 7}" for number in range(3_000)]
        payloads = [b"%04d" % number + b"x" * (number % 300) for number in range(3_000)]
        connection.execute("SELECT airflow_mq.send_many('default', %s, %b)", (origins, payloads))
        rows = connection.execute(
            "SELECT count(*), bool_and(size + 5 * items <= 70000) FROM airflow_mq.inbox"
        ).fetchone()
        assert rows is not None and rows[0] < 30 and rows[1]
        for origin in sorted(set(origins)):
            wanted = [payload for name, payload in zip(origins, payloads) if name == origin]
            assert [message.payload for message in queue.inspect.peek(origin, limit=1_000)] == wanted
        assert queue.check() == []


def test_a_message_without_a_key_does_not_overtake_one_with_a_key(
    connection: psycopg.Connection[Any], pg_uri: str
) -> None:
    keys, payloads = [None, "k", None, None, "l", None], [b"1", b"2", b"3", b"4", b"5", b"6"]
    text = "SELECT airflow_mq.send_many('default', %s, %s, keys => %s::text[])"
    connection.execute(text.encode(), (["a"] * 6, payloads, keys))
    with MessageQueue(pg_uri) as queue:
        assert [message[1] for message in stored(queue)] == payloads
        queue.enqueue_messages(
            "b", [Message(payload, key=key and f"own {key}") for payload, key in zip(payloads, keys)]
        )
        seen: dict[str, list[bytes]] = {"a": [], "b": []}
        queue.service_queues(lambda delivery: seen[delivery.origin].append(delivery.payload), Weight(1 << 30, 1 << 30))
    assert seen == {"a": payloads, "b": payloads}


def test_the_senders_transaction_decides(connection: psycopg.Connection[Any], pg_uri: str) -> None:
    with MessageQueue(pg_uri) as queue:
        with connection.transaction(force_rollback=True):
            send(connection, "default", "acme", b"never")
        with connection.transaction():
            send(connection, "default", "acme", b"one")
            assert queue.footprint("acme").count == 0
        assert queue.footprint("acme").count == 1


def test_limits_of_origins_hold_for_both_clients(connection: psycopg.Connection[Any], pg_uri: str) -> None:
    with MessageQueue(pg_uri) as queue:
        queue.admin.change_ring(max_origins=3, max_origins_per_group=2)
        calls = ["a/1", "a", "a/2", "b/1", "b/1", "c", "a/1"]
        expected: list[Any] = [1, 1, TooManyOrigins, 1, 1, TooManyOrigins, 1]
        assert [outcome(lambda origin=name: send(connection, "default", origin, b"x")) for name in calls] == expected
        assert [outcome(lambda origin=name: queue.enqueue_message(origin, b"x")) for name in ("c", "a/1")] == [
            TooManyOrigins, 1,
        ]  # fmt: skip
        queue.admin.change_ring(max_origins=None, max_origins_per_group=1)
        assert outcome(lambda: send(connection, "default", "b", b"x", priority="high")) is TooManyOrigins
        assert outcome(lambda: send(connection, "default", "c/1", b"x", priority="high")) == 1
        assert outcome(lambda: send(connection, "default", "c/2", b"x")) is TooManyOrigins


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_limit_of_origins_holds_at_every_isolation_level(pg_uri: str, level: str) -> None:
    """An old snapshot has no origins that others added after it."""
    with MessageQueue(pg_uri) as queue, ExitStack() as stack:
        queue.admin.change_ring(max_origins=2)
        queue.enqueue_message("a", b"x")
        opened = [stack.enter_context(closing(psycopg.connect(**parse(pg_uri).conninfo()))) for _ in range(4)]
        for connection in opened:
            connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
            connection.execute("SELECT FROM airflow_mq.ring")
        for number, connection in enumerate(opened):
            with pytest.raises(
                (InvalidInput, psycopg.Error), match="(?i)invalid isolation level .*: expected read committed"
            ):
                if number % 2:
                    queue.commands(connection).push(f"b{number}", b"x").execute()
                else:
                    send(connection, "default", f"b{number}", b"x")
            connection.rollback()
        connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
        assert (
            send(connection, "default", "a", b"x") == 1
            and queue.commands(connection).push("a", b"x").execute() is not None
        )
        connection.commit()
        assert [(origin, footprint.count) for origin, footprint in queue.footprints()] == [("a", 3)]


def test_the_largest_limits_of_origins_are_usable(connection: psycopg.Connection[Any], pg_uri: str) -> None:
    with MessageQueue(pg_uri) as queue:
        queue.admin.change_ring(max_origins=(1 << 31) - 1, max_origins_per_group=(1 << 31) - 1)
        assert send(connection, "default", "a", b"x") == 1
        assert queue.enqueue_message("b", b"x").count == 1


def test_arrays_must_have_one_length(connection: psycopg.Connection[Any], pg_uri: str) -> None:
    for arguments in (
        "'{a,b}', ARRAY['x']::bytea[]",
        "'{a}', ARRAY['x']::bytea[], keys => '{k,l}'",
        "'{a}', ARRAY['x']::bytea[], headers => '{}'",
        "'{{a,b},{c,d}}', ARRAY['x','x','x','x']::bytea[]",
        "NULL, ARRAY['x']::bytea[]",
    ):
        with pytest.raises(psycopg.Error) as error:
            connection.execute(f"SELECT airflow_mq.send_many('default', {arguments})".encode())
        assert error.value.sqlstate == "MQ103", error.value
    with MessageQueue(pg_uri) as queue:
        assert stored(queue) == []


def test_invisible_characters_are_refused_by_both(connection: psycopg.Connection[Any], pg_uri: str) -> None:
    codes = [code for code in range(0xA1, 0x110000) if not 0xD800 <= code < 0xE000]
    invisible = {code for code in codes if INVISIBLE.match(chr(code))}
    borders = {other for code in codes for other in (code, code + 1) if (code in invisible) != (code + 1 in invisible)}
    for code in sorted(borders):
        expected = InvalidOrigin if code in invisible or code in (0x2028, 0x2029) else 1
        origin = f"a{chr(code)}"
        assert outcome(partial(send, connection, "default", origin, b"x")) == expected, hex(code)
    with MessageQueue(pg_uri) as queue:
        queue.admin.change_ring(invisible_origins=True)
    assert outcome(lambda: send(connection, "default", "a\u200b", b"x")) == 1


TEXTS = st.text(max_size=12) | st.sampled_from(
    ["", "a", "acme/orders", "a\n", "a\u200b", "x" * 255, "x" * 256, "é" * 128]
)
HEADERS = st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=40), max_size=3)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    origins=st.lists(TEXTS, min_size=1, max_size=4),
    payloads=st.lists(st.binary(max_size=50), min_size=4, max_size=4),
    keys=st.lists(st.none() | st.sampled_from(["k", "l", "", "x" * 1_000, "x" * 1_001]), min_size=4, max_size=4),
    headers=st.lists(HEADERS, min_size=4, max_size=4),
    weight=st.none() | st.tuples(st.integers(-1, 2**64), st.integers(0, 2**64)),
    priority=st.sampled_from(["regular", "high", "urgent"]),
)
def test_any_call_has_one_result_by_both_clients(
    connection: psycopg.Connection[Any], pg_uri: str, origins: list[str], payloads: list[bytes],
    keys: list[str | None], headers: list[dict[str, str] | None], weight: tuple[int, int] | None, priority: str,
) -> None:  # fmt: skip
    count = len(origins)
    with MessageQueue(pg_uri) as queue:
        names = ["by-sql", "by-python"]
        config = RingConfig(heap_size=45, max_headers=50)
        for name in names:
            queue.admin.create_ring(name, config)
        try:
            if any("\0" in text for text in (*origins, *(key or "" for key in keys))) or any(
                "\0" in text for said in headers if said for pair in said.items() for text in pair
            ):
                return  # PostgreSQL's text has no NUL, so SQL cannot express the call.
            values = {
                "origins": origins, "payloads": payloads[:count], "keys": keys[:count], "weight": weight and list(weight),
                "headers": [None if said is None else json.dumps(said) for said in headers[:count]],
                "priority": priority, "ring": names[0],
            }  # fmt: skip
            text = (
                "SELECT airflow_mq.send_many(%(ring)s, %(origins)s, %(payloads)b, %(keys)s::text[], "
                "%(headers)s::jsonb[], %(weight)s::numeric[], priority => %(priority)s)"
            )
            by_sql = outcome(lambda: (connection.execute(text.encode(), values).fetchone() or (0,))[0])
            with MessageQueue(pg_uri, names[1]) as other, MessageQueue(pg_uri, names[0]) as ours:
                messages = [
                    (origin, Message(payload, key, None, said or None))
                    for origin, payload, key, said in zip(origins, payloads, keys, headers)
                ]
                by_python = outcome(lambda: other.enqueue_messages(messages, weight=weight, priority=priority))  # type: ignore[arg-type]
                if isinstance(by_sql, int) or isinstance(by_python, int):
                    assert by_sql == by_python
                    assert stored(ours) == stored(other)
                    assert ours.check() == []
        finally:
            connection.execute("DELETE FROM airflow_mq.inbox; DELETE FROM airflow_mq.sent_key")
            connection.execute(
                "DELETE FROM airflow_mq.ring_state WHERE ring > 1; DELETE FROM airflow_mq.ring WHERE id > 1"
            )


def test_delayed_messages_with_equal_headers_count_each(connection: psycopg.Connection[Any], pg_uri: str) -> None:
    """Each has its own row with its headers; messages that are due at once share those of one row."""
    text = (
        "SELECT airflow_mq.send_many('default', array_fill('acme'::text, ARRAY[100]), array_fill('x'::bytea, "
        "ARRAY[100]), headers => array_fill(jsonb_build_object('h', repeat('y', 16000)), ARRAY[100]), not_before => %s)"
    )
    with MessageQueue(pg_uri) as queue:
        queue.admin.set_origin("acme", quota="1MiB")
    with pytest.raises(psycopg.Error, match="too large for the quota of 'acme'") as refused:
        connection.execute(text.encode(), ("2100-01-01",))
    assert refused.value.sqlstate == "MQ107"
    assert connection.execute(text.encode(), (None,)).fetchone() == (100,)


def test_rows_larger_than_a_page_use_up_the_room_of_other_senders(
    connection: psycopg.Connection[Any], pg_uri: str
) -> None:
    with MessageQueue(pg_uri) as queue:
        queue.admin.create_ring("small", RingConfig(heap_size=100))
    with MessageQueue(pg_uri, "small") as queue:
        queue.admin.set_origin("a", quota=60_000)
        queue.session.reread_config()
        queue.enqueue_message("a", b"x" * 90)
        for _ in range(28):
            send(connection, "small", "a", b"x", headers=json.dumps({"h": "y" * 2_000}))
        with pytest.raises(QueueFull):
            for _ in range(560):
                queue.enqueue_message("a", b"x" * 90)
