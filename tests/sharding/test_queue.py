"""The sharded queue on each store: routing, order, keys, changes of the layout, and shards that are down."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace
from typing import TypeVar

import pytest

from airflow_mq import MessageQueue, RingConfig, ShardedQueue, Weight
from airflow_mq.core.errors import (
    ConfigRefused,
    InvalidInput,
    LayoutChanged,
    LayoutMissing,
    RecursiveDisallowed,
    ShardsFailed,
    ShardUnavailable,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnreachable,
)
from airflow_mq.queue import Delivery
from airflow_mq.sharding import members, router
from airflow_mq.sharding import queue as sharded
from airflow_mq.sharding.layout import owner_of
from airflow_mq.store import parse
from airflow_mq.store.store import Outgoing
from tests.crash.children import end_child, start_child
from tests.sharding.conftest import MakeStores

T = TypeVar("T")
ORIGINS = [f"o{number}" for number in range(20)]
#: Nothing listens on the discard port of this machine.
DOWN = "postgresql://mq:secret-word@127.0.0.1:9/db?connect_timeout=1"


@pytest.fixture
def stores(make_stores: MakeStores) -> dict[str, str]:
    return make_stores("abc")


@pytest.fixture
def queue(stores: dict[str, str]) -> Iterator[ShardedQueue]:
    with ShardedQueue(stores, busy_timeout=0.5) as queue:
        yield queue
        assert not any(queue.check().values())


@pytest.fixture
def patient(stores: dict[str, str]) -> Iterator[ShardedQueue]:
    """Yield a queue that waits for many senders: SQLite serves who asks at the right moment."""
    with ShardedQueue(stores, busy_timeout=60.0) as queue:
        yield queue
        assert not any(queue.check().values())


def served(queue: ShardedQueue, limit: Weight | None = None) -> dict[str, list[bytes]]:
    """Service all shards; return the payloads of each origin in order."""
    found: dict[str, list[bytes]] = defaultdict(list)
    queue.service_queues(lambda delivery: found[delivery.origin].append(delivery.payload), limit).all()
    return dict(found)


def leaving(queue: ShardedQueue, weights: dict[str, int]) -> str:
    """Fill all origins, change the layout, and return an origin that has another owner now."""
    queue.enqueue_messages((origin, b"old") for origin in ORIGINS)
    queue.apply(weights)
    return next(origin for origin in ORIGINS if queue.place(origin).pinned)


def test_each_origin_has_one_shard_and_its_order(queue: ShardedQueue) -> None:
    queue.apply({"a": 1, "b": 1, "c": 1})
    sent = queue.enqueue_messages((ORIGINS[number % 20], b"%d" % number) for number in range(200))
    queue.enqueue_message("o7", b"last")
    assert (sent.count, queue.footprint("o7").count) == (200, 11)
    for shard in queue.shards:
        for origin, _ in queue.shard(shard).footprints():
            assert queue.place(origin) == (shard, False)
    assert sum(backlog.messages for backlog in queue.backlog().all().values()) == 201
    expected = {f"o{start}": [b"%d" % number for number in range(start, 200, 20)] for start in range(20)}
    expected["o7"].append(b"last")
    assert served(queue) == expected


def test_a_call_to_more_origins_than_are_remembered_is_sent_at_once(
    queue: ShardedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router, "MOST_PLACES", len(ORIGINS) // 2)
    queue.apply({"a": 1, "b": 1, "c": 1})
    forgotten: list[list[str]] = []
    forget = router.Router.forget
    monkeypatch.setattr(router.Router, "forget", lambda self, origins: forgotten.append(forget(self, list(origins))))
    queue.enqueue_messages((origin, b"1") for origin in ORIGINS[:5])
    queue.enqueue_messages((origin, b"2") for origin in ORIGINS)
    assert forgotten == []
    assert served(queue) == {origin: [b"1", b"2"] if origin in ORIGINS[:5] else [b"2"] for origin in ORIGINS}


def test_nothing_is_sent_without_a_layout(queue: ShardedQueue) -> None:
    with pytest.raises(LayoutMissing, match="shards apply"):
        queue.enqueue_message("acme", b"x")


def test_a_new_shard_moves_no_message(queue: ShardedQueue, stores: dict[str, str]) -> None:
    queue.apply({"a": 1, "b": 1})
    queue.enqueue_messages((origin, b"1") for origin in ORIGINS)
    before = {shard: dict(queue.shard(shard).footprints()) for shard in "ab"}
    places = {origin: queue.place(origin).shard for origin in ORIGINS}

    layout = queue.apply({"a": 1, "b": 1, "c": 2})

    assert (layout.version, layout.former) == (2, ({"a": 1, "b": 1},))
    assert {shard: dict(queue.shard(shard).footprints()) for shard in "ab"} == before
    assert {origin: queue.place(origin).shard for origin in ORIGINS} == places
    queue.enqueue_messages((origin, b"2") for origin in ORIGINS)
    assert queue.shard("c").footprints() == []
    assert served(queue) == {origin: [b"1", b"2"] for origin in ORIGINS}

    assert sum(queue.drain().released.values()) == sum(layout.owner(origin) == "c" for origin in ORIGINS)
    assert queue.layout().former == ()
    assert {queue.place(origin) for origin in ORIGINS} == {("a", False), ("b", False), ("c", False)}


def test_a_sender_with_an_old_layout_follows(queue: ShardedQueue, stores: dict[str, str]) -> None:
    queue.apply({"a": 1})
    with ShardedQueue(stores, busy_timeout=2.0) as other:
        other.enqueue_messages((origin, b"1") for origin in ORIGINS)
        queue.apply({"a": 1, "b": 3})
        assert served(queue)
        queue.drain()
        other.enqueue_messages((origin, b"2") for origin in ORIGINS)
        other.enqueue_message("o0", b"3")
    assert {origin for origin, _ in queue.shard("b").footprints()} == {
        origin for origin in ORIGINS if queue.layout().owner(origin) == "b"
    }


@pytest.mark.parametrize("state", ["in flight", "set aside", "delayed", "high"])
def test_an_origin_stays_while_a_message_of_any_state_is_stored(queue: ShardedQueue, state: str) -> None:
    queue.apply({"a": 1})
    heavy = Weight(10**9, 1) if state == "set aside" else None
    delay = timedelta(hours=1) if state == "delayed" else None
    priority = "high" if state == "high" else None
    queue.enqueue_message("acme", b"x", weight=heavy, not_before=delay, priority=priority)
    shard = queue.shard("a")
    block = shard.blocks.plan() if state == "in flight" else None
    if state == "set aside":
        shard.blocks.settle(shard.blocks.plan())
    queue.apply({"a": 0, "b": 1})
    queue.drain()
    assert queue.place("acme") == ("a", True)
    if block is not None:
        shard.blocks.release(block)
        assert served(queue) == {"acme": [b"x"]}
        queue.drain()
        assert queue.place("acme") == ("b", False)


def test_a_key_counts_in_the_next_shard(queue: ShardedQueue) -> None:
    queue.apply({"a": 1})
    queue.enqueue_message("acme", b"x", key="k")
    served(queue)
    queue.apply({"a": 0, "b": 1})
    assert queue.enqueue_message("acme", b"x", key="k").repeated == 1
    assert queue.place("acme").pinned
    queue.everywhere(lambda shard: shard.admin.change_ring(key_window=0.001))
    queue.drain()
    assert queue.place("acme") == ("b", False)


def test_stores_with_messages_from_before_become_shards(queue: ShardedQueue, stores: dict[str, str]) -> None:
    with MessageQueue(stores["a"]) as plain:
        plain.enqueue_messages((origin, b"1") for origin in ORIGINS)
    queue.apply({"a": 1, "b": 1})
    queue.enqueue_messages((origin, b"2") for origin in ORIGINS)
    assert queue.shard("b").footprints() == []
    assert served(queue) == {origin: [b"1", b"2"] for origin in ORIGINS}
    queue.drain()
    assert {queue.place(origin).shard for origin in ORIGINS} == {"a", "b"}


def test_what_was_transferred_does_not_pin_its_origin(queue: ShardedQueue, stores: dict[str, str]) -> None:
    """A transfer stays in its shard. The destination's own messages in another shard decide where the next ones go."""
    queue.apply({"a": 1, "b": 1})
    giver, taker = (next(o for o in ORIGINS if queue.place(o).shard == shard) for shard in "ba")
    queue.enqueue_messages([(giver, b"handed on"), (taker, b"1")])
    with MessageQueue(stores["b"]) as plain:
        plain.leases.transfer(plain.leases.view(giver).try_next(), taker)
    queue.apply({"a": 0, "b": 0, "c": 1})
    assert queue.place(taker) == ("a", True)
    queue.enqueue_message(taker, b"2")
    assert queue.shard("a").footprint(taker).count == 2
    served(queue)


