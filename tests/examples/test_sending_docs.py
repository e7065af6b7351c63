"""What docs/sending.md and docs/adapters.md show, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_mq.store import parse, upgrade

DOCS = Path(__file__).parents[2] / "docs"


def examples(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


@pytest.mark.parametrize("page", ["sending.md", "adapters.md"])
def test_the_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = f"sqlite:///{tmp_path}/store.db"
    upgrade(parse(store))
    known: dict[str, object] = {"STORE": store, "__name__": page}
    ran = 0
    for example in examples(page):
        if "airflow.sdk" in example:
            continue
        exec(compile(example.replace("from __future__", "#"), page, "exec"), known)  # noqa: S102 - our own page
        ran += 1
    assert ran >= 2


@pytest.mark.airflow
def test_the_operators_are_as_the_page_has_them() -> None:
    (example,) = [example for example in examples("adapters.md") if "airflow.sdk" in example]
    known: dict[str, object] = {}
    exec(compile(example, "adapters.md", "exec"), known)  # noqa: S102 - our own page
