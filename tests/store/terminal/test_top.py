"""`airflow-mq top` on a terminal and in a pipe: what it shows, and how it leaves."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_mq import MessageQueue, Weight
from airflow_mq.engine.store import parse, upgrade
from lab.chaos.proxy import FaultyProxy
from tests.store.terminal.emulator import Emulated

pytestmark = pytest.mark.slow

TOP = (sys.executable, "-m", "airflow_mq", "top", "--interval", "0.2s")
#: How a screen is left: with its cursor, and with what was there before.
LEFT = b"\x1b[?25h\x1b[?1049l"
#: `top` that sends itself a signal while its main thread draws, or writes, a frame after the first.
DISTURBED = """
import os, sys, threading
from airflow_mq.cli import main
from airflow_mq.cli.screen import Screen

place, number, lines, write, frames = sys.argv.pop(1), int(sys.argv.pop(1)), Screen.lines, sys.stdout.write, []

def disturb():
    if threading.current_thread() is threading.main_thread():
        frames.append(place)
        if len(frames) == 2:
            os.kill(os.getpid(), number)

def drawn(*args):
    if place == "drawing":
        disturb()
    return lines(*args)

def written(text):
    half = len(text) // 2
    count = write(text[:half])
    if place == "writing" and " loud " in text:
        disturb()
    return count + write(text[half:])

