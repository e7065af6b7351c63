"""How long one waits behind others, and what one gets beside them: in figures.

Each test runs under the deficit order, which must be fair within a block, and under the
contract's rotation for comparison, which need not.
"""

from __future__ import annotations

import random

import pytest

from airflow_mq import Message, Weight
from airflow_mq.core.config import BLOCK_PARTS
from airflow_mq.core.orders import shuffled

from .conftest import Tell
from .lab import Got, done, fifo_waits, jain, mean, ring, run_blocks, run_until_empty, send

LIGHT = ("light-1", "light-2", "light-3", "light-4")


def test_q1_skew(store_uri: str, order: str, tell: Tell) -> None:
    """One heavy origin came first with 120 messages; four light ones have 10 each."""
    arrivals = [("heavy", 1)] * 120 + [(origin, 1) for origin in LIGHT for _ in range(10)]
    fifo = mean(wait for origin in LIGHT for wait in fifo_waits(arrivals, 20)[origin])
    with ring(store_uri, order) as queue:
        send(queue, "heavy", 120)
        for origin in LIGHT:
            send(queue, origin, 10)
        got = run_until_empty(queue)
    assert got.total("heavy") == 120
    light = mean(wait for origin in LIGHT for wait in got.waits(origin))
    tell("Q1 skew: mean wait of the light, of that in one queue", order, f"{light / fifo:.2f}", "<= 0.30")
    if order == "deficit":
        assert light <= 0.3 * fifo


