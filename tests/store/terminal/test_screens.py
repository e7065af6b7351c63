"""The whole screen of `airflow-mq top`, line by line, in tmux where there is one, and in the terminal of these tests.

`SCREENS=write` writes the present screens after an intended change; review the difference.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from airflow_mq import MessageQueue, Weight
from airflow_mq.engine.store import parse, upgrade
from tests.store.terminal.emulator import Emulated
from tests.store.terminal.tmux import TMUX, InTmux

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent / "screens"
TOP = (sys.executable, "-m", "airflow_mq", "top", "--interval", "0.2s")
TERMINALS: list[Any] = [Emulated, *([InTmux] if TMUX else [])]
SIZES = [(80, 24), (200, 50), (40, 10)]


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """A ring in which most things happen that can be seen; in a place whose name is short wherever tests run."""
    with TemporaryDirectory(dir="/tmp", prefix="mq") as folder:
        uri = f"sqlite:///{folder}/q.db"
        _fill(uri)
        yield {**os.environ, "AIRFLOW_MQ_STORE": uri}


def _fill(uri: str) -> None:
    upgrade(parse(uri))
    with MessageQueue(uri, actor="ops") as queue:
        queue.admin.change_ring(service_weight=Weight(40, 2000))
        queue.enqueue_messages("loud", [b"x" * 10] * 100)
        time.sleep(0.05)  # the longest wait follows from the times of sending
        queue.enqueue_messages("acme/orders", [b"x" * 10] * 30)
        queue.enqueue_message("film", b"x" * 10, weight=Weight(60, 10))
        block = queue.blocks.plan()
        queue.blocks.report(block, [batch.answer() for batch in block.batches()])
        queue.blocks.settle(block)
        queue.enqueue_messages("quiet", [b"x" * 10] * 20)
        queue.admin.pause("quiet", "their API is down")
        queue.blocks.plan(limit=Weight(20, 2000))


def timeless(screen: str) -> str:
    """A screen without its clock, its ages, its rates, and where the store is."""
    screen = re.sub(r" +[0-9]+ (s|min)\b", " AGE", screen)
    screen = re.sub(r"\b[0-9:]{8} UTC", "CLOCK", re.sub(r"s(qlite:\S+|…)$", "STORE", screen, flags=re.M))
    screen = re.sub(r"\b(in|out) (-|[0-9.,]+/s)", r"\1 RATE", screen)
    return screen + "\n"


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("terminal", TERMINALS, ids=lambda one: one.__name__)
def test_the_screen_of_top(terminal: Any, size: tuple[int, int], environment: dict[str, str]) -> None:
    kept = FOLDER / f"top-{size[0]}x{size[1]}.txt"
    with terminal(TOP, environment, *size) as top:
        screen = timeless(
            top.until("waiting", "quiet", *(["out 0.", "1 set aside", "due in"] if size[1] > 12 else ["acme/orders"]))
        )
        if os.environ.get("SCREENS") == "write":
            kept.parent.mkdir(exist_ok=True)
            kept.write_text(screen, "utf-8")
        assert screen == kept.read_text("utf-8")
