"""Events are hints: many at once, or none at all, and every message is served (F15)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from airflow_mq.testing.scratch import assert_sound
from tests.live.conftest import World

DAG = "event_driven_block"
EVENTS = 50


@pytest.fixture
def world(world: World) -> Iterator[World]:
    world.airflow.wait_dag(DAG)
    world.airflow.unpause(DAG)
    yield world
    # Between two runs: a run of a paused DAG stands still.
    give_up = time.monotonic() + 600
    while time.monotonic() < give_up:
        if not active(world):
            world.airflow.unpause(DAG, paused=True)
            if not active(world):
                return
            world.airflow.unpause(DAG)
        time.sleep(0.3)
    raise AssertionError(f"{DAG} never rests")


def active(world: World) -> list[str]:
    return [run["dag_run_id"] for run in world.airflow.runs(DAG) if run["state"] in ("queued", "running")]


def wait_served(world: World, numbers: range, timeout: float) -> float:
    """Wait until all of these were processed, and return the seconds."""
    began = time.monotonic()
    while missing := set(numbers) - set(world.processed("default")):
        assert time.monotonic() - began < timeout, f"{len(missing)} messages were not served, {sorted(missing)[:5]}"
        time.sleep(0.1)
    return time.monotonic() - began


@pytest.mark.postgres_first
def test_fifty_events_while_a_block_runs(world: World) -> None:
    world.send("default", range(0, 3), origin="log/slow", seconds=3)
    wait_served(world, range(0, 1), 180)
    (asset,) = world.airflow.get("assets", name_pattern="airflow-mq-ready")["assets"]
    for number in range(100, 100 + EVENTS):
        world.send("default", range(number, number + 1), origin="log/more", seconds=0)
        world.airflow.call("POST", "assets/events", {"asset_id": asset["id"], "extra": {}})
    wait_served(world, range(100, 100 + EVENTS), 180)
    # One block for many events: that is what makes a block worth its while.
    assert len(world.airflow.runs(DAG)) < EVENTS / 2
    assert all(count == 1 for count in world.processed("default").values())


@pytest.mark.sqlite_first
def test_all_events_lost(world: World) -> None:
    world.airflow.kill("triggerer")
    try:
        world.send("default", range(200, 230), origin="log/lost", seconds=0)
        wait_served(world, range(200, 230), 180)
    finally:
        world.airflow.restart("triggerer")
    with world.queue() as queue:
        assert_sound(queue)


@pytest.mark.postgres_first
def test_an_event_is_answered_soon(world: World) -> None:
    for number in range(300, 303):
        world.send("default", range(number, number + 1), origin="log/soon", seconds=0)
        seconds = wait_served(world, range(number, number + 1), 180)
        print(f"from enqueue to processed: {seconds:.1f} s")
