"""Quick start on one machine: the settings of Spark."""

from __future__ import annotations

from airflow_mq.spark.local import local_conf


def test_a_small_job_compiles_less() -> None:
    conf = local_conf()
    assert conf["spark.driver.extraJavaOptions"] == "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    assert conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.extraJavaOptions" not in local_conf(small=False)
