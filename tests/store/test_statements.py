"""Every SQL statement: used, described, for both databases, and planned without a scan of a growing table."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

import airflow_mq
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.engine.store.postgres import UNUSED_PLANS
from airflow_mq.engine.store.statements import statement
from tests.postgres_server import Server, Servers
from tests.statement_names import SQL, names

PACKAGE = Path(airflow_mq.__file__).parent
NAMES = {dialect: names(dialect) for dialect in ("sqlite", "postgres")}
#: Statements that one database needs: the other has no snapshots, no arrays, or no INSERT from DELETE …
#: RETURNING.
ONLY_POSTGRES = {
    "insert_inbox_rows",
    "fullness",
    "database",
    "dead_rows",
    "insert_round",
    "leased_ring",
    "may_read",
    "open_transactions",
    "replication_slots",
    "rights",
    "sender_roles",
    "server_settings",
    "snapshot",
    "table_locks",
    "try_lock_ring",
}
ONLY_SQLITE = {"delete_due", "file", "forget_sums", "held"}
#: Tables that grow with the backlog or with history.
GROWING = {
    "inbox", "page", "book", "event", "charge", "usage_day", "bill_day", "bill_leaf", "claim", "outcome", "sent_key", "block", "ledger", "delayed", "set_aside",
    "blob", "blob_use", "chunk", "upload",
}  # fmt: skip
#: Statements that may read all rows of a growing table, with the reason.
MAY_SCAN = {
    "all_claims": "the check and the fairness report read everything in flight",
    "all_uses": "the check reads every use of an external payload",
    "blob_rows": "the check reads all inbox rows",
    "delayed_of": "metrics count all delayed messages",
    "second_rows": "the check reads all books",
    "line": "a ring with paths divides weight among all ready queues",
    "halted": "a plan reads all groups of a ring with paths, and the fairness report all exhausted buckets",
    "forget_deficits": "switching paths resets every deficit",
    "known_origins": "an origin limit asks whether an origin has delayed messages",
    "count_set_aside": "the page counts set-aside messages of a bounded number of pages",
    "first_pages": "the fairness report reads every ready queue",
    "first_inbox_rows": "the fairness report reads every queue with inbox rows",
}
#: A statement that databases cannot plan.
NOT_PLANNED = {
    "insert_inbox_row": "writes values, and reads no table",
    "insert_inbox_rows": "writes values, and reads no table",
}

ORIGINS = [f"o{number:05}" for number in range(1, 2000, 100)]
PAGES = list(range(len(ORIGINS)))
IDS = list(range(1, 200_000, 10_000))
RANGE = {"first": IDS, "last": [first + 1_000 for first in IDS], "rows": [1] * len(IDS)}
NOW, LATE = 1_000_000, 1 << 62
SMALL = {"ring": 1, "limit": 128, "now": NOW}
ONES = [1] * len(ORIGINS)
BYTES = [b"x"] * len(ORIGINS)
BOOK = {name: ONES for name in ("begin_page", "end_page", "pages", "messages", "size", "ticket", "deficit", "floor",
                                "wake_at")}  # fmt: skip
PAGE = {name: ONES for name in ("items", "used", "first_index", "remaining", "remaining_size", "set_aside", "first_row",
                                "last_row")}  # fmt: skip
ASIDES = {
    "origin": "o00100",
    "page": 0,
    "item": -1,
    "last": "\U0010ffff",
    "reason": None,
    "before": LATE,
    "arrived": None,
}
TOKEN = b"\x00" * 16
HASHES = [f"{number:064}" for number in range(1, 2000, 100)]
#: Parameters of a busy ring: some origins at once, a narrow range of ids, a single block.
VALUES: dict[str, dict[str, Any]] = {
    "news_by_origin": {"after": ["", *ORIGINS], "below": [*ORIGINS, "\U0010ffff"]},
    "news_by_id": {"start": 199_900, "below": LATE},
    "ready_books": {"high": False, "after": 100, "below": LATE},
    "woken_books": {"high": False, "mark": "", "asleep": 1_000, "until": 2_000, "limit": 64},
    "halted": {"origins": False},
    "line": {"below": LATE, "without": "[]"},
    "first_pages": {"below": LATE},
    "serviceable_books": {"after": 100, "below": LATE, "limit": 1_024, "most": 128, "ordered": True, "any_order": False},
    "turns_before": {"high": False, "before": 1_000, "limit": 64},
    "pages": {"first": [0] * len(ORIGINS), "last": [1] * len(ORIGINS), "limit": 2},
    "inbox_rows": {**RANGE, "inline": 2000},
    "insert_round": {"at": NOW, "data": b"x"},
    "inbox_heads": {**RANGE, "with_times": True},
    "first_blocks": {"id": IDS},
    "delete_range": RANGE,
    "inbox_between": {"first": IDS, "below": [first + 1_000 for first in IDS]},
    "uncut": {"after": 199_000, "limit": 1024},
    "first_event": {"since": 19_900},
    "fullness": {"names": ["o00020"], "sizes": [1]},
    "add_up": {"names": ["o00020"], "step": 256},
    "names": {"after": "o00100", "first": "", "below": "\U0010ffff", "limit": 100, "all": False, "delayed": True},
    "promote_due": {"most": 128, "most_size": LATE},
    "delayed": {"due": NOW, "after": 100, "until": LATE, "limit": 256},
    "pages_with_set_aside": {"origin": "o00100", "page": 0, "last": "\U0010ffff", "swept": True, "limit": 64},
    "counts": {"after": "o00100", "end": "\U0010ffff", "books": 100, "rows": 1_000},
    "delayed_of": {"first": "o00100", "last": "o00100"},
    "events": {"after": 19_000, "origin": None, "high": None, "block": None, "limit": 256},
    "recent_events": {"before": LATE, "limit": 256},
    "recent_events_of": {"before": LATE, "limit": 256},
    "depths": {"floor": IDS, "begin": [0] * len(ORIGINS), "most": 1_000, "latest": 1_000, "since": 0},
    "count_set_aside": {"limit": 10_000},
    "table_locks": {"schema": "airflow_mq"},
    "server_settings": {"names": ["fsync"]},
    "dead_rows": {"schema": "airflow_mq"},
    "rights": {"schema": "airflow_mq"},
    "sender_roles": {"schema": "airflow_mq"},
    "claim_key": {"key": "k77", "origin": "o00077", "digest": b"x", "window": 10},
    "used_keys": {"first": "k77", "last": "k78", "origin": "o00077", "since": 1},
    "block_by_key": {"key": "k9990"},
    "blocks": {"state": -1, "before": LATE, "limit": 100},
    "ledger": {"before": LATE, "first": 0, "limit": 100, "bytes": 16_384},
    "block_servers": {"before": LATE, "limit": 100},
    "lock_block": {"token": TOKEN},
    "block_by_token": {"token": TOKEN},
    "renew_block": {"token": TOKEN, "seconds": 9.0},
    "close_block": {"token": TOKEN},
    "insert_copy": {
        "id": LATE, "size": 1, "origin": "a", "attributes": b"x", "from_ring": 1, "from_origin": "o00100", "from_id": 77,
        "start": 0,
    },
    "report": {"token": TOKEN, "data": b"x", "attributes": b""},
    "end_block": {"block": 77, "state": 1, "details": "{}"},
    "record_end": {"block": 77, "number": LATE, "at": 1, "terms": "{}"},
    "ends": {"all": True},
    "save_end": {"block": 77, "terms": "{}", "error": "x"},
    "replace_claim": {"block": 77, "seq": 3, "data": b"x"},
    "delete_end": {"block": 77},
    "count_ends": {"more": 1},
    "claims": {"block": 77},
    "outcomes": {"block": [9_077]},
    "delete_claims": {"block": 77, "seq": 3},
    "delete_outcomes": {"block": 77},
    "expire_event": {"after": 0, "before": 5, "limit": 1_000},
    "expire_ledger": {"after": 0, "before": 5, "limit": 1_000},
    "expire_block": {"after": 0, "before": 5, "limit": 1_000},
    "expire_key": {"after": 0, "before": 5, "limit": 1_000},
    "sweep_pages": {"origin": "o00100", "first": 0},
    "save_book": {**BOOK, "end_page": [2] * len(ORIGINS), "ahead": BYTES},
    "save_page": {**PAGE, "page": PAGES, "slices": BYTES, "lengths": BYTES, "marks": BYTES, "notes": BYTES},
    "save_set_aside": {
        "block": ONES, "at": ONES, "page": PAGES, "item": ONES, "id": BYTES, "size": ONES, "weight": BYTES,
        "weight_limit": BYTES, "reason": ["overweight"] * len(ORIGINS), "arrived_at": ONES, "arrived_block": ONES,
    },
    "delete_aside": {"page": PAGES, "item": ONES},
    "asides_from": ASIDES,
    "asides_of_block": {**ASIDES, "block": 77},
    "asides_since_block": {**ASIDES, "arrived": 77},
    "delete_page": {"page": PAGES},
    "delete_inbox_rows": {"id": IDS, "page": PAGES},
    "asides": {"page": PAGES},
    "insert_block": {
        "number": LATE, "id": LATE, "key": "new", "token": b"new", "by_hand": False, "seconds": 1.0, "deadline": 1, "planned_at": 1,
        "details": "{}",
    },
    "insert_claim": {"block": LATE, "by_hand": [False] * len(ORIGINS), "seq": PAGES, "data": BYTES},
    "insert_delayed": {
        "id": [LATE + number for number in PAGES], "due": ONES, "size": ONES, "items": ONES, "more": [False] * len(PAGES),
        "lengths": BYTES, "attributes": BYTES, "heap": BYTES, "sent_at": ONES,
    },
    "put_off_from": {"origin": "o00100", "mark": b"x"},
    "insert_charge": {"id": LATE, "block": None, "server": "", "at": 1, "data": b"x"},
    "charges": {"after": 77, "limit": 100},
    "expire_charge": {"after": 0, "before": 5, "limit": 1_000},
    "usage_days": {"first": 5, "stop": 10},
    "save_usage": {"day": 77, "last": 1, "data": b"x"},
    "close_bill_day": {"day": 7_777, "last": 1, "before": b"x", "root": b"x", "leaves": 1},
    "insert_bill_leaves": {
        "day": 7_777, "tenant": ["a"], "place": [0], "salt": [b"x"], "path": [b"x"], "data": [b"x"],
    },
    "bill_days": {"first": 5, "stop": 10, "limit": 1_000},
    "bill_leaves": {"tenant": "t5", "first": 5, "stop": 10},
    "bill_leaves_of": {"day": 5, "tenant": "t5", "limit": 16},
    "insert_event": {"block": None, "at": 1, "events": ONES, "data": BYTES},
    "insert_ledger": {"at": 1, "block": [LATE], "id": [LATE], "data": [b"x"]},
    "insert_inbox_row": {
        "size": 1, "items": 1, "more": False, "refers": False, "origin": "a", "lengths": b"", "attributes": b"",
        "heap": b"x",
    },
    "insert_upload": {"id": LATE, "until": 5, "path": ""},
    "set_upload": {"id": 77, "until": 5, "since": 0, "last": LATE},
    "delete_upload": {"id": 20_077},
    "past_uploads": {"since": 0, "limit": 100},
    "insert_chunk": {"upload": 50_000, "seq": PAGES, "data": BYTES},
    "delete_chunks": {"upload": 20_077, "limit": 64},
    "chunk": {"upload": 77, "seq": 0},
    "insert_blob": {"hash": "new", "size": 5, "upload": 20_077, "lost": 5},
    "hold_blob": {"id": LATE, "hash": HASHES[0], "until": LATE},
    "release_blobs": {"inbox_row": IDS, "place": [0] * len(IDS)},
    "lock_blobs": {"limit": 100},
    "blob": {"hash": HASHES[0]},
    "blobs": {"after": HASHES[0], "limit": 100, "counted": True},
    "insert_posted": {
        "id": [LATE + 100 + number for number in PAGES], "size": ONES, "attributes": BYTES, "heap": BYTES, "sent_at": ONES,
    },
    "save_group": {"path": ORIGINS, "deficit": ONES, "delta": ONES, "level": ONES, "owed": [""] * len(ORIGINS)},
    "save_bucket": {"path": ORIGINS, "balance": [""] * len(ORIGINS), "wake_at": ONES, "terms": ONES},
    "buckets": {"path": ORIGINS},
    "renew_bucket": {"path": "a", "kept": True},
    "save_state": {"ticket_floor": 0, "look_floor": 0, "look_place": 0, "high_place": 0, "debt": 0, "marks": "[]"},
    "next_block": {"id": LATE},
    "take_lease": {"token": TOKEN, "until": 1, "holder": ""},
    "change_lease": {"token": TOKEN, "next": TOKEN, "until": 1, "holder": None},
    "fresh_ids": {"count": 5},
    "rings": {"name": "default"},
    "insert_ring": {"name": "new", "config": "{}"},
    "insert_state": {"ring": 99},
    "change_ring": {"config": "{}"},
    "pause": {"origin": "a", "reason": "", "who": "", "until": None, "below": False},
    "resume": {"origin": "a"},
    "end_waits": {"origin": "a"},
    "set_setting": {"origin": "a", "settings": "{}", "guaranteed": False, "quota": None},
    "measure": {"processor": None, "origin": None},
    "may_read": {"table": "outcome"},
    "save_measure": {"processor": "", "origin": "a", "data": "{}"},
}  # fmt: skip


def values_of(name: str) -> dict[str, Any]:
    return {**SMALL, "origin": ORIGINS, "id": IDS, "hash": HASHES, **VALUES.get(name, {})}


def test_every_statement_is_there_for_both() -> None:
    assert NAMES["postgres"] - NAMES["sqlite"] == ONLY_POSTGRES
    assert NAMES["sqlite"] - NAMES["postgres"] == ONLY_SQLITE


def test_every_statement_is_used() -> None:
    code = "\n".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
    unused = [name for name in sorted(NAMES["sqlite"] | NAMES["postgres"]) if f'"{name}"' not in code]
    assert unused == []


def test_every_statement_that_is_named_exists() -> None:
    calls = r'\b(?:rows|run|put|soon|_read|_soon|_write|_put|block|text|_send|point|only)\(\s*"([a-z_]+)"'
    named = {
        name
        for part in ("engine", "cli")
        for path in (PACKAGE / part).rglob("*.py")
        for name in re.findall(calls, path.read_text("utf-8"))
    } - {"begin", "commit", "committed", "release", "savepoint"}  # fmt: skip
    assert len(named) > 60
    assert named <= NAMES["sqlite"] | NAMES["postgres"]


#: The heading of a statement or a part, and the line below it.
HEADING = re.compile(r"^-- (name|part): (\w+)(?: \((sqlite|postgres)\))?\n(.*)$", re.MULTILINE)
HEADINGS = [match for path in SQL for match in HEADING.findall(path.read_text("utf-8"))]


def test_every_heading_is_read() -> None:
    assert len(HEADINGS) == sum(len(re.findall("^-- (?:name|part)", path.read_text(), re.MULTILINE)) for path in SQL)
    assert len(HEADINGS) == len({heading[:3] for heading in HEADINGS})


def test_every_statement_has_a_description() -> None:
    shared = {(kind, name) for kind, name, variant, _ in HEADINGS if not variant}
    for kind, name, variant, line in HEADINGS:
        assert line.startswith("-- ") or (variant and (kind, name) in shared), name


def test_every_variant_is_below_its_sibling() -> None:
    shared = {(kind, name) for kind, name, variant, _ in HEADINGS if not variant}
    for before, (kind, name, variant, _) in pairwise(HEADINGS):
        assert not variant or (kind, name) not in shared or before[:3] == (kind, name, "")


def test_texts_that_both_databases_could_share_are_not_variants() -> None:
    variants = {name for kind, name, variant, _ in HEADINGS if kind == "name" and variant == "postgres"}
    assert len(variants) > 40
    for name in variants & NAMES["sqlite"]:
        theirs = statement("postgres", name, "mq_")
        assert re.sub(r":(\w+)", r"%(\1)s", statement("sqlite", name, "mq_")) != theirs, f"{name} can be shared"


def test_every_exception_is_a_statement() -> None:
    assert MAY_SCAN.keys() | NOT_PLANNED.keys() <= NAMES["sqlite"] | NAMES["postgres"]
    assert all(MAY_SCAN.values())


# On PostgreSQL, at depth.

FILL = """
INSERT INTO {s}inbox (id, size, ring, origin, heap)
    SELECT n, 100, 1, 'o' || lpad((n % 2000)::text, 5, '0'), convert_to(repeat('x', 100), 'UTF8')
    FROM generate_series(1, 200000) n;
