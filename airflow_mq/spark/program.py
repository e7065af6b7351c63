"""Program of a job: read its arguments, process its part, and exit."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

from ..engine.rules.errors import MessageQueueError, TokenRefused
from ..observe import traces
from ..processors import Part, Processors
from .arguments import MARK, NOT_LOADED, REFUSED, Arguments, print_line
from .cause import cause_of
from .driver import run_with_folder, run_with_store
from .share import NotLoaded

log = logging.getLogger("airflow_mq.spark.job")


def main(words: Sequence[str] | None = None) -> int:
    """Run a job; return its exit code."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for noisy in ("py4j", "pyspark"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    log.info("the job begins at %.1f", time.time())
    try:
        arguments = Arguments.read(sys.argv[1:] if words is None else words)
    except ValueError as error:
        return _fail(2, f"invalid arguments: {error}")
    try:
        return run(arguments)
    except TokenRefused as error:
        return _end(REFUSED, f"refused: {error}")
    except MessageQueueError as error:
        return _fail(NOT_LOADED if isinstance(error, NotLoaded) else 1, f"failed: {error}")
    except Exception as error:
        log.error("the job failed", exc_info=error)
        return _fail(1, f"failed: {cause_of(error)}")


def run(arguments: Arguments) -> int:
    """Process the part, print the tally, and return the exit code."""
    processors = Processors.from_json(arguments.routes)
    names = [processors[name].name for name in arguments.processors]
    part = Part(
        name=" + ".join(names), processors=names, part=arguments.part, parts=arguments.parts, messages=0, where="spark"
    )
    with traces.job(f"spark {part['name']}", {"messaging.destination.name": arguments.ring}):
        if arguments.exchange:
            tally = run_with_folder(arguments.exchange, processors, part)
        else:
            tally = run_with_store(arguments, processors, part)
    return _end(0, f"{part['name']}: {tally}")


def _end(code: int, text: str) -> int:
    print_line(text)
    return code


def _fail(code: int, text: str) -> int:
    mark = os.environ.get(MARK)
    return _end(code, f"{text} [{mark}]" if mark else text)


def run_and_exit() -> NoReturn:
    """Run a job and exit with its code, even if the JVM beside this process does not respond."""
    if os.environ.get("SPARK_REMOTE"):
        # A client ends its session on the server; a JVM of its own ends anyway.
        signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(code)
