"""Driver of two streams that a test kills: `python -m tests.spark.streaming ADDRESS FOLDER [drain]`.

The stream `each` writes with `foreachBatch` and skips the numbers that it knows, as Spark's documentation advises. Once
it has written a batch it waits: the batch is in the sink, and Spark has not committed it. Then the stream `files` begins,
with Spark's file sink. With `drain`, both end when their queues are empty.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from airflow_mq import MessageQueue
from airflow_mq.spark.java import spark_environment
from airflow_mq.spark.source import register
from tests.spark.conftest import QUICK

RINGS = ("each", "files")
#: Seconds of a block's lease.
LEASE = 10


def is_empty(uri: str, ring: str) -> bool:
    """Return whether a ring has neither messages nor live blocks."""
    with MessageQueue(uri, ring) as queue:
        return not any(book.count for _, book in queue.footprints()) and not queue.blocks.list("planned")


def main(uri: str, folder: Path, *, is_last: bool) -> None:
    """Run both streams until they are drained, or for ever."""
    from pyspark.sql import SparkSession

    os.environ.update(spark_environment(), AIRFLOW_MQ_STORE=uri)
    builder = SparkSession.builder.master("local[2]")
    for name, value in QUICK.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    write_text(folder / "jvm", str(spark.sparkContext._gateway.proc.pid))
    in_sink = threading.Event()

    def sink(frame: Any, number: int) -> None:
        target = folder / "each" / str(number)
        rows = [bytes(row.payload).decode() for row in frame.collect()]
        if rows and not target.exists():
            write_text(target, "\n".join(rows))
            if not is_last:
                in_sink.set()
                threading.Event().wait()

    def stream(ring: str) -> Any:
        options = {"ring": ring, "stream": ring, "lease": str(LEASE), "partitions": "1"}
        frame = spark.readStream.format("airflow_mq").options(**options).load()
        return frame.writeStream.option("checkpointLocation", str(folder / f"checkpoint-{ring}"))

    begin = {
        "each": lambda: stream("each").foreachBatch(sink).start(),
        "files": lambda: stream("files").format("parquet").start(str(folder / "files")),
    }
    queries: dict[str, Any] = {}

    def tend(*rings: str) -> None:
        """Start streams that do not run: on a busy machine Spark waits in vain for the Python of a source."""
        for ring in rings:
            if ring not in queries or not queries[ring].isActive:
                queries[ring] = begin[ring]()
        time.sleep(0.5)

    while not in_sink.is_set() and not is_empty(uri, "each"):
        tend("each")
    while not is_last or not all(is_empty(uri, ring) for ring in RINGS):
        tend("files", *(("each",) if is_last else ()))
    for query in queries.values():
        query.stop()
    spark.stop()


def write_text(target: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}")
    part.write_text(text)
    part.replace(target)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), is_last=sys.argv[3:] == ["drain"])
