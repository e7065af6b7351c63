"""Fixtures for every test: stores on SQLite and on real PostgreSQL servers."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.memory import in_memory
from tests.postgres_programs import find_bindirs
from tests.postgres_server import Server, Servers
from tests.proofs.model.clock import Clock, stopped_clock
from tests.templates import Templates

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

    from tests.s3_server import S3Server

# The same examples in each run, so that only a change of the code changes the result; MQ_MODEL_EXAMPLES=1000 draws anew.
# No deadline: the time that an example takes depends on the machine.
settings.register_profile(
    "same", derandomize=not os.environ.get("MQ_MODEL_EXAMPLES"), deadline=None, database=None,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
settings.load_profile("same")

#: Files whose tests share a Spark session, a cluster, a broker or an expensive fixture, and so run in one process.
TOGETHER = (
    "tests/proofs/conformance/test_runner.py",
    "tests/spark/test_source.py",
    "tests/spark/test_cluster.py",
    "tests/spark/test_job.py",
    "tests/spark/test_connect.py",
    "tests/store/adapters/test_kafka.py",
    "tests/store/cli/test_in_airflow.py",
    "tests/store/examples/test_site.py",
    "tests/store/test_statements.py",
)
#: `make soak` runs what `make test` leaves out to save time.
SOAK = bool(os.environ.get("MQ_SOAK"))
STORES = ["sqlite", *(f"postgres-{label}" for label in find_bindirs())]
#: Tests that run on the system's own, older server, too, in `make soak`: statements, migrations and the queue.
#: `make test` runs those of the server itself there. All other tests have one store of each kind.
ON_EVERY_SERVER = (
    "tests/store/test_", "tests/store/queue/", "tests/proofs/conformance/", "tests/unit/test_postgres_server.py",
)  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Restore the handler of SIGINT, which shells disable for background processes."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that the older server only repeats, and those for `make soak`; put slow ones first.

    So no process waits at the end for one that has just begun a long test.
    """
    left_out = {item for item in items if _is_left_out(item)}
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    kept = (item for item in items if item not in left_out)
    items[:] = sorted(kept, key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep the collector from all that is imported: half a million objects, which each full collection would visit."""
    gc.freeze()


def _is_left_out(item: pytest.Item) -> bool:
    if item.get_closest_marker("soak") and not SOAK:
        return True
    if item.get_closest_marker("sqlite_first") and "postgres" in item.nodeid and not SOAK:
        return True
    if item.get_closest_marker("postgres_first") and "sqlite" in item.nodeid and not SOAK:
        return True
    if "postgres-system" not in item.nodeid:
        return False
    return not item.nodeid.startswith(ON_EVERY_SERVER if SOAK else ON_EVERY_SERVER[-1])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Schedule tests one by one; groups that share a fixture go first, because they take longest."""
    # The marks of xdist's own groups have no effect in this version of pytest.
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((place for place in TOGETHER if nodeid.startswith(place)), nodeid)

    return Scheduling(config, log)


@pytest.fixture(scope="session")
def postgres_servers() -> Iterator[Servers]:
    """Yield the servers by label: `embedded` always, `system` if installed; each starts on first access."""
    # Tests kill processes, never machines, so no data must reach a disk.
    servers = Servers(volatile=True)
    yield servers
    servers.close()


@pytest.fixture
def postgres_server(postgres_servers: Servers) -> Server:
    """Return the running embedded server."""
    return postgres_servers["embedded"]


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Yield a running server that speaks S3."""
    pytest.importorskip("s3fs")
    from tests.s3_server import s3_server

    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Templates:
    """Return upgraded stores to copy."""
    return Templates(tmp_path_factory.mktemp("templates"))


@pytest.fixture
def pg_uri(request: pytest.FixtureRequest, postgres_server: Server, templates: Templates) -> Iterator[str]:
    """Yield the address of a new store on the embedded server."""
    with _postgres_store(request, postgres_server, templates) as uri:
        yield uri


@pytest.fixture
def clock() -> Iterator[Clock]:
    """Yield the store's stopped clock: deadlines pass only when the test advances it."""
    with stopped_clock() as clock:
        yield clock


@pytest.fixture
def sqlite_uri(request: pytest.FixtureRequest, templates: Templates) -> Iterator[str]:
    """Yield the address of a new SQLite store, in memory if the machine has room for it."""
    with tempfile.TemporaryDirectory(prefix="mq_store_", dir=in_memory()) as folder:
        path = Path(folder) / "store.db"
        if not _is_empty(request):
            shutil.copy(templates.sqlite(), path)
        yield f"sqlite:///{path}"


@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.postgres) if name != "sqlite" else name for name in STORES]
)
def store_uri(request: pytest.FixtureRequest, templates: Templates) -> Iterator[str]:
    """Yield the address of a new store on each database; without tables if the test is marked `empty_store`."""
    if request.param == "sqlite":
        yield request.getfixturevalue("sqlite_uri")
        return
    # Request the servers only now, so that a run on SQLite alone starts none.
    servers: Servers = request.getfixturevalue("postgres_servers")
    with _postgres_store(request, servers[request.param.removeprefix("postgres-")], templates) as uri:
        yield uri


def _postgres_store(
    request: pytest.FixtureRequest, server: Server, templates: Templates
) -> contextlib.AbstractContextManager[str]:
    return server.database() if _is_empty(request) else server.database(templates.postgres(server))


def _is_empty(request: pytest.FixtureRequest) -> bool:
    return request.node.get_closest_marker("empty_store") is not None
