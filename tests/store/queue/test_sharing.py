"""Shared rings: each DAG services its own origins and leaves those of others alone."""

from __future__ import annotations

import random
from typing import Any

import pytest

from airflow_mq import Block, MessageQueue, Weight
from airflow_mq.engine.rules.errors import InvalidInput
from airflow_mq.engine.rules.patterns import OriginPatterns
from airflow_mq.words import when
from tests.proofs.model.clock import stopped_clock
from tests.store.queue.conftest import Maker, in_airflow

ORDERS, MAIL = "DAG 'orders', task 'plan'", "DAG 'mail', task 'plan'"
SEED = b"a seed"


def complete_block(queue: MessageQueue, block: Block) -> list[Any]:
    """Complete all messages of a block; return its claims and its ledger entries."""
    held = [(claim.origin, [(run.page, run.first, run.count) for run in claim.runs]) for claim in block.claims]
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)
    lines = [
        (entry.origin, entry.priority, entry.offered, entry.granted, entry.messages, entry.deficit, entry.reason, entry.needs)
        for page in queue.inspect.ledger(block=block.id) for entry in page.entries
    ]  # fmt: skip
    return [held, lines]


def run_block(queue: MessageQueue, *origins: str, server: str = ORDERS, **options: Any) -> list[Any]:
    """Plan and complete a block of these origins."""
    options |= {"seed": SEED} if queue.config.order == "shuffle" else {}
    return complete_block(queue, queue.blocks.plan(origins=origins or None, server=in_airflow(server), **options))


@pytest.mark.sqlite_first
@pytest.mark.parametrize(
    ("order", "settings"),
    [("rotation", {}), ("deficit", {}), ("deficit", {"high": True}), ("deficit", {"paths": True}), ("shuffle", {})],
    ids=["rotation", "deficit", "high", "paths", "shuffle"],
)
@pytest.mark.parametrize("seed", range(3))
def test_block_of_some_origins_equals_block_of_their_own_ring(
    make_queue: Maker, order: str, settings: dict[str, Any], seed: int
) -> None:
    dice = random.Random(seed)
    settings_of_both = {"order": order, "service_weight": Weight(30, 1 << 20), **settings}
    shared, own = make_queue("shared", **settings_of_both), make_queue("own", **settings_of_both)
    for queue in (shared, own):
        queue.admin.set_origin("a/1", share=3)
        queue.admin.set_origin("a/2", most=Weight(20, 1 << 20))
    for _ in range(25):
        for _ in range(dice.randrange(6)):
            origin = f"{dice.choice('ab')}/{dice.randrange(4)}"
            priority = dice.choice(["regular", "regular", "high"]) if settings.get("high") else "regular"
            weight, count = Weight(dice.choice([1, 3, 17, 29]), 1), dice.choice([1, 4])
            for queue in (shared, own) if origin.startswith("a") else (shared,):
                queue.enqueue_messages(origin, [b"x"] * count, weight=weight, priority=priority)
        if dice.random() < 0.6:
            run_block(shared, "b/*", server=MAIL)
        if dice.random() < 0.8:
            assert run_block(shared, "a/*") == run_block(own)
    assert [origin for origin in shared.inspect.ring_order() if origin.startswith("a")] == own.inspect.ring_order()


@pytest.mark.parametrize("order", ["rotation", "deficit"])
def test_origins_of_another_dag_keep_place_and_credit(make_queue: Maker, order: str) -> None:
    queue = make_queue(order=order, service_weight=Weight(5, 1 << 20))
    for number in range(4):
        for name in "ab":
            queue.enqueue_messages(f"{name}{number}", [b"x"] * 10, weight=Weight(2, 1))
    run_block(queue, "b*", server=MAIL)
    before = {entry.origin: entry.deficit for entry in queue.inspect.ledger()[0].entries}
    line = [origin for origin in queue.inspect.ring_order() if origin.startswith("b")]

    for _ in range(3):
        held, _ = run_block(queue, "a*")
        assert held and all(origin.startswith("a") for origin, _ in held)

    assert [origin for origin in queue.inspect.ring_order() if origin.startswith("b")] == line
    assert queue.admin.paused() == []
    foreseen = queue.blocks.plan(origins=["b*"], server=in_airflow(MAIL))
    assert [entry.origin for entry in queue.inspect.ledger(block=foreseen.id)[0].entries][:1] == line[:1]
    assert before  # each serviced origin has an entry
    queue.blocks.settle(foreseen)


def test_origin_far_behind_other_dags_is_found(make_queue: Maker) -> None:
    queue = make_queue(order="deficit")
    queue.enqueue_messages((f"b{number}", b"x") for number in range(300))
    queue.enqueue_message("a", b"x")

    assert [origin for origin, _ in run_block(queue, "a")[0]] == ["a"]
    assert queue.footprint("b0").count == 1


