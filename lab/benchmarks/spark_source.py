"""The data source against Spark's own JDBC source: the same rows, written to PostgreSQL and read from it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from airflow_mq import MessageQueue
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.spark.java import cache_folder, local_conf, spark_environment
from lab.benchmarks.spark_meter import measured
from lab.benchmarks.stats import Sample
from tests.maven import fetch_jar
from tests.postgres_server import Server
from tests.spark.connecting import ROOT

DRIVER = "org/postgresql/postgresql/42.7.7/postgresql-42.7.7.jar"
DRIVER_CHECKSUM = "157963d60ae66d607e09466e8c0cdf8087e9cb20d0159899ffca96bca2528460"
ORIGINS, CORES = 100, 2
#: The columns that are read; JDBC's source finds them in the query.
COLUMNS = "origin STRING, payload BINARY"


@contextmanager
def session(uri: str) -> Iterator[Any]:
    """A session on two cores, with PostgreSQL's JDBC driver and the format."""
    jar = fetch_jar(cache_folder(), DRIVER, DRIVER_CHECKSUM)
    os.environ.update(spark_environment(), AIRFLOW_MQ_STORE=uri, PYTHONPATH=str(ROOT), PYSPARK_PYTHON=sys.executable)
    from pyspark.sql import SparkSession

    from airflow_mq.spark.source import register

    builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.jars", str(jar))
    for name, value in local_conf(small=False).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    try:
        yield spark
    finally:
        spark.stop()


class Source:
    """Both sources on one database, each with tables of its own for each turn."""

    def __init__(self, spark: Any, server: Server, uri: str, rows: Path) -> None:
        self.spark, self.server, self.uri, self.rows = spark, server, uri, rows
        parts = urlsplit(uri)
        self.url = f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}?reWriteBatchedInserts=true"
        self.login = {"user": parts.username, "password": parts.password, "driver": "org.postgresql.Driver"}

    def jdbc(self, way: Any, turn: int) -> Any:
        return way.format("jdbc").options(url=self.url, dbtable=f"rows_{turn}", **self.login)

    def write(self, who: str, turn: int) -> None:
        """Write the rows to a new table, or to a new ring."""
        frame = self.spark.read.parquet(str(self.rows))
        if who == "ours":
            frame.write.format("airflow_mq").option("ring", f"rows-{turn}").mode("append").save()
        else:
            self.jdbc(frame.write, turn).option("batchsize", "10000").mode("append").save()

    def read(self, who: str, turn: int, count: int) -> None:
        """Read the rows of a turn."""
        if who == "ours":
            options = {"ring": f"rows-{turn}", "partitions": str(CORES), "limit": str(count)}
            frame = self.spark.read.schema(COLUMNS).format("airflow_mq").options(**options).load()
        else:
            bounds = {"partitionColumn": "id", "lowerBound": "1", "upperBound": str(count), "numPartitions": str(CORES)}
            frame = self.jdbc(self.spark.read, turn).options(fetchsize="10000", **bounds).load()
        frame.select("origin", "payload").write.format("noop").mode("overwrite").save()

    def vacuum(self) -> None:
        """Vacuum all tables, so that no read meets autovacuum, or is the first to visit new rows."""
        with psycopg.connect(self.uri, autocommit=True) as connection:
            connection.execute("VACUUM (ANALYZE)")

    def prepare(self, turn: int) -> None:
        """Make the table and the ring of a turn."""
        with psycopg.connect(self.uri) as connection:
            connection.execute(
                f"CREATE TABLE rows_{turn} (id bigserial PRIMARY KEY, origin text NOT NULL, payload bytea NOT NULL)"
            )
        with MessageQueue(self.uri) as queue:
            queue.admin.create_ring(f"rows-{turn}")


def make_rows(spark: Any, folder: Path, count: int, size: int) -> Path:
    """Write random rows as Parquet, one file for each core."""
    from pyspark.sql import functions as f

    rows = folder / "rows"
    payload = f.concat(*(f.randstr(f.lit(size // 4), f.lit(at)) for at in range(4))).cast("binary")
    origin = f.format_string("tenant-%03d", f.col("id") % ORIGINS)
    frame = spark.range(0, count, 1, CORES).select(origin.alias("origin"), payload.alias("payload"))
    frame.write.mode("overwrite").parquet(str(rows))
    return rows


def measure(server: Server, folder: Path, count: int, size: int, turns: int) -> list[Sample]:
    """Let both sources take turns at writing and reading; the first turn warms up."""
    uri, found = server.create_database(), []
    upgrade(parse(uri))
    with session(uri) as spark:
        source = Source(spark, server, uri, make_rows(spark, folder, count, size))
        for turn in range(turns + 1):
            source.prepare(turn)
            for who in ("ours", "jdbc") if turn % 2 else ("jdbc", "ours"):
                for way in ("write", "read"):
                    if way == "write":
                        work = partial(source.write, who, turn)
                    else:
                        source.vacuum()
                        work = partial(source.read, who, turn, count)
                    took = measured(work, server.pid)
                    print(f"source, turn {turn}, {who} {way}: {took}", flush=True)
                    if turn:
                        found.append(
                            {"measure": "spark_source", "contender": who, "variant": way, "count": count, **took}
                        )
            with psycopg.connect(uri) as connection:
                written = connection.execute(f"SELECT count(*), sum(length(payload)) FROM rows_{turn}").fetchone()
            with MessageQueue(uri, f"rows-{turn}") as queue:
                totals = [footprint for _, footprint in queue.footprints()]
            assert written == (count, sum(one.size for one in totals)), (written, totals[:3])
    return found
