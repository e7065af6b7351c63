"""Messages heavier than a block's limit but not the ring's: each report names the limit."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from airflow_mq import Address, MessageQueue, Overweight, Weight
from airflow_mq.engine.queue.attempts import batch_processor
from airflow_mq.engine.queue.inspect.reasons import Explanation
from airflow_mq.engine.rules.errors import ConfigRefused
from tests.store.queue.conftest import Maker, in_airflow, logged_events, serve

RING, BLOCK = Weight(600_000, 1_000_000), Weight(60_000, 1_000_000)
HEAVY = Weight(70_000, 1)
DAG = "DAG 'orders', task 'block.plan'"
FRONT = Address("acme", 0, 0)


def stuck_queue(make_queue: Maker, order: str = "deficit", **settings: Any) -> MessageQueue:
    """Return a queue whose first message is too heavy for its blocks, with two light ones behind it."""
    queue = make_queue(order=order, service_weight=RING, **settings)
    queue.enqueue_message("acme", b"heavy", weight=HEAVY)
    queue.enqueue_messages("acme", [b"light", b"light"], weight=Weight(1, 1))
    return queue


def stuck(queue: MessageQueue, most: int = 100) -> list[Explanation]:
    """Explain the stuck ones of the first queues, and of those that the ledger records."""
    return queue.inspect.stuck(queue.inspect.ring(most).queues, queue.inspect.servicing())


def run_block(queue: MessageQueue, limit: Weight | None = BLOCK, server: str | None = DAG) -> list[str]:
    """Complete a block and return its origins."""
    block = queue.blocks.plan(limit=limit, server=in_airflow(server))
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)
    return block.origins


@pytest.mark.parametrize("order", ["deficit", "rotation"])
def test_plan_logs_and_ledger_records_a_stuck_queue(
    make_queue: Maker, order: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue = stuck_queue(make_queue, order)
    queue.enqueue_message("beta", b"light", weight=Weight(1, 1))

    with caplog.at_level(logging.WARNING, "airflow_mq"):
        assert run_block(queue) == ["beta"]

    (warning,) = caplog.messages
    assert "70 s · 1 B for 'acme'" in warning and "1 min · 1 MB" in warning
    assert str(in_airflow(DAG)) in warning
    (page,) = queue.inspect.ledger()
    entries = {entry.origin: entry for entry in page.entries}
    assert (entries["acme"].reason, entries["acme"].needs, entries["beta"].needs) == ("limit", HEAVY, None)
    assert (page.server, page.limit) == (in_airflow(DAG), BLOCK)


def test_plan_with_a_sufficient_limit_logs_nothing(make_queue: Maker, caplog: pytest.LogCaptureFixture) -> None:
    queue = stuck_queue(make_queue)

    assert run_block(queue, Weight(70_001, 1_000_000)) == ["acme"]

    assert caplog.messages == []
    assert [entry.needs for page in queue.inspect.ledger() for entry in page.entries] == [None]


def test_service_logs_and_ledger_records_a_stuck_queue(make_queue: Maker, caplog: pytest.LogCaptureFixture) -> None:
    queue = stuck_queue(make_queue)

    assert serve(queue, limit=BLOCK) == []

    assert "70 s · 1 B for 'acme'" in caplog.messages[0] and "tester" in caplog.messages[0]
    (page,) = queue.inspect.ledger()
    assert [(entry.reason, entry.needs) for entry in page.entries] == [("limit", HEAVY)]
    assert (page.server, page.limit) == ("tester", BLOCK)


@pytest.mark.parametrize("batches", [False, True])
def test_reported_overweight_is_recorded_as_needed(make_queue: Maker, batches: bool) -> None:
    queue = make_queue(service_weight=RING)
    queue.enqueue_message("acme", b"heavy")
    answer_overweight: Any = lambda delivery: [Overweight(HEAVY)] if batches else Overweight(HEAVY)  # noqa: E731

    queue.service_queues(batch_processor(answer_overweight) if batches else answer_overweight, BLOCK)

    assert [(entry.reason, entry.needs) for entry in queue.inspect.ledger()[0].entries] == [("limit", HEAVY)]


def test_explain_and_dry_run_use_the_limit_of_real_blocks(make_queue: Maker) -> None:
    queue = stuck_queue(make_queue)
    assert (queue.inspect.explain("acme").reason, queue.inspect.dry_run().messages) == ("next", 3)

    run_block(queue)

    explanation = queue.inspect.explain("acme")
    assert (explanation.reason, explanation.address, explanation.block) == ("stuck", FRONT, None)
    assert explanation.sentence == (
        "the first message of acme, acme:0:0, needs 70 s · 1 B, more than the 1 min · 1 MB that blocks of "
        "DAG 'orders', task 'block.plan' can carry: it stays where it is."
    )
    assert explanation.remedies[0] == "a limit of at least 70 s · 1 MB for these blocks"
    behind = queue.inspect.explain_message(Address("acme", 0, 2))
    assert (behind.reason, "waits behind acme:0:0, which needs 70 s · 1 B" in behind.sentence) == ("stuck", True)
    block = queue.inspect.dry_run()
    assert (block.messages, block.limit, block.server) == (0, BLOCK, DAG)
    assert [(entry.origin, entry.needs) for entry in block.queues] == [("acme", HEAVY)]
    assert queue.inspect.forecast(3) == [] or [foreseen.messages for foreseen in queue.inspect.forecast(3)] == [0, 0, 0]
    # An explicit limit takes precedence.
    assert (queue.inspect.dry_run(RING).messages, queue.inspect.dry_run(RING).server) == (3, None)
    assert queue.inspect.explain("acme", limit=RING).reason == "next"


def test_explain_names_the_server_with_a_sufficient_limit(make_queue: Maker) -> None:
    queue = stuck_queue(make_queue)
    run_block(queue, Weight(65_000, 1 << 30), "DAG 'night', task 'plan'")
    run_block(queue)
    assert {server.title: server.limit for server in queue.inspect.servicing().servers} == {
        "DAG 'night', task 'plan'": Weight(65_000, 1 << 30), DAG: BLOCK
    }  # fmt: skip
    explanation = queue.inspect.explain("acme")
    assert explanation.reason == "stuck"
    assert explanation.sentence == (
        "the first message of acme, acme:0:0, needs 70 s · 1 B, more than the 1 min · 1 MB that blocks of "
        "DAG 'orders', task 'block.plan' and the 65 s · 1 GiB that blocks of DAG 'night', task 'plan' can carry: "
        "it stays where it is."
    )

    queue.enqueue_message("beta", b"x", weight=Weight(64_000, 1))

    assert queue.inspect.explain("beta").sentence.endswith("runs in the next block of DAG 'night', task 'plan'.")


def test_server_without_limit_follows_the_ring(make_queue: Maker) -> None:
    queue = stuck_queue(make_queue)
    run_block(queue, Weight(0, 0))
    run_block(queue, None)
    queue.enqueue_message("acme", b"x", weight=Weight(500_000, 1))
    assert queue.inspect.explain("acme").reason == "next"

    queue.admin.change_ring(service_weight=BLOCK)

    assert queue.inspect.explain("acme").reason == "overweight"


def test_policy_sets_aside_messages_above_the_block_limit(make_queue: Maker) -> None:
    queue = stuck_queue(make_queue, set_aside_above="block")

    assert run_block(queue) == ["acme"]

    assert [event[0] for event in logged_events(queue)] == ["SetAside", "Processed", "Processed"]
    (aside,) = queue.set_aside.list()
    assert (aside.reason, aside.weight, aside.limit) == ("overweight", HEAVY, BLOCK)


def test_policy_applies_to_services(make_queue: Maker) -> None:
    queue = stuck_queue(make_queue, set_aside_above="block")

    assert len(serve(queue, limit=BLOCK)) == 2

    assert [aside.limit for aside in queue.set_aside.list()] == [BLOCK]
    with pytest.raises(ConfigRefused, match="invalid set_aside_above 'all': expected ring or block"):
        queue.admin.change_ring(set_aside_above="all")


@pytest.mark.parametrize("paths", [False, True])
def test_stuck_queue_does_not_take_from_others(make_queue: Maker, paths: bool) -> None:
    """The stuck queue keeps its turn; serviced origins must not owe newcomers for it."""
    queue = make_queue(service_weight=RING, paths=paths)
    queue.enqueue_message("acme", b"heavy", weight=HEAVY)
    for _ in range(20):
        queue.enqueue_messages("old", [b"x"] * 8, weight=Weight(10_000, 1))
        run_block(queue)

    queue.enqueue_messages("old", [b"x"] * 24, weight=Weight(10_000, 1))
    queue.enqueue_messages("new", [b"x"] * 24, weight=Weight(10_000, 1))
    run_block(queue)

    granted = {entry.origin: entry.messages for entry in queue.inspect.ledger(limit=1)[0].entries}
    assert granted["old"] >= 2 and granted["new"] >= 2


def test_stuck_lists_stuck_queues(make_queue: Maker) -> None:
    queue = stuck_queue(make_queue)
    for number in range(4):
        queue.enqueue_message(f"o{number}", b"x", weight=Weight(1, 1))
    assert stuck(queue) == []

    block = queue.blocks.plan(limit=BLOCK, server=in_airflow(DAG))
    queue.blocks.release(block)

    assert [explanation.origin for explanation in stuck(queue, 1)] == ["acme"]
    assert [explanation.reason for explanation in stuck(queue)] == ["stuck"]


def set_aside_by(queue: MessageQueue, *limits: Weight) -> Address:
    """Let blocks of DAGs with these limits run; return the message that they set aside."""
    for number, limit in enumerate(limits):
        run_block(queue, limit, f"DAG 'orders-{number}', task 'block.plan'")
    (aside,) = queue.set_aside.list()
    return aside.address


def test_requeue_refuses_what_the_next_block_would_set_aside(make_queue: Maker) -> None:
    queue = stuck_queue(make_queue, set_aside_above="block")
    address = set_aside_by(queue, BLOCK)
    refusal = "it weighs 70 s · 1 B, more than the 1 min · 1 MB that a block can carry"

    assert [judged.why for judged in queue.set_aside.requeue(address).stayed] == [refusal]
    assert [judged.why for judged in queue.set_aside.requeue_all().stayed] == [refusal]
    assert queue.set_aside.refusals(queue.set_aside.list()) == [refusal]

    # The DAG's limit was raised, and no block has had it yet.
    assert queue.set_aside.refusals(queue.set_aside.list(), RING) == [""]
    assert len(queue.set_aside.requeue(address, limit=RING).moved) == 1
    assert run_block(queue, RING) == ["acme"] and queue.set_aside.list() == []


def test_requeue_accepts_what_a_block_of_another_dag_carries(make_queue: Maker) -> None:
    queue = stuck_queue(make_queue, set_aside_above="block")
    address = set_aside_by(queue, BLOCK, RING)

    assert len(queue.set_aside.requeue(address).moved) == 1


def test_requeue_asks_only_dags_that_take_the_origin(make_queue: Maker) -> None:
    queue = stuck_queue(make_queue, set_aside_above="block")
    address = set_aside_by(queue, BLOCK)
    queue.enqueue_message("beta", b"x", weight=Weight(1, 1))
    queue.blocks.settle(queue.blocks.plan(origins=["beta"], limit=RING, server=in_airflow("DAG 'beta', task 'plan'")))

    assert [judged.address for judged in queue.set_aside.requeue(address).stayed] == [address]


def test_requeue_compares_with_the_ring_by_default(make_queue: Maker) -> None:
    queue = stuck_queue(make_queue)
    run_block(queue)
    queue.admin.change_ring(service_weight=BLOCK)
    address = set_aside_by(queue, BLOCK)
    queue.admin.change_ring(service_weight=RING)

    assert len(queue.set_aside.requeue(address).moved) == 1


def test_requeue_in_a_ring_without_service_weight_uses_the_limits_of_blocks(make_queue: Maker) -> None:
    queue = make_queue()
    queue.admin.change_ring(service_weight=None)
    queue.enqueue_message("acme", b"heavy", weight=HEAVY)
    address = set_aside_by(queue, BLOCK)

    assert "more than the 1 min" in queue.set_aside.requeue(address).stayed[0].why
    run_block(queue, RING, "DAG 'orders-0', task 'block.plan'")
    assert len(queue.set_aside.requeue(address).moved) == 1


def test_queues_that_only_a_further_look_reaches_are_recorded_as_others(make_queue: Maker) -> None:
    limit = Weight(100, 1 << 20)
    queue = make_queue(service_weight=RING)
    queue.admin.set_origin("bounded", most=Weight(20, 1 << 20))
    heavy = [(f"heavy-{at:03}", b"x") for at in range(600)]
    queue.enqueue_messages(heavy[:300], weight=Weight(500, 1))
    queue.enqueue_messages("bounded", [b"x"] * 3, weight=Weight(10, 1))
    queue.enqueue_message("behind", b"x", weight=Weight(10, 1))
    queue.enqueue_message("behind", b"x", weight=Weight(500, 1))
    queue.enqueue_messages(heavy[300:], weight=Weight(500, 1))

    block = queue.blocks.plan(limit=limit)

    assert set(block.origins) == {"bounded", "behind"}
    (page,) = queue.inspect.ledger()
    entries = {entry.origin: (entry.reason, entry.needs) for entry in page.entries}
    assert entries["bounded"] == ("most", None)
    assert entries["behind"] == ("limit", Weight(500, 1))
