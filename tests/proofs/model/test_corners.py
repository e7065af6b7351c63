"""Single cases that the machine found, in short form."""

from __future__ import annotations

import pytest

from airflow_mq import (
    BadFormat,
    Costs,
    Done,
    LinearWeigher,
    Message,
    MessageQueue,
    Overweight,
    Report,
    RingConfig,
    Weight,
    Yield,
)
from airflow_mq.engine.rules.config import BLOCK_PARTS
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.testing import assert_sound

ONE = LinearWeigher(Weight(1, 1), Weight(0, 0))


def opened(uri: str, **settings: object) -> MessageQueue:
    upgrade(parse(uri))
    with MessageQueue(uri) as maker:
        maker.admin.create_ring("corner", RingConfig(**{"weigher": ONE, "service_weight": Weight(12, 12), **settings}))  # type: ignore[arg-type]
    return MessageQueue(uri, "corner")


@pytest.mark.parametrize("outcome", [Overweight(Weight(9, 9)), Yield("later")], ids=["overweight", "yield"])
def test_unsuccessful_execution_can_be_settled(store_uri: str, outcome: object) -> None:
    """Such a block once could not be settled or released, and blocked each plan of the ring."""
    with opened(store_uri) as queue:
        queue.enqueue_message("acme", b"heavy", weight=Weight(50, 50))
        queue.service_queues(lambda _: None)
        (aside,) = queue.set_aside.list()
        block = queue.blocks.plan_overweight(aside.address, Weight(100, 100))
        queue.blocks.report(block, [Report("acme", 0, 0, 0, outcome)])  # type: ignore[arg-type]
        assert queue.blocks.settle(block).returned == 1
        assert [listed.address for listed in queue.set_aside.list()] == [aside.address]
        queue.blocks.plan()
        assert_sound(queue)


def test_execution_enqueues_its_messages(store_uri: str) -> None:
    with opened(store_uri) as queue:
        queue.enqueue_message("acme", b"heavy", weight=Weight(50, 50))
        queue.service_queues(lambda _: None)
        (aside,) = queue.set_aside.list()
        block = queue.blocks.plan_overweight(aside.address, Weight(100, 100))
        queue.blocks.report(block, [Report("acme", 0, 0, 0, Done(enqueue=[("other", b"child")]))])
        assert queue.blocks.settle(block).processed == 1
        assert queue.footprint("other").count == 1


def test_execution_of_an_unreadable_message_fails(store_uri: str) -> None:
    with opened(store_uri) as queue:
        queue.enqueue_message("acme", b"heavy", weight=Weight(50, 50))
        queue.service_queues(lambda _: None)
        block = queue.blocks.plan_overweight(queue.set_aside.list()[0].address, Weight(100, 100))
        queue.blocks.report(block, [Report("acme", 0, 0, 0, BadFormat())])
        result = queue.blocks.settle(block)
        assert (result.processed, result.failed) == (0, 1)


def test_first_answer_counts_against_a_later_run(store_uri: str) -> None:
    """A later report covers the whole run."""
    with opened(store_uri) as queue:
        queue.enqueue_messages("acme", [b"one", b"two"])
        block = queue.blocks.plan()
        queue.blocks.report(block, [Report("acme", 0, 0, 0, BadFormat())])
        queue.blocks.report(block, [Report("acme", 0, 0, 1, Done())])
        queue.blocks.settle(block)
        assert [event.name for event in queue.inspect.events()] == ["ProcessingFailed", "Processed"]


def test_later_done_does_not_replace_a_yield(store_uri: str) -> None:
    with opened(store_uri) as queue:
        queue.enqueue_message("acme", b"one")
        block = queue.blocks.plan()
        queue.blocks.report(block, [Report("acme", 0, 0, 0, Yield("later"))])
        queue.blocks.report(block, [Report("acme", 0, 0, 0, Done())])
        assert queue.footprint("acme").count == 1
        queue.blocks.settle(block)
        assert queue.footprint("acme").count == 1


def test_origin_without_claims_is_not_in_flight(store_uri: str) -> None:
    with opened(store_uri, order="rotation") as queue:
        queue.enqueue_message("acme", b"large", weight=Weight(9, 9))
        assert queue.blocks.plan(limit=Weight(3, 3)).messages == 0
        assert queue.blocks.plan(limit=Weight(12, 12)).messages == 1


def test_late_overweight_is_compared_with_most(store_uri: str) -> None:
    with opened(store_uri) as queue:
        queue.admin.set_origin("acme", most=Weight(5, 5))
        queue.enqueue_message("acme", b"one")
        block = queue.blocks.plan()
        queue.blocks.report(block, [Report("acme", 0, 0, 0, Overweight(Weight(8, 8)))])
        assert queue.blocks.settle(block).set_aside == 1
        assert queue.set_aside.list()[0].limit == Weight(5, 5)


