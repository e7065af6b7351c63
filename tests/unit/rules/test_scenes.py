"""The ladder, the orders, plans and settlements, and what lies behind the window: scenes in memory."""

from __future__ import annotations

import pytest

from airflow_mq.engine.rules.errors import (
    AlreadyProcessed,
    InsufficientWeight,
    NoMessage,
    NoPage,
    NotReapable,
    Queued,
    QueuePaused,
    TemporarilyUnprocessable,
)
from airflow_mq.engine.rules.message import Address
from airflow_mq.engine.rules.orders import shuffled
from airflow_mq.engine.rules.overweight import discard, reap_page
from airflow_mq.engine.rules.weight import Costs, Weight
from tests.unit.rules.memory import Scene

# Servicing.


def test_the_window_moves_page_by_page() -> None:
    scene = Scene(heap_size=30)
    scene.enqueue("a", *["0123456789"] * 5)
    assert scene.footprint("a") == (3, 3, 5, 50)
    scene.service(time=3)
    assert scene.footprint("a") == (2, 2, 2, 20)
    scene.service()
    assert scene.footprint("a") == (0, 0, 0, 0)
    assert scene.ring() == []


def test_a_new_page_never_takes_an_old_number() -> None:
    scene = Scene()
    for _ in range(3):
        scene.enqueue("a", "x")
        scene.service()
    assert scene.told() == ["Processed a:0:0", "Processed a:1:0", "Processed a:2:0"]


def test_the_head_moves_on_and_servicing_starts_at_the_old_one() -> None:
    scene = Scene()
    for origin in "abc":
        scene.enqueue(origin, *[f"{origin}{number}" for number in range(3)])
    scene.service(time=1)
    assert (scene.seen[0], scene.ring()) == ("a0", ["b", "c", "a"])
    scene.seen.clear()
    scene.service(time=1)
    assert (scene.seen[0], scene.ring()) == ("b0", ["c", "a", "b"])


def test_answers() -> None:
    scene = Scene()
    scene.enqueue("a", "fine", "bad", "failure", "stack", "weight=101", "last")
    scene.service()
    assert [(event.name, event.error, event.success) for event in scene.events()] == [
        ("Processed", None, True), ("ProcessingFailed", "BadFormat", None), ("Processed", None, False),
        ("ProcessingFailed", "StackLimitReached", None), ("SetAside", None, None), ("Processed", None, True),
    ]  # fmt: skip
    assert scene.footprint("a") == (1, 0, 1, 10)


def test_yield_leaves_the_queue_where_it_is() -> None:
    scene = Scene()
    scene.enqueue("a", "yield", "later")
    scene.enqueue("b", "fine")
    scene.service()
    assert scene.told() == ["Returned a:0:0", "Processed b:0:0", "Returned a:0:0", "Returned a:0:0"]
    assert scene.footprint("a") == (1, 1, 2, 10)


def test_a_ring_of_queues_without_progress_ends() -> None:
    scene = Scene()
    for origin in "abc":
        scene.enqueue(origin, "yield")
    scene.service()
    assert len(scene.seen) in (3, 4)


def test_a_queue_that_leaves_the_ring_is_not_waited_for() -> None:
    scene = Scene()
    scene.enqueue("a", "weight=101")
    scene.enqueue("b", "yield")
    scene.service()
    assert scene.ring() == ["b"]


def test_what_fits_a_full_block_waits_for_one() -> None:
    scene = Scene()
    scene.enqueue("a", "x", "weight=100", "y")
    scene.service()
    assert scene.seen[:2] == ["x", "weight=100"]
    scene.seen.clear()
    scene.service()
    assert scene.seen[0] == "weight=100"
    assert "SetAside a:0:1" not in scene.told()


def test_every_step_is_paid_before_it_is_taken() -> None:
    costs = Costs(
        bump_service_head=Weight(1, 0), service_queue_base=Weight(1, 0), ready_ring_unknit=Weight(1, 0),
        service_page_base_completion=Weight(1, 0), service_page_item=Weight(1, 0),
    )  # fmt: skip
    for time in range(12):
        scene = Scene(costs=costs)
        scene.enqueue("a", "x")
        used, _ = scene.service(time=time)
        assert used.time <= time
        assert scene.seen == (["x"] if time >= 5 else [])
        assert len(scene.told()) == (time >= 6)


def test_a_paused_queue_stays_in_the_ring() -> None:
    scene = Scene()
    scene.enqueue("a", "x")
    scene.enqueue("b", "y")
    scene.working_set.book("a").skipped = "paused"
    _, ledger = scene.service()
    assert (scene.seen, sorted(scene.ring())) == (["y"], ["a"])
    assert {origin: entry.reason for origin, entry in ledger.entries.items()} == {"a": "paused", "b": "emptied"}


def test_expired_messages_are_dropped() -> None:
    scene = Scene()
    scene.enqueue("a", "old", "older", expires=1)
    scene.enqueue("a", "new")
    scene.service()
    assert (scene.seen, scene.told()) == (["new"], ["Expired a:0:0", "Expired a:0:1", "Processed a:0:2"])


