"""Single cases that the machine met, as short as they can be told."""

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
from airflow_mq.core.config import BLOCK_PARTS
from airflow_mq.store import parse, upgrade
from airflow_mq.testing import assert_sound

ONE = LinearWeigher(Weight(1, 1), Weight(0, 0))


def opened(uri: str, **settings: object) -> MessageQueue:
    upgrade(parse(uri))
    with MessageQueue(uri) as maker:
        maker.admin.create_ring("corner", RingConfig(**{"weigher": ONE, "service_weight": Weight(12, 12), **settings}))  # type: ignore[arg-type]
    return MessageQueue(uri, "corner")


@pytest.mark.parametrize("outcome", [Overweight(Weight(9, 9)), Yield("later")], ids=["overweight", "yield"])
def test_an_execution_that_did_not_work_out_goes_back(store_uri: str, outcome: object) -> None:
    """It once made its block impossible to settle or to release, and then every plan of the ring."""
    with opened(store_uri) as queue:
        queue.enqueue_message("acme", b"heavy", weight=Weight(50, 50))
        queue.service_queues(lambda _: None)
        (aside,) = queue.set_aside.list()
        block = queue.blocks.plan_overweight(aside.address, Weight(100, 100))
        queue.blocks.report(block, [Report("acme", 0, 0, 0, outcome)])  # type: ignore[arg-type]
        assert queue.blocks.settle(block).went_back == 1
        assert [one.address for one in queue.set_aside.list()] == [aside.address]
        queue.blocks.plan()
        assert_sound(queue)


def test_what_an_execution_enqueues_is_enqueued(store_uri: str) -> None:
    with opened(store_uri) as queue:
        queue.enqueue_message("acme", b"heavy", weight=Weight(50, 50))
        queue.service_queues(lambda _: None)
        (aside,) = queue.set_aside.list()
        block = queue.blocks.plan_overweight(aside.address, Weight(100, 100))
        queue.blocks.report(block, [Report("acme", 0, 0, 0, Done(enqueue=[("other", b"news")]))])
        assert queue.blocks.settle(block).processed == 1
        assert queue.footprint("other").count == 1


def test_an_execution_of_what_cannot_be_read_has_failed(store_uri: str) -> None:
    with opened(store_uri) as queue:
        queue.enqueue_message("acme", b"heavy", weight=Weight(50, 50))
        queue.service_queues(lambda _: None)
        block = queue.blocks.plan_overweight(queue.set_aside.list()[0].address, Weight(100, 100))
        queue.blocks.report(block, [Report("acme", 0, 0, 0, BadFormat())])
        told = queue.blocks.settle(block)
        assert (told.processed, told.failed) == (0, 1)


def test_the_first_answer_counts(store_uri: str) -> None:
    """Also where a later one covers a whole run."""
    with opened(store_uri) as queue:
        queue.enqueue_messages("acme", [b"one", b"two"])
        block = queue.blocks.plan()
        queue.blocks.report(block, [Report("acme", 0, 0, 0, BadFormat())])
        queue.blocks.report(block, [Report("acme", 0, 0, 1, Done())])
        queue.blocks.settle(block)
        assert [event.name for event in queue.inspect.events()] == ["ProcessingFailed", "Processed"]


def test_only_the_first_answer_makes_a_message_gone(store_uri: str) -> None:
    with opened(store_uri) as queue:
        queue.enqueue_message("acme", b"one")
        block = queue.blocks.plan()
        queue.blocks.report(block, [Report("acme", 0, 0, 0, Yield("later"))])
        queue.blocks.report(block, [Report("acme", 0, 0, 0, Done())])
        assert queue.footprint("acme").count == 1
        queue.blocks.settle(block)
        assert queue.footprint("acme").count == 1


def test_an_origin_of_which_nothing_was_claimed_is_not_in_flight(store_uri: str) -> None:
    with opened(store_uri, order="rotation") as queue:
        queue.enqueue_message("acme", b"large", weight=Weight(9, 9))
        assert queue.blocks.plan(limit=Weight(3, 3)).messages == 0
        assert queue.blocks.plan(limit=Weight(12, 12)).messages == 1


def test_an_overweight_told_late_is_judged_by_the_most_of_its_origin(store_uri: str) -> None:
    with opened(store_uri) as queue:
        queue.admin.set_origin("acme", most=Weight(5, 5))
        queue.enqueue_message("acme", b"one")
        block = queue.blocks.plan()
        queue.blocks.report(block, [Report("acme", 0, 0, 0, Overweight(Weight(8, 8)))])
        assert queue.blocks.settle(block).set_aside == 1
        assert queue.set_aside.list()[0].limit == Weight(5, 5)


