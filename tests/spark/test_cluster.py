"""A real cluster: a master and two workers on this machine, started as the pip package has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_mq import MessageQueue, Processor
from airflow_mq.engine.store import parse
from airflow_mq.spark import exchange
from airflow_mq.spark.lease import BlockLease
from tests.spark.cluster import Cluster
from tests.spark.conftest import job_command, job_environment, processors, whole
from tests.spark.functions import all_tried
from tests.spark.watching import Watched, files_with
from tests.waiting import eventually

MakeRing = Callable[..., MessageQueue]
pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()


CONF = {
    "spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.driver.host": "127.0.0.1",
    "spark.eventLog.enabled": "true", "spark.eventLog.compress": "false",
}  # fmt: skip


def test_a_worker_that_is_killed_costs_nothing(
    cluster: Cluster, pg_uri: str, make_ring: MakeRing, tmp_path: Path
) -> None:
    queue = make_ring(pg_uri)
    for origin in ("a", "b", "c", "d"):
        queue.enqueue_messages(origin, [b"slow 0.05"] * 60)
    queue.enqueue_messages("arrow", [b"1", b"bad"])
    block = queue.blocks.plan(lease=600)
    routes = processors(Processor("arrow", "tests.spark.functions:arrow", ("arrow",), "arrow"))
    events = tmp_path / "events"
    events.mkdir()
    command = job_command(
        routes, "--lease", "120", master=cluster.master, **CONF, **{"spark.eventLog.dir": str(events)}
    )
    job = Watched(command, job_environment(pg_uri, block.token), tmp_path / "job.log")
    try:
        eventually(lambda: len(all_tried(cluster.folder / "tried")) > 20 and cluster.workers(), 300)
        victim = cluster.workers()[0]
        victim.kill()

        assert job.wait() == 0, job.said()
    finally:
        job.end()
    settled = queue.blocks.settle(block)
    assert (settled.processed, settled.failed, settled.returned) == (241, 1, 0)
    counts = Counter((event.origin, event.page, event.index) for event in queue.inspect.events())
    assert set(counts.values()) == {1}
    password = parse(pg_uri).password
    assert password
    for secret in (password, block.token):
        assert secret not in job.said()
        assert not [line for line in job.command_lines if secret in line]
        assert not files_with(events, secret) + files_with(cluster.folder, secret)


def test_a_cluster_that_cannot_reach_the_store(cluster: Cluster, make_ring: MakeRing, tmp_path: Path) -> None:
    queue = make_ring()
    for origin in ("a", "{{ b }}", "--conf c"):
        queue.enqueue_messages(origin, [b"1", bytes(range(256)), b"used", b"enqueue new", b"2"])
    queue.enqueue_messages("poisoned", [b"poison", b"behind it"])
    queue.enqueue_messages("deadly", [b"1", b"die", b"behind it"])
    queue.enqueue_messages("frame", [b"1", b"bad"])
    block = queue.blocks.plan(lease=600)
    routes = processors(Processor("frame", "tests.spark.functions:frame", ("frame",), "dataframe"))
    folder = exchange.hand_over(queue, block.token, routes, whole(routes), str(tmp_path / "exchange"))
    command = job_command(
        routes, "--exchange", folder, master=cluster.master, **CONF, **{"spark.eventLog.dir": str(tmp_path)}
    )
    environment = job_environment("", "")
    del environment["AIRFLOW_MQ_STORE"], environment["AIRFLOW_MQ_BLOCK"]
    job = Watched(command, environment, tmp_path / "job.log")
    try:
        with BlockLease(queue, block.token, 30):
            assert job.wait() == 0, job.said()
            exchange.take_back(queue, block.token, folder)
    finally:
        job.end()

    settled = queue.blocks.settle(block)
    assert exchange.sweep(queue, str(tmp_path / "exchange")) == 1

    assert (settled.processed, settled.failed, settled.returned) == (17, 1, 4)
    assert [(p.payload, p.attempts) for p in queue.inspect.peek("deadly")] == [(b"die", 1), (b"behind it", 0)]
    assert queue.footprint("new").count == 6
    assert not list((tmp_path / "exchange").iterdir())
