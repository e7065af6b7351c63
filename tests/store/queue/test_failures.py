"""Processor failures: text that may quote a payload is neither stored nor logged unless enabled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from airflow_mq import Batch, Delivery, Done, MessageQueue, Weight, Yield, batch_processor
from airflow_mq.codecs import Undecodable
from airflow_mq.errors import ProcessorError, TemporarilyUnprocessable
from airflow_mq.failures import VARIABLE

#: Part of a payload that must not appear in events or logs.
CANARY = "canary-7319"
PAYLOAD = f"int() chokes on {CANARY}".encode()


class CustomerMissing(ProcessorError):
    """An error whose author declares its text safe."""


def leaky(delivery: Delivery) -> None:
    int(delivery.payload)


def leaky_chain(delivery: Delivery) -> None:
    try:
        int(delivery.payload)
    except ValueError as error:
        raise CustomerMissing("customer 17 is not known") from error


def leaky_batch(batch: Batch) -> Sequence[Any]:
    raise KeyError(batch.payloads[0])


def leaky_send(delivery: Delivery) -> None:
    delivery.enqueue(f"{CANARY}\n", b"x")


def leaky_outcome(delivery: Delivery) -> Any:
    return Done(id=delivery.payload)


def reasons(queue: MessageQueue) -> list[str]:
    return [event.why for event in queue.inspect.events() if event.name == "Returned"]


@pytest.mark.parametrize(
    ("processor", "reason"),
    [
        (leaky, "ValueError"),
        (batch_processor(leaky_batch), "KeyError"),
        (leaky_send, "InvalidOrigin"),
        (leaky_outcome, "InvalidOutcome: invalid id of an outcome (bytes of length"),
        (leaky_chain, "CustomerMissing: customer 17 is not known"),
        (lambda delivery: "fine", "InvalidOutcome: invalid outcome (str): expected an outcome, true, false or None"),
        (lambda delivery: Yield("text by the author"), "text by the author"),
    ],
)
def test_event_records_error_type_and_only_safe_text(
    queue: MessageQueue, caplog: pytest.LogCaptureFixture, processor: Any, reason: str
) -> None:
    queue.enqueue_message("acme", PAYLOAD)

    queue.service_queues(processor)

    assert [why[: len(reason)] for why in reasons(queue)] == [reason] * len(reasons(queue)) != []
    for why in reasons(queue):
        assert CANARY not in why
        if ":" not in reason and processor is not leaky_batch:
            assert why == reason
    assert CANARY not in caplog.text


def test_log_names_the_place_of_an_error(queue: MessageQueue, caplog: pytest.LogCaptureFixture) -> None:
    queue.enqueue_message("acme", PAYLOAD)

    queue.service_queues(leaky)

    assert "the processor failed on acme:0:0" in caplog.text
    assert "in leaky" in caplog.text and "ValueError" in caplog.text and VARIABLE in caplog.text


def test_log_shows_error_text_if_enabled(
    queue: MessageQueue, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    queue.enqueue_message("acme", PAYLOAD)

    queue.service_queues(leaky)

    assert CANARY in caplog.text
    assert set(reasons(queue)) == {"ValueError"}


def test_execute_overweight_hides_error_text(queue: MessageQueue, caplog: pytest.LogCaptureFixture) -> None:
    queue.enqueue_message("acme", PAYLOAD, weight=Weight(10**12, 1))
    queue.service_queues(lambda delivery: None)
    (aside,) = queue.set_aside.list()

    with pytest.raises(TemporarilyUnprocessable) as caught:
        queue.execute_overweight(aside.address, leaky, Weight(10**13, 1 << 40))

    assert "ValueError" in str(caught.value)
    assert CANARY not in str(caught.value) + caplog.text


class Digits:
    """A codec whose error quotes its input."""

    def encode(self, value: int) -> bytes:
        return str(value).encode()

    def decode(self, data: bytes) -> int:
        if data == b"no":
            raise Undecodable("only digits are read")
        return int(data.decode())


def test_undecodable_payload_is_logged_without_its_text(queue: MessageQueue, caplog: pytest.LogCaptureFixture) -> None:
    queue.enqueue_messages("acme", [PAYLOAD, b"no"])

    assert queue.typed(Digits()).service(lambda it: None, "*", delete_undecodable=True).failed == 2

    assert "'acme:0:0' does not decode (BadFormat): ValueError\n" in caplog.text
    assert "'acme:0:1' does not decode (BadFormat): Undecodable: only digits are read" in caplog.text
    assert CANARY not in caplog.text


def test_a_long_reason_ends_in_an_ellipsis(queue: MessageQueue) -> None:
    queue.enqueue_message("acme", PAYLOAD)
    queue.service_queues(lambda delivery: Yield("their API is down, " * 50))

    (why,) = set(reasons(queue))
    assert len(why) == 200 and why.startswith("their API is down, their") and why.endswith("…")
