"""Decisions of people as tasks: overweight messages, pauses, pages, housekeeping; and the notifier."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from airflow_mq import Delivery, Done, MessageQueue, Serviced, Weight
from airflow_mq.engine.rules.message import Address
from airflow_mq.installation import VARIABLE
from tests.airflow.functions import SEEN
from tests.airflow.stage import CONN_ID, INSTALLATION, Airflow, Run, fill, in_place, processed

pytestmark = pytest.mark.airflow

HEAVY = Weight(10**9, 10)


@pytest.fixture
def run() -> Run:
    return Airflow().run()


@pytest.fixture
def heavy(queue: MessageQueue) -> Address:
    """The address of a message that no block can take."""
    queue.enqueue_message("a", b"elephant", weight=HEAVY)
    queue.blocks.settle(queue.blocks.plan("sets it aside"))
    (one,) = queue.set_aside.list()
    return one.address


def execute(address: Any, **kwargs: Any) -> Any:
    from airflow_mq.operators.set_aside import ExecuteOverweightOperator

    kwargs = {"processors": in_place(), **kwargs}
    return ExecuteOverweightOperator(task_id="execute", address=str(address), mq_conn_id=CONN_ID, **kwargs)


def test_an_overweight_message_is_executed_within_a_limit_of_its_own(
    queue: MessageQueue, heavy: Address, run: Run
) -> None:
    summary = run.execute(execute(heavy, limit="[2000000000, 100]"))

    assert SEEN == [(b"elephant", "a")]
    assert (summary["processed"], summary["messages"]) == (1, 1)
    assert queue.set_aside.list() == []
    assert len(processed(queue)) == 1


def test_an_execution_is_settled_while_a_service_holds_the_ring(
    queue: MessageQueue, heavy: Address, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is final at once; the service applies it."""
    from tests.airflow import functions

    begun, go_on = Event(), Event()

    def service(delivery: Delivery) -> None:
        begun.set()
        assert go_on.wait(60)

    def begin_service(payload: bytes, origin: str) -> None:
        served.append(pool.submit(queue.service_queues, service))
        assert begun.wait(60)

    queue.enqueue_message("b", b"waits")
    served: list[Future[Serviced]] = []
    monkeypatch.setattr(functions, "begin_service", begin_service, raising=False)
    operator = execute(heavy, processors=in_place(function="tests.airflow.functions:begin_service"))
    with ThreadPoolExecutor(1) as pool:
        try:
            summary = run.execute(operator)
        finally:
            go_on.set()

    assert (summary["processed"], served[0].result().processed) == (1, 1)
    assert queue.set_aside.list() == []
    assert queue.check() == []


