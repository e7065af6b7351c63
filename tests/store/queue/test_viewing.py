"""Views and reference tokens: one leased message at a time, without waiting."""

from __future__ import annotations

import sqlite3
import threading
import time
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from airflow_mq import Done, MessageQueue, Yield
from airflow_mq.engine.queue.holding import holder_name
from airflow_mq.engine.queue.tokens import ReferenceToken, complete_in
from airflow_mq.engine.rules.errors import (
    InvalidInput,
    RecursiveDisallowed,
    StoreUnreachable,
    TokenRefused,
    UnknownBlock,
)
from tests.proofs.model.clock import Clock
from tests.store.queue.conftest import Maker, logged_events, serve
from tests.waiting import eventually


def fetch(token: ReferenceToken | None) -> bytes:
    assert token is not None
    return token.fetch()


def test_view_of_an_origin_is_first_in_first_out(queue: MessageQueue) -> None:
    queue.enqueue_messages("a", [b"1", b"2", b"3"])
    queue.enqueue_message("b", b"other")
    view = queue.leases.view("a")
    seen = []
    for token in view:
        seen.append(token.fetch())
        assert view.try_next() is None, "an ordered origin yields its next message after the previous one is completed"
        token.complete()
        assert queue.check() == []
    assert seen == [b"1", b"2", b"3"]
    assert queue.footprint("a").count == 0 and queue.footprint("b").count == 1
    assert logged_events(queue) == [("Processed", "a", 0, item) for item in range(3)]


def test_view_of_the_ring_takes_origins_in_turn(make_queue: Maker) -> None:
    queue = make_queue(ordered=False)
    for origin in "abc":
        queue.enqueue_messages(origin, [f"{origin}{n}".encode() for n in range(3)])
    assert [fetch(queue.leases.next()) for _ in range(9)] == [
        b"a0",
        b"b0",
        b"c0",
        b"a1",
        b"b1",
        b"c1",
        b"a2",
        b"b2",
        b"c2",
    ]
    assert queue.leases.next() is None
    assert len(queue) == len(queue.leases.view()) == 9 and len(queue.leases.view("a")) == 3
    assert queue.inspect.ring_order() == ["a", "b", "c"]


def test_turn_is_stored(make_queue: Maker) -> None:
    first, second = make_queue(), make_queue()
    for origin in "abc":
        first.enqueue_messages(origin, [f"{origin}{n}".encode() for n in range(2)])
    for queue in (first, second, first):
        token = queue.leases.next()
        assert token is not None
        token.complete()
    assert [fetch(second.leases.next()) for _ in range(3)] == [b"a1", b"b1", b"c1"]


def test_leased_and_paused_origins_yield_nothing(queue: MessageQueue) -> None:
    queue.enqueue_messages([("a", b"a0"), ("a", b"a1"), ("b", b"b0"), ("c", b"c0")])
    queue.admin.pause("b")
    first = queue.leases.next()
    assert fetch(first) == b"a0" and fetch(queue.leases.next()) == b"c0" and queue.leases.next() is None
    assert queue.leases.view("b").try_next() is None
    queue.admin.resume("b")
    assert fetch(queue.leases.next()) == b"b0"
    assert first is not None
    first.give_back()
    again = queue.leases.next()
    assert fetch(again) == b"a0" and queue.inspect.peek("a")[0].attempts == 1
    assert queue.leases.view("nobody").try_next() is None


def test_view_yields_high_messages_first(make_queue: Maker) -> None:
    queue, other = make_queue(ordered=False), make_queue()
    for origin in "ab":
        queue.enqueue_messages(origin, [f"{origin}{n}".encode() for n in range(2)])
        queue.enqueue_message(origin, f"{origin} now".encode(), priority="high")
    assert fetch(queue.leases.view("b").try_next()) == b"b now"
    token = queue.leases.next()
    assert fetch(token) == b"a now" and token is not None and token.address.priority == "high"
    assert queue.leases.token(str(token)) == token
    again = other.leases.token(str(token))
    assert again.fetch() == b"a now" and again.headers == {}
    again.complete()
    assert [fetch(queue.leases.next()) for _ in range(4)] == [b"a0", b"b0", b"a1", b"b1"]
    assert logged_events(queue) == [("Processed", "a", 0, 0)]


