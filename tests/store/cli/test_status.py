"""`status`: one screen for a person on call."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from airflow_mq import MessageQueue, Weight, Yield
from tests.store.cli.conftest import Terminal

DAG = "DAG 'orders' of Airflow 'west', task 'block.plan'"


def settle(queue: MessageQueue, server: str = DAG) -> None:
    block = queue.blocks.plan(server=server)
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)


def test_an_empty_ring_names_the_first_step(mq: Terminal) -> None:
    told = mq("status").out
    assert "0 messages (0 B) in 0 queues" in told and "airflow-mq enqueue acme" in told
    assert "nothing yet: start a DAG with block(), or a worker: airflow-mq service --help" in told
    assert "nothing that was checked needs a person" in told
    found = mq.json("status")
    assert (found["ok"], found["findings"], found["queues"]) == (True, [], [])


def test_it_names_what_it_did_not_look_at(mq: Terminal, queue: MessageQueue) -> None:
    told = mq("status").out.partition("not checked:")[2]
    assert "airflow-mq check" in told and "airflow-mq doctor" in told and "queue list" not in told
    queue.enqueue_messages((f"o{number:03}", b"x") for number in range(101))
    assert "queues after the first 100" in mq("status").out.partition("not checked:")[2]
    assert len(mq.json("status")["queues"]) == 100


def test_who_services_it_and_when_the_next_block_is_expected(mq: Terminal, queue: MessageQueue) -> None:
    queue.enqueue_messages("acme", [b"x"] * 3)
    settle(queue)
    told = mq("status").out
    assert "DAG 'orders', task 'block.plan', last " in told and "expected" not in told
    (server,) = queue.inspect.servicing().servers
    assert queue.inspect.servicing().usual_interval(server) is None
    time.sleep(1.1)  # plans closer together are of one run
    settle(queue)
    told = mq("status").out
    assert "expected at" in told and "UTC, every " in told
    servicing = mq.json("status")["servicing"]
    assert servicing["servers"][0]["usual_interval"] > 1


def test_what_waits_and_what_is_skipped(mq: Terminal, queue: MessageQueue) -> None:
    for number in range(7):
        queue.enqueue_messages(f"o{number}", [b"x" * 10] * (number + 1))
    queue.enqueue_message("later", b"x", not_before=timedelta(hours=1))
    queue.admin.pause("o3", "their API is down")
    told = mq("status").out
    assert "28 messages (280 B) in 7 queues" in told and "; 1 delayed" in told and "1 pause" in told
    assert "1 of the first 7 queues: 1 paused" in told and "Paused: their API is down" in told
    assert " o4 " in told and " o5 " not in told, "the first five queues"
    assert "airflow-mq explain ORIGIN" in told and "airflow-mq queue list --sort oldest" in told
    assert mq.json("status")["backlog"]["waiting"] == 28


def test_messages_that_fail_again_and_again_are_named_while_they_are_delayed(mq: Terminal, queue: MessageQueue) -> None:
    queue.admin.change_ring(ordered=False, backoff=600)
    queue.enqueue_message("later", b"x", not_before=timedelta(hours=1))
    queue.enqueue_message("acme", b"x")
    for _ in range(3):
        queue.admin.resume("acme")
        block = queue.blocks.plan()
        queue.blocks.report(block, [batch.answer(Yield("their API is down")) for batch in block.batches()])
        queue.blocks.settle(block)
    told = mq("status", code=1).out
    assert "the delayed message of acme was tried 3 times without success" in told
    assert "-> airflow-mq explain acme" in told and "1 thing for a person to decide" in told
    assert "the delayed message of acme" in mq("doctor", code=1).out
    queue.admin.pause("acme", "their API is down")
    assert "was tried" not in mq("status").out


def test_delayed_messages_below_a_paused_group_need_no_person(mq: Terminal, queue: MessageQueue) -> None:
    queue.admin.change_ring(ordered=False, backoff=600, paths=True)
    queue.enqueue_message("acme/x", b"x")
    queue.service_queues(lambda delivery: Yield("their API is down"))
    assert "the delayed message of acme/x was tried 1 time without success" in mq("status").out
    queue.admin.pause("acme", "their API is down", below=True)
    assert "was tried" not in mq("status").out


def test_delayed_messages_that_were_not_looked_at_are_named(mq: Terminal, queue: MessageQueue) -> None:
    queue.enqueue_messages([("later", b"x")] * 101, not_before=timedelta(hours=1))
    assert "delayed messages after the first 100" in mq("status").out.partition("not checked:")[2]


@pytest.mark.parametrize("ring", ["default", "night"])
def test_what_needs_a_person_is_named_with_a_command(mq: Terminal, ring: str) -> None:
    if ring != "default":
        mq("ring", "create", ring)
    with MessageQueue(mq.uri, ring) as queue:
        queue.enqueue_message("acme", b"x")
        queue.enqueue_message("heavy", b"x", weight=Weight(1 << 40, 0))
        settle(queue)
        assert mq("status", "--ring", ring, code=1).out.count("->") == 1
        queue.enqueue_message("acme", b"x")
        block = queue.blocks.plan(lease=0.01)
        time.sleep(0.05)
    told = mq("status", "--ring", ring, code=1).out
    of_ring = "" if ring == "default" else f" --ring {ring}"
    assert f"1 message waits for a decision\n       -> airflow-mq set-aside list{of_ring}\n" in told
    assert "past its deadline" in told and f"block release {block.token}" in told
    assert "2 things for a person to decide" in told
    found = mq.json("status", "--ring", ring, code=1)
    assert found["ok"] is False and [one["level"] for one in found["findings"]] == ["wrong", "wrong"]
