"""`demo`: the orders example from beginning to end, on this machine alone.

It uses a store on SQLite, Spark inside the tasks (`local[*]`), and a real Airflow with its UI on loopback, on free
ports. All of it is in a temporary folder. `stage` makes the folder and the Airflow, `run` runs the example and checks
it, `progress` draws the terminal.
"""

from __future__ import annotations

import signal
import sys
import time
from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ..command import command, option
from ..errors import UsageError
from ..session import Session
from ..signals import sigterm_as_interrupt
from ..values import positive

if TYPE_CHECKING:
    from rich.console import Console

    from .stage import Stage

#: Packages of the extras `airflow` and `spark` that the demo runs.
_REQUIRED = ("airflow", "psutil", "pyspark", "pyarrow", "pandas")


@command(
    option("--summary FILE", "write the summary to FILE as JSON (default: in the demo's folder)"),
    option("--loud N", "number of files of the loud tenant (default: 300)", positive, default=300),
    option("--stay", "keep the UI until Ctrl-C, also without a terminal"),
    option("--leave", "end when all is done, also on a terminal"),
    example="$ demo\n$ demo --leave --loud 100",
)
def demo(session: Session, args: Namespace) -> bool:
    """Run an example with Airflow and Spark: files of many tenants become one data set.

    Takes three to four minutes on two cores. Starts Airflow on 127.0.0.1 with a store of its own in a temporary folder.
    On a terminal, keeps the UI until Ctrl-C and leaves the overweight message for you to execute. Exit code 1 if a
    result is wrong.
    """
    _check(session, args)
    from rich.console import Console

    from ...testing.loopback import AirflowFailed
    from .stage import Stage

    out = sys.stderr if session.out.as_json else sys.stdout
    console = Console(file=out, soft_wrap=not out.isatty(), quiet=session.out.quiet)
    stays_up = args.stay or (sys.stdout.isatty() and sys.stdin.isatty() and not args.leave)
    with sigterm_as_interrupt():
        stage = Stage.embedded()
        try:
            return _perform(session, stage, console, args, stays_up)
        except AirflowFailed as error:
            console.print(f"[red]The demo failed.[/] Its logs are in {stage.place}.", highlight=False)
            console.print(str(error), markup=False, highlight=False)
            return False
        finally:
            # A second Ctrl-C must not keep processes alive.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            stage.airflow.stop()


def _check(session: Session, args: Namespace) -> None:
    if args.stay and args.leave:
        raise UsageError("--stay and --leave exclude each other: specify one of them")
    if session.store or session.conn_id or session.ring:
        raise UsageError("the demo creates its own store: omit --store, --conn-id and --ring")
    missing = [name for name in _REQUIRED if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"missing packages ({', '.join(missing)}): the demo requires Airflow and Spark; run "
            "pip install 'airflow-mq[airflow,spark]'"
        )


def _perform(session: Session, stage: Stage, console: Console, args: Namespace, stays_up: bool) -> bool:
    from .progress import Progress, show
    from .run import DemoRun

    file = Path(args.summary) if args.summary else stage.place / "summary.json"
    with Progress(console, stage.store) as progress:
        summary = DemoRun(stage, progress.tell).run(by_hand=not stays_up, loud_files=args.loud)
    file.touch(mode=0o600)
    file.write_text(summary.to_json() + "\n")
    session.out.value(summary)
    show(console, summary)
    console.print(f"The summary as JSON: {file}", highlight=False)
    if stays_up:
        _stay(stage, console)
    return summary.ok


def _stay(stage: Stage, console: Console) -> None:
    """Print where the UI is, and wait for Ctrl-C."""
    user, password = stage.airflow.login
    console.print(f"\nAirflow: [bold]{stage.airflow.url}[/]  user {user}  password {password}", highlight=False)
    console.print(f"The ring: {stage.airflow.url}/plugin/airflow-mq", highlight=False)
    program = Path(sys.executable).with_name("airflow-mq")
    console.print(f"At a terminal: {program} --store {stage.store} top", highlight=False)
    console.print("Ctrl-C ends it.")
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        console.print("Ending …")
