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
    assert printed[:2] == ["high cancel order 2", "high an alarm"]
    assert printed[6:] == ["6 of 12", "9", "sent b'a letter'", "1"]

    monkeypatch.setenv("AIRFLOW_MQ_STORE", store)
    (console,) = re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL)
    pause, *others = console.splitlines(keepends=True)
    run_console(pause, capsys)
    with MessageQueue(store, "tenants") as queue:
        queue.enqueue_message("sybil/new", b"accepted")
        assert queue.inspect.dry_run().origins == ["honest"]
        assert queue.footprint("sybil", below=True).count == 201
        why = queue.inspect.explain("sybil", below=True).sentence
        assert why.startswith("sybil, with all below it, is paused by ") and why.endswith("who is this?.")
        for command in others:
            run_console(command, capsys)
        queue.blocks.settle(queue.blocks.plan())
        messages, _ = queue.inspect.ledger(limit=1)[0].below("sybil")
        assert messages == 3
        assert queue.check() == []
