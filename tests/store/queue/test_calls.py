"""Signatures of processors: what a function receives, the same everywhere."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from airflow_mq import Address, Delivery, MessageQueue, Processor, Processors, Weight, batch_processor
from airflow_mq.engine.queue.calls import processor_of
from airflow_mq.engine.rules.errors import InvalidInput
from airflow_mq.examples.simple import log
from airflow_mq.spark.store_side import run_in_place
from tests.store.queue.conftest import Maker

SEEN: list[tuple[Any, ...]] = []
RULES = Processors([Processor("all", "tests.store.queue.test_calls:unused", where="in place")])


def unused(payload: bytes, origin: str) -> None:
    """Stand for the function that a block's rules name."""


def one(anything: Delivery) -> None:
    SEEN.append((anything.payload, anything.origin))


def both(payload: bytes, origin: str) -> None:
    SEEN.append((payload, origin))


def reversed_names(origin: str, payload: bytes) -> None:
    SEEN.append((payload, origin))


def by_place(value: bytes, sender: str) -> None:
    SEEN.append((value, sender))


def value_first(value: bytes, origin: str, message: Delivery) -> None:
    SEEN.append((value, message.origin if origin == message.origin else ""))


def with_default(delivery: Delivery, seen: list[Any] = SEEN) -> None:
    seen.append((delivery.payload, delivery.origin))


def all_by_name(*, message: Delivery, origin: str) -> None:
    SEEN.append((message.payload, origin))


def variable(*given: Delivery) -> None:
    SEEN.append((given[0].payload, given[0].origin))


def only_payload(payload: bytes) -> None:
    SEEN.append((payload, "acme"))


def positional(value: bytes, origin: str, /) -> None:
    SEEN.append((value, origin))


FUNCTIONS = (
    one, both, reversed_names, by_place, value_first, with_default, all_by_name, variable, only_payload, positional,
)  # fmt: skip


def in_service(queue: MessageQueue, function: Callable[..., Any]) -> None:
    queue.service_queues(function)


def in_a_block(queue: MessageQueue, function: Callable[..., Any]) -> None:
    block = queue.blocks.plan()
    assert block is not None
    (part,) = RULES.parts({"acme": 1}, share_below=1)
    run_in_place(queue, block.token, RULES, part, function=function)
    queue.blocks.settle(block.token)


def by_hand(queue: MessageQueue, function: Callable[..., Any]) -> None:
    queue.sweep_queue("acme")
    queue.execute_overweight(Address("acme", 0, 0), function)


@pytest.mark.parametrize("how", [in_service, in_a_block, by_hand])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_the_signature_decides(make_queue: Maker, how: Callable[..., None], function: Callable[..., Any]) -> None:
    queue = make_queue(service_weight=Weight(10**6, 1 << 20))
    queue.enqueue_message("acme", b"a")
    SEEN.clear()
    how(queue, function)
    assert SEEN == [(b"a", "acme")]
    assert queue.footprint("acme").count == 0


@pytest.mark.parametrize("how", [in_service, in_a_block, by_hand])
def test_the_shipped_example_works_everywhere(make_queue: Maker, how: Callable[..., None]) -> None:
    queue = make_queue(service_weight=Weight(10**6, 1 << 20))
    queue.enqueue_message("acme", b"a")
    how(queue, log)
    assert queue.footprint("acme").count == 0


@pytest.mark.parametrize(
    "function",
    [lambda: None, lambda payload, origin, table: None, lambda a, b, c: None, lambda *, table, payload: None],
)
def test_a_wrong_signature_is_refused_before_anything_is_claimed(
    queue: MessageQueue, function: Callable[..., Any]
) -> None:
    queue.enqueue_message("acme", b"a")
    before = list(queue.inspect.events())
    with pytest.raises(InvalidInput, match="expected one parameter"):
        queue.service_queues(function, Weight(10**6, 1 << 20))
    with pytest.raises(InvalidInput, match="expected one parameter"):
        queue.execute_overweight(Address("acme", 0, 0), function)
    assert list(queue.inspect.events()) == before


async def waits(payload: bytes, origin: str) -> None:
    """Process nothing unless it is awaited."""


def yields(payload: bytes, origin: str) -> Any:
    yield payload


async def waits_and_yields(payload: bytes, origin: str) -> Any:
    yield payload


@pytest.mark.parametrize("function", [waits, yields, waits_and_yields, partial(waits, b"x")])
def test_a_function_that_a_call_does_not_run_is_refused(queue: MessageQueue, function: Callable[..., Any]) -> None:
    queue.enqueue_message("acme", b"a")
    with pytest.raises(InvalidInput, match=r"invalid processor \w+ \(async, or a generator\)"):
        queue.service_queues(function, Weight(10**6, 1 << 20))
    with pytest.raises(InvalidInput, match="asyncio.run"):
        batch_processor(function)
    assert [message.attempts for message in queue.inspect.peek("acme")] == [0]


def test_attributes_of_a_function_stay() -> None:
    def meters(payload: bytes, message: Delivery) -> None:
        """Meter itself."""

    meters.meters_itself = True  # type: ignore[attr-defined]
    made = processor_of(meters)
    assert made.meters_itself and processor_of(made) is made
    assert processor_of(one) is one and processor_of(print) is print


def test_fixed_arguments_stand_beside_what_a_message_fills(queue: MessageQueue) -> None:
    def named(table: str, message: Delivery) -> None:
        SEEN.append((table, message.payload))

    def unnamed(order: Delivery, table: str) -> None:
        SEEN.append((table, order.payload))

    SEEN.clear()
    for function in (named, unnamed):
        queue.enqueue_message("acme", b"a")
        queue.service_queues(processor_of(function, {"table": "orders"}), Weight(10**6, 1 << 20))
    assert SEEN == [("orders", b"a")] * 2
