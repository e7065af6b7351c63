"""The examples of docs/sending.md about large payloads."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import pytest

from airflow_mq.engine.store import parse, upgrade
from tests.store.examples.test_docs import run_console

PAGE = Path(__file__).parents[3] / "docs" / "sending.md"
SECTION = PAGE.read_text("utf-8").partition("\n## Large payloads\n")[2].partition("\n## ")[0]


def test_the_example_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    upgrade(parse("sqlite:///queue.db"))
    Path("orders.parquet").write_bytes(os.urandom(3_000_000))
    (program,) = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
    exec(compile(program, PAGE.name, "exec"), {"STORE": "sqlite:///queue.db"})  # noqa: S102 - our own page
    told = capsys.readouterr().out.splitlines()
    assert sorted(told) == ["[]", "acme 3000000", "birch 3000000", "cobalt 3000000"]

    monkeypatch.setenv("AIRFLOW_MQ_STORE", "sqlite:///queue.db")
    (console,) = re.findall(r"```console\n(.*?)```", SECTION, re.DOTALL)
    sent = Path("orders.parquet").read_bytes()
    name = hashlib.blake2b(sent, digest_size=32).hexdigest()
    run_console(console.replace("HASH > orders.parquet", f"{name} --output again.parquet"), capsys)
    assert Path("again.parquet").read_bytes() == sent
