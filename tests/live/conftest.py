"""A real Airflow for these tests, with a store: started once for each kind of metadata."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_mq import Message, MessageQueue, RingConfig
from airflow_mq.cli.dev import connection_of
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.examples import orders
from airflow_mq.testing.home import USER
from airflow_mq.testing.live import LiveAirflow
from airflow_mq.testing.scratch import assert_sound
from tests.airflow.receivers import Collector, collector
from tests.live import processors
from tests.postgres_server import Servers

HERE = Path(__file__).parent
#: Who may look, and change nothing.
VIEWER = "viewer"
REPOSITORY = HERE.parents[1]
#: What these tests have otherwise in the repository's DAGs: a processor that writes down, a net that is soon there.
CHANGES = {
    "processing_rules.py": ("airflow_mq.examples.simple:log", "tests.live.processors:slow"),
    "event_driven_block.py": ("timedelta(minutes=5)", "timedelta(seconds=60)"),
    "nightly_drain.py": ("rounds=50", "rounds=3, ring='drain', limit=[4, 1 << 20]"),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this folder is slow, and needs Airflow; first those who bring their own, then one world after the other."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.airflow)
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    if HERE not in item.path.parents or "worlds" not in getattr(item, "fixturenames", ()):
        return 0
    return 2 if item.get_closest_marker("postgres") else 1


@dataclass
class World:
    """An Airflow, a store, a folder for what the processors write, and what listens to its traces."""

    airflow: LiveAirflow
    store: str
    place: Path
    collector: Collector

    @property
    def diary(self) -> Path:
        return self.place / "diary"

    def queue(self, ring: str = "default") -> MessageQueue:
        return MessageQueue(self.store, ring)

    def make_ring(self, ring: str, **settings: Any) -> None:
        with self.queue() as queue:
            queue.admin.create_ring(ring, RingConfig(**settings))

    def send(self, ring: str, numbers: range, origin: str = "origin", **said: Any) -> None:
        """Send numbered messages of five origins."""
        pairs = [
            (f"{origin}-{n % 5}", Message(json.dumps({"ring": ring, "number": n, **said}).encode())) for n in numbers
        ]
        with self.queue(ring) as queue:
            queue.enqueue_messages(pairs)

    @contextlib.contextmanager
    def holding(self, ring: str, number: int) -> Iterator[None]:
        """Let the processor of this message not end."""
        gate = processors.gate_of(self.diary, ring, number)
        gate.close()
        try:
            yield
        finally:
            gate.open()

    def processed(self, ring: str) -> Counter[int]:
        """How often each number was processed."""
        return Counter(said["number"] for said in processors.read(self.diary, ring))

    def run_block(self, dag_id: str, ring: str, timeout: float = 300) -> str:
        return self.airflow.wait(dag_id, self.airflow.trigger(dag_id, {"ring": ring}), timeout)

    def assert_all_settled_once(self, ring: str, count: int) -> None:
        """Nothing lost, nothing settled twice, and all that is stored is sound."""
        with self.queue(ring) as queue:
            events = Counter((e.origin, e.page, e.index) for e in queue.inspect.events() if e.name == "Processed")
            assert len(events) == count
            assert set(events.values()) == {1}
            assert sum(footprint.count for _, footprint in queue.footprints(limit=1_000)) == 0
            assert queue.blocks.list("planned") == []
            assert_sound(queue)
        assert set(self.processed(ring)) == set(range(count))


@pytest.fixture(scope="session")
def worlds(tmp_path_factory: pytest.TempPathFactory, postgres_servers: Servers) -> Iterator[dict[str, World]]:
    with contextlib.ExitStack() as stack:
        yield _Worlds(tmp_path_factory, postgres_servers, stack)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A browser, for all who look."""
    from tests.browser import browser

    with browser() as opened:
        yield opened


@pytest.fixture
def seen(chromium: Any, world: World) -> Iterator[Any]:
    """A page of the browser, signed in as the administrator of this test's world."""
    from tests.live.looking import signed_in

    with signed_in(chromium, world) as one:
        yield one


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def world(request: pytest.FixtureRequest, worlds: dict[str, World]) -> World:
    """On each kind of metadata, with a store of the same kind."""
    return worlds[request.param]


class _Worlds(dict[str, World]):
    """The worlds by the kind of their metadata. One is made when it is asked for, and the other ends then: an Airflow
    that idles takes a third of a processor."""

    def __init__(
        self, factory: pytest.TempPathFactory, servers: Servers, stack: contextlib.ExitStack
    ) -> None:  # fmt: skip
        super().__init__()
        self.factory, self.servers, self.stack = factory, servers, stack

    def __missing__(self, kind: str) -> World:
        self.clear()
        self.stack.close()
        place = self.factory.mktemp(kind)
        dags = place / "dags"
        for folder in (REPOSITORY / "dags", HERE / "dags"):
            shutil.copytree(folder, dags, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        for name, (before, after) in CHANGES.items():
            text = (dags / name).read_text()
            assert before in text
            (dags / name).write_text(text.replace(before, after))
        store, metadata = f"sqlite:///{place / 'store.db'}", "sqlite"
        if kind == "postgres":
            store, metadata = (self.stack.enter_context(self.servers["embedded"].database()) for _ in range(2))
        upgrade(parse(store))
        listener = self.stack.enter_context(collector())
        airflow = LiveAirflow(
            place / "airflow",
            dags,
            metadata=metadata,
            parallelism=6,
            settings={
                "core.simple_auth_manager_users": f"{USER}:admin,{VIEWER}:viewer",
                # Only after a change: to parse these files again and again takes half a processor.
                "dag_processor.min_file_process_interval": "3600",
                "airflow_mq.traces": "True",
                "traces.otel_on": "True",
            },
            connections={
                "airflow_mq_default": connection_of(parse(store)),
                "spark_default": {"conn_type": "spark", "host": "local[2]"},
            },
            environment={
                "PYTHONPATH": str(REPOSITORY),
                orders.VARIABLE: str(place),
                processors.VARIABLE: str(place / "diary"),
                "OTEL_EXPORTER_OTLP_ENDPOINT": listener.address,
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
                # Airflow takes the protocol by this name only.
                "OTEL_TRACES_EXPORTER": "otlp_proto_http",
            },
        )
        self[kind] = World(self.stack.enter_context(airflow), store, place, listener)
        return self[kind]
