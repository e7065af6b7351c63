"""The view and its tokens: one message at a time, on lease, and never a wait."""

from __future__ import annotations

import sqlite3
import threading
import time
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from airflow_mq import Done, MessageQueue, Yield
from airflow_mq.core.errors import InvalidInput, RecursiveDisallowed, TokenRefused, UnknownBlock
from airflow_mq.queue import ReferenceToken
from airflow_mq.queue.session import holder_name
from tests.model.clock import Clock
from tests.queue.conftest import Maker, serve, told
from tests.waiting import eventually


def taken(token: ReferenceToken | None) -> bytes:
    assert token is not None
    return token.fetch()


def test_over_one_origin_first_in_is_first_out(queue: MessageQueue) -> None:
    queue.enqueue_messages("a", [b"1", b"2", b"3"])
    queue.enqueue_message("b", b"other")
    view = queue.leases.view("a")
    seen = []
    for token in view:
        seen.append(token.fetch())
        assert view.try_next() is None, "an ordered origin gives its next when the one before is completed"
        token.complete()
        assert queue.check() == []
    assert seen == [b"1", b"2", b"3"]
    assert queue.footprint("a").count == 0 and queue.footprint("b").count == 1
    assert told(queue) == [("Processed", "a", 0, item) for item in range(3)]


