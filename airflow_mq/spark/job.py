"""The file that `spark-submit` runs: it processes one part of a block, and reports.

    spark-submit .../airflow_mq/spark/job.py --ring default --routes '{"processors": [...]}'
        --processors orders,mail --part 0 --parts 2 [--lease SECONDS] [--exchange PATH]

The store's address and the block's token are told by environment: `AIRFLOW_MQ_STORE` and `AIRFLOW_MQ_BLOCK`.
With `--exchange` neither is: messages and outcomes travel through that folder. `TRACEPARENT` and `AIRFLOW_MQ_TRACES`
have it go on with a trace (`airflow_mq.tracing`).

It renews the block's lease while it runs. Exit codes: 0 everything was tried, whatever became of it;
75 the block was settled or released meanwhile, so this job came too late and has stopped; 2 it was called
wrongly; 1 the job itself failed.
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

#: Where a job finds the address of its store, and the token of its block.
STORE, BLOCK = "AIRFLOW_MQ_STORE", "AIRFLOW_MQ_BLOCK"
#: The exit code of a job that came too late: "temporary failure, the user is invited to retry".
REFUSED = 75
NAMES = ("ring", "routes", "processors", "part", "parts", "lease", "exchange")

#: How each line begins that the job itself says.
PREFIX = "airflow_mq: "

log = logging.getLogger("airflow_mq.spark.job")


@dataclass(frozen=True)
class Arguments:
    """What a job is told by its command line."""

    routes: str
    processors: Sequence[str]
    ring: str = "default"
    part: int = 0
    parts: int = 1
    lease: float | None = None
    exchange: str | None = None

    @classmethod
    def read(cls, words: Sequence[str]) -> Arguments:
        """Read `--name value` and `--name=value`; a value may begin with dashes, and say anything."""
        said: dict[str, str] = {}
        left = list(words)
        while left:
            name, is_whole, value = left.pop(0).partition("=")
            if not name.startswith("--") or name[2:] not in NAMES:
                raise ValueError(f"{name[:40]!r} is not known; there are --{', --'.join(NAMES)}")
            if not is_whole and not left:
                raise ValueError(f"{name} needs a value")
            said[name[2:]] = value if is_whole else left.pop(0)
        for name in ("routes", "processors"):
            if not said.get(name):
                raise ValueError(f"--{name} is missing")
        return cls(
            said["routes"],
            said["processors"].split(","),
            said.get("ring", "default"),
            int(said.get("part", 0)),
            int(said.get("parts", 1)),
            float(said["lease"]) if "lease" in said else None,
            said.get("exchange"),
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
        return _say(2, f"invalid arguments: {error}")
    try:
        return run(arguments)
    except TokenRefused as error:
        return _say(REFUSED, f"refused: {error}")
    except MessageQueueError as error:
        return _say(1, f"failed: {error}")
    except Exception as error:
        log.error("the job failed", exc_info=error)
        return _say(1, f"failed: {cause_of(error)}")


def run(arguments: Arguments) -> int:
    """Do what was asked for."""
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
    return _say(0, f"{part['name']}: {tally}")


def _say(code: int, text: str) -> int:
    say(text)
    return code


def say(text: str) -> None:
    """Say something to whoever started the job: one line, whatever is in it."""
    print(f"{PREFIX}{' '.join(text.split())}", file=sys.stderr, flush=True)


def leave(code: int) -> NoReturn:
    """End this process with a code, even where the JVM at its side does not answer."""
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(code)


def unwind_when_told_to_end() -> None:
    """A client of a server that is told to end tells the server so; a JVM of its own would end with it anyway."""
    if os.environ.get("SPARK_REMOTE"):
        signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))


if __name__ == "__main__":
    # Run as a file, Python looks for modules beside it first, where ours would hide others of the same name.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [place for place in sys.path if os.path.abspath(place or ".") != here]
    from airflow_mq.spark.job import leave as leave_job
    from airflow_mq.spark.job import main as run_job
    from airflow_mq.spark.job import unwind_when_told_to_end

    unwind_when_told_to_end()
    leave_job(run_job())
