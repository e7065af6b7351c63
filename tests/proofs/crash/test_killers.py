"""Messages that kill the process of a service in place: with `max_attempts`, they are set aside, and others go on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from threading import Event, Thread
from typing import Any

import pytest

from airflow_mq import MessageQueue, RingConfig, Weight, Yield, batch_processor
from airflow_mq.engine.queue.service import DIED
from airflow_mq.engine.rules.message import message_id
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.testing import assert_sound

from .children import run_child

pytestmark = pytest.mark.crash

Work = Callable[[MessageQueue, Callable[[bytes], None]], Any]


def one_by_one(queue: MessageQueue, tried: Callable[[bytes], None]) -> Any:
    return queue.service_queues(lambda delivery: tried(delivery.payload))


def in_batches(queue: MessageQueue, tried: Callable[[bytes], None]) -> Any:
    return queue.service_queues(batch_processor(lambda batch: [tried(payload) for payload in batch.payloads] and None))


def metered(queue: MessageQueue, tried: Callable[[bytes], None]) -> Any:
    def process(delivery: Any) -> None:
        tried(delivery.payload)
        delivery.meter.consume(Weight(1, 1))

    process.meters_itself = True  # type: ignore[attr-defined]
    return queue.service_queues(process)


def by_a_worker(queue: MessageQueue, tried: Callable[[bytes], None]) -> Any:
    stop = Event()

    def watch() -> None:
        with MessageQueue(queue.store.address, queue.ring) as reader:
            while reader.inspect.pulse():
                time.sleep(0.05)
        stop.set()

    Thread(target=watch, daemon=True).start()
    return queue.service_forever(lambda delivery: tried(delivery.payload), stop=stop)


WAYS = [one_by_one, in_batches, metered, by_a_worker]


def lives_on(uri: str, ring: str, way: Work) -> bool:
    """Service the ring in a child process; return whether it lives on."""

    def work(probe: Callable[[str], None]) -> None:
        def tried(payload: bytes) -> None:
            probe(payload.decode())
            if payload.startswith(b"bad"):
                os.kill(os.getpid(), signal.SIGKILL)

        with MessageQueue(uri, ring) as queue:
            way(queue, tried)

    ended = run_child(work)
    assert not ended.error, ended.error
    return not ended.killed


@pytest.fixture
def ring_of(store_uri: str) -> Callable[..., str]:
    upgrade(parse(store_uri))

    def make(**settings: Any) -> str:
        with MessageQueue(store_uri) as queue:
            queue.admin.create_ring("killed", RingConfig(**settings))
        return "killed"

    return make


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_message_that_kills_its_service_is_set_aside(
    store_uri: str, ring_of: Callable[..., str], way: Work, ordered: bool
) -> None:
    ring = ring_of(max_attempts=2, ordered=ordered)
    with MessageQueue(store_uri, ring) as queue:
        queue.enqueue_messages([("a", b"1"), ("a", b"bad"), ("a", b"2"), ("b", b"3"), ("c", b"last")])
    deaths = 0
    while not lives_on(store_uri, ring, way):
        deaths += 1
        assert deaths <= 3, "the first death counts for no message, the others for the one that was tried"
    with MessageQueue(store_uri, ring) as queue:
        (aside,) = queue.set_aside.list(errors=True)
        assert (aside.id, aside.reason) == (message_id(b"bad"), "attempts")
        assert deaths == 3 and aside.error == DIED
        assert {origin: size.count for origin, size in queue.footprints() if size.count} == {"a": 1}
        assert_sound(queue)


def test_neighbours_of_a_killer_keep_their_attempts(store_uri: str, ring_of: Callable[..., str]) -> None:
    ring = ring_of(max_attempts=2)
    with MessageQueue(store_uri, ring) as queue:
        queue.enqueue_messages("a", [b"%d" % number for number in range(10)] + [b"bad", b"behind"])
    run = partial(lives_on, store_uri, ring, in_batches)
    assert not run() and not run()
    with MessageQueue(store_uri, ring) as queue:
        left = queue.inspect.peek("a")
        assert [(one.payload, one.attempts) for one in left if one.state == "waiting"] == [(b"bad", 1), (b"behind", 0)]
        assert_sound(queue)


def test_a_careful_service_pays_budgets_once(store_uri: str, ring_of: Callable[..., str]) -> None:
    ring = ring_of(max_attempts=3)
    with MessageQueue(store_uri, ring) as queue:
        queue.admin.set_origin("a", rate="1ms/hour", burst=50)
        queue.enqueue_messages("a", [b"bad"] + [b"%d" % number for number in range(9)], weight=Weight(1, 1))
    for _ in range(2):
        assert not lives_on(store_uri, ring, one_by_one)
    with MessageQueue(store_uri, ring) as queue:
        (state,) = queue.inspect.budgets("a")
        assert state.left == 50
        queue.service_queues(lambda delivery: None)
        (state,) = queue.inspect.budgets("a")
        assert state.left == 40 and queue.footprint("a").count == 0


def test_an_attempt_that_ends_counts_once(store_uri: str, ring_of: Callable[..., str]) -> None:
    """After a death, a message that yields has one attempt, and one behind it none."""
    ring = ring_of(max_attempts=5, ordered=False)
    with MessageQueue(store_uri, ring) as queue:
        queue.enqueue_messages("a", [b"bad", b"later", b"behind"])
    assert not lives_on(store_uri, ring, one_by_one)
    with MessageQueue(store_uri, ring) as queue:
        answers = {b"later": Yield("not now")}
        queue.service_queues(lambda delivery: answers.get(delivery.payload))
        assert [(one.payload, one.attempts) for one in queue.inspect.peek("a")] == [(b"later", 1), (b"behind", 0)]


def test_without_a_limit_of_attempts_a_killer_holds_up_no_other_queue(
    store_uri: str, ring_of: Callable[..., str]
) -> None:
    ring = ring_of()
    with MessageQueue(store_uri, ring) as queue:
        queue.enqueue_messages([("a", b"1"), ("a", b"bad"), ("a", b"2"), ("b", b"3")])
    # The first death counts for no message, the second for the one that was tried; the third service leaves it out.
    assert [lives_on(store_uri, ring, one_by_one) for _ in range(4)] == [False, False, True, False]
    with MessageQueue(store_uri, ring) as queue:
        assert [(one.payload, one.attempts) for one in queue.inspect.peek("a")] == [(b"bad", 2), (b"2", 0)]
        assert queue.footprint("b").count == 0
        assert [event.detail for event in queue.inspect.events(name="Returned")] == [DIED]
        assert_sound(queue)


def weigh(origin: str, messages: Any) -> list[Weight]:
    return [Weight(1, 1) for _ in messages]


@pytest.mark.parametrize("weigher", [None, weigh])
def test_a_block_between_two_services_hides_no_death(store_uri: str, ring_of: Callable[..., str], weigher: Any) -> None:
    ring = ring_of(max_attempts=1)
    with MessageQueue(store_uri, ring) as queue:
        queue.enqueue_messages("a", [b"bad", b"1"])
    for _ in range(2):
        assert not lives_on(store_uri, ring, one_by_one)
        with MessageQueue(store_uri, ring) as queue:
            queue.enqueue_message("other", b"x")
            queue.blocks.release(queue.blocks.plan(origins="other", weigher=weigher))
    assert lives_on(store_uri, ring, one_by_one)
    with MessageQueue(store_uri, ring) as queue:
        assert [one.reason for one in queue.set_aside.list(origin="a")] == ["attempts"]