INSERT INTO {s}book (ring, origin, begin_page, end_page, pages, ticket)
    SELECT 1, 'o' || lpad(n::text, 5, '0'), 0, n % 2, 1, CASE WHEN n % 2 = 1 THEN n END
    FROM generate_series(0, 19999) n;
INSERT INTO {s}page (ring, origin, page, items, used, first_index, remaining, remaining_size, set_aside, first_row,
                     last_row, slices, lengths)
    SELECT 1, 'o' || lpad((n % 20000)::text, 5, '0'), n / 20000, 10, 1000, 0, 10, 1000, (n % 50 = 0)::int, n, n,
           convert_to(repeat('s', 200), 'UTF8'), ''
    FROM generate_series(0, 39999) n;
INSERT INTO {s}event (id, ring, origin, at, events, data)
    SELECT n, 1, 'o' || lpad((n % 2000)::text, 5, '0'), n, 1, convert_to(repeat('e', 100), 'UTF8')
    FROM generate_series(1, 20000) n;
INSERT INTO {s}charge (id, ring, at, data)
    SELECT n, 1, n, convert_to(repeat('c', 100), 'UTF8') FROM generate_series(1, 20000) n;
INSERT INTO {s}usage_day (ring, day, last, data)
    SELECT 1 + n % 50, n / 50, n, convert_to(repeat('u', 100), 'UTF8') FROM generate_series(1, 20000) n;
