"""Decisions of people, over the API as the forms send them: by hand, and with an approval."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from itertools import count

import pytest

from airflow_mq import Weight
from airflow_mq.testing.loopback import Refused
from airflow_mq.testing.scratch import assert_sound
from tests.live.conftest import World

HEAVY = Weight(700_000, 10)
ENOUGH = {"limit": "800s/1kB"}
NUMBERS = count(1_000)


@pytest.fixture
def world(world: World) -> Iterator[World]:
    """Discard the messages that a test leaves waiting."""
    yield world
    with world.queue() as queue:
        queue.set_aside.discard([one.address for one in queue.set_aside.list()], "the test is over")


def set_aside(world: World) -> tuple[str, int]:
    """The address of a message that no block takes, and its number."""
    number = next(NUMBERS)
    payload = json.dumps({"ring": "default", "number": number}).encode()
    with world.queue() as queue:
        queue.enqueue_message(f"log/heavy-{number}", payload, weight=HEAVY)
        queue.blocks.settle(queue.blocks.plan())
        (waiting,) = queue.set_aside.list(f"log/heavy-{number}")
    return str(waiting.address), number


def is_waiting(world: World, address: str) -> bool:
    with world.queue() as queue:
        assert_sound(queue)
        return address in [str(one.address) for one in queue.set_aside.list()]


def test_a_message_is_executed_by_hand(world: World) -> None:
    address, number = set_aside(world)
    run = world.airflow.trigger("overweight_by_hand", {"address": address, **ENOUGH})
    assert world.airflow.wait("overweight_by_hand", run) == "success"
    assert not is_waiting(world, address)
    assert world.processed("default")[number] == 1
    with world.queue() as queue:
        (event,) = queue.inspect.events(origin=address.partition(":")[0], name="Executed")
    assert "admin" in event.detail


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"adress": "x"}, "unknown param 'adress'"),
        ({"limit": "1ms/1kB"}, "it weighs 700 s · 10 B; raise the limit"),
    ],
    ids=["a key that the form has not", "too little weight"],
)
def test_what_cannot_be_is_refused_and_changes_nothing(world: World, said: dict[str, object], told: str) -> None:
    address, number = set_aside(world)
    run = world.airflow.trigger("overweight_by_hand", {"address": address, **ENOUGH, **said})
    assert world.airflow.wait("overweight_by_hand", run) == "failed"
    assert told in world.airflow.log("overweight_by_hand", run, "execute")
    assert is_waiting(world, address)
    assert world.processed("default")[number] == 0


@pytest.mark.parametrize("said", [{}, {"address": "nothing"}, {"address": "a:0:0", "limit": "-1/1"},
                                  {"address": "a:0:0", "processor": "os:system"}])  # fmt: skip
def test_what_the_form_would_not_send_is_refused_by_the_api(world: World, said: dict[str, object]) -> None:
    with pytest.raises(Refused) as refusal:
        world.airflow.trigger("overweight_by_hand", said)
    assert refusal.value.status in (400, 422)


def think(world: World, run: str) -> None:
    """No person answers at once, and Airflow counts on it.

    A task that is answered before its executor has reported its release looks like one that ended unasked. The
    scheduler logs that it has compared both; if it is ever logged in other words, the test continues after a minute.
    """
    log, give_up = world.airflow.home / "scheduler.log", time.monotonic() + 60
    heard = re.compile(rf"TaskInstance Finished: .*task_id=approve, run_id={re.escape(run)},")
    while not heard.search(log.read_text(errors="replace")) and time.monotonic() < give_up:
        time.sleep(0.2)


def test_a_message_is_executed_once_it_is_approved(world: World) -> None:
    address, number = set_aside(world)
    dag = "overweight_with_approval"
    run = world.airflow.trigger(dag, {"address": address})
    world.airflow.wait_task(dag, run, "approve", {"awaiting_input", "deferred"})
    (asked,) = world.airflow.get(f"dags/{dag}/dagRuns/~/hitlDetails", response_received="false")["hitl_details"]
    assert address in asked["subject"] and "weighs 700 s · 10 B; a block takes " in asked["body"]
    # The answer needs no waiting.
    assert is_waiting(world, address)
    think(world, run)
    world.airflow.answer(dag, run, "approve", "Approve", **ENOUGH)
    assert world.airflow.wait(dag, run) == "success"
    assert not is_waiting(world, address)
    assert world.processed("default")[number] == 1


def test_a_message_stays_where_it_is_when_it_is_rejected(world: World) -> None:
    address, number = set_aside(world)
    dag = "overweight_with_approval"
    run = world.airflow.trigger(dag, {"address": address})
    world.airflow.wait_task(dag, run, "approve", {"awaiting_input", "deferred"})
    think(world, run)
    world.airflow.answer(dag, run, "approve", "Reject", **ENOUGH)
    world.airflow.wait(dag, run)
    states = {task["task_id"]: task["state"] for task in world.airflow.tasks(dag, run)}
    expected = {"describe": "success", "approve": "success", "execute": "skipped"}
    assert states == expected, world.airflow.log(dag, run, "approve")
    assert is_waiting(world, address)
    assert world.processed("default")[number] == 0
