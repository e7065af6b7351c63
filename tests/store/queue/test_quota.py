"""Quotas: the bytes that a queue or a group may store, on every way to send."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
import tracemalloc
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from airflow_mq import Message, MessageQueue, Weight
from airflow_mq.engine.queue import quota
from airflow_mq.engine.queue import session as session_module
from airflow_mq.engine.queue.sending.repeats import RepeatedSender, SentRow
from airflow_mq.engine.queue.sending.sender import Sender
from airflow_mq.engine.rules.errors import ConfigRefused, QueueFull
from airflow_mq.engine.store import parse
from airflow_mq.engine.store.rows import LATEST, Fullness, InboxRow
from tests.store.queue.conftest import serve


def fullness(queue: MessageQueue, *origins: str) -> list[Fullness]:
    with queue.store.loose() as unit:
        sizes = dict.fromkeys(origins, 0)
        return queue.store.fullness(unit, queue.session.ring_id, sizes, has_paths=queue.config.paths)


def stored(queue: MessageQueue, origin: str) -> int:
    (one,) = fullness(queue, origin)
    return one.stored


def test_a_full_queue_refuses_each_form_of_sending_and_reports_what_must_drain(make_queue: Any) -> None:
    queue: MessageQueue = make_queue()
    assert queue.admin.set_origin("a", quota="1KiB") == {"quota": (None, 1024)}
    queue.enqueue_message("a", b"x" * 500)
    queue.enqueue_messages("a", [b"x" * 100] * 5)
    assert stored(queue, "a") == 1000
    for send, size in (
        (lambda: queue.enqueue_message("a", b"x" * 25), 25),
        (lambda: queue.enqueue_message("a", b"x" * 25, priority="high"), 25),
        (lambda: queue.enqueue_message("a", b"x" * 25, not_before=60), 25),
        (lambda: queue.enqueue_message("a", b"x" * 25, key="k"), 25),
        (lambda: queue.enqueue_messages("a", [b"x" * 13] * 2), 26),
        (lambda: queue.enqueue_messages([("b", b"1"), ("a", b"x" * 30)]), 30),
        (lambda: queue.enqueue_messages("a", [Message(b"x" * 25, key="k")]), 25),
    ):
        with pytest.raises(
            QueueFull, match=f"'a' is full: it stores 1,000 bytes of 1,024, and {size - 24} must"
        ) as full:
            send()
        assert full.value.lacks == size - 24
    assert stored(queue, "a") == 1000 and not queue.footprint("b").count
    with pytest.raises(QueueFull, match="call of 1,025 bytes too large for the quota of 'a': expected at most 1,024"):
        queue.enqueue_messages("a", [b"x" * 1024, b"y"])
    assert queue.enqueue_message("a", b"x" * 24, key="k").count == 1
    # A repeated call is no further message.
    assert queue.enqueue_message("a", b"x" * 24, key="k").repeated == 1
    serve(queue)
    assert stored(queue, "a") == 0
    queue.enqueue_messages("a", [b"x" * 512] * 2)
    queue.admin.set_origin("a", unset=["quota"])
    queue.enqueue_message("a", b"more")


def test_what_is_stored_counts_in_every_state(make_queue: Any) -> None:
    queue: MessageQueue = make_queue(max_attempts=1, max_message_size=500)
    queue.admin.set_origin("a", quota=10_000)
    queue.enqueue_messages("a", [b"x" * 600, b"y" * 100, b"z" * 10])
    queue.enqueue_message("a", b"later" * 10, not_before=3_600)
    assert stored(queue, "a") == 760
    block = queue.blocks.plan("k")
    assert block is not None and stored(queue, "a") == 760
    queue.blocks.release(block)
    found = queue.set_aside.list()
    assert [aside.size for aside in found] == [600, 100] and stored(queue, "a") == 760
    queue.set_aside.discard([aside.address for aside in found], "done")
    assert stored(queue, "a") == 60


def test_a_quota_of_a_group_holds_for_all_below_it(make_queue: Any) -> None:
    queue: MessageQueue = make_queue(paths=True)
    queue.admin.set_origin("acme", quota=100)
    queue.admin.set_origin("acme/a", quota=50)
    queue.enqueue_message("acme/a/deep", b"x" * 30)
    queue.enqueue_message("acme/b", b"x" * 30, priority="high")
    queue.enqueue_message("acme", b"x" * 10)
    queue.enqueue_message("acme-two", b"x" * 1000)
    queue.enqueue_message("acm", b"x" * 1000)
    serve_nothing = fullness(queue, "acme/a/deep")
    assert [(one.path, one.stored) for one in serve_nothing] == [("acme", 70), ("acme/a", 30)]
    with pytest.raises(QueueFull, match="'acme/a' is full: it stores 30 bytes of 50, and 1 must"):
        queue.enqueue_message("acme/a", b"x" * 21)
    with pytest.raises(QueueFull, match="'acme' is full: it stores 70 bytes of 100, and 1 must"):
        queue.enqueue_message("acme/new", b"x" * 31)
    queue.enqueue_message("acme/new", b"x" * 30, not_before=60)
    assert stored(queue, "acme") == 100


def test_a_command_in_a_transaction_of_the_caller(make_queue: Any, store_uri: str) -> None:
    queue: MessageQueue = make_queue()
    queue.admin.set_origin("a", quota=100)
    address = parse(store_uri)
    opened: Any = sqlite3.connect(address.file) if address.path else psycopg.connect(**address.conninfo())
    with closing(opened) as connection:
        if address.path:
            connection.execute("BEGIN IMMEDIATE")
        commands = queue.commands(connection)
        commands.push("a", b"x" * 60).execute()
        with pytest.raises(QueueFull, match="made at"):
            commands.push("a", b"x" * 60).execute()
        commands.push("a", b"x" * 40).execute()
        connection.commit()
    assert stored(queue, "a") == 100


def test_a_transfer_to_a_full_queue(make_queue: Any, store_uri: str) -> None:
    queue: MessageQueue = make_queue(ordered=False)
    queue.admin.set_origin("b", quota=10)
    queue.enqueue_messages("a", [b"x" * 6, b"y" * 6])
    view = queue.leases.view("a")
    first, second = view.try_next(), view.try_next()
    assert first is not None and second is not None
    commands = queue.commands(queue.store)
    commands.transfer(first, "b").execute()
    with pytest.raises(QueueFull):
        commands.transfer(second, "b").execute()
    assert stored(queue, "b") == 6


def test_a_processor_that_sends(make_queue: Any) -> None:
    queue: MessageQueue = make_queue()
    queue.admin.set_origin("b", quota=10)
    queue.enqueue_messages("a", [b"1", b"2", b"3", b"4"])
    full: list[bytes] = []

    def forward(delivery: Any) -> None:
        if delivery.origin == "b":
            return
        try:
            delivery.enqueue("b", b"x" * 4)
            if delivery.payload == b"2":
                queue.enqueue_message("b", b"x" * 7)
        except QueueFull:
            full.append(delivery.payload)
            raise

    queue.service_queues(forward, slice_messages=1)
    assert full


def test_invalid_quotas(make_queue: Any) -> None:
    queue: MessageQueue = make_queue()
    for value in (0, -1, 1.5, True, 1 << 63):
        with pytest.raises(ConfigRefused, match="invalid quota"):
            queue.admin.set_origin("a", quota=value)  # type: ignore[arg-type]


def test_a_queue_without_a_quota_checks_nothing(make_queue: Any) -> None:
    queue: MessageQueue = make_queue()
    queue.admin.set_origin("a", quota=100)
    seen: list[str] = []
    queue.enqueue_message("b", b"1")
    queue.store.probe = seen.append
    queue.enqueue_message("b", b"1")
    queue.enqueue_messages("b", [b"1", b"2"])
    queue.store.probe = None
    assert not {"settings", "held", "fullness", "last_id"} & set(seen)


def test_an_open_sender_notices_a_quota(make_queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, other = make_queue(), make_queue()
    other.enqueue_message("a", b"x" * 11)
    queue.admin.set_origin("a", quota=10)
    other.enqueue_message("a", b"x")
    monkeypatch.setattr(session_module, "CONFIG_AGE", -1.0)
    with pytest.raises(QueueFull):
        other.enqueue_message("a", b"x")


def test_an_open_service_notices_a_quota(make_queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, other = make_queue(), make_queue()
    queue.admin.set_origin("b", quota=10)
    queue.enqueue_message("a", b"1")
    monkeypatch.setattr(session_module, "CONFIG_AGE", -1.0)
    refused: list[QueueFull] = []

    def forward(delivery: Any) -> None:
        with pytest.raises(QueueFull) as error:
            delivery.enqueue("b", b"x" * 11)
        refused.append(error.value)

    other.service_queues(forward, origins=["a"])
    assert len(refused) == 1 and stored(queue, "b") == 0


@pytest.mark.parametrize(("paths", "headers"), [(False, False), (True, False), (True, True)])
def test_what_is_stored_is_exact(make_queue: Any, paths: bool, headers: bool) -> None:
    """After any operations, the quota counts what exact footprints and the delayed rows add up to."""
    draw = random.Random(7 + paths)
    queue: MessageQueue = make_queue(paths=paths, heap_size=200, backoff=60.0, ordered=False, max_attempts=2)
    for origin in ("a", "b", "a/b"):
        queue.admin.set_origin(origin, quota=1 << 40)
    for number in range(60):
        origin, priority = draw.choice(["a", "b", "a/b", "a/c"]), draw.choice(["regular", "high"])
        step = draw.random()
        if step < 0.5:
            delay = {"not_before": 3_600} if draw.random() < 0.2 else {}
            payloads = [b"x" * draw.randint(1, 90) for _ in range(draw.randint(1, 5))]
            own = [Message(one, headers={"h": one.decode()}) for one in payloads] if headers else payloads
            queue.enqueue_messages(origin, own, priority=priority, **delay)
        elif step < 0.7:

            def process(delivery: Any) -> Any:
                if draw.random() < 0.5:
                    delivery.enqueue(draw.choice(["a", "b", "a/c"]), b"y" * draw.randint(1, 50))
                return draw.choice([None, True, False])

            queue.service_queues(process, slice_messages=draw.randint(1, 5))
        elif step < 0.8:
            # Twice: on PostgreSQL, what the first one marks is added up by the second.
            for _ in range(2):
                with queue.store.writing() as unit:
                    queue.store.add_up(unit, queue.session.ring_id, [origin, f"\x01{origin}"], draw.randint(1, 3))
        else:
            queue.blocks.plan(str(number))
        if headers:
            # In a page, they count with each message; in rows, as they are stored.
            assert not queue.check()
            continue
        with queue.store.loose() as unit:
            delayed = unit.inbox.delayed(queue.session.ring_id, -(1 << 62), 0, 1_000)
        for asked in ("a", "b", "a/b"):
            below = paths and asked == "a"
            waiting = sum(
                row.size
                for _, row in delayed
                if (name := row.origin.lstrip("\x01")) == asked or (below and name[:2] == "a/")
            )
            exact = queue.footprint(asked, below=below).size + waiting
            assert next(one.stored for one in fullness(queue, asked) if one.path == asked) == exact
    assert not queue.check()


@pytest.mark.concurrency
def test_concurrent_senders_exceed_a_quota_by_open_calls_at_most(make_queue: Any, store_uri: str) -> None:
    """16 connections fill a queue that is serviced meanwhile; SQLite never stores more than the quota."""
    watched: MessageQueue = make_queue(patience=120)
    watched.admin.set_origin("a", quota=5_000)
    senders = [make_queue(patience=120) for _ in range(16)]
    stop, refused, most = threading.Event(), [0] * 16, 0
    errors: list[BaseException] = []

    def send(number: int) -> None:
        draw = random.Random(number)
        try:
            while not stop.is_set():
                try:
                    senders[number].enqueue_messages("a", [b"x" * draw.randint(1, 50) for _ in range(2)])
                except QueueFull:
                    refused[number] += 1
                    stop.wait(0.01)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(4):
            until = time.monotonic() + 20
            while most < 4_500 and time.monotonic() < until:
                most = max(most, stored(watched, "a"))
            most = max(most, stored(watched, "a"))
            watched.service_queues(lambda delivery: None)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not errors
    assert 4_000 < most <= 5_000 + (15 * 100 if store_uri.startswith("postgres") else 0)
    assert sum(refused) and not watched.check()


@pytest.mark.postgres
def test_a_full_queue_refuses_sends_by_sql(make_queue: Any, store_uri: str) -> None:
    queue: MessageQueue = make_queue(paths=True)
    if store_uri.startswith("sqlite"):
        pytest.skip("SQLite has no functions to send by")
    queue.admin.set_origin("acme", quota=100)
    queue.enqueue_message("acme/a", b"x" * 60, priority="high")
    with psycopg.connect(autocommit=True, **parse(store_uri).conninfo()) as connection:
        send = f"SELECT airflow_mq.send('{queue.ring}', %s, %b, not_before => %s)"
        for later in (None, "2100-01-01"):
            with pytest.raises(
                psycopg.Error, match=r"queue 'acme' is full: 1 bytes must drain before this call of 41 "
            ) as full:
                connection.execute(send, ("acme/b", b"x" * 41, later))
            assert full.value.sqlstate == "MQ107" and "quota=100, stored=60" in str(full.value)
            assert full.value.diag.message_hint == "Retry later, or raise the quota."
        connection.execute(send, ("acme/b", b"x" * 20, None))
        connection.execute(send, ("acme/b", b"x" * 20, "2100-01-01"))
        with pytest.raises(psycopg.Error, match="call of 101 bytes too large for the quota of 'acme'") as large:
            connection.execute(send, ("acme", b"x" * 101, None))
        assert large.value.diag.message_hint == "Send less, or raise the quota."
    assert stored(queue, "acme") == 100


def test_a_sender_to_many_long_paths_holds_few_of_them_in_memory(make_queue: Any) -> None:
    queue: MessageQueue = make_queue(paths=True)
    queue.admin.set_origin("other", quota="1GiB")
    queue.session.reread_config()
    origins = [f"{number}/{'a/' * 120}" for number in range(3_000)]
    tracemalloc.start()
    try:
        assert queue.session.room_until(origins) == LATEST
        assert queue.session.room_until([*origins, "other/a"]) == 0
        highest = tracemalloc.get_traced_memory()[1] >> 20
    finally:
        tracemalloc.stop()
    assert highest < 40, "MiB"


@pytest.mark.postgres
def test_a_check_of_many_long_paths_holds_few_of_them_in_memory(make_queue: Any, store_uri: str) -> None:
    queue: MessageQueue = make_queue(paths=True)
    if store_uri.startswith("sqlite"):
        pytest.skip("SQLite has no functions to send by")
    queue.admin.set_origin("other", quota="1GiB")
    queue.admin.set_origin("acme/a/a", quota="1GiB")
    origins = [f"acme/{'a/' * 120}{number}" for number in range(2_000)]
    with psycopg.connect(autocommit=True, **parse(store_uri).conninfo()) as connection:

        def highest() -> int:
            status = Path(f"/proc/{connection.info.backend_pid}/status").read_text()
            return int(status.partition("VmHWM:")[2].split()[0]) >> 10

        check = f"SELECT path, coming FROM airflow_mq.fullness({queue.session.ring_id}::smallint, %s, %s)"
        connection.execute(check, (["acme", "other/b"], [1, 1]))
        before = highest()
        assert connection.execute(check, (origins, [3] * 2_000)).fetchall() == [("acme/a/a", 6_000)]
        assert highest() - before < 32, "MiB"


def test_checks_of_long_inboxes_read_few_rows(make_queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any state of a queue that is sent to and serviced, a check reads the rows of a few steps, and is exact."""
    monkeypatch.setattr(quota, "STEP", 16)
    monkeypatch.setattr(quota, "MOST_UNCHECKED", 8)
    queue: MessageQueue = make_queue(heap_size=400)
    queue.admin.set_origin("a", quota="1GiB")
    sent = done = 0
    for _ in range(20):
        for number in range(30):
            queue.enqueue_message("a", b"x" * (number + 1))
        sent += 30
        (one,) = fullness(queue, "a")
        assert one.stored == queue.footprint("a").size and one.uncut <= 4 * 16
        if sent % 90 == 0:
            done += queue.service_queues(lambda delivery: None, limit=Weight(20, 0), slice_messages=7).processed
            assert stored(queue, "a") == queue.footprint("a").size
    assert len(serve(queue)) == sent - done > 0 and stored(queue, "a") == 0


