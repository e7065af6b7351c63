"""Fast start of Spark on one machine: settings for `local[*]`.

A small block takes a second or two; starting a JVM with Spark takes ten times that. Fewer compilations and a simple
collector shorten the start (`lab/benchmarks/report/spark.md`).
"""

from __future__ import annotations

import os

#: Options for a driver that lives for seconds: quick compilation, and a collector with one thread.
QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def local_conf(*, small: bool = True) -> dict[str, str]:
    """Return the settings (`--conf`) of a job on this machine alone.

    :param small: for jobs of seconds; jobs of minutes need the full compiler and collector
    """
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    }
    return {**conf, "spark.driver.extraJavaOptions": QUICK_JAVA} if small else conf