def test_over_the_ring_each_origin_gives_one_in_turn(make_queue: Maker) -> None:
    queue = make_queue(ordered=False)
    for origin in "abc":
        queue.enqueue_messages(origin, [f"{origin}{n}".encode() for n in range(3)])
    assert [taken(queue.leases.next()) for _ in range(9)] == [
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


def test_the_turn_is_kept_in_the_store(make_queue: Maker) -> None:
    one, two = make_queue(), make_queue()
    for origin in "abc":
        one.enqueue_messages(origin, [f"{origin}{n}".encode() for n in range(2)])
    for queue in (one, two, one):
        token = queue.leases.next()
        assert token is not None
        token.complete()
    assert [taken(two.leases.next()) for _ in range(3)] == [b"a1", b"b1", b"c1"]


def test_an_ordered_origin_waits_and_a_paused_one_gives_nothing(queue: MessageQueue) -> None:
    queue.enqueue_messages([("a", b"a0"), ("a", b"a1"), ("b", b"b0"), ("c", b"c0")])
    queue.admin.pause("b")
    first = queue.leases.next()
    assert taken(first) == b"a0" and taken(queue.leases.next()) == b"c0" and queue.leases.next() is None
    assert queue.leases.view("b").try_next() is None
    queue.admin.resume("b")
    assert taken(queue.leases.next()) == b"b0"
    assert first is not None
    first.give_back()
    again = queue.leases.next()
    assert taken(again) == b"a0" and queue.inspect.peek("a")[0].attempts == 1
    assert queue.leases.view("nobody").try_next() is None


def test_high_messages_come_first(make_queue: Maker) -> None:
    queue, other = make_queue(ordered=False), make_queue()
    for origin in "ab":
        queue.enqueue_messages(origin, [f"{origin}{n}".encode() for n in range(2)])
        queue.enqueue_message(origin, f"{origin} now".encode(), priority="high")
    assert taken(queue.leases.view("b").try_next()) == b"b now"
    token = queue.leases.next()
    assert taken(token) == b"a now" and token is not None and token.address.priority == "high"
    assert queue.leases.token(str(token)) == token
    again = other.leases.token(str(token))
    assert again.fetch() == b"a now" and again.headers == {}
    again.complete()
    assert [taken(queue.leases.next()) for _ in range(4)] == [b"a0", b"b0", b"a1", b"b1"]
    assert told(queue) == [("Processed", "a", 0, 0)]


def test_paused_groups_give_nothing(make_queue: Maker) -> None:
    queue = make_queue(paths=True)
    queue.enqueue_messages([("acme/a", b"1"), ("acme/b", b"2"), ("birch/a", b"3")])
    queue.admin.pause("acme", below=True)
    assert taken(queue.leases.next()) == b"3"
    assert queue.leases.next() is None and queue.leases.view("acme/a").try_next() is None


def test_blocks_and_services_leave_what_is_on_lease(make_queue: Maker) -> None:
    queue = make_queue(ordered=False)
    queue.enqueue_messages("a", [b"0", b"1", b"2"])
    token = queue.leases.next()
    block = queue.blocks.plan()
    assert [payload for batch in block.batches() for payload in batch.payloads] == [b"1", b"2"]
    assert queue.leases.view("a").try_next() is None
    queue.blocks.release(block)
    assert taken(token) == b"0"
    strict = make_queue("strict")
    strict.enqueue_messages("a", [b"0", b"1"])
    assert taken(strict.leases.next()) == b"0"
    assert serve(strict) == [] and strict.blocks.plan().messages == 0


def test_a_token_travels_as_text(make_queue: Maker) -> None:
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
    with pytest.raises(InvalidInput, match="have the queue read it"):
        ReferenceToken.parse(text).fetch()


@pytest.mark.parametrize("text", ["", "a/b", "test/zz/a:0:0", f"test/{'0' * 32}/a", f"test/{'0' * 31}/a:0:0"])
def test_text_that_is_no_token(queue: MessageQueue, text: str) -> None:
    with pytest.raises(InvalidInput):
        queue.leases.token(text)


def test_tokens_of_others_are_refused(make_queue: Maker) -> None:
    queue = make_queue()
    queue.enqueue_messages("a", [b"1", b"2"])
    token = queue.leases.next()
    assert token is not None
    with pytest.raises(InvalidInput, match="is of ring 'test'"):
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
    with pytest.raises(InvalidInput, match="twice"):
        queue.leases.complete([token, str(token)])
    queue.leases.complete([token])
    assert queue.footprint("a").count == 1


def test_a_block_of_many_is_no_token(queue: MessageQueue) -> None:
    queue.enqueue_messages("a", [b"1", b"2"])
    block = queue.blocks.plan()
    token = queue.leases.token(f"test/{block.token}/a:0:0")
    for use in (token.fetch, token.complete):
        with pytest.raises((InvalidInput, TokenRefused), match="not that of"):
            use()
    assert queue.blocks.get(block.token).state == "planned" and queue.blocks.reported(block) == {}


def test_a_late_holder_changes_nothing(queue: MessageQueue) -> None:
    queue.enqueue_message("a", b"1")
    late = queue.leases.view("a", lease=0.0).try_next()
    assert late is not None
    for use in (late.fetch, late.complete, late.give_back, late.renew):
        with pytest.raises(TokenRefused, match="past its deadline|is released"):
            use()
    again = queue.leases.view("a").try_next()
    assert taken(again) == b"1" and queue.inspect.peek("a")[0].attempts == 1
    with pytest.raises(TokenRefused, match="released"):
        late.complete()
    assert again is not None
    assert again.renew(60) - again.renew(30) > timedelta(seconds=25)
    again.complete()
    with pytest.raises(TokenRefused):
        again.complete()
    with pytest.raises(TokenRefused):
        again.give_back()
    assert told(queue) == [("WentBack", "a", 0, 0), ("Processed", "a", 0, 0)]


def test_what_came_of_it_may_be_more(queue: MessageQueue) -> None:
    queue.enqueue_messages("a", [b"1"])
    token = queue.leases.next()
    assert token is not None
    token.complete(Yield("not now"))
    assert told(queue) == [("WentBack", "a", 0, 0)]
    assert taken(queue.leases.next()) == b"1"


def test_expired_messages_are_not_given(queue: MessageQueue) -> None:
    queue.enqueue_messages("a", [b"old 1", b"old 2"], expires=0)
    queue.enqueue_message("a", b"new")
    queue.enqueue_messages("b", [b"old"], expires=0)
    token = queue.leases.view("a").try_next()
    assert taken(token) == b"new"
    assert token is not None
    token.complete()
    assert queue.leases.view("b").try_next() is None
    assert [name for name, *_ in told(queue)] == ["Expired", "Expired", "Processed"]


def test_over_many_pages(make_queue: Maker) -> None:
    queue = make_queue(heap_size=64)
    payloads = [b"%020d" % number for number in range(20)]
    queue.enqueue_messages("a", payloads)
    seen = []
    for token in queue.leases.view("a"):
        seen.append(token.fetch())
        token.complete()
    assert seen == payloads and queue.footprint("a").pages == 0


def test_nothing_is_given_where_somebody_holds_the_ring(make_queue: Maker) -> None:
    # Whoever waits here does so for longer than any machine takes.
    queue = make_queue(order="rotation", patience=120)
    queue.enqueue_messages([("a", b"1"), ("b", b"2")])
    token = queue.leases.next()
    view = queue.leases.view()
    began = time.monotonic()
    with queue.store.writing() as unit:
        unit.lock(queue.session.ring_id)
        found: list[object] = []
        # On a connection of its own: what waited here would wait for this very thread.
        looker = threading.Thread(target=lambda: found.extend([view.try_next(), len(view), queue.leases.next()]))
        looker.start()
        looker.join(60)
        assert not looker.is_alive() and found == [None, 2, None]
    with queue.store.writing() as unit:
        until = unit.now() + 60_000_000
        unit.run(
            "take_lease", ring=queue.session.ring_id, token=b"t" * 16, until=until, holder=holder_name("serviced", "x")
        )
    assert view.try_next() is None
    assert token is not None
    token.complete()
    assert queue.footprint("a").count == 0, "reported at once, though nobody could settle it"
    with queue.store.writing() as unit:
        unit.run("drop_lease", ring=queue.session.ring_id, token=b"t" * 16)
    assert taken(view.try_next()) == b"2"
    assert time.monotonic() - began < 60


@pytest.mark.postgres
def test_nobody_waits_for_a_completion_that_is_not_committed(pg_uri: str, clock: Clock) -> None:
    """A block that somebody is completing in a long transaction is passed by, and settled once that is committed.

    (On SQLite a transaction that writes is the only one.)
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
        assert taken(queue.leases.next()) == b"2"
        assert queue.blocks.plan().messages == 0
        assert time.monotonic() - began < 60
    assert queue.admin.housekeep() == 1
    assert told(queue, origin="a") == [("Processed", "a", 0, 0)]
    assert queue.check() == []
    queue.close()


def test_a_service_in_place_lets_blocks_and_what_is_on_lease_be(queue: MessageQueue, clock: Clock) -> None:
    queue.enqueue_messages([("a", b"1"), ("b", b"2")])
    token, block = queue.leases.view("a").try_next(), queue.blocks.plan(lease=1)
    assert token is not None and block.messages == 1
    clock.advance(2)
    assert serve(queue) == [] and told(queue) == []
    assert token.fetch() == b"1" and queue.blocks.get(block.token).state == "planned"


@pytest.mark.parametrize("settler", ["plan", "view", "service", "housekeep"])
def test_a_completion_is_settled_by_whoever_comes_next(queue: MessageQueue, settler: str) -> None:
    queue.enqueue_messages([("a", b"1"), ("a", b"2")])
    token = queue.leases.next()
    assert token is not None
    with queue.store.writing() as unit:
        queue.leases.complete_in(unit, token, Done())
    assert queue.footprint("a").count == 1 and queue.inspect.peek("a")[0].state == "reported"
    if settler == "plan":
        assert queue.blocks.plan().messages == 1
    elif settler == "view":
        assert taken(queue.leases.next()) == b"2"
    elif settler == "service":
        # It finds the queue in flight, and settles what it passes by.
        assert serve(queue) == []
    else:
        assert queue.admin.housekeep() == 1
    assert told(queue) == [("Processed", "a", 0, 0)]


def test_not_from_within_a_processor(queue: MessageQueue) -> None:
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


def test_many_at_once_each_get_their_own(make_queue: Maker) -> None:
    queue = make_queue(ordered=False)
    for origin in "abcd":
        queue.enqueue_messages(origin, [f"{origin}{n}".encode() for n in range(15)])
    seen: list[bytes] = []

    def work() -> None:
        with MessageQueue(make_queue.uri, "test") as mine:
            until = time.monotonic() + 60
            while len(seen) < 60 and time.monotonic() < until:
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
    assert len(queue) == 0 and queue  # a queue is a queue, also an empty one


def test_a_file_that_somebody_writes_is_not_waited_for(tmp_path: Path) -> None:
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
    assert taken(queue.leases.next()) == b"1"
    queue.close()
