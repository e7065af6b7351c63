"""Processing a part of a block in the task's own process, without any JVM."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow_mq.core.errors import InvalidInput
from airflow_mq.core.outcome import DONE, Outcome, Yield
from airflow_mq.queue.attempts import outcome_of

if TYPE_CHECKING:
    from airflow_mq import Batch, Block, MessageQueue
    from airflow_mq.processors import Part, Processors

log = logging.getLogger("airflow_mq.in_place")

#: Seconds after which what was answered is reported, however little it is.
REPORT_EVERY = 1.0
#: How many failures are told of with their traceback.
TRACEBACKS = 3


class Stopped(Exception):
    """The task was told to end."""


def process_in_place(
    queue: MessageQueue,
    token: str,
    processors: Processors,
    part: Part,
    *,
    lease: float | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Mapping[str, int]:
    """Process a part here and now, and report as it goes; tell how many messages had which outcome."""
    block = queue.block(token)
    counts: Counter[str] = Counter()
    for name, origins in processors.mine(part, block.origins).items():
        function = load(processors[name].function)
        for batch in renewing(queue, block, block.batches(origins), lease):
            outcomes = call_each(function, batch, counts, stopped)
            queue.report(block, batch.answers(outcomes))
            if stopped():
                raise Stopped("the task was told to end; what was processed is reported, the rest goes back")
    return counts


def load(name: str) -> Callable[..., Any]:
    """The function of a processor."""
    module, _, path = name.partition(":")
    found: Any = import_module(module)
    for step in path.split("."):
        found = getattr(found, step)
    if not callable(found):
        raise InvalidInput(f"the processor {name} is a {type(found).__name__}, and cannot be called")
    function: Callable[..., Any] = found
    return function


def call_each(
    function: Callable[..., Any], batch: Batch, counts: Counter[str], stopped: Callable[[], bool]
) -> list[Outcome]:
    """What became of each message; one that fails does not concern its neighbours."""
    outcomes: list[Outcome] = []
    for payload in batch.payloads:
        if stopped():
            outcomes.append(Yield("the task was told to end"))
            continue
        try:
            outcome = outcome_of(function(payload, batch.origin))
        except Exception as error:
            counts["raised"] += 1
            log.error("A message of %r failed; it goes back.", batch.origin, exc_info=counts["raised"] <= TRACEBACKS)
            outcome = Yield(f"{type(error).__name__}: {error}")
        counts[type(outcome).__name__] += 1
        outcomes.append(DONE if outcome == DONE else outcome)
    return outcomes


def renewing(queue: MessageQueue, block: Block, batches: Iterator[Batch], lease: float | None) -> Iterator[Batch]:
    """The batches, with the block's life renewed between them at a third of its lease."""
    every = (lease or queue.config.lease) / 3
    renewed = time.monotonic()
    for batch in batches:
        yield batch
        if time.monotonic() - renewed > every:
            queue.renew_block(block, lease)
            renewed = time.monotonic()
