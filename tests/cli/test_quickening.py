"""`block class-archive`: made once; its path is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_mq.cli import main
from airflow_mq.spark import local


@pytest.mark.slow
def test_an_archive_is_made_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(local, "_run", lambda command, environment: _as_java_would(command))

    assert main(["block", "class-archive"]) == 0
    first = capsys.readouterr().out
    assert "about a minute" in first and f"made {local.archive_path()}" in first
    assert main(["block", "class-archive"]) == 0
    assert f"found {local.archive_path()}" in capsys.readouterr().out
    assert str(local.archive_path()) in local.local_conf()["spark.driver.extraJavaOptions"]


def _as_java_would(command: list[str]) -> str:
    for word in command:
        if word.startswith("-XX:SharedArchiveFile="):
            Path(word.partition("=")[2]).write_bytes(b"an archive")
    return "Spark Command: java -cp /jars/* -Xmx1g"
