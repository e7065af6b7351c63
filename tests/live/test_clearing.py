"""A run that is cleared as a whole, with more and with fewer messages than before."""

from __future__ import annotations

from tests.live.conftest import World

DAG, RING = "in_place", "cleared"


def test_a_cleared_run_settles_what_it_planned(world: World) -> None:
    world.make_ring(RING)
    world.send(RING, range(3), seconds=0)
    run = world.airflow.trigger(DAG, {"ring": RING})
    assert world.airflow.wait(DAG, run) == "success"
    for numbers in (range(0), range(3, 6)):
        # Without messages, Airflow removes the parts; settling must not overtake the plan of the next ones.
        world.send(RING, numbers, seconds=0)
        world.airflow.clear(DAG, run)
        assert world.airflow.wait(DAG, run) == "success"
        with world.queue(RING) as queue:
            assert queue.blocks.list("planned") == []
    world.assert_all_settled_once(RING, 6)
