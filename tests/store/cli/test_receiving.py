"""`receive`: what other transports have."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.store.cli.conftest import Terminal


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    folder = tmp_path / "landing"
    (folder / "acme").mkdir(parents=True)
    for name in ("1.csv", "2.csv"):
        (folder / "acme" / name).write_bytes(b"a\nb\n")
    return folder


def test_a_folder(mq: Terminal, landing: Path) -> None:
    words = ("message", "receive-folder", str(landing), "--pattern", "{origin}/*.csv", "--settle", "0")
    told = {"count": 1, "size": 4, "repeated": 0, "refused": 0, "left": 0, "unreadable": 0}
    assert mq.json(*words, "--limit", "1") == told
    assert mq(*words).out == "received 1 message of 4 bytes\n"
    assert mq(*words, "--quiet").out == ""
    (landing / "stray.csv").touch()
    assert "does not match what is there: 1 file, 'stray.csv' first" in mq(*words).out
    (landing / "acme" / "3.csv").touch()
    assert "1 put aside" in mq(*words, code=1).out
    assert sorted(os.listdir(landing / ".received/acme")) == ["1.csv", "2.csv"]


def test_a_weight_and_a_priority(mq: Terminal, landing: Path) -> None:
    words = ("message", "receive-folder", str(landing), "--pattern", "{origin}/*.csv", "--settle", "0")
    mq(*words, "--weight", "70/8", "--priority", "high")
    found = [(one["address"], one["weight"]) for one in mq.json("message", "list", "acme")]
    assert found == [(f"acme:0:{item}:high", {"time": 70, "size": 8}) for item in range(2)]


def test_lines_of_a_folder_and_of_an_object_store(mq: Terminal, landing: Path) -> None:
    how = ("--regex", r"(?P<origin>[a-z]+)/\d\.csv", "--lines", "--delete", "--slice-messages", "3", "--settle", "0")
    assert mq.json("message", "receive-folder", f"file://{landing}", *how)["count"] == 4
    assert [one["payload"] for one in mq.json("message", "list", "acme")] == ["a", "b", "a", "b"]
    assert [path.name for path in landing.rglob("*") if path.is_file()] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("message", "receive-folder", "/no/such/folder", "--pattern", "{origin}"), "no folder"),
        (("message", "receive-folder", "/tmp"), "specify exactly one of pattern, regex"),
        (("message", "receive-folder", "no-such-store://bucket", "--pattern", "{origin}"), "an object store needs"),
        (
            ("message", "receive-folder", "/tmp", "--pattern", "{origin}", "--settle", "-1"),
            "invalid duration '-1'",
        ),
        (("message", "receive-folder", "/tmp", "--pattern", "{origin}", "--limit", "0"), "at least 1"),
        (("message", "receive-kafka", "orders"), "no cluster: expected"),
        (("message", "receive-kafka", "orders", "--bootstrap", "127.0.0.1:1"), "group.id"),
        (
            ("message", "receive-kafka", "orders", "--bootstrap", "127.0.0.1:1", "--group", "g", "--origin", "x"),
            "invalid template of origins",
        ),
        (("message", "receive-kafka", "orders", "--config", "/no/such/file"), "cannot be read"),
        (("message", "receive-kafka", "orders", "--bootstrap", "h", "--kafka-conn-id", "c"), "not both"),
    ],
)
def test_what_makes_no_sense(mq: Terminal, words: tuple[str, ...], says: str) -> None:
    assert says in mq(*words, code=2).err


@pytest.mark.slow
def test_a_cluster_that_does_not_answer(mq: Terminal, tmp_path: Path) -> None:
    settings = tmp_path / "kafka.json"
    settings.write_text(json.dumps({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}))
    said = mq("message", "receive-kafka", "orders", "--config", str(settings), "--patience", "0.2", code=3)
    assert "check that it is up" in said.err
    settings.write_text("[]")
    assert "expected a JSON object" in mq("message", "receive-kafka", "orders", "--config", str(settings), code=2).err
