"""Live Airflow on loopback, for tests and the demo: its four components as separate processes.

    with LiveAirflow(home, dags_folder) as airflow:
        run = airflow.trigger("orders", {"limit": 3})
        assert airflow.wait("orders", run) == "success"
        airflow.kill("scheduler")
        airflow.restart("scheduler")

`airflow standalone` is not used: it serves task logs on all interfaces, and its children survive it when it is killed.
Here only the API server listens, on 127.0.0.1. All processes end when this process ends for any reason (see
`watchman`). This module does not import Airflow.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil

from .home import USER, AirflowHome
from .loopback import AirflowFailed, Refused, TooLate, free_port, send
from .watchman import end_sessions, members

COMPONENTS = ("api-server", "scheduler", "dag-processor", "triggerer")
#: Seconds to start, to run a command and to parse a file; a busy machine needs minutes for all components.
START_SECONDS = 600.0
STOP_SECONDS = 15.0
#: Seconds that processes get to end before they are killed.
PATIENCE = 5.0
ENDED = ("success", "failed", "skipped", "upstream_failed", "removed")


class LiveAirflow:
    """An Airflow in a folder of its own, to be started, broken and repaired.

    :param home: AIRFLOW_HOME; created if missing, and kept.
    :param port: port of the API server; by default a free one.
    :param metadata: `sqlite`, or the address of a PostgreSQL database (postgresql://…).
    :param connections: id of a connection -> its fields, or its address in the form of `AIRFLOW_CONN_…`.
    :param settings: `section.name` -> value, over `SETTINGS`.
    :param environment: further variables for every component.
    """

    def __init__(
        self,
        home: str | Path,
        dags_folder: str | Path,
        *,
        port: int | None = None,
        metadata: str = "sqlite",
        parallelism: int = 4,
        connections: Mapping[str, object] | None = None,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.home, self.dags_folder = Path(home).resolve(), Path(dags_folder).resolve()
        self.metadata, self.port = metadata, port or free_port()
        chosen = {"core.parallelism": str(parallelism), **(settings or {})}
        self._home = AirflowHome(
            self.home, self.dags_folder, self.port, metadata, connections or {}, chosen, environment or {}
        )
        self.password = self._home.secrets["password"]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._sessions: set[int] = set()
        self._watchman: subprocess.Popen[bytes] | None = None
        self._token: str | None = None

    def __repr__(self) -> str:
        return f"<LiveAirflow {self.home} port {self.port}>"

    def __enter__(self) -> LiveAirflow:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Address of the UI."""
        return self._home.url

    @property
    def login(self) -> tuple[str, str]:
        """User and password of the UI."""
        return USER, self.password

    def environment(self) -> dict[str, str]:
        """Return the environment of every component and command of this Airflow."""
        return self._home.environment()

    def start(self, components: Iterable[str] = COMPONENTS, *, wait: bool = True) -> LiveAirflow:
        """Create the metadata tables and start the components; with `wait`, return when all are healthy."""
        self._prepare()
        self._make_tables()
        started = tuple(components)
        for component in started:
            self._launch(component)
        if wait:
            self.wait_healthy(started)
        return self

    def stop(self) -> None:
        """Terminate every process, and kill those that do not end."""
        end_sessions(self._sessions, PATIENCE)
        for process in self._processes.values():
            process.wait()
        self._processes.clear()
        self._sessions.clear()
        if self._watchman is not None:
            self._watchman.communicate(b"end\n", timeout=STOP_SECONDS)
            self._watchman = None

    def kill(self, component: str) -> None:
        """Kill a component and all of its children."""
        process = self._processes.pop(component)
        process.kill()
        process.wait()
        end_sessions([process.pid], 0)

    def restart(self, component: str) -> None:
        """Restart a component, and wait until it is healthy; end it first if it runs."""
        if component in self._processes:
            process = self._processes.pop(component)
            end_sessions([process.pid], STOP_SECONDS)
            process.wait()
        self._launch(component)
        self.wait_healthy([component])

    def ensure(self, component: str) -> None:
        """Start a component unless it runs."""
        if component not in self._processes:
            self._launch(component)

    def run(self, *arguments: str, timeout: float = START_SECONDS) -> str:
        """Run a command in this Airflow, and return its output."""
        done = subprocess.run(  # noqa: S603 (the command is Airflow's own)
            [sys.executable, "-m", "airflow", *arguments],
            env=self.environment(),
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            tail = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
            raise AirflowFailed(f"airflow {' '.join(arguments)} ended with {done.returncode}:\n{tail}")
        return done.stdout

    def processes(self) -> list[psutil.Process]:
        """Return every process of this Airflow: components, tasks and their children."""
        return members(self._sessions)

    def log_tail(self, component: str, lines: int = 40) -> str:
        """Return the last log lines of a component."""
        path = self.home / f"{component}.log"
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else ""

    def wait_healthy(self, components: Iterable[str] = COMPONENTS, timeout: float = START_SECONDS) -> None:
        """Wait until the API answers and reports that the others are healthy."""
        wanted = set(components)
        self._until(lambda: self._unwell(wanted) == [], timeout, lambda: ", ".join(self._unwell(wanted)))

    def get(self, path: str, **query: object) -> Any:
        """Return the API's answer, for example `get("dags", limit=3)`."""
        asked = urllib.parse.urlencode({name: value for name, value in query.items() if value is not None}, doseq=True)
        return self.call("GET", f"{path}?{asked}" if asked else path)

    def call(self, method: str, path: str, body: object = None, timeout: float = 60.0) -> Any:
        """Send one request to /api/v2, as the administrator."""
        if self._token is None:
            login = {"username": USER, "password": self.password}
            self._token = send(self.url, "POST", "/auth/token", login, None, timeout)["access_token"]
        return send(self.url, method, f"/api/v2/{path}", body, self._token, timeout)

    def wait_dag(self, dag_id: str, timeout: float = START_SECONDS) -> None:
        """Wait until the DAG's file was parsed."""
        self._until(
            lambda: bool(self.get(f"dags/{dag_id}")),
            timeout,
            lambda: f"DAG {dag_id} is not there; {self.import_errors() or 'no import error'}",
        )

    def import_errors(self) -> list[str]:
        """Return the errors of parsing DAG files."""
        return [f"{error['filename']}: {error['stack_trace']}" for error in self.get("importErrors")["import_errors"]]

    def unpause(self, dag_id: str, paused: bool = False) -> None:
        self.call("PATCH", f"dags/{dag_id}", {"is_paused": paused})

    def trigger(self, dag_id: str, conf: Mapping[str, object] | None = None, *, run_id: str | None = None) -> str:
        """Start a run, unpausing its DAG, and return the run's id. A value of `conf` is a param, as in the form."""
        self.wait_dag(dag_id)
        self.unpause(dag_id)
        body: dict[str, object] = {"conf": dict(conf or {}), "logical_date": None}
        if run_id is not None:
            body["dag_run_id"] = run_id
        return str(self.call("POST", f"dags/{dag_id}/dagRuns", body)["dag_run_id"])

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        """Return the runs of a DAG, the latest last."""
        found: list[dict[str, Any]] = self.get(f"dags/{dag_id}/dagRuns", limit=1000, order_by="-id")["dag_runs"]
        return found[::-1]

    def state(self, dag_id: str, run_id: str) -> str:
        return str(self.get(_run(dag_id, run_id))["state"])

    def wait(self, dag_id: str, run_id: str, timeout: float = 300.0) -> str:
        """Wait for the end of a run, and return its state."""
        self._until(
            lambda: self.state(dag_id, run_id) in ENDED,
            timeout,
            lambda: f"run {run_id} of {dag_id} does not end: {self._task_states(dag_id, run_id)}",
        )
        return self.state(dag_id, run_id)

    def tasks(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """Return the task instances of a run."""
        found: list[dict[str, Any]] = self.get(f"{_run(dag_id, run_id)}/taskInstances", limit=1000)["task_instances"]
        return found

    def log(self, dag_id: str, run_id: str, task_id: str, *, map_index: int = -1, attempt: int = 1) -> str:
        """Return the log of a task."""
        path = f"{_run(dag_id, run_id)}/taskInstances/{task_id}/logs/{attempt}"
        lines = self.get(path, map_index=map_index, full_content="true")["content"]
        return "\n".join(_log_line(line) for line in lines)

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value", *, map_index: int = -1) -> Any:
        path = f"{_run(dag_id, run_id)}/taskInstances/{task_id}/xcomEntries/{urllib.parse.quote(key)}"
        return self.get(path, map_index=map_index, deserialize="true")["value"]

    def clear(self, dag_id: str, run_id: str, task_ids: Iterable[str] | None = None, **more: object) -> None:
        """Clear tasks of a run, so that they run again."""
        body = {"dry_run": False, "only_failed": False, "reset_dag_runs": True, "dag_run_id": run_id, **more}
        if task_ids is not None:
            body["task_ids"] = list(task_ids)
        self.call("POST", f"dags/{dag_id}/clearTaskInstances", body)

    def answer(self, dag_id: str, run_id: str, task_id: str, option: str, **params: object) -> None:
        """Answer a task that waits for a person."""
        path = f"{_run(dag_id, run_id)}/taskInstances/{task_id}/-1/hitlDetails"
        self.call("PATCH", path, {"chosen_options": [option], "params_input": params})

    def wait_task(
        self, dag_id: str, run_id: str, task_id: str, states: Iterable[str] = ENDED, timeout: float = 300.0
    ) -> dict[str, Any]:
        """Wait until a task of a run is in one of these states, and return it."""
        wanted, found = set(states), dict[str, Any]()

        def there() -> bool:
            tasks = self.tasks(dag_id, run_id)
            found.update(next((one for one in tasks if one["task_id"] == task_id and one["state"] in wanted), {}))
            return bool(found)

        self._until(
            there, timeout, lambda: f"{task_id} is not {wanted}: {self._task_states(dag_id, run_id)}", pause=0.05
        )
        return found

    def wait_parsed(self, timeout: float = START_SECONDS) -> None:
        """Wait until the files of the DAGs folder were read, if it has any."""
        if any(self.dags_folder.rglob("*.py")):
            with contextlib.suppress(TooLate):
                self._until(lambda: bool(self.get("dags")["dags"] or self.import_errors()), timeout, str)

    def wait_end(self) -> None:
        """Wait for ever; raise an error if a component ends."""
        while True:
            self._look_after()
            time.sleep(0.5)

    def _prepare(self) -> None:
        self._home.write_password()
        if self._watchman is None:
            self._watchman = subprocess.Popen(
                [sys.executable, "-m", "airflow_mq.testing.watchman"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )

    def _make_tables(self) -> None:
        """Create the metadata tables. That takes ten seconds, so empty ones on SQLite are cached beside Python."""
        if self.metadata != "sqlite":
            self.run("db", "migrate")
            return
        fresh = not self._home.database.exists()
        if self._home.copy_cached_tables():
            return
        self.run("db", "migrate")
        if fresh:
            self._home.cache_tables()

    def _launch(self, component: str) -> None:
        command = [sys.executable, "-m", "airflow", component, *self._arguments(component)]
        with (self.home / f"{component}.log").open("ab") as log:
            self._processes[component] = subprocess.Popen(  # noqa: S603 (the command is Airflow's own)
                command,
                env=self.environment(),
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._sessions.add(self._processes[component].pid)
        assert self._watchman is not None and self._watchman.stdin is not None
        self._watchman.stdin.write(b"%d\n" % self._processes[component].pid)
        self._watchman.stdin.flush()

    def _arguments(self, component: str) -> tuple[str, ...]:
        return {
            "api-server": ("--host", "127.0.0.1", "--port", str(self.port)),
            "scheduler": ("--skip-serve-logs",),
            "dag-processor": (),
            "triggerer": ("--skip-serve-logs",),
        }[component]

    def _unwell(self, wanted: set[str]) -> list[str]:
        """Return the components that are not healthy; raise an error for one that ended."""
        self._look_after()
        try:
            health = send(self.url, "GET", "/api/v2/monitor/health", None, None, 5.0)
        except (OSError, AirflowFailed):
            return sorted(wanted)
        # The API server, which has answered, does not report itself.
        others = wanted - {"api-server"}
        return sorted(name for name in others if health[name.replace("-", "_")]["status"] != "healthy")

    def _look_after(self) -> None:
        for component, process in self._processes.items():
            if process.poll() is not None:
                tail = self.log_tail(component)
                raise AirflowFailed(f"airflow {component} ended with {process.returncode}; its last log lines:\n{tail}")

    def _until(self, done: Callable[[], bool], timeout: float, problem: Callable[[], str], pause: float = 0.2) -> None:
        """Wait until something is done; a request that fails shows that it is not."""
        deadline = time.monotonic() + timeout
        while True:
            with contextlib.suppress(OSError, Refused):
                if done():
                    return
            self._look_after()
            if time.monotonic() > deadline:
                tails = "\n".join(f"--- {name}\n{self.log_tail(name, 15)}" for name in self._processes)
                raise TooLate(f"after {timeout:.0f} s: {problem()}\n{tails}")
            time.sleep(pause)

    def _task_states(self, dag_id: str, run_id: str) -> str:
        try:
            return ", ".join(map("{task_id}[{map_index}] {state}".format_map, self.tasks(dag_id, run_id)))
        except (OSError, AirflowFailed) as error:
            return f"unknown: {error}"


def _run(dag_id: str, run_id: str) -> str:
    return f"dags/{dag_id}/dagRuns/{urllib.parse.quote(run_id, safe='')}"


def _log_line(line: object) -> str:
    if not isinstance(line, Mapping):
        return str(line)
    more = " ".join(f"{name}={value}" for name, value in line.items() if name not in ("timestamp", "event", "level"))
    return f"{line.get('event', '')} {more}".rstrip()
