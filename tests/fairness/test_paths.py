"""Shares at each level of a path: nobody gains by splitting, and what a group leaves goes to the others."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from airflow_mq import Done, MessageQueue, Weight
from airflow_mq.core.groups import groups_of
from airflow_mq.errors import ConfigRefused

from .conftest import Tell
from .lab import Got, done, ring, run_blocks, run_until_empty, send


@contextmanager
def tree(uri: str, limit: int = 20, **settings: Any) -> Iterator[MessageQueue]:
    """A ring whose origins are paths; what is stored is right at the end."""
    with ring(uri, "deficit", limit, paths=True, **settings) as queue:
        yield queue
        assert queue.check() == []


def below(got: Got, path: str, since: int = 0) -> int:
    """The weight that all of a group got."""
    return sum(cost for block in got.blocks[since:] for origin, cost in block.items() if origin.startswith(path))


@pytest.mark.slow
def test_a_thousand_sub_origins_get_what_one_origin_gets(store_uri: str, tell: Tell) -> None:
    with tree(store_uri) as queue:
        queue.enqueue_messages((f"sybil/{number:04}", b"x") for number in range(1000) for _ in range(2))
        send(queue, "honest", 1100)
        got = run_blocks(queue, 100)
    sybil, honest = below(got, "sybil/"), got.total("honest")
    tell("sybil: 1,000 sub-origins to one origin, 100 blocks", "paths", f"{sybil / honest:.3f}", "0.95 to 1.05")
    assert sybil + honest == 2000
    assert abs(sybil - honest) <= 0.05 * honest


def test_q3_with_groups_the_light_one_has_half(store_uri: str, tell: Tell) -> None:
    """Twenty origins of one sender against one."""
    with tree(store_uri) as queue:
        for number in range(20):
            send(queue, f"attacker/{number:02}", 60)
        send(queue, "light", 100)
        got = run_blocks(queue, 10)
    share = got.total("light") / (got.total("light") + below(got, "attacker/"))
    tell("Q3 sybil: share of the one beside twenty in a group", "paths", f"{share:.2f}", ">= 0.45")
    assert got.first("light") == 1
    assert share >= 0.45


def test_three_levels_and_shares_at_each(store_uri: str) -> None:
    """acme : birch = 2 : 1; in acme, orders : mail = 3 : 1; in orders, twice as much for one of two."""
    wanted = {
        "acme/orders/fast": 2 / 3 * 3 / 4 * 2 / 3, "acme/orders/slow": 2 / 3 * 3 / 4 / 3, "acme/mail": 2 / 3 / 4,
        "birch/a": 1 / 6, "birch/b": 1 / 6,
    }  # fmt: skip
    with tree(store_uri, limit=36, rounds_per_block=36) as queue:
        queue.admin.set_origin("acme", share=2)
        queue.admin.set_origin("acme/orders", share=3)
        queue.admin.set_origin("acme/orders/fast", share=2)
        chance = random.Random(5)
        for origin in wanted:
            send(queue, origin, 1300)
            send(queue, origin, 100, chance.choice([2, 3]))
        got = run_blocks(queue, 100)
    assert sum(got.total(origin) for origin in wanted) >= 3590
    for origin, share in wanted.items():
        assert abs(got.total(origin) / 3600 - share) <= 0.01, (origin, got.total(origin))


def test_what_a_group_does_not_use_goes_to_the_others_in_the_same_block(store_uri: str) -> None:
    with tree(store_uri) as queue:
        send(queue, "small/a", 3)
        for number in range(5):
            send(queue, f"large/{number}", 100)
        got = run_blocks(queue, 4)
    assert [sum(block.values()) for block in got.blocks] == [20] * 4
    assert below(got, "small/") == 3


def test_a_group_joins_and_leaves(store_uri: str) -> None:
    """Who was away does not come back with what it did not use meanwhile, and loses nothing by it."""
    with tree(store_uri) as queue:
        for origin in ("a/1", "a/2", "b"):
            send(queue, origin, 600)
        got = run_blocks(queue, 10)
        for origin in ("c/1", "c/2", "c/3"):
            send(queue, origin, 40)
        run_blocks(queue, 9, got)
        for path, share in (("a/", 60), ("b", 60), ("c/", 60)):
            assert abs(below(got, path, 10) - share) <= 3
        run_blocks(queue, 9, got)  # c is done after that: 120 messages at a third of the blocks
        assert below(got, "c/") == 120
        before = len(got.blocks)
        run_blocks(queue, 10, got)
        assert below(got, "a/", before) == below(got, "b", before) == 100
        send(queue, "c/9", 100)
        run_blocks(queue, 3, got)
        assert abs(below(got, "c/", before + 10) - 20) <= 1


def test_a_queue_that_bears_the_name_of_a_group_is_one_of_it(store_uri: str) -> None:
    with tree(store_uri) as queue:
        queue.admin.set_origin("acme", share=2)
        for origin in ("acme", "acme/x", "birch"):
            send(queue, origin, 900)
        got = run_blocks(queue, 30)
        assert abs(below(got, "acme") - 400) <= 4
        assert abs(got.total("acme") - 200) <= 4
        # Alone, it is all of the group; beside it again, one of two.
        send(queue, "acme", 900)
        queue.sweep_queue("acme/x")
        since = len(got.blocks)
        run_blocks(queue, 15, got)
        assert abs(got.total("acme", since) - 200) <= 4
        send(queue, "acme/x", 900)
        since = len(got.blocks)
        run_blocks(queue, 15, got)
        assert abs(got.total("acme", since) - 100) <= 4


def test_no_group_gets_more_than_its_most_nor_less_than_its_least(store_uri: str) -> None:
    with tree(store_uri) as queue:
        queue.admin.set_origin("capped", most=Weight(4, 4))
        queue.admin.set_origin("sure", least=Weight(10, 10))
        for group in ("capped", "sure", "other"):
            for number in range(5):
                send(queue, f"{group}/{number}", 100)
        got = run_blocks(queue, 10)
        assert all(sum(cost for origin, cost in block.items() if origin.startswith("capped/")) <= 4
                   for block in got.blocks)  # fmt: skip
        assert all(sum(cost for origin, cost in block.items() if origin.startswith("sure/")) >= 10
                   for block in got.blocks)  # fmt: skip
        assert all(sum(block.values()) == 20 for block in got.blocks)
        # A message above the most of its group can never run.
        send(queue, "capped/heavy", 1, cost=5)
        run_blocks(queue, 2, got)
        (aside,) = queue.set_aside.list()
        assert (aside.address.origin, aside.limit) == ("capped/heavy", Weight(4, 4))


def test_an_elephant_in_a_group_of_mice_starts_in_its_turn(store_uri: str) -> None:
    """Small ones do not overtake for ever, wherever they are."""
    with tree(store_uri) as queue:
        for group in ("a", "b", "c"):
            for number in range(3):
                send(queue, f"{group}/mice-{number}", 300)
        run_blocks(queue, 2)
        for group in ("a", "b"):
            send(queue, f"{group}/elephant", 3, cost=19)
        got = run_blocks(queue, 30)
    # One for a, one for b; then it is others' turn for as long as they cost.
    assert got.first("a/elephant") <= 3 and got.first("b/elephant") <= 4
    assert got.total("a/elephant") == got.total("b/elephant") == 3 * 19
    assert max(abs(below(got, one) - below(got, other)) for one in "ab" for other in "bc") <= 2 * (19 + 1)


def test_an_elephant_does_not_starve_because_its_siblings_are_mice(store_uri: str) -> None:
    """What is left of each block fits the mice alone, so their group is always ahead of groups of elephants."""
    with tree(store_uri) as queue:
        for number in range(24):
            send(queue, f"herd-{number:02}/1", 3, cost=19)
        send(queue, "mixed/mice", 60)
        send(queue, "mixed/elephant", 1, cost=19)
        got = run_blocks(queue, 34)
    assert all(sum(block.values()) == 20 for block in got.blocks)
    assert got.first("mixed/elephant") <= 26


class Meadow:
    """Siblings that are always ready: what each got over its share, block by block."""

    def __init__(self, queue: MessageQueue, costs: dict[str, int], shares: dict[str, int]) -> None:
        self.queue, self.costs, self.shares = queue, costs, shares
        self.got: dict[str, float] = {}
        for name, share in shares.items():
            queue.admin.set_origin(name, share=share)
        for origin, cost in costs.items():
            send(queue, origin, 400 // cost + 40, cost)

    def block(self) -> int:
        block = self.queue.blocks.plan()
        for claim in block.claims:
            for path in [claim.origin, *(path[:-1] for path in groups_of(claim.origin))]:
                self.got[path] = self.got.get(path, 0) + claim.planned[0] / self.shares.get(path, 1)
        done(self.queue, block)
        return block.planned[0]

    def spread(self, siblings: Iterable[str]) -> float:
        found = [self.got.get(one, 0) for one in siblings]
        return max(found) - min(found)


@pytest.mark.parametrize("seed", range(4))
def test_siblings_never_differ_by_more_than_two_messages_each(store_uri: str, seed: int) -> None:
    """The promise, over random trees, costs and shares, after each block."""
    chance = random.Random(seed)
    costs = {f"{a}/{b}/{c}": chance.choice([1, 1, 2, 5, 11]) for a in "xyz" for b in "pq"
             for c in range(chance.randint(1, 3))}  # fmt: skip
    shares = {name: chance.choice([1, 1, 2, 3]) for name in ["x", "y", "z", *(f"{a}/{b}" for a in "xyz" for b in "pq")]}
    with tree(store_uri, rounds_per_block=20) as queue:
        meadow = Meadow(queue, costs, shares)
        for _ in range(15):
            meadow.block()
            # Two messages, and the quantum of a turn, each.
            assert meadow.spread("xyz") <= 2 * (2 * 11 + 1)
            for a in "xyz":
                assert meadow.spread([f"{a}/{b}" for b in "pq"]) <= 2 * (2 * 11 + 1)


def test_flat_names_share_as_without_paths(store_uri: str) -> None:
    names = [f"origin-{number}" for number in range(10)]
    with tree(store_uri) as queue:
        for origin in names:
            send(queue, origin, 60)
        got = run_blocks(queue, 15)
    assert {got.total(origin) for origin in names} == {30}


def test_everything_is_served_whatever_its_name(store_uri: str) -> None:
    names = ["a", "a/", "a//", "/", "//", "/a", "a/b", "a/b/c", "é/ü", "/".join("x" * 100)]
    with tree(store_uri) as queue:
        for origin in names:
            send(queue, origin, 7)
        got = run_until_empty(queue)
    assert {origin: got.total(origin) for origin in names} == dict.fromkeys(names, 7)


def test_paths_can_be_switched_on_and_off(store_uri: str) -> None:
    with ring(store_uri, "deficit") as queue:
        for origin in ("a/1", "a/2", "a/3", "b"):
            send(queue, origin, 200)
        got = run_blocks(queue, 4)
        assert got.total("b") == 20
        queue.admin.change_ring(paths=True)
        assert queue.config.paths
        foreseen = queue.inspect.dry_run(paths=False)
        assert foreseen.queue("b").messages == 5
        run_blocks(queue, 4, got)
        assert got.total("b", 4) == 40
        queue.admin.change_ring(paths=False)
        assert queue.inspect.dry_run(paths=True).queue("b").messages == 10
        run_blocks(queue, 4, got)
        assert got.total("b", 8) == 20
        assert queue.check() == []


@pytest.mark.parametrize("order", ["rotation", "shuffle"])
def test_paths_need_deficits(store_uri: str, order: str) -> None:
    with tree(store_uri) as queue, pytest.raises(ConfigRefused, match="paths require order='deficit'"):
        queue.admin.change_ring(order=order)
    with tree(store_uri) as queue, pytest.raises(ConfigRefused, match="invalid paths .*: expected true or false"):
        queue.admin.change_ring(paths=1)


def test_weight_is_shared_by_use_not_by_what_was_told(store_uri: str) -> None:
    """A group whose messages take twice as long as they weigh gets half as many."""
    with tree(store_uri) as queue:
        for origin in ("liar/1", "liar/2", "honest"):
            send(queue, origin, 400)
        got = Got()
        for _ in range(20):
            block = queue.blocks.plan()
            got.add(block)
            for batch in block.batches():
                liar = batch.origin.startswith("liar/")
                queue.blocks.report(block, [batch.answer(Done(used=Weight(2, 2) if liar else None))])
            queue.blocks.settle(block)
    assert abs(got.total("honest") / below(got, "liar/") - 2) <= 0.1
