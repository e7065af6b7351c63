"""One budget of a group whose origins several DAGs service: none of them takes it all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from airflow_mq import MessageQueue, Weight
from tests.proofs.model.clock import Clock, stopped_clock
from tests.store.queue.conftest import Maker
from tests.store.queue.test_budgets import UNIT, run


@pytest.fixture
def clock() -> Iterator[Clock]:
    with stopped_clock() as clock:
        yield clock


def a_ring(make_queue: Maker, burst: int = 1, count: int = 900, weight: int = 1) -> MessageQueue:
    queue = make_queue(order="deficit", paths=True, service_weight=Weight(100, 1 << 20), weigher=UNIT)
    queue.admin.set_origin("acme", rate="10ms/second", burst=burst)
    for name in "abc":
        queue.enqueue_messages(f"acme/{name}", [b"x"] * count, weight=Weight(weight, 0))
    return queue


def used_by(queue: MessageQueue, clock: Clock, rounds: str, *, seconds: float, count: int = 60) -> Counter[str]:
    """Plan round after round, for one origin after the other; time passes at each blank."""
    used: Counter[str] = Counter()
    for _ in range(count):
        for name in rounds:
            if name == " ":
                clock.advance(seconds)
            else:
                used.update(run(queue, origins=["acme/*" if name == "*" else f"acme/{name}"]))
    return used


@pytest.mark.parametrize("burst, seconds", [(1, 0.1), (2, 0.2), (5, 0.5), (1, 0.05)])
@pytest.mark.parametrize("rounds", [" ab", " a a ab"])
def test_the_dag_that_plans_first_leaves_a_turn_to_another(
    make_queue: Maker, clock: Clock, rounds: str, burst: int, seconds: float
) -> None:
    queue, count = a_ring(make_queue, burst), 20
    used = used_by(queue, clock, rounds, seconds=seconds, count=count)
    given = 10 * seconds * rounds.count(" ") * count
    # All that the budget gave is used, and the other one has its turns.
    assert burst + given - 10 * seconds - 1 <= used.total() <= burst + given + 1
    assert used["acme/b"] >= min(count, given / 3) - 1, used


@pytest.mark.parametrize("seconds", [0.1, 0.2, 0.3])
@pytest.mark.parametrize("rounds", [" abc", " ab*"])
def test_each_of_three_dags_has_its_turns(make_queue: Maker, clock: Clock, seconds: float, rounds: str) -> None:
    queue = a_ring(make_queue)
    used = used_by(queue, clock, rounds, seconds=seconds, count=40)
    assert min(used[f"acme/{name}"] for name in "abc") >= 6, used


def test_a_dag_that_comes_no_more_keeps_nothing_from_others(make_queue: Maker, clock: Clock) -> None:
    queue = a_ring(make_queue)
    used_by(queue, clock, " abc", seconds=0.1, count=7)
    assert used_by(queue, clock, " a", seconds=0.1, count=20)["acme/a"] >= 18
    # The DAG for `acme/c` has waited longer than the one for `acme/b`, and does not come.
    assert run(queue, origins=["acme/b"]) == {"acme/b": 1} and run(queue, origins=["acme/c"]) == {}
    both = used_by(queue, clock, " ab", seconds=0.2, count=30)
    assert both["acme/b"] >= 8 and both.total() >= 38, both


@pytest.mark.parametrize("rounds", [" *b", " b*", " b b b*"])
def test_a_dag_that_services_all_origins_has_its_turns(make_queue: Maker, clock: Clock, rounds: str) -> None:
    queue = a_ring(make_queue)
    used = used_by(queue, clock, rounds, seconds=0.1, count=30)
    assert used["acme/a"] + used["acme/c"] >= 10 and used["acme/b"] >= 10, used


@pytest.mark.parametrize("weight", [3, 30])
def test_turns_of_heavy_messages(make_queue: Maker, clock: Clock, weight: int) -> None:
    queue = a_ring(make_queue, burst=3, weight=weight)
    queue.enqueue_messages("acme/l", [b"x"] * 400, weight=Weight(1, 0))
    used = used_by(queue, clock, " la", seconds=0.1, count=150)
    assert used["acme/l"] >= 60 and used["acme/a"] * weight >= 60, used


def test_high_messages_have_turns(make_queue: Maker, clock: Clock) -> None:
    queue = a_ring(make_queue)
    queue.enqueue_messages("acme/d", [b"x"] * 400, priority="high")
    used = used_by(queue, clock, " ad", seconds=0.2, count=20)
    assert used["acme/d"] >= 18 and used["acme/a"] >= 18, used
    queue.enqueue_messages("acme/d", [b"x"] * 400)
    used = used_by(queue, clock, " ad", seconds=0.2, count=20)
    assert used["acme/d"] >= 18 and used["acme/a"] >= 18, used


def test_nothing_passes_the_first_message_of_its_own_dag(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue(order="deficit", paths=True, service_weight=Weight(100, 1 << 20), weigher=UNIT)
    queue.admin.set_origin("acme", rate="10ms/second", burst=4)
    queue.enqueue_messages("acme/a", [b"x"] * 10)
    queue.enqueue_messages("acme/b/heavy", [b"x"] * 2, weight=Weight(4, 0))
    queue.enqueue_messages("acme/b/light", [b"x"] * 9)
    assert run(queue, origins=["acme/a"]) == {"acme/a": 4}
    assert run(queue, origins=["acme/b/*"]) == {"acme/b/heavy": 1}
    for _ in range(4):
        assert run(queue, origins=["acme/b/*"]) == {}
        clock.advance(0.1)


def test_turns_wait_for_the_end_of_a_debt(make_queue: Maker, clock: Clock) -> None:
    queue = a_ring(make_queue)
    queue.enqueue_messages("zeta", [b"x"] * 40)
    for origins, found in (
        (["acme/a"], {"acme/a": 1}), (["acme/a"], {}), (["zeta"], {"zeta": 40}), (["acme/b"], {"acme/b": 1}),
        # It waits for the end of the debt, and then does not look at the group.
        (["acme/a"], {}), (["acme/a"], {}),
    ):  # fmt: skip
        assert run(queue, origins=origins) == found
    pages = list(reversed(queue.inspect.ledger()))
    assert [[entry.origin for entry in page.entries] for page in pages] == [
        ["acme/a"],
        ["zeta"],
        ["acme/b"],
        ["acme/a"],
    ]
    assert [page.halted.get("budget", []) for page in pages] == [["acme"]] * 4


@pytest.mark.parametrize("walk", ["b", "a", "*"])
def test_a_forecast_gives_turns(make_queue: Maker, clock: Clock, walk: str) -> None:
    queue = a_ring(make_queue, count=40)
    used_by(queue, clock, " ab", seconds=0.1, count=3)
    origins = [f"acme/{walk}"]
    run(queue, origins=["acme/a"])
    run(queue, origins=origins, server="one")
    clock.advance(0.1)
    foreseen = queue.inspect.forecast(12, every=0.1)
    really = []
    for _ in foreseen:
        really.append(run(queue, origins=origins))
        clock.advance(0.1)
    assert [{one.origin: one.messages for one in block.queues if one.messages} for block in foreseen] == really
