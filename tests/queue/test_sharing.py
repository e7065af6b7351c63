"""Two DAGs on one ring: each services its own origins, and takes nothing from those of the other."""

from __future__ import annotations

import random
from typing import Any

import pytest

from airflow_mq import Block, MessageQueue, Weight
from airflow_mq.core.errors import InvalidInput
from airflow_mq.core.taking import OriginPatterns
from airflow_mq.words import when
from tests.model.clock import stopped_clock
from tests.queue.conftest import Maker

ORDERS, MAIL = "DAG 'orders', task 'plan'", "DAG 'mail', task 'plan'"
SEED = b"a seed"


def done(queue: MessageQueue, block: Block) -> list[Any]:
    """Everything of a block is done; return what it held, and its page of the ledger."""
    held = [(claim.origin, [(run.page, run.first, run.count) for run in claim.runs]) for claim in block.claims]
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)
    lines = [
        (one.origin, one.priority, one.offered, one.granted, one.messages, one.deficit, one.reason, one.needs)
        for page in queue.inspect.ledger(block=block.id) for one in page.entries
    ]  # fmt: skip
    return [held, lines]


def one_of(queue: MessageQueue, *origins: str, server: str = ORDERS, **how: Any) -> list[Any]:
    """A block of these origins, done."""
    how |= {"seed": SEED} if queue.config.order == "shuffle" else {}
    return done(queue, queue.blocks.plan(origins=origins or None, server=server, **how))


@pytest.mark.parametrize(
    ("order", "settings"),
    [("rotation", {}), ("deficit", {}), ("deficit", {"high": True}), ("deficit", {"paths": True}), ("shuffle", {})],
    ids=["rotation", "deficit", "high", "paths", "shuffle"],
)
@pytest.mark.parametrize("seed", range(3))
def test_a_block_of_some_origins_is_that_of_a_ring_that_has_only_these(
    make_queue: Maker, order: str, settings: dict[str, Any], seed: int
) -> None:
    dice = random.Random(seed)
    how = {"order": order, "service_weight": Weight(30, 1 << 20), **settings}
    shared, own = make_queue("shared", **how), make_queue("own", **how)
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
            one_of(shared, "b/*", server=MAIL)
        if dice.random() < 0.8:
            assert one_of(shared, "a/*") == one_of(own)
    assert [one for one in shared.inspect.ring_order() if one.startswith("a")] == own.inspect.ring_order()


@pytest.mark.parametrize("order", ["rotation", "deficit"])
def test_origins_of_another_dag_keep_their_places_and_credit(make_queue: Maker, order: str) -> None:
    queue = make_queue(order=order, service_weight=Weight(5, 1 << 20))
    for number in range(4):
        for name in "ab":
            queue.enqueue_messages(f"{name}{number}", [b"x"] * 10, weight=Weight(2, 1))
    one_of(queue, "b*", server=MAIL)
    before = {one.origin: one.deficit for one in queue.inspect.ledger()[0].entries}
    line = [one for one in queue.inspect.ring_order() if one.startswith("b")]

    for _ in range(3):
        held, _ = one_of(queue, "a*")
        assert held and all(origin.startswith("a") for origin, _ in held)

    assert [one for one in queue.inspect.ring_order() if one.startswith("b")] == line
    assert queue.admin.paused() == []
    foreseen = queue.blocks.plan(origins=["b*"], server=MAIL)
    assert [one.origin for one in queue.inspect.ledger(block=foreseen.id)[0].entries][:1] == line[:1]
    assert before  # whoever was served has a line
    queue.blocks.settle(foreseen)


def test_an_origin_far_behind_those_of_another_dag_is_found(make_queue: Maker) -> None:
    queue = make_queue(order="deficit")
    queue.enqueue_messages((f"b{number}", b"x") for number in range(300))
    queue.enqueue_message("a", b"x")

    assert [origin for origin, _ in one_of(queue, "a")[0]] == ["a"]
    assert queue.footprint("b0").count == 1


def test_explain_names_the_dags_and_that_none_takes_the_origin(make_queue: Maker) -> None:
    queue = make_queue(service_weight=Weight(1_000, 1 << 20))
    queue.enqueue_messages((origin, b"x") for origin in ("a1", "b1", "zebra"))
    one_of(queue, "a*", "other")
    one_of(queue, "b*", server=MAIL, limit=Weight(500, 1 << 20))

    told = queue.inspect.explain("zebra")

    assert (told.reason, told.block) == ("unserved", None)
    assert told.sentence == (
        "the first message of zebra, zebra:0:0, waits for a processor: no DAG or program that services this ring takes "
        f"zebra ({MAIL} takes b*; {ORDERS} takes a*, other)."
    )
    assert [one.origin for one in queue.inspect.stuck()] == ["zebra"]
    assert {one.name: (one.limit, str(one.patterns)) for one in queue.inspect.servers()} == {
        ORDERS: (None, "a*, other"), MAIL: (Weight(500, 1 << 20), "b*")
    }  # fmt: skip

    one_of(queue, "z*", server="DAG 'new', task 'plan'", limit=Weight(0, 0))
    assert queue.inspect.explain("zebra").reason == "stuck"