@pytest.mark.parametrize(
    ("kwargs", "says", "is_final"),
    [
        ({"limit": [10, 10]}, "limit 10 ms · 10 B is too small for message", True),
        ({"function": "missing"}, "cannot load function", False),
        ({"function": "yield_"}, r"was not executed: its processor raised or yielded \(later\)", False),
        ({"function": "raises"}, r"was not executed: its processor raised or yielded \(KeyError\)", False),
        ({"function": "overweight"}, "not executed: its processor reported no outcome, or that it is overweight", True),
    ],
)
def test_what_was_not_executed_waits_where_it_was(
    queue: MessageQueue,
    heavy: Address,
    run: Run,
    kwargs: Any,
    says: str,
    is_final: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from airflow.providers.common.compat.sdk import AirflowFailException

    from airflow_mq import Overweight, Yield
    from tests.airflow import functions

    monkeypatch.setattr(functions, "yield_", lambda payload, origin: Yield("later"), raising=False)
    monkeypatch.setattr(functions, "raises", lambda payload, origin: {}[0], raising=False)
    monkeypatch.setattr(functions, "overweight", lambda payload, origin: Overweight(Weight(1, 1)), raising=False)
    if "function" in kwargs:
        kwargs = {"processors": in_place(function=f"tests.airflow.functions:{kwargs['function']}")}

    with pytest.raises(Exception, match=says) as caught:
        run.execute(execute(heavy, **kwargs))

    # Airflow retries any other error.
    assert isinstance(caught.value, AirflowFailException) is is_final
    assert [one.address for one in queue.set_aside.list()] == [heavy]
    assert queue.blocks.list("planned") == []


def test_an_outcome_that_comes_too_late_is_named_and_not_tried_again(
    queue: MessageQueue, heavy: Address, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.common.compat.sdk import AirflowFailException

    from tests.airflow import functions

    def release() -> None:
        with MessageQueue(queue.store.address) as other:
            other.blocks.release(other.blocks.list("planned")[0].token)

    def process(payload: bytes, origin: str) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(release).result()

    monkeypatch.setattr(functions, "release", process, raising=False)
    with pytest.raises(AirflowFailException, match="released"):
        run.execute(execute(heavy, processors=in_place(function="tests.airflow.functions:release")))
    assert [one.address for one in queue.set_aside.list()] == [heavy]


def test_a_retry_executes_the_message_that_it_names_now(
    queue: MessageQueue, heavy: Address, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_mq.operators.base import key_of

    queue.enqueue_message("a", b"whale", weight=HEAVY)
    queue.blocks.settle(queue.blocks.plan("sets it aside"))
    (other,) = [one.address for one in queue.set_aside.list() if one.address != heavy]
    monkeypatch.setenv(f"AIRFLOW_VAR_{VARIABLE.upper()}", INSTALLATION)
    # The first try was killed, and its template rendered to another address.
    queue.blocks.plan_overweight(heavy, HEAVY, key=key_of(run.context("execute")))

    assert run.execute(execute(other))["processed"] == 1
    assert SEEN == [(b"whale", "a")]
    assert [one.address for one in queue.set_aside.list()] == [heavy]
    assert queue.check() == []


@pytest.mark.parametrize(
    ("address", "says"),
    [("nonsense", "ORIGIN:PAGE:INDEX"), ("zebra:0:0", "no processor takes 'zebra'"), ("a:7:0", ".")],
)
def test_an_address_that_leads_nowhere_is_refused(
    sqlite_queue: MessageQueue, run: Run, address: str, says: str
) -> None:
    with pytest.raises(Exception, match=says):
        run.execute(execute(address))
    assert sqlite_queue.blocks.list("planned") == []


def test_discarding_records_who_and_why(queue: MessageQueue, heavy: Address, run: Run) -> None:
    from airflow_mq.operators.set_aside import DiscardSetAsideOperator

    operator = DiscardSetAsideOperator(
        task_id="discard", addresses=[str(heavy)], why="sent by mistake", mq_conn_id=CONN_ID
    )
    assert run.execute(operator) == 1

    assert queue.set_aside.list() == []
    (event,) = [event for event in queue.inspect.events() if "mistake" in event.detail]
    assert "dag.discard" in event.detail


def test_discarding_by_what_is_meant(queue: MessageQueue, heavy: Address, run: Run) -> None:
    from airflow_mq.operators.set_aside import DiscardSetAsideOperator

    def discard(**kwargs: Any) -> Any:
        return DiscardSetAsideOperator(task_id="discard", why="too late", mq_conn_id=CONN_ID, **kwargs)

    assert run.execute(discard(origin="b")) == 0
    for addresses in ("", [], [str(heavy)]):
        with pytest.raises(Exception, match="addresses exclude origin"):
            discard(origin="a", addresses=addresses)
    with pytest.raises(Exception, match="chooses no messages"):
        discard()
    with pytest.raises(Exception, match="all=True chooses no messages to discard"):
        discard(all=True)
    with pytest.raises(Exception, match="why is missing"):
        DiscardSetAsideOperator(task_id="discard", origin="a", mq_conn_id=CONN_ID)
    assert run.execute(discard(addresses=[])) == run.execute(discard(addresses="")) == 0
    with pytest.raises(Exception, match="number of a block"):
        run.execute(discard(block="the last"))
    assert run.execute(discard(origin="a", older_than="0", block="")) == 0
    assert run.execute(discard(origin="a", older_than="0", block="", all=True)) == 1
    (event,) = queue.inspect.events(name="Discarded")
    assert event.why == "too late" and "dag.discard" in (event.actor or "")


def test_requeue(queue: MessageQueue, heavy: Address, run: Run) -> None:
    from airflow_mq.operators.set_aside import RequeueSetAsideOperator

    judge = RequeueSetAsideOperator(task_id="judge", why="raised", mq_conn_id=CONN_ID, all=True)
    assert run.execute(judge) == {"moved": 0, "stayed": 1}
    queue.admin.change_ring(service_weight=Weight(10**10, 1 << 30))
    none = RequeueSetAsideOperator(task_id="judge", addresses=[], why="raised", mq_conn_id=CONN_ID)
    assert run.execute(none) == {"moved": 0, "stayed": 0}
    one = RequeueSetAsideOperator(task_id="judge", addresses=str(heavy), why="raised", mq_conn_id=CONN_ID)
    assert run.execute(one) == {"moved": 1, "stayed": 0}
    (event,) = queue.inspect.events(name="Requeued")
    assert "dag.judge" in (event.actor or "")
    assert [peeked.payload for peeked in queue.inspect.peek("a")] == [b"elephant"]


def test_housekeeping_follows_the_policies_of_the_ring(queue: MessageQueue, heavy: Address, run: Run) -> None:
    from airflow_mq.operators.queues import HousekeepingOperator

    keep = HousekeepingOperator(task_id="keep", check=True, mq_conn_id=CONN_ID)
    assert run.execute(keep)["expired_messages"] == 0
    queue.admin.change_ring(set_aside_expires=0.001)
    assert run.execute(keep)["expired_messages"] == 1
    (event,) = queue.inspect.events(name="Expired")
    assert event.actor == "policy set_aside_expires"


def test_pausing_and_resuming(queue: MessageQueue, run: Run) -> None:
    from airflow_mq.operators.queues import PauseQueueOperator, ResumeQueueOperator

    fill(queue, {"a": [b"x"], "b": [b"y"]})
    pause = PauseQueueOperator(
        task_id="pause", origins=["a", "b"], reason="maintenance", until="60", mq_conn_id=CONN_ID
    )
    assert run.execute(pause) == ["a", "b"]
    assert {(one.origin, one.reason, one.until is not None) for one in queue.admin.paused()} == {
        ("a", "maintenance", True), ("b", "maintenance", True),
    }  # fmt: skip
    assert not queue.inspect.pulse()

    assert run.execute(ResumeQueueOperator(task_id="resume", origins="a", mq_conn_id=CONN_ID)) == ["a"]
    assert run.execute(ResumeQueueOperator(task_id="resume", origins="c", mq_conn_id=CONN_ID)) == []
    assert list(queue.inspect.pulse(5).ready) == ["a"]


def test_pausing_a_group(queue: MessageQueue, run: Run) -> None:
    from airflow_mq.operators.queues import PauseQueueOperator, ResumeQueueOperator

    queue.admin.change_ring(paths=True)
    fill(queue, {"acme/orders": [b"x"], "birch": [b"y"]})
    run.execute(PauseQueueOperator(task_id="pause", origins="acme", below=True, mq_conn_id=CONN_ID))
    fill(queue, {"acme/mail": [b"z"]})
    assert list(queue.inspect.pulse(5).ready) == ["birch"]
    assert run.execute(ResumeQueueOperator(task_id="resume", origins="acme", mq_conn_id=CONN_ID)) == ["acme"]
    assert set(queue.inspect.pulse(5).ready) == {"acme/orders", "acme/mail", "birch"}


@pytest.mark.parametrize("until", ["2099-12-24T18:00:00Z", "90", 90, None])
def test_a_pause_ends_at_the_given_time(sqlite_queue: MessageQueue, run: Run, until: Any) -> None:
    from airflow_mq.operators.queues import PauseQueueOperator

    run.execute(PauseQueueOperator(task_id="pause", origins="a", until=until, mq_conn_id=CONN_ID))

    assert (sqlite_queue.admin.paused()[0].until is None) is (until is None)


def test_reaping_a_page(queue: MessageQueue, heavy: Address, run: Run) -> None:
    from airflow_mq.operators.queues import ReapPageOperator

    with pytest.raises(Exception, match="page"):
        run.execute(ReapPageOperator(task_id="reap", origin="a", page="x", mq_conn_id=CONN_ID))
    queue.admin.change_ring(max_stale=0)
    for _ in range(3):
        queue.enqueue_message("a", b"elephant", weight=HEAVY)
        queue.blocks.settle(queue.blocks.plan("sets it aside"))

    run.execute(ReapPageOperator(task_id="reap", origin="a", page="0", why="old", mq_conn_id=CONN_ID))

    assert heavy not in [one.address for one in queue.set_aside.list()]


def test_housekeeping(queue: MessageQueue, heavy: Address) -> None:
    from airflow_mq.operators.queues import HousekeepingOperator

    airflow = Airflow()
    over, dead, keeping = airflow.run("over"), airflow.run("dead"), airflow.run("keeping")
    fill(queue, {"a": [b"x"]})
    over.plan()
    fill(queue, {"b": [b"x"]})
    dead.plan(lease="0.001")
    airflow.runs["dag", "over"] = "failed"
    queue.admin.change_ring(max_stale=0)

    operator = HousekeepingOperator(task_id="keep", cull=True, check=True, mq_conn_id=CONN_ID)
    done = keeping.execute(operator)

    assert done["finished_blocks"] + done["dead_blocks"] == 2
    assert queue.blocks.list("planned") == []


def test_the_notifier_sends_the_number_and_the_remedies(queue: MessageQueue, heavy: Address) -> None:
    from airflow_mq.notifications import SetAsideNotifier, StarvingNotifier

    told: list[str] = []
    SetAsideNotifier(told.append, mq_conn_id=CONN_ID)({})
    SetAsideNotifier(told.append, mq_conn_id=CONN_ID, at_least=2)({})

    (text,) = told
    assert "1 set-aside message on ring 'default'" in text
    assert f"{heavy}" in text and "ExecuteOverweightOperator" in text
    queue.enqueue_message(heavy.origin, b"x")
    only = str(StarvingNotifier(mq_conn_id=CONN_ID, oldest=0).text())
    assert f"{heavy.origin}: the oldest of its 1 messages" in only, "set-aside messages do not wait"
    queue.enqueue_messages((f"tenant-{number:02}", b"x") for number in range(10))
    waiting = str(StarvingNotifier(mq_conn_id=CONN_ID, oldest=0).text())
    where = f"--conn-id {CONN_ID} --ring default"
    assert f"and 1 more: airflow-mq report fairness {where}\n" in waiting
    assert f"`airflow-mq explain ORIGIN {where}`" in waiting


def test_the_notifier_counts_as_far_as_its_bound(sqlite_queue: MessageQueue) -> None:
    from airflow_mq.notifications import SetAsideNotifier

    sqlite_queue.enqueue_messages("a", [b"x"] * 1_300, weight=Weight(10**9, 0))
    sqlite_queue.blocks.settle(sqlite_queue.blocks.plan())
    texts = [SetAsideNotifier(mq_conn_id=CONN_ID, at_least=least).text() for least in (1_200, 1_301)]
    assert str(texts[0]).startswith("1,000 or more set-aside messages") and texts[1] is None


def test_the_notifier_serves_a_deadline(sqlite_queue: MessageQueue) -> None:
    from airflow_mq.notifications import SetAsideNotifier

    told: list[str] = []

    async def miss_deadline() -> None:
        # As Airflow's triggerer calls an `AsyncCallback`.
        await SetAsideNotifier(told.append, mq_conn_id=CONN_ID, context={"dag_run": {}})

    sqlite_queue.enqueue_message("a", b"elephant", weight=Weight(10**9, 10))
    sqlite_queue.blocks.settle(sqlite_queue.blocks.plan())
    asyncio.run(miss_deadline())
    assert told[0].startswith("1 set-aside message on ring 'default'")


def test_the_notifier_sends_nothing_without_set_aside_messages(sqlite_queue: MessageQueue) -> None:
    from airflow_mq.notifications import SetAsideNotifier

    assert SetAsideNotifier(mq_conn_id=CONN_ID).text() is None


def test_the_decorator_services_queues_within_a_weight(queue: MessageQueue, run: Run) -> None:
    from airflow_mq.decorators import MessageProcessorOperator

    fill(queue, {"a": [b"1", b"2", b"3"]})
    seen: list[Any] = []

    def process(payload: bytes, origin: str, mark: str = "") -> Any:
        seen.append((payload, origin, mark))
        return Done()

    operator = MessageProcessorOperator(
        task_id="process", python_callable=process, op_kwargs={"mark": "m"}, limit=[2, 1 << 20], mq_conn_id=CONN_ID
    )
    done = run.execute(operator)

    assert seen == [(b"1", "a", "m"), (b"2", "a", "m")]
    assert (done["processed"], done["weight"][0]) == (2, 2)


def test_the_decorator_processes_a_part(queue: MessageQueue, run: Run) -> None:
    from airflow_mq.decorators import MessageProcessorOperator

    fill(queue, {"a": [b"1", b"raise"], "b": [b"2"]})
    run.plan()
    seen: list[Any] = []

    def process(payload: bytes, origin: str) -> Any:
        seen.append(payload)
        if payload == b"raise":
            raise ValueError("no")

    for index, part in enumerate(run.xcoms["plan", "return_value"]):
        operator = MessageProcessorOperator(
            task_id="process",
            python_callable=process,
            op_kwargs={"part": part},
            processors=in_place(),
            mq_conn_id=CONN_ID,
        )
        run.execute(operator, index)

    assert sorted(seen) == [b"1", b"2", b"raise"]
    assert run.settle()["processed"] == 2


def test_a_function_that_takes_no_messages_is_refused() -> None:
    from airflow_mq.decorators import MessageProcessorOperator

    with pytest.raises(ValueError, match="expected one parameter"):
        MessageProcessorOperator(task_id="process", python_callable=lambda: None)
