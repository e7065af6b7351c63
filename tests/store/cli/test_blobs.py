"""`enqueue --blob`, `blobs` and `payload get`."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

from airflow_mq import MessageQueue
from tests.store.cli.conftest import Terminal

LARGE = bytes(range(256)) * 1_000


def test_a_file_goes_in_is_listed_and_comes_out(mq: Terminal, queue: MessageQueue, tmp_path: Path) -> None:
    file, copy = tmp_path / "orders", tmp_path / "copy"
    file.write_bytes(LARGE)
    name = blake2b(LARGE, digest_size=32).hexdigest()
    assert "send one" in mq("payload", "list").out
    assert mq.json("enqueue", "acme", "--blob", str(file), "--key", "k") == {
        "count": 1, "size": len(LARGE), "repeated": 0,
    }  # fmt: skip
    assert mq.json("enqueue", "acme", "--blob", str(file), "--key", "k")["repeated"] == 1
    assert "enqueued 2 messages" in mq("enqueue", "birch", "--blob", str(file), "--blob", str(file)).out
    (peeked,) = mq.json("message", "list", "acme")
    assert peeked["external"] == name and "payload" not in peeked
    assert (
        f"external payload: {name}" in mq("message", "list", "acme").out
        and f"{len(LARGE):,}" in mq("message", "list", "acme").out
    )
    (one,) = mq.json("payload", "list")
    assert (one["hash"], one["size"], one["references"], one["path"]) == (name, len(LARGE), 3, None)
    assert name in mq("payload", "list").out and "database" in mq("payload", "list").out
    assert "cannot be written" in mq("payload", "get", name, "--output", str(tmp_path / "no" / "x"), code=2).err
    mq("payload", "get", name, "--output", str(copy))
    assert copy.read_bytes() == LARGE
    queue.service_queues(lambda delivery: None)
    assert mq.json("payload", "list") == []
    assert "upload it again" in mq("payload", "get", name, code=3).err


def test_what_cannot_be_sent(mq: Terminal, tmp_path: Path) -> None:
    assert "cannot be read" in mq("enqueue", "acme", "--blob", str(tmp_path / "none"), code=2).err
    assert "specify one of" in mq("enqueue", "acme", "word", "--blob", "x", code=2).err
    assert "--key names one message" in mq("enqueue", "acme", "--blob", "x", "--blob", "y", "--key", "k", code=2).err