INSERT INTO {s}bill_day (ring, day, last, before, root, leaves)
    SELECT 1 + n % 50, n / 50, n, convert_to('b', 'UTF8'), convert_to('r', 'UTF8'), 50 FROM generate_series(1, 20000) n;
INSERT INTO {s}bill_leaf (ring, day, tenant, place, salt, path, data)
    SELECT 1, n / 50, 't' || n % 50, n % 50, convert_to('s', 'UTF8'), convert_to('p', 'UTF8'),
           convert_to(repeat('u', 100), 'UTF8')
    FROM generate_series(1, 20000) n;
INSERT INTO {s}block (id, ring, number, key, token, state, seconds, deadline, planned_at, ended_at, details)
    SELECT n, 1, n, 'k' || n, decode(md5(n::text), 'hex'), CASE WHEN n > 9000 THEN 0 ELSE 1 END, 1, n, n,
           CASE WHEN n > 9000 THEN NULL ELSE n END, '{{}}'
    FROM generate_series(1, 10000) n;
INSERT INTO {s}claim (block, seq, ring, origin, data)
    SELECT 9001 + n / 10, n, 1, 'o' || lpad(n::text, 5, '0'), convert_to(repeat('c', 200), 'UTF8')
    FROM generate_series(0, 9999) n;