def test_after_too_many_attempts_a_message_is_set_aside() -> None:
    scene = Scene(max_attempts=3)
    scene.enqueue("a", "yield", "x")
    for _ in range(3):
        scene.service()
    assert scene.told() == ["Returned a:0:0", "Returned a:0:0", "AttemptsExhausted a:0:0", "Processed a:0:1"]


def test_backoff_doubles_up_to_the_most() -> None:
    scene = Scene(backoff=2.0, backoff_most=5.0)
    scene.enqueue("a", "yield")
    waits = []
    for _ in range(4):
        scene.service()
        waits.append((scene.working_set.changes.waits["a"] - scene.working_set.now) / 1_000_000)
        scene.working_set.book("a").skipped = ""
    assert waits == [2.0, 4.0, 5.0, 5.0]


# Orders.


def test_deficit_is_fair_within_a_block() -> None:
    scene = Scene(order="deficit", rounds_per_block=100)
    scene.enqueue("loud", *["l"] * 15)
    scene.enqueue("loud", *["l"] * 90)
    scene.enqueue("quiet", *["q"] * 10)
    scene.service(time=20)
    assert (scene.done.count("l"), scene.done.count("q")) == (10, 10)


def test_deficit_heeds_shares() -> None:
    scene = Scene(order="deficit", rounds_per_block=128, service_weight=Weight(128, 128))
    scene.set_origin("a", share=3)
    for origin in "ab":
        scene.enqueue(origin, *[origin] * 200)
    scene.service(time=128)
    assert (scene.done.count("a"), scene.done.count("b")) == (96, 32)


def test_a_large_message_is_covered_in_turn() -> None:
    scene = Scene(order="deficit", rounds_per_block=16, service_weight=Weight(128, 128))
    scene.enqueue("small", *["s"] * 200)
    scene.enqueue("large", "weight=28")
    scene.service(time=128)
    # A quantum is eight: in the fourth round it has saved up enough.
    assert scene.done.index("weight=28") == 32


def test_a_large_message_that_no_longer_fits_comes_first_next_time() -> None:
    scene = Scene(order="deficit", rounds_per_block=10)
    scene.enqueue("small", *["s"] * 300)
    scene.enqueue("large", "weight=95")
    for _ in range(2):
        scene.done.clear()
        scene.service()
    assert scene.done[0] == "weight=95"


def test_a_message_above_its_origins_most_is_overweight() -> None:
    scene = Scene(order="deficit")
    scene.set_origin("a", most=Weight(5, 100))
    scene.enqueue("a", "weight=6", *["x"] * 10)
    scene.service()
    assert scene.told()[0] == "SetAside a:0:0"
    (aside,) = scene.working_set.changes.asides.values()
    assert aside is not None and aside.limit == Weight(5, 100)
    assert scene.done.count("x") == 5


def test_a_least_comes_before_the_rounds() -> None:
    scene = Scene(order="deficit", rounds_per_block=100)
    for origin in "abcd":
        scene.enqueue(origin, *[origin] * 50)
    scene.set_origin("d", least=Weight(7, 100))
    scene.service(time=10)
    assert scene.done[:7] == ["d"] * 7
    assert len(scene.done) == 10


def test_shuffle_is_the_same_for_the_same_seed() -> None:
    origins = [f"o{number}" for number in range(20)]
    one = shuffled(origins, b"1" * 16)
    assert one == shuffled(reversed(origins), b"1" * 16)
    assert sorted(one) == sorted(origins) and one not in (origins, shuffled(origins, b"2" * 16))
    scene = Scene(order="shuffle")
    for origin in origins:
        scene.enqueue(origin, origin)
    scene.service()
    assert scene.seen == shuffled(origins, b"seed")


# Planning and settling.


def test_a_plan_claims_and_moves_nothing() -> None:
    scene = Scene(heap_size=30)
    scene.enqueue("a", *["0123456789"] * 3)
    scene.enqueue("b", "x")
    before = [scene.footprint(origin) for origin in "ab"]
    claims = scene.plan()
    assert [(claim.origin, claim.messages, claim.planned) for claim in claims] == [
        ("a", 3, Weight(3, 0)), ("b", 1, Weight(1, 0))
    ]  # fmt: skip
    assert [(run.page, run.first, run.count, run.closed) for run in claims[0].runs] == [
        (0, 0, 2, True),
        (1, 0, 1, True),
    ]
    assert ([scene.footprint(origin) for origin in "ab"], scene.told()) == (before, [])
    assert scene.settle(claims).processed == 4
    assert (scene.footprint("a"), scene.ring()) == ((0, 0, 0, 0), [])


def test_a_plan_decides_and_settling_carries_it_out() -> None:
    scene = Scene()
    scene.enqueue("a", "old", expires=1)
    scene.enqueue("a", "weight=101", "x")
    (claim,) = scene.plan()
    assert [(item, one.exceeded) for item, one in claim.runs[0].decisions.items()] == [
        (0, None), (1, ("overweight", (100, 100)))
    ]  # fmt: skip
    assert list(claim.runs[0].handed_out()) == [2]
    done = scene.settle([claim])
    assert (done.processed, done.expired, done.set_aside) == (1, 1, 1)
    assert scene.told() == ["Expired a:0:0", "SetAside a:0:1", "Processed a:0:2"]


