"""`python -m airflow_mq.demo`: run the demo, show its results, and end all of its processes."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from rich.console import Console

from ..testing.loopback import AirflowFailed

try:
    from .stage import DAGS, Stage
except ModuleNotFoundError as error:  # psutil comes with Airflow
    sys.exit(f"missing packages for the demo ({error}): it requires Airflow and Spark; run `make demo` in a checkout")
from .progress import Progress, show
from .story import Story


def main() -> int:
    """Run the demo; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m airflow_mq.demo", description="Run the orders example.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the summary to FILE as JSON")
    parser.add_argument("--loud", type=int, default=300, metavar="N", help="number of files of the loud tenant (300)")
    stays = parser.add_mutually_exclusive_group()
    stays.add_argument("--stay", action="store_true", help="keep the UI until Ctrl-C, also without a terminal")
    stays.add_argument("--leave", action="store_true", help="end when all is done, also on a terminal")
    options = parser.parse_args()
    if not DAGS.is_dir():
        parser.error("the package does not contain the demo's DAGs: run `make demo` in a checkout of the repository")
    signal.signal(signal.SIGTERM, _interrupt)
    console = Console(soft_wrap=not sys.stdout.isatty())
    stays_up = options.stay or (sys.stdout.isatty() and sys.stdin.isatty() and not options.leave)
    stage = Stage.embedded()
    try:
        file = options.json or stage.place / "summary.json"
        return _perform(stage, console, file, stays_up, options.loud)
    except AirflowFailed as error:
        console.print(f"[red]The demo failed.[/] Its logs are in {stage.place}.", highlight=False)
        console.print(str(error), markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print("Interrupted.")
        return 130
    finally:
        # A second Ctrl-C must not keep processes alive.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        stage.airflow.stop()


def _perform(stage: Stage, console: Console, file: Path, stays_up: bool, loud: int) -> int:
    with Progress(console, stage.store) as progress:
        summary = Story(stage, progress.tell).run(by_hand=not stays_up, loud_files=loud)
    file.write_text(summary.to_json() + "\n")
    file.chmod(0o600)
    show(console, summary)
    console.print(f"The same as JSON: {file}", highlight=False)
    if stays_up:
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
    return 0 if summary.ok else 1


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
