"""Script that `spark-submit` runs: process one part of a block, and report the outcomes.

    spark-submit .../airflow_mq/spark/job.py --ring default --routes '{"processors": [...]}'
        --processors orders,mail --part 0 --parts 2 [--lease SECONDS] [--exchange PATH]

The environment holds the store's address and the block's token: `AIRFLOW_MQ_STORE` and `AIRFLOW_MQ_BLOCK`. With
`--exchange` it holds neither: messages and outcomes travel through that folder. `TRACEPARENT` and `AIRFLOW_MQ_TRACES`
continue a trace (`airflow_mq.tracing`).

The job renews the block's lease while it runs. Exit codes: 0 every message was tried, whatever its outcome; 75 the
block was settled or released meanwhile, so the job stopped; 2 invalid arguments; 1 the job itself failed.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

#: Variables with the address of the store and the token of the block.
STORE, BLOCK = "AIRFLOW_MQ_STORE", "AIRFLOW_MQ_BLOCK"
#: Exit code of a job that came too late: "temporary failure, the user is invited to retry".
REFUSED = 75
NAMES = ("ring", "routes", "processors", "part", "parts", "lease", "exchange")

#: Prefix of the lines that the job itself prints.
PREFIX = "airflow_mq: "

log = logging.getLogger("airflow_mq.spark.job")


@dataclass(frozen=True)
class Arguments:
    """The command line of a job."""

    routes: str
    processors: Sequence[str]
    ring: str = "default"
    part: int = 0
    parts: int = 1
    lease: float | None = None
    exchange: str | None = None

    @classmethod
    def read(cls, words: Sequence[str]) -> Arguments:
        """Read `--name value` and `--name=value`; a value may begin with dashes."""
        values: dict[str, str] = {}
        left = list(words)
        while left:
            name, is_whole, value = left.pop(0).partition("=")
            if not name.startswith("--") or name[2:] not in NAMES:
                raise ValueError(f"unknown {name[:40]!r}: expected --{', --'.join(NAMES)}")
            if not is_whole and not left:
                raise ValueError(f"{name} needs a value")
            values[name[2:]] = value if is_whole else left.pop(0)
        for name in ("routes", "processors"):
            if not values.get(name):
                raise ValueError(f"--{name} is missing")
        return cls(
            values["routes"],
            values["processors"].split(","),
            values.get("ring", "default"),
            int(values.get("part", 0)),
            int(values.get("parts", 1)),
            float(values["lease"]) if "lease" in values else None,
            values.get("exchange"),
        )


def main(words: Sequence[str] | None = None) -> int:
    """Run a job; return its exit code."""
    from airflow_mq.core.errors import MessageQueueError, TokenRefused
    from airflow_mq.spark.cause import cause_of

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for noisy in ("py4j", "pyspark"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    log.info("the job begins at %.1f", time.time())
    try:
        arguments = Arguments.read(sys.argv[1:] if words is None else words)
    except ValueError as error:
        return _end(2, f"invalid arguments: {error}")
    try:
        return run(arguments)
    except TokenRefused as error:
        return _end(REFUSED, f"refused: {error}")
    except MessageQueueError as error:
        return _end(1, f"failed: {error}")
    except Exception as error:
        log.error("the job failed", exc_info=error)
        return _end(1, f"failed: {cause_of(error)}")


def run(arguments: Arguments) -> int:
    """Process the part, print the tally, and return the exit code."""
    from airflow_mq import tracing
    from airflow_mq.processors import Part, Processors
    from airflow_mq.spark.driver import FolderJob, StoreJob

    processors = Processors.from_json(arguments.routes)
    names = [processors[name].name for name in arguments.processors]
    part = Part(
        name=" + ".join(names), processors=names, part=arguments.part, parts=arguments.parts, messages=0, where="spark"
    )
    kind: type[StoreJob] | type[FolderJob] = FolderJob if arguments.exchange else StoreJob
    with tracing.job(f"spark {part['name']}", **{"messaging.destination.name": arguments.ring}):
        tally = kind(arguments, processors, part).run()
    return _end(0, f"{part['name']}: {tally}")


def _end(code: int, text: str) -> int:
    print_line(text)
    return code


def print_line(text: str) -> None:
    """Print a line of the job's own, with any line breaks in it removed."""
    print(f"{PREFIX}{' '.join(text.split())}", file=sys.stderr, flush=True)


def leave(code: int) -> NoReturn:
    """Exit with a code, even if the JVM beside this process does not respond."""
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(code)


def exit_on_terminate() -> None:
    """Make SIGTERM raise in a client, so that it ends its session on the server; a JVM of its own ends anyway."""
    if os.environ.get("SPARK_REMOTE"):
        signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))


if __name__ == "__main__":
    # Python searches the script's folder first, where our modules would hide others of the same name.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [place for place in sys.path if os.path.abspath(place or ".") != here]
    from airflow_mq.spark.job import exit_on_terminate
    from airflow_mq.spark.job import leave as leave_job
    from airflow_mq.spark.job import main as run_job

    exit_on_terminate()
    leave_job(run_job())
