"""Processors for tests: what they do stands in their messages, and what was tried in a file."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from airflow_mq import BadFormat, Batch, Done, Overweight, Weight, Yield, batch_processor
from airflow_mq.engine.queue.context import current_delivery

#: Names a folder into which each process writes what it tried.
TRIED = "AIRFLOW_MQ_TEST_TRIED"


def tried(payload: bytes, origin: str) -> None:
    """Remember what was tried, in whatever process."""
    folder = os.environ.get(TRIED)
    if folder:
        with open(Path(folder) / str(os.getpid()), "ab") as file:
            file.write(repr((origin, payload)).encode() + b"\n")


def all_tried(folder: Path) -> list[tuple[str, bytes]]:
    """Return the tried messages of all processes, the latest process last."""
    import ast

    files = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime_ns)
    return [ast.literal_eval(line) for file in files for line in file.read_text().splitlines()]


def process(payload: bytes, origin: str) -> Any:
    """Do what the message asks for."""
    tried(payload, origin)
    word, _, rest = payload.partition(b" ")
    if word == b"poison":
        raise ValueError(rest.decode())
    if word == b"die":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == b"exit":
        raise SystemExit(3)
    if word == b"slow":
        time.sleep(float(rest))
    if word == b"nonsense":
        return "no outcome"
    if word == b"enqueue":
        delivery = current_delivery.get()
        assert delivery is not None
        delivery.enqueue(rest.decode(), b"sent along")
        return Done(enqueue=[(rest.decode(), b"sent with the outcome")])
    return {
        b"bad": BadFormat(),
        b"later": Yield("not now"),
        b"heavy": Overweight(Weight(10**12, 1)),
        b"used": Done(used=Weight(50, 7)),
        b"false": False,
    }.get(word)


@batch_processor
def batched(batch: Batch) -> Sequence[Any]:
    """Process a batch; one with poison in it fails as a whole."""
    return [process(payload, batch.origin) for payload in batch.payloads]


@batch_processor
def batch_that_sends(batch: Batch) -> Sequence[Any]:
    """Send one message with the outcome of each."""
    return [
        Done(enqueue=[(payload.partition(b" ")[2].decode(), b"sent with the outcome")]) for payload in batch.payloads
    ]


def arrow(batches: Iterable[Any]) -> Iterator[Any]:
    """Process record batches."""
    import pyarrow as pa

    for batch in batches:
        words = [payload.partition(b" ")[0] for payload in batch.column("payload").to_pylist()]
        for word, payload in zip(words, batch.column("payload").to_pylist()):
            tried(payload, "arrow")
            if word == b"poison":
                raise ValueError("poison")
            if word == b"die":
                os.kill(os.getpid(), signal.SIGKILL)
        said = {b"bad": "bad", b"later": "yield", b"used": "done", b"odd": "odd"}
        kept = [place for place, word in enumerate(words) if word != b"silent"]
        columns = [
            pa.array([batch.column(name)[place].as_py() for place in kept])
            for name in ("origin", "priority", "page", "item")
        ]
        outcomes = [pa.array([said.get(words[place]) for place in kept], pa.string())]
        used = [pa.array([50 if words[place] == b"used" else None for place in kept], pa.int64())]
        yield pa.RecordBatch.from_arrays(
            [*columns, *outcomes, *used], ["origin", "priority", "page", "item", "outcome", "time"]
        )


def frame(messages: Any) -> Any:
    """Process a DataFrame."""
    from pyspark.sql import functions as f

    word = f.split(messages.payload.cast("string"), " ")[0]
    return messages.select("origin", "priority", "page", "item", f.when(word == "bad", "bad").alias("outcome"))


def frame_of_nothing(messages: Any) -> None:
    """All are done."""
    messages.count()


def frame_that_fails(messages: Any) -> None:
    """Nothing is done."""
    raise ValueError("this function fails as a whole")


def ending(messages: Any) -> Any:
    """End the session before the messages are read."""
    messages.sparkSession.stop()
    return messages


NO_FUNCTION = 7
