"""The examples of docs/priorities.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_mq.engine.store import parse, upgrade

PAGE = Path(__file__).parents[3] / "docs" / "priorities.md"


def test_the_examples_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    upgrade(parse(store))
    known: dict[str, object] = {"STORE": store}
    for example in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(example, PAGE.name, "exec"), known)  # noqa: S102 - our own page
    printed = capsys.readouterr().out.splitlines()
    assert printed[:2] == ["high cancel order 2", "high an alarm"] and len(printed) == 8
    assert printed[-2:] == ["sent b'a letter'", "1"]
