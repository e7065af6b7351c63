"""Many processes on one ring: no message is lost or repeated, order is kept, nothing deadlocks."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from airflow_mq import Done, Message, MessageQueue, RingConfig, Weight, batch_processor
from airflow_mq.engine.queue.values import Delivery
from airflow_mq.engine.rules.errors import Busy, InFlight, MessageQueueError, StoreBusy
from airflow_mq.engine.rules.message import message_id
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.engine.store.rows import InboxRow
from tests.proofs.crash.children import Ended, end_child, start_child

pytestmark = pytest.mark.concurrency
SENDERS = 8


class Log:
    """Files that record the work of processes and outlive them: a line per message, after its commit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, name: str) -> int:
        return os.open(self.folder / name, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def lines(self, prefix: str) -> Iterator[list[bytes]]:
        for path in sorted(self.folder.glob(f"{prefix}*")):
            yield path.read_bytes().splitlines()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    (tmp_path / "log").mkdir()
    return Log(tmp_path / "log")


def send_many(uri: str, sender: int, count: int, log: Log) -> None:
    """Send `count` messages in calls of mixed sizes, half of them to the hot origin."""
    rng, sent = random.Random(sender), 0
    out = log.open(f"sent-{sender}")
    with MessageQueue(uri, "busy", busy_timeout=60) as queue:
        while sent < count:
            size = min(rng.choice([1, 1, 10, 100, 1000]), count - sent)
            origin = "hot" if rng.random() < 0.5 else f"cold {rng.randrange(50)}"
            payloads = [f"{sender}:{number}".encode() for number in range(sent, sent + size)]
            if size == 1:
                queue.enqueue_message(origin, payloads[0])
            elif rng.random() < 0.2:
                queue.enqueue_messages((origin, payload) for payload in payloads)
            else:
                queue.enqueue_messages(origin, payloads)
            os.write(out, b"".join(origin.encode() + b"\t" + payload + b"\n" for payload in payloads))
            sent += size


def send_late(uri: str, sender: int, count: int, log: Log) -> None:
    """Send in long transactions, which commit after many that began later."""
    out, sent = log.open(f"sent-{sender}"), 0
    with MessageQueue(uri, "busy") as queue:
        while sent < count:
            calls = []
            with queue.store.writing() as unit:
                for origin in ("hot", f"late {sent % 7}", "hot"):
                    payload = f"{sender}:{sent}".encode()
                    row = InboxRow(origin, 0, len(payload), 1, False, b"", b"", payload)
                    queue.store.send(unit, queue.session.ring_id, [row])
                    calls.append(origin.encode() + b"\t" + payload + b"\n")
                    sent += 1
                    time.sleep(0.3)
            os.write(out, b"".join(calls))


def serve(uri: str, stop_file: Path, batches: bool) -> None:
    """Service until the stop file exists and no message is left."""
    with MessageQueue(uri, "busy", busy_timeout=60) as queue:
        while True:
            last = stop_file.exists()
            processor = batch_processor(lambda batch: None) if batches else lambda delivery: None
            done = queue.service_queues(processor, Weight(20_000, 1 << 40))
            if last and not done.processed:
                return
            time.sleep(0.005)


def settle(uri: str, stop_file: Path) -> None:
    """Plan, report and settle until the stop file exists and no message is left."""
    with MessageQueue(uri, "busy", busy_timeout=60) as queue:
        while True:
            last = stop_file.exists()
            block = queue.blocks.plan(limit=Weight(5_000, 1 << 40))
            queue.blocks.report(block, [batch.answer() for batch in block.batches()])
            queue.blocks.settle(block)
            if last and not block.messages:
                return
            time.sleep(0.005)


def await_all(children: list[tuple[int, int]]) -> None:
    problems = []
    for child in children:
        try:
            end_child(child)
        except AssertionError as error:
            problems.append(str(error))
    assert not problems, "\n".join(problems)


def assert_all_in_order(queue: MessageQueue, log: Log) -> int:
    """Check that each sent message was processed once, in order per sender and origin."""
    names = {}
    sent: dict[tuple[str, str], list[bytes]] = {}
    for lines in log.lines("sent-"):
        for line in lines:
            origin, payload = line.split(b"\t", 1)
            sent.setdefault((origin.decode(), payload.split(b":")[0].decode()), []).append(payload)
            names[message_id(payload)] = payload
    done: dict[tuple[str, str], list[bytes]] = {}
    for event in queue.inspect.events():
        assert event.name == "Processed" and event.id is not None
        payload = names[event.id]
        done.setdefault((event.origin, payload.split(b":")[0].decode()), []).append(payload)
    assert set(done) == set(sent)
    for key, payloads in sent.items():
        assert done[key] == payloads, f"{key}: lost {len(payloads) - len(set(done[key]))}, or in another order"
    assert queue.check() == []
    assert all(footprint.count == 0 for _, footprint in queue.footprints(limit=1000))
    return len(names)


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize(
    "reader", [pytest.param(False, id="alone", marks=pytest.mark.soak), pytest.param(True, id="beside-a-long-reader")]
)
def test_many_processes_lose_no_message_on_postgresql(pg_uri: str, tmp_path: Path, log: Log, reader: bool) -> None:
    upgrade(parse(pg_uri))
    with MessageQueue(pg_uri) as queue:
        queue.admin.create_ring("busy", RingConfig(heap_size=8_192, service_weight=Weight(1 << 40, 1 << 50)))
    total, stop_file = (30_000 if reader else 100_000), tmp_path / "over"
    long_reader = psycopg.connect(pg_uri) if reader else None
    if long_reader:
        long_reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        long_reader.execute("SELECT count(*) FROM airflow_mq.inbox")
    began = time.monotonic()
    each = total // SENDERS
    senders = [start_child(lambda n=n: send_many(pg_uri, n, each, log)) for n in range(SENDERS)]
    senders.append(start_child(lambda: send_late(pg_uri, 99, 30, log)))
    workers = [
        start_child(lambda: serve(pg_uri, stop_file, False)),
        start_child(lambda: serve(pg_uri, stop_file, True)),
        start_child(lambda: settle(pg_uri, stop_file)),
        start_child(lambda: settle(pg_uri, stop_file)),
    ]
    await_all(senders)
    stop_file.touch()
    await_all(workers)
    print(f"\n{total:,} messages through {len(senders) + len(workers)} processes in {time.monotonic() - began:.1f} s")
    with MessageQueue(pg_uri, "busy") as queue:
        assert assert_all_in_order(queue, log) >= total
    if long_reader:
        long_reader.close()
    with psycopg.connect(pg_uri) as connection:
        row = connection.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").fetchone()
        assert row == (0,)


@pytest.mark.slow
def test_four_processes_lose_no_message_on_sqlite(tmp_path: Path, log: Log) -> None:
    """Callers never get `database is locked`; they wait, or get a named error."""
    uri, stop_file = f"sqlite:///{tmp_path / 'store.db'}", tmp_path / "over"
    upgrade(parse(uri))
    with MessageQueue(uri) as queue:
        queue.admin.create_ring("busy", RingConfig(heap_size=8_192, service_weight=Weight(1 << 40, 1 << 50)))
    senders = [start_child(lambda n=n: send_many(uri, n, 10_000, log)) for n in range(2)]
    workers = [start_child(lambda: serve(uri, stop_file, False)), start_child(lambda: settle(uri, stop_file))]
    await_all(senders)
    stop_file.touch()
    await_all(workers)
    with MessageQueue(uri, "busy") as queue:
        assert assert_all_in_order(queue, log) == 20_000


def test_locked_sqlite_file_raises_store_busy(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'store.db'}"
    upgrade(parse(uri))
    with MessageQueue(uri) as holder, MessageQueue(uri, busy_timeout=0.2) as queue, holder.store.writing() as unit:
        unit.run("pause", ring=1, origin="a", reason="", who="", now=0, until=None, below=False)
        for call in (
            lambda: queue.enqueue_message("a", b"x"), queue.blocks.plan, lambda: queue.service_queues(print),
        ):  # fmt: skip
            with pytest.raises((StoreBusy, Busy), match=r"nothing was changed|try again") as caught:
                call()
            assert "database is locked" not in str(caught.value)
        # Readers do not wait.
        assert queue.footprint("a").count == 0
        assert queue.check() == []


def test_second_service_waits_and_then_raises_busy(store_uri: str) -> None:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri, actor="first") as first, MessageQueue(store_uri, busy_timeout=0.3) as second:
        first.enqueue_messages("a", [b"1", b"2"])
        refused: list[MessageQueueError] = []

        def processor(delivery: Delivery) -> Done:
            began = time.monotonic()
            try:
                second_call()
            except MessageQueueError as error:
                refused.append(error)
                assert time.monotonic() - began >= 0.2
            return Done()

        def second_call() -> None:
            # Use another thread: in the processor's own thread, the call would be nested.
            caught: list[BaseException] = []

            def run() -> None:
                try:
                    second.service_queues(lambda delivery: None)
                except BaseException as error:
                    caught.append(error)

            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
            if caught:
                raise caught[0]

        assert first.service_queues(processor).processed == 2
        assert [type(error) for error in refused] == [Busy, Busy]
        assert "serviced by first" in str(refused[0]) and "try again" in str(refused[0])
        # A later call succeeds.
        assert second.service_queues(lambda delivery: None).processed == 0