def test_q2_trickle(store_uri: str, order: str, tell: Tell) -> None:
    """Light origins send a message now and then into the backlog of a heavy one."""
    backlog, limit, every = 400, 20, 2
    with ring(store_uri, order) as queue:
        send(queue, "heavy", backlog)
        got, sent, waits, fifo = Got(), 0, [], []
        for number in range(1, 13):
            if number % every == 0:
                send(queue, LIGHT[sent % 4], 1)
                fifo.append(-(-(backlog + sent + 1) // limit) - number + 1)
                sent += 1
                born = number
            run_blocks(queue, 1, got)
            waits += [number - born + 1 for origin in LIGHT for _ in range(got.starts[-1].get(origin, 0))]
        rest = sent - len(waits)
    # Who was not serviced at all waited at least until the end.
    waits += [13] * rest
    share = mean(waits) / mean(fifo)
    tell("Q2 trickle: mean wait of the light, of that in one queue", order, f"{share:.2f}", "<= 0.30")
    if order == "deficit":
        assert rest == 0
        assert share <= 0.3


def test_q3_sybil(store_uri: str, order: str, tell: Tell) -> None:
    """Twenty origins of one sender against one: without groups, it starts within three blocks."""
    with ring(store_uri, order) as queue:
        for number in range(20):
            send(queue, f"attacker-{number:02}", 60)
        send(queue, "light", 20)
        got = run_blocks(queue, 22)
    first = got.first("light")
    tell("Q3 sybil: first block of the one beside twenty", order, str(first), "<= 3")
    if order == "deficit":
        assert first <= 3


def test_q4_equal_weights(store_uri: str, order: str, tell: Tell) -> None:
    """Ten origins with messages of mixed costs, always something waiting: over 50 blocks all get the same."""
    chance, names = random.Random(4), [f"origin-{number}" for number in range(10)]
    with ring(store_uri, order, limit=400, rounds_per_block=40) as queue:
        for number, origin in enumerate(names):
            costs = [chance.choice([1, 2, 3 + number, 20]) for _ in range(450)]
            queue.enqueue_messages(
                origin, (Message(b"%d" % at, weight=Weight(cost, cost)) for at, cost in enumerate(costs))
            )
        got = run_blocks(queue, 50)
        assert all(queue.footprint(origin).count for origin in names), "somebody had nothing left to send"
    index = jain([got.total(origin) for origin in names])
    early = jain([sum(block.get(origin, 0) for block in got.blocks[:7]) for origin in names])
    tell("Q4 Jain's index over 50 blocks, equal shares", order, f"{index:.4f}", ">= 0.99")
    tell("Q4 the same over the first 7", order, f"{early:.4f}", ">= 0.99")
    if order == "deficit":
        assert index >= 0.99
        assert early >= 0.99


def test_q4_weighted_shares(store_uri: str, order: str, tell: Tell) -> None:
    """Shares of 1, 2, 3 and 4: each gets what it is due, within two in a hundred."""
    shares, chance = {"one": 1, "two": 2, "three": 3, "four": 4}, random.Random(5)
    with ring(store_uri, order, limit=400, rounds_per_block=40) as queue:
        for origin, share in shares.items():
            queue.admin.set_origin(origin, share=share)
            costs = [chance.choice([1, 2, 5, 20]) for _ in range(500 * share)]
            queue.enqueue_messages(
                origin, (Message(b"%d" % number, weight=Weight(cost, cost)) for number, cost in enumerate(costs))
            )
        got = run_blocks(queue, 25)
        assert all(queue.footprint(origin).count for origin in shares)
    total = sum(got.total(origin) for origin in shares)
    worst = max(abs(got.total(origin) / total - share / 10) / (share / 10) for origin, share in shares.items())
    tell("Q4 error of weighted shares", order, f"{worst:.1%}", "<= 2 %")
    if order == "deficit":
        assert worst <= 0.02


def test_q4_everybody_has_the_same_number_of_rounds(store_uri: str, tell: Tell) -> None:
    """Granted and kept together are what was earned: to the round the same for each share, after any number of blocks."""
    shares, chance, quantum = {"one": 1, "two": 2, "three": 3, "four": 4}, random.Random(6), 10
    with ring(store_uri, "deficit", limit=400, rounds_per_block=400 // quantum) as queue:
        for origin, share in shares.items():
            queue.admin.set_origin(origin, share=share)
            costs = [chance.choice([1, 2, 5, 20]) for _ in range(450 * share)]
            queue.enqueue_messages(
                origin, (Message(b"%d" % number, weight=Weight(cost, cost)) for number, cost in enumerate(costs))
            )
        got = run_blocks(queue, 30)
        with queue.session.snapshot() as (_, working_set):
            kept = {origin: working_set.book(origin).deficit * 400 / BLOCK_PARTS for origin in shares}
    rounds = [(got.total(origin) + kept[origin]) / (quantum * share) for origin, share in shares.items()]
    tell(
        "Q4 rounds after 30 blocks, fewest and most",
        "deficit",
        f"{min(rounds):.1f} {max(rounds):.1f}",
        "at most 1 apart",
    )
    assert max(rounds) - min(rounds) <= 1.01


@pytest.mark.parametrize("flood", [pytest.param(1_000_000, marks=pytest.mark.slow), 20_000])
def test_q5_flood(store_uri: str, order: str, tell: Tell, flood: int) -> None:
    """A floods, B sends one message: it is in the next block."""
    if flood > 20_000 and not store_uri.startswith("sqlite"):
        flood = 100_000
    with ring(store_uri, order, limit=100) as queue:
        send(queue, "A", flood)
        run_blocks(queue, 1)
        send(queue, "B", 1)
        got = run_blocks(queue, 2)
    tell(f"Q5 flood of {flood:,}: block in which the other starts", order, str(got.first("B")), "1")
    if order == "deficit":
        assert got.first("B") == 1


@pytest.mark.parametrize("per_block", [10, 250])
def test_q6_elephant(store_uri: str, order: str, tell: Tell, per_block: int) -> None:
    """A message of 95 % of the limit among mice that never end starts within ⌈cost ÷ quantum⌉ + 1 rounds.

    A round gives a quantum to each of the origins; so many rounds take so many blocks.
    """
    limit, mice = 500, [f"mouse-{number}" for number in range(5)]
    quantum = limit // per_block
    rounds = -(-475 // quantum) + 1
    most = -(-rounds * quantum * len(mice) // limit) + 1
    with ring(store_uri, order, limit=limit, rounds_per_block=per_block) as queue:
        for mouse in mice:
            send(queue, mouse, 2000)
        queue.enqueue_message("elephant", b"large", weight=Weight(475, 475))
        got = Got()
        while not got.blocks or (not got.blocks[-1].get("elephant") and len(got.blocks) < 30):
            run_blocks(queue, 1, got)
            for mouse in mice:
                send(queue, mouse, 100)
    first = got.first("elephant")
    tell(f"Q6 elephant: block in which it starts ({rounds} rounds)", order, str(first), f"<= {most}")
    if order == "deficit":
        assert first <= most


def test_q7_joining_and_leaving(store_uri: str, tell: Tell) -> None:
    """Origins come and go with every block: nobody's deficit exceeds a quantum and a message."""
    chance, limit, per_block, largest = random.Random(7), 60, 6, 25
    bound = BLOCK_PARTS // per_block + -(-largest * BLOCK_PARTS // limit) + 1
    highest = 0
    with ring(store_uri, "deficit", limit=limit, rounds_per_block=per_block) as queue:
        for number in range(60):
            for origin in chance.sample(range(12), 4):
                send(queue, f"origin-{origin}", chance.randint(1, 4), cost=chance.choice([1, 3, 10, largest]))
            block = queue.blocks.plan()
            for ledger in queue.inspect.ledger(block=block.id):
                highest = max([highest, *(entry.deficit for entry in ledger.entries)])
                assert all(entry.deficit <= bound for entry in ledger.entries)
            if number % 3:
                done(queue, block)
            else:
                queue.blocks.release(block)
        assert queue.check() == []
        run_until_empty(queue)
        with queue.session.snapshot() as (_, working_set):
            assert all(working_set.book(f"origin-{number}").deficit <= 0 for number in range(12))
    tell("Q7 coming and going: largest deficit, of its bound", "deficit", f"{highest / bound:.2f}", "<= 1")


def test_q8_changed_share(store_uri: str, order: str, tell: Tell) -> None:
    """A share that is changed counts from the next block on, for what waits already, too."""
    with ring(store_uri, order, limit=1024) as queue:
        send(queue, "A", 5000)
        send(queue, "B", 5000)
        before = run_blocks(queue, 3)
        queue.admin.set_origin("B", share=5)
        after = run_blocks(queue, 1)
    was, now = (got.total("B") / (got.total("A") + got.total("B")) for got in (before, after))
    tell(
        "Q8 share of B before, and in the block after, it was set to 5 of 6", order, f"{was:.2f} {now:.2f}", "0.50 0.83"
    )
    if order == "deficit":
        assert abs(was - 1 / 2) <= 0.01
        assert abs(now - 5 / 6) <= 0.01


def test_least_and_most(store_uri: str, tell: Tell) -> None:
    """An origin gets its least, whoever waits, and never more than its most, whatever is left."""
    with ring(store_uri, "deficit", limit=60, rounds_per_block=60) as queue:
        for number in range(9):
            send(queue, f"other-{number}", 300)
        send(queue, "promised", 300)
        send(queue, "bounded", 300)
        queue.admin.set_origin("promised", least=Weight(30, 30))
        queue.admin.set_origin("bounded", most=Weight(2, 2))
        got = run_blocks(queue, 6)
        least, most = ([block.get(origin, 0) for block in got.blocks] for origin in ("promised", "bounded"))
        # Alone, it still gets no more than its most.
        for number in range(9):
            queue.admin.pause(f"other-{number}")
        queue.admin.pause("promised")
        alone = run_blocks(queue, 2).blocks
    tell("least of 30: smallest block; most of 2: largest block", "deficit", f"{min(least)} {max(most)}", ">= 30, <= 2")
    assert min(least) >= 30
    assert max(most) <= 2
    assert [block["bounded"] for block in alone] == [2, 2]


def test_above_its_most_is_overweight(store_uri: str) -> None:
    with ring(store_uri, "deficit", limit=60) as queue:
        queue.admin.set_origin("bounded", most=Weight(10, 10))
        queue.enqueue_message("bounded", b"eleven", weight=Weight(11, 11))
        queue.enqueue_message("bounded", b"ten", weight=Weight(10, 10))
        block = queue.blocks.plan()
        assert block.planned == Weight(10, 10)
        done(queue, block)
        (aside,) = queue.set_aside.list()
        assert (aside.weight, aside.limit, aside.reason) == (Weight(11, 11), Weight(10, 10), "most")


def test_shuffle_is_replayed_by_its_seed(store_uri: str) -> None:
    """The same seed and ring give the same order; another gives another; the first of them varies fairly."""
    names = [f"origin-{number}" for number in range(8)]
    plans = []
    for seed in (b"one", b"one", b"two"):
        with ring(store_uri, "shuffle", limit=10) as queue:
            for origin in names:
                send(queue, origin, 4)
            plans.append([(claim.origin, claim.messages) for claim in queue.blocks.plan(seed=seed).claims])
            assert [origin for origin, _ in plans[-1]] == shuffled(names, seed)[: len(plans[-1])]
    assert plans[0] == plans[1] != plans[2]
    firsts = [shuffled(names, b"%d" % seed)[0] for seed in range(800)]
    assert all(60 <= firsts.count(origin) <= 140 for origin in names)


def test_a_shuffled_block_keeps_its_seed(store_uri: str) -> None:
    with ring(store_uri, "shuffle", limit=3) as queue:
        for number in range(6):
            send(queue, f"origin-{number}", 2)
        block = queue.blocks.plan()
        with queue.store.reading() as unit:
            row = unit.blocks.by_token(queue.session.ring_id, bytes.fromhex(block.token))
        assert row is not None
        planned = [claim.origin for claim in block.claims]
        queue.blocks.release(block)
        again = queue.blocks.plan(seed=bytes.fromhex(row.details_json["seed"]))
        assert [claim.origin for claim in again.claims] == planned


@pytest.mark.parametrize("order", ["rotation", "deficit", "shuffle"])
def test_the_ledger_tells_what_was_granted(store_uri: str, order: str) -> None:
    """From it anybody recomputes the shares, and they are what was planned."""
    with ring(store_uri, order, limit=20) as queue:
        for number in range(5):
            send(queue, f"origin-{number}", 30, cost=1 + number % 3)
        for _ in range(10):
            block = queue.blocks.plan()
            planned: dict[str, int] = {}
            for claim in block.claims:
                planned[claim.origin] = planned.get(claim.origin, 0) + claim.planned[0]
            (ledger,) = queue.inspect.ledger(block=block.id)
            granted = {entry.origin: entry.granted[0] for entry in ledger.entries if entry.granted[0]}
            assert granted == {origin: weight for origin, weight in planned.items() if weight}
            assert all(entry.reason for entry in ledger.entries)
            done(queue, block)
