"""The examples of docs/set-aside.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_mq import MessageQueue
from airflow_mq.engine.store import parse, upgrade

PAGE = Path(__file__).parents[3] / "docs" / "set-aside.md"


def test_the_example_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    upgrade(parse(store))
    # The parts are one program.
    program = "".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    exec(compile(program, PAGE.name, "exec"), {"STORE": store})  # noqa: S102 - our own page
    told = capsys.readouterr().out
    assert "acme:0:0 is now acme:1:0" in told and "more than the 10 min" in told
    with MessageQueue(store) as queue:
        assert [step.what for step in queue.inspect.history(queue.inspect.peek("acme")[0].address).steps] == [
            "enqueued", "planned", "set aside", "requeued"
        ]  # fmt: skip
        assert [event.name for event in queue.inspect.events()] == [
            "SetAside", "SetAside", "Requeued", "Discarded"
        ]  # fmt: skip
        assert queue.check() == []