def test_explain_reports_an_origin_without_a_dag(make_queue: Maker) -> None:
    queue = make_queue(service_weight=Weight(1_000, 1 << 20))
    queue.enqueue_messages((origin, b"x") for origin in ("a1", "b1", "zebra"))
    run_block(queue, "a*", "other")
    run_block(queue, "b*", server=MAIL, limit=Weight(500, 1 << 20))

    explanation = queue.inspect.explain("zebra")

    assert (explanation.reason, explanation.block) == ("unserved", None)
    assert explanation.sentence == (
        "the first message of zebra, zebra:0:0, waits for a processor: no DAG or program that services this ring takes "
        f"zebra ({MAIL} takes b*; {ORDERS} takes a*, other)."
    )
    assert [
        queue_.origin for queue_ in queue.inspect.stuck(queue.inspect.ring().queues, queue.inspect.servicing())
    ] == ["zebra"]
    assert {server.title: (server.limit, str(server.patterns)) for server in queue.inspect.servicing().servers} == {
        ORDERS: (None, "a*, other"), MAIL: (Weight(500, 1 << 20), "b*")
    }  # fmt: skip

    run_block(queue, "z*", server="DAG 'new', task 'plan'", limit=Weight(0, 0))
    assert queue.inspect.explain("zebra").reason == "stuck"


def test_explain_names_the_dag_of_the_next_block(make_queue: Maker) -> None:
    queue = make_queue(service_weight=Weight(1_000, 1 << 20))
    run_block(queue, "a*")
    run_block(queue, "b*", server=MAIL, limit=Weight(500, 1 << 20))
    for origin in ("a1", "b1"):
        queue.enqueue_message(origin, b"x", weight=Weight(700 if origin == "a1" else 100, 1))

    assert queue.inspect.explain("a1").sentence.endswith(f"runs in the next block of {ORDERS}.")
    assert queue.inspect.explain("b1").sentence.endswith(f"runs in the next block of {MAIL}.")
    # A dry run without arguments foresees a block of the latest DAG.
    foreseen = queue.inspect.dry_run()
    assert (foreseen.server, foreseen.origins, foreseen.limit) == (MAIL, ["b1"], Weight(500, 1 << 20))
    assert [block.origins for block in queue.inspect.forecast(5)] == [["b1"]]
    assert queue.blocks.plan(origins=["b*"], server=in_airflow(MAIL), limit=Weight(500, 1 << 20)).origins == ["b1"]
    assert queue.inspect.dry_run(Weight(1_000, 1 << 20)).origins == ["a1"]
    queue.blocks.release(queue.blocks.list("planned")[0].token)


def test_fairness_ignores_blocks_that_do_not_service_an_origin(make_queue: Maker) -> None:
    """Fairness compares only the origins that a block services."""
    queue = make_queue(order="deficit", service_weight=Weight(10, 1 << 20))
    for origin in ("a1", "a2", "b1", "b2"):
        queue.enqueue_messages(origin, [b"x"] * 200, weight=Weight(1, 1))
    for _ in range(4):
        run_block(queue, "a*")
        run_block(queue, "a*")
        run_block(queue, "b*", server=MAIL)

    fairness = queue.inspect.fairness()

    assert [entry.origin for entry in fairness.origins] == ["a1", "a2", "b1", "b2"]
    assert [entry.contended for entry in fairness.origins] == [8, 8, 4, 4]
    assert [entry.longest_wait for entry in fairness.origins] == [0, 0, 0, 0]
    assert fairness.jain is not None and fairness.jain > 0.99 and fairness.most_error < 0.1


def test_reserve_for_regular_messages_is_per_dag(make_queue: Maker) -> None:
    """A debt of one DAG's high messages to regular ones is not paid by another DAG's blocks."""
    queue = make_queue(order="rotation", service_weight=Weight(100, 1 << 20))
    for origin in ("a", "b"):
        queue.enqueue_messages(origin, [b"h"] * 100, weight=Weight(10, 1), priority="high")
    queue.enqueue_message("a-large", b"x", weight=Weight(90, 1))
    queue.enqueue_messages("b-regular", [b"x"] * 100, weight=Weight(10, 1))

    taken: list[str] = []
    for _ in range(3):
        taken += [origin for origin, _ in run_block(queue, "a*")[0]]
        run_block(queue, "b*", server=MAIL)

    assert "a-large" in taken


@pytest.mark.parametrize(
    ("patterns", "error"), [([], "0 patterns"), ([""], "invalid pattern"), (["x" * 256], "invalid")]
)
def test_invalid_patterns_are_rejected(queue: MessageQueue, patterns: Any, error: str) -> None:
    with pytest.raises(InvalidInput, match=error):
        queue.blocks.plan(origins=patterns)


def test_patterns_match_like_processor_patterns() -> None:
    rules = OriginPatterns.of(["acme/*", "B?"])
    assert rules is not None and [rules.takes(origin) for origin in ("acme/x", "\x01acme/x", "b1", "B1")] == [
        True, True, False, True
    ]  # fmt: skip
    assert OriginPatterns.of(["a*", "*"]) is None and OriginPatterns.of(None) is None


def test_explain_names_the_last_plan_of_an_inactive_dag(make_queue: Maker) -> None:
    queue = make_queue()
    with stopped_clock() as clock:
        queue.enqueue_messages("a", [b"x", b"y"])
        run_block(queue, limit=Weight(1, 1 << 20))
        (server,) = queue.inspect.servicing().servers
        assert queue.inspect.explain("a").sentence.endswith(f"runs in the next block of {ORDERS}.")
        clock.advance(3 * 86_400)
        explanation = queue.inspect.explain("a")

    since = f"No block has been planned since {when(server.at)} (3 d). Is DAG orders paused?"
    assert explanation.sentence.startswith(since) and explanation.sentence.endswith(f"block of {ORDERS}.")