def test_rows_larger_than_a_page_are_checked_each_time(make_queue: Any) -> None:
    """Headers may be longer than a page. The room for many pages is not room for as many such rows."""
    queue: MessageQueue = make_queue(heap_size=100)
    queue.admin.set_origin("a", quota=60_000)
    with pytest.raises(QueueFull):
        for _ in range(100):
            queue.enqueue_messages("a", [Message(b"x", headers={"h": "y" * 2_000})])
    assert stored(queue, "a") <= 60_000


def test_a_processor_that_sends_much_counts_what_it_sent_before(make_queue: Any) -> None:
    """The first message beyond the quota is refused, and the store is not read for each one."""
    queue: MessageQueue = make_queue()
    queue.admin.set_origin("b", quota=10_000)
    queue.enqueue_message("b", b"x" * 1_000)
    queue.enqueue_message("a", b"1")
    sent: list[str] = []
    seen: list[str] = []

    def forward(delivery: Any) -> None:
        queue.store.probe = seen.append
        with pytest.raises(QueueFull):
            while len(sent) < 3_000:
                if len(sent) % 2:
                    delivery.enqueue("b", b"x" * 4)
                else:
                    queue.enqueue_message("b", b"x" * 4, priority="high")
                sent.append("b")
        queue.store.probe = None

    queue.service_queues(forward, origins=["a"])
    assert len(sent) == 2_250 and stored(queue, "b") == 10_000
    assert len([name for name in seen if name in ("held", "fullness")]) < 100
    assert not queue.check()


