"""The examples of docs/priorities.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_mq import MessageQueue
from airflow_mq.engine.store import parse, upgrade
from tests.store.examples.test_docs import run_console

PAGE = Path(__file__).parents[3] / "docs" / "priorities.md"


def test_the_examples_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    upgrade(parse(store))
    known: dict[str, object] = {"STORE": store}
    # The parts are one program.
    for example in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(example, PAGE.name, "exec"), known)  # noqa: S102 - our own page
    printed = capsys.readouterr().out.splitlines()
    half, most, origins, count, why, got = printed[6:-2]
    assert printed[:2] == ["high cancel order 2", "high an alarm"]
    assert (half, most, origins, count) == ("6 of 12", "9", "['honest']", "201")
    assert why == "sybil, with all below it, is paused by " + why.partition(" by ")[2]
    assert why.endswith("who is this?.")
    assert got.startswith("(3, ")
    assert printed[-2:] == ["sent b'a letter'", "1"]
    monkeypatch.setenv("AIRFLOW_MQ_STORE", store)
    for part in re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL):
        run_console(part, capsys)
    with MessageQueue(store, "tenants") as queue:
        assert queue.check() == []