def test_a_message_is_foreseen_in_a_block_of_the_dag_that_takes_it(make_queue: Maker) -> None:
    queue = make_queue(service_weight=Weight(1_000, 1 << 20))
    one_of(queue, "a*")
    one_of(queue, "b*", server=MAIL, limit=Weight(500, 1 << 20))
    for origin in ("a1", "b1"):
        queue.enqueue_message(origin, b"x", weight=Weight(700 if origin == "a1" else 100, 1))

    assert queue.inspect.explain("a1").sentence.endswith(f"runs in the next block of {ORDERS}.")
    assert queue.inspect.explain("b1").sentence.endswith(f"runs in the next block of {MAIL}.")
    # The latest DAG's block, and that is what it is then.
    foreseen = queue.inspect.dry_run()
    assert (foreseen.server, foreseen.origins, foreseen.limit) == (MAIL, ["b1"], Weight(500, 1 << 20))
    assert [one.origins for one in queue.inspect.forecast(5)] == [["b1"]]
    assert queue.blocks.plan(origins=["b*"], server=MAIL, limit=Weight(500, 1 << 20)).origins == ["b1"]
    assert queue.inspect.dry_run(Weight(1_000, 1 << 20)).origins == ["a1"]
    queue.blocks.release(queue.blocks.list("planned")[0].token)


def test_nobody_wants_anything_of_blocks_that_do_not_service_it(make_queue: Maker) -> None:
    """Fairness is judged among the origins that a block services."""
    queue = make_queue(order="deficit", service_weight=Weight(10, 1 << 20))
    for origin in ("a1", "a2", "b1", "b2"):
        queue.enqueue_messages(origin, [b"x"] * 200, weight=Weight(1, 1))
    for _ in range(4):
        one_of(queue, "a*")
        one_of(queue, "a*")
        one_of(queue, "b*", server=MAIL)

    told = queue.inspect.fairness()

    assert [one.origin for one in told.origins] == ["a1", "a2", "b1", "b2"]
    assert [one.contended for one in told.origins] == [8, 8, 4, 4]
    assert [one.longest_wait for one in told.origins] == [0, 0, 0, 0]
    assert told.jain is not None and told.jain > 0.99 and told.most_error < 0.1


def test_each_dag_owes_its_own_regular_messages(make_queue: Maker) -> None:
    """What high messages of one DAG owe to regular ones is not paid by blocks of another."""
    queue = make_queue(order="rotation", service_weight=Weight(100, 1 << 20))
    for origin in ("a", "b"):
        queue.enqueue_messages(origin, [b"h"] * 100, weight=Weight(10, 1), priority="high")
    queue.enqueue_message("a-large", b"x", weight=Weight(90, 1))
    queue.enqueue_messages("b-regular", [b"x"] * 100, weight=Weight(10, 1))

    taken: list[str] = []
    for _ in range(3):
        taken += [origin for origin, _ in one_of(queue, "a*")[0]]
        one_of(queue, "b*", server=MAIL)

    assert "a-large" in taken


@pytest.mark.parametrize(("given", "told"), [([], "0 patterns"), ([""], "invalid pattern"), (["x" * 256], "invalid")])
def test_patterns_that_are_none_are_refused(queue: MessageQueue, given: Any, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        queue.blocks.plan(origins=given)


def test_patterns_are_those_of_processors() -> None:
    rules = OriginPatterns.of(["acme/*", "B?"])
    assert rules is not None and [rules.takes(one) for one in ("acme/x", "\x01acme/x", "b1", "B1")] == [
        True, True, False, True
    ]  # fmt: skip
    assert OriginPatterns.of(["a*", "*"]) is None and OriginPatterns.of(None) is None


def test_a_dag_that_planned_nothing_for_long_is_named_with_the_time(make_queue: Maker) -> None:
    queue = make_queue()
    with stopped_clock() as clock:
        queue.enqueue_messages("a", [b"x", b"y"])
        one_of(queue, limit=Weight(1, 1 << 20))
        (server,) = queue.inspect.servers()
        assert queue.inspect.explain("a").sentence.endswith(f"runs in the next block of {ORDERS}.")
        clock.advance(3 * 86_400)
        told = queue.inspect.explain("a")

    assert told.sentence.endswith(f"of {ORDERS} (which planned its last block at {when(server.at)}).")