@pytest.mark.parametrize("quota_of", ["b", "b/c"])
def test_messages_that_a_service_has_not_saved_yet_count(make_queue: Any, quota_of: str) -> None:
    """The processor sends one message of each delivery, and all of them are saved together."""
    queue: MessageQueue = make_queue(paths=True)
    queue.admin.set_origin(quota_of, quota=100)
    queue.enqueue_messages("a", [b"1"] * 30)
    texts: list[str] = []

    def forward(delivery: Any) -> None:
        try:
            delivery.enqueue("b/c", b"x" * 9)
            queue.enqueue_message("d", b"y" * 1_000)
        except QueueFull as full:
            texts.append(str(full))

    queue.service_queues(forward, origins=["a"])
    assert stored(queue, quota_of) == 99 and len(texts) == 19
    assert texts[0].startswith(f"queue '{quota_of}' is full: it stores 99 bytes of 100, and 8 must drain")
    assert not queue.check()


def test_senders_that_skip_checks_keep_the_quota(make_queue: Any) -> None:
    """A sender with much room checks once; two of them together store no more than the quota."""
    queue, other = make_queue(heap_size=100), make_queue()
    queue.admin.set_origin("a", quota=10_000)
    seen: list[str] = []
    for sender in (queue, other):
        sender.session.reread_config()
        sender.enqueue_message("a", b"x" * 90)
        sender.store.probe = seen.append
        sender.enqueue_messages("a", [b"x" * 45] * 2)
        sender.enqueue_message("a", b"x" * 90)
        sender.store.probe = None
    assert not {"held", "fullness"} & set(seen)
    for number in range(103):
        (queue if number % 2 else other).enqueue_messages("a", [b"x" * 90])
        if number % 10 == 0:
            (queue if number % 2 else other).enqueue_message("a", b"x" * 5, not_before=60)
    for sender in (queue, other):
        with pytest.raises(QueueFull, match="stores 9,865 bytes of 10,000"):
            sender.enqueue_messages("a", [b"x" * 70] * 2)
    assert stored(queue, "a") == 9_865


