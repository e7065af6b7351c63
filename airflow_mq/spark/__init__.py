"""Where messages are processed.

A job (`airflow_mq.spark.job`, the file that `spark-submit` runs) gets a block's token and the store's
address by its environment, asks the block for the origins that are its own, and hands their messages
to the executors, where the processors' functions are called (`running`). What became of the messages is
reported as it happens (`reporting`): the first answer for a message counts, so a task that is tried again,
or twice at once, does no harm. A message that fails is an outcome; only a job that fails is a failure.

Where a cluster cannot reach the store, messages and outcomes are exchanged as Parquet below a path
(`exchange`). `source` lets Spark read, write and stream a queue as any other format. `java` finds a Java, or
makes do with the one that Python's package index has. `write_block` writes Parquet that a repeated block replaces.

The address and its password reach a job by the environment alone, and executors inside of what Spark
ships to them as code; they are in no argument, no configuration and no log.
"""

from __future__ import annotations

from .output import write_block

__all__ = ["write_block"]
