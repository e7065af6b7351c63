"""Runs that call for each other until a ring is empty, beside another DAG on the same ring."""

from __future__ import annotations

import time

import pytest

from tests.live.conftest import World

DAG, RING, ROUNDS, LIMIT = "nightly_drain", "drain", 3, 4


def ended(world: World, expected: int = 0) -> int:
    """Wait for so many runs, and until none has begun or waited for some seconds; return how many there are.

    A run that the schedule starts when the DAG is unpaused does not count.
    """
    give_up, quiet = time.monotonic() + 400, time.monotonic()
    while time.monotonic() < quiet + 8:
        runs = world.airflow.runs(DAG)
        count = sum(run["run_type"] != "scheduled" for run in runs)
        assert time.monotonic() < give_up, [run["state"] for run in runs]
        if count < expected or any(run["state"] in ("queued", "running") for run in runs):
            quiet = time.monotonic()
        time.sleep(0.5)
    assert {run["state"] for run in runs} <= {"success"}
    return count


@pytest.mark.postgres_first
def test_a_drain_ends_when_the_ring_is_empty_or_its_rounds_are_over(world: World) -> None:
    world.make_ring(RING)
    world.airflow.wait_dag(DAG)
    world.airflow.unpause(DAG)
    before = ended(world)
    try:
        world.send(RING, range(0, 8), origin="log/drain", seconds=0)
        world.airflow.trigger(DAG, {})
        assert ended(world, before + 2) == before + 2, "the third block would be empty"
        assert set(world.processed(RING)) == set(range(8))

        world.send(RING, range(8, 24), origin="log/drain", seconds=0)
        world.airflow.trigger(DAG, {})
        assert ended(world, before + 2 + ROUNDS) == before + 2 + ROUNDS
        assert len(world.processed(RING)) == 8 + ROUNDS * LIMIT

        # Another DAG services the ring meanwhile, and the rounds begin anew.
        world.send(RING, range(24, 32), origin="log/drain", seconds=0.2)
        world.airflow.trigger(DAG, {})
        assert world.run_block("in_place", RING) == "success"
        ended(world, before + 3 + ROUNDS)
    finally:
        world.airflow.unpause(DAG, paused=True)
    world.assert_all_settled_once(RING, 32)