@pytest.mark.postgres
@pytest.mark.parametrize("way", ["python", "chunks", "sql", "sql with a small quota"])
def test_checks_of_keyed_messages_read_few_rows(make_queue: Any, store_uri: str, way: str) -> None:
    """A transaction that has claimed a key cannot write sums, so they are written before or after it."""
    queue: MessageQueue = make_queue()
    if store_uri.startswith("sqlite"):
        pytest.skip("SQLite writes sums in any transaction, and has no functions to send by")
    queue.admin.set_origin("a", quota="1GiB")
    for number in range(300):
        queue.enqueue_message("a", b"x", headers={"number": str(number)})
    (one,) = fullness(queue, "a")
    with queue.store.writing() as unit:
        unit.connection.execute(f"DELETE FROM {queue.store.prefix}inbox_sum")  # type: ignore[attr-defined]
    assert fullness(queue, "a")[0].uncut == 300
    if way == "python":
        for number in range(4):
            queue.enqueue_message("a", b"x", key=str(number))
    elif way == "chunks":
        sender = RepeatedSender(Sender(queue.session), "job")
        for number in range(4):
            sender.send([SentRow(b"%016d" % number, "a", b"x")])
    else:
        queue.admin.set_origin("small", quota="1KiB")
        with psycopg.connect(autocommit=True, **parse(store_uri).conninfo()) as connection:
            names, key = (["a"], "k") if way == "sql" else (["a", "small"], None)
            for number in range(4):
                connection.execute(
                    "SELECT airflow_mq.send_many('test', %s, array_fill('x'::bytea, %s), keys => %s)",
                    (names, [len(names)], key and [f"{key}{number}"]),
                )
    (after,) = fullness(queue, "a")
    assert after.uncut < 128 and after.stored == one.stored + 4


