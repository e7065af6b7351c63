"""Points of a block: each begins a run, and keeps it at one point while the context is open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from .processors import MESSAGE
from .stage import ORIGINS, Stage, wait_until

#: A message behind others of its origin, so that some of the block is processed before it.
GATED = ORIGINS + 1

#: Begins a run of a DAG on a ring, and yields its id while the run is at the point.
Point = Callable[[Stage, str, str], AbstractContextManager[str]]


def begin(stage: Stage, dag: str, ring: str, is_there: Callable[[], object]) -> str:
    """Trigger runs until one is at a point: on a busy machine, the lease of a block may run out before."""
    run = stage.airflow.trigger(dag, {"ring": ring})
    has_ended = partial(stage.has_ended, dag, run)
    wait_until(lambda: is_there() or has_ended(), f"{dag} comes to the point", pause=0.5)
    return run if is_there() else begin(stage, dag, ring, is_there)


@contextmanager
def planning(stage: Stage, dag: str, ring: str) -> Iterator[str]:
    """In the plan's transaction, which waits for the table of blocks."""
    stage.send(ring)
    with stage.locked_table("block") as is_awaited:
        yield begin(stage, dag, ring, is_awaited)


@contextmanager
def gated(stage: Stage, dag: str, ring: str, name: str) -> Iterator[str]:
    """At a closed gate."""
    gate = stage.gate(ring, name)
    gate.close()
    yield begin(stage, dag, ring, gate.visitors)
    gate.open()


def submitting(stage: Stage, dag: str, ring: str) -> AbstractContextManager[str]:
    """In the task that processes, before it calls spark-submit."""
    stage.send(ring)
    return gated(stage, dag, ring, "process")


def processing(stage: Stage, dag: str, ring: str) -> AbstractContextManager[str]:
    """In the processor, behind some messages and before others."""
    stage.send(ring, GATED)
    return gated(stage, dag, ring, MESSAGE)


def failing(stage: Stage, dag: str, ring: str) -> AbstractContextManager[str]:
    """In the processor, while the first message of another origin fails with an error that quotes it."""
    stage.send(ring, GATED, quoting=0)
    return gated(stage, dag, ring, MESSAGE)


def processed(stage: Stage, dag: str, ring: str) -> AbstractContextManager[str]:
    """In the task that settles, before it reads the block."""
    stage.send(ring)
    return gated(stage, dag, ring, "settle")


@contextmanager
def settling(stage: Stage, dag: str, ring: str) -> Iterator[str]:
    """In the transaction that settles, which waits for the table of events."""
    with processed(stage, dag, ring) as run, stage.locked_table("event") as is_awaited:
        stage.gate(ring, "settle").open()
        wait_until(is_awaited, "the settlement writes its events")
        yield run


POINTS: dict[str, tuple[str, Point]] = {
    "planning": ("during planning", planning),
    "submitting": ("before spark-submit", submitting),
    "processing": ("during processing", processing),
    "failing": ("during processing, when a message fails", failing),
    "processed": ("before settling", processed),
    "settling": ("during settling", settling),
}
