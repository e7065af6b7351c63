"""Whole blocks, plan to settle: in place, on `local[2]`, and on a standalone cluster of one and of two workers."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from airflow_mq import MessageQueue, Processor, Processors, RingConfig, Weight
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.spark.java import local_conf
from airflow_mq.spark.store_side import run_in_place
from lab.benchmarks.spark_meter import measured
from lab.benchmarks.stats import Sample
from tests.postgres_server import Server
from tests.spark.cluster import HOSTS, Cluster
from tests.spark.conftest import job_command, job_environment, run_job, whole

ORIGINS = 100
#: Names the microseconds that each message takes.
WORK = "AIRFLOW_MQ_BENCH_WORK"
ROUTES = Processors([Processor("all", "lab.benchmarks.spark_blocks:work")])
IN_PLACE = "in place"
#: Messages up to which a local job uses settings for short jobs.
SMALL = 100_000


def work(payload: bytes, origin: str) -> None:
    """Keep a core busy for the configured time."""
    microseconds = float(os.environ.get(WORK, "0"))
    if microseconds:
        until = time.perf_counter() + microseconds / 1e6
        while time.perf_counter() < until:
            pass


class Blocks:
    """A ring that is filled and serviced, block after block."""

    def __init__(self, server: Server, size: int) -> None:
        self.server, self.size, self.uri = server, size, server.create_database()
        upgrade(parse(self.uri))
        config = RingConfig(service_weight=Weight(1 << 50, 1 << 50), lease=7_200)
        with MessageQueue(self.uri) as first:
            first.admin.create_ring("test", config)
        self.queue = MessageQueue(self.uri, "test")

    def fill(self, count: int) -> None:
        """Enqueue messages of the size, in calls of 1,000 to one origin."""
        payloads = [os.urandom(self.size) for _ in range(1_000)]
        for call in range(-(-count // 1_000)):
            part = payloads[: min(1_000, count - call * 1_000)]
            self.queue.enqueue_messages(f"tenant-{call % ORIGINS:03}", part)

    def run(self, count: int, master: str, microseconds: int) -> Sample:
        """Measure one block of all messages."""
        self.fill(count)
        os.environ[WORK] = str(microseconds)
        steps: dict[str, float] = {}

        def block() -> None:
            begun = time.monotonic()
            planned = self.queue.blocks.plan()
            steps["plan"] = time.monotonic() - begun
            if master == IN_PLACE:
                run_in_place(self.queue, planned.token, ROUTES, whole(ROUTES))
            else:
                command = job_command(ROUTES, master=master, **_conf(master, count))
                code, said = run_job(command, job_environment(self.uri, planned.token))
                assert code == 0, said[-3000:]
            steps["job"] = time.monotonic() - begun - steps["plan"]
            settled = self.queue.blocks.settle(planned)
            assert settled.processed == count, settled

        took = measured(block, self.server.pid)
        return {"measure": "spark_blocks", "contender": "ours", "count": count, "work": microseconds, **took, **steps}


def _conf(master: str, count: int) -> dict[str, str]:
    if master.startswith("local"):
        return local_conf(small=count <= SMALL)
    work = {f"spark.executorEnv.{WORK}": os.environ[WORK]}
    return {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1", **work}


@contextmanager
def masters(folder: Path) -> Iterator[dict[str, str]]:
    """Yield the masters by name; the clusters wait without work while another one is measured."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    found = {IN_PLACE: IN_PLACE, "`local[2]`": "local[2]"}
    with ExitStack() as stack:
        for count in (1, 2):
            place = folder / f"cluster-{count}"
            place.mkdir()
            cluster = Cluster(place, hosts=HOSTS[:count])
            stack.callback(cluster.close)
            found[f"cluster, {count} worker{'s' if count > 1 else ''}"] = cluster.master
        yield found


def measure(server: Server, folder: Path, sizes: list[int], size: int, works: list[int]) -> list[Sample]:
    """Measure blocks of each number of messages without work, and of the smallest one with work."""
    found: list[Sample] = []
    with masters(folder) as known:
        blocks = Blocks(server, size)
        for count, microseconds in [*((count, 0) for count in sizes), *((sizes[0], one) for one in works)]:
            for name, master in known.items():
                sample = {"variant": name, **blocks.run(count, master, microseconds)}
                print(f"block: {sample}", flush=True)
                found.append(sample)
        blocks.queue.close()
    return found