@pytest.mark.postgres
@pytest.mark.parametrize("rows", [0, 400])
def test_a_check_reads_rows_of_its_own_queue_only(make_queue: Any, store_uri: str, rows: int) -> None:
    """Also in a session that may read tables whole, after statistics of many rows."""
    queue: MessageQueue = make_queue()
    if store_uri.startswith("sqlite"):
        pytest.skip("SQLite takes the index of a range without statistics")
    names = [f"o{number}" for number in range(40)]
    queue.admin.set_origin("o7", quota="1GiB")
    counted = (
        "SELECT coalesce(sum(seq_tup_read), 0), coalesce(sum(idx_tup_fetch), 0) FROM pg_stat_xact_user_tables "
        "WHERE relname = 'inbox'"
    )
    row = InboxRow("", 0, 9, 1, False, b"", b"", b"x" * 9)
    with queue.store.writing() as unit:
        for _ in range(rows):
            queue.store.send(unit, queue.session.ring_id, [row._replace(origin=name) for name in names])
    with psycopg.connect(autocommit=True, **parse(store_uri).conninfo()) as connection:
        connection.execute("ANALYZE airflow_mq.inbox, airflow_mq.book, airflow_mq.inbox_sum")
        # Statements of functions may be planned anew for their first five calls.
        for number in range(7):
            with connection.transaction():
                before = connection.execute(counted).fetchone()
                check = "SELECT stored FROM airflow_mq.fullness(%s::smallint, ARRAY['o7'], ARRAY[1::bigint])"
                assert connection.execute(check, (queue.session.ring_id,)).fetchone() == (9 * rows,)
                after = connection.execute(counted).fetchone()
                assert [end - begin for begin, end in zip(before, after)] == [0, rows], number


