"""Typed queues: values are encoded on enqueue and decoded for processors."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Annotated, Any

import pydantic
import pytest

from airflow_mq import Batch, Done, MessageQueue, Processor, batch_processor
from airflow_mq.codecs import Undecodable, codec_of, json_codec, load_codec, model_codec, text_codec
from airflow_mq.engine.queue.typed import TypedBatch, TypedDelivery, TypedMessage
from airflow_mq.engine.rules.errors import ConfigRefused, InvalidInput, InvalidMessage
from airflow_mq.engine.rules.outcome import BadFormat, Corrupt, Unsupported, Yield
from airflow_mq.engine.rules.patterns import OPEN
from tests.store.queue.conftest import Maker, logged_events


class Order(pydantic.BaseModel):
    id: int
    item: str = "tea"


class Versioned:
    """A custom codec."""

    def encode(self, value: int) -> bytes:
        return b"1:%d" % value

    def decode(self, data: bytes) -> int:
        version, _, rest = data.partition(b":")
        if version != b"1":
            raise Undecodable("a version of tomorrow", Unsupported())
        if not rest:
            raise KeyError("a fault of the codec")
        return int(rest)


def test_typed_queue_enqueues_and_delivers_values(queue: MessageQueue) -> None:
    orders = queue.typed(Order)
    assert orders.enqueue("acme", Order(id=1), key="k").count == 1
    assert orders.enqueue("acme", Order(id=1), key="k").repeated == 1
    many = [("acme", Order(id=2)), ("birch", TypedMessage(Order(id=3, item="jam"), headers={"a": "b"}))]
    assert orders.enqueue_many(many).count == 2
    assert [peeked.value for peeked in orders.peek("acme")] == [Order(id=1), Order(id=2)]
    seen: list[tuple[str, int, dict[str, str]]] = []

    def process(delivery: TypedDelivery[Order]) -> None:
        seen.append((delivery.origin, delivery.value.id, dict(delivery.headers)))
        if delivery.value.id == 1:
            delivery.enqueue("birch", Order(id=4))

    assert orders.service(process, "*").processed == 4
    assert sorted(seen) == [("acme", 1, {}), ("acme", 2, {}), ("birch", 3, {"a": "b"}), ("birch", 4, {})]


def test_undecodable_payloads_fail_permanently(queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"not JSON", b'{"item": "tea"}', b'{"id": 5}', b"\xff"])
    orders = queue.typed(Order)
    messages = orders.peek("acme")
    assert [peeked.value for peeked in messages] == [None, None, Order(id=5), None]
    assert messages[1].error is not None and "id" in messages[1].error
    seen: list[int] = []
    assert orders.service(lambda delivery: seen.append(delivery.value.id), "acme", delete_undecodable=True).failed == 3
    assert seen == [5]
    assert [name for name, *_ in logged_events(queue)] == [
        "ProcessingFailed",
        "ProcessingFailed",
        "Processed",
        "ProcessingFailed",
    ]
    assert {event.error for event in queue.inspect.events() if event.name == "ProcessingFailed"} == {"BadFormat"}


@pytest.mark.parametrize("order", ["deficit", "rotation", "shuffle"])
@pytest.mark.parametrize("batches", [False, True])
def test_a_typed_service_leaves_other_origins_alone(make_queue: Maker, order: str, batches: bool) -> None:
    queue = make_queue(order=order)
    queue.enqueue_messages([("letters", b"a"), ("orders/acme", b'{"id": 1}'), ("orders/acme", b"no order")])
    queue.enqueue_messages([("orders/acme", b'{"id": 2}'), ("parcels", b"b"), ("parcels", b"c")])
    queue.enqueue_message("letters", b"high", priority="high")
    seen: list[int] = []
    orders = queue.typed(Order)
    if batches:
        done = orders.service_batches(lambda batch: seen.extend(it.id for it in batch.values), ["orders/*"])
    else:
        done = orders.service(lambda delivery: seen.append(delivery.value.id), ["orders/*"])
    assert (done.processed, done.failed, done.set_aside, seen) == (2, 0, 1, [1, 2])
    assert [queue.footprint(origin).count for origin in ("letters", "parcels")] == [2, 2]
    # The reason is kept with the message, and a requeue finds it by this reason.
    (aside,) = queue.set_aside.list(errors=True)
    assert "does not decode (BadFormat): Undecodable: no Order" in aside.error
    queue.set_aside.requeue_all(error="does not decode")
    assert queue.service_queues(lambda delivery: None, origins=["orders/*"]).processed == 1
    with pytest.raises(TypeError, match="origins"):
        orders.service(lambda delivery: None)  # type: ignore[call-arg]


def test_log_of_an_undecodable_payload_hides_its_content(queue: MessageQueue, caplog: pytest.LogCaptureFixture) -> None:
    class Strict(pydantic.BaseModel, extra="forbid"):
        id: int
        names: dict[str, int] = {}

    for sent in (b"a secret", b'{"id": "secret"}', b'{"id": 1, "secret": 2}', b'{"id": 1, "names": {"secret": "s"}}'):
        queue.enqueue_message("acme", sent)
    assert queue.typed(Strict).service(lambda order: None, "acme", delete_undecodable=True).failed == 4
    assert "no Strict: json_invalid" in caplog.text and "no Strict: id: int_parsing" in caplog.text
    assert "extra_forbidden" in caplog.text and "names: int_parsing" in caplog.text
    assert "secret" not in caplog.text


def test_typed_batches_hold_decodable_values(queue: MessageQueue) -> None:
    numbers = queue.typed(json_codec)
    numbers.enqueue_many([("a", 1), ("a", [2]), ("a", {"n": 3})])
    queue.enqueue_messages("a", [b"NaN", b"[" * 60_000])
    numbers.enqueue("a", 4)
    seen: list[Any] = []

    def process(batch: TypedBatch[Any]) -> Any:
        seen.extend(batch.values)
        return [True, Done(), None, True]

    done = numbers.service_batches(process, "a", delete_undecodable=True)
    assert (done.processed, done.failed) == (4, 2) and seen == [1, [2], {"n": 3}, 4]
    numbers.enqueue("a", 5)
    assert numbers.service_batches(lambda batch: None, "a").processed == 1


def test_custom_codec_chooses_the_outcome(queue: MessageQueue) -> None:
    typed = queue.typed(Versioned())
    typed.enqueue("a", 7)
    queue.enqueue_messages("a", [b"2:7", b"1:x", b"1:"])
    seen: list[int] = []
    assert typed.service(
        lambda delivery: seen.append(delivery.value), "a", delete_undecodable=True
    ).processed == 1 and seen == [7]
    # An error in the codec counts as a failed attempt, so the message is kept.
    assert queue.footprint("a").count == 1
    assert [event.error for event in queue.inspect.events()][:3] == [None, "Unsupported", "BadFormat"]
    with pytest.raises(InvalidInput, match="expected a permanent failure"):
        Undecodable("why", Done())


def test_a_batch_that_sends_goes_on_beside_a_message_that_does_not_decode(queue: MessageQueue) -> None:
    typed = queue.typed(dict)
    typed.enqueue("a", {"n": 1})
    queue.enqueue_message("a", b"not JSON")
    typed.enqueue("a", {"n": 2})
    result = typed.service_batches(lambda batch: queue.enqueue_message("out", b"x") and None, "a")
    assert (result.processed, result.set_aside, queue.footprint("out").count) == (2, 1, 1)

    # Messages that are tried again would be sent again.
    typed.enqueue("a", {"n": 3})
    answer = Yield("later")
    result = typed.service_batches(lambda batch: queue.enqueue_message("out", b"x") and [answer] * len(batch), "a")
    assert result.processed == 0 and queue.footprint("out").count == 1


def test_unencodable_values_are_rejected(queue: MessageQueue) -> None:
    with pytest.raises(InvalidMessage, match="cannot encode float"):
        queue.typed(json_codec).enqueue("a", float("nan"))
    with pytest.raises(InvalidMessage, match="cannot encode"):
        queue.typed(Order).enqueue("a", "an order")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="expected an object with encode and decode"):
        codec_of(3)
    assert queue.footprints() == []


@pytest.mark.parametrize(
    "kind, value", [(list[int], [1, 2]), (dict[str, int] | None, None), (Annotated[int, "a number"], 4)]
)
def test_a_type_with_parameters_is_a_codec(kind: Any, value: object) -> None:
    codec = codec_of(kind)
    assert codec.decode(codec.encode(value)) == value
    with pytest.raises(ValueError, match="."):
        codec.decode(b'"no"')


def test_a_class_of_codecs_is_not_one() -> None:
    class OrderCodec:
        def encode(self, value: object) -> bytes:
            return b""

        def decode(self, data: bytes) -> object:
            return None

    with pytest.raises(InvalidInput, match=r"expected an object, OrderCodec\(\)"):
        codec_of(OrderCodec)


def test_spark_processor_decodes_with_its_codec() -> None:
    from airflow_mq.spark.attempts import attempts_of
    from airflow_mq.spark.items import messages_of
    from airflow_mq.spark.terms import JobTerms

    batch = Batch("a", [b'{"id": 7}', b"[]", b'{"id": 8}'], 0, 0)
    terms = JobTerms(True, (1_000, OPEN, 1_000))
    named = Processor("orders", "m:f", codec=f"{__name__}:Order")
    assert Processor.from_plain(named.to_plain()) == named and "codec" not in Processor("p", "m:f").to_plain()
    seen: list[Any] = []
    for function in (
        lambda order, origin: seen.append(order.id),
        batch_processor(lambda batch: seen.extend(order.id for order in batch.values)),  # type: ignore[attr-defined]
    ):
        seen.clear()
        outcomes = list(
            attempts_of(named, function, terms).outcomes(messages_of([batch]), lambda call, some: call(some))
        )
        assert [type(outcome) for _, outcome in outcomes] == [Done, BadFormat, Done]
        assert seen == [7, 8]
    bad = attempts_of(Processor("p", "m:f", codec=f"{__name__}:fault"), lambda value, origin: None, terms)
    first = messages_of([Batch("a", batch.payloads[:1], 0, 0)])
    assert [type(o) for _, o in bad.outcomes(first, lambda call, some: call(some))] == [Yield]


class _Fault:
    def encode(self, value: Any) -> bytes:
        return b""

    def decode(self, data: bytes) -> Any:
        raise KeyError("a fault")


fault = _Fault()


@pytest.mark.parametrize("wrong", [{"codec": "no colon"}, {"codec": 3}, {"codec": "m:c", "shape": "arrow"}])
def test_processor_rejects_invalid_codecs(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="codec"):
        Processor("p", "m:f", **wrong)


def test_codecs_are_loaded_by_name() -> None:
    assert load_codec("airflow_mq.codecs:text_codec") is text_codec
    assert load_codec("builtins:str") is text_codec
    for name in ("no.such:thing", "airflow_mq.codecs:nothing", "airflow_mq.codecs:codec_of"):
        with pytest.raises(InvalidInput):
            load_codec(name)
    import pickle

    codec = pickle.loads(pickle.dumps(model_codec(Order)))  # noqa: S301 - our own
    assert codec.decode(codec.encode(Order(id=1))) == Order(id=1)
    assert isinstance(Undecodable("x", Corrupt()).outcome, Corrupt)


def test_pydantic_is_imported_only_if_used() -> None:
    code = "import sys, airflow_mq.codecs, airflow_mq.engine.queue; assert 'pydantic' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


SHIPPED: list[tuple[str, int]] = []


def ship(order: Order, origin: str) -> None:
    """Record a shipped order."""
    SHIPPED.append((origin, order.id))


def test_block_processes_decoded_values(queue: MessageQueue) -> None:
    from airflow_mq.processors import Processors
    from airflow_mq.spark.store_side import run_in_place

    queue.typed(Order).enqueue_many([("acme", Order(id=1)), ("birch", Order(id=2))])
    queue.enqueue_message("acme", b"no order")
    routes = Processors([Processor("p", f"{__name__}:ship", where="in place", codec=f"{__name__}:Order")])
    block = queue.blocks.plan()
    (part,) = Processors.from_json(routes.to_json()).parts({"acme": 2, "birch": 1})
    SHIPPED.clear()
    tally = run_in_place(queue, block.token, routes, part)
    assert (tally.processed, tally.failed) == (2, 1) and sorted(SHIPPED) == [("acme", 1), ("birch", 2)]
    assert queue.blocks.settle(block).failed == 1


@pytest.mark.parametrize("drops", [False, True])
def test_external_payloads_are_decoded_or_kept(
    queue: MessageQueue, drops: bool, caplog: pytest.LogCaptureFixture
) -> None:
    values = queue.typed(text_codec)
    text = "tea" * 100_000
    queue.payloads.enqueue("acme", text.encode())
    assert [peeked.value for peeked in values.peek("acme")] == [text]
    seen: list[str] = []
    assert values.service(lambda delivery: seen.append(delivery.value), "*", delete_undecodable=drops).processed == 1
    assert seen == [text]

    queue.payloads.enqueue("acme", text.encode())
    queue.admin.change_ring(whole_payloads=1_000)
    result = values.service(lambda delivery: None, "*", delete_undecodable=drops)
    assert (result.processed, result.failed, len(queue.set_aside.list())) == (0, 0, 1)
    queue.admin.change_ring(whole_payloads=1 << 20)
    queue.payloads.enqueue("birch", text.encode())
    result = values.service_batches(lambda batch: None, "birch", delete_undecodable=drops)
    assert (result.processed, result.failed, len(queue.set_aside.list())) == (0, 0, 2)
    assert "the payload of 300,000 bytes is missing, above whole_payloads, or in a batch in place" in caplog.text


def test_values_that_do_not_decode_again_are_rejected(queue: MessageQueue) -> None:
    @dataclass
    class Measured:
        x: float
        y: float | None = None

    values = queue.typed(Measured)
    for wrong in (float("nan"), float("inf")):
        with pytest.raises(InvalidMessage):
            values.enqueue("acme", Measured(wrong))
    values.enqueue("acme", Measured(1.5))
    assert [peeked.value for peeked in values.peek("acme")] == [Measured(1.5)]


@pytest.mark.parametrize("drops", [False, True])
def test_a_payload_that_this_process_cannot_read_fails_an_attempt(
    queue: MessageQueue, drops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file system of payloads is not installed here: another worker can process the message."""
    queue.admin.change_ring(blob_path="memory://blobs")
    values, text = queue.typed(text_codec), "tea" * 100_000
    queue.payloads.enqueue("acme", text.encode())

    def none(address: str) -> Any:
        raise ConfigRefused(f"no file system for {address} is installed here")

    with monkeypatch.context() as patched:
        patched.setattr(queue.store, "filesystem_of", none)
        result = values.service(lambda delivery: None, "*", delete_undecodable=drops)
    assert (result.failed, result.processed, queue.set_aside.list()) == (0, 0, [])
    seen: list[str] = []
    values.service(lambda delivery: seen.append(delivery.value), "*", delete_undecodable=drops)
    assert seen == [text]