INSERT INTO {s}outcome (id, block, data)
    SELECT n, 9001 + n / 20, convert_to(repeat('r', 200), 'UTF8') FROM generate_series(1, 20000) n;
INSERT INTO {s}ledger (block, id, ring, at, data)
    SELECT n, n, 1, n, convert_to(repeat('l', 200), 'UTF8') FROM generate_series(1, 10000) n;
INSERT INTO {s}sent_key (ring, key, origin, digest, at)
    SELECT 1, 'k' || n, 'o' || lpad(n::text, 5, '0'), decode(md5(n::text), 'hex'), n FROM generate_series(1, 20000) n;
INSERT INTO {s}delayed (id, due, size, items, ring, origin, heap)
    SELECT n, 999900 + n, 100, 1, 1, 'o' || lpad((n % 2000)::text, 5, '0'), convert_to(repeat('x', 100), 'UTF8')
    FROM generate_series(1, 20000) n;
INSERT INTO {s}set_aside (ring, origin, page, item, id, size, reason, at)
    SELECT 1, 'o' || lpad((n % 20000)::text, 5, '0'), n / 20000, 1, decode(md5(n::text), 'hex'), 1, 'overweight', n
    FROM generate_series(0, 39999) n;
INSERT INTO {s}upload (id, until) SELECT n, CASE WHEN n > 20000 THEN n END FROM generate_series(1, 40000) n;
INSERT INTO {s}chunk (upload, seq, data)
    SELECT n, 0, convert_to(repeat('d', 100), 'UTF8') FROM generate_series(1, 40000) n;
