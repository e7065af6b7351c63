"""Calling processors, without any Spark: every shape, poison, and processes that die of a message."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_mq import BadFormat, Batch, Done, Message, MessageQueue, Processor, Weight, Yield, ticker
from airflow_mq.engine.queue.values import Report
from airflow_mq.engine.rules.errors import InvalidInput, StoreUnreachable, TokenRefused
from airflow_mq.engine.rules.message import message_ids
from airflow_mq.engine.store.inbox import Inbox, RowIds
from airflow_mq.engine.store.rows import PlainRow
from airflow_mq.spark import exchange
from airflow_mq.spark.lease import BlockLease
from airflow_mq.spark.reports import Reporter, patiently
from airflow_mq.spark.share import check_function, load_function, run_share
from airflow_mq.spark.source import sent_rows
from airflow_mq.spark.store_side import StoreSide, run_in_place, tasks_of, terms_of
from tests.spark.conftest import processors, whole
from tests.spark.functions import all_tried, process
from tests.waiting import eventually

MakeRing = Callable[..., MessageQueue]


def events(queue: MessageQueue) -> list[tuple[str, str, int]]:
    return [(event.name, event.origin, event.index) for event in queue.inspect.events() if event.name != "Processed"]


def left(queue: MessageQueue, origin: str) -> list[bytes]:
    return [peeked.payload for peeked in queue.inspect.peek(origin, limit=1000)]


def test_each_message_gets_the_outcome_that_it_asks_for(either_store: str, make_ring: MakeRing) -> None:
    queue = make_ring(either_store, ordered=False)
    queue.enqueue_messages(
        "a", [b"plain", b"poison {{ x }}", b"bad", b"later", b"exit", b"nonsense", b"false", b"used"]
    )
    queue.enqueue_messages("b", [b"enqueue c", b"heavy"])
    block = queue.blocks.plan()

    tally = run_in_place(queue, block.token, processors(where="in place"), whole(processors()))
    settled = queue.blocks.settle(block)

    assert (tally.processed, tally.failed, tally.returned) == (4, 1, 5)
    assert (settled.processed, settled.failed, settled.returned, settled.set_aside) == (4, 1, 4, 1)
    assert left(queue, "a") == [b"poison {{ x }}", b"later", b"exit", b"nonsense"]
    assert left(queue, "c") == [b"sent along", b"sent with the outcome"]
    assert [one.address.index for one in queue.set_aside.list("b")] == [1]
    assert queue.inspect.fits()[0].count == 1


def test_a_long_trace_of_a_message_keeps_no_other_from_its_outcome(make_ring: MakeRing) -> None:
    queue, routes = make_ring(), processors()
    queue.enqueue_message("a", b"1", headers={"traceparent": "x", "tracestate": "y" * 16_300})
    queue.enqueue_message("b", b"2")
    block, done = queue.blocks.plan(), Done(enqueue=[("c", Message(b"3", headers={"own": "v" * 100}))])

    run_in_place(queue, block.token, routes, whole(routes), function=lambda delivery: done)

    assert queue.blocks.settle(block).processed == 2
    assert left(queue, "c") == [b"3", b"3"]


def test_an_ordered_origin_stops_where_a_message_goes_back(make_ring: MakeRing, tried_folder: Path) -> None:
    queue = make_ring(max_attempts=2)
    queue.enqueue_messages("a", [b"1", b"poison", b"3"])
    queue.enqueue_messages("b", [b"heavy", b"2"])

    for _ in range(2):
        block = queue.blocks.plan()
        run_in_place(queue, block.token, processors(), whole(processors()))
        queue.blocks.settle(block)

    assert all_tried(tried_folder) == [
        ("a", b"1"), ("a", b"poison"), ("b", b"heavy"), ("b", b"2"), ("a", b"poison")]  # fmt: skip
    # The poison was tried as often as may be, and makes way for the one behind it.
    assert [(str(one.address.origin), one.reason) for one in queue.set_aside.list()] == [
        ("a", "attempts"),
        ("b", "overweight"),
    ]
    assert left(queue, "a")[-1] == b"3"


WAYS = ["service", "in place", "pieces", "folder"]


def work_through(queue: MessageQueue, way: str, folder: Path) -> None:
    """Service the queue once, in one of the ways in which messages reach processors."""
    if way == "service":
        queue.service_queues(lambda delivery: process(delivery.payload, delivery.origin))
        return
    routes, block = processors(), queue.blocks.plan()
    part = whole(routes)
    # The settings that the plan read hold until the block ends.
    for origin in ("strict", "loose"):
        queue.admin.set_origin(origin)
    if way == "in place":
        run_in_place(queue, block.token, routes, part)
    elif way == "pieces":
        terms = terms_of(queue, block)
        for task in tasks_of(block, terms, routes, part, 8):
            run_share(task.processor, StoreSide(queue, block.token, task.share), terms)
    else:
        place = exchange.hand_over(queue, block.token, routes, part, str(folder))
        channel = exchange.FolderChannel(place)
        for task in channel.tasks(routes):
            with channel.open(task.share) as side:
                run_share(task.processor, side, channel.terms())
        exchange.take_back(queue, block.token, place)
    queue.blocks.settle(block)


@pytest.mark.parametrize("way", WAYS)
def test_an_ordered_origin_of_a_relaxed_ring_stops_where_a_message_goes_back(
    either_store: str, make_ring: MakeRing, tried_folder: Path, tmp_path: Path, way: str
) -> None:
    queue = make_ring(either_store, ordered=False, heap_size=64)
    queue.admin.set_origin("strict", ordered=True)
    for origin in ("strict", "other"):
        queue.enqueue_messages(origin, [b"later".ljust(50), *(b"%d".ljust(50) % number for number in range(3))])
    assert queue.footprint("strict").pages == 4

    work_through(queue, way, tmp_path / "folder")

    strict = [payload.split()[0] for origin, payload in all_tried(tried_folder) if origin == "strict"]
    assert strict == [b"later"]
    assert [(one.payload.split()[0], one.attempts) for one in queue.inspect.peek("strict")] == [
        (b"later", 1), (b"0", 0), (b"1", 0), (b"2", 0)
    ]  # fmt: skip
    if way != "service":
        # Servicing in place leaves a relaxed queue, too, at the first message that goes back.
        assert [payload.split()[0] for payload in left(queue, "other")] == [b"later"]


@pytest.mark.parametrize("way", WAYS[1:])
def test_a_relaxed_origin_of_an_ordered_ring_goes_on(
    either_store: str, make_ring: MakeRing, tmp_path: Path, way: str
) -> None:
    queue = make_ring(either_store, heap_size=64)
    queue.admin.set_origin("loose", ordered=False)
    for origin in ("loose", "strict"):
        queue.enqueue_messages(origin, [b"later".ljust(50), *(b"%d".ljust(50) % number for number in range(3))])

    work_through(queue, way, tmp_path / "folder")

    assert (len(left(queue, "loose")), len(left(queue, "strict"))) == (1, 4)


@pytest.mark.parametrize("way", WAYS[1:])
@pytest.mark.parametrize("settings", [{"most_of_limit": 0.5}, {}])
def test_an_ordered_origin_goes_on_behind_a_message_that_its_own_limit_sets_aside(
    make_ring: MakeRing, tmp_path: Path, way: str, settings: dict[str, Any]
) -> None:
    queue = make_ring(service_weight=Weight(10**13, 10**6), **settings)
    if not settings:
        queue.admin.set_origin("a", most=Weight(10**11, 10**6))
    queue.enqueue_messages("a", [b"1", b"heavy", b"2"])
    queue.admin.change_ring(service_weight=Weight(int(1.5 * 10**12), 10**6))

    work_through(queue, way, tmp_path / "folder")

    assert [one.reason for one in queue.set_aside.list("a")] == ["fraction" if settings else "most"]
    assert [one.payload for one in queue.inspect.peek("a") if one.state == "waiting"] == []


@pytest.mark.parametrize("function", ["batched", "arrow"])
def test_a_batch_that_fails_is_halved_until_the_poison_stands_alone(make_ring: MakeRing, function: str) -> None:
    queue = make_ring(ordered=False)
    queue.enqueue_messages("a", [b"%d" % n for n in range(50)] + [b"poison"] + [b"bad", b"used", b"later"])
    routes = processors(function=function, shape="arrow" if function == "arrow" else "message")
    block = queue.blocks.plan()

    tally = run_in_place(queue, block.token, routes, whole(routes))
    queue.blocks.settle(block)

    assert (tally.processed, tally.failed, tally.returned) == (51, 1, 2)
    assert left(queue, "a") == [b"poison", b"later"]


@pytest.mark.parametrize("function", ["batched", "arrow"])
def test_a_batch_ends_for_an_ordered_origin_at_the_message_that_failed(make_ring: MakeRing, function: str) -> None:
    queue = make_ring()
    queue.enqueue_messages("a", [b"1", b"2", b"poison", b"3", b"4"])
    queue.enqueue_messages("b", [b"5", b"6"])
    routes = processors(function=function, shape="arrow" if function == "arrow" else "message")
    block = queue.blocks.plan()

    tally = run_in_place(queue, block.token, routes, whole(routes))
    queue.blocks.settle(block)

    assert (tally.processed, tally.returned) == (4, 1)
    assert (left(queue, "a"), left(queue, "b")) == ([b"poison", b"3", b"4"], [])
    assert [peeked.attempts for peeked in queue.inspect.peek("a")] == [1, 0, 0]


def test_silence_and_nonsense_of_a_record_batch_are_no_outcome(make_ring: MakeRing) -> None:
    queue = make_ring(ordered=False)
    queue.enqueue_messages("a", [b"1", b"silent", b"odd"])
    routes = processors(function="arrow", shape="arrow")
    block = queue.blocks.plan()

    run_in_place(queue, block.token, routes, whole(routes))

    assert queue.blocks.settle(block).returned == 2
    assert [peeked.attempts for peeked in queue.inspect.peek("a")] == [1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["message", "arrow"])
def test_a_process_that_dies_of_a_message_costs_that_message_alone(make_ring: MakeRing, shape: str) -> None:
    queue = make_ring(ordered=False)
    queue.enqueue_messages("a", [b"1", b"die", b"2", b"die", b"poison", b"bad"])
    routes = processors(function="arrow" if shape == "arrow" else "process", shape=shape)
    block = queue.blocks.plan()
    terms = terms_of(queue, block)
    (task,) = tasks_of(block, terms, routes, whole(routes), 1)

    tally = run_share(task.processor, StoreSide(queue, block.token, task.share), terms, careful=True)
    queue.blocks.settle(block)

    assert (tally.processed, tally.failed, tally.returned) == (2, 1, 3)
    assert left(queue, "a") == [b"die", b"die", b"poison"]


@pytest.mark.parametrize("function", ["process", "batch_that_sends"])
def test_what_a_processor_sends_comes_back_from_a_child(make_ring: MakeRing, function: str) -> None:
    queue = make_ring()
    queue.enqueue_messages("a", [b"enqueue b", b"enqueue c"])
    routes = processors(function=function)
    block = queue.blocks.plan()
    terms = terms_of(queue, block)
    (task,) = tasks_of(block, terms, routes, whole(routes), 1)

    tally = run_share(task.processor, StoreSide(queue, block.token, task.share), terms, careful=True)
    queue.blocks.settle(block)

    assert (tally.processed, tally.returned) == (2, 0)
    sent = [b"sent with the outcome"] if function == "batch_that_sends" else [b"sent along", b"sent with the outcome"]
    assert sorted(left(queue, "b")) == sorted(left(queue, "c")) == sent


def test_an_outcome_that_cannot_leave_its_child_fails_one_message(make_ring: MakeRing) -> None:
    queue = make_ring(ordered=False)
    queue.enqueue_messages("a", [b"1", b"local", b"2"])
    block = queue.blocks.plan()
    terms = terms_of(queue, block)
    (task,) = tasks_of(block, terms, processors(), whole(processors()), 1)

    class Local(BadFormat):
        """A class that no other process knows."""

    def process(payload: bytes) -> BadFormat | None:
        return Local() if payload == b"local" else None

    side = StoreSide(queue, block.token, task.share)
    tally = run_share(task.processor, side, terms, careful=True, function=process)
    queue.blocks.settle(block)

    assert (tally.processed, tally.returned) == (2, 1)
    assert left(queue, "a") == [b"local"]


def test_an_ordered_origin_stops_at_a_message_that_kills(make_ring: MakeRing, tried_folder: Path) -> None:
    queue = make_ring()
    queue.enqueue_messages("a", [b"1", b"die", b"2"])
    queue.enqueue_messages("b", [b"later", b"3"])
    queue.enqueue_messages("c", [b"4"])
    block = queue.blocks.plan()
    terms = terms_of(queue, block)
    (task,) = tasks_of(block, terms, processors(), whole(processors()), 1)

    run_share(task.processor, StoreSide(queue, block.token, task.share), terms, careful=True)
    settled = queue.blocks.settle(block)

    assert sorted(all_tried(tried_folder)) == [("a", b"1"), ("a", b"die"), ("b", b"later"), ("c", b"4")]
    assert (settled.processed, settled.returned) == (2, 4)
    assert [peeked.attempts for peeked in queue.inspect.peek("a")] == [1, 0]


def test_what_was_answered_is_not_tried_again(make_ring: MakeRing, tried_folder: Path) -> None:
    queue = make_ring()
    queue.enqueue_messages("a", [b"1", b"2", b"3"])
    queue.enqueue_messages("b", [b"1", b"2"])
    block = queue.blocks.plan()
    queue.blocks.report(block, [Report("a", 0, 0, 1), Report("b", 0, 0, 0, Yield("before"))])

    tally = run_in_place(queue, block.token, processors(), whole(processors()))

    assert all_tried(tried_folder) == [("a", b"3")]
    assert (tally.processed, tally.before) == (1, 3)
    assert queue.blocks.settle(block).processed == 3


def test_the_first_answer_counts_from_any_process(make_ring: MakeRing) -> None:
    queue = make_ring(ordered=False)
    queue.enqueue_messages("a", [b"bad"] * 5)
    block = queue.blocks.plan()
    queue.blocks.report(block, [Report("a", 0, 0, 4, Done(success=False))])
    terms = terms_of(queue, block)

    for task in tasks_of(block, terms, processors(), whole(processors()), 1):
        for _ in range(2):  # a speculative twin
            run_share(task.processor, StoreSide(queue, block.token, task.share), terms)

    assert queue.blocks.settle(block).processed == 5
    assert [event.name for event in queue.inspect.events()] == ["Processed"] * 5


def test_parts_share_a_block_without_overlap(make_ring: MakeRing, tried_folder: Path) -> None:
    queue = make_ring()
    for origin in range(30):
        queue.enqueue_messages(f"t{origin}", [b"%d" % n for n in range(3)])
    routes = processors(split=4, where="in place")
    block = queue.blocks.plan()
    parts = routes.parts({origin: 3 for origin in block.origins}, share_below=10)

    assert len(parts) == 4
    for part in parts:
        run_in_place(queue, block.token, routes, part)

    assert queue.blocks.settle(block).processed == 90
    assert len(all_tried(tried_folder)) == len(set(all_tried(tried_folder))) == 90


def test_pieces_are_even_and_cut_no_ordered_origin(make_ring: MakeRing) -> None:
    for ordered in (True, False):
        queue = make_ring(ring=f"ordered-{ordered}", ordered=ordered, heap_size=1000)
        queue.enqueue_messages("large", [b"x" * 90] * 200)
        for n in range(20):
            queue.enqueue_messages(f"small {n}", [b"x" * 90] * 10)
        block = queue.blocks.plan()

        tasks = tasks_of(block, terms_of(queue, block), processors(), whole(processors()), 4)

        assert sum(task.messages for task in tasks) == 400
        homes = [{claim.origin for claim in task.share} for task in tasks]
        assert sum("large" in home for home in homes) == (1 if ordered else 4)
        assert ordered or max(task.messages for task in tasks) < 120


def test_a_block_that_ended_is_refused(make_ring: MakeRing) -> None:
    queue = make_ring()
    queue.enqueue_messages("a", [b"1"])
    block = queue.blocks.plan()
    queue.blocks.release(block)

    with pytest.raises(TokenRefused, match="it is too late"):
        run_in_place(queue, block.token, processors(), whole(processors()))


@pytest.mark.slow
def test_a_block_that_ends_meanwhile_stops_the_work(make_ring: MakeRing, tried_folder: Path) -> None:
    queue = make_ring()
    # Far more than are tried before a busy machine releases the block.
    queue.enqueue_messages("a", [b"slow 0.2"] * 300)
    block = queue.blocks.plan()

    def release() -> None:
        eventually(lambda: len(all_tried(tried_folder)) > 1)
        queue.blocks.release(block)

    releasing = threading.Thread(target=release)
    releasing.start()
    with pytest.raises(TokenRefused):
        run_in_place(queue, block.token, processors(), whole(processors()))
    releasing.join()

    assert 1 < len(all_tried(tried_folder)) < 299
    assert queue.footprint("a").count + len([e for e in queue.inspect.events() if e.name == "Processed"]) == 300


def test_the_lease_is_kept(make_ring: MakeRing, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ticker.RENEWALS > 1, "one renewal may come late"
    # A lease that is longer than any machine stands still, and is renewed often for all that.
    monkeypatch.setattr(ticker, "RENEWALS", 600)
    queue = make_ring()
    queue.enqueue_messages("a", [b"1"])
    block = queue.blocks.plan(lease=60)

    with BlockLease(queue, block.token, 60) as keeper:
        for _ in range(3):
            before = queue.blocks.get(block.token).deadline
            eventually(lambda before=before: queue.blocks.get(block.token).deadline > before)
        assert queue.blocks.release_dead() == 0
    assert keeper.refused is None
    eventually(lambda: "airflow-mq-lease" not in {thread.name for thread in threading.enumerate()})
    queue.blocks.release(block)


@pytest.mark.slow
def test_a_block_is_renewed_by_its_own_lease(make_ring: MakeRing, monkeypatch: pytest.MonkeyPatch) -> None:
    # A lease that outlives any pause of the machine, and is renewed after a second.
    monkeypatch.setattr(ticker, "RENEWALS", 60)
    queue, asked = make_ring(lease=86_400), threading.Event()
    queue.enqueue_messages("a", [b"1"])
    long, short = queue.blocks.plan(lease=14_400), queue.blocks.plan(lease=60)
    renew = queue.blocks.renew

    def renewing(token: str, lease: float | None = None) -> object:
        asked.set()
        return renew(token, lease)

    with BlockLease(queue, long.token), BlockLease(queue, long.token, 60):
        assert queue.blocks.get(long.token).deadline >= long.deadline
    with BlockLease(queue, short.token):
        monkeypatch.setattr(queue.blocks, "renew", renewing)
        # Of the ring's lease of a day, the first renewal would come minutes later.
        assert asked.wait(60)
    queue.blocks.release(long)
    queue.blocks.release(short)


def test_a_keeper_of_a_lease_learns_that_it_is_over(make_ring: MakeRing) -> None:
    queue = make_ring()
    queue.enqueue_messages("a", [b"1"])
    block, heard = queue.blocks.plan(), threading.Event()

    with BlockLease(queue, block.token, 1.0, heard.set) as keeper:
        queue.blocks.release(block)
        assert heard.wait(60)
    assert isinstance(keeper.refused, TokenRefused)


def test_neighbours_that_are_done_are_one_report() -> None:
    sent: list[list[Report]] = []
    reporter = Reporter(lambda reports: sent.append(list(reports)), seconds=60)

    for index in range(2500):
        reporter.add("a", 0, index, Done())
    reporter.add("a", 0, 2500, Yield("later"))
    reporter.add("a", 1, 2501, Done())
    reporter.add("a", 1, 2502, Done(used=Weight(1, 1)))
    reporter.flush()
    reporter.flush()

    assert [(r.page, r.first, r.last) for r in sent[0]] == [
        (0, 0, 2499),
        (0, 2500, 2500),
        (1, 2501, 2501),
        (1, 2502, 2502),
    ]
    assert len(sent) == 1


def test_neighbours_with_payloads_are_reported_with_their_ids() -> None:
    sent: list[Report] = []
    reporter = Reporter(sent.extend, seconds=60)

    reporter.add("a", 0, 0, Done(), b"x")
    reporter.add("a", 0, 1, Done(), b"y")
    reporter.add("a", 0, 2, Done())
    reporter.add("a", 0, 3, Yield("later"), b"z")
    reporter.add("a", 0, 4, Done(used=Weight(1, 1)), b"z")
    reporter.flush()

    assert [(r.first, r.last, r.ids) for r in sent] == [
        (0, 1, b"".join(message_ids([b"x", b"y"]))), (2, 2, b""), (3, 3, b""), (4, 4, b""),
    ]  # fmt: skip


def test_settling_a_processed_block_reads_no_payloads(
    either_store: str, make_ring: Callable[..., MessageQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_ring(either_store)
    queue.enqueue_messages("a", [b"%d" % n for n in range(100)])
    routes, block = processors(), queue.blocks.plan()
    assert run_in_place(queue, block.token, routes, whole(routes)).processed == 100
    fetched: list[object] = []
    heaps = Inbox.heaps

    def counted(self: Inbox, ring: int, wanted: RowIds) -> list[PlainRow]:
        fetched.append(wanted)
        return heaps(self, ring, wanted)

    monkeypatch.setattr(Inbox, "heaps", counted)

    assert queue.blocks.settle(block).processed == 100
    assert not any(fetched)
    assert {event.id for event in queue.inspect.events(origin="a")} == set(message_ids(b"%d" % n for n in range(100)))


def test_a_store_that_does_not_answer_is_asked_again() -> None:
    answers = iter([StoreUnreachable(), StoreUnreachable(), None])

    def ask() -> str:
        error = next(answers)
        if error:
            raise error
        return "here"

    assert patiently(ask) == "here"
    with pytest.raises(StoreUnreachable):
        patiently(lambda: (_ for _ in ()).throw(StoreUnreachable()), patience=0.1)


@pytest.mark.parametrize("name", ["nowhere:f", "tests.spark.functions:nothing", "tests.spark.functions:NO_FUNCTION"])
def test_functions_that_cannot_be_loaded(name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot load|expected a function"):
        load_function(name)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("tests.spark.functions:proces", "process"),
        ("tests.spark.functoins:process", "tests.spark.functions"),
        ("tests.sparc.functions:process", "tests.spark"),
        ("airflow_mp.processors:process", "airflow_mq"),
        ("airflow_mq.processors:Processors.from_jsn", "from_json"),
    ],
)
def test_a_misspelled_function_or_module_suggests_the_near_name(name: str, near: str) -> None:
    with pytest.raises(InvalidInput, match=f"cannot load function {name} .*; did you mean '{near}'[?]"):
        load_function(name)


@pytest.mark.parametrize("name", ["tests.spark.functions:unlike_all", "unlike_all_others_there_are:process"])
def test_a_name_that_is_near_to_none_suggests_none(name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot load") as caught:
        load_function(name)
    assert "did you mean" not in str(caught.value)


def test_a_job_whose_codec_cannot_be_loaded_fails_in_its_driver() -> None:
    rules = processors(Processor("typed", "tests.spark.functions:process", codec="tests.spark.functions:Ordr"))
    with pytest.raises(InvalidInput, match="cannot load codec tests.spark.functions:Ordr"):
        check_function(rules.all[0])


@pytest.mark.parametrize("shape", ["arrow", "dataframe"])
def test_a_batch_processor_fits_messages_alone(shape: str) -> None:
    rules = processors(Processor("batches", "tests.spark.functions:batched", shape=shape))
    with pytest.raises(InvalidInput, match="is a batch processor: expected the shape 'message'"):
        check_function(rules.all[0])


def test_rows_that_differ_in_their_priority_alone_are_different_messages() -> None:
    rows = pa.table({"origin": ["o"] * 3, "payload": [b"p"] * 3, "priority": ["high", "regular", None]}).to_batches()
    assert len({row.digest for row in sent_rows(rows[0])}) == 3


def test_a_module_that_imports_a_missing_one_suggests_nothing_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_orders.py").write_text("import shop_ordres\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidInput, match="No module named 'shop_ordres'[)]"):
        load_function("shop_orders:process")


def test_a_child_is_gone_when_its_reader_stops(make_ring: MakeRing) -> None:
    from airflow_mq.spark.child import in_child
    from airflow_mq.spark.items import messages_of

    def call(items: Any) -> Any:
        for item in items:
            yield item, Yield(str(os.getpid()))
        time.sleep(600)

    told = in_child(call, messages_of([Batch("a", [b"x"], 0, 0)]))
    child = int(next(told)[1].reason)  # type: ignore[union-attr]
    told.close()  # type: ignore[attr-defined]

    with pytest.raises(ProcessLookupError):
        os.kill(child, signal.SIGCONT)


@pytest.mark.parametrize(("size", "is_native"), [(0, False), (0, True), (8 << 20, False)])
def test_a_child_that_ended_is_noticed_while_its_helper_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, is_native: bool
) -> None:
    from airflow_mq.spark.child import ChildFailed, in_child
    from airflow_mq.spark.items import messages_of

    if is_native:
        # Native code that forks calls no hooks of Python.
        monkeypatch.setattr(os, "register_at_fork", lambda **hooks: None)

    def call(items: Any) -> Any:
        helper = os.fork()
        if helper == 0:
            time.sleep(30)
            os._exit(0)
        (tmp_path / "helper").write_text(str(helper))
        first, second = items
        yield first, Done()
        if size:
            # A large answer waits for its reader.
            threading.Timer(0.5, os._exit, [3]).start()
            yield second, Yield("x" * size)
        os._exit(3)

    idle: list[int] = []

    def note() -> None:
        idle.append(1)
        assert len(idle) < 100

    told = in_child(call, messages_of([Batch("a", [b"x", b"y"], 0, 0)]), note, 0.05)
    begun = time.monotonic()
    try:
        assert next(told)[1] == Done()
        time.sleep(1)
        with pytest.raises(ChildFailed, match="ended with exit code 3"):
            next(told)
        assert time.monotonic() - begun < 20
    finally:
        os.kill(int((tmp_path / "helper").read_text()), signal.SIGKILL)


def test_a_processor_is_named_by_its_own_fields() -> None:
    assert Processor("a", "m:f") == Processor("a", "m:f", origins="*")  # type: ignore[arg-type]