@pytest.mark.postgres
def test_a_sum_waits_for_open_transactions(make_queue: Any, store_uri: str) -> None:
    """Rows that commit after later ones were added up are counted, too."""
    queue: MessageQueue = make_queue()
    if store_uri.startswith("sqlite"):
        pytest.skip("SQLite has one writer at a time")
    queue.admin.set_origin("a", quota="1GiB")

    def add_up() -> None:
        with queue.store.loose() as unit:
            queue.store.add_up(unit, queue.session.ring_id, ["a"], 2)

    add_up()
    with psycopg.connect(**parse(store_uri).conninfo()) as connection:
        queue.commands(connection).push("a", b"late").execute()
        for _ in range(3):
            queue.enqueue_messages("a", [b"1"])
            queue.enqueue_messages("a", [b"2"])
            add_up()
        assert stored(queue, "a") == 6
        connection.commit()
    assert stored(queue, "a") == 10
    for _ in range(2):
        add_up()
    (one,) = fullness(queue, "a")
    assert one.stored == 10 and one.uncut < 7


def test_a_check_compares_sums_with_what_is_stored(make_queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota, "STEP", 4)
    monkeypatch.setattr(quota, "MOST_UNCHECKED", 2)
    queue: MessageQueue = make_queue()
    queue.admin.set_origin("a", quota="1GiB")
    for _ in range(30):
        queue.enqueue_message("a", b"xyz")
    assert queue.check() == []
    change = f"UPDATE {queue.store.prefix}inbox_sum SET total = total {{}} 5 WHERE total > 0"
    for sign in ("+", "-"):
        with queue.store.writing() as unit:
            unit.connection.execute(change.format(sign))  # type: ignore[attr-defined]
        expected = [] if sign == "-" else ["quota of 'a': it counts 95 bytes: expected 90"]
        assert list(map(str, queue.check())) == expected


