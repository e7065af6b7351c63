"""`db`: tables are made on request, and never by the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_mq.cli import main
from tests.store.cli.conftest import Terminal


@pytest.mark.empty_store
def test_a_store_is_made_and_brought_up_to_date(empty: Terminal) -> None:
    first = empty.json("store", "version", code=1)
    made = empty.json("store", "upgrade")
    again = empty.json("store", "upgrade")

    assert (first["state"], first["version"]) == ("missing", None)
    assert made["applied"] and made["version"] == first["expected"]
    assert again["applied"] == []
    assert empty.json("store", "version")["state"] == "current"


@pytest.mark.empty_store
def test_the_text_names_the_next_command(empty: Terminal) -> None:
    assert "run `airflow-mq store upgrade`" in empty("store", "version", code=1).out
    assert "airflow-mq enqueue" in empty("store", "upgrade").out
    assert "nothing to do" in empty("store", "upgrade").out
    assert empty("store", "upgrade", "--quiet").out == ""


@pytest.mark.empty_store
def test_nothing_else_makes_tables(empty: Terminal) -> None:
    said = empty("queue", "list", code=4)

    assert "airflow-mq store upgrade" in said.err
    assert empty.json("store", "version", code=1)["state"] == "missing"


def test_a_file_that_is_gone_is_no_store_without_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder, lacks in (("", "there is no file"), ("nowhere/", f"there is no directory {tmp_path}/nowhere")):
        at = ["--store", f"sqlite:///{tmp_path}/{folder}store.db"]
        for what, code in (("queue list", 4), ("status", 4), ("top", 4), ("doctor", 1), ("store version", 1)):
            assert main([*at, *what.split()]) == code
            told = capsys.readouterr()
            assert lacks in told.out + told.err and "airflow-mq store upgrade" in told.out + told.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.empty_store
def test_the_statements_can_be_printed(empty: Terminal) -> None:
    text = empty("store", "sql").out

    assert text.startswith("BEGIN;") and text.endswith("COMMIT;\n")
    assert empty.json("store", "sql")["sql"] == text
    empty("store", "upgrade")
    assert len(empty("store", "sql").out) < len(text) / 4  # nothing is left to do
    assert empty("store", "sql", "--since", "0").out == text


def test_the_statements_need_no_store(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_MQ_STORE", raising=False)

    assert main(["store", "sql", "--dialect", "postgres", "--schema", "elsewhere"]) == 0

    assert 'CREATE SCHEMA IF NOT EXISTS "elsewhere"' in capsys.readouterr().out


def test_a_file_that_is_no_store_is_an_error_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database at all, but long enough to look like one" * 100)

    assert main(["--store", f"sqlite:///{path}", "queue", "list"]) == 4

    err = capsys.readouterr().err
    assert err.startswith("error: ") and err.count("\n") == 1
