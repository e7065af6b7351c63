"""Fairness of paths: splitting gains nothing, and unused shares go to siblings."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from airflow_mq import Done, MessageQueue, Weight
from airflow_mq.engine.rules.groups import groups_of
from airflow_mq.errors import ConfigRefused

from .conftest import Record
from .lab import Measured, complete_block, ring, run_blocks, run_until_empty, send


@contextmanager
def tree(uri: str, limit: int = 20, **settings: Any) -> Iterator[MessageQueue]:
    """Yield a ring whose origins are paths, and check it at the end."""
    with ring(uri, "deficit", limit, paths=True, **settings) as queue:
        yield queue
        assert queue.check() == []


def below(got: Measured, path: str, since: int = 0) -> int:
    """Return the weight that a group got."""
    return sum(cost for block in got.blocks[since:] for origin, cost in block.items() if origin.startswith(path))


@pytest.mark.slow
def test_thousand_sub_origins_get_the_share_of_one_origin(store_uri: str, record: Record) -> None:
    with tree(store_uri) as queue:
        queue.enqueue_messages((f"sybil/{number:04}", b"x") for number in range(1000) for _ in range(2))
        send(queue, "honest", 1100)
        got = run_blocks(queue, 100)
    sybil, honest = below(got, "sybil/"), got.total("honest")
    record("sybil: 1,000 sub-origins to one origin, 100 blocks", "paths", f"{sybil / honest:.3f}", "0.95 to 1.05")
    assert sybil + honest == 2000
    assert abs(sybil - honest) <= 0.05 * honest


def test_q3_origin_beside_a_group_of_twenty_gets_half(store_uri: str, record: Record) -> None:
    """A sender with twenty origins in a group competes with one origin."""
    with tree(store_uri) as queue:
        for number in range(20):
            send(queue, f"attacker/{number:02}", 60)
        send(queue, "light", 100)
        got = run_blocks(queue, 10)
    share = got.total("light") / (got.total("light") + below(got, "attacker/"))
    record("Q3 sybil: share of the one beside twenty in a group", "paths", f"{share:.2f}", ">= 0.45")
    assert got.first("light") == 1
    assert share >= 0.45


def test_shares_apply_at_three_levels(store_uri: str) -> None:
    """acme : birch = 2 : 1; in acme, orders : mail = 3 : 1; in orders, fast : slow = 2 : 1."""
    wanted = {
        "acme/orders/fast": 2 / 3 * 3 / 4 * 2 / 3, "acme/orders/slow": 2 / 3 * 3 / 4 / 3, "acme/mail": 2 / 3 / 4,
        "birch/a": 1 / 6, "birch/b": 1 / 6,
    }  # fmt: skip
    with tree(store_uri, limit=36, rounds_per_block=36) as queue:
        queue.admin.set_origin("acme", share=2)
        queue.admin.set_origin("acme/orders", share=3)
        queue.admin.set_origin("acme/orders/fast", share=2)
        rng = random.Random(5)
        for origin in wanted:
            send(queue, origin, 1300)
            send(queue, origin, 100, rng.choice([2, 3]))
        got = run_blocks(queue, 100)
    assert sum(got.total(origin) for origin in wanted) >= 3590
    for origin, share in wanted.items():
        assert abs(got.total(origin) / 3600 - share) <= 0.01, (origin, got.total(origin))


def test_unused_share_of_a_group_goes_to_others_in_the_block(store_uri: str) -> None:
    with tree(store_uri) as queue:
        send(queue, "small/a", 3)
        for number in range(5):
            send(queue, f"large/{number}", 100)
        got = run_blocks(queue, 4)
    assert [sum(block.values()) for block in got.blocks] == [20] * 4
    assert below(got, "small/") == 3


def test_returning_group_has_no_credit_and_no_debt(store_uri: str) -> None:
    """A group that was absent gets no credit for that time, and has no debt."""
    with tree(store_uri) as queue:
        for origin in ("a/1", "a/2", "b"):
            send(queue, origin, 600)
        got = run_blocks(queue, 10)
        for origin in ("c/1", "c/2", "c/3"):
            send(queue, origin, 40)
        run_blocks(queue, 9, got)
        for path, share in (("a/", 60), ("b", 60), ("c/", 60)):
            assert abs(below(got, path, 10) - share) <= 3
        run_blocks(queue, 9, got)  # ends group c: 120 messages at a third of each block
        assert below(got, "c/") == 120
        before = len(got.blocks)
        run_blocks(queue, 10, got)
        assert below(got, "a/", before) == below(got, "b", before) == 100
        send(queue, "c/9", 100)
        run_blocks(queue, 3, got)
        assert abs(below(got, "c/", before + 10) - 20) <= 1


def test_queue_named_like_a_group_belongs_to_it(store_uri: str) -> None:
    with tree(store_uri) as queue:
        queue.admin.set_origin("acme", share=2)
        for origin in ("acme", "acme/x", "birch"):
            send(queue, origin, 900)
        got = run_blocks(queue, 30)
        assert abs(below(got, "acme") - 400) <= 4
        assert abs(got.total("acme") - 200) <= 4
        # Alone, the queue gets all of the group's share; with a sibling, half.
        send(queue, "acme", 900)
        queue.sweep_queue("acme/x")
        since = len(got.blocks)
        run_blocks(queue, 15, got)
        assert abs(got.total("acme", since) - 200) <= 4
        send(queue, "acme/x", 900)
        since = len(got.blocks)
        run_blocks(queue, 15, got)
        assert abs(got.total("acme", since) - 100) <= 4


def test_least_and_most_bound_a_group(store_uri: str) -> None:
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
        # A message above its group's most is set aside.
        send(queue, "capped/heavy", 1, cost=5)
        run_blocks(queue, 2, got)
        (aside,) = queue.set_aside.list()
        assert (aside.address.origin, aside.limit) == ("capped/heavy", Weight(4, 4))


def test_a_least_goes_on_behind_a_subgroup_at_its_most(store_uri: str) -> None:
    with tree(store_uri) as queue:
        queue.admin.set_origin("sure", least=Weight(10, 10))
        queue.admin.set_origin("sure/a", most=Weight(2, 2))
        send(queue, "sure/a/x", 100)
        send(queue, "sure/b/y", 200)
        for number in range(9):
            send(queue, f"other-{number}/q", 100)
        got = run_blocks(queue, 10)
        assert all(sum(block.values()) == 20 for block in got.blocks)
        assert all(block.get("sure/a/x", 0) <= 2 for block in got.blocks)
        assert all(sum(block.get(f"sure/{name}", 0) for name in ("a/x", "b/y")) >= 10 for block in got.blocks)


def test_large_message_beside_small_siblings_starts_in_its_turn(store_uri: str) -> None:
    """Small messages do not overtake a large one forever."""
    with tree(store_uri) as queue:
        for group in ("a", "b", "c"):
            for number in range(3):
                send(queue, f"{group}/mice-{number}", 300)
        run_blocks(queue, 2)
        for group in ("a", "b"):
            send(queue, f"{group}/elephant", 3, cost=19)
        got = run_blocks(queue, 30)
    # One large message for a and one for b; then others have their turns for the same weight.
    assert got.first("a/elephant") <= 3 and got.first("b/elephant") <= 4
    assert got.total("a/elephant") == got.total("b/elephant") == 3 * 19
    assert max(abs(below(got, one) - below(got, other)) for one in "ab" for other in "bc") <= 2 * (19 + 1)


def test_large_message_with_small_siblings_does_not_starve(store_uri: str) -> None:
    """The rest of each block fits only small messages, so their group is always ahead of the others."""
    with tree(store_uri) as queue:
        for number in range(24):
            send(queue, f"herd-{number:02}/1", 3, cost=19)
        send(queue, "mixed/mice", 60)
        send(queue, "mixed/elephant", 1, cost=19)
        got = run_blocks(queue, 34)
    assert all(sum(block.values()) == 20 for block in got.blocks)
    assert got.first("mixed/elephant") <= 26


class ReadySiblings:
    """Siblings that are always ready, and their weight per share."""

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
        complete_block(self.queue, block)
        return block.planned[0]

    def spread(self, siblings: Iterable[str]) -> float:
        weights = [self.got.get(path, 0) for path in siblings]
        return max(weights) - min(weights)


@pytest.mark.parametrize("seed", range(4))
def test_siblings_differ_by_at_most_two_messages_each(store_uri: str, seed: int) -> None:
    """The bound holds after each block, for random trees, costs and shares."""
    rng = random.Random(seed)
    costs = {f"{a}/{b}/{c}": rng.choice([1, 1, 2, 5, 11]) for a in "xyz" for b in "pq"
             for c in range(rng.randint(1, 3))}  # fmt: skip
    shares = {name: rng.choice([1, 1, 2, 3]) for name in ["x", "y", "z", *(f"{a}/{b}" for a in "xyz" for b in "pq")]}
    with tree(store_uri, rounds_per_block=20) as queue:
        ready = ReadySiblings(queue, costs, shares)
        for _ in range(15):
            ready.block()
            # Each sibling differs by up to two messages and a quantum.
            assert ready.spread("xyz") <= 2 * (2 * 11 + 1)
            for a in "xyz":
                assert ready.spread([f"{a}/{b}" for b in "pq"]) <= 2 * (2 * 11 + 1)


def test_flat_origins_share_as_without_paths(store_uri: str) -> None:
    names = [f"origin-{number}" for number in range(10)]
    with tree(store_uri) as queue:
        for origin in names:
            send(queue, origin, 60)
        got = run_blocks(queue, 15)
    assert {got.total(origin) for origin in names} == {30}


def test_origins_with_unusual_slashes_are_serviced(store_uri: str) -> None:
    names = ["a", "a/", "a//", "/", "//", "/a", "a/b", "a/b/c", "é/ü", "/".join("x" * 100)]
    with tree(store_uri) as queue:
        for origin in names:
            send(queue, origin, 7)
        got = run_until_empty(queue)
    assert {origin: got.total(origin) for origin in names} == dict.fromkeys(names, 7)


def test_paths_can_be_enabled_and_disabled(store_uri: str) -> None:
    with ring(store_uri, "deficit") as queue:
        for origin in ("a/1", "a/2", "a/3", "b"):
            send(queue, origin, 200)
        got = run_blocks(queue, 4)
        assert got.total("b") == 20
        queue.admin.change_ring(paths=True)
        assert queue.config.paths
        dry_run = queue.inspect.dry_run(paths=False)
        assert dry_run.queue("b").messages == 5
        run_blocks(queue, 4, got)
        assert got.total("b", 4) == 40
        queue.admin.change_ring(paths=False)
        assert queue.inspect.dry_run(paths=True).queue("b").messages == 10
        run_blocks(queue, 4, got)
        assert got.total("b", 8) == 20
        assert queue.check() == []


@pytest.mark.parametrize("order", ["rotation", "shuffle"])
def test_paths_require_the_deficit_order(store_uri: str, order: str) -> None:
    with tree(store_uri) as queue, pytest.raises(ConfigRefused, match="paths require order='deficit'"):
        queue.admin.change_ring(order=order)
    with tree(store_uri) as queue, pytest.raises(ConfigRefused, match="invalid paths .*: expected true or false"):
        queue.admin.change_ring(paths=1)


def test_shares_count_reported_use(store_uri: str) -> None:
    """A group whose messages use twice their weight gets half as many."""
    with tree(store_uri) as queue:
        for origin in ("liar/1", "liar/2", "honest"):
            send(queue, origin, 400)
        got = Measured()
        for _ in range(20):
            block = queue.blocks.plan()
            got.add(block)
            for batch in block.batches():
                liar = batch.origin.startswith("liar/")
                queue.blocks.report(block, [batch.answer(Done(used=Weight(2, 2) if liar else None))])
            queue.blocks.settle(block)
    assert abs(got.total("honest") / below(got, "liar/") - 2) <= 0.1
