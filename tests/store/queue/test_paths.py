"""Origins as paths: pausing, reading, explaining and forecasting groups."""

from __future__ import annotations

import random
import threading
from collections import Counter

import pytest

from airflow_mq import (
    Address,
    Delivery,
    Done,
    LinearWeigher,
    MessageQueue,
    Weight,
    Yield,
)
from airflow_mq.engine.rules.errors import ConfigRefused, QueuePaused
from airflow_mq.engine.rules.groups import groups_of, is_below
from tests.proofs.crash.states import everything
from tests.store.queue.conftest import Maker
from tests.store.queue.test_foreseeing import (
    Life,
    assert_planned_as_foreseen,
    check_explanations,
    claims_of,
    complete_block,
    untouched,
)

UNIT = LinearWeigher(Weight(1, 1), Weight(0, 0))


@pytest.fixture
def queue(make_queue: Maker) -> MessageQueue:
    return make_queue(paths=True, service_weight=Weight(12, 12), weigher=UNIT)


def send(queue: MessageQueue, *origins: str, count: int = 5) -> None:
    for origin in origins:
        queue.enqueue_messages(origin, [b"%d" % number for number in range(count)])


def run_block(queue: MessageQueue) -> dict[str, int]:
    """Run the next block and return its message counts."""
    block = queue.blocks.plan()
    complete_block(queue, block)
    return dict(Counter({claim.origin: claim.messages for claim in block.claims if claim.messages}))


# Pausing.


def test_paused_group_is_skipped_with_all_below_it(queue: MessageQueue) -> None:
    send(queue, "acme", "acme/orders", "acme/orders/eu", "acmes", "birch", count=2)
    queue.admin.pause("acme", "no", below=True)
    assert run_block(queue) == {"acmes": 2, "birch": 2}
    # Origins that are added later are skipped, too; sending continues.
    send(queue, "acme/mail", "acme/orders", count=1)
    assert run_block(queue) == {}
    assert queue.inspect.pulse().ready == ()
    assert queue.footprint("acme", below=True).count == 8
    (paused,) = queue.admin.paused()
    assert (paused.origin, paused.below) == ("acme", True)
    assert not queue.admin.resume("acme/orders")
    assert queue.admin.resume("acme")
    assert set(run_block(queue)) == {"acme", "acme/orders", "acme/orders/eu", "acme/mail"}


def test_nested_group_is_paused_separately(queue: MessageQueue) -> None:
    send(queue, "acme/orders/eu", "acme/orders/us", "acme/mail", count=1)
    queue.admin.pause("acme/orders", below=True)
    assert run_block(queue) == {"acme/mail": 1}
    queue.admin.resume("acme/orders")
    queue.admin.pause("acme/orders")  # pauses only the queue of that name, which is empty
    assert run_block(queue) == {"acme/orders/eu": 1, "acme/orders/us": 1}


def test_pause_of_a_group_ends_at_its_time(queue: MessageQueue) -> None:
    send(queue, "acme/orders", count=1)
    queue.admin.pause("acme", until=0, below=True)
    assert run_block(queue) == {"acme/orders": 1}


def test_pause_of_a_group_does_not_stop_a_block_in_flight(queue: MessageQueue) -> None:
    send(queue, "acme/a", "acme/b", "birch", count=8)
    block = queue.blocks.plan()
    queue.admin.pause("acme", below=True)
    assert queue.blocks.plan().messages == 0, "birch is in flight, and all of acme is paused"
    held = sum(claim.messages for claim in block.claims)
    complete_block(queue, block)
    assert queue.footprint("acme", below=True).count + queue.footprint("birch").count == 24 - held
    assert set(run_block(queue)) == {"birch"}
    queue.admin.resume("acme")
    assert {"acme/a", "acme/b"} <= set(run_block(queue))


def test_a_pause_of_a_group_does_not_count_as_unfair(queue: MessageQueue) -> None:
    send(queue, "birch", count=40)
    send(queue, "acme/mail", count=1)
    queue.admin.pause("acme", below=True)
    for _ in range(3):
        assert set(run_block(queue)) == {"birch"}
        (page,) = queue.inspect.ledger(limit=1)
        assert page.halted == {"paused": ["acme"]}
    assert queue.inspect.fairness().broken(most_wait=0) == []
    queue.admin.resume("acme")
    report = queue.inspect.fairness()
    assert report.origin("acme/mail").longest_wait == 0 and report.broken(most_wait=0) == []