#: Layouts in turn, and what happens in each: a shard gets a transferred message of the origin, or a message is sent.
TRANSFERS = {
    "the owner gets it back": [("a", "send"), ("b", "transfer to b"), ("a", "")],
    "it is given back, and leaves again": [("a", "send"), ("b", "transfer to b"), ("a", "transfer to b"), ("c", "")],
    "it left without messages": [("a", ""), ("b", "transfer to a, send"), ("c", "")],
    "an owner for the second time": [("a", ""), ("b", "transfer to a, send"), ("a", ""), ("c", "")],
    "the next owner": [("a", "send"), ("b", "transfer to b"), ("c", "transfer to c"), ("b", ""), ("a", "")],
}


@pytest.mark.parametrize("is_alone", [True, False])
@pytest.mark.parametrize("steps", TRANSFERS.values(), ids=TRANSFERS.keys())
def test_several_changes_keep_an_origin_where_its_senders_sent(
    queue: ShardedQueue, stores: dict[str, str], steps: list[tuple[str, str]], is_alone: bool
) -> None:
    """A shard once pinned an origin for transferred messages, and won over the shard with the sender's messages."""
    for owner, doings in steps:
        queue.apply({owner: 1} if is_alone and owner == "a" and not queue_has_layout(queue) else _all_to(owner))
        if queue.layout().version == 1:
            # Another origin keeps the former layouts.
            queue.enqueue_message("stays", b"1")
        for doing in doings.split(", ") if doings else ():
            if doing == "send":
                queue.enqueue_message("acme", b"1")
                home = queue.place("acme").shard
            else:
                transfer(stores[doing[-1]], "acme")
    assert queue.place("acme").shard == home
    queue.enqueue_message("acme", b"2")
    found = {name: messages_of(queue, name, "acme") for name in queue.shards}
    assert found[home][-2:] == [b"1", b"2"]
    assert not {b"1", b"2"} & {payload for name, some in found.items() if name != home for payload in some}
    served(queue)
    queue.drain()
    assert queue.layout().former == ()
    assert queue.place("acme") == (steps[-1][0], False)


