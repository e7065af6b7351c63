"""Forecasts: they match the blocks that then run, and change nothing."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from airflow_mq import Address, Block, Costs, LinearWeigher, MessageQueue, Overweight, Weight, Yield
from airflow_mq.engine.queue.inspect import explain
from airflow_mq.engine.queue.inspect.forecast import ForecastBlock, Foresight
from airflow_mq.engine.queue.inspect.inspect import LOOK_AHEAD
from airflow_mq.engine.rules.errors import ConfigRefused, InvalidInput
from airflow_mq.engine.rules.weight import LARGEST
from airflow_mq.engine.store import parse, upgrade
from tests.proofs.crash.states import everything
from tests.store.queue.conftest import Maker

ORDERS = ("rotation", "deficit", "shuffle")
SEED = b"a seed"


@contextmanager
def untouched(queue: MessageQueue) -> Iterator[None]:
    """Check that no stored row changes."""
    before = everything(queue)
    yield
    assert everything(queue) == before


def seed_of(queue: MessageQueue) -> dict[str, Any]:
    return {"seed": SEED} if queue.config.order == "shuffle" else {}


def claims_of(block: Block | ForecastBlock) -> list[Any]:
    """Return all claims and runs of a block."""
    return [
        (claim.origin, [(run.page, run.first, run.count, run.closed, run.decisions) for run in claim.runs])
        for claim in block.claims
    ]


def assert_planned_as_foreseen(queue: MessageQueue, foreseen: ForecastBlock, block: Block) -> None:
    """Check that a block was planned as foreseen: claims, weights and ledger."""
    assert claims_of(foreseen) == claims_of(block)
    assert (foreseen.planned, foreseen.overhead, foreseen.limit) == (block.planned, block.overhead, block.limit)
    assert (foreseen.messages, foreseen.origins) == (block.messages, block.origins)
    ledger = [entry for page in queue.inspect.ledger(block=block.id) for entry in page.entries]
    assert [
        (queue_forecast.origin, queue_forecast.offered, queue_forecast.deficit, queue_forecast.reason)
        for queue_forecast in foreseen.queues
    ] == [(entry.origin, entry.offered, entry.deficit, entry.reason) for entry in ledger]
    assert [
        (queue_forecast.origin, queue_forecast.messages + queue_forecast.expired) for queue_forecast in foreseen.queues
    ] == [(entry.origin, entry.messages) for entry in ledger]


def complete_block(queue: MessageQueue, block: Block) -> None:
    """Complete all messages of a block and settle it."""
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)


class Life:
    """A ring with a random past."""

    def __init__(self, queue: MessageQueue, dice: random.Random) -> None:
        self.queue, self.dice = queue, dice
        self.origins = [f"o{number}" for number in range(dice.choice([1, 3, 8]))]
        events = [self.pause, self.late] + [self.set, self.block] * 3 + [self.send] * 8
        for _ in range(dice.randrange(2, 20)):
            dice.choice(events)()

    def send(self) -> None:
        dice = self.dice
        declared = dice.choice([None, None, Weight(dice.randrange(8), dice.randrange(8)), Weight(40, 1)])
        count = dice.choice([1, 2, 5, 30])
        times = {"expires": 0} if dice.random() < 0.1 else {"not_before": 0} if dice.random() < 0.2 else {}
        payloads = [bytes(dice.randrange(1, 9)) for _ in range(count)]
        self.queue.enqueue_messages(dice.choice(self.origins), payloads, weight=declared, **times)  # type: ignore[arg-type]

    def late(self) -> None:
        self.queue.enqueue_message(self.dice.choice(self.origins), b"later", not_before=3600)

    def pause(self) -> None:
        self.queue.admin.pause(self.dice.choice(self.origins))

    def set(self) -> None:
        dice = self.dice
        self.queue.admin.set_origin(
            dice.choice(self.origins), share=dice.choice([None, 1, 3]), least=dice.choice([None, None, Weight(3, 3)]),
            most=dice.choice([None, None, Weight(6, 6)]), ordered=dice.choice([None, False]),
        )  # fmt: skip

    def block(self) -> None:
        """Plan a block that is completed, half reported, expired, or still in flight."""
        queue, dice = self.queue, self.dice
        fate = dice.choice(["done", "done", "half", "dead", "dead", "lives"])
        block = queue.blocks.plan(lease=0.0 if fate == "dead" else None, **seed_of(queue))
        batches = list(block.batches())
        answered = batches if fate == "done" else batches[: len(batches) // 2]
        if fate != "dead":
            outcomes = [Yield("later")] if dice.random() < 0.3 else []
            queue.blocks.report(block, [batch.answer(*outcomes) for batch in answered])
        if fate in ("done", "half"):
            queue.blocks.settle(block)


def make_random_ring(make_queue: Maker, order: str, number: int) -> MessageQueue:
    """Make a ring whose state is derived from its number."""
    dice = random.Random(number)
    costs = Costs(service_queue_base=Weight(1, 0), service_page_item=Weight(0, 1)) if dice.random() < 0.4 else Costs()
    queue = make_queue(
        f"{order}-{number}", order=order, heap_size=dice.choice([48, 150, 4096]),
        service_weight=dice.choice([Weight(12, 12), Weight(30, 40), Weight(200, 300)]), costs=costs,
        rounds_per_block=dice.choice([1, 3, 8]), ordered=dice.random() < 0.7,
        weigher=LinearWeigher(Weight(1, 1), Weight(0, 0)), max_attempts=dice.choice([None, 1, 2]),
        backoff=dice.choice([0.0, 0.0, 3600.0]),
    )  # fmt: skip
    Life(queue, dice)
    return queue


def make_random_wide_ring(make_queue: Maker, order: str, number: int) -> MessageQueue:
    """Make a random ring that may have high messages, lower limits, or paths."""
    queue, dice = make_random_ring(make_queue, order, number), random.Random(f"{number}, and more")
    queue.admin.change_ring(
        max_message_size=dice.choice([None, None, 4]), most_of_limit=dice.choice([None, None, 0.2, 0.5]),
        kept_for_regular=dice.choice([0.0, 0.3, 0.5]), paths=order == "deficit" and dice.random() < 0.3,
    )  # fmt: skip
    for _ in range(dice.choice([0, 0, 1, 3])):
        origin, payloads = (
            dice.choice(["o0", "o1", "o0/x", "p/y"]),
            [bytes(dice.randrange(1, 9))] * dice.randrange(1, 9),
        )
        queue.enqueue_messages(origin, payloads, priority=dice.choice(["high", "regular"]))
    if dice.random() < 0.3:
        # A message is leased.
        queue.leases.view().try_next()
    return queue


@pytest.mark.parametrize("order", ORDERS)
def test_dry_run_equals_the_next_block(make_queue: Maker, order: str) -> None:
    for number in range(25):
        queue = (make_random_ring, make_random_wide_ring)[number % 2](make_queue, order, number)
        with untouched(queue):
            foreseen = queue.inspect.dry_run(**seed_of(queue))
        assert_planned_as_foreseen(queue, foreseen, queue.blocks.plan(**seed_of(queue)))


def moves(queue: MessageQueue, limit: Weight, origins: list[str]) -> bool:
    """Return whether one of the next real blocks takes any message."""
    for _ in range(LOOK_AHEAD):
        block = queue.blocks.plan(None, limit, server="a DAG", origins=origins, **seed_of(queue))
        if any(run.count for claim in block.claims for run in claim.runs):
            return True
        queue.blocks.settle(block)
    return False


@pytest.mark.sqlite_first
@pytest.mark.parametrize("order", ORDERS)
def test_a_look_for_work_finds_what_the_next_blocks_take(make_queue: Maker, order: str) -> None:
    found = set()
    for number in range(24):
        queue, dice = make_random_wide_ring(make_queue, order, number), random.Random(f"{number}, a look")
        limit = dice.choice([Weight(2, 60), Weight(12, 12), Weight(30, 40)])
        origins = dice.choice([["*"], ["o0"], ["o[1-9]"], ["p/*", "o2"], ["nobody"]])
        with untouched(queue):
            said = queue.inspect.finds_work(limit, origins, "a DAG")
        assert said == moves(queue, limit, origins), number
        found.add(said)
    assert found == {True, False}


@pytest.mark.sqlite_first
@pytest.mark.parametrize("order", ORDERS)
def test_forecast_equals_the_next_blocks(make_queue: Maker, order: str) -> None:
    for number in range(100, 120):
        queue = make_random_ring(make_queue, order, number)
        with untouched(queue):
            foreseen = queue.inspect.forecast(12, **seed_of(queue))
        assert [foreseen_block.number for foreseen_block in foreseen] == list(range(1, len(foreseen) + 1))
        for foreseen_block in foreseen:
            block = queue.blocks.plan(**seed_of(queue))
            assert_planned_as_foreseen(queue, foreseen_block, block)
            complete_block(queue, block)
        if len(foreseen) < 12:
            assert claims_of(queue.blocks.plan(**seed_of(queue))) == []


def check_explanations(queue: MessageQueue, dice: random.Random, ahead: int = 8) -> None:
    """Explain sampled messages and queues, run the blocks, and compare block numbers."""
    addresses = [
        message.address for origin, _ in queue.footprints() for message in queue.inspect.peek(origin, limit=200)
    ]
    sample = dice.sample(addresses, min(len(addresses), 6))
    with untouched(queue):
        foreseen = queue.inspect.forecast(ahead)
        explanations = {address: queue.inspect.explain_message(address, ahead=ahead) for address in sample}
        queue_explanations = {
            origin: queue.inspect.explain(origin, ahead=ahead) for origin in {address.origin for address in sample}
        }
    ran: dict[Address, int] = {}
    for number in range(1, ahead + 1):
        block = queue.blocks.plan()
        if number <= len(foreseen):
            assert_planned_as_foreseen(queue, foreseen[number - 1], block)
        else:
            assert claims_of(block) == []
        for claim in block.claims:
            for run in claim.runs:
                ran.update({Address(claim.origin, run.page, run.first + i): number for i in range(run.count)})
        complete_block(queue, block)
    assert {address: explanation.block for address, explanation in explanations.items()} == {
        address: ran.get(address) for address in sample
    }
    for origin, explanation in queue_explanations.items():
        assert explanation.origin == origin and explanation.sentence
        assert explanation.block == (ran.get(explanation.address) if explanation.address else None)
        wanted = (origin, explanation.address.priority if explanation.address else "regular")
        assert explanation.block == min(
            (number for place, number in ran.items() if (place.origin, place.priority) == wanted), default=None
        )


@pytest.mark.slow
@pytest.mark.sqlite_first
@pytest.mark.parametrize("order", ["rotation", "deficit"])
def test_explain_names_the_block_of_a_message(make_queue: Maker, order: str) -> None:
    # In ring 5497, two queues with a least change places from block to block.
    for number in (*range(200, 215), 5497):
        check_explanations(make_random_ring(make_queue, order, number), random.Random(number))


@pytest.mark.slow
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.soak) for part in range(1, 8))])
def test_explain_names_the_block_of_a_message_in_1000_rings(sqlite_uri: str, part: int) -> None:
    maker = Maker(sqlite_uri)
    for number in range(1000 + part * 125, 1000 + (part + 1) * 125):
        queue = (make_random_ring, make_random_wide_ring)[number // 2 % 2](
            maker, ("rotation", "deficit")[number % 2], number
        )
        check_explanations(queue, random.Random(number))
        assert queue.check() == []
        queue.close()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("then", ORDERS)
def test_dry_run_applies_other_settings(make_queue: Maker, order: str, then: str) -> None:
    """A dry run with other shares, limits, orders and settings equals the block after these changes."""
    for number in range(300, 302):
        queue, dice = make_random_ring(make_queue, order, number), random.Random(number)
        shares = {origin: dice.choice([1, 2, 5]) for origin in ("o1", "o3", "fresh")}
        for origin in shares:
            # A new share replaces the origin's other settings.
            queue.admin.set_origin(origin)
        queue.enqueue_messages("fresh", [b"x"] * 9)
        limit, settings = dice.choice([None, Weight(20, 25), Weight(3, 3)]), {"rounds_per_block": dice.choice([1, 4])}
        if dice.random() < 0.5:
            settings["costs"] = Costs(bump_service_head=Weight(1, 1), ready_ring_unknit=Weight(1, 0))
        if dice.random() < 0.5:
            settings["service_weight"] = Weight(25, 60)
        seed = SEED if then == "shuffle" else None
        with untouched(queue):
            foreseen = queue.inspect.dry_run(limit, shares=shares, order=then, seed=seed, **settings)
        for origin, share in shares.items():
            queue.admin.set_origin(origin, share=share)
        queue.admin.change_ring(order=then, **settings)
        assert_planned_as_foreseen(queue, foreseen, queue.blocks.plan(limit=limit, seed=seed))


def condition(kind: str, value: str, origin: str) -> dict[str, Any]:
    """Return the arguments of a forecast for a remedy of an explanation."""
    if kind == "limit":
        return {"limit": Weight.of(value)}
    return {"shares": {origin: int(value)}} if kind == "share" else {"order": value}


#: Reasons without a remedy.
REASONS_WITHOUT_REMEDY = ("next", "gone", "empty", "nowhere")


@pytest.mark.parametrize("order", ["rotation", "deficit"])
def test_remedies_have_their_stated_effect(make_queue: Maker, order: str) -> None:
    """An explanation is one sentence after what is overdue, and each remedy in it has the stated effect."""
    tried = dict.fromkeys(("limit", "share", "order"), 0)
    for number in range(400, 408):
        queue, dice = make_random_ring(make_queue, order, number), random.Random(number)
        addresses = [
            message.address for origin, _ in queue.footprints() for message in queue.inspect.peek(origin, limit=200)
        ]
        for address in dice.sample(addresses, min(len(addresses), 4)):
            explanation = queue.inspect.explain_message(address, ahead=6)
            sentence = explanation.sentence.removeprefix("No block has ever serviced this ring. ")
            assert sentence.endswith(".") and "\n" not in sentence and ". " not in sentence
            assert explanation.reason in REASONS_WITHOUT_REMEDY or explanation.remedies, explanation
            for remedy in explanation.remedies:
                match = re.fullmatch(
                    r"(?:with a|in the) (limit|share|order) (?:of )?(.+), it runs in block (\d+) from now", remedy
                )
                if match is None:
                    continue
                kind, value, block = match.groups()
                tried[kind] += 1
                blocks = queue.inspect.forecast(6, **condition(kind, value, address.origin))
                assert next(
                    block_forecast.number for block_forecast in blocks if block_forecast.verdict(address) == "processed"
                ) == int(block)
                assert explanation.block is None or int(block) < explanation.block
    assert tried["limit"] and (tried["share"] or order == "rotation")


def test_remedy_does_not_exceed_the_largest_limit(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", service_weight=Weight(LARGEST, 10))
    queue.enqueue_messages("acme", [b"x" * 9] * 3)
    explanation = queue.inspect.explain_message(Address("acme", 0, 2))
    assert explanation.block == 3 and explanation.remedies[0].startswith(f"with a limit of {Weight(LARGEST, 20)}")


def test_dry_run_divides_a_block_by_shares(make_queue: Maker) -> None:
    queue = make_queue(order="deficit", service_weight=Weight(32, 1 << 20), rounds_per_block=32)
    for origin in ("acme", "globex"):
        queue.enqueue_messages(origin, [b"x"] * 100)
    assert [queue.inspect.dry_run().queue(origin).messages for origin in ("acme", "globex")] == [16, 16]
    assert [queue.inspect.dry_run(shares={"acme": 3}).queue(origin).messages for origin in ("acme", "globex")] == [
        24,
        8,
    ]
    assert queue.inspect.dry_run(Weight(10, 1 << 20)).messages == 10
    assert queue.inspect.dry_run(order="rotation").origins == ["acme"]
    assert [block.messages for block in queue.inspect.forecast(order="rotation")] == [32, 32, 32, 32, 32, 32, 8]
    assert queue.inspect.dry_run().verdict(Address("acme", 0, 0)) == "processed"
    assert queue.inspect.dry_run().verdict(Address("acme", 0, 99)) is None


def test_unforeseeable_requests_are_rejected(make_queue: Maker) -> None:
    queue = make_queue(order="shuffle")
    queue.enqueue_message("acme", b"x")
    with pytest.raises(InvalidInput, match="seed"):
        queue.inspect.dry_run()
    with pytest.raises(InvalidInput, match="64 bytes"):
        queue.inspect.dry_run(seed=b"x" * 65)
    assert queue.inspect.dry_run(seed=SEED).messages == queue.inspect.dry_run(order="rotation").messages == 1
    explanation = queue.inspect.explain("acme")
    assert (explanation.reason, explanation.block) == ("chance", None) and "shuffles" in explanation.sentence
    assert queue.inspect.explain("acme", seed=SEED).block == 1
    for wrong, match in (
        ({"shares": {"acme": 0}}, "share"),
        ({"heap_size": 1 << 20}, "heap_size"),
        ({"odd": 1}, "odd"),
    ):
        with pytest.raises(ConfigRefused, match=match):
            queue.inspect.dry_run(seed=SEED, **wrong)  # type: ignore[arg-type]
    with make_queue("free", service_weight=None, order="rotation") as free:
        with pytest.raises(InvalidInput, match="service weight"):
            free.inspect.forecast()
        assert free.inspect.forecast(limit=Weight(1, 1)) == []


# Each reason why a message waits.


@pytest.fixture
def small(make_queue: Maker) -> MessageQueue:
    """Return a ring whose blocks take ten messages."""
    return make_queue(
        order="rotation", service_weight=Weight(10, 1 << 20), weigher=LinearWeigher(Weight(1, 0), Weight(0, 0))
    )


def reason_and_block(queue: MessageQueue, address: str) -> tuple[str, int | None]:
    with untouched(queue):
        explanation = queue.inspect.explain_message(Address.parse(address))
    assert explanation.address == Address.parse(address) and explanation.sentence.endswith(".")
    return explanation.reason, explanation.block


def test_explain_reports_turn_and_position(small: MessageQueue) -> None:
    for origin in ("acme", "globex"):
        small.enqueue_messages(origin, [b"x"] * 12)
    assert reason_and_block(small, "acme:0:0") == ("next", 1)
    assert reason_and_block(small, "acme:0:9") == ("next", 1)
    assert reason_and_block(small, "acme:0:10") == ("behind", 3)
    assert reason_and_block(small, "globex:0:0") == ("turn", 2)
    explanation = small.inspect.explain("globex")
    assert (explanation.address, explanation.reason, explanation.block) == (Address("globex", 0, 0), "turn", 2)
    assert explanation.sentence == (
        "No block has ever serviced this ring. The first message of globex, globex:0:0, runs in block 2 from now: "
        "the blocks before are full when its turn would come."
    )
    assert explanation.remedies == [
        "with a limit of 20 ms · 2 MiB, it runs in block 1 from now",
        "in the order deficit, it runs in block 1 from now",
    ]
    assert small.inspect.explain("globex", limit=Weight(13, 13)).block == 1
    assert "not tried in the next 1 block:" in small.inspect.explain("globex", ahead=1).sentence


def test_explain_bounds_its_forecasts(small: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    small.enqueue_messages((f"tenant-{at:03}", b"x") for at in range(200))
    visits = []
    plan = Foresight.next_block

    def counted(self: Foresight, *args: Any) -> ForecastBlock:
        block = plan(self, *args)
        visits.append(block.visits)
        return block

    monkeypatch.setattr(Foresight, "next_block", counted)
    monkeypatch.setattr(explain, "MOST_VISITS", 100)
    monkeypatch.setattr(explain, "MOST_REMEDY_VISITS", 60)
    explanation = small.inspect.explain("tenant-199")

    assert (explanation.reason, explanation.block) == ("turn", None)
    told = re.search(r"is not tried in the next (\d+) blocks?: ", explanation.sentence)
    assert told and sum(visits[: int(told[1])]) >= 100 > sum(visits[: int(told[1]) - 1])
    assert explanation.sentence.endswith("; an explanation forecasts no more blocks of this size.")
    assert explanation.remedies and sum(visits) <= 100 + 60 + 2 * max(visits)


def test_explain_suggests_a_larger_share(make_queue: Maker) -> None:
    queue = make_queue(order="deficit", service_weight=Weight(40, 1 << 20), rounds_per_block=40,
                       weigher=LinearWeigher(Weight(1, 0), Weight(0, 0)))  # fmt: skip
    for origin in ("acme", "globex"):
        queue.enqueue_messages(origin, [b"x"] * 100)
    assert queue.inspect.explain_message(Address("acme", 0, 25)).remedies == [
        "with a limit of 80 ms · 2 MiB, it runs in block 1 from now",
        "with a share of 2, it runs in block 1 from now",
    ]


def test_explain_suggests_a_larger_most(make_queue: Maker) -> None:
    queue = make_queue(
        order="deficit", service_weight=Weight(40, 1 << 20), weigher=LinearWeigher(Weight(1, 0), Weight(0, 0))
    )
    queue.admin.set_origin("acme", most=Weight(2, 100))
    queue.enqueue_messages("acme", [b"x"] * 8)
    explanation = queue.inspect.explain_message(Address("acme", 0, 7))
    assert (explanation.block, list(explanation.remedies)) == (
        4,
        ["with a most of 4 ms · 200 B for acme, it runs in block 2 from now"],
    )
    queue.admin.set_origin("acme", most=Weight(4, 200))
    assert queue.inspect.explain_message(Address("acme", 0, 7)).block == 2


def test_explain_reports_a_full_block(make_queue: Maker) -> None:
    queue = make_queue(order="deficit", service_weight=Weight(10, 1 << 20), rounds_per_block=1,
                       weigher=LinearWeigher(Weight(1, 0), Weight(0, 0)))  # fmt: skip
    queue.enqueue_messages("acme", [b"x"] * 5)
    queue.enqueue_message("globex", b"y", weight=Weight(8, 0))
    assert reason_and_block(queue, "globex:0:0") == ("limit", 2)


def test_explain_reports_an_overweight_message(small: MessageQueue) -> None:
    small.enqueue_message("acme", b"x", weight=Weight(11, 0))
    assert reason_and_block(small, "acme:0:0") == ("overweight", 1)
    assert "weighs 11 ms · 0 B, more than the 10 ms · 1 MiB" in small.inspect.explain("acme").sentence
    (remedy,) = small.inspect.explain("acme").remedies
    assert remedy.endswith("--service-weight 11ms/1MiB --ring test")
    block = small.blocks.plan()
    assert reason_and_block(small, "acme:0:0") == ("in flight", None)
    sentence = small.inspect.explain_message(Address("acme", 0, 0)).sentence
    assert sentence.startswith(f"acme:0:0 is set aside when block {block.id},") and "weighs 11 ms · 0 B" in sentence
    complete_block(small, block)
    assert reason_and_block(small, "acme:0:0") == ("set aside", None)
    assert small.inspect.explain("acme").reason == "set aside"
    assert "set-aside requeue acme:0:0" in small.inspect.explain_message(Address("acme", 0, 0)).remedies[1]
    sentence = small.inspect.explain_message(Address("acme", 0, 0)).sentence
    assert "weighs 11 ms · 0 B" in sentence and sentence.endswith("; it waits for a person.") and ". " not in sentence
    small.admin.change_ring(service_weight=Weight(11, 1 << 20))
    small.set_aside.requeue_all("raised")
    sentence = small.inspect.explain_message(Address("acme", 0, 0)).sentence
    assert sentence == "acme:0:0 is gone: Requeued; it goes on at acme:1:0."
    small.leases.transfer(small.leases.view("acme").try_next(), to="globex")
    assert small.inspect.explain_message(Address("acme", 1, 0)).sentence.startswith("acme:1:0 is gone: Transferred")


@pytest.mark.parametrize("where", [None, "blobs"])
def test_explain_reports_a_missing_payload(make_queue: Maker, tmp_path: Path, where: str | None) -> None:
    queue = make_queue(blob_path=str(tmp_path / where) if where else None)
    queue.payloads.enqueue("acme", b"x" * 100_000)
    name = queue.payloads.list()[0].hash.hex()
    assert queue.inspect.explain("acme").sentence.endswith("runs in the next block.")
    if where:
        for file in (tmp_path / where).iterdir():
            file.unlink()
    else:
        with queue.store.writing() as unit:
            (_, upload, _) = unit.rows("blob", hash=name)[0]
            unit.run("delete_chunks", upload=upload, limit=9)
    assert f"payload {name} is not there" in queue.inspect.explain("acme").sentence
    assert queue.service_queues(lambda delivery: delivery.open_blob().read(1)).failed == 1


def test_a_cut_payload_is_there_and_damaged(make_queue: Maker, tmp_path: Path) -> None:
    queue, other = make_queue(blob_path=str(tmp_path / "blobs")), f"sqlite:///{tmp_path / 'other.db'}"
    queue.payloads.enqueue("acme", b"x" * 100_000)
    for file in (tmp_path / "blobs").iterdir():
        os.truncate(file, 100)
    assert "is not there" not in queue.inspect.explain("acme").sentence
    upgrade(parse(other))
    with MessageQueue(other) as there:
        assert queue.service_queues(lambda delivery: there.enqueue_message("x", delivery.payload) and None).failed == 0
    assert queue.service_queues(lambda delivery: delivery.open_blob().read() and None).failed == 0
    queue.payloads.put(b"x" * 100_000).release()
    assert queue.service_queues(lambda delivery: delivery.open_blob().read() and None).processed == 1


def test_explain_reports_why_a_message_is_set_aside(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", max_attempts=1)
    queue.enqueue_message("acme", b"x")
    queue.blocks.settle(queue.blocks.plan())
    assert "is not tried again" in queue.inspect.explain_message(Address("acme", 0, 0)).sentence
    queue.enqueue_message("globex", b"x")
    queue.sweep_queue("globex")
    assert "swept" in queue.inspect.explain_message(Address("globex", 0, 0)).sentence
    block = queue.blocks.plan_overweight(Address("acme", 0, 0), Weight(50, 50))
    assert reason_and_block(queue, "acme:0:0") == ("in flight", None)
    assert "by hand" in queue.inspect.explain_message(Address("acme", 0, 0)).sentence
    queue.blocks.release(block)


def test_explain_reports_an_expired_message(small: MessageQueue) -> None:
    small.enqueue_message("acme", b"x", expires=0)
    assert reason_and_block(small, "acme:0:0") == ("expired", 1)


def test_explain_reports_a_pause(small: MessageQueue) -> None:
    small.enqueue_message("acme", b"x")
    small.admin.pause("acme", "holidays", until=3600)
    assert reason_and_block(small, "acme:0:0") == ("paused", None)
    assert small.inspect.explain("acme").reason == "paused"
    assert "by tester: holidays" in small.inspect.explain("acme").sentence
    assert small.inspect.explain("acme").remedies == ["airflow-mq queue resume acme --ring test"]


def test_explain_reports_messages_in_flight(small: MessageQueue) -> None:
    small.enqueue_messages("acme", [b"x"] * 12)
    block = small.blocks.plan()
    assert reason_and_block(small, "acme:0:9") == ("in flight", None)
    assert reason_and_block(small, "acme:0:10") == ("in flight", None)
    explanation = small.inspect.explain("acme")
    assert (explanation.address, explanation.reason) == (Address("acme", 0, 10), "in flight")
    assert f"block {block.id}, which lives until" in explanation.sentence
    small.blocks.report(block, [batch.answer() for batch in block.batches()])
    assert reason_and_block(small, "acme:0:9") == ("reported", None)
    small.admin.set_origin("acme", ordered=False)
    assert reason_and_block(small, "acme:0:10") == ("next", 1)
    small.blocks.settle(block)
    assert reason_and_block(small, "acme:0:9") == ("gone", None)
    assert (
        small.inspect.explain_message(Address("acme", 0, 9)).sentence
        == f"acme:0:9 is gone: Processed in block {block.id}."
    )
    complete_block(small, small.blocks.plan())
    assert small.inspect.explain("acme").reason == "empty"
    assert small.inspect.explain_message(Address("acme", 0, 9)).reason == "gone"


def test_explain_reports_a_queue_in_flight(small: MessageQueue) -> None:
    small.enqueue_message("acme", b"x")
    small.blocks.plan()
    explanation = small.inspect.explain("acme")
    assert (explanation.address, explanation.reason) == (None, "in flight")


def test_explain_reports_backoff(make_queue: Maker) -> None:
    queue = make_queue(order="rotation", backoff=3600.0)
    queue.enqueue_message("acme", b"x")
    queue.blocks.settle(queue.blocks.plan())
    assert reason_and_block(queue, "acme:0:0") == ("backoff", None)
    explanation = queue.inspect.explain("acme")
    assert explanation.reason == "backoff"
    assert explanation.remedies[0] == "if the cause is fixed: airflow-mq queue resume acme --ring test"


def test_explain_reports_a_delayed_message(small: MessageQueue) -> None:
    small.enqueue_message("acme", b"x", not_before=3600)
    explanation = small.inspect.explain("acme")
    assert (explanation.reason, explanation.block) == ("not due", None) and explanation.sentence.startswith(
        "1 message of acme is not due"
    )
    assert reason_and_block(small, "acme:0:0") == ("nowhere", None)
    assert "not due yet" in small.inspect.explain_message(Address("acme", 0, 0)).sentence
    small.enqueue_message("globex", b"x", not_before=0)
    assert reason_and_block(small, "globex:0:0") == ("next", 1)


def test_explain_reports_unknown_messages(small: MessageQueue) -> None:
    assert small.inspect.explain("acme").reason == "empty"
    assert reason_and_block(small, "acme:0:0") == ("nowhere", None)
    small.enqueue_message("acme", b"x")
    assert reason_and_block(small, "acme:0:1") == ("nowhere", None)
    assert reason_and_block(small, "acme:7:0") == ("nowhere", None)


def test_explain_uses_reported_weights(small: MessageQueue) -> None:
    small.enqueue_messages("acme", [b"x", b"y"])
    block = small.blocks.plan()
    small.blocks.report(block, [batch.answer(Overweight(Weight(10, 0))) for batch in block.batches()])
    small.blocks.settle(block)
    assert reason_and_block(small, "acme:0:0") == ("next", 1)
    assert reason_and_block(small, "acme:0:1") == ("behind", 2)


@pytest.mark.parametrize("high", ["in flight", "set aside"])
def test_explain_of_an_origin_prefers_waiting_messages(small: MessageQueue, high: str) -> None:
    """The explanation of an origin covers its waiting messages of both priorities."""
    small.admin.set_origin("acme", ordered=False)
    small.enqueue_message("acme", b"now", priority="high")
    if high == "in flight":
        small.leases.view("acme").try_next()
    else:
        small.sweep_queue("acme")
    assert (small.inspect.explain("acme").reason, small.inspect.explain("acme").address) == (high, None)
    small.enqueue_message("acme", b"some time")
    explanation = small.inspect.explain("acme")
    assert (explanation.address, explanation.block) == (Address("acme", 0, 0), 1)
    assert small.inspect.explain("acme", priority="high").reason == high


def test_a_pause_without_waiting_messages_is_named(queue: MessageQueue) -> None:
    queue.admin.pause("acme", "their API")
    empty = queue.inspect.explain("acme")
    assert empty.reason == "empty"
    assert re.fullmatch(r"acme has no messages; acme is paused by \w+: their API\.", empty.sentence)
    assert empty.remedies == ["airflow-mq queue resume acme --ring test"]
    queue.enqueue_message("acme", b"later", not_before=60)
    assert (
        "is not due before" in (sentence := queue.inspect.explain("acme").sentence) and "; acme is paused" in sentence
    )
    assert "paused" not in queue.inspect.explain("other").sentence