def test_set_aside_messages_of_a_paused_group_cannot_be_executed(queue: MessageQueue) -> None:
    queue.enqueue_message("acme/a", b"heavy", weight=Weight(50, 50))
    complete_block(queue, queue.blocks.plan())
    queue.admin.pause("acme", below=True)
    with pytest.raises(QueuePaused):
        queue.execute_overweight(Address("acme/a", 0, 0), lambda delivery: None, Weight(99, 99))
    queue.admin.resume("acme")
    queue.execute_overweight(Address("acme/a", 0, 0), lambda delivery: None, Weight(99, 99))


def test_groups_require_paths(make_queue: Maker, queue: MessageQueue) -> None:
    plain = make_queue("plain")
    with pytest.raises(ConfigRefused, match="no groups to pause"):
        plain.admin.pause("acme", below=True)
    queue.admin.pause("acme", below=True)
    with pytest.raises(ConfigRefused, match="'acme' is paused; resume it first"):
        queue.admin.change_ring(paths=False)
    queue.admin.resume("acme")
    assert not queue.admin.change_ring(paths=False).paths


# Reading.


def test_footprint_of_a_group_is_the_sum_of_its_queues(queue: MessageQueue) -> None:
    send(queue, "acme", "acme/a", "acme/b/c", "acme-not", "acme/é", count=3)
    queue.enqueue_message("acme/z", b"heavy", weight=Weight(50, 50))
    block = queue.blocks.plan()
    queue.blocks.report(block, [batch.answer() for batch in block.batches()][:1])
    names = [origin for origin, _ in queue.footprints() if is_below(origin, "acme")]
    assert len(names) == 5
    single = [queue.footprint(origin) for origin in names]
    whole = queue.footprint("acme", below=True)
    assert vars(whole) == {name: sum(getattr(footprint, name) for footprint in single) for name in vars(whole)}
    assert queue.footprint("acme").count <= 3
    assert queue.footprint("nobody", below=True).count == 0


def test_ledger_page_sums_a_group(queue: MessageQueue) -> None:
    send(queue, "acme/a", "acme/b", "birch", count=9)
    complete_block(queue, queue.blocks.plan())
    (page,) = queue.inspect.ledger()
    assert page.below("acme") == page.below("birch") == (6, Weight(6, 6))
    assert page.below("acme/a") == (3, Weight(3, 3))
    for entry in page.entries:
        assert entry.deficit <= 0, "with paths, origins keep no positive deficit"
        assert entry.offered > 0


def test_explain_covers_groups(queue: MessageQueue) -> None:
    send(queue, "acme/a", "acme/b", count=30)
    assert queue.inspect.explain("acme", below=True).block == 1
    assert queue.inspect.explain("acme").reason == "empty"
    send(queue, "birch")
    explanation = queue.inspect.explain_message(Address("acme/b", 0, 20))
    assert (explanation.reason, explanation.block) == ("behind", 4)
    queue.admin.set_origin("birch", most=Weight(2, 2))
    explanation = queue.inspect.explain_message(Address("birch", 0, 2))
    assert (explanation.reason, explanation.block) == ("behind", 2)
    complete_block(queue, queue.blocks.plan())
    assert queue.inspect.explain("birch").block == 1
    queue.admin.pause("acme", "no money", below=True)
    for explanation_of_pause in (queue.inspect.explain("acme", below=True), queue.inspect.explain("acme/b")):
        assert explanation_of_pause.reason == "paused"
        assert "acme, with all below it, is paused by tester: no money" in explanation_of_pause.sentence
        assert tuple(explanation_of_pause.remedies) == ("airflow-mq queue resume acme --ring test",)
    assert queue.inspect.explain("nobody", below=True).reason == "empty"


def test_a_group_whose_messages_are_all_delayed_or_set_aside_is_not_empty(make_queue: Maker) -> None:
    queue = make_queue(paths=True, service_weight=Weight(10, 10))
    queue.enqueue_message("acme-other", b"x", not_before=3_600)
    assert queue.inspect.explain("acme", below=True).reason == "empty"
    queue.enqueue_message("acme/high", b"x", not_before=3_600, priority="high")
    assert queue.inspect.explain("acme", below=True).origin == "acme/high"
    queue.enqueue_message("acme/z", b"x", not_before=3_600)
    assert queue.inspect.explain("acme", below=True).origin == "acme/z"
    queue.enqueue_message("acme/b", b"x", weight=Weight(11, 1))
    queue.service_queues(lambda delivery: None)
    assert queue.inspect.explain("acme", below=True).reason == "set aside"
    queue.enqueue_message("acme", b"x", not_before=3_600)
    assert queue.inspect.explain("acme", below=True).origin == "acme"