def queue_has_layout(queue: ShardedQueue) -> bool:
    return any(each.version for each in queue.status())


def _all_to(owner: str) -> dict[str, int]:
    return {name: int(name == owner) for name in "abc"}


def transfer(uri: str, taker: str) -> None:
    """Transfer a message to an origin, in one shard."""
    with MessageQueue(uri) as plain:
        plain.enqueue_message("giver", b"handed on")
        token = plain.leases.view("giver").try_next()
        assert token is not None
        plain.leases.transfer(token, taker)


def messages_of(queue: ShardedQueue, shard: str, origin: str) -> list[bytes]:
    return [peeked.payload for peeked in queue.shard(shard).inspect.peek(origin)]


def test_an_undone_change_leaves_no_origin_pinned(queue: ShardedQueue) -> None:
    queue.apply({"a": 1, "b": 0})
    queue.enqueue_messages((origin, b"1") for origin in ORIGINS)
    queue.apply({"a": 0, "b": 1})
    layout = queue.apply({"a": 1, "b": 0})
    assert layout.former == ()
    assert {queue.place(origin) for origin in ORIGINS} == {("a", False)}
    assert [each.pinned for each in queue.status()] == [0, 0, 0]
    queue.enqueue_messages((origin, b"2") for origin in ORIGINS)
    assert served(queue) == {origin: [b"1", b"2"] for origin in ORIGINS}


