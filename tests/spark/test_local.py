"""Quick start on one machine: the settings of Spark, and the archive of classes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from airflow_mq.engine.rules.errors import MessageQueueError
from airflow_mq.spark import local
from airflow_mq.spark.java import java_home


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_without_an_archive_it_only_compiles_less(cache: Path) -> None:
    conf = local.local_conf()

    assert conf["spark.driver.extraJavaOptions"] == "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    assert conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.extraJavaOptions" not in local.local_conf(small=False)


@pytest.mark.slow
def test_an_archive_belongs_to_one_java_and_is_used_when_it_is_there(cache: Path) -> None:
    packaged = local.archive_path({"PATH": "/nonexistent"})
    assert packaged.is_relative_to(cache)
    assert packaged == local.archive_path({"PATH": "/nonexistent"})
    assert (
        packaged != local.archive_path({"JAVA_HOME": str(java_home()), "PATH": os.defpath})
        or "java-" in java_home().name
    )

    packaged.write_bytes(b"an archive")

    assert local.make_archive({"PATH": "/nonexistent"}) == packaged
    assert (
        f"-XX:SharedArchiveFile={packaged}"
        in local.local_conf({"PATH": "/nonexistent"})["spark.driver.extraJavaOptions"]
    )


def test_an_archive_that_cannot_be_made_gives_the_reason_and_leaves_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "spark_home", lambda: cache)

    with pytest.raises(MessageQueueError, match="could not be made"):
        local.make_archive()

    assert not [path for path in cache.rglob("*") if path.is_file() and path.suffix == ".jsa"]