def test_paused_groups_yield_nothing(make_queue: Maker) -> None:
    queue = make_queue(paths=True)
    queue.enqueue_messages([("acme/a", b"1"), ("acme/b", b"2"), ("birch/a", b"3")])
    queue.admin.pause("acme", below=True)
    assert fetch(queue.leases.next()) == b"3"
    assert queue.leases.next() is None and queue.leases.view("acme/a").try_next() is None


def test_blocks_and_services_skip_leased_messages(make_queue: Maker) -> None:
    queue = make_queue(ordered=False)
    queue.enqueue_messages("a", [b"0", b"1", b"2"])
    token = queue.leases.next()
    block = queue.blocks.plan()
    assert [payload for batch in block.batches() for payload in batch.payloads] == [b"1", b"2"]
    assert queue.leases.view("a").try_next() is None
    queue.blocks.release(block)
    assert fetch(token) == b"0"
    strict = make_queue("strict")
    strict.enqueue_messages("a", [b"0", b"1"])
    assert fetch(strict.leases.next()) == b"0"
    assert serve(strict) == [] and strict.blocks.plan().messages == 0


def test_token_round_trips_as_text(make_queue: Maker) -> None:
    here, there = make_queue(), make_queue()
    here.enqueue_messages("a: b/ü", [b"1"], headers={"trace": "7"})
    text = str(here.leases.next())
    token = there.leases.token(text)
    assert token.fetch() == b"1" and token.headers == {"trace": "7"}
    assert str(token) == text and token == ReferenceToken.parse(text) == here.leases.token(token)
    assert token.secret not in repr(token)
    token.complete()
    with pytest.raises(TokenRefused, match="too late|was settled|is released"):
        here.leases.token(text).fetch()
    with pytest.raises(InvalidInput, match="queue.leases.token"):
        ReferenceToken.parse(text).fetch()


@pytest.mark.parametrize("text", ["", "a/b", "test/zz/a:0:0", f"test/{'0' * 32}/a", f"test/{'0' * 31}/a:0:0"])
def test_invalid_token_text_is_rejected(queue: MessageQueue, text: str) -> None:
    with pytest.raises(InvalidInput):
        queue.leases.token(text)


def test_foreign_tokens_are_rejected(make_queue: Maker) -> None:
    queue = make_queue()
    queue.enqueue_messages("a", [b"1", b"2"])
    token = queue.leases.next()
    assert token is not None
    with pytest.raises(InvalidInput, match="token of ring 'test'"):
        make_queue("other").leases.token(str(token))
    unknown = queue.leases.token(f"test/{'0' * 32}/a:0:0")
    for use in (unknown.fetch, unknown.complete, unknown.give_back, unknown.renew):
        with pytest.raises(UnknownBlock):
            use()
    wrong = queue.leases.token(f"test/{token.secret}/a:0:1")
    with pytest.raises(TokenRefused, match="not that of"):
        wrong.fetch()
    with pytest.raises(InvalidInput, match="not that of"):
        wrong.complete()
    block = queue.leases.token(f"test/{queue.blocks.list()[0].token}/a:0:0")
    assert block.fetch() == b"1"
    with pytest.raises(InvalidInput, match="duplicate token"):
        queue.leases.complete([token, str(token)])
    queue.leases.complete([token])
    assert queue.footprint("a").count == 1


def test_token_of_a_larger_block_is_rejected(queue: MessageQueue) -> None:
    queue.enqueue_messages("a", [b"1", b"2"])
    block = queue.blocks.plan()
    token = queue.leases.token(f"test/{block.token}/a:0:0")
    for use in (token.fetch, token.complete):
        with pytest.raises((InvalidInput, TokenRefused), match="not that of"):
            use()
    assert queue.blocks.get(block.token).state == "planned" and queue.blocks.reported(block) == {}