def test_status_and_drain_count_origins_that_leave(queue: ShardedQueue) -> None:
    """Pinned origins that the layout gave back do not count."""
    queue.apply({"a": 1, "b": 0})
    queue.enqueue_messages((origin, b"1") for origin in ORIGINS)
    queue.apply({"a": 0, "b": 1})
    queue.apply({"a": 1, "b": 1})
    leaving = sum(queue.layout().owner(origin) == "b" for origin in ORIGINS)
    assert 0 < leaving < len(ORIGINS)
    assert {each.name: each.pinned for each in queue.status()} == {"a": leaving, "b": 0, "c": 0}
    assert queue.drain().pinned == {"a": leaving, "b": 0, "c": 0}


def test_a_new_shard_gets_the_settings(queue: ShardedQueue) -> None:
    queue.apply({"a": 1})
    queue.everywhere(lambda shard: shard.admin.change_ring(max_attempts=7, ordered=True))
    queue.shard("a").admin.set_origin("acme", share=3, most=Weight(5, 5))
    queue.shard("a").admin.pause("late", "unpaid")
    queue.apply({"a": 1, "c": 1})
    added = queue.shard("c")
    assert added.session.config.max_attempts == 7
    settings = added.inspect.origin_settings("acme")
    assert (settings.share, settings.most, settings.ordered) == (3, Weight(5, 5), True)
    assert [(pause.origin, pause.reason) for pause in added.admin.paused()] == [("late", "unpaid")]


def test_a_new_shard_keeps_its_larger_pages(queue: ShardedQueue, stores: dict[str, str]) -> None:
    """Pages cannot shrink, so the smaller size of the other shards once kept every new shard out."""
    with MessageQueue(stores["a"]) as maker:
        maker.admin.create_ring("small", RingConfig(heap_size=1_000, max_attempts=7))
    with MessageQueue(stores["c"]) as maker:
        maker.admin.create_ring("small")
    with ShardedQueue({name: stores[name] for name in "ac"}, "small") as fleet:
        fleet.apply({"a": 1})
        fleet.apply({"a": 1, "c": 1})
        added = fleet.shard("c").config
        assert (added.max_attempts, added.heap_size) == (7, RingConfig().heap_size)


def test_a_forecast_of_shuffled_shards_takes_a_seed(queue: ShardedQueue) -> None:
    queue.apply({"a": 1, "b": 1})
    queue.everywhere(lambda shard: shard.admin.change_ring(order="shuffle"))
    queue.enqueue_messages((origin, b"1") for origin in ORIGINS)
    assert set(queue.forecast(1).missing) == {"a", "b", "c"}
    assert queue.forecast(1, seed=b"seed").is_complete


def test_a_shard_is_removed_once_it_is_empty(queue: ShardedQueue) -> None:
    queue.apply({"a": 1, "b": 1})
    queue.enqueue_messages((origin, b"1") for origin in ORIGINS)
    with pytest.raises(ConfigRefused, match="weight 0"):
        queue.apply({"a": 1})
    queue.apply({"a": 1, "b": 0})
    with pytest.raises(ConfigRefused, match="no origin is pinned"):
        queue.apply({"a": 1})
    served(queue)
    queue.drain()
    assert queue.apply({"a": 1}).shards == {"a": 1}
    with pytest.raises(LayoutChanged):
        queue.shard("b").enqueue_message("acme", b"x")