def test_dry_run_applies_the_share_of_a_group(queue: MessageQueue) -> None:
    send(queue, "acme/a", "acme/b", "birch", count=40)
    with untouched(queue):
        dry_run = queue.inspect.dry_run(shares={"acme": 3})
    assert dry_run.queue("birch").messages == 3
    assert dry_run.queue("acme/a").messages + dry_run.queue("acme/b").messages == 9
    queue.admin.set_origin("acme", share=3)
    assert run_block(queue)["birch"] == 3


def test_forced_head_is_first(queue: MessageQueue) -> None:
    send(queue, "acme/a", "acme/b", "birch", count=20)
    for _ in range(3):
        first, *others = queue.inspect.dry_run().origins
        other = next(origin for origin in others if origin != first)
        assert queue.admin.force_set_head(other)
        assert queue.inspect.dry_run().origins[0] == other
        run_block(queue)


# Forecasting.


class Tree(Life):
    """A ring with paths and a random past."""

    def __init__(self, queue: MessageQueue, dice: random.Random) -> None:
        self.groups = ["a", "b", "a/x", "c"]
        super().__init__(queue, dice)

    def __setattr__(self, name: str, value: object) -> None:
        if name == "origins":
            value = ["a", "a/x/1", "a/x/2", "a/y", "b/1", "b/2", "b", "c"][: self.dice.choice([3, 6, 8])]
        super().__setattr__(name, value)

    def pause(self) -> None:
        self.queue.admin.pause(self.dice.choice(self.groups), below=self.dice.random() < 0.5)

    def set(self) -> None:
        if self.dice.random() < 0.5:
            return super().set()
        self.queue.admin.set_origin(self.dice.choice(self.groups), share=self.dice.choice([1, 2, 5]),
                              most=self.dice.choice([None, None, Weight(8, 8)]),
                              least=self.dice.choice([None, None, Weight(4, 4)]))  # fmt: skip
        return None


def make_random_tree(make_queue: Maker, number: int) -> MessageQueue:
    dice = random.Random(number)
    queue = make_queue(
        f"tree-{number}", paths=True, heap_size=dice.choice([48, 4096]), rounds_per_block=dice.choice([1, 3, 8]),
        service_weight=dice.choice([Weight(12, 12), Weight(30, 40), Weight(200, 300)]), ordered=dice.random() < 0.7,
        weigher=UNIT, max_attempts=dice.choice([None, 2]), backoff=dice.choice([0.0, 0.0, 3600.0]),
    )  # fmt: skip
    Tree(queue, dice)
    return queue


@pytest.mark.slow
def test_forecast_with_paths_equals_the_next_blocks(make_queue: Maker) -> None:
    for number in range(40):
        queue = make_random_tree(make_queue, number)
        with untouched(queue):
            foreseen = queue.inspect.forecast(8)
        for foreseen_block in foreseen:
            block = queue.blocks.plan()
            assert_planned_as_foreseen(queue, foreseen_block, block)
            complete_block(queue, block)
        if len(foreseen) < 8:
            assert claims_of(queue.blocks.plan()) == []


@pytest.mark.slow
def test_explain_with_paths_names_the_block_of_a_message(make_queue: Maker) -> None:
    for number in range(100, 125):
        check_explanations(make_random_tree(make_queue, number), random.Random(number))


# Servicing in place.


def test_service_shares_by_groups(queue: MessageQueue) -> None:
    for number in range(20):
        send(queue, f"sybil/{number:02}", count=9)
    send(queue, "honest", count=40)
    seen: Counter[str] = Counter()

    def process(delivery: Delivery) -> Done:
        seen[delivery.origin.partition("/")[0]] += 1
        return Done()

    for _ in range(5):
        queue.service_queues(process, slice_messages=5)
    assert seen == {"sybil": 30, "honest": 30}


def test_message_to_another_group_is_serviced_in_the_same_call(queue: MessageQueue) -> None:
    send(queue, "in/a", "in/b", count=2)
    seen: Counter[str] = Counter()

    def process(delivery: Delivery) -> Done:
        seen[delivery.origin] += 1
        return Done(enqueue=[("out/x/y", delivery.payload), ("in/c", b"x")] if is_below(delivery.origin, "in") else ())

    first = queue.service_queues(process, Weight(7, 7))
    assert first.processed == 7
    assert seen["out/x/y"] > 0


def test_newcomer_gets_no_credit_for_earlier_blocks(queue: MessageQueue) -> None:
    send(queue, "early", count=80)
    seen: list[str] = []

    def process(delivery: Delivery) -> Done:
        seen.append(delivery.origin)
        return Done(enqueue=[("late", b"x")] * 30 if len(seen) == 40 else ())

    queue.service_queues(process, Weight(100, 100))
    assert 8 <= seen[40:60].count("late") <= 12