def test_growing_heap_size_keeps_existing_pages(store_uri: str) -> None:
    """The page of a message is fixed when it is sent, even if the page is cut later."""
    with opened(store_uri, heap_size=16) as queue:
        for _ in range(4):
            queue.enqueue_message("acme", b"12345")
        before = queue.footprint("acme")
        queue.admin.change_ring(heap_size=100)
        assert queue.footprint("acme") == before
        assert_sound(queue)


def test_requeued_messages_give_an_origin_no_credit(store_uri: str) -> None:
    """An origin that fails repeatedly must not take block after block from others."""
    with opened(store_uri, rounds_per_block=6) as queue:
        queue.enqueue_messages("failing", [b"%d" % n for n in range(60)])
        for _ in range(3):
            queue.blocks.settle(queue.blocks.plan())
            with queue.session.snapshot() as (_, working_set):
                assert working_set.book("failing").deficit <= BLOCK_PARTS // 6 + BLOCK_PARTS // 12 + 2
        queue.enqueue_messages("quiet", [b"%d" % n for n in range(60)])
        counts = {claim.origin: claim.messages for claim in queue.blocks.plan().claims}
        assert abs(counts["failing"] - counts["quiet"]) <= 2


@pytest.mark.xfail(reason="due messages join when the ring is locked next", strict=True)
def test_due_message_joins_when_it_is_due(store_uri: str) -> None:
    """A message that was due before another was sent precedes it."""
    with opened(store_uri) as queue:
        queue.enqueue_message("acme", b"first", not_before=-1)
        queue.enqueue_message("acme", b"second")
        assert [message.payload for message in queue.inspect.peek("acme")] == [b"first", b"second"]


def test_weight_of_a_message_overrides_weight_of_its_call(store_uri: str) -> None:
    """The message's weight takes precedence, even if it is zero."""
    with opened(store_uri) as queue:
        free = Message(b"free", weight=Weight(0, 0))
        queue.enqueue_messages("acme", [free, b"dear"], weight=Weight(5, 5))
        assert queue.blocks.plan().planned == Weight(5, 5)


def test_report_on_unclaimed_messages_hides_none(store_uri: str) -> None:
    with opened(store_uri) as queue:
        queue.enqueue_messages("acme", [b"one", b"two"])
        block = queue.blocks.plan(limit=Weight(1, 1))
        assert block.messages == 1
        queue.blocks.report(block, [Report("acme", 0, 0, 1, Done())])
        assert queue.footprint("acme").count == 1


@pytest.mark.parametrize("way", ["in place", "plan", "settle"])
def test_messages_behind_a_removed_last_page_are_serviced(store_uri: str, way: str) -> None:
    """The last page of the window is removed, and later messages are in no page yet."""
    with opened(store_uri, order="rotation", heap_size=16, ordered=False) as queue:
        queue.enqueue_messages("acme", [b"0123456789", b"1123456789"])
        block = queue.blocks.plan()
        queue.blocks.report(block, [Report("acme", 1, 0, 0, Done())])
        queue.blocks.settle(block)
        if way == "settle":
            block = queue.blocks.plan()
        queue.enqueue_message("acme", b"2123456789")
        if way == "in place":
            assert queue.service_queues(lambda _: None).processed == 2
        elif way == "plan":
            assert queue.blocks.plan().messages == 2
        else:
            queue.blocks.report(block, [Report("acme", 0, 0, 0, Done())])
            queue.blocks.settle(block)
            assert queue.inspect.ring_order(10) == ["acme"]
            assert queue.blocks.plan().messages == 1
        assert_sound(queue)


def test_message_joins_its_page_after_an_execution(store_uri: str) -> None:
    """A page with room is not complete when its only set-aside message ends."""
    costs = Costs(service_page_item=Weight(1, 0))
    with opened(store_uri, order="rotation", costs=costs) as queue:
        queue.enqueue_message("acme", b"heavy", weight=Weight(50, 50))
        queue.service_queues(lambda _: None, Weight(1, 0))
        (aside,) = queue.set_aside.list()
        queue.enqueue_message("acme", b"light")
        queue.execute_overweight(aside.address, lambda _: None)
        assert [str(message.address) for message in queue.inspect.peek("acme")] == ["acme:0:1"]
        assert_sound(queue)


def test_window_without_pages_is_closed(store_uri: str) -> None:
    """In an unordered queue, the second page may be removed before the first message is executed."""
    costs = Costs(service_page_item=Weight(1, 0))
    with opened(store_uri, order="rotation", costs=costs, heap_size=16, ordered=False) as queue:
        queue.enqueue_messages("acme", [b"0123456789", b"1123456789"])
        block = queue.blocks.plan()
        queue.blocks.report(block, [Report("acme", 1, 0, 0, Done())])
        queue.blocks.settle(block)
        # The next attempt exceeds the maximum, and the limit does not pay for the step behind it.
        queue.admin.change_ring(max_attempts=2)
        queue.service_queues(lambda _: Yield("never"), Weight(2, 1))
        (aside,) = queue.set_aside.list()
        queue.execute_overweight(aside.address, lambda _: None)
        assert queue.footprint("acme").ready_pages == 0
        assert_sound(queue)