def test_an_interrupted_change_is_completed(queue: ShardedQueue, stores: dict[str, str]) -> None:
    queue.apply({"a": 1, "b": 1})
    queue.enqueue_messages((origin, b"1") for origin in ORIGINS)
    queue.shard("b").store.probe = _failing_at("adopt_layout")
    with pytest.raises(RuntimeError):
        queue.apply({"a": 1, "b": 1, "c": 1})
    queue.shard("b").store.probe = None
    with ShardedQueue(stores, busy_timeout=0.05) as other:
        with pytest.raises(ShardsFailed) as raised:
            other.enqueue_messages((origin, b"2") for origin in ORIGINS)
        assert {type(error) for error in raised.value.failed.values()} == {LayoutChanged}
        unsent = raised.value.unsent
        assert 0 < len(unsent) < len(ORIGINS)
        queue.apply({"a": 1, "b": 1, "c": 1})
        other.enqueue_messages(unsent)
    assert queue.layout().version == 2
    assert served(queue) == {origin: [b"1", b"2"] for origin in ORIGINS}


def test_a_change_that_was_overtaken_overwrites_no_newer_layout(queue: ShardedQueue, stores: dict[str, str]) -> None:
    queue.apply({"a": 1, "b": 1, "c": 1})
    reached = []

    def overtake(statement: str) -> None:
        if statement == "begin" and not reached and observer.layout().version == 2:
            reached.append(other.apply({"a": 1, "b": 1, "c": 3}).version)

    with ShardedQueue(stores) as other, ShardedQueue(stores) as observer:
        queue.shard("b").store.probe = overtake
        with pytest.raises(LayoutChanged):
            queue.apply({"a": 1, "b": 2, "c": 1})
        queue.shard("b").store.probe = None
        assert reached and {shard.version for shard in observer.status()} == set(reached)


def test_a_change_waits_for_a_send_in_progress_and_pins_its_origin(queue: ShardedQueue, stores: dict[str, str]) -> None:
    queue.apply({"a": 1})
    origin = next(origin for origin in ORIGINS if owner_of(origin, {"a": 1, "b": 8}) == "b")
    with ShardedQueue(stores, busy_timeout=30) as other, ThreadPoolExecutor(1) as threads:
        shard = queue.shard("a")
        ring = shard.session.ring_id
        with shard.store.writing() as unit:
            assert unit.shards.fence(ring) is not None
            change = threads.submit(other.apply, {"a": 1, "b": 8})
            with pytest.raises(TimeoutError):
                change.result(0.5)
            shard.store.send(unit, ring, [Outgoing(origin, 1, 1, False, b"", b"", b"1")])
        change.result()
    place = queue.place(origin)
    assert place.shard == "a" and place.pinned
    queue.enqueue_message(origin, b"2")
    assert served(queue) == {origin: [b"1", b"2"]}


def _failing_at(name: str, error: Exception | None = None) -> object:
    """Return a probe that fails at a statement, or, without a name, at every one."""

    def probe(statement: str) -> None:
        if name in ("", statement):
            raise error or RuntimeError(name)

    return probe


# A shard that is down.