def test_requeued_messages_are_charged(queue: MessageQueue) -> None:
    """An origin that fails repeatedly takes no more than its share, at any level."""
    send(queue, "failing/1", "failing/2", "fine/1", count=60)
    for _ in range(4):
        block = queue.blocks.plan()
        assert sum(claim.messages for claim in block.claims if is_below(claim.origin, "fine")) == 6
        queue.blocks.report(
            block, [batch.answer(*([] if batch.origin == "fine/1" else [Yield("no")])) for batch in block.batches()]
        )
        queue.blocks.settle(block)


def test_concurrent_blocks_hold_different_queues(make_queue: Maker) -> None:
    queue = make_queue(paths=True, service_weight=Weight(6, 6), weigher=UNIT)
    send(queue, "a/1", "a/2", "b/1", "b/2", count=10)
    first = queue.blocks.plan(limit=Weight(2, 2))
    second = queue.blocks.plan(limit=Weight(2, 2))
    assert set(first.origins).isdisjoint(second.origins)
    assert [{origin[0] for origin in block.origins} for block in (first, second)] == [{"a", "b"}] * 2
    complete_block(queue, second)
    complete_block(queue, first)


def test_overrun_is_charged_to_groups_during_a_service(queue: MessageQueue) -> None:
    """If a block settles while a service holds the ring, both charges count."""
    send(queue, "a/1", "a/2", "b/1", count=10)
    block = queue.blocks.plan(limit=Weight(1, 1))
    (origin,) = block.origins

    def settle() -> None:
        with MessageQueue(queue.store.address, queue.ring) as other:
            other.blocks.report(block, [batch.answer(Done(used=Weight(13, 13))) for batch in block.batches()])
            other.blocks.settle(block)

    def process(delivery: Delivery) -> Done:
        if queue.blocks.get(block.token).state == "planned":
            thread = threading.Thread(target=settle)
            thread.start()
            thread.join()
        return Done()

    queue.service_queues(process)
    with queue.session.snapshot() as (_, working_set):
        working_set.loader.load_groups()
        charged = {path: -branch.deficit / 2**30 for path, branch in working_set.groups.items()}
    # The service costs twelve, the plan one, and the overrun twelve; a group pays its share and its sibling's rest.
    assert sum(charged[path] for path in ("a/", "b/")) == pytest.approx(25 / 12, rel=0.01)
    assert charged[groups_of(origin)[0]] > 1


# Checks.


@pytest.mark.parametrize(
    ("change", "violation"),
    [
        ("UPDATE {p}origin_group SET deficit = 5 WHERE path = 'a/'", "its deficit is 5 and its level"),
        ("UPDATE {p}book SET deficit = 7 WHERE origin = 'a/1'", "its deficit is 7, but paths=True allows none"),
        ("UPDATE {p}origin_group SET path = 'z/' WHERE path = 'a/'", "no origin was ever in it"),
        (
            """UPDATE {p}origin_group SET owed = '{{"first": ["z"]}}' WHERE path = ''""",
            "'z' is listed to come first, but does not exist",
        ),
        (
            """UPDATE {p}origin_group SET owed = '{{"first": ["a/1", "a/2"]}}' WHERE path = ''""",
            "which comes first only once",
        ),
    ],
)
def test_check_reports_violations_of_groups(queue: MessageQueue, change: str, violation: str) -> None:
    send(queue, "a/1", "a/2", "b")
    run_block(queue)
    before = everything(queue)["origin_group"]
    with queue.store.writing() as unit:
        prefix = queue.store.prefix
        unit.connection.execute(change.format(p=prefix))  # type: ignore[attr-defined]
    assert any(violation in str(found) for found in queue.check())
    with queue.store.writing() as unit:
        unit.connection.execute(f"DELETE FROM {prefix}origin_group WHERE path = 'z/'")  # type: ignore[attr-defined]
        unit.connection.execute(f"UPDATE {prefix}book SET deficit = 0")  # type: ignore[attr-defined]
        for row in before:
            unit.connection.execute(  # type: ignore[attr-defined]
                f"UPDATE {prefix}origin_group SET owed = '{row['owed']}', deficit = {row['deficit']} "
                f"WHERE path = '{row['path']}'"
            )
    assert queue.check() == []


def test_ring_without_paths_stores_no_groups(make_queue: Maker) -> None:
    plain = make_queue("plain", weigher=UNIT, service_weight=Weight(12, 12))
    send(plain, "a/1", "a/2")
    run_block(plain)
    assert everything(plain)["origin_group"] == []
