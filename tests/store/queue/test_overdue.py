"""A message waits for a block that does not come: explanations name the last plan instead of promising a next block."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from airflow_mq import MessageQueue, Weight
from airflow_mq.words import when
from tests.proofs.model.clock import SECOND, Clock, stopped_clock
from tests.store.queue.conftest import Maker, in_airflow, serve

DAG, MAIL = "DAG 'first_steps', task 'block.plan'", "DAG 'mail', task 'block.plan'"
NEXT = "The first message of acme, acme:0:0, runs in the next block"


@pytest.fixture
def clock() -> Iterator[Clock]:
    with stopped_clock() as clock:
        yield clock


def rewind(clock: Clock, seconds: float) -> None:
    """Set the clock so that it shows the real time after so many seconds: the database stamps messages by its own."""
    clock.now = int((time.time() - seconds) * SECOND)


def run_block(queue: MessageQueue, server: str = DAG, *origins: str) -> None:
    """Complete a block."""
    block = queue.blocks.plan(server=in_airflow(server), origins=origins or None)
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)


def run_blocks(queue: MessageQueue, clock: Clock, seconds: float, count: int = 4, server: str = DAG) -> None:
    """Complete blocks at regular times; the clock stops at the last one."""
    for number in range(count):
        if number:
            clock.advance(seconds)
        run_block(queue, server)


def serve_often(queue: MessageQueue, clock: Clock, times: int) -> None:
    """Service a message in place every five seconds, and leave one that waits."""
    for _ in range(times):
        queue.enqueue_message("acme", b"x")
        serve(queue)
        clock.advance(5)
    queue.enqueue_message("acme", b"x")


def sentence(queue: MessageQueue, origin: str = "acme") -> str:
    return queue.inspect.explain(origin).sentence


def test_a_due_message_that_no_block_let_join_its_queue(make_queue: Maker, clock: Clock) -> None:
    """Until a block does so, only an explanation once showed it: `status` reported that nothing waits."""
    queue = make_queue()
    rewind(clock, 20_000)
    run_blocks(queue, clock, 300)
    queue.enqueue_messages("acme", [b"x", b"yy"], not_before=60)
    queue.enqueue_message("acme", b"urgent", not_before=60, priority="high")
    queue.enqueue_message("birch", b"z", not_before=60)
    queue.enqueue_message("later", b"z", not_before=90_000)
    queue.admin.pause("birch")
    assert queue.inspect.ring().queues == []

    clock.advance(7_200)

    servicing, ring = queue.inspect.servicing(), queue.inspect.ring()
    found = {state.name: (state.messages, state.size, state.age, state.skipped) for state in ring.queues}
    assert found == {"acme": (2, 3, 7_140, ""), "acme (high)": (1, 6, 7_140, ""), "birch": (1, 1, 7_140, "paused")}
    assert len(queue.inspect.ring(2).queues) == 2 and ring.due is not None
    (overdue,) = servicing.of_queues(ring.queues)
    assert "No block has been planned since" in overdue.sentence
    queue.admin.pause("acme")
    assert not queue.inspect.pulse()
    queue.admin.resume("acme")
    assert queue.inspect.pulse().due
    run_block(queue)
    assert [state.name for state in queue.inspect.ring().queues] == ["birch"]


def test_due_messages_of_a_paused_queue_hide_no_others(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue()
    for _ in range(120):
        queue.enqueue_message("birch", b"z", not_before=60)
    queue.enqueue_message("acme", b"x", not_before=61)
    queue.admin.pause("birch")
    clock.advance(7_200)
    assert [(state.name, state.messages, state.more) for state in queue.inspect.ring(1).queues] == [("acme", 1, False)]
    birch = queue.inspect.ring(100).queues[1]
    assert (birch.name, birch.messages, birch.more) == ("birch", 120, False)
    queue.admin.pause("acme")
    for _ in range(900):
        queue.enqueue_message("birch", b"z", not_before=60)
    # Those that are not due yet count nowhere.
    assert not queue.inspect.pulse() and not any(state.more for state in queue.inspect.ring(100).queues)
    clock.advance(7_200)
    assert queue.inspect.pulse().due
    assert any(state.name == "birch" and state.more for state in queue.inspect.ring(100).queues)


def test_a_due_message_that_failed_stays_named(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue()
    queue.admin.change_ring(ordered=False, backoff=60.0)
    queue.enqueue_message("acme", b"x")
    queue.blocks.settle(queue.blocks.plan())
    before = queue.inspect.put_off()
    clock.advance(120)
    assert [(state.origin, state.attempts) for state in queue.inspect.put_off()] == [("acme", 1)]
    assert before == queue.inspect.put_off()


def test_ring_without_any_block(make_queue: Maker) -> None:
    queue = make_queue()
    queue.enqueue_message("acme", b"x")

    explanation = queue.inspect.explain("acme")

    assert explanation.sentence == f"No block has ever serviced this ring. {NEXT}."
    assert (explanation.reason, explanation.block) == ("next", 1)
    (address,) = [peeked.address for peeked in queue.inspect.peek("acme")]
    assert queue.inspect.explain_message(address).sentence == (
        "No block has ever serviced this ring. acme:0:0 runs in the next block."
    )
    assert [overdue.sentence for overdue in queue.inspect.servicing().of_queues(queue.inspect.ring().queues)] == [
        "No block has ever serviced this ring."
    ]


def test_next_plan_is_expected_after_the_usual_interval(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue()
    assert queue.inspect.servicing().expected() is None
    rewind(clock, 3 * 300 + 10)
    run_block(queue)
    assert queue.inspect.servicing().expected() is None, "one plan is no interval"
    run_blocks(queue, clock, 300)
    (server,) = queue.inspect.servicing().servers
    five = server.at + timedelta(minutes=5)
    assert queue.inspect.servicing().expected() == five
    assert queue.inspect.servicing(lambda server: True).expected() is None

    # The sooner one of two DAGs counts, and a late one only if no other is due.
    run_blocks(queue, clock, 60, 3, MAIL)
    mail = max(server.at for server in queue.inspect.servicing().servers)
    assert queue.inspect.servicing().expected() == mail + timedelta(minutes=1)
    clock.advance(90)
    assert queue.inspect.servicing().expected() == five
    clock.advance(600)
    assert queue.inspect.servicing().expected() == max(five, mail + timedelta(minutes=1))


def test_dag_that_stopped_planning(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue()
    rewind(clock, 3 * 300 + 10)
    run_blocks(queue, clock, 300)
    (server,) = queue.inspect.servicing().servers
    clock.advance(10)
    queue.enqueue_message("acme", b"x")
    clock.advance(290)
    assert sentence(queue) == f"{NEXT.replace('The', 'the')} of {DAG}."
    assert queue.inspect.servicing().of_queues(queue.inspect.ring().queues) == []

    clock.advance(240)

    since = f"No block has been planned since {when(server.at)} (9 min; usually every 5 min)."
    assert sentence(queue) == f"{since} Is DAG first_steps paused? {NEXT} of {DAG}."
    assert queue.inspect.explain("acme").remedies == ["airflow dags unpause first_steps"]
    (overdue,) = queue.inspect.servicing().of_queues(queue.inspect.ring().queues)
    assert overdue.sentence == f"{since} Is DAG first_steps paused?"
    assert overdue.brief == "No block for 9 min; usually every 5 min"
    told = {
        state: queue.inspect.explain("acme", is_dag_paused=lambda server, state=state: state).sentence
        for state in (True, False)
    }
    assert told[True].startswith(f"{since} DAG first_steps is paused. {NEXT}")
    assert told[False].startswith(f"{since} DAG first_steps is not paused: look at its latest runs. {NEXT}")


def test_paused_dag_is_named_before_its_plan_is_late(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue()
    rewind(clock, 3 * 300)
    run_blocks(queue, clock, 300)
    queue.enqueue_message("acme", b"x")
    clock.advance(60)

    assert sentence(queue).startswith("the first message")
    paused = queue.inspect.explain("acme", is_dag_paused=lambda server: server.dag_id == "first_steps")
    assert "(60 s; usually every 5 min). DAG first_steps is paused." in paused.sentence


def test_active_server_compensates_for_a_paused_dag(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue()
    run_blocks(queue, clock, 300, server=MAIL)
    run_block(queue)
    queue.enqueue_message("acme", b"x")

    assert queue.inspect.explain(
        "acme", is_dag_paused=lambda server: server.dag_id == "first_steps"
    ).sentence.startswith("the")
    paused = queue.inspect.explain("acme", is_dag_paused=lambda server: True).sentence
    assert "DAG first_steps is paused." in paused


def test_message_waits_from_its_sending(make_queue: Maker, clock: Clock) -> None:
    """A DAG that events start may have been quiet for hours when a message arrives."""
    queue = make_queue()
    rewind(clock, 3 * 20 + 3 * 3_600)
    run_blocks(queue, clock, 20)
    clock.advance(3 * 3_600)
    queue.enqueue_message("acme", b"x")
    clock.advance(30)
    assert sentence(queue).startswith("the first message")

    clock.advance(60)
    assert "(3 h; usually every 20 s). Is DAG first_steps paused?" in sentence(queue)


def test_dag_without_a_plan_for_days_is_named_for_a_new_message(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue()
    rewind(clock, 3 * 300 + 3 * 86_400)
    run_blocks(queue, clock, 300)
    clock.advance(3 * 86_400)
    queue.enqueue_message("acme", b"x")

    assert "(3 d; usually every 5 min). Is DAG first_steps paused?" in sentence(queue)


def test_single_plan_has_no_usual_interval(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue()
    run_block(queue)
    queue.enqueue_message("acme", b"x")
    clock.advance(540)
    assert sentence(queue).startswith("the first message")

    clock.advance(120)

    assert "(11 min). Is DAG first_steps paused?" in sentence(queue)


def test_plans_of_one_run_are_no_interval(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue()
    for _ in range(3):
        run_blocks(queue, clock, 0.1, 4)
        clock.advance(300)
    queue.enqueue_message("acme", b"x")
    clock.advance(100)

    assert sentence(queue).startswith("the first message")


def test_service_in_place_counts(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue()
    serve_often(queue, clock, 4)
    clock.advance(20)
    assert sentence(queue).startswith("the first message")

    clock.advance(100)

    assert "Nothing has serviced this ring since" in sentence(queue)
    assert "(2 min; usually every 5 s). Is the program of tester running?" in sentence(queue)


def test_calls_that_a_person_repeats_are_no_schedule(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue()
    serve_often(queue, clock, 3)
    clock.advance(540)
    assert sentence(queue).startswith("the first message") and queue.inspect.servicing().expected() is None

    clock.advance(120)

    assert "(11 min). Is the program of tester running?" in sentence(queue)


def test_origins_have_servers_of_their_own(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue()
    rewind(clock, 4 * 300)
    run_block(queue, DAG, "acme")
    for _ in range(4):
        clock.advance(300)
        run_block(queue, MAIL, "m*")
    queue.enqueue_message("acme", b"x")
    queue.enqueue_message("mail", b"x")
    clock.advance(300)
    assert sentence(queue).startswith("the first message")
    clock.advance(400)
    run_block(queue, MAIL, "other")
    queue.blocks.settle(queue.blocks.plan(server=in_airflow(MAIL), origins=["m*"], limit=Weight(0, 0)))

    assert sentence(queue).startswith("No block that takes acme has been planned since ")
    assert sentence(queue, "mail").startswith("the first message of mail")


def test_block_in_progress_is_awaited(make_queue: Maker, clock: Clock) -> None:
    queue = make_queue()
    run_blocks(queue, clock, 60)
    clock.advance(60)
    queue.enqueue_message("other", b"x")
    queue.blocks.plan(server=in_airflow(DAG), lease=1_200)
    queue.enqueue_message("acme", b"x")
    clock.advance(900)
    assert sentence(queue).startswith("the first message")

    clock.advance(400)

    assert "(22 min; usually every 60 s). Is DAG first_steps paused?" in sentence(queue)


@pytest.mark.parametrize("origin", ["a", "the", "acme/orders"])
def test_origin_keeps_its_letters(make_queue: Maker, origin: str) -> None:
    queue = make_queue()
    queue.enqueue_message(origin, b"x")
    (address,) = [peeked.address for peeked in queue.inspect.peek(origin)]

    assert f"ring. {origin}:0:0 runs" in queue.inspect.explain_message(address).sentence


def test_a_program_that_leases_messages_needs_no_block(queue: MessageQueue, clock: Clock) -> None:
    rewind(clock, 0)
    queue.enqueue_messages("acme", [b"1", b"2"])
    queue.enqueue_message("birch", b"3")
    clock.advance(3600)
    overdue = [len(queue.inspect.servicing().of_queues(queue.inspect.ring().queues))]
    token = queue.leases.next()
    assert token is not None
    overdue.append(len(queue.inspect.servicing().of_queues(queue.inspect.ring().queues)))
    clock.advance(3600)
    overdue.append(len(queue.inspect.servicing().of_queues(queue.inspect.ring().queues)))
    assert overdue == [1, 0, 1], "its lease has ended"


def test_a_program_that_leases_messages_of_an_origin_services_no_other(queue: MessageQueue, clock: Clock) -> None:
    rewind(clock, 0)
    queue.enqueue_messages([("acme", b"1"), ("birch", b"2")])
    clock.advance(3600)
    assert queue.leases.view("acme", lease=86_400).try_next()
    servicing = queue.inspect.servicing()
    assert [servicing.overdue(origin, None) is None for origin in ("acme", "birch")] == [True, False]


def test_messages_that_wait_for_no_block_are_not_overdue(make_queue: Maker) -> None:
    queue = make_queue()
    queue.enqueue_message("acme", b"x")
    queue.admin.pause("acme", reason="they asked")

    assert sentence(queue).startswith("acme is paused")
    assert queue.inspect.servicing().of_queues(queue.inspect.ring().queues) == []