Screen.lines, sys.stdout.write = drawn, written
sys.exit(main())
"""


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
        emulated.until(" loud ", "51 messages", "no blocks yet")
        yield emulated


def test_a_whole_screen(top: Emulated) -> None:
    lines = top.lines
    heading = next(place for place, line in enumerate(lines) if line.startswith("turn  queue"))
    rows = [line.split() for line in lines[heading + 1 : heading + 4]]
    assert lines[0].startswith("airflow-mq top ")
    assert [row[:3] for row in rows] == [["1", "loud", "40"], ["2", "quiet", "10"], ["3", "other", "1"]]
    assert rows[0][5:7] == ["400", "B"] and lines[heading + 1].endswith("No block has ever serviced this ring")
    assert lines[-1] == "no blocks yet"
    for fact in ("ring default", "order deficit", "limit 40 ms · 2 kB", "in 3 queues", "0 messages; 0 set aside"):
        assert fact in top.text


def test_it_reports_that_nothing_services_the_ring(top: Emulated, uri: str) -> None:
    """The sentence of the page, `doctor` and `explain`."""
    top.until("No block has ever serviced this ring. -> a DAG with block(), or a worker: airflow-mq service --help")
    with MessageQueue(uri) as queue:
        queue.blocks.plan()
    top.until(", last ", without="No block has ever")


def test_it_is_live(top: Emulated, uri: str) -> None:
    with MessageQueue(uri) as queue:
        queue.enqueue_messages("newcomer", [b"x"] * 80)
        top.until("4  newcomer", "131 messages")
        queue.admin.pause("other")
        top.until("1 pause")
        block = queue.blocks.plan()
        top.until("planned", f"{block.messages} messages; 0 set aside", "due in 15 min")
        queue.blocks.report(block, [batch.answer() for batch in block.batches()])
        queue.blocks.settle(block)
    screen = top.until("settled", "0 messages; 0 set aside", f"{131 - block.messages} messages (")
    assert "100 % of time" in screen


def test_it_names_who_holds_the_ring(top: Emulated, uri: str) -> None:
    seen: list[str] = []
    with MessageQueue(uri) as queue:
        queue.service_queues(lambda delivery: seen or seen.append(top.until("serviced by  ", ", now", "process")))
    assert f"process {os.getpid()}" in seen[0]
    top.until(", last ", without=", now")


@pytest.mark.parametrize(("width", "height"), [(60, 20), (30, 8), (12, 3), (1, 1), (250, 60)])
def test_it_fits_any_size(top: Emulated, width: int, height: int) -> None:
    top.resize(width, height)
    top.until("backlog" if width > 12 else "", *(["loud"] if height > 4 else []))
    # A frame that is too high would have scrolled.
    assert width == 1 or top.lines[0].startswith("airflow-mq top" if height >= 12 else "backlog")
    top.resize(100, 30)
    top.until("airflow-mq top", "   1  loud", "no blocks yet")


@pytest.mark.parametrize("ending", ["\x03", signal.SIGTERM])
def test_the_terminal_is_left_as_it_was(top: Emulated, ending: str | signal.Signals) -> None:
    assert b"\x1b[?1049h" in top.raw and b"\x1b[?25l" in top.raw
    top.press("typed\n")
    # The terminal gets keys a moment after they were pressed; a signal may be faster.
    while fcntl.ioctl(top.slave, termios.FIONREAD, bytes(4)) == bytes(4):
        time.sleep(0.01)
    if isinstance(ending, str):
        top.press(ending)
    else:
        top.process.send_signal(ending)

    assert top.end() == 0
    assert top.raw.endswith(LEFT)
    assert termios.tcgetattr(top.slave) == top.before
    assert b"Traceback" not in top.raw and b"typed" not in top.raw
    os.set_blocking(top.slave, False)
    with pytest.raises(BlockingIOError):
        os.read(top.slave, 10)


def test_stopped_and_continued(top: Emulated) -> None:
    top.press("\x1a")
    continued(top)
    top.press("\x03")
    assert top.end() == 0


def continued(top: Emulated) -> None:
    """Wait until `top` has stopped itself, and continue it."""
    while os.waitid(os.P_PID, top.process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is None:
        top.read(0.1)
    top.drain()
    assert top.raw.endswith(LEFT) and termios.tcgetattr(top.slave) == top.before
    top.process.send_signal(signal.SIGCONT)
    top.screen.reset()
    top.until("   1  loud")


@pytest.mark.parametrize("place", ["drawing", "writing"])
@pytest.mark.parametrize("number", [signal.SIGTSTP, signal.SIGINT, signal.SIGTERM])
def test_a_signal_within_a_frame_acts_after_it(uri: str, place: str, number: int) -> None:
    words = (sys.executable, "-c", DISTURBED, place, str(int(number)), *TOP[3:])
    with Emulated(words, {**os.environ, "AIRFLOW_MQ_STORE": uri}) as top:
        if number == signal.SIGTSTP:
            continued(top)
            top.press("\x03")
        assert top.end() == 0
        assert termios.tcgetattr(top.slave) == top.before
        *screens, rest = top.raw.split(LEFT)
        assert len(screens) == (2 if number == signal.SIGTSTP else 1) and rest == b""
        for screen in screens:
            assert_whole_frames(top, screen)


def test_frames_that_wait_to_be_read_are_whole_when_ctrl_c_ends_it(top: Emulated) -> None:
    time.sleep(1)  # without reading: what a terminal has not read yet, it discards at Ctrl-C by default
    top.press("\x03")
    assert top.end() == 0
    screen, rest = top.raw.split(LEFT)
    assert_whole_frames(top, screen)
    assert rest == b""


def assert_whole_frames(top: Emulated, screen: bytes) -> None:
    begin, *frames = screen.split(b"\x1b[H")
    assert begin == b"\x1b[?1049h" and frames.pop(0) == b"\x1b[?25l"
    assert [frame.count(b"\r\n") for frame in frames] == [top.screen.lines - 1] * len(frames)


def test_a_store_that_goes_away_and_comes_back(top: Emulated, uri: str) -> None:
    path = Path(uri.removeprefix("sqlite:///"))
    path.rename(path.with_name("away"))
    top.until("the store does not answer since", "trying again", "loud", "as of ")
    path.with_name("away").rename(path)
    top.until("loud", without="does not answer")
    with MessageQueue(uri) as queue:
        queue.enqueue_message("after", b"x")
    top.until(" after ")


@pytest.mark.postgres
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # sockets of the proxy
def test_a_server_that_goes_away_and_comes_back(pg_uri: str) -> None:
    import psycopg

    upgrade(parse(pg_uri))
    with MessageQueue(pg_uri) as queue:
        queue.enqueue_message("before", b"x")
    port = int(re.findall(r":([0-9]+)/", pg_uri)[-1])
    proxy = FaultyProxy(port)
    uri = pg_uri.replace(f":{port}/", f":{proxy.own_port}/")
    try:
        with Emulated(TOP, {**os.environ, "AIRFLOW_MQ_STORE": uri}, 120) as top:
            top.until("before")
            proxy.port = 1  # no server listens there
            with psycopg.connect(pg_uri.partition("?")[0], autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            top.until("the store does not answer since", "before", "as of ")
            proxy.port = port
            with MessageQueue(pg_uri) as queue:
                queue.enqueue_message("after", b"x")
            top.until(" after ", without="does not answer")
    finally:
        proxy.close()
    done = subprocess.run(
        TOP, capture_output=True, text=True, env={**os.environ, "AIRFLOW_MQ_STORE": "postgresql://u:secret@127.0.0.1:1/x"}
    )  # fmt: skip
    assert done.returncode == 4 and done.stderr.startswith("error: ") and "secret" not in done.stderr


def test_nothing_of_a_name_reaches_the_terminal(uri: str) -> None:
    names = ("漢字\u202eevil\u200b", "b[bold]c")
    with MessageQueue(uri) as queue:
        queue.admin.change_ring(invisible_origins=True)
        for name in names:
            queue.enqueue_message(name, b"x")
        queue.blocks.plan(server="a\x1b]0;owned\x07\x9b31m")
    for more in ((), ("--once",)):
        with Emulated((*TOP, *more), {**os.environ, "AIRFLOW_MQ_STORE": uri}, 160) as top:
            screen = top.until("漢字", "b[bold]c")
            assert "\\u202eevil\\u200b" in screen and "a\\x1b]0;owned\\x07\\x9b31m" in screen
            for hostile in ("\u202e".encode(), b"\x1b]0", b"\x07", "\x9b".encode()):
                assert hostile not in top.raw


def test_no_colours_where_they_are_not_wanted(uri: str) -> None:
    code = f"import os, sys; os.environ['NO_COLOR'] = '1'; os.execv(sys.executable, {list(TOP)!r})"
    with Emulated([sys.executable, "-c", code], {**os.environ, "AIRFLOW_MQ_STORE": uri}) as top:
        top.until(" loud ")
        assert b"\x1b[1m" in top.raw  # bold is no colour
        assert not any(b"\x1b[3%d" % number in top.raw or b";3%dm" % number in top.raw for number in range(8))


def test_without_a_terminal_it_is_one_frame(uri: str) -> None:
    environment = {**os.environ, "AIRFLOW_MQ_STORE": uri}
    done = subprocess.run(TOP, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout and "1  loud" in done.stdout and "no blocks yet" in done.stdout
    plain = subprocess.run(TOP, capture_output=True, env={**environment, "PYTHONIOENCODING": "ascii"})
    assert plain.returncode == 0 and b"1  loud" in plain.stdout and plain.stdout.isascii()


@pytest.mark.parametrize(("sort", "first"), [("turn", "small"), ("backlog", "loud"), ("oldest", "small")])
def test_the_order_of_the_queues(tmp_path: Path, sort: str, first: str) -> None:
    uri = f"sqlite:///{tmp_path / 'store.db'}"
    upgrade(parse(uri))
    with MessageQueue(uri) as queue:
        queue.enqueue_message("small", b"x")
        time.sleep(0.01)  # ages are in milliseconds
        queue.enqueue_messages("loud", [b"x"] * 9)
    environment = {**os.environ, "AIRFLOW_MQ_STORE": uri}
    line = (*TOP, "--once", "--sort", sort, "--limit", "1", "--json")
    done = subprocess.run(line, capture_output=True, text=True, env=environment, check=True)
    assert [one["origin"] for one in json.loads(done.stdout)["queues"]] == [first]


def test_json_is_a_frame_a_line_and_survives_the_store(uri: str) -> None:
    environment = {**os.environ, "AIRFLOW_MQ_STORE": uri}
    path = Path(uri.removeprefix("sqlite:///"))
    with subprocess.Popen(
        (*TOP, "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        frames = (json.loads(line) for line in process.stdout)
        first = next(frames)
        assert [one["origin"] for one in first["queues"]] == ["loud", "quiet", "other"]
        assert first["backlog"]["waiting"] == 51 and first["limit"] == {"time": 40, "size": 2000}
        assert first["overdue"][0]["sentence"] == "No block has ever serviced this ring."
        path.rename(path.with_name("away"))
        away = next(frame for frame in frames if "error" in frame)
        assert away["error"] == "StoreMissing" and f"there is no file {path}" in away["message"]
        path.with_name("away").rename(path)
        assert next(frame for frame in frames if "queues" in frame)["queues"]
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0 and process.stderr.read() == ""


def test_a_closed_pipe_ends_it(uri: str) -> None:
    environment = {**os.environ, "AIRFLOW_MQ_STORE": uri}
    with subprocess.Popen((*TOP, "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 0 and process.stderr.read() == b""