def test_service_waits_for_another_process(store_uri: str) -> None:
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue:
        queue.enqueue_messages("a", [b"%d" % n for n in range(5)])

    def slowly() -> None:
        with MessageQueue(store_uri) as queue:
            # The service may also see the message that is sent meanwhile.
            assert queue.service_queues(lambda delivery: time.sleep(0.1)).processed in (5, 6)

    child = start_child(slowly)
    with MessageQueue(store_uri, busy_timeout=20) as queue:
        while queue.footprint("a").count and not _held(queue):
            time.sleep(0.005)
        queue.enqueue_message("a", b"meanwhile")
        assert queue.service_queues(lambda delivery: None).processed <= 1
        # The second service ran after the first one had ended.
        assert len(list(queue.inspect.events(name="Processed"))) == 6
        end_child(child)
        assert queue.footprint("a").count == 0
        assert queue.check() == []


def _held(queue: MessageQueue) -> bool:
    with queue.store.loose() as unit:
        return unit.rows("lock_ring", ring=queue.session.ring_id)[0][4] is not None


def test_threads_share_a_queue_object(store_uri: str) -> None:
    """Senders, services, planners and readers use one object in many threads."""
    upgrade(parse(store_uri))
    problems: list[BaseException] = []
    with MessageQueue(store_uri, busy_timeout=30) as queue:

        def send(name: str) -> None:
            for number in range(40):
                queue.enqueue_messages(f"origin {number % 3}", [f"{name} {number} {n}".encode() for n in range(5)])

        def service() -> None:
            for _ in range(6):
                queue.service_queues(lambda delivery: None)

        def plan() -> None:
            for _ in range(6):
                block = queue.blocks.plan()
                queue.blocks.report(block, [batch.answer() for batch in block.batches()])
                queue.blocks.settle(block)

        def look() -> None:
            for _ in range(20):
                queue.footprints()
                queue.inspect.peek("origin 1")
                assert queue.check() == []

        def guarded(work: Callable[[], None]) -> Callable[[], None]:
            def run() -> None:
                try:
                    work()
                except BaseException as error:
                    problems.append(error)

            return run

        works = [lambda n=n: send(f"sender {n}") for n in range(4)] + [service, service, plan, look]
        threads = [threading.Thread(target=guarded(work)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not problems, problems
        while queue.service_queues(lambda delivery: None).processed:
            pass
        ids = [event.id for event in queue.inspect.events(name="Processed")]
        assert len(ids) == len(set(ids)) == 4 * 40 * 5
        assert queue.check() == []


def test_forked_child_and_parent_continue(store_uri: str) -> None:
    """A child does not touch its parent's connections, even when it ends."""
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue:
        queue.enqueue_message("a", b"from the parent")

        def be_child() -> None:
            for number in range(10):
                queue.enqueue_message("a", b"from the child %d" % number)
            assert queue.footprint("a").count >= 11
            queue.close()

        child = start_child(be_child)
        for number in range(10):
            queue.enqueue_message("a", b"again %d" % number)
        ended: Ended = end_child(child)
        assert not ended.error
        queue.enqueue_message("a", b"and after")
        assert queue.footprint("a").count == 22
        assert queue.service_queues(lambda delivery: None).processed == 22
        assert queue.check() == []


def test_concurrent_senders_of_the_same_keys_do_not_deadlock(store_uri: str) -> None:
    """Senders use the same keys in different orders; each key is accepted once."""
    upgrade(parse(store_uri))

    def send(seed: int) -> None:
        keys = list(range(60))
        random.Random(seed).shuffle(keys)
        with MessageQueue(store_uri, busy_timeout=30) as queue:
            for start in range(0, 60, 20):
                queue.enqueue_messages(
                    "a", [Message(b"message %d" % key, key=f"key {key}") for key in keys[start : start + 20]]
                )

    await_all([start_child(lambda n=n: send(n)) for n in range(5)])
    with MessageQueue(store_uri) as queue:
        assert queue.footprint("a").count == 60
        assert queue.check() == []


def test_concurrent_planners_claim_different_queues(store_uri: str) -> None:
    """Two concurrent planners never claim the same ordered queue."""
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as first, MessageQueue(store_uri) as second:
        first.enqueue_messages((f"o{n % 4}", b"m%d" % n) for n in range(40))
        block = first.blocks.plan(limit=Weight(5, 1 << 30))
        rest = second.blocks.plan()
        assert not set(block.origins) & set(rest.origins)
        assert block.messages and rest.messages
        with pytest.raises(InFlight):
            second.sweep_queue(block.origins[0])
        assert second.blocks.plan().messages == 0
        assert first.check() == []