def test_headers_count_in_every_state(make_queue: Any, store_uri: str) -> None:
    """Else a tenant would store many times its quota beside short payloads."""
    queue: MessageQueue = make_queue()
    queue.admin.set_origin("a", quota=100_000)
    sent = 0
    with pytest.raises(QueueFull):
        for _ in range(50):
            queue.enqueue_messages("a", [Message(b"x", headers={"h": "y" * 5_000}), b"x" * 10])
            sent += 1
    assert sent == 19 and 95_000 < stored(queue, "a") <= 100_000
    assert not queue.check()
    with pytest.raises(QueueFull):
        queue.enqueue_message("a", b"x", headers={"h": "y" * 5_000}, not_before=60)
    with queue.store.writing() as unit:
        queue.store.add_up(unit, queue.session.ring_id, ["a"], 4)
    assert 95_000 < stored(queue, "a") <= 100_000 and not queue.check()
    queue.blocks.plan(limit=Weight(7, 1 << 30))
    assert 95_000 < stored(queue, "a") <= 100_000 and not queue.check()
    queue.admin.set_origin("b", quota=11_000)
    queue.enqueue_message("b", b"x", headers={"h": "y" * 5_000}, not_before=60)
    assert 5_000 < stored(queue, "b") < 5_100 and not queue.check()
    texts: list[str] = []

    def forward(delivery: Any) -> None:
        for _ in range(2):
            try:
                delivery.enqueue("b", b"x", headers={"h": "y" * 5_000})
            except QueueFull as full:
                texts.append(str(full))

    queue.enqueue_message("c", b"x")
    queue.service_queues(forward, origins=["c"])
    assert len(texts) == 1 and 10_000 < stored(queue, "b") < 10_200 and not queue.check()
    if store_uri.startswith("postgres"):
        with (
            psycopg.connect(**parse(store_uri).conninfo()) as connection,
            pytest.raises(psycopg.Error, match="is full"),
        ):
            connection.execute(
                f"SELECT {queue.store.address.schema}.send('test', 'b', 'x'::bytea, headers => "
                "jsonb_build_object('h', repeat('y', 5000)))"
            )