def test_expired_token_changes_nothing(queue: MessageQueue) -> None:
    queue.enqueue_message("a", b"1")
    late = queue.leases.view("a", lease=0.0).try_next()
    assert late is not None
    for use in (late.fetch, late.complete, late.give_back, late.renew):
        with pytest.raises(TokenRefused, match="past its deadline|is released"):
            use()
    again = queue.leases.view("a").try_next()
    assert fetch(again) == b"1" and queue.inspect.peek("a")[0].attempts == 1
    with pytest.raises(TokenRefused, match="released"):
        late.complete()
    assert again is not None
    assert again.renew(3600) - again.renew() == timedelta(0), "a renewal never moves a deadline back"
    again.complete()
    with pytest.raises(TokenRefused):
        again.complete()
    with pytest.raises(TokenRefused):
        again.give_back()
    assert logged_events(queue) == [("Returned", "a", 0, 0), ("Processed", "a", 0, 0)]


def test_completed_lease_stays_completed_if_the_clock_is_set_back(queue: MessageQueue) -> None:
    """A transaction that read the clock before another one completed the lease sees the same."""
    queue.enqueue_message("a", b"once")
    token = queue.leases.next()
    assert token is not None
    secret, ring = bytes.fromhex(token.secret), queue.session.ring_id
    with queue.store.writing() as unit:
        now = unit.now()
        assert unit.blocks.close(ring, secret, now)
        for earlier in (now - 1, now - 3_600_000_000):
            assert not unit.blocks.close(ring, secret, earlier)
            assert unit.blocks.renew(ring, secret, 60.0, earlier) is None
            assert not unit.blocks.report(ring, secret, b"[]", b"", earlier)
    (block,) = queue.blocks.list("planned")
    assert block.deadline == block.planned_at


@pytest.mark.parametrize("end", ["complete", "give_back", "transfer"])
def test_an_outage_behind_the_commit_of_many_tokens_is_met_once(queue: MessageQueue, end: str) -> None:
    queue.enqueue_messages([(origin, b"1") for origin in "abcd"])
    tokens, seen = [queue.leases.next() for _ in "abcd"], list[str]()

    def lose(what: str) -> None:
        seen.append(what)
        if "committed" in seen[:-1]:
            raise StoreUnreachable

    queue.store.probe = lose
    getattr(queue.leases, end)(tokens, *["to"] * (end == "transfer"))
    queue.store.probe = None
    assert len(seen) - seen.index("committed") == 2


@pytest.mark.parametrize("end", ["complete", "give_back", "transfer"])
def test_an_outage_behind_the_commit_of_a_token_is_no_error(queue: MessageQueue, end: str) -> None:
    """Its text, that nothing was changed, would be wrong."""
    queue.enqueue_message("a", b"1")
    token = queue.leases.next()
    assert token is not None
    done: list[str] = []

    def lose(name: str) -> None:
        if done:
            raise StoreUnreachable
        done.extend([name] * (name == "committed"))

    queue.store.probe = lose
    getattr(queue.leases, end)(token, **({"to": "b"} if end == "transfer" else {}))
    queue.store.probe = None
    queue.blocks.release_dead()
    fates = {"complete": "Processed", "give_back": "Returned", "transfer": "Transferred"}
    assert logged_events(queue) == [(fates[end], "a", 0, 0)]
    assert queue.footprint("b").count == (end == "transfer")


def test_complete_accepts_an_outcome(queue: MessageQueue) -> None:
    queue.enqueue_messages("a", [b"1"])
    token = queue.leases.next()
    assert token is not None
    token.complete(Yield("not now"))
    assert logged_events(queue) == [("Returned", "a", 0, 0)]
    assert fetch(queue.leases.next()) == b"1"


def test_view_drops_expired_messages(queue: MessageQueue) -> None:
    queue.enqueue_messages("a", [b"old 1", b"old 2"], expires=0)
    queue.enqueue_message("a", b"new")
    queue.enqueue_messages("b", [b"old"], expires=0)
    token = queue.leases.view("a").try_next()
    assert fetch(token) == b"new"
    assert token is not None
    token.complete()
    assert queue.leases.view("b").try_next() is None
    assert [name for name, *_ in logged_events(queue)] == ["Expired", "Expired", "Processed", "Expired"]
    assert queue.footprint("b").count == 0