@pytest.fixture
def one_down(stores: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[ShardedQueue]:
    """A queue whose shard `b` does not answer."""
    with ShardedQueue(stores) as queue:
        queue.apply({"a": 1, "b": 1, "c": 1})
    with ShardedQueue({**stores, "b": DOWN}) as queue:
        yield queue


def test_a_send_to_a_shard_that_is_down_names_it(one_down: ShardedQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "REST", 60.0)
    origin = next(origin for origin in ORIGINS if one_down.place(origin).shard == "b")
    with pytest.raises(
        ShardUnavailable, match=r"shard 'b' \(postgresql://mq@127.0.0.1:9/db\S*\) is unavailable"
    ) as raised:
        one_down.enqueue_message(origin, b"x")
    assert raised.value.shard == "b"
    assert "secret-word" not in f"{raised.value} {one_down.status()}"
    began = time.monotonic()
    with pytest.raises(ShardUnavailable):
        one_down.enqueue_messages(origin, [b"x"])
    assert time.monotonic() - began < members.REST


def test_the_other_shards_go_on(one_down: ShardedQueue) -> None:
    with pytest.raises(ShardsFailed) as raised:
        one_down.enqueue_messages((origin, b"1") for origin in ORIGINS)
    lost = {origin for origin in ORIGINS if one_down.place(origin).shard == "b"}
    assert {origin for origin, _ in raised.value.unsent} == lost
    assert list(raised.value.failed) == ["b"]
    one_down.enqueue_messages((origin, b"2") for origin in ORIGINS if origin not in lost)

    assert served_without(one_down, "b") == {origin: [b"1", b"2"] for origin in ORIGINS if origin not in lost}
    answers = one_down.queues()
    assert (sorted(answers.found), list(answers.missing), answers.is_complete) == (["a", "c"], ["b"], False)
    with pytest.raises(ShardsFailed):
        one_down.footprint("acme")
    status = {each.name: each for each in one_down.status()}
    assert (status["a"].version, status["b"].version) == (1, None)
    assert status["b"].error
    with pytest.raises(ShardsFailed):
        one_down.everywhere(lambda shard: shard.admin.pause("acme"))
    with pytest.raises(ShardsFailed):
        one_down.apply({"a": 1, "b": 1, "c": 2})


def served_without(queue: ShardedQueue, shard: str) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = defaultdict(list)
    answers = queue.service_queues(lambda delivery: found[delivery.origin].append(delivery.payload))
    assert list(answers.missing) == [shard]
    return dict(found)


def test_a_former_shard_that_is_down_holds_up_its_origins_only(queue: ShardedQueue, stores: dict[str, str]) -> None:
    queue.apply({"a": 1, "b": 1})
    moved = leaving(queue, {"a": 1, "b": 1, "c": 2})
    former = queue.place(moved).shard
    with ShardedQueue({**stores, former: DOWN}) as other:
        with pytest.raises(ShardUnavailable, match=repr(former)):
            other.enqueue_message(moved, b"2")
        up = [origin for origin in ORIGINS if queue.place(origin).shard != former]
        with pytest.raises(ShardsFailed) as raised:
            other.enqueue_messages((origin, b"2") for origin in ORIGINS)
        assert {origin for origin, _ in raised.value.unsent} == set(ORIGINS) - set(up)


@pytest.mark.parametrize("error", [StoreUnreachable, StoreFull])
def test_a_sender_with_an_old_layout_finds_what_left_a_shard_that_is_down_or_full(
    queue: ShardedQueue, stores: dict[str, str], monkeypatch: pytest.MonkeyPatch, error: type[StoreError]
) -> None:
    """A send to such a shard reads the layout again: the origin may be elsewhere since."""
    monkeypatch.setattr(router, "REST", 0.0)
    queue.apply({"a": 1, "b": 1})
    moved = [origin for origin in ORIGINS if queue.place(origin).shard == "b"]
    with ShardedQueue(stores) as other:
        other.enqueue_messages((origin, b"1") for origin in moved)
        served(queue)
        queue.apply({"a": 1, "b": 0})
        queue.drain()
        other.shard("b").store.probe = _failing_at("", error())
        other.enqueue_message(moved[0], b"2")
        other.enqueue_messages((origin, b"2") for origin in moved[1:])
        assert served(queue) == {origin: [b"2"] for origin in moved}


def test_a_slow_call_with_an_old_layout_is_repeated(
    queue: ShardedQueue, stores: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time for the end of a change begins with the first failure: the change itself is complete."""
    queue.apply({"a": 1})
    with ShardedQueue(stores, busy_timeout=0.05) as other:
        other.enqueue_messages((origin, b"1") for origin in ORIGINS)
        queue.apply({"a": 1, "b": 1})
        # Ten seconds pass between two looks at the clock.
        seconds = itertools.count(0.0, 10.0)
        slow = SimpleNamespace(monotonic=lambda: next(seconds), sleep=time.sleep)
        monkeypatch.setattr(sharded, "time", slow)
        other.enqueue_message(ORIGINS[0], b"2")
        queue.apply({"a": 2, "b": 1})
        other.enqueue_messages((origin, b"2") for origin in ORIGINS[1:])
    assert served(queue) == {origin: [b"1", b"2"] for origin in ORIGINS}


def test_a_call_that_was_sent_in_part_names_the_rest_if_no_shard_answers_any_more(
    queue: ShardedQueue, stores: dict[str, str]
) -> None:
    """One part is sent, the other meets a new layout, and no shard answers when the sender reads it."""
    queue.apply({"a": 1, "b": 1})
    with ShardedQueue(stores, busy_timeout=5.0) as other:
        sent = {origin for origin in ORIGINS if other.place(origin).shard == "b"}
        for name in other.shards:
            other.shard(name).store.probe = _failing_at("shard", StoreUnreachable())
        queue.shard("b").store.probe = _failing_at("adopt_layout")
        with pytest.raises(RuntimeError):
            queue.apply({"a": 2, "b": 1})
        with pytest.raises(ShardsFailed) as raised:
            other.enqueue_messages((origin, b"2") for origin in ORIGINS)
        assert {origin for origin, _ in raised.value.unsent} == set(ORIGINS) - sent
    queue.shard("b").store.probe = None
    queue.apply({"a": 2, "b": 1})
    assert served(queue) == {origin: [b"2"] for origin in sent}


# Mistakes.


def test_exchanged_addresses_are_noticed(queue: ShardedQueue, stores: dict[str, str]) -> None:
    queue.apply({"a": 1, "b": 1})
    with ShardedQueue({"a": stores["b"], "b": stores["a"]}) as other, pytest.raises(StoreCorrupt, match="addresses"):
        other.enqueue_message("acme", b"x")
    with ShardedQueue({"a": stores["a"]}) as other, pytest.raises(InvalidInput, match="unknown shard 'b'"):
        other.enqueue_messages((origin, b"x") for origin in ORIGINS)


def test_a_shard_refuses_an_origin_of_another(queue: ShardedQueue) -> None:
    queue.apply({"a": 1, "b": 1})
    other = next(origin for origin in ORIGINS if queue.place(origin).shard == "b")
    with pytest.raises(LayoutChanged):
        queue.shard("a").enqueue_message(other, b"x")
    with pytest.raises(InvalidInput, match="commands on a shard"):
        queue.shard("a").commands(object())


def test_a_processor_cannot_send_through_a_sharded_queue(queue: ShardedQueue) -> None:
    queue.apply({"a": 1, "b": 1})
    queue.enqueue_message("acme", b"x")
    errors = []

    def process(delivery: object) -> None:
        try:
            queue.enqueue_message("other", b"y")
        except RecursiveDisallowed as error:
            errors.append(str(error))

    queue.each(lambda shard: shard.service_queues(process)).all()
    assert len(errors) == 1


def test_an_address_is_parsed_at_once() -> None:
    with pytest.raises(InvalidInput, match="shards are missing"):
        ShardedQueue({})
    assert parse(DOWN).safe.count("secret") == 0


# Concurrent senders.


def test_senders_and_changes_at_once(patient: ShardedQueue, stores: dict[str, str]) -> None:
    """Threads with their own routers send while the layout changes and shards drain."""
    patient.apply({"a": 1})
    origins, each, done = ORIGINS[:6], 60, threading.Event()
    problems: list[BaseException] = []

    def send(mine: list[str]) -> None:
        try:
            with ShardedQueue(stores, busy_timeout=30.0) as own:
                for number in range(each):
                    own.enqueue_messages((origin, b"%d" % number) for origin in mine)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=send, args=(origins[start::3],)) for start in range(3)]
    found: dict[str, list[int]] = defaultdict(list)
    for thread in threads:
        thread.start()
    layouts = [{"a": 1, "b": 1}, {"a": 0, "b": 1, "c": 1}, {"a": 2, "b": 0, "c": 1}, {"a": 0, "b": 0, "c": 1}]
    turn = 0
    while any(thread.is_alive() for thread in threads) or not done.is_set():
        if not any(thread.is_alive() for thread in threads):
            done.set()
        patient.apply({**dict.fromkeys(patient.layout().shards, 0), **layouts[turn % 4]})
        turn += 1
        for shard in patient.shards:
            patient.shard(shard).service_queues(
                lambda delivery: found[delivery.origin].append(int(delivery.payload)), Weight(40, 1 << 30)
            )
    assert problems == []
    for shard in patient.shards:
        patient.shard(shard).service_queues(lambda delivery: found[delivery.origin].append(int(delivery.payload)))
    assert found == {origin: list(range(each)) for origin in origins}


SENDER = """
import sys
from airflow_mq import ShardedQueue
stores = dict(pair.split("=", 1) for pair in sys.argv[3:])
with ShardedQueue(stores, busy_timeout=60.0) as queue:
    for number in range(int(sys.argv[2])):
        queue.enqueue_message(sys.argv[1], b"%d" % number)
        queue.enqueue_messages([(sys.argv[1], b"%d" % number), (sys.argv[1] + "/2", b"%d" % number)])
"""


@pytest.mark.concurrency
@pytest.mark.slow
def test_processes_send_while_the_layout_changes(patient: ShardedQueue, stores: dict[str, str]) -> None:
    """Each process remembers places of its own; no message of an origin overtakes another."""
    each, origins = 40, ORIGINS[:2]
    patient.apply({"a": 1})
    words = [f"{name}={uri}" for name, uri in stores.items()]
    senders = [subprocess.Popen([sys.executable, "-c", SENDER, origin, str(each), *words]) for origin in origins]
    found: dict[str, list[int]] = defaultdict(list)
    layouts = [{"a": 0, "b": 1, "c": 0}, {"a": 0, "b": 0, "c": 1}, {"a": 1, "b": 0, "c": 0}]
    turn = 0
    while turn <= 3 or any(sender.poll() is None for sender in senders):
        patient.apply(layouts[turn % 3])
        turn += 1
        serve_all(patient, found)
    serve_all(patient, found)
    assert [sender.returncode for sender in senders] == [0] * len(senders)
    for origin in origins:
        assert found[origin] == [number for number in range(each) for _ in range(2)]
        assert found[f"{origin}/2"] == list(range(each))


def serve_all(queue: ShardedQueue, found: dict[str, list[int]]) -> None:
    for shard in queue.shards:
        queue.shard(shard).service_queues(lambda delivery: found[delivery.origin].append(int(delivery.payload)))


def test_a_call_within_a_call_of_all_shards_returns(queue: ShardedQueue, stores: dict[str, str]) -> None:
    queue.apply({"a": 1, "b": 1})
    with ShardedQueue(stores, busy_timeout=0.5) as fresh:
        done = in_time(lambda: fresh.each(lambda shard: fresh.footprint("o1").count))
        assert set(done.all().values()) == {0}


def test_a_long_service_holds_up_no_sender(queue: ShardedQueue) -> None:
    queue.apply({"a": 1, "b": 1})
    for origin in ORIGINS:
        queue.enqueue_message(origin, b"first")
    is_serviced, is_sent = threading.Event(), threading.Event()

    def process(delivery: Delivery) -> None:
        is_serviced.set()
        assert is_sent.wait(30)

    with ThreadPoolExecutor(1) as pool:
        service = pool.submit(queue.service_queues, process)
        assert is_serviced.wait(30)
        in_time(lambda: queue.enqueue_messages([(origin, b"second") for origin in ORIGINS]))
        is_sent.set()
        service.result(60).all()


def test_a_forked_child_calls_all_shards(queue: ShardedQueue) -> None:
    queue.apply({"a": 1, "b": 1})
    assert set(queue.each(len).all().values()) == {0}

    def be_child() -> None:
        in_time(lambda: queue.each(len).all())

    ended = end_child(start_child(be_child))
    assert not ended.error
    assert set(queue.each(len).all().values()) == {0}


def in_time(call: Callable[[], T]) -> T:
    """Return what a call returns in another thread, or raise its error; fail if it takes too long."""
    found: Future[T] = Future()

    def run() -> None:
        try:
            found.set_result(call())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return found.result(30)
