"""`dry-run`, `forecast` and `explain`: looking ahead, and changing nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_mq import Address, LinearWeigher, MessageQueue, Weight
from tests.proofs.crash.states import everything
from tests.store.cli.conftest import Terminal


@pytest.fixture
def small(mq: Terminal, queue: MessageQueue) -> MessageQueue:
    """A ring whose blocks take ten messages, and two queues of twelve."""
    queue.admin.change_ring(
        order="rotation", service_weight=Weight(10, 1 << 20), weigher=LinearWeigher(Weight(1, 0), Weight(0, 0))
    )
    for origin in ("acme", "globex"):
        queue.enqueue_messages(origin, [b"x"] * 12)
    return queue


def test_an_empty_ring(mq: Terminal) -> None:
    for words in (["block", "dry-run"], ["block", "forecast"]):
        assert "airflow-mq enqueue acme" in mq(*words).out
        assert mq(*words, "--quiet").out == ""
    assert mq.json("block", "dry-run")["queues"] == [] and mq.json("block", "forecast") == []
    assert mq("explain", "acme").out == "acme has no messages.\n"


def test_queues_that_wait_for_budgets_are_no_empty_ring(mq: Terminal, queue: MessageQueue) -> None:
    queue.admin.set_origin("acme", rate="1ms/day")
    queue.enqueue_messages("acme", [b"x"] * 9)
    assert queue.service_queues(lambda delivery: None).processed == 1
    for words in (["block", "dry-run"], ["block", "forecast"]):
        printed = mq(*words).out
        assert "all ready queues are being skipped; see `airflow-mq queue list`" in printed and "enqueue" not in printed


def test_a_sentence_begins_with_a_capital(mq: Terminal, queue: MessageQueue) -> None:
    """Except if it begins with the name of a queue."""
    queue.admin.change_ring(service_weight=Weight(1_000, 1_000))
    queue.enqueue_message("acme", b"x")
    queue.service_queues(lambda delivery: None)
    queue.enqueue_message("acme", b"y")
    assert mq("explain", "acme").out == "The first message of acme, acme:1:0, runs in the next block.\n"
    queue.admin.pause("acme", "a look")
    assert mq("explain", "acme").out.startswith("acme is paused")


def test_a_ring_whose_queues_are_skipped(mq: Terminal, small: MessageQueue) -> None:
    for origin in ("acme", "globex"):
        small.admin.pause(origin, "a look")
    told = mq("block", "forecast").out
    assert "all ready queues are being skipped" in told and "enqueue" not in told


def test_a_dry_run(mq: Terminal, small: MessageQueue) -> None:
    before = everything(small)
    table = mq("block", "dry-run").out.splitlines()
    assert table[0].split()[:3] == ["origin", "messages", "weight"]
    assert table[1].split() == ["acme", "10", "10", "ms", "·", "0", "B", "0", "0", "0.00%", "0.00%", "limit"]
    assert table[-1] == "total: 10 messages, 10 ms · 0 B, of the limit 10 ms · 1 MiB; nothing was claimed"
    told = mq.json("block", "dry-run")
    assert (told["block"], told["messages"], told["order"]) == (1, 10, "rotation")
    assert told["planned"] == {"time": 10, "size": 0}
    assert [(one["origin"], one["messages"]) for one in told["queues"]] == [("acme", 10), ("globex", 0)]
    assert everything(small) == before
    paid = mq("block", "dry-run", "--set", 'costs={"service_page_item": [1, 0]}').out.splitlines()[-1]
    assert paid.startswith("total: 5 messages, 5 ms · 0 B and 5 ms · 0 B for servicing steps, of the limit 10 ms")


def test_other_conditions(mq: Terminal, small: MessageQueue) -> None:
    def served(*words: str) -> dict[str, int]:
        return {one["origin"]: one["messages"] for one in mq.json("block", "dry-run", *words)["queues"]}

    assert served("--service-weight", "15/100") == {"acme": 12, "globex": 3}
    deficit = ["--set", "order=deficit", "--service-weight", "8/100", "--set", "rounds_per_block=8"]
    change = ["--set", "service_weight=[8, 100]"]
    assert served(*deficit, *change) == {"acme": 4, "globex": 4}
    assert served(*deficit, *change, "--share", "acme=3") == {"acme": 6, "globex": 2}
    assert mq.json("block", "dry-run", "--set", "order=shuffle", "--seed", "ab")["seed"] == "ab"
    assert "--seed" in mq("block", "dry-run", "--set", "order=shuffle", code=2).err
    assert "hexadecimal" in mq("block", "dry-run", "--set", "order=shuffle", "--seed", "x", code=2).err
    assert "ORIGIN=N" in mq("block", "dry-run", "--share", "3", code=2).err
    assert mq("block", "dry-run", "--set", "odd=1", code=2).err.startswith("error: ")


def test_a_forecast(mq: Terminal, small: MessageQueue) -> None:
    lines = mq("block", "forecast").out.splitlines()
    assert lines[0].split() == ["block", "messages", "queues", "planned", "limit", "served"]
    assert [line.split()[:2] for line in lines[1:4]] == [["1", "10"], ["2", "10"], ["3", "4"]]
    assert lines[2].endswith("globex 10")
    assert lines[-1] == "then nothing is left that a block could take"
    assert [block["messages"] for block in mq.json("block", "forecast", "--blocks", "2")] == [10, 10]


def test_a_forecast_names_the_first_queues(mq: Terminal) -> None:
    for number in range(6):
        mq("enqueue", f"o{number}", "x")
    assert mq("block", "forecast").out.splitlines()[1].endswith("o0 1, o1 1, o2 1, o3 1 and 2 more")


@pytest.mark.slow
def test_explaining(mq: Terminal, small: MessageQueue) -> None:
    lines = mq("explain", "globex").out.splitlines()
    never = "No block has ever serviced this ring. "
    assert lines[0].startswith(f"{never}The first message of globex, globex:0:0, runs in block 2 from now")
    assert lines[1].startswith("would help: with a limit of 20 ms · ")
    assert mq("explain", "acme:0:3").out == f"{never}acme:0:3 runs in the next block.\n"
    told = mq.json("explain", "acme:0:11")
    assert (told["address"], told["reason"], told["block"]) == ("acme:0:11", "behind", 3)
    assert mq.json("explain", "acme:0:11", "--service-weight", "20/20")["block"] == 1
    assert mq.json("explain", "acme:0:11", "--ahead", "1")["block"] is None
    assert mq.json("explain", "acme:0:11", "--queue")["reason"] == "empty"
    mq("enqueue", "a:0:3", "x")
    assert "was ever at a:0:3; to explain the queue of this name: --queue\n" in mq("explain", "a:0:3").out
    assert "--queue" not in mq("explain", "acme:0:11").out
    mq("queue", "pause", "acme", "--why", "holidays")
    paused = mq("explain", "acme").out.splitlines()
    assert paused[0].endswith(": holidays.") and paused[1] == "would help: airflow-mq queue resume acme"


def test_commands_that_help_name_the_ring(mq: Terminal) -> None:
    mq("ring", "create", "night")
    night = "--ring", "night"
    mq("enqueue", "acme", "x", *night)
    assert "to resume: airflow-mq queue resume acme --ring night\n" in mq("queue", "pause", "acme", *night).out
    helpful = "airflow-mq queue resume acme --ring night"
    assert f"would help: {helpful}\n" in mq("explain", "acme", *night).out
    assert mq.json("explain", "acme", *night)["remedies"] == [helpful]
    assert "airflow-mq check --ring night\n" in mq("status", *night).out
    mq("ring", "create", "empty")
    empty = "--ring", "empty"
    send = "airflow-mq enqueue acme 'an order' --ring empty"
    for command in ("queue list", "status", "top --once", "block dry-run", "block forecast"):
        printed = mq(*command.split(), *empty).out
        assert send in printed and "airflow-mq service --help --ring" not in printed, command
    for command, named in (
        ("message list", "enqueue acme --file order.json"),
        ("payload list", "enqueue acme --blob orders.parquet"),
        ("report headers", "ring housekeep"),
        ("service --processor builtins:print", "queue list"),
    ):
        assert f"airflow-mq {named} --ring empty" in mq(*command.split(), *empty).out, command
    refused = mq("report", "bill", "--of", "acme", "--month", "2026-01", *empty, code=2).err
    assert "`airflow-mq ring housekeep --ring empty`" in refused
    assert "--ring" not in mq("queue", "list").out + mq("message", "list").out


def test_the_name_of_a_group_in_a_remedy_is_no_command(queue: MessageQueue) -> None:
    name = "x airflow-mq set-aside discard y --why z"
    queue.admin.change_ring(
        order="deficit", service_weight=Weight(10, 1 << 20), weigher=LinearWeigher(Weight(1, 0), Weight(0, 0))
    )
    queue.admin.set_origin(name, most=Weight(2, 100))
    queue.enqueue_messages(name, [b"x"] * 8)
    found = queue.inspect.explain_message(Address(name, 0, 7)).remedies
    assert any(name in one for one in found) and [one.command for one in found] == [""] * len(found)


def test_a_forecast_of_blocks_that_come_at_times(mq: Terminal, small: MessageQueue) -> None:
    small.enqueue_message("later", b"x", not_before=660)
    table = mq("block", "forecast", "--every", "10m").out.splitlines()
    assert "at" in table[0].split()
    assert [line.split()[-1] for line in table[1:]] == ["10", "2", "1"] or "later 1" in table[-2]
    found = mq.json("block", "forecast", "--every", "10m")
    assert sum(one["messages"] for one in found) == 25
    assert "at" not in mq("block", "forecast").out.splitlines()[0].split()


def test_a_quote(mq: Terminal, small: MessageQueue) -> None:
    before = everything(small)
    quoted = mq("quote", "--as", "acme", "--messages", "1k", "--weight", "1ms/10B", "--every", "10m").out.splitlines()
    assert quoted[0] == "1,000 messages of acme, charged 1 s · 10 kB"
    assert quoted[1].startswith("would finish in 103 blocks, by 20")
    assert quoted[2].split() == ["origin", "added", "wait"] and quoted[3].split() == ["globex", "10", "min"]
    assert "every 10 min" in quoted[4]
    assert everything(small) == before


def test_a_quote_of_a_file(mq: Terminal, small: MessageQueue, tmp_path: Path) -> None:
    file = tmp_path / "days.ndjson"
    file.write_text('{"payload": "one"}\n{"payload": "two", "weight": "3ms/1B"}\n')
    found = mq.json("quote", str(file), "--as", "new", "--every", "10m")
    assert (found["origin"], found["messages"], found["charge"]) == ("new", 2, {"time": 4, "size": 1})
    assert found["blocks"] == 3 and found["longest"] == 0
    file.write_text('{"payload": "one"}\n{"payload": "two", "origin": "other"}\n')
    assert "line 2: the origin 'other' differs" in mq("quote", str(file), "--as", "new", "--every", "10m", code=2).err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--as", "acme"], "expected a FILE"),
        (["--as", "acme", "--messages", "5"], "--weight TIME/SIZE"),
        (["--as", "acme", "--messages", "5x", "--weight", "1ms/1B"], "500, 100k or 1M"),
        (["--as", "acme", "--messages", "5", "--weight", "1ms/1B"], "--every 10m"),
        (["missing.ndjson", "--as", "acme", "--every", "1m"], "cannot be read"),
    ],
)
def test_what_a_quote_needs(mq: Terminal, small: MessageQueue, words: list[str], why: str) -> None:
    assert why in mq("quote", *words, code=2).err
