"""A simulation is what real blocks on a real store do with the same arrivals, exactly."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from airflow_mq import Block, Costs, LinearWeigher, Message, MessageQueue, RingConfig, Weight
from airflow_mq.core.book import Standing
from airflow_mq.core.errors import ConfigRefused, InvalidInput
from airflow_mq.simulating import Arrival, Policy, Scenario, Simulated, simulate
from airflow_mq.simulating.scenario import Source
from airflow_mq.store import parse, upgrade
from tests.queue.test_foreseeing import assert_planned_as_foreseen, claims_of, complete_block

ORDERS = ("rotation", "deficit", "shuffle")


def drawn(number: int) -> Scenario:
    """A scenario that its number decides."""
    dice = random.Random(number)
    arrivals: list[Arrival] = []
    names = ["a", "a/x", "b/x/y", "b/z", "c"]
    for origin in names[: dice.randrange(1, 6)]:
        source = Source(
            origin, rate=dice.choice([0, 0.5, 4]), steady=dice.random() < 0.5, burst=dice.choice([0, 3, 60]),
            burst_first=dice.randrange(1, 5), burst_every=dice.choice([0, 4]), sizes=dice.choice([[5], [1, 9, 30]]),
            weights=dice.choice([[], [Weight(2, 3)], [Weight(1, 1), Weight(9, 2), Weight(60, 1)]]),
        )  # fmt: skip
        arrivals += source.arrivals(12, number)
    arrivals.sort(key=lambda one: one.block)
    ring = RingConfig(
        heap_size=dice.choice([48, 150, 4096]), service_weight=dice.choice([Weight(12, 40), Weight(30, 400)]),
        costs=dice.choice([Costs(), Costs(service_queue_base=Weight(1, 0), service_page_item=Weight(0, 1))]),
        rounds_per_block=dice.choice([1, 8]), weigher=LinearWeigher(Weight(1, 1), Weight(0, 500)),
    )  # fmt: skip
    standings = {"a": Standing(share=3), "c": Standing(least=Weight(4, 4), most=Weight(9, 30), ordered=False)}
    return Scenario(arrivals, 14, ring, standings if dice.random() < 0.5 else {}, seed=number)


def really(queue: MessageQueue, scenario: Scenario) -> list[Block]:
    """Send what arrives, and plan and settle block after block."""
    blocks = []
    for number in range(1, scenario.blocks + 1):
        for one in scenario.arrivals:
            if one.block == number:
                message = bytes(one.size) if one.weight is None else Message(bytes(one.size), weight=one.weight)
                queue.enqueue_messages(one.origin, [message] * one.count, priority=one.priority)
        block = queue.blocks.plan(seed=scenario.block_seed(number))
        blocks.append(block)
        complete_block(queue, block)
    return blocks


def open_ring(uri: str, name: str, scenario: Scenario, policy: Policy) -> MessageQueue:
    with MessageQueue(uri) as first:
        first.admin.create_ring(name, policy.config(scenario.ring))
    queue = MessageQueue(uri, name)
    for origin, one in scenario.standings.items():
        queue.admin.set_origin(origin, share=one.share, least=one.least, most=one.most, ordered=one.ordered)
    for origin, share in policy.shares.items():
        queue.admin.set_origin(origin, share=share)
    return queue


def compare(queue: MessageQueue, scenario: Scenario, told: Simulated) -> None:
    blocks = really(queue, scenario)
    for foreseen, block in zip(told.blocks, blocks, strict=True):
        assert_planned_as_foreseen(queue, foreseen, block)
    pages = {page.block: page.entries for page in queue.inspect.ledger()}
    for foreseen, block in zip(told.blocks, blocks, strict=True):
        assert {one.origin: one.granted for one in foreseen.queues} == {
            entry.origin: entry.granted for entry in pages.get(block.id, ())
        }
    footprints = dict(queue.footprints())
    for one in told.origins:
        held = footprints.get(one.origin)
        assert (held.count if held else 0) == one.left + one.set_aside
        assert one.arrived == one.done + one.left + one.set_aside
    assert len(queue.set_aside.list()) == sum(one.set_aside for one in told.origins)
    assert queue.check() == []


@pytest.mark.parametrize("order", ORDERS)
def test_what_is_simulated_is_what_happens(store_uri: str, order: str) -> None:
    upgrade(parse(store_uri))
    for number in range(4):
        scenario, policy = drawn(number), Policy(order, order, shares={"b/z": 2})
        (told,) = simulate(scenario, [policy])
        assert told.order == order and len(told.blocks) == 14
        with open_ring(store_uri, f"r{number}", scenario, policy) as queue:
            compare(queue, scenario, told)


def test_paths_too(store_uri: str) -> None:
    upgrade(parse(store_uri))
    for number in range(6, 8):
        scenario, policy = drawn(number), Policy("paths", settings={"paths": True})
        (told,) = simulate(scenario, [policy])
        with open_ring(store_uri, f"r{number}", scenario, policy) as queue:
            compare(queue, scenario, told)


@pytest.mark.parametrize("order", ORDERS)
def test_priorities_too(store_uri: str, order: str) -> None:
    upgrade(parse(store_uri))
    for number in range(9, 11):
        scenario, policy, dice = drawn(number), Policy(order, order), random.Random(number)
        arrivals = [replace(one, priority=dice.choice(["high", "regular"])) for one in scenario.arrivals]
        scenario = replace(scenario, arrivals=arrivals, standings={})
        (told,) = simulate(scenario, [policy])
        with open_ring(store_uri, f"r{number}", scenario, policy) as queue:
            blocks = really(queue, scenario)
            for foreseen, block in zip(told.blocks, blocks, strict=True):
                assert claims_of(foreseen) == claims_of(block)
            assert sum(one.left + one.set_aside for one in told.origins) == sum(
                footprint.count for _, footprint in queue.footprints()
            )
            assert {one.priority for one in told.origins} == {"high", "regular"}
            assert {(one.origin, one.priority) for one in told.fairness.origins} == {
                (one.origin, one.priority) for one in queue.inspect.fairness().origins
            }


def test_the_same_seed_gives_the_same(tmp_path: object) -> None:
    one, other = (simulate(drawn(3), [Policy(order, order) for order in ORDERS]) for _ in range(2))
    assert one == other
    assert [claims_of(block) for block in one[2].blocks] == [claims_of(block) for block in other[2].blocks]
    shuffled = simulate(replace(drawn(3), seed=4), [Policy("shuffle", "shuffle")])
    assert [block.seed for block in shuffled[0].blocks] != [block.seed for block in one[2].blocks]


def loud_and_quiet() -> Scenario:
    ring = RingConfig(service_weight=Weight(16, 1 << 20), rounds_per_block=16,
                      weigher=LinearWeigher(Weight(1, 0), Weight(0, 0)))  # fmt: skip
    arrivals = [Arrival(1, "loud", 64), Arrival(1, "louder", 64), Arrival(1, "quiet")]
    return Scenario(arrivals, 8, ring)


def test_figures() -> None:
    deficit, rotation = simulate(loud_and_quiet(), [Policy("deficit"), Policy("rotation", "rotation")])
    assert (deficit.done, deficit.left, deficit.longest_wait) == (128, 1, 8)
    assert deficit.origin("quiet").longest_wait == 0 and rotation.origin("quiet").longest_wait == 2
    assert deficit.fairness.longest_wait == 0 and rotation.fairness.longest_wait == 2
    assert deficit.fairness.most_late == 0 and rotation.fairness.origin("quiet").late == 2
    odd = simulate(replace(loud_and_quiet(), blocks=3), [Policy("deficit"), Policy("rotation", "rotation")])
    jains = [one.fairness.jain or 0 for one in odd]
    assert jains[0] > 0.99 > jains[1]
    assert deficit.filled == 1.0
    assert deficit.granted(deficit.blocks[0]) == {"loud": 8 / 16, "louder": 7 / 16, "quiet": 1 / 16}
    assert deficit.origin("nobody").arrived == 0
    shares = simulate(replace(loud_and_quiet(), blocks=4), [Policy("3:1", shares={"loud": 3})])[0]
    assert shares.fairness.origin("loud").promised == pytest.approx(0.75, abs=0.02)
    wide = simulate(loud_and_quiet(), [Policy("wide", limit=Weight(32, 1 << 20))])[0]
    assert (wide.limit, wide.left) == (Weight(32, 1 << 20), 0)


def test_nothing_arrives() -> None:
    (told,) = simulate(Scenario([], 3))
    assert (told.done, told.left, told.longest_wait, told.mean_wait, told.filled) == (0, 0, 0, 0.0, 0.0)
    assert told.fairness.origins == [] and len(told.blocks) == 3


def test_a_message_that_is_too_heavy_and_one_that_is_too_long() -> None:
    scenario = loud_and_quiet()
    arrivals = [*scenario.arrivals, Arrival(2, "heavy", 2, weight=Weight(99, 0)), Arrival(2, "long", size=1 << 20)]
    (told,) = simulate(replace(scenario, arrivals=arrivals))
    assert (told.origin("heavy").set_aside, told.origin("heavy").done) == (2, 0)
    assert told.origin("long").done == 1


def test_what_makes_no_sense_is_refused() -> None:
    for wrong in ({"block": 0}, {"count": 0}, {"size": 0}, {"weight": (1,)}, {"origin": ""}):
        with pytest.raises(InvalidInput):
            Arrival(**{"block": 1, "origin": "a", **wrong})  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="at most"):
        Scenario([Arrival(1, "a", 1 << 40)])
    with pytest.raises(InvalidInput, match="at most"):
        Scenario([], 1 << 40)
    with pytest.raises(ConfigRefused, match="no limit of a block"):
        simulate(Scenario([], 1, RingConfig(service_weight=None)))
    for setting in ({"order": "odd"}, {"settings": {"odd": 1}}):
        with pytest.raises(ConfigRefused):
            simulate(Scenario([], 1), [Policy("x", **setting)])  # type: ignore[arg-type]


def test_sources() -> None:
    steady = list(Source("a", rate=0.25, steady=True).arrivals(8, 0))
    assert [(one.block, one.count) for one in steady] == [(4, 1), (8, 1)]
    bursts = list(Source("a", burst=5, burst_first=2, burst_every=3, first=2, last=8).arrivals(20, 0))
    assert [(one.block, one.count) for one in bursts] == [(2, 5), (5, 5), (8, 5)]
    assert [one.block for one in Source("a", burst=5, burst_first=2).arrivals(20, 0)] == [2]
    chance = [sum(one.count for one in Source("a", rate=70).arrivals(50, seed)) for seed in range(4)]
    assert len(set(chance)) > 1 and all(3000 < count < 4000 for count in chance)
    assert list(Source("a", rate=3, sizes=[1, 2]).arrivals(9, 1)) == list(
        Source("a", rate=3, sizes=[1, 2]).arrivals(9, 1)
    )
    for wrong in ({"rate": -1}, {"rate": 1e9}, {"sizes": []}):
        with pytest.raises(InvalidInput):
            Source("a", **wrong)  # type: ignore[arg-type]
