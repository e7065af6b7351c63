"""Permits: a store address confines its senders in each way of sending."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from airflow_mq import Done, Message, MessageQueue, Report, Yield, batch_processor
from airflow_mq.engine.rules.errors import AddressRefused, InvalidInput, NotPermitted
from airflow_mq.engine.rules.patterns import OPEN, Permit
from airflow_mq.engine.store import parse

ACME = "origins=" + quote("acme|acme/*")


@pytest.fixture
def confined(make_queue: Any) -> Iterator[MessageQueue]:
    """Yield the queue of a sender confined to acme and its paths."""
    make_queue()
    mark = "&" if "?" in make_queue.uri else "?"
    with MessageQueue(f"{make_queue.uri}{mark}{ACME}&priority=regular", "test") as queue:
        yield queue
        assert queue.check() == []


def test_permit_confines_each_sending_call(confined: MessageQueue) -> None:
    assert confined.enqueue_message("acme", b"1").count == 1
    assert confined.enqueue_messages("acme/orders", [b"2", Message(b"3", key="k")]).count == 2
    for send in (
        lambda: confined.enqueue_message("birch", b"1"),
        lambda: confined.enqueue_message("birch", b"1", key="k2"),
        lambda: confined.enqueue_message("acme-evil", b"1", not_before=60),
        lambda: confined.enqueue_messages("birch", [b"1"]),
        lambda: confined.enqueue_messages([("acme", b"1"), ("birch", b"1")]),
        lambda: confined.enqueue_messages([("acme", b"1"), ("Acme/x", Message(b"1", headers={"a": "b"}))]),
    ):
        with pytest.raises(NotPermitted, match=r"'acme\|acme/\*', and '.*' does not; send with one that does"):
            send()
    assert sum(footprint.count for _, footprint in confined.footprints()) == 3


def test_permit_rejects_other_priorities(confined: MessageQueue) -> None:
    def process(delivery: Any) -> None:
        delivery.enqueue("acme", b"1", priority="high")

    confined.enqueue_message("acme", b"1", priority="regular")
    for send in (
        lambda: confined.enqueue_message("acme", b"1", priority="high"),
        lambda: confined.enqueue_messages("acme", [b"1"], priority="high"),
        lambda: confined.enqueue_messages([("acme", Message(b"1", priority="high"))]),
    ):
        with pytest.raises(NotPermitted, match="with the priority regular, not 'high'; leave the priority out"):
            send()
    assert confined.service_queues(process).processed == 0
    assert confined.footprint("acme").count == 1


@pytest.mark.parametrize("kind", ["queue", "delivery", "done", "batch", "batch done"])
def test_permit_confines_processors(confined: MessageQueue, kind: str) -> None:
    confined.enqueue_message("acme", b"go")

    def process(delivery: Any) -> Any:
        if kind == "queue":
            confined.enqueue_message("birch", b"1")
        elif kind == "delivery":
            delivery.enqueue("birch", b"1")
        else:
            return Done(enqueue=[("birch", b"1")])
        return None

    def process_batch(batch: Any) -> Any:
        if kind == "batch":
            confined.enqueue_message("birch", b"1")
            return None
        return [Done(enqueue=[("birch", b"1")])] * len(batch)

    processor: Any = batch_processor(process_batch) if kind.startswith("batch") else process
    assert confined.service_queues(processor).processed == 0
    assert confined.footprint("birch").count == 0 and confined.footprint("acme").count == 1
    assert confined.service_queues(
        lambda delivery: Done(enqueue=[("acme/x", b"1")] if delivery.origin == "acme" else [])
    ).processed


def test_permit_confines_reports(confined: MessageQueue) -> None:
    confined.enqueue_message("acme", b"go")
    block = confined.blocks.plan()
    with pytest.raises(NotPermitted):
        confined.blocks.report(block, [Report("acme", 0, 0, 0, Done(enqueue=[("birch", b"1")]))])
    confined.blocks.report(block, [Report("acme", 0, 0, 0, Done(enqueue=[("acme/next", b"1")]))])
    confined.blocks.settle(block)
    assert confined.footprint("acme/next").count == 1


def test_permit_confines_outcomes_of_tokens(confined: MessageQueue) -> None:
    confined.enqueue_messages("acme", [b"1", b"2"])
    token = confined.leases.view("acme").try_next()
    assert token is not None
    for enqueue in ([("birch", b"1")], [("acme", Message(b"1", priority="high"))]):
        with pytest.raises(NotPermitted):
            token.complete(Done(enqueue=enqueue))
        with pytest.raises(NotPermitted):
            confined.leases.complete(token, Done(enqueue=enqueue))
    token.complete(Done(enqueue=[("acme/next", b"1")]))
    assert confined.footprint("birch").count == 0 and confined.footprint("acme/next").count == 1


def test_permit_reaches_spark_jobs(confined: MessageQueue) -> None:
    pytest.importorskip("pyarrow")
    from airflow_mq.processors import Processor
    from airflow_mq.spark.attempts import MessageAttempts, attempts_of
    from airflow_mq.spark.items import messages_of
    from airflow_mq.spark.store_side import terms_of

    confined.enqueue_message("acme", b"go")
    block = confined.blocks.plan()
    terms = pickle.loads(pickle.dumps(terms_of(confined, block)))  # noqa: S301 - our own
    attempts = attempts_of(Processor("p", "m:f"), lambda payload, origin: Done(enqueue=[("birch", b"1")]), terms)
    assert isinstance(attempts, MessageAttempts)
    ((_, outcome),) = attempts.outcomes(
        messages_of(confined.blocks.get(block.token).batches()), lambda call, items: call(items)
    )
    assert isinstance(outcome, Yield) and outcome.reason.startswith("NotPermitted: this connection may send")
    confined.blocks.release(block)


def test_address_keeps_its_permit(tmp_path: Path) -> None:
    for uri in (f"sqlite:///{tmp_path}/a%20b.db", "postgresql://u:p@h/d"):
        address = parse(f"{uri}?{ACME}&priority=regular")
        assert (address.origins, address.priority) == ("acme|acme/*", "regular")
        assert address.permit == parse(address.uri).permit == Permit("acme|acme/*", "regular")
        assert parse(address.safe).permit == address.permit
        assert parse(uri).permit is OPEN
    assert parse("postgresql://u@h/d?schema=s&origins=a&connect_timeout=9").connect_timeout == 9


@pytest.mark.parametrize("query", ["origins=", "origins=a||b", "origins=a&origins=b", "priority=high", "origins=%0a"])
def test_invalid_permits_are_rejected(query: str, tmp_path: Path) -> None:
    for uri in (f"sqlite:///{tmp_path}/store.db", "postgresql://u:p@h/d"):
        with pytest.raises(AddressRefused):
            parse(f"{uri}?{query}")
    with pytest.raises(InvalidInput):
        Permit(origins="a" * 2_000)


def test_permit_checks_priorities() -> None:
    assert OPEN.check_priority("high") == "high"
    assert Permit(priority="regular").check_priority("regular") == "regular"
    with pytest.raises(NotPermitted, match="regular, not 'high'; leave the priority out"):
        Permit(priority="regular").check_priority("high")
