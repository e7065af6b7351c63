"""Fast start of Spark on one machine: settings for `local[*]`, and an archive of its classes.

A small block takes a second or two; starting a JVM with Spark takes ten times that. Measurements
(`lab/benchmarks/report/spark.md`) show what helps: fewer compilations, a simple collector, and most of all an archive
of the classes that Spark loads, made once for this Java and this Spark.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ..engine.rules.errors import MessageQueueError
from .java import cache_folder, java_home, spark_environment, spark_home

#: Options for a driver that lives for seconds: quick compilation, and a collector with one thread.
QUICK_JAVA = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_SECONDS = 300
_WARM_UP = """
from pyspark import SparkContext
context = SparkContext()
assert context.parallelize(range(2), 2).mapPartitions(lambda rows: [sum(rows)]).collect() == [0, 1]
{frames}
context.stop()
"""
_FRAMES = """
from pyspark.sql import SparkSession
session = SparkSession(context)
assert len(session.range(2).mapInArrow(lambda batches: batches, "id long").collect()) == 2
"""


def local_conf(environment: Mapping[str, str] | None = None, *, small: bool = True) -> dict[str, str]:
    """Return the settings (`--conf`) of a job on this machine alone.

    :param small: for jobs of seconds; jobs of minutes need the full compiler and collector
    """
    options = list(QUICK_JAVA) if small else []
    archive = archive_path(environment)
    if archive.is_file():
        # A Java that cannot use the archive starts without it.
        options += [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr"]
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    }
    if options:
        conf["spark.driver.extraJavaOptions"] = " ".join(options)
    return conf


def archive_path(environment: Mapping[str, str] | None = None) -> Path:
    """Return the path of the archive for this Java and this Spark."""
    home, spark = java_home(environment).resolve(), spark_home().resolve()
    jars = sorted(f"{jar.name} {jar.stat().st_size}" for jar in (spark / "jars").glob("*.jar"))
    release = home / "release"
    version = release.read_text() if release.is_file() else (home / "bin" / "java").stat().st_size
    name = hashlib.sha256("\n".join([str(home), str(spark), str(version), *jars]).encode()).hexdigest()[:16]
    return cache_folder() / f"spark-{name}.jsa"


def make_archive(environment: Mapping[str, str] | None = None) -> Path:
    """Make the archive if it is missing; takes half a minute, and about 150 MB in the user's cache."""
    archive = archive_path(environment)
    if archive.is_file():
        return archive
    base = dict(os.environ if environment is None else environment)
    known = {**base, **spark_environment(base)}
    with tempfile.TemporaryDirectory(prefix="airflow_mq_", dir=archive.parent) as folder:
        classes, script = Path(folder) / "classes", Path(folder) / "warm_up.py"
        script.write_text(_WARM_UP.format(frames=_FRAMES))
        output = _run([
            str(spark_home() / "bin" / "spark-submit"), "--master", "local[2]",
            "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false",
            "--conf", f"spark.driver.extraJavaOptions=-Xshare:off -XX:DumpLoadedClassList={classes}", str(script),
        ], {**known, "SPARK_PRINT_LAUNCH_COMMAND": "1"})  # fmt: skip
        made = archive.with_name(f".{secrets.token_hex(8)}.jsa")
        try:
            _run([
                str(Path(known["JAVA_HOME"]) / "bin" / "java"), "-Xshare:dump", "-XX:+UseSerialGC",
                f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={made}",
                "--add-modules=jdk.incubator.vector", "-cp", _class_path(output),
            ], known)  # fmt: skip
            os.replace(made, archive)
        finally:
            made.unlink(missing_ok=True)
    return archive


def _class_path(output: str) -> str:
    """Return the class path of Spark's launcher: an archive is valid for the same class path only."""
    found = re.search(r"^Spark Command: .*? -cp (.+?) -X", output, re.MULTILINE)
    if not found:
        raise MessageQueueError("the archive of Spark's classes could not be made: Spark prints no class path")
    return found[1]


def _run(command: list[str], environment: Mapping[str, str]) -> str:
    try:
        ran = subprocess.run(  # noqa: S603 - Spark and Java of this environment
            command, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MessageQueueError(f"the archive of Spark's classes could not be made: {error}") from None
    if ran.returncode:
        raise MessageQueueError(
            f"the archive of Spark's classes could not be made; {Path(command[0]).name} printed: {ran.stdout[-500:]}"
        )
    return ran.stdout
