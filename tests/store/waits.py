"""Queues that wait, one for each reason: how each comes about, and what lists of queues and `explain` report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from airflow_mq import MessageQueue, Weight

SERVER = "DAG 'orders' of Airflow 'west', task 'block.plan'"
LIMIT = Weight(100, 1 << 20)


@dataclass(frozen=True)
class Waits:
    """A queue that waits: its state, why, the reason that `explain` returns, and whether a person is needed."""

    build: Callable[[MessageQueue], object]
    state: str
    why: str
    reason: str
    needs_person: bool = False
    origin: str = "acme"


def block(queue: MessageQueue, *origins: str, limit: Weight | None = None) -> None:
    """Plan and complete a block."""
    planned = queue.blocks.plan(server=SERVER, origins=origins or None, limit=limit)
    queue.blocks.report(planned, [batch.answer() for batch in planned.batches()])
    queue.blocks.settle(planned)


def send(queue: MessageQueue, origin: str = "acme", count: int = 1, time: int = 3, **options: str) -> None:
    """Send messages of one weight."""
    queue.enqueue_messages(origin, [b"x"] * count, weight=Weight(time, 1), **options)


def waits_for_its_turn(queue: MessageQueue) -> None:
    block(queue)
    send(queue)


def is_paused(queue: MessageQueue) -> None:
    send(queue)
    queue.admin.pause("acme", "their API is down")


def is_paused_with_its_group(queue: MessageQueue) -> None:
    queue.admin.change_ring(paths=True)
    send(queue, "acme/a")
    queue.admin.pause("acme", "audit", below=True)


def has_failed(queue: MessageQueue) -> None:
    queue.admin.change_ring(backoff=600)
    is_released(queue)


def is_released(queue: MessageQueue) -> None:
    send(queue)
    queue.blocks.release(queue.blocks.plan(server=SERVER))


def is_in_flight(queue: MessageQueue) -> None:
    send(queue)
    queue.blocks.plan(server=SERVER)


def is_behind_messages_in_flight(queue: MessageQueue) -> None:
    send(queue)
    queue.blocks.plan(server=SERVER)
    send(queue)


def is_relaxed_behind_messages_in_flight(queue: MessageQueue) -> None:
    queue.admin.set_origin("acme", ordered=False)
    is_behind_messages_in_flight(queue)


def has_used_up_its_budget(queue: MessageQueue) -> None:
    queue.admin.set_origin("acme", rate="9ms/day", burst="9ms")
    send(queue, count=5)
    block(queue)
    block(queue)


def is_set_aside(queue: MessageQueue) -> None:
    send(queue, time=1_000)
    block(queue)


def is_unserved(queue: MessageQueue) -> None:
    block(queue, "zebra")
    send(queue)


def is_too_heavy_and_new(queue: MessageQueue) -> None:
    block(queue, limit=Weight(60, 1 << 20))
    send(queue, time=70)


def is_too_heavy(queue: MessageQueue) -> None:
    send(queue, time=70)
    block(queue, limit=Weight(60, 1 << 20))


def is_too_heavy_for_one_of_two_servers(queue: MessageQueue) -> None:
    block(queue)
    queue.blocks.settle(queue.blocks.plan(limit=Weight(60, 1 << 20), server=SERVER.replace("orders", "night")))
    send(queue, time=70)


def is_too_heavy_for_both_servers(queue: MessageQueue) -> None:
    is_too_heavy(queue)
    queue.blocks.settle(queue.blocks.plan(limit=Weight(50, 1 << 20), server=SERVER.replace("orders", "night")))


def is_too_heavy_for_many_servers(queue: MessageQueue) -> None:
    send(queue, time=70)
    for number in range(1, 7):
        limit = Weight(60 + number, 1 << 20)
        queue.blocks.settle(queue.blocks.plan(limit=limit, server=SERVER.replace("orders", f"night {number}")))


def is_too_heavy_where_blocks_set_aside(queue: MessageQueue) -> None:
    queue.admin.change_ring(set_aside_above="block")
    is_too_heavy_and_new(queue)


def has_had_its_most(queue: MessageQueue) -> None:
    queue.admin.set_origin("acme", most=Weight(10, 1 << 20))
    send(queue, count=30)
    block(queue)


def has_no_most_any_more(queue: MessageQueue) -> None:
    has_had_its_most(queue)
    queue.admin.set_origin("acme", unset=["most"])


def has_another_most_now(queue: MessageQueue) -> None:
    has_had_its_most(queue)
    queue.admin.set_origin("acme", most=Weight(20, 1 << 20))


def shares_its_most_with_high_messages(queue: MessageQueue) -> None:
    queue.admin.change_ring(high=True)
    queue.admin.set_origin("acme", most=Weight(10, 1 << 20))
    send(queue, count=3, priority="high")
    send(queue)
    block(queue)


def shares_the_most_of_its_group(queue: MessageQueue) -> None:
    queue.admin.change_ring(paths=True)
    queue.admin.set_origin("acme", most=Weight(10, 1 << 20))
    for origin in ("acme/a", "acme/b"):
        send(queue, origin, count=30)
    block(queue)


def has_a_group_without_a_most_now(queue: MessageQueue) -> None:
    shares_the_most_of_its_group(queue)
    queue.admin.set_origin("acme", unset=["most"])


TURN = "Waiting for its turn"
HEAVY = "Its first message needs 70 ms · 1 B; blocks of DAG 'orders', task 'block.plan' carry up to 60 ms · 1 MiB"
HEAVY_FOR_BOTH = (
    "Its first message needs 70 ms · 1 B; blocks of DAG 'night', task 'block.plan' carry up to 50 ms · 1 MiB; "
    "blocks of DAG 'orders', task 'block.plan' carry up to 60 ms · 1 MiB"
)
HEAVY_FOR_MANY = (
    "Its first message needs 70 ms · 1 B; "
    + "; ".join(
        f"blocks of DAG 'night {number}', task 'block.plan' carry up to {60 + number} ms · 1 MiB"
        for number in (6, 5, 4, 3, 2)
    )
    + "; those of 1 more carry less than it"
)
WAITS = {
    "turn": Waits(waits_for_its_turn, "turn", TURN, "next"),
    "never serviced": Waits(send, "overdue", "No block has ever serviced this ring", "next"),
    "paused": Waits(is_paused, "paused", "Paused: their API is down", "paused"),
    "group paused": Waits(
        is_paused_with_its_group, "paused", "Paused together with its group", "paused", origin="acme/a"
    ),
    "backoff": Waits(has_failed, "failed", "The last attempt failed; next attempt after ", "backoff"),
    "budget": Waits(has_used_up_its_budget, "budget", "Its budget is used up until ", "budget"),
    "released": Waits(is_released, "turn", "Its first message was tried 1 time without success", "next"),
    "in flight": Waits(is_in_flight, "in flight", "All messages are in flight", "in flight"),
    "behind": Waits(is_behind_messages_in_flight, "in flight", "Its first messages are in flight", "in flight"),
    "relaxed": Waits(is_relaxed_behind_messages_in_flight, "turn", TURN, "next"),
    "set aside": Waits(is_set_aside, "set aside", "All messages are set aside", "set aside", True),
    "unserved": Waits(is_unserved, "unserved", "No DAG that services this ring takes this origin", "unserved", True),
    "new and heavy": Waits(is_too_heavy_and_new, "stuck", HEAVY, "stuck", True),
    "heavy": Waits(is_too_heavy, "stuck", HEAVY, "stuck", True),
    "heavy for both": Waits(is_too_heavy_for_both_servers, "stuck", HEAVY_FOR_BOTH, "stuck", True),
    "heavy for many": Waits(is_too_heavy_for_many_servers, "stuck", HEAVY_FOR_MANY, "stuck", True),
    "heavy for one": Waits(is_too_heavy_for_one_of_two_servers, "turn", TURN, "next"),
    "set aside next": Waits(is_too_heavy_where_blocks_set_aside, "turn", TURN, "overweight"),
    "most": Waits(has_had_its_most, "turn", "Its most was used up in block ", "next"),
    "most that was unset": Waits(has_no_most_any_more, "turn", TURN, "next"),
    "most that was raised": Waits(has_another_most_now, "turn", "Its most was used up in block ", "next"),
    "most of a group that was unset": Waits(has_a_group_without_a_most_now, "turn", TURN, "next", origin="acme/b"),
    "most with high": Waits(shares_its_most_with_high_messages, "turn", "Its most was used up in block ", "next"),
    "most of a group": Waits(
        shares_the_most_of_its_group, "turn", "Its most, or that of its group, was used up in block ", "next",
        origin="acme/b",
    ),
}  # fmt: skip
