"""`enqueue`: everything that can be sent, from everywhere it can come from."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_mq import MessageQueue
from tests.store.cli.conftest import Terminal


def payloads(mq: Terminal, origin: str = "acme") -> list[str]:
    return [one["payload"] for one in mq.json("message", "list", origin)]


def test_messages_from_arguments(mq: Terminal) -> None:
    assert mq.json("enqueue", "acme", "one", "two") == {"count": 2, "size": 6, "repeated": 0}
    assert "enqueued 1 message of 5 bytes" in mq("enqueue", "acme", "three").out
    assert mq("enqueue", "bolt", "x").out == "enqueued 1 message of 1 byte\n"
    assert mq("enqueue", "acme", "--quiet", "four").out == ""
    assert mq.json("enqueue", "acme", "--delay", "0", "five", "six")["count"] == 2

    assert payloads(mq)[:4] == ["one", "two", "three", "four"]


def test_messages_from_files_and_their_lines(mq: Terminal, tmp_path: Path) -> None:
    whole, lines = tmp_path / "whole", tmp_path / "lines"
    whole.write_bytes(b"a\nb\n")
    lines.write_bytes(b"c\r\n\nd\n")

    mq("enqueue", "acme", "--file", str(whole))
    assert mq.json("enqueue", "acme", "--lines", "--file", str(lines))["count"] == 2

    assert payloads(mq) == ["a\nb\n", "c", "d"]
    assert "cannot be read" in mq("enqueue", "acme", "--file", str(tmp_path / "none"), code=2).err
    # Otherwise the message would be the name of the file.
    assert "--file PATH" in mq("enqueue", "acme", "--lines", str(lines), code=2).err


@pytest.mark.slow
@pytest.mark.parametrize(("words", "expected"), [(["-"], ["x\ny\n"]), (["--lines", "-"], ["x", "y"])])
def test_messages_from_standard_input(mq: Terminal, words: list[str], expected: list[str]) -> None:
    subprocess.run(
        [sys.executable, "-m", "airflow_mq", "enqueue", "acme", *words], input=b"x\ny\n", check=True, env=os.environ
    )

    assert payloads(mq) == expected


def test_messages_from_ndjson(mq: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "orders.ndjson"
    rows = [
        {"origin": "acme", "payload": "one"},
        {"origin": "beta", "payload_base64": base64.b64encode(b"\xff\x00").decode()},
        {"origin": None, "payload": "two", "key": "k2", "weight": [5, 6], "headers": {"trace": "t1"}},
    ]
    path.write_text("\n\n".join(map(json.dumps, rows)) + "\n")

    assert mq.json("enqueue", "acme", "--ndjson", str(path)) == {"count": 3, "size": 8, "repeated": 0}
    assert mq.json("enqueue", "acme", "--ndjson", str(path))["repeated"] == 1

    first = mq.json("message", "list", "acme")
    assert [one["payload"] for one in first] == ["one", "two", "one"]
    assert first[1]["headers"] == {"trace": "t1"}
    assert mq.json("message", "list", "beta")[0]["payload_base64"] == base64.b64encode(b"\xff\x00").decode()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("nonsense", "invalid JSON"),
        ("[1]", "a message is a JSON object"),
        ('{"payload": "x", "colour": 1}', "'colour' is unknown"),
        ('{"payload": "x", "payload_base64": "eA=="}', "one of the two"),
        ("{}", "one of the two"),
        ('{"payload": 7}', "its payload is text"),
        ('{"payload": ""}', "at least 1 byte"),
        ('{"payload_base64": "!"}', "cannot be read"),
        ('{"payload": "x", "weight": [1]}', "or a pair (time, size)"),
        ('{"payload": "x", "headers": {"a": 1}}', "headers"),
        ('{"payload": "\\ud800"}', "half of a character"),
        ('{"payload": "x", "key": ""}', "invalid key"),
        ('{"payload": "x", "headers": {"a": "\\u0000"}}', "without NUL"),
        ('{"payload": "x", "origin": "a\\u200bb"}', "is invisible"),
        ('{"payload": "x", "origin": ""}', "it has no origin"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_stored(mq: Terminal, tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "bad.ndjson"
    path.write_text('{"payload": "fine"}\n' + line + '\n{"payload": "behind"}\n')

    said = mq("enqueue", "acme", "--ndjson", str(path), code=2)

    assert "line 2: " in said.err and reason in said.err
    assert mq.json("queue", "show", "acme")["count"] == 0


def test_an_error_of_the_call_names_no_line(mq: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "orders.ndjson"
    path.write_text('{"payload": "x"}\n')

    printed = mq("enqueue", "acme", "--ndjson", str(path), "--delay", "2h", "--expires", "1h", code=2).err

    assert "is not after not_before" in printed and "line" not in printed


def test_a_line_without_any_origin(mq: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "bad.ndjson"
    path.write_text('{"payload": "x"}\n')

    assert "it has no origin" in mq("enqueue", "--ndjson", str(path), code=2).err


def test_a_key_is_accepted_once(mq: Terminal) -> None:
    assert mq.json("enqueue", "acme", "an order", "--key", "k")["repeated"] == 0
    assert mq.json("enqueue", "acme", "--key", "k", "an order") == {"count": 0, "size": 0, "repeated": 1}
    assert "had been sent before" in mq("enqueue", "acme", "an order", "--key", "k").out
    assert "names one message" in mq("enqueue", "acme", "another", "--key", "k", code=3).err
    assert "--key names one message" in mq("enqueue", "acme", "a", "b", "--key", "k2", code=2).err


def test_weight_headers_delay_and_expiry_travel_along(mq: Terminal, queue: MessageQueue) -> None:
    mq("enqueue", "acme", "x", "--weight", "7/9", "--header", "a=1", "--header", "b=2=3", "--expires", "1d")
    mq("enqueue", "acme", "later", "--delay", "2h")
    mq("enqueue", "acme", "much later", "--delay", "2199-01-01T00:00:00Z")

    (one,) = mq.json("message", "list", "acme")
    assert one["headers"] == {"a": "1", "b": "2=3"}
    assert one["weight"] == {"time": 7, "size": 9}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "no messages: expected"),
        (["acme"], "no messages: expected"),
        (["acme", "x", "--file", "y"], "specify one of"),
        (["acme", "-", "-"], "standard input can be read once"),
        (["--file", "y"], "no origin: expected"),
        (["acme", "x", "--delay", "soon"], "invalid time 'soon': expected"),
        (["acme", "x", "--delay", "2026-12-24T18:00:00"], "needs a time zone"),
        (["acme", "x", "--delay", "2026-12-24"], "write 2026-12-24T00:00:00Z for UTC"),
        (["acme", "x", "--key", ""], "invalid key ''"),
        (["acme", "x", "--ring", ""], "--ring is empty"),
        (["acme", "x", "--header", "nothing"], "invalid header 'nothing': expected"),
        (["acme", "x", "--weight", "much"], "invalid weight 'much': expected"),
        (["acme", ""], "at least 1 byte"),
        (["", "x"], "expected 1 to 255 bytes"),
        (["a\x1b[31mb", "x"], "control character"),
    ],
)
def test_an_invalid_command_is_an_error(mq: Terminal, words: list[str], reason: str) -> None:
    said = mq("enqueue", *words, code=2)

    assert reason in said.err
    assert said.err.count("\n") == 1 and "\x1b" not in said.err


@pytest.mark.slow
def test_a_message_is_the_very_bytes_that_were_typed(mq: Terminal) -> None:
    subprocess.run([sys.executable, "-m", "airflow_mq", "enqueue", "acme", b"\xff\xfe"], check=True, env=os.environ)

    assert base64.b64decode(mq.json("message", "list", "acme")[0]["payload_base64"]) == b"\xff\xfe"


def test_many_messages_at_once(mq: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "many"
    path.write_text("".join(f"message {number}\n" for number in range(5000)))

    assert mq.json("enqueue", "acme", "--lines", "--file", str(path))["count"] == 5000
    assert mq.json("queue", "show", "acme")["count"] == 5000
