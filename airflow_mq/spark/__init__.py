"""Processing of messages, on Spark and in place.

A job (`airflow_mq.spark.job`, the file that `spark-submit` runs) reads a block's token and the store's address from its
environment. It takes the origins of its part from the block, and sends their messages to the executors, which call the
processors' functions (`share`, `attempts`). Outcomes are reported as they happen (`reports`). The first outcome of a
message counts, so a task may be repeated, or run twice at once; of a `dataframe` part, the first of the latest attempt.
A message that fails is an outcome; only a job fails.

If a cluster cannot reach the store, messages and outcomes are exchanged as Parquet below a path (`exchange`). `source`
lets Spark read, write and stream a queue as a format. `java` finds a Java, or uses the one of Python's package index.
`write_block` writes Parquet that a repeated block replaces.

Address and password reach a job by the environment alone, and executors within the code that Spark ships to them. They
are in no argument, no configuration and no log.
"""

from __future__ import annotations

from .output import write_block

__all__ = ["write_block"]
