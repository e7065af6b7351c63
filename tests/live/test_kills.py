"""Kills in the middle of a block, of real processes (F3, F4): the next blocks finish, and nothing is settled twice."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress

import psutil
import pytest

from airflow_mq.testing.live import ENDED, LiveAirflow
from tests.live import processors
from tests.live.conftest import World

pytestmark = pytest.mark.postgres

COUNT = 40
#: The message that is held: without it no block ends before the kill, however busy the machine is.
LAST = COUNT - 1
#: The same moments in each run; `MQ_SEED` draws others.
SEED = int(os.environ.get("MQ_SEED", "1"))


@pytest.fixture
def world(worlds: dict[str, World]) -> World:
    """On PostgreSQL, where kills of the scheduler leave connections and locks behind."""
    return worlds["postgres"]


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    print(f"MQ_SEED={SEED}")
    return random.Random(f"{SEED} {request.node.name}")


def begin(world: World, ring: str, chance: random.Random, dag_id: str = "in_place") -> str:
    """Trigger a block, and wait until a part of it, drawn at random, has been processed."""
    world.make_ring(ring)
    world.send(ring, range(COUNT))
    run = world.airflow.trigger(dag_id, {"ring": ring})
    wanted = chance.randint(1, COUNT // 2)
    wait_until(lambda: len(world.processed(ring)) >= wanted, f"{wanted} messages were processed")
    return run


def finish(world: World, ring: str, dag_id: str = "in_place") -> None:
    """The next blocks finish the work."""
    for _ in range(3):
        assert world.run_block(dag_id, ring) == "success"
        with world.queue(ring) as queue:
            if not queue.inspect.ring_order(1):
                break
    world.assert_all_settled_once(ring, COUNT)


def wait_until(done: Callable[[], bool], what: str, timeout: float = 300) -> None:
    deadline = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < deadline, f"it did not come to pass that {what}"
        time.sleep(0.05)


def kill_component(component: str) -> Callable[[LiveAirflow], None]:
    def kill(airflow: LiveAirflow) -> None:
        airflow.kill(component)
        airflow.restart(component)

    return kill


@pytest.mark.parametrize("component", ["scheduler", "api-server", "triggerer"])
def test_a_component_dies_in_the_middle_of_a_block(world: World, component: str, chance: random.Random) -> None:
    ring = f"without-{component}"
    with world.holding(ring, LAST):
        run = begin(world, ring, chance)
        kill_component(component)(world.airflow)
    world.airflow.wait("in_place", run)
    finish(world, ring)


def test_the_settling_task_is_killed(world: World, chance: random.Random) -> None:
    ring = "without-settle"
    run = begin(world, ring, chance)
    # On a busy machine it may end between two looks; mostly it does not.
    task = world.airflow.wait_task("in_place", run, "block.settle", {"running", *ENDED})
    time.sleep(chance.random() / 2)
    if task["state"] == "running":
        with suppress(ProcessLookupError):
            os.kill(task["pid"], signal.SIGKILL)
    world.airflow.wait("in_place", run)
    finish(world, ring)


def test_a_task_that_processes_is_killed(world: World, chance: random.Random) -> None:
    ring = "without-process"
    with world.holding(ring, LAST):
        run = begin(world, ring, chance)
        os.kill(processors.read(world.diary, ring)[-1]["pid"], signal.SIGKILL)
    assert world.airflow.wait("in_place", run) == "failed"
    finish(world, ring)


@pytest.mark.spark
def test_the_driver_and_a_python_worker_of_spark_are_killed(world: World, chance: random.Random) -> None:
    ring = "without-spark"
    with world.holding(ring, LAST):
        run = begin(world, ring, chance, "on_spark")
        (driver,) = spark_processes(world.airflow, is_driver)
        driver.kill()
    assert world.airflow.wait("on_spark", run) == "failed"

    before = world.processed(ring).total()
    with world.holding(ring, LAST):
        run = world.airflow.trigger("on_spark", {"ring": ring})
        # The first of them, whether or not the other driver's workers had it too: so there is still much to do.
        wait_until(lambda: world.processed(ring).total() > before, "another message was processed")
        chance.choice(spark_processes(world.airflow, is_worker)).kill()
    world.airflow.wait("on_spark", run)
    finish(world, ring, "on_spark")


def is_driver(words: str) -> bool:
    return "spark/job.py" in words and "java" not in words.split()[0]


def is_worker(words: str) -> bool:
    return "pyspark.daemon" in words or "pyspark/daemon" in words


def spark_processes(airflow: LiveAirflow, wanted: Callable[[str], bool]) -> list[psutil.Process]:
    found = []
    for process in airflow.processes():
        with suppress(psutil.Error):
            if wanted(" ".join(process.cmdline())):
                found.append(process)
    return found