@pytest.mark.parametrize("way", ["call", "processor", "transfer"])
def test_rows_larger_than_a_page_use_up_the_room_of_other_senders(make_queue: Any, way: str) -> None:
    """A sender that found room for 600 pages sees that each row with headers is as large as 20 of them."""
    queue, other = make_queue(heap_size=100), make_queue()
    queue.admin.set_origin("a", quota=60_000)
    for sender in (queue, other):
        sender.session.reread_config()
    message = Message(b"x", headers={"h": "y" * 2_000})
    if way != "call":
        other.enqueue_messages("c", [message if way == "transfer" else b"x"] * 28)
    queue.enqueue_message("a", b"x" * 90)
    if way == "processor":
        other.service_queues(lambda delivery: delivery.enqueue("a", b"x", headers=message.headers), origins=["c"])
    for _ in range(28 if way != "processor" else 0):
        if way == "transfer":
            other.leases.transfer(other.leases.view("c").try_next(), "a")
        else:
            other.enqueue_messages("a", [message])
    with pytest.raises(QueueFull):
        for _ in range(560):
            queue.enqueue_message("a", b"x" * 90)
    assert stored(queue, "a") <= 60_000


def test_checks_of_a_drained_queue_read_few_rows(make_queue: Any) -> None:
    queue: MessageQueue = make_queue()
    queue.admin.set_origin("a", quota="1GiB")
    for turn in range(2):
        for number in range(400):
            # Calls with keys are checked each time.
            queue.enqueue_message("a", b"x", key=f"{turn}.{number}")
        (one,) = fullness(queue, "a")
        with queue.store.reading() as unit:
            text = f"SELECT count(*) FROM {queue.store.prefix}inbox_sum"
            (sums,) = unit.connection.execute(text).fetchone()  # type: ignore[attr-defined]
        assert one.stored == 400 and one.uncut < 200 and sums < 20
        assert len(serve(queue)) == 400


def test_a_row_that_arrives_while_a_processor_adds_up_counts_once(make_queue: Any) -> None:
    queue, other = make_queue(), make_queue()
    queue.admin.set_origin("b", quota="1GiB")
    other.session.reread_config()
    sent: list[str] = []

    def probe(name: str) -> None:
        if name in ("held", "fullness", "add_up"):
            # Another thread is outside of the processor.
            sender = threading.Thread(target=other.enqueue_message, args=("b", b"y" * 1_000))
            sender.start()
            sender.join()
            sent.append(name)

    for number in range(2):
        for _ in range(200):
            other.enqueue_message("b", b"x")
        queue.enqueue_message("a", b"1")
        queue.store.probe = probe if number else None
        queue.service_queues(lambda delivery: delivery.enqueue("b", b"z"), origins=["a"])
        queue.store.probe = None
    assert "add_up" in sent and not queue.check()


def test_values_that_a_processor_sends_count_together(make_queue: Any) -> None:
    queue: MessageQueue = make_queue()
    queue.admin.set_origin("b", quota=10)
    queue.enqueue_message("a", b"1")
    sent: list[bytes] = []

    def forward(delivery: Any) -> None:
        with pytest.raises(QueueFull):
            for _ in range(10):
                delivery.enqueue("b", b"xxxx")
                sent.append(delivery.value)

    queue.typed(bytes).service(forward, "a")
    assert sent == [b"1", b"1"] and stored(queue, "b") == 8


@pytest.mark.postgres
def test_sums_behind_a_commit_are_written_in_a_transaction(pg_uri: str) -> None:
    warnings: list[str | None] = []
    with MessageQueue(pg_uri) as queue:
        queue.admin.set_origin("a", quota="1GiB")
        queue.store.lent().connection.add_notice_handler(lambda notice: warnings.append(notice.message_primary))
        for number in range(140):
            queue.enqueue_message("a", b"x", key=str(number))
    assert warnings == []
