"""Completion, in shells as they are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_mq import MessageQueue, Weight
from airflow_mq.engine.store import parse, upgrade
from tests.store.terminal.emulator import Emulated

pytestmark = pytest.mark.slow

BIN = Path(sys.executable).parent


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    uri = f"sqlite:///{tmp_path / 'store.db'}"
    upgrade(parse(uri))
    with MessageQueue(uri) as queue:
        queue.admin.create_ring("night")
        queue.admin.change_ring(service_weight=Weight(40, 2000))
        queue.enqueue_message("acme/orders", b"x")
        queue.enqueue_message("acme/mail", b"x", weight=Weight(100, 1))
        queue.service_queues(lambda delivery: None)
        queue.blocks.plan()
        queue.enqueue_message("two words", b"x")
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "AIRFLOW_MQ_STORE": uri, "PATH": path, "HOME": str(tmp_path)}


def asked(environment: dict[str, str], line: str) -> list[str]:
    """Return the completions of the program for a shell."""
    said = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_STDOUT_FILENAME": ""}
    answers = Path(environment["HOME"]) / "answers"
    said["_ARGCOMPLETE_STDOUT_FILENAME"] = str(answers)
    said |= {"_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SHELL": "bash"}
    done = subprocess.run([BIN / "airflow-mq"], env={**environment, **said}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    return sorted(answers.read_text().split("\n")) if answers.exists() else []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("airflow-mq queue pau", ["pause", "paused"]),
        ("airflow-mq set-aside exec", ["execute "]),
        ("airflow-mq top --int", ["--interval "]),
        ("airflow-mq top --sort ", ["backlog", "oldest", "turn"]),
        ("airflow-mq --ring ni", ["night "]),
        ("airflow-mq message list acme/", ["acme/mail "]),
        ("airflow-mq set-aside discard ", ["acme/mail:0:0 "]),
        ("airflow-mq ring change --set max_att", ["max_attempts="]),
        ("airflow-mq enqueue acme x --header max_att", []),
        ("airflow-mq message list --store sqlite:///no/such/file ", []),
    ],
)
def test_what_is_offered(environment: dict[str, str], line: str, found: list[str]) -> None:
    offered = asked(environment, line)
    assert [one.strip() for one in offered if one.strip()] == [one.strip() for one in found]


def test_blocks_are_offered_by_their_tokens(environment: dict[str, str]) -> None:
    (token,) = asked(environment, "airflow-mq block show ")
    assert len(token.strip()) == 32


def test_a_real_bash(environment: dict[str, str]) -> None:
    with Emulated(["bash", "--norc", "--noprofile", "-i"], {**environment, "PS1": "> "}) as bash:
        bash.press('eval "$(airflow-mq completion bash)"; echo rea""dy\n')
        bash.until("\nready")
        bash.press("airflow-mq ring sh\t")
        bash.until("airflow-mq ring show")
        bash.press("ni\t")
        bash.until("airflow-mq ring show night")
        bash.press("\x15airflow-mq queue pause tw\t")
        bash.until("pause two\\ words")
        bash.press("\x15airflow-mq set-aside discard acme\t")
        bash.until("discard acme/mail:0:0")
        bash.press("\x15exit\n")
        assert bash.end() == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_script_is_one_of_its_shell(environment: dict[str, str], shell: str) -> None:
    done = subprocess.run([BIN / "airflow-mq", "completion", shell], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "airflow-mq" in done.stdout
    if shutil.which(shell):
        # Read as a whole, run in none.
        subprocess.run([shell, "-n"], input=done.stdout, text=True, check=True, env=environment)