def test_plan_and_settle_record_the_events_of_servicing_in_place() -> None:
    words = ["x", "weight=3", "bad", "weight=200", "failure", "stack", "y"]
    scenes = [Scene(heap_size=40) for _ in range(2)]
    for scene in scenes:
        for origin in "abc":
            scene.enqueue(origin, *words)
    scenes[0].service()
    scenes[1].settle(scenes[1].plan())
    assert scenes[0].told() == scenes[1].told()
    assert [scenes[0].footprint(origin) for origin in "abc"] == [scenes[1].footprint(origin) for origin in "abc"]


def test_silence_sends_everything_after_it_back() -> None:
    scene = Scene()
    scene.enqueue("a", "one", "two", "three")
    done = scene.settle(scene.plan(), silent=["two", "three"])
    assert (done.processed, done.returned) == (1, 2)
    assert scene.told() == ["Processed a:0:0", "Returned a:0:1"]
    assert [scene.working_set.pages["a", 0].note(item).attempts for item in range(3)] == [0, 1, 0]  # type: ignore[union-attr]


def test_of_a_relaxed_queue_each_outcome_stands_for_itself() -> None:
    scene = Scene(ordered=False)
    scene.enqueue("a", "one", "two", "three")
    scene.settle(scene.plan(), silent=["one", "three"])
    assert scene.told() == ["Returned a:0:0", "Processed a:0:1", "Returned a:0:2"]
    assert scene.footprint("a")[2] == 2


def test_what_kept_its_outcome_is_not_tried_again() -> None:
    scene = Scene()
    scene.enqueue("a", "one", "two", "three")
    scene.settle(scene.plan(), silent=["one"])
    (claim,) = scene.plan()
    assert [list(run.handed_out()) for run in claim.runs if run.count] == [[0]]
    scene.settle([claim])
    assert scene.footprint("a") == (0, 0, 0, 0)


# Behind the window.


def heavy(**settings: int) -> Scene:
    scene = Scene(**settings)
    scene.enqueue("a", "x", "weight=500")
    scene.service()
    return scene


def test_executing_by_hand() -> None:
    scene = heavy()
    with pytest.raises(InsufficientWeight):
        scene.execute("a", 0, 1, time=499)
    assert scene.footprint("a") == (1, 0, 1, 10)
    assert scene.execute("a", 0, 1, time=500) == Weight(500, 0)
    assert scene.told()[-2:] == ["Processed a:0:1", "Executed a:0:1"]
    assert scene.footprint("a") == (0, 0, 0, 0)


def test_refusals_of_execution_come_in_order() -> None:
    scene = heavy()
    scene.enqueue("a", "next")
    for page, index, error in ((0, 0, AlreadyProcessed), (0, 2, NoMessage), (5, 0, NoPage), (1, 0, Queued)):
        with pytest.raises(error):
            scene.execute("a", page, index)
    scene.working_set.book("a").skipped = "paused"
    for page, index in ((0, 0), (5, 0), (0, 1)):
        with pytest.raises(QueuePaused):
            scene.execute("a", page, index)


def test_a_message_that_yields_by_hand_stays() -> None:
    scene = Scene(max_attempts=1)
    scene.enqueue("a", "yield")
    scene.service()
    before = scene.footprint("a")
    with pytest.raises(TemporarilyUnprocessable):
        scene.execute("a", 0, 0)
    assert scene.footprint("a") == before == (1, 0, 1, 5)


def test_the_last_message_of_a_page_in_the_window_leaves_no_hole() -> None:
    scene = Scene()
    scene.enqueue("a", "weight=500", "yield")
    scene.enqueue("a", "x")
    scene.service()
    assert scene.working_set.book("a").begin == 0
    scene.execute("a", 0, 0)
    assert (scene.footprint("a")[1], scene.ring()) == (1, ["a"])


def test_discarding_leaves_a_record() -> None:
    scene = heavy()
    discard(scene.working_set, Address("a", 0, 1), "too old")
    scene.check()
    assert (scene.events()[-1].name, scene.events()[-1].detail) == ("Discarded", "too old")
    assert scene.footprint("a") == (0, 0, 0, 0)


def test_reaping_names_what_goes_with_the_page() -> None:
    scene = Scene(heap_size=20, max_stale=1)
    for _ in range(5):
        scene.enqueue("a", "weight=500")
    scene.service()
    with pytest.raises(NotReapable):
        reap_page(scene.working_set, "a", 5, "", "ann")
    with pytest.raises(NotReapable):
        reap_page(scene.working_set, "a", 4, "", "ann")
    reap_page(scene.working_set, "a", 0, "too old", "ann")
    scene.check()
    with pytest.raises(NoPage):
        reap_page(scene.working_set, "a", 0, "", "ann")
    assert scene.told()[-2:] == ["Discarded a:0:0", "PageRemoved a:0:0"]
    assert scene.footprint("a") == (4, 0, 4, 40)
