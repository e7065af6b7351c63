"""Finding a Java, and making do."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from airflow_mq.engine.rules.errors import MessageQueueError
from airflow_mq.spark import java

NOWHERE = {"PATH": "/nonexistent"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fake(folder: Path, version: str, *, refuses_modules: bool = False) -> Path:
    """Make a java that can only print its version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    refuse = 'case "$1" in --add-modules*) exit 1;; esac; ' if refuses_modules else ""
    program.write_text(f"#!/bin/sh\n{refuse}echo 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return folder


def test_java_home_comes_first_then_the_path(tmp_path: Path) -> None:
    home, other = fake(tmp_path / "home", "21.0.1"), fake(tmp_path / "other", "17")

    assert java.java_home({"JAVA_HOME": str(home), "PATH": str(other / "bin")}) == home
    assert java.java_home({"PATH": str(other / "bin")}) == other


def test_one_that_is_too_old_or_broken_is_skipped(tmp_path: Path) -> None:
    old, good = fake(tmp_path / "old", "1.8.0_402"), fake(tmp_path / "good", "17.0.2")

    assert java.java_home({"JAVA_HOME": str(old), "PATH": str(good / "bin")}) == good
    assert java.java_home({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(good / "bin")}) == good


def test_without_any_the_error_lists_the_candidates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    old = fake(tmp_path / "old", "11.0.2")

    with pytest.raises(java.NoJava, match=r"java on the PATH .* is version 11.*airflow-mq\[java\]"):
        java.java_home({"PATH": str(old / "bin")})
    with pytest.raises(java.NoJava, match="neither JAVA_HOME"):
        java.java_home(NOWHERE)
    with pytest.raises(MessageQueueError, match=r"airflow-mq\[spark\]"):
        java.spark_home()


def test_one_without_the_module_is_called_without_the_flag(tmp_path: Path, cache: Path) -> None:
    stripped = fake(tmp_path / "it's stripped", "17.0.9", refuses_modules=True)

    with ThreadPoolExecutor(8) as pool:
        homes = set(pool.map(lambda _: java.java_home({"JAVA_HOME": str(stripped)}), range(16)))

    (home,) = homes
    assert home.is_relative_to(cache)
    asked = subprocess.run([home / "bin" / "java", java.MODULE, "-version"], capture_output=True, text=True, check=True)
    assert "17.0.9" in asked.stderr
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]


def test_the_packaged_java_runs_without_any_other(cache: Path) -> None:
    home = java.java_home(NOWHERE)

    assert home.is_relative_to(cache)
    asked = subprocess.run(
        [home / "bin" / "java", java.MODULE, "-XX:+UseSerialGC", "-version"], capture_output=True, text=True, check=True
    )
    assert 'version "17' in asked.stderr


def test_a_script_that_was_tampered_with_is_made_anew() -> None:
    home = java.java_home(NOWHERE)
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 7\n")

    assert java.java_home(NOWHERE) == home
    assert subprocess.run([home / "bin" / "java", "-version"], capture_output=True, check=False).returncode == 0


def test_a_cache_that_others_may_write_is_not_used(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    (cache / "airflow_mq").mkdir(parents=True)
    (cache / "airflow_mq").chmod(0o777)

    folder = java.cache_folder()

    assert folder.is_relative_to(tmp_path / "tmp")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("trick", ["writable", "foreign", "link to writable"])
def test_a_folder_that_another_user_prepared_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trick: str
) -> None:
    """A user who can change a folder around the cache could replace our Java."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a file"))
    (tmp_path / "a file").touch()
    monkeypatch.setattr(java.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    prepared = tmp_path / "tmp" / f"airflow_mq-{os.getuid()}"
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    assert java.cache_folder() == prepared / "airflow_mq", "others may write in the temporary directory itself"
    shutil.rmtree(prepared)

    place = tmp_path / "elsewhere" if trick.startswith("link") else prepared
    (place / "airflow_mq").mkdir(parents=True, mode=0o700)
    if trick == "foreign":
        lstat = os.lstat
        monkeypatch.setattr(java.os, "lstat", lambda path: _owned_by(4711, lstat(path), Path(path) == place))
    else:
        place.chmod(0o777)
    if place != prepared:
        prepared.symlink_to(place)
    with pytest.raises(MessageQueueError, match="can be changed by this user alone"):
        java.cache_folder()


def _owned_by(user: int, found: os.stat_result, other: bool) -> os.stat_result:
    return os.stat_result((*found[:4], user, *found[5:])) if other else found


def test_what_is_made_for_the_cache_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a" / "b"))
    before = os.umask(0)
    try:
        folder = java.cache_folder()
    finally:
        os.umask(before)
    assert folder == tmp_path / "a" / "b" / "airflow_mq"
    assert {stat.S_IMODE(one.stat().st_mode) for one in (folder, *list(folder.parents)[:2])} == {0o700}


def test_the_environment_of_spark_submit() -> None:
    said = java.spark_environment({"PATH": "/bin"})

    assert Path(said["SPARK_HOME"], "bin", "spark-submit").is_file()
    assert Path(said["JAVA_HOME"], "bin", "java").is_file()
    assert said["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert said["PATH"].endswith(f"{os.pathsep}/bin")
    assert "SPARK_LOCAL_IP" not in java.spark_environment(loopback=False)
    assert java.spark_environment({"PATH": "/bin", "PYSPARK_PYTHON": "python9"})["PYSPARK_PYTHON"] == "python9"


def test_a_small_job_compiles_less() -> None:
    conf = java.local_conf()
    assert conf["spark.driver.extraJavaOptions"] == "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    assert conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.extraJavaOptions" not in java.local_conf(small=False)
