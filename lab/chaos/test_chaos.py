"""Scenarios with real faults of PostgreSQL: short runs of three, and all of them in `make soak`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from queue import Queue

import psycopg
import pytest

from airflow_mq import Event, MessageQueue
from airflow_mq.engine.rules.errors import CommitInDoubt, StoreReadOnly, StoreUnreachable
from airflow_mq.engine.rules.events import Fate
from airflow_mq.engine.rules.message import message_id
from tests.postgres_programs import find_bindirs
from tests.postgres_server import USER, Server

from .cluster import WRITABLE
from .copies import Clone, Replica, prepared
from .database import DATABASE
from .journal import Entry, Journal, read_journals
from .letters import Call
from .proxy import FaultyProxy
from .scenario import SETTINGS, TERMINATE
from .scenarios import SCENARIOS
from .table import append, read, table
from .verdict import Fault, Verdict, compare, recovery


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.crash
@pytest.mark.parametrize("store", sorted(find_bindirs()))
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_run_loses_nothing(name: str, store: str) -> None:
    kind = SCENARIOS[name]
    if not kind.is_possible():
        pytest.skip(f"{name} needs {kind.requirement}")
    verdict = kind(store, 20).run(kind.rounds)
    assert verdict.is_clean, (verdict, verdict.examples)


@contextmanager
def replicated() -> Iterator[tuple[Server, Replica]]:
    """Yield a server with the database of a run, and its standby, for which each commit waits."""
    with ExitStack() as stack:
        server = Clone(prepared("embedded"), SETTINGS)
        stack.callback(server.close)
        server.start()
        replica = Replica(server)
        stack.callback(replica.close)
        replica.follow()
        yield server, replica


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.crash
def test_a_client_of_all_hosts_finds_the_promoted_standby() -> None:
    with replicated() as (server, replica):
        login, hosts = f"{USER}:{server.password}", f"127.0.0.1:{server.port},127.0.0.1:{replica.port}"
        with MessageQueue(f"postgresql://{login}@{hosts}/{DATABASE}?{WRITABLE}") as queue:
            queue.enqueue_message("acme", b"before", key="before")
            server.crash()
            with pytest.raises((StoreUnreachable, CommitInDoubt)):
                queue.enqueue_message("acme", b"after", key="after")
            with pytest.raises(StoreUnreachable, match="none of its servers accepts writes"):
                queue.enqueue_message("acme", b"after", key="after")
            replica.promote()
            for name in ("before", "after"):
                queue.enqueue_message("acme", name.encode(), key=name)
            assert queue.footprint("acme").count == 2


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.crash
def test_a_name_that_leads_to_a_standby_for_a_moment_ends_neither_sender_nor_worker() -> None:
    with replicated() as (server, replica), closing(FaultyProxy(server.port)) as name:
        uri, seen = server.uri(DATABASE), Queue[bytes]()

        def move(port: int) -> None:
            name.port = port
            with psycopg.connect(uri, autocommit=True) as admin:
                admin.execute(TERMINATE, (DATABASE, 100))

        def work() -> None:
            with MessageQueue(named) as queue:
                queue.service_forever(lambda delivery: seen.put(delivery.payload), stop=stop)

        named, stop = uri.replace(f":{server.port}/", f":{name.own_port}/"), threading.Event()
        worker = threading.Thread(target=work, daemon=True)
        with MessageQueue(named) as sender:
            sender.enqueue_message("acme", b"first")
            worker.start()
            assert seen.get(timeout=60) == b"first"
            while sender.footprint("acme").count:
                time.sleep(0.1)
            # The worker's call ends.
            time.sleep(1)
            move(replica.port)
            with pytest.raises((StoreUnreachable, CommitInDoubt)):
                sender.enqueue_message("acme", b"second")
            with pytest.raises(StoreReadOnly):
                sender.enqueue_message("acme", b"second")
            with MessageQueue(uri) as other:
                other.enqueue_message("acme", b"third")
            # The worker finds the message on the standby, and cannot take it there.
            time.sleep(3)
            assert worker.is_alive()
            name.port = server.port
            sender.enqueue_message("acme", b"second")
            assert {seen.get(timeout=60), seen.get(timeout=60)} == {b"second", b"third"}
            stop.set()
            worker.join(60)


def test_a_journal_keeps_whole_lines(tmp_path: Path) -> None:
    call = Call(1, 7, "many", "acme", 2)
    Journal(tmp_path, "sender-1").write("intent", sender=1, number=7, way="many", origin="acme", parts=2)
    Journal(tmp_path, "sender-0").write("started")
    intent, started = read_journals(tmp_path)
    assert (intent.client, Call.of(intent), started.kind) == ("sender-1", call, "started")
    assert [letter.key for letter in call.letters] == ["1-7-0", "1-7-1"]


def test_recovery_waits_for_each_kind_of_progress(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "sender-0")
    fault = Fault("fault", time.monotonic(), time.monotonic())
    journal.write("progress", of="send")
    assert recovery(journal.entries(), [fault]) == 0.0
    before = Fault("before", 0.0, journal.entries()[0].at - 5)
    assert recovery(journal.entries(), [before]) == 5.0
    after = Fault("after", 0.0, time.monotonic())
    assert recovery(journal.entries(), [after]) is None


def test_the_verdict_counts_what_is_wrong() -> None:
    calls = [Call(1, number, "key", "acme", 1) for number in range(4)]
    entries = [Entry(0.0, kind, "sender-1", asdict(call)) for call in calls for kind in ("intent", "accepted")]
    # The first message ends twice, the second is stored twice and behind the third, and the fourth is lost.
    places = [(0, 0), (0, 0), (1, 2), (2, 1), (3, 1)]
    events = [
        Event("Processed", Fate.PROCESSED, "acme", page, 0, message_id(calls[number].letters[0].payload))
        for page, number in places
    ]
    verdict = Verdict()
    compare(verdict, entries, events, set())
    assert (verdict.accepted, verdict.lost, verdict.settled_twice) == (4, 1, 1)
    assert (verdict.stored_twice, verdict.order_broken, verdict.is_clean) == (1, 1, False)


def test_forgotten_acknowledgements_do_not_count() -> None:
    call = Call(1, 0, "key", "acme", 1)
    entries = [Entry(5.0, kind, "sender-1", asdict(call)) for kind in ("intent", "accepted")]
    verdict = Verdict()
    compare(verdict, entries, [], set(), forgotten=(4.0, 6.0))
    assert (verdict.accepted, verdict.lost) == (0, 0)


def test_order_counts_transferred_messages_where_they_left() -> None:
    calls = [Call(1, number, "key", "acme", 1) for number in range(2)]
    entries = [Entry(0.0, "intent", "sender-1", asdict(call)) for call in calls]
    first, second = (message_id(call.letters[0].payload) for call in calls)
    fates = [
        ("acme", 0, Fate.PROCESSED, second),
        ("acme", 1, Fate.TRANSFERRED, first),
        ("archive", 0, Fate.PROCESSED, first),
    ]
    events = [Event(fate.name, fate, origin, 0, index, identity) for origin, index, fate, identity in fates]
    verdict = Verdict()
    compare(verdict, entries, events, set())
    assert (verdict.order_broken, verdict.stored_twice) == (1, 0)


def test_rows_sum_the_runs_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "build" / "runs.jsonl"
    for recovered_in in (1.0, 4.0, 2.0):
        verdict = Verdict(accepted=500, recovered_in=recovered_in, recoveries=[0.5, recovered_in])
        append(path, "disk-full", "embedded", 18, 3, verdict)
    append(path, "failover", "system", 15, 3, Verdict(accepted=5, lost=1, recovered_in=None))
    _, _, full, failover = table(read(path)).splitlines()
    assert full.endswith("| 18 | 3 | 6 | 1,500 | 0 | 0 | 0.8 s, 4.0 s | `--scenario disk-full --store embedded` |")
    assert failover.endswith("| 15 | 1 | 0 | 5 | 1 | 0 | never | `--scenario failover --store system` |")