def test_a_heap_that_grows_leaves_pages_as_they_were(store_uri: str) -> None:
    """Messages lie in pages from the moment they are sent, whenever these are cut."""
    with opened(store_uri, heap_size=16) as queue:
        for _ in range(4):
            queue.enqueue_message("acme", b"12345")
        before = queue.footprint("acme")
        queue.admin.change_ring(heap_size=100)
        assert queue.footprint("acme") == before
        assert_sound(queue)


def test_what_went_back_does_not_make_an_origin_rich(store_uri: str) -> None:
    """Work that fails again and again must not take block after block from everybody else."""
    with opened(store_uri, rounds_per_block=6) as queue:
        queue.enqueue_messages("failing", [b"%d" % n for n in range(60)])
        for _ in range(3):
            queue.blocks.settle(queue.blocks.plan())
            with queue.session.snapshot() as (_, working_set):
                assert working_set.book("failing").deficit <= BLOCK_PARTS // 6 + BLOCK_PARTS // 12 + 2
        queue.enqueue_messages("quiet", [b"%d" % n for n in range(60)])
        counts = {claim.origin: claim.messages for claim in queue.blocks.plan().claims}
        assert abs(counts["failing"] - counts["quiet"]) <= 2


@pytest.mark.xfail(reason="mail that is due joins when somebody next holds the ring", strict=True)
def test_due_mail_joins_when_it_is_due(store_uri: str) -> None:
    """What was due before another message was sent comes before it."""
    with opened(store_uri) as queue:
        queue.enqueue_message("acme", b"first", not_before=-1)
        queue.enqueue_message("acme", b"second")
        assert [one.payload for one in queue.inspect.peek("acme")] == [b"first", b"second"]


def test_two_declared_weights(store_uri: str) -> None:
    """What a message says of itself goes before what the call says, even if it is nothing."""
    with opened(store_uri) as queue:
        free = Message(b"free", weight=Weight(0, 0))
        queue.enqueue_messages("acme", [free, b"dear"], weight=Weight(5, 5))
        assert queue.blocks.plan().planned == Weight(5, 5)


def test_a_report_on_what_nobody_holds_makes_nothing_gone(store_uri: str) -> None:
    with opened(store_uri) as queue:
        queue.enqueue_messages("acme", [b"one", b"two"])
        block = queue.blocks.plan(limit=Weight(1, 1))
        assert block.messages == 1
        queue.blocks.report(block, [Report("acme", 0, 0, 1, Done())])
        assert queue.footprint("acme").count == 1


@pytest.mark.parametrize("way", ["in place", "plan", "settle"])
def test_mail_behind_a_window_that_ends_in_a_hole_is_not_left(store_uri: str, way: str) -> None:
    """The last page of the window is gone already, and what was sent since is in no page yet."""
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


def test_mail_joins_the_page_it_was_sent_to_though_the_rest_of_it_is_executed(store_uri: str) -> None:
    """A page that still takes messages is not complete when its only set-aside one is gone."""
    costs = Costs(service_page_item=Weight(1, 0))
    with opened(store_uri, order="rotation", costs=costs) as queue:
        queue.enqueue_message("acme", b"heavy", weight=Weight(50, 50))
        queue.service_queues(lambda _: None, Weight(1, 0))
        (aside,) = queue.set_aside.list()
        queue.enqueue_message("acme", b"light")
        queue.execute_overweight(aside.address, lambda _: None)
        assert [str(one.address) for one in queue.inspect.peek("acme")] == ["acme:0:1"]
        assert_sound(queue)


def test_a_window_of_nothing_but_holes_is_closed(store_uri: str) -> None:
    """Of a relaxed queue, the page behind may be gone before the first is executed by hand."""
    costs = Costs(service_page_item=Weight(1, 0))
    with opened(store_uri, order="rotation", costs=costs, heap_size=16, ordered=False) as queue:
        queue.enqueue_messages("acme", [b"0123456789", b"1123456789"])
        block = queue.blocks.plan()
        queue.blocks.report(block, [Report("acme", 1, 0, 0, Done())])
        queue.blocks.settle(block)
        # One more try is one too many, and nothing pays for the look behind it.
        queue.admin.change_ring(max_attempts=2)
        queue.service_queues(lambda _: Yield("never"), Weight(2, 1))
        (aside,) = queue.set_aside.list()
        queue.execute_overweight(aside.address, lambda _: None)
        assert queue.footprint("acme").ready_pages == 0
        assert_sound(queue)