@pytest.mark.parametrize("due", [None, -5.0])
def test_view_drops_expired_messages_of_other_queues_at_once(queue: MessageQueue, due: float | None) -> None:
    queue.enqueue_message("a", b"old", not_before=due, expires=0)
    queue.admin.force_set_head("nobody")  # what is due joins its queue
    queue.enqueue_message("b", b"new")
    assert fetch(queue.leases.next()) == b"new"
    assert queue.inspect.peek("a") == [], "it is not in flight in a block past its deadline"
    assert logged_events(queue) == [("Expired", "a", 0, 0)]


def test_view_reads_many_pages(make_queue: Maker) -> None:
    queue = make_queue(heap_size=64)
    payloads = [b"%020d" % number for number in range(20)]
    queue.enqueue_messages("a", payloads)
    seen = []
    for token in queue.leases.view("a"):
        seen.append(token.fetch())
        token.complete()
    assert seen == payloads and queue.footprint("a").pages == 0


def test_view_yields_nothing_while_the_ring_is_locked(make_queue: Maker) -> None:
    # A call that waits would wait longer than the test takes.
    queue = make_queue(order="rotation", patience=120)
    queue.enqueue_messages([("a", b"1"), ("b", b"2")])
    token = queue.leases.next()
    view = queue.leases.view()
    began = time.monotonic()
    with queue.store.writing() as unit:
        unit.lock(queue.session.ring_id)
        results: list[object] = []
        # Use another thread and connection: waiting here would be a deadlock.
        looker = threading.Thread(target=lambda: results.extend([view.try_next(), len(view), queue.leases.next()]))
        looker.start()
        looker.join(60)
        assert not looker.is_alive() and results == [None, 2, None]
    with queue.store.writing() as unit:
        until = unit.now() + 60_000_000
        unit.run(
            "take_lease", ring=queue.session.ring_id, token=b"t" * 16, until=until, holder=holder_name("serviced", "x")
        )
    assert view.try_next() is None
    assert token is not None
    token.complete()
    assert queue.footprint("a").count == 0, "reported at once, although the ring is locked"
    with queue.store.writing() as unit:
        unit.rings.drop_lease(queue.session.ring_id, b"t" * 16)
    assert fetch(view.try_next()) == b"2"
    assert time.monotonic() - began < 60


@pytest.mark.postgres
def test_uncommitted_completion_blocks_no_other_operation(pg_uri: str, clock: Clock) -> None:
    """A block in a long uncommitted completion is skipped, and settled after the commit.

    On SQLite, only one transaction writes at a time.
    """
    queue = Maker(pg_uri)(patience=120)
    queue.enqueue_messages([("a", b"1"), ("b", b"2")])
    token = queue.leases.view("a", lease=10).try_next()
    assert token is not None
    with psycopg.connect(queue.store.address.uri) as connection:
        queue.commands(connection).complete(token).execute()
        clock.advance(10)
        began = time.monotonic()
        assert queue.admin.housekeep() == 0
        assert fetch(queue.leases.next()) == b"2"
        assert queue.blocks.plan().messages == 0
        assert time.monotonic() - began < 60
    assert queue.admin.housekeep() == 1
    assert logged_events(queue, origin="a") == [("Processed", "a", 0, 0)]
    assert queue.check() == []
    queue.close()


def test_service_skips_blocks_and_leases(queue: MessageQueue, clock: Clock) -> None:
    queue.enqueue_messages([("a", b"1"), ("b", b"2")])
    token, block = queue.leases.view("a").try_next(), queue.blocks.plan(lease=1)
    assert token is not None and block.messages == 1
    clock.advance(2)
    assert serve(queue) == [] and logged_events(queue) == []
    assert token.fetch() == b"1" and queue.blocks.get(block.token).state == "planned"


