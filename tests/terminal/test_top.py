"""`airflow-mq top` on a terminal: what it shows, what keys do, and how it leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_mq import MessageQueue, Weight
from airflow_mq.store import parse, upgrade
from tests.terminal.emulator import Emulated

pytestmark = pytest.mark.slow

TOP = (sys.executable, "-m", "airflow_mq", "top", "--interval", "0.2s")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = f"sqlite:///{tmp_path / 'store.db'}"
    upgrade(parse(uri))
    with MessageQueue(uri) as queue:
        queue.admin.change_ring(service_weight=Weight(40, 2000))
        queue.enqueue_messages("loud", [b"x" * 10] * 40)
        queue.enqueue_messages("quiet", [b"x" * 10] * 10)
        queue.enqueue_message("other", b"x")
    return uri


@pytest.fixture
def top(uri: str) -> Iterator[Emulated]:
    with Emulated(TOP, {**os.environ, "AIRFLOW_MQ_STORE": uri}) as emulated:
        emulated.until(" loud ", "waiting 51")
        yield emulated


def test_a_whole_screen(top: Emulated, uri: str) -> None:
    lines = top.lines
    assert lines[0].startswith(f"airflow-mq top  {uri}"[:70]) or uri in top.text
    heading = next(place for place, line in enumerate(lines) if line.startswith(" turn queue"))
    width = lines[heading + 1].count("█")
    assert lines[heading + 1].startswith("▸   1 loud ") and lines[heading + 1].split()[-4:-2] == ["40", "400"]
    assert lines[heading + 2].startswith("    2 quiet ") and lines[heading + 2].count("█") == width // 4
    assert lines[heading + 3].startswith("    3 other ") and lines[heading + 3].split()[3] == "1"
    assert "─ blocks, used of their limits" in top.text and "─ longest waits" in top.text
    assert lines[-1].startswith("q quit  ? help")
    for fact in (
        "ring default",
        "order deficit",
        "limit 40/2,000",
        "ready 3",
        "in flight 0",
        "set aside 0",
        "paused 0",
    ):
        assert fact in top.text


def test_it_is_live(top: Emulated, uri: str) -> None:
    with MessageQueue(uri) as queue:
        queue.enqueue_messages("newcomer", [b"x"] * 80)
        top.until("4 newcomer", "waiting 131")
        block = queue.blocks.plan()
        screen = top.until("planned", f"in flight {block.messages}")
        assert "▓" in screen
        queue.blocks.report(block, [batch.answer() for batch in block.batches()])
        queue.blocks.settle(block)
    screen = top.until("settled", "in flight 0", f"waiting {131 - block.messages}")
    assert "100 % time" in screen


def test_keys(top: Emulated, uri: str) -> None:
    top.press("j")
    top.until("▸   2 quiet")
    top.press("\x1b[B")
    top.until("▸   3 other")
    top.press("k", "p")
    top.until("pause quiet? why")
    top.press("s", "o", "q", "\r")
    top.until("quiet is paused", "paused 1", "▒")
    with MessageQueue(uri) as queue:
        assert [(one.origin, one.reason) for one in queue.admin.paused()] == [("quiet", "soq")]
    top.press("e")
    top.until("quiet is paused by", "would help: airflow-mq queue resume quiet")
    top.press("x", "p")
    top.until("resume quiet? y")
    top.press("n")
    top.until("q quit")
    top.press("p", "y")
    top.until("quiet goes on", "paused 0")
    top.press("/", "o", "u", "\r")
    top.until("queue (ou)", "loud", without=" other ")
    top.press("/", "\x15", "n", "o", "n", "e", "\r")
    top.until("no queue here has this in its name")
    top.press("\x1b")
    top.until(" other ", " quiet ")
    top.press("s")
    top.until("sort: backlog", "by backlog")
    top.press("?")
    top.until("keys", "search: only queues")
    top.press("x", " ")
    top.until("frozen")
    with MessageQueue(uri) as queue:
        queue.enqueue_message("unseen", b"x")
    top.press(" ")
    top.until("unseen", without="frozen")
    top.press("q")
    assert top.end() == 0


@pytest.mark.parametrize(("width", "height"), [(60, 20), (30, 8), (12, 3), (250, 60)])
def test_it_fits_any_size(top: Emulated, width: int, height: int) -> None:
    top.resize(width, height)
    top.press("g")
    if height > 4:
        top.until("q quit", "loud")
        assert top.lines[-1].startswith("q quit")
    else:
        top.until("airflow-mq")
    assert top.lines[0].startswith("airflow-mq")  # a frame that is too high would have scrolled
    top.resize(100, 30)
    top.until("q quit", "─ longest waits", "▸   1 loud")
    assert top.lines[-1].startswith("q quit")


@pytest.mark.parametrize("ending", ["q", "\x03", signal.SIGTERM, signal.SIGHUP])
def test_the_terminal_is_left_as_it_was(top: Emulated, ending: str | signal.Signals) -> None:
    assert b"\x1b[?1049h" in top.raw and b"\x1b[?25l" in top.raw
    if isinstance(ending, str):
        top.press(ending)
    else:
        top.process.send_signal(ending)

    assert top.end() == (0 if isinstance(ending, str) else -ending)
    assert top.raw.endswith(b"\x1b[?25h\x1b[?1049l")
    assert termios.tcgetattr(top.slave) == top.before
    assert b"Traceback" not in top.raw


def test_stopped_and_continued(top: Emulated) -> None:
    top.press("\x1a")
    while os.waitid(os.P_PID, top.process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is None:
        top.read(0.1)
    top.drain()
    assert top.raw.endswith(b"\x1b[?25h\x1b[?1049l") and termios.tcgetattr(top.slave) == top.before
    top.process.send_signal(signal.SIGCONT)
    top.screen.reset()
    top.until("q quit", "▸   1 loud")
    top.press("q")
    assert top.end() == 0


def test_a_store_that_goes_away_and_comes_back(top: Emulated, uri: str) -> None:
    path = Path(uri.removeprefix("sqlite:///"))
    path.rename(path.with_name("away"))
    top.until("the store does not answer since", "trying again", "loud")
    path.with_name("away").rename(path)
    top.until("q quit", without="does not answer")
    with MessageQueue(uri) as queue:
        queue.enqueue_message("after", b"x")
    top.until(" after ")


def test_nothing_of_a_name_reaches_the_terminal(uri: str) -> None:
    with MessageQueue(uri) as queue:
        queue.admin.change_ring(invisible_origins=True)
        queue.enqueue_message("漢字\u202eevil\u200b", b"x")
    with Emulated(TOP, {**os.environ, "AIRFLOW_MQ_STORE": uri}) as top:
        assert "\\u202eevil\\u200b" in top.until("漢字")
        assert "\u202e".encode() not in top.raw


def test_without_a_terminal_it_is_one_frame(uri: str) -> None:
    environment = {**os.environ, "AIRFLOW_MQ_STORE": uri}
    done = subprocess.run(TOP, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout and "1 loud" in done.stdout and "longest waits" in done.stdout
    plain = subprocess.run(TOP, capture_output=True, env={**environment, "PYTHONIOENCODING": "ascii"})
    assert plain.returncode == 0 and b"####" in plain.stdout and plain.stdout.isascii()


def test_json_is_a_frame_a_line_and_survives_the_store(uri: str) -> None:
    environment = {**os.environ, "AIRFLOW_MQ_STORE": uri}
    path = Path(uri.removeprefix("sqlite:///"))
    with subprocess.Popen((*TOP, "--json"), stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        frames = (json.loads(line) for line in process.stdout)
        first = next(frames)
        assert [one["origin"] for one in first["turns"]] == ["loud", "quiet", "other"]
        assert first["totals"]["waiting"] == 51 and first["limit"] == {"time": 40, "size": 2000}
        path.rename(path.with_name("away"))
        away = next(frame for frame in frames if "error" in frame)
        assert away["error"] == "StoreMissing" and f"there is no file {path}" in away["message"]
        path.with_name("away").rename(path)
        assert next(frame for frame in frames if "turns" in frame)["turns"]
        process.send_signal(signal.SIGINT)
        process.wait()


def test_a_long_name_loses_its_middle() -> None:
    from airflow_mq.cli.top.drawing import fitted

    assert fitted("acme", 6) == "acme  "
    assert fitted("tenant-17/orders/of-long-ago", 17) == "tenant-1…long-ago"
    assert [fitted("漢字漢字漢字", width) for width in (1, 2, 5)] == ["…", "… ", "漢…字"]


def test_a_heading_names_the_search_once_its_queues_are_shown(uri: str) -> None:
    from airflow_mq.cli.top.drawing import frame
    from airflow_mq.cli.top.view import View, Wish
    from airflow_mq.queue.inspect.top import Watcher

    view = View()

    def screen() -> str:
        return "\n".join(line.plain for line in frame(view, uri, 80, 24))

    with MessageQueue(uri) as queue:
        watcher = Watcher(queue.session)
        view.see(watcher.look())
        assert [view.press(key) for key in ("/", "q", "u", "i", "enter")][-1] == Wish("look")
        # A key still acts on the queue that the screen shows.
        assert "(qui)" not in screen() and "▸   1 loud" in screen()
        assert view.press("e") == Wish("explain", "loud")
        view.press("x")
        view.see(watcher.look(search="qui"))
        assert "queue (qui)" in screen() and "loud" not in screen().split("blocks")[0]
        assert view.press("e") == Wish("explain", "quiet")


def test_a_frozen_view_shows_what_is_searched_for(uri: str) -> None:
    from airflow_mq.cli.top.view import View
    from airflow_mq.queue.inspect.top import Watcher

    view = View()
    with MessageQueue(uri) as queue:
        watcher = Watcher(queue.session)
        view.see(watcher.look())
        view.press(" ")
        before = view.look
        view.see(watcher.look())
        assert view.look is before
        view.see(watcher.look(search="qui"))
        assert [turn.origin for turn in view.turns] == ["quiet"]
