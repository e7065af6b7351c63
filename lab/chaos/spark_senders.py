"""Sender in Spark: each call is a job that writes the rows of a frame to the queue."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from airflow_mq.engine.rules.errors import MessageQueueError
from airflow_mq.spark.java import QUICK_JAVA, spark_environment

from .letters import SPARK, Call
from .senders import Sender
from .workload import Desk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Tasks of a job, and rows of all of them. Tasks run beside each other, so each has an origin of its own.
TASKS, ROWS = 2, 120
CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    # Each batch is a transaction, so a fault may leave a part of a task's rows.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10",
}


class SparkSender(Sender):
    """A sender that repeats an unacknowledged job by its name; the rows have no keys."""

    progress = "spark"
    pause = 1.0

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._session: SparkSession | None = None

    def run(self) -> None:
        try:
            super().run()
        finally:
            if self._session is not None:
                self._session.stop()

    def _compose(self, number: int) -> Call:
        return Call(SPARK, number, "spark", "spark", ROWS)

    def _send_spark(self, call: Call) -> None:
        from pyspark.errors import PySparkException

        session = self._started()
        rows = [(f"spark/{letter.part * TASKS // ROWS}", letter.payload) for letter in call.letters]
        frame = session.createDataFrame(session.sparkContext.parallelize(rows, TASKS), "origin STRING, payload BINARY")
        try:
            frame.write.format("airflow_mq").mode("append").option("job", f"spark {call.number}").save()
        except PySparkException as error:
            raise MessageQueueError(str(error)) from error

    def _started(self) -> SparkSession:
        if self._session is None:
            from pyspark.sql import SparkSession

            from airflow_mq.spark.source import register

            os.environ.update(spark_environment(), AIRFLOW_MQ_STORE=self.desk.uri, PYSPARK_PYTHON=sys.executable)
            # A task may fail three times before its job does.
            builder = SparkSession.builder.master(f"local[{TASKS},4]").appName("chaos")
            self._session = builder.config(map=CONFIGURATION).getOrCreate()
            register(self._session)
        return self._session