@pytest.mark.parametrize("settler", ["plan", "view", "service", "housekeep"])
def test_next_operation_settles_a_completion(queue: MessageQueue, settler: str) -> None:
    queue.enqueue_messages([("a", b"1"), ("a", b"2")])
    token = queue.leases.next()
    assert token is not None
    with queue.store.writing() as unit:
        complete_in(unit, queue.session.ring_id, token, Done())
    assert queue.footprint("a").count == 1 and queue.inspect.peek("a")[0].state == "reported"
    if settler == "plan":
        assert queue.blocks.plan().messages == 1
    elif settler == "view":
        assert fetch(queue.leases.next()) == b"2"
    elif settler == "service":
        # The service finds the queue in flight, and settles the block that it skips.
        assert serve(queue) == []
    else:
        assert queue.admin.housekeep() == 1
    assert logged_events(queue) == [("Processed", "a", 0, 0)]


def test_leases_are_rejected_inside_a_processor(queue: MessageQueue) -> None:
    queue.enqueue_messages("a", [b"1", b"2"])
    raised: list[type[BaseException]] = []

    def processor(delivery: object) -> None:
        for use in (queue.leases.next, lambda: queue.leases.complete([])):
            try:
                use()
            except RecursiveDisallowed as error:
                raised.append(type(error))

    queue.service_queues(processor)
    assert raised == [RecursiveDisallowed] * 4


def test_concurrent_workers_get_different_messages(make_queue: Maker) -> None:
    queue = make_queue(ordered=False)
    for origin in "abcd":
        queue.enqueue_messages(origin, [f"{origin}{n}".encode() for n in range(15)])
    seen: list[bytes] = []

    def work() -> None:
        with MessageQueue(make_queue.uri, "test") as mine:
            deadline = time.monotonic() + 60
            while len(seen) < 60 and time.monotonic() < deadline:
                token = mine.leases.next()
                if token is None:
                    time.sleep(0.002)
                    continue
                seen.append(token.fetch())
                token.complete()

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(seen) == sorted(f"{origin}{n}".encode() for origin in "abcd" for n in range(15))
    eventually(lambda: queue.admin.housekeep() == 0)
    assert len(queue) == 0 and queue  # an empty queue is true


def test_view_does_not_wait_for_a_locked_file(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    queue = Maker(f"sqlite:///{path}")(patience=120)
    queue.enqueue_message("a", b"1")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    assert queue.leases.next() is None and len(queue) == 1
    assert time.monotonic() - began < 60
    other.execute("ROLLBACK")
    other.close()
    assert fetch(queue.leases.next()) == b"1"
    queue.close()


def test_a_window_with_many_gone_pages_is_one_step(make_queue: Maker) -> None:
    queue = make_queue(heap_size=64, ordered=False)
    queue.enqueue_message("a", b"x" * 50)
    view = queue.leases.view("a")
    head = view.try_next()
    assert head is not None
    for _ in range(300):
        queue.enqueue_message("a", b"y" * 50)
        token = view.try_next()
        assert token is not None
        token.complete()
    # A page for each message that was taken behind the head; all are gone but that of the head.
    assert queue.footprint("a").pages == 1
    with queue.store.writing() as unit:
        unit.connection.execute(f"UPDATE {queue.store.prefix}book SET end_page = end_page + 3000000")
    queue.enqueue_messages("a", [b"z" * 50, b"last" * 12])
    queue.enqueue_message("b", b"of another origin")
    names: list[str] = []
    queue.store.probe = names.append
    token = view.try_next()
    assert fetch(token) == b"z" * 50 and token is not None
    queue.store.probe = None
    assert names.count("pages") < 10
    assert [message.payload[:1] for message in queue.inspect.peek("a")] == [b"x", b"z", b"l"]
    token.give_back()
    head.give_back()
    assert serve(queue) == [("a", b"x" * 50), ("a", b"z" * 50), ("a", b"last" * 12), ("b", b"of another origin")]
    assert queue.footprint("a").count == queue.footprint("a").ready_pages == 0
