"""`dev`: a development Airflow on loopback, with a DAGs folder and a store; `demo`: the same with the orders example.

`orders` runs the example, draws its terminal, and checks its results.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import tempfile
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ..arguments import positive
from ..command import NO, UsageError, command, option
from ..output import error_line, shown
from ..session import DEFAULT_CONN_ID, VARIABLE, Session, at_sigterm, interrupt

if TYPE_CHECKING:
    from ...engine.store import StoreAddress
    from ...testing.live import LiveAirflow

HOME, DAGS = "airflow-dev", "dags"
ENVIRONMENT_FILE = "env.sh"
#: Packages that the orders example runs, and its DAGs: in the wheel beside this module, in a checkout at its top.
EXAMPLE = ("airflow", "psutil", "pyspark", "pyarrow", "pandas")
EXAMPLE_DAGS = next(
    (path for path in (Path(__file__).with_name("dags"), Path(__file__).parents[3] / "dags") if path.is_dir()), None
)
#: Airflow's own default; another free port is used where it is taken and none was asked for.
USUAL_PORT = 8080
#: Variables of the caller that the components keep: connections, variables, and our configuration.
KEPT = ("AIRFLOW_CONN_", "AIRFLOW_VAR_", "AIRFLOW__AIRFLOW_MQ__")


def port(text: str) -> int:
    """Read a port."""
    if not (text.isascii() and text.isdecimal() and len(text) < 6 and 0 < int(text) < 65_536):
        raise ArgumentTypeError(f"invalid port {text!r}: expected a number from 1 to 65535")
    return int(text)


@command(
    option("--dags FOLDER", f"the DAGs folder (default: {DAGS})", default=DAGS),
    option(
        "--home FOLDER",
        f"where Airflow keeps its database, logs and passwords (default: {HOME}); made if missing",
        default=HOME,
    ),
    option("--port PORT", f"the port of the UI on 127.0.0.1 (default: {USUAL_PORT}, or another free port)", port),
    example="$ dev --dags dags",
)
def dev(session: Session, args: Namespace) -> bool:
    """Start a development Airflow on loopback, with a DAGs folder and a store.

    Starts Airflow's API server, scheduler, DAG processor and triggerer on 127.0.0.1, with the connections
    airflow_mq_default, which names the store, and spark_default, which runs Spark in the tasks. Prints the URL and the
    login. Without --store and AIRFLOW_MQ_STORE the store is the file queue.db in the home folder; a store without
    tables gets them. Ctrl-C ends all processes; a later start continues with what is stored. For development: anyone
    with an account on this machine can reach the port.
    """
    _require("airflow")
    home, dags = Path(args.home).resolve(), _dags_folder(args.dags)
    chosen = _port(args.port)
    kept = {name: value for name, value in os.environ.items() if name.startswith(KEPT)}
    return _run(session, home, dags, chosen, kept, partial(_keep, session))


@command(
    option("--summary FILE", "write the summary to FILE as JSON (default: in the demo's folder)"),
    option("--loud N", "number of files of the loud tenant (default: 300)", positive, default=300),
    option("--stay", "keep the UI until Ctrl-C, even without a terminal"),
    option("--leave", "end when all is done, even on a terminal"),
    example="$ demo\n$ demo --leave --loud 100",
)
def demo(session: Session, args: Namespace) -> bool:
    """Run an example with Airflow and Spark: files of many tenants become one data set.

    Takes three to four minutes on two cores. Starts Airflow on 127.0.0.1 with a store of its own in a temporary folder.
    On a terminal, keeps the UI until Ctrl-C and leaves the overweight message for you to execute. Exit code 1 if a
    result is wrong.
    """
    if args.stay and args.leave:
        raise UsageError("--stay and --leave exclude each other: specify one of them")
    if session.store or session.conn_id or session.ring:
        raise UsageError("the demo creates its own store: omit --store, --conn-id and --ring")
    _require(*EXAMPLE)
    if args.summary:
        file = Path(args.summary)
        try:
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600))
            if file.is_file():
                file.chmod(0o600)  # It gets the password of Airflow.
        except OSError as error:
            raise UsageError(f"{args.summary!r} cannot be written: {error.strerror}") from None
    from ...examples import orders
    from ...testing.loopback import free_port

    assert EXAMPLE_DAGS is not None, "the package lacks the demo's DAGs"
    place = Path(tempfile.mkdtemp(prefix="airflow-mq-demo-"))
    session.store = f"sqlite:///{place / 'store.db'}"
    environment = {orders.VARIABLE: str(place)}
    example = partial(_perform, session, args)
    return _run(session, place / "airflow", EXAMPLE_DAGS, free_port(), environment, example)


def _require(*packages: str) -> None:
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"missing packages ({', '.join(missing)}) in this environment ({sys.prefix!r}): expected the package with "
            "its extras `airflow` and `spark`; run pip install 'airflow-mq[airflow,spark]'"
        )


def _run(
    session: Session,
    home: Path,
    dags: Path,
    port: int,
    environment: Mapping[str, str],
    use: Callable[[LiveAirflow, StoreAddress], bool],
) -> bool:
    """Use an Airflow that is not started yet, with a store and connections; end its processes in any case."""
    from ...testing.loopback import AirflowFailed

    with _only_one(home), at_sigterm(interrupt):
        address = _store(session, home)
        airflow = _airflow(address, home, dags, port, environment)
        try:
            return use(airflow, address)
        except AirflowFailed as error:
            _print_failure(session, error, home)
            return False
        finally:
            # A second Ctrl-C leaves no process behind.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            airflow.stop()


def _keep(session: Session, airflow: LiveAirflow, address: StoreAddress) -> bool:
    with session.out.progress("starting Airflow") as tell:
        airflow.start()
        tell("reading the DAGs folder")
        airflow.wait_parsed(180.0)
    _stay(session, airflow, address)
    return True


def _perform(session: Session, args: Namespace, airflow: LiveAirflow, address: StoreAddress) -> bool:
    from rich.console import Console

    from .orders import DemoRun, Progress, show

    out = sys.stderr if session.out.as_json else sys.stdout
    console = Console(file=out, soft_wrap=not out.isatty(), quiet=session.out.quiet)
    stays = args.stay or (sys.stdout.isatty() and sys.stdin.isatty() and not args.leave)
    place = airflow.home.parent
    file = Path(args.summary) if args.summary else place / "summary.json"
    with Progress(console, address.uri) as progress:
        summary = DemoRun(place, address.uri, airflow, progress.tell).run(by_hand=not stays, loud_files=args.loud)
    file.touch(mode=0o600)
    file.write_text(summary.to_json() + "\n")
    session.out.value(summary)
    show(session.out, summary)
    session.out.line(f"The summary as JSON: {file}")
    if stays:
        _stay(session, airflow, address)
    return summary.ok


def _stay(session: Session, airflow: LiveAirflow, address: StoreAddress) -> None:
    """Print where the UI is, and wait for Ctrl-C."""
    _write_environment(airflow, address)
    _print_started(session, airflow, address)
    try:
        airflow.wait_end()
    except KeyboardInterrupt:
        session.out.remark("ending Airflow …")
        sys.stdout.flush()


def _dags_folder(name: str) -> Path:
    folder = Path(name).resolve()
    if not folder.is_dir():
        raise UsageError(
            f"no DAGs folder ({name!r}): expected a folder with DAG files; run `mkdir {shlex.quote(name)}`, or name "
            "another one with --dags"
        )
    return folder


def _store(session: Session, home: Path) -> StoreAddress:
    """Return the named store, or one in the home folder; make its tables if it has none."""
    from ...engine import store

    if not (session.store or session.conn_id or os.environ.get(VARIABLE)):
        session.store = f"sqlite:///{home / 'queue.db'}"
    address = session.address()
    status = store.schema_status(address)
    if status.state == "missing":
        store.upgrade(address)
    else:
        status.require()
    return address


def _port(named: int | None) -> int:
    from ...testing.loopback import free_port, is_free

    if named is not None and not is_free(named):
        raise UsageError(
            f"port is taken (--port {named}): expected a free port on 127.0.0.1; name another one, or omit --port"
        )
    return named or (USUAL_PORT if is_free(USUAL_PORT) else free_port())


def _airflow(address: StoreAddress, home: Path, dags: Path, port: int, environment: Mapping[str, str]) -> LiveAirflow:
    from ...testing.live import LiveAirflow

    ours = f"AIRFLOW_CONN_{DEFAULT_CONN_ID.upper()}"
    connections: dict[str, dict[str, object]] = {
        "spark_default": {"conn_type": "spark", "host": "local[*]"},
        DEFAULT_CONN_ID: connection_of(address),
    }
    others = {name: value for name, value in environment.items() if name != ours}
    return LiveAirflow(home, dags, port=port, connections=connections, environment=others)


def connection_of(address: StoreAddress) -> dict[str, object]:
    """Return the fields of an Airflow connection that names a store."""
    extra: dict[str, object] = {"driver": address.driver, "origins": address.origins, "priority": address.priority}
    fields: dict[str, object] = {"conn_type": "airflow_mq"}
    if address.path is not None:
        extra["path"] = str(address.path)
    else:
        from ...engine.store.address import NUMBERS

        extra |= {"db_schema": address.schema, "sslmode": address.sslmode}
        extra |= {name: getattr(address, name) for name in NUMBERS}
        fields |= {"host": address.host, "port": address.port, "login": address.user, "password": address.password}
        fields["schema"] = address.database
    return {**fields, "extra": {name: value for name, value in extra.items() if value is not None}}


def _write_environment(airflow: LiveAirflow, address: StoreAddress) -> None:
    """Write the variables with which another terminal reaches this Airflow and its store."""
    variables = {name: value for name, value in airflow.environment().items() if name.startswith("AIRFLOW_")}
    variables[VARIABLE] = address.uri
    programs = shlex.quote(str(Path(sys.executable).parent))
    lines = ["# Written by `airflow-mq dev` at each start; holds secrets.", f'export PATH={programs}:"$PATH"']
    lines += [f"export {name}={shlex.quote(value)}" for name, value in sorted(variables.items())]
    file = airflow.home / ENVIRONMENT_FILE
    file.touch(mode=0o600)
    file.write_text("\n".join([*lines, ""]))


def _print_started(session: Session, airflow: LiveAirflow, address: StoreAddress) -> None:
    user, password = airflow.login
    environment = airflow.home / ENVIRONMENT_FILE
    started = {
        "url": airflow.url,
        "page": f"{airflow.url}/plugin/airflow-mq",
        "user": user,
        "password": password,
        "dags": str(airflow.dags_folder),
        "store": address.safe,
        "connection": DEFAULT_CONN_ID,
        "environment": str(environment),
    }
    session.out.fields(started)
    for error in airflow.import_errors():
        session.out.warn(f"a DAG file cannot be imported: {error.strip()}")
    session.out.remark(f"At another terminal, for commands of Airflow and airflow-mq: . {_short(environment)}")
    session.out.remark("Ctrl-C ends it; what it stored stays.")
    sys.stdout.flush()


def _short(path: Path) -> str:
    """Return a path as a shell in this folder would take it."""
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))


def _print_failure(session: Session, error: Exception, home: Path) -> None:
    first, *tail = str(error).splitlines()
    for line in () if session.out.as_json else tail:
        sys.stderr.write(shown(line) + "\n")
    text = f"{first} (logs: {home}/*.log)"
    error_line(text, type(error).__name__, NO, as_json=session.out.as_json)


@contextmanager
def _only_one(home: Path) -> Iterator[None]:
    """Refuse a second Airflow in a folder: both would write to one metadata database."""
    import fcntl  # not on every system that the other commands run on

    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = (home / "lock").open("w")
    except OSError as error:
        raise UsageError(f"--home: {str(home)!r} cannot be written: {error.strerror}; name another folder") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"another development Airflow runs in this folder ({str(home)!r}): expected a folder of its own; end "
                "the other one, or name another folder with --home"
            ) from None
        yield