INSERT INTO {s}blob (hash, size, upload, at) SELECT lpad(n::text, 64, '0'), 100, n, n FROM generate_series(1, 20000) n;
INSERT INTO {s}blob_use (inbox_row, place, hash, until)
    SELECT n, 0, lpad((1 + n % 20000)::text, 64, '0'), CASE WHEN n % 100 = 0 THEN n END
    FROM generate_series(1, 40000) n;
INSERT INTO {s}pause (ring, origin, at) SELECT 1, 'o' || lpad((n * 20)::text, 5, '0'), 1 FROM generate_series(0, 99) n;
INSERT INTO {s}setting (ring, origin, settings, guaranteed, quota)
    SELECT 1, 'o' || lpad((n * 20)::text, 5, '0'), '{{}}', n < 5, CASE WHEN n < 5 THEN 1 END FROM generate_series(0, 99) n;
INSERT INTO {s}ring (id, name, config) OVERRIDING SYSTEM VALUE VALUES (99, 'other', '{{}}');
SELECT setval('{s}id_seq', 200001);
"""


#: Queues with rows, every second with a book.
FILL_MANY = b"""
INSERT INTO airflow_mq.ring (name, config) VALUES ('a', '{}');
INSERT INTO airflow_mq.inbox (size, ring, origin, heap) SELECT 1, 1, 'o' || n % 2000, 'x' FROM generate_series(1, 4000) n;
INSERT INTO airflow_mq.book (ring, origin) SELECT 1, 'o' || n FROM generate_series(0, 1999, 2) n;
ANALYZE
"""


@pytest.fixture(scope="module", params=["embedded", "system"], ids="postgres-{}".format)
def deep_store(request: pytest.FixtureRequest, postgres_servers: Servers) -> Iterator[psycopg.Connection[Any]]:
    """Return a connection to a store with a deep backlog and a long history."""
    if request.param not in postgres_servers:
        pytest.skip("there is no other PostgreSQL on this machine")
    server: Server = postgres_servers[request.param]
    with server.database() as uri:
        address = parse(uri)
        upgrade(address)
        with psycopg.connect(uri, autocommit=True) as connection:
            connection.execute(FILL.format(s=f'"{address.schema}".').encode())
            connection.execute(b"VACUUM ANALYZE")
            yield connection


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize("name", sorted(NAMES["postgres"] - NOT_PLANNED.keys()))
def test_no_statement_scans_a_growing_postgres_table(deep_store: psycopg.Connection[Any], name: str) -> None:
    text, order = _numbered(statement("postgres", name, '"airflow_mq".'))
    values = [{**values_of(name), "1": 1, "2": 1, "3": "a", "4": b"x"}[parameter] for parameter in order]
    arguments = sql.SQL(", ").join(sql.Literal(value) for value in values).as_string(deep_store)
    call = f"EXECUTE asked({arguments})" if values else "EXECUTE asked"
    deep_store.execute(f"PREPARE asked AS {text}".encode())
    try:
        # The driver prepares frequent statements; from the sixth run on the server may use a generic plan.
        for time in range(1 if name in MAY_SCAN else 7):
            with deep_store.transaction(force_rollback=True):
                plan = deep_store.execute(f"EXPLAIN (FORMAT JSON) {call}".encode()).fetchone()
                assert plan is not None
                scans = list(_whole_reads(plan[0][0]["Plan"]))
                assert scans == [] or name in MAY_SCAN, f"run {time}: {json.dumps(plan[0], indent=1)}"
                deep_store.execute(call.encode())
    finally:
        deep_store.execute(b"DEALLOCATE asked")


@pytest.mark.postgres
@pytest.mark.parametrize("rows", [0, 500])
def test_a_range_of_a_queue_is_read_by_queue_where_hardly_any_rows_wait(postgres_servers: Servers, rows: int) -> None:
    """A session keeps such a plan while a backlog grows. Planned by ids, each look at a queue would read all queues."""
    with postgres_servers["embedded"].database() as uri:
        upgrade(parse(uri))
        with psycopg.connect(uri, autocommit=True) as connection:
            for setting in UNUSED_PLANS:
                connection.execute(f"SET {setting} = off".encode())
            connection.execute(b"INSERT INTO airflow_mq.ring (name, config) VALUES ('a', '{}')")
            connection.execute(
                b"INSERT INTO airflow_mq.inbox (size, ring, origin, heap) "
                b"SELECT 1, 1, 'a', 'x' FROM generate_series(1, %b)" % str(rows).encode()
            )
            connection.execute(b"ANALYZE airflow_mq.inbox")
            for name in ("inbox_rows", "inbox_heads", "inbox_between", "delete_range"):
                text, _ = _numbered(statement("postgres", name, "airflow_mq."))
                plan = str(connection.execute(f"EXPLAIN (GENERIC_PLAN) {text}".encode()).fetchall())
                assert "inbox_by_origin" in plan and "inbox_by_id" not in plan, plan


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("queues", "each", "limit"), [(4_000, 1, 5_000), (4_000, 1, 10), (400, 20, 500), (20, 2_000, 50)]
)
def test_first_rows_of_queues_are_read_in_few_steps(
    postgres_servers: Servers, queues: int, each: int, limit: int
) -> None:
    """A step for each queue takes 25 times as long as a row, but a deep queue must not be read whole."""
    with postgres_servers["embedded"].database() as uri:
        upgrade(parse(uri))
        with psycopg.connect(uri, autocommit=True) as connection:
            connection.execute(b"INSERT INTO airflow_mq.ring (name, config) VALUES ('a', '{}')")
            connection.execute(
                b"INSERT INTO airflow_mq.inbox (size, ring, origin, heap) "
                b"SELECT 1, 1, 'o' || n, 'x' FROM generate_series(1, %d) n, generate_series(1, %d)" % (queues, each)
            )
            connection.execute(b"VACUUM ANALYZE airflow_mq.inbox")
            text = statement("postgres", "first_inbox_rows", "airflow_mq.").encode()
            values = {"ring": 1, "limit": limit, "now": NOW}
            assert len(connection.execute(text, values).fetchall()) == min(queues, limit)
            plan = connection.execute(b"EXPLAIN (ANALYZE, FORMAT JSON) " + text, values).fetchone()
    assert plan is not None
    nodes = list(_nodes(plan[0][0]["Plan"]))
    (steps,) = (node["Actual Loops"] for node in nodes if node["Node Type"] == "WorkTable Scan")
    assert steps <= 5 + min(queues, limit) * min(each, 64) // 64, steps
    read = sum(node["Actual Rows"] * node["Actual Loops"] for node in nodes if node.get("Relation Name") == "inbox")
    assert read <= 5_000 + min(queues, limit) * (3 + 64), read


@pytest.mark.postgres
def test_a_count_of_many_queues_compares_none_with_all_others(postgres_servers: Servers) -> None:
    with postgres_servers["embedded"].database() as uri:
        upgrade(parse(uri))
        with psycopg.connect(uri, autocommit=True) as connection:
            for setting in UNUSED_PLANS:
                connection.execute(f"SET {setting} = off".encode())
            connection.execute(FILL_MANY)
            text = statement("postgres", "counts", "airflow_mq.").encode()
            values = {"ring": 1, "after": "", "end": "\U0010ffff", "books": 5_000, "rows": 5_000}
            assert len(connection.execute(text, values).fetchall()) == 2_000
            plan = connection.execute(b"EXPLAIN (ANALYZE, FORMAT JSON) " + text, values).fetchone()
    assert plan is not None
    in_vain = (node.get("Rows Removed by Join Filter", 0) * node["Actual Loops"] for node in _nodes(plan[0][0]["Plan"]))
    assert sum(in_vain) <= 2_000


#: Queues that store something, behind many delayed rows of one queue and many books that store nothing any more.
FILL_USED = """
INSERT INTO {s}ring (name, config) VALUES ('a', '{{}}');
WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 20000)
INSERT INTO {s}delayed (id, due, size, items, ring, origin, heap) SELECT n, 1, 1, 1, 1, 'd', {x} FROM n;
WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 20000)
INSERT INTO {s}book (ring, origin, begin_page, end_page, pages, ticket)
SELECT 1, 'o' || n, 0, 0, n = 20000, NULL FROM n WHERE n > {books};
"""
STORED = {"ring": 1, "after": "", "first": "", "below": "\U0010ffff", "limit": 100, "all": False, "delayed": True}


@pytest.mark.postgres
@pytest.mark.parametrize(
    "asked", ["names", "SELECT origin FROM airflow_mq.stored_origins(1::smallint, '', 'z', 100) origin"]
)
def test_names_of_few_queues_are_read_in_few_blocks(postgres_servers: Servers, asked: str) -> None:
    with postgres_servers["embedded"].database() as uri:
        upgrade(parse(uri))
        with psycopg.connect(uri, autocommit=True) as connection:
            connection.execute(b"ALTER TABLE airflow_mq.book DISABLE TRIGGER one_row")
            # An index of books that store something would hold all old versions of books, and plans would prefer it.
            text = FILL_USED.format(s="airflow_mq.", x="'x'", books=19_900).replace("n = 20000", "(n = 20000)::int")
            connection.execute(text.encode())
            connection.execute(b"VACUUM ANALYZE")
            text = statement("postgres", asked, "airflow_mq.") if asked == "names" else asked
            values = STORED if asked == "names" else None
            assert sorted(connection.execute(text.encode(), values).fetchall()) == [("d",), ("o20000",)]
            plan = connection.execute(b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + text.encode(), values).fetchone()
    assert plan is not None
    top = plan[0][0]["Plan"]
    assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < 40


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for below in node.get("Plans", ()):
        yield from _nodes(below)


def _numbered(text: str) -> tuple[str, list[str]]:
    """Return the statement with numbered parameters, and their names in order."""
    order: list[str] = []

    def number(match: re.Match[str]) -> str:
        name = match.group(1) or str(len(order) + 1)
        if name not in order:
            order.append(name)
        return f"${order.index(name) + 1}"

    return re.sub(r"%(?:\((\w+)\))?[sb]", number, text), order


def _whole_reads(plan: dict[str, Any]) -> Iterator[str]:
    for node in _nodes(plan):
        table = node.get("Relation Name")
        if table in GROWING:
            if node["Node Type"] == "Seq Scan":
                yield f"Seq Scan on {table}"
            if node["Node Type"].startswith("Index") and "Index Cond" not in node:
                yield f"{node['Node Type']} over all of {table}"


# On SQLite.


@pytest.mark.parametrize("name", sorted(NAMES["sqlite"]))
def test_no_statement_scans_a_growing_sqlite_table(tmp_path: Path, name: str) -> None:
    path = tmp_path / "store.db"
    upgrade(parse(f"sqlite:///{path}"))
    text = statement("sqlite", name, "mq_")
    aliases = {
        alias or table: table for table, alias in re.findall(r"mq_(\w+)(?: AS)?(?: (?!SET|WHERE|ON)(\w+))?", text)
    }
    connection = sqlite3.connect(path)
    try:
        unbound = dict.fromkeys(re.findall(r":(\w+)", text))
        details = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", unbound)]
    finally:
        connection.close()
    is_sorted = any("TEMP B-TREE FOR ORDER BY" in detail for detail in details)
    for detail in details:
        # A search by the ring alone brings all rows of the ring, if these are sorted afterwards.
        match = re.match(r"SCAN (\w+)" + is_sorted * r"|SEARCH (\w+).* \(ring=\?\)$", detail)
        table = next(filter(None, match.groups()), "") if match else ""
        table = aliases.get(table, table.removeprefix("mq_"))
        assert not (match and table in GROWING) or name in MAY_SCAN, f"{name}: {detail}"


def test_sqlite_tables_are_strict(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    upgrade(parse(f"sqlite:///{path}"))
    connection = sqlite3.connect(path)
    try:
        tables = connection.execute("SELECT name, strict FROM pragma_table_list WHERE name LIKE 'mq_%'").fetchall()
    finally:
        connection.close()
    assert len(tables) > 15
    assert [name for name, strict in tables if not strict] == []


def test_names_of_few_queues_are_read_in_few_steps(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    upgrade(parse(f"sqlite:///{path}"))
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(FILL_USED.format(s="mq_", x="x'00'", books=0))
        steps: list[int] = []
        connection.set_progress_handler(lambda: steps.append(1), 100)
        rows = connection.execute(statement("sqlite", "names", "mq_"), STORED).fetchall()
    assert rows == [("d",), ("o20000",)] and len(steps) < 20
