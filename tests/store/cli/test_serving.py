"""`service`: processors named by the person at the terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_mq.cli import main
from airflow_mq.engine.queue.service import SLICE
from tests.store.cli.conftest import Terminal

HERE = "tests.store.cli.answers"


def test_messages_are_processed(mq: Terminal) -> None:
    mq("enqueue", "acme", "one", "two")

    said = mq("service", "--processor", f"{HERE}:done")

    assert said.out.splitlines()[:2] == ["processing one", "processing two"]
    assert "2 processed; weight 2 ms · 6 B" in said.out
    assert mq.json("queue", "show", "acme")["count"] == 0
    assert "nothing was processed" in mq("service", "--processor", f"{HERE}:done").out


def test_in_json_what_a_processor_prints_is_out_of_the_way(mq: Terminal) -> None:
    mq("enqueue", "acme", "one")

    said = mq("service", "--processor", f"{HERE}:done", "--json")

    assert said.json["processed"] == 1 and said.json["weight"] == {"time": 1, "size": 3}
    assert said.err == "processing one\n"


def test_help_states_the_default_slice(capsys: pytest.CaptureFixture[str]) -> None:
    main(["service", "--help"])
    assert f"default: {SLICE}" in capsys.readouterr().out


def test_a_limit_and_draining(mq: Terminal) -> None:
    mq("enqueue", "acme", *map(str, range(10)))

    assert mq.json("service", "--processor", f"{HERE}:done", "--service-weight", "3/1000")["processed"] == 3
    drained = mq.json("service", "--processor", f"{HERE}:done", "--service-weight", "3/1000", "--drain")
    assert drained["processed"] == 7
    assert drained["calls"] == 4


def test_whole_batches(mq: Terminal) -> None:
    mq("enqueue", "acme", "one", "two")

    assert "batch of 2" in mq("service", "--processor", f"{HERE}:whole_batch", "--batch").out


def test_a_processor_that_exits_fails_its_attempt(mq: Terminal) -> None:
    mq("ring", "change", "--max-attempts", "2")
    mq("enqueue", "acme", "one")
    for _ in range(2):
        assert "the processor called sys.exit" in mq("service", "--processor", f"{HERE}:exits", code=1).err
    assert [one["reason"] for one in mq.json("set-aside", "list")] == ["attempts"]
    failed = mq("set-aside", "execute", "acme:0:0", "--processor", f"{HERE}:exits", code=3)
    assert "the processor called sys.exit" in failed.err


def test_what_is_not_done(mq: Terminal) -> None:
    mq("enqueue", "acme", "one")

    assert (
        "the tried messages returned to their queues"
        in mq("service", "--processor", f"{HERE}:not_now", "--drain", code=1).out
    )
    assert mq.json("service", "--processor", f"{HERE}:wrong", code=1)["failed"] == 1


def test_a_processor_that_raises_is_reported_in_one_line(mq: Terminal) -> None:
    mq("enqueue", "acme", "one")

    said = mq("service", "--processor", f"{HERE}:raises", code=1)

    assert "ValueError; its text may quote the message: see --traceback" in said.err
    assert "no such customer" not in said.err
    assert said.err.count("\n") == 1
    assert "ValueError" in json.loads(mq("service", "--processor", f"{HERE}:raises", "--json", code=1).err)["warning"]
    assert mq.json("queue", "show", "acme")["count"] == 1


@pytest.mark.slow
def test_a_traceback_is_there_for_who_asks(mq: Terminal, tmp_path: Path) -> None:
    mq("enqueue", "acme", "one")

    done = subprocess.run(
        [sys.executable, "-m", "airflow_mq", "service", "--processor", f"{HERE}:raises", "--traceback"],
        capture_output=True, text=True, env=os.environ,
    )  # fmt: skip

    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "ValueError: no such customer\\x1b[31m" in done.stderr


@pytest.mark.parametrize("batch", [(), ("--batch",)])
def test_a_service_that_sets_aside_whatever_failed_fails(mq: Terminal, batch: tuple[str, ...]) -> None:
    mq("ring", "change", "--max-attempts", "1")
    mq("enqueue", "acme", "one", "two")

    said = mq("service", "--processor", f"{HERE}:raises", "--json", *batch, code=1)
    assert json.loads(said.out)["set_aside"] == 2
    assert "tried again" not in said.err, "no other attempt is promised"


def test_the_shipped_processor_works_here(mq: Terminal) -> None:
    mq("enqueue", "acme", "one", "two")

    assert mq.json("service", "--processor", "airflow_mq.examples.simple:log")["processed"] == 2


def test_a_wrong_signature_is_refused_before_anything_is_tried(mq: Terminal) -> None:
    mq("enqueue", "acme", "one")

    said = mq("service", "--processor", "operator:setitem", code=2)
    assert "expected one parameter" in said.err
    assert mq.json("queue", "show", "acme")["count"] == 1


def test_ctrl_c_keeps_what_was_done(mq: Terminal) -> None:
    mq("enqueue", "acme", "one")
    mq("enqueue", "beta", "two")

    said = mq("service", "--processor", f"{HERE}:interrupted", code=130)

    assert said.err.startswith("error: interrupted")
    assert mq.json("check") == []
    assert mq.json("service", "--processor", f"{HERE}:done")["processed"] == 2


def test_a_processor_that_cannot_be_found(mq: Terminal) -> None:
    for name, reason in (
        ("nothing", "MODULE:FUNCTION"),
        ("no.such.module:f", "ModuleNotFoundError"),
        (f"{HERE}:missing", "AttributeError"),
        (f"{HERE}:NOT_A_FUNCTION", "expected a callable"),
        (f"{HERE}:waits", "async, or a generator"),
    ):
        said = mq("service", "--processor", name, code=2)
        assert reason in said.err and said.err.count("\n") == 1


@pytest.mark.slow
def test_a_processor_is_found_in_the_folder_one_is_in(mq: Terminal, tmp_path: Path) -> None:
    (tmp_path / "mine_for_the_test.py").write_text("def process(delivery):\n    print(delivery.origin)\n")
    mq("enqueue", "acme", "one")
    script = "import sys; from airflow_mq.cli import main; sys.exit(main())"

    done = subprocess.run(
        [sys.executable, "-P" if sys.version_info >= (3, 11) else "-u", "-c", script,
         "service", "--processor", "mine_for_the_test:process"],
        cwd=tmp_path, capture_output=True, text=True, env=os.environ,
    )  # fmt: skip

    assert done.stdout.startswith("acme\n"), done.stderr


def test_a_message_between_the_limit_and_the_service_weight_is_reported_and_blocks_no_origin(mq: Terminal) -> None:
    mq("enqueue", "acme", "--weight", "70000/1", "heavy")
    mq("enqueue", "acme", "light")
    limited = ("service", "--processor", "builtins:print", "--service-weight", "60000/1000000")

    served = mq(*limited)

    assert "nothing was processed" in served.out
    assert "70 s · 1 B for 'acme'" in served.err and "1 min · 1 MB" in served.err
    assert "needs 70 s · 1 B, more than the 1 min · 1 MB" in mq("explain", "acme").out
    foreseen = mq("block", "dry-run").out
    assert "acme waits behind a message that needs 70 s · 1 B of 1 min · 1 MB" in foreseen
    assert (
        "total: 0 messages" in foreseen
        and "total: 2 messages" in mq("block", "dry-run", "--service-weight", "600000/1000000").out
    )
    assert "limit: needs 70 s · 1 B of 1 min · 1 MB" in mq("report", "ledger").out
    wrong = [one for one in mq.json("doctor", code=1)["findings"] if one["level"] == "wrong"]
    assert ["more than the 1 min · 1 MB" in one["what"] for one in wrong if one["check"] == "servers of default"] == [
        True
    ]

    mq("ring", "change", "--set", "set_aside_above=block")

    assert "1 processed, 1 set aside" in mq(*limited).out
    stays = mq("set-aside", "requeue", "--all", code=1)
    assert "it weighs 70 s · 1 B, more than the 1 min · 1 MB that a block can carry" in stays.out
    assert "of the latest blocks; if the next ones have more, add --service-weight" in stays.out + stays.err
    assert "1 requeued" in mq("set-aside", "requeue", "--all", "--service-weight", "10min/1MB").out


def test_following_until_sigterm(mq: Terminal) -> None:
    mq("enqueue", "acme", "one")
    followed = mq.json("service", "--processor", f"{HERE}:ended_meanwhile", "--follow")
    assert followed["processed"] == 1
    assert "calls" not in followed
