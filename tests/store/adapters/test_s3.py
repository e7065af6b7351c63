"""Landing and external payloads on a real S3 server: several clients, and faults between list, copy and delete."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import fsspec
import pytest

from airflow_mq import Delivery, MessageQueue, Weight
from airflow_mq.adapters import Received, receive
from airflow_mq.adapters.landing import LandingPrefix
from airflow_mq.cli import main
from airflow_mq.engine.rules.errors import InvalidInput, StoreUnreachable
from tests.conftest import SOAK
from tests.s3_server import CuttingProxy, S3Server
from tests.store.adapters.conftest import contents
from tests.store.adapters.test_versions import Meddler, meddle_at_each_step

pytest.importorskip("s3fs")
from botocore.exceptions import BotoCoreError, ClientError
from s3fs.errors import translate_boto_error

#: What happens to a received file; most tests in `make test` move it, which takes the most calls.
AFTER = ["move", pytest.param("delete", marks=pytest.mark.soak), pytest.param("keep", marks=pytest.mark.soak)]
#: Requests by which the proxy knows them.
LIST, HEAD, COPY, DELETE = b"list-type=2", b"head /", b"x-amz-copy-source:", b"delete /"


@pytest.fixture
def files(s3: S3Server) -> Any:
    return s3.files()


@pytest.fixture
def root() -> str:
    return f"plain/landing-{uuid.uuid4().hex}"


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[CuttingProxy]:
    made = CuttingProxy(s3)
    yield made
    made.close()


def client(s3: S3Server, url: str | None = None, tries: int = 5) -> Any:
    """Return a client that repeats a failed request after short pauses."""
    files = s3.files(url, config_kwargs={"retries": {"max_attempts": 0}, "connect_timeout": 2, "read_timeout": 10})
    files.retries = tries
    return files


def fill(files: Any, root: str, count: int, start: int = 0) -> list[bytes]:
    """Write files of three origins, and return what is in them."""
    made = {f"{root}/o{n % 3}/{n:04}": b"message %d" % n for n in range(start, start + count)}
    files.pipe(made)
    return list(made.values())


def landed(queue: MessageQueue) -> list[bytes]:
    return sorted(payload for payloads in contents(queue).values() for payload in payloads)


def read_all(queue: MessageQueue, files: Any, root: str, after: str) -> Received:
    return receive(queue, LandingPrefix(files, root, "{origin}/*", after=after))


def is_put_away(files: Any, root: str, after: str) -> bool:
    """Return whether no received file is left, unless it is to stay."""
    files.invalidate_cache()
    left = [path for path in files.find(root) if "/." not in path]
    return bool(left) == (after == "keep")


@pytest.mark.slow
@pytest.mark.parametrize("after", ["move", "delete", "keep"])
@pytest.mark.parametrize("bucket", ["plain", "versioned"])
def test_s3_loses_no_version(
    quick: MessageQueue, files: Any, monkeypatch: pytest.MonkeyPatch, bucket: str, after: str
) -> None:
    root = f"{bucket}/{uuid.uuid4().hex}"
    assert meddle_at_each_step(quick, files, root, Meddler(files, monkeypatch), after=after) > 4
    assert not any(".probe" in path for path in files.find(root))


@pytest.mark.slow
@pytest.mark.parametrize("bucket", ["plain", "versioned"])
def test_s3_that_cannot_delete_one_version(files: Any, monkeypatch: pytest.MonkeyPatch, bucket: str) -> None:
    call = files.call_s3

    def deaf(method: str, *args: Any, **how: Any) -> Any:
        """Delete, and ignore the condition."""
        if method == "delete_object":
            how.pop("IfMatch", None)
        return call(method, *args, **how)

    monkeypatch.setattr(files, "call_s3", deaf)
    for after in ("move", "delete"):
        with pytest.raises(InvalidInput, match="ignores If-Match.*after='keep'"):
            LandingPrefix(files, f"s3://{bucket}/deaf", "{origin}/*", after=after)
    LandingPrefix(files, f"s3://{bucket}/deaf", "{origin}/*", after="keep")
    files.invalidate_cache()
    assert not any(".probe" in path for path in files.find(f"{bucket}/deaf"))


@pytest.mark.slow
def test_a_landing_on_s3(queue: MessageQueue, files: Any, root: str) -> None:
    large = random.Random(1).randbytes(200_000)
    files.pipe({
        f"{root}/acme/eu/1.csv": b"a\nb\n" + b"c" * 100_000, f"{root}/acme/us/2.csv": large.replace(b"\n", b"-"),
        f"{root}/birch/3.csv": b"", f"{root}/birch/4.tmp": b"half", f"{root}/birch/5.csv": b"d",
    })  # fmt: skip
    look = LandingPrefix(files, f"s3://{root}", "{origin*}/*.csv", lines=True)
    assert receive(queue, look) == Received(5, 300_003, refused=1)
    assert receive(queue, look) == Received()
    files.invalidate_cache()
    assert sorted(path[len(root) + 1 :] for path in files.find(root)) == [
        ".received/acme/eu/1.csv", ".received/acme/us/2.csv", ".received/birch/5.csv",
        ".refused/birch/3.csv", ".refused/birch/3.csv.why", "birch/4.tmp",
    ]  # fmt: skip
    assert contents(queue)["acme/eu"][:2] == [b"a", b"b"]


def test_the_beginning_of_a_note_is_read(files: Any, root: str) -> None:
    look = LandingPrefix(files, root, "{origin}/*")
    files.pipe({f"{root}/.received/empty": b"", f"{root}/.received/long": b"1" * 1_000})
    assert [look.place.read(f".received/{name}") for name in ("empty", "long", "none")] == ["", "1" * 100, ""]


# -- several clients at once --


@pytest.mark.slow
@pytest.mark.postgres_first
@pytest.mark.parametrize("after", AFTER)
def test_two_readers_of_one_landing_receive_each_file_once(
    queue: MessageQueue, store_uri: str, s3: S3Server, root: str, after: str
) -> None:
    sent = fill(s3.files(), root, 12)
    ready = threading.Barrier(3)

    def reader() -> Received:
        files, total = s3.files(), Received()
        with MessageQueue(store_uri) as own:
            ready.wait()
            for _ in range(3):
                total += read_all(own, files, root, after)
        return total

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(reader) for _ in range(2)]
        ready.wait()
        sent += fill(s3.files(), root, 12, start=12)
        counts = [one.result() for one in readers]
    counts.append(read_all(queue, s3.files(), root, after))
    assert landed(queue) == sorted(sent) and sum(one.count for one in counts) == 24
    assert is_put_away(s3.files(), root, after)


# -- the server is killed, and connections break --


def fail_at_each_step(
    queue: MessageQueue, files: Any, root: str, meddler: Meddler, after: str, fault: Callable[[], object],
    mend: Callable[[], object],
) -> tuple[int, int]:  # fmt: skip
    """Let something happen right before each call of a run in turn; return how many runs there were, and failed."""
    step = failed = 0
    while True:
        sent = fill(files, f"{root}/{step}", 1)
        look = LandingPrefix(files, f"{root}/{step}", "{origin}/*", after=after)
        meddler.set(step, fault)
        try:
            receive(queue, look)
        except (OSError, BotoCoreError):
            failed += 1
        done, meddler.at = meddler.at == -1, -1
        mend()
        read_all(queue, files, f"{root}/{step}", after)
        assert landed(queue) == sorted(sent * (step + 1)), f"at step {step}"
        assert is_put_away(files, f"{root}/{step}", after)
        if not done:
            return step, failed
        step += 1


@pytest.mark.slow
@pytest.mark.parametrize("after", AFTER)
def test_the_server_is_killed_and_started_again_at_each_step(
    quick: MessageQueue, s3: S3Server, root: str, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    files = client(s3, tries=9)
    runs, failed = fail_at_each_step(quick, files, root, Meddler(files, monkeypatch), after, s3.restart, lambda: None)
    assert runs > 6 > failed, "a client repeats most of what a restart interrupts"


@pytest.mark.slow
@pytest.mark.parametrize("after", AFTER)
def test_the_server_is_gone_from_each_step_on(
    quick: MessageQueue, s3: S3Server, root: str, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    files = client(s3, tries=1)
    try:
        runs, failed = fail_at_each_step(quick, files, root, Meddler(files, monkeypatch), after, s3.kill, s3.restart)
    finally:
        s3.restart()
    assert runs > 6 and failed == runs


@pytest.mark.slow
@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("answered", [False, True], ids=["request lost", "answer lost"])
def test_requests_and_answers_are_lost(
    quick: MessageQueue, s3: S3Server, proxy: CuttingProxy, root: str, after: str, answered: bool
) -> None:
    sent = 0
    patient, hasty = client(s3, proxy.url), client(s3, proxy.url, tries=1)
    for marker in (LIST, HEAD, *((COPY, DELETE) if after == "move" else (DELETE,) if after == "delete" else ())):
        # Once: the client repeats it. Always: the run fails, and the next one finds what it left.
        for times, files in ((1, patient), (10**9, hasty)):
            place = f"{root}/{sent}"
            fill(patient, place, 1, start=sent)
            look = LandingPrefix(files, place, "{origin}/*", after=after)
            proxy.cut(marker, times, answered=answered)
            with nullcontext() if times == 1 else pytest.raises((OSError, BotoCoreError)):
                receive(quick, look)
            assert proxy.left < times, marker
            proxy.cut(b"", 0, answered=answered)
            read_all(quick, patient, place, after)
            sent += 1
            assert landed(quick) == sorted(b"message %d" % n for n in range(sent)), (marker, times)
            assert is_put_away(patient, place, after), (marker, times)


# -- readers are killed --

#: Forks a reader for each line of its input, which dies right before a call or at a time, and prints how it ended.
READERS = """
import json, os, signal, sys
import s3fs
from airflow_mq import MessageQueue
from airflow_mq.adapters import receive
from airflow_mq.adapters.landing import LandingPrefix
from tests.store.adapters.test_versions import CALLS

def dying(call):
    def called(*args, **how):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **how)
    return called

for line in sys.stdin:
    store, root, after, left, seconds, how = json.loads(line)
    if not (child := os.fork()):
        signal.setitimer(signal.ITIMER_REAL, seconds)
        files = s3fs.S3FileSystem(**how)
        with MessageQueue(store) as queue:
            look = LandingPrefix(files, root, "{origin}/*", after=after)
            for name in CALLS:
                if hasattr(files, name):
                    setattr(files, name, dying(getattr(files, name)))
            receive(queue, look, batch=3)
            os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Readers:
    """Processes that read a landing one after the other, and die."""

    def __init__(self, store_uri: str, root: str, after: str, s3: S3Server, url: str | None = None) -> None:
        self._how = [store_uri, root, after], s3.client_settings(url)
        self._process = subprocess.Popen(
            [sys.executable, "-c", READERS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        )  # fmt: skip

    def run(self, below: str = "", *, dies_at: int = 0, seconds: float = 0) -> int:
        """Run a reader that dies right before its nth call, or after some seconds; return its exit code.

        :param below: folder below the landing that it reads instead
        """
        (store, root, after), settings = self._how
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([store, root + below, after, dies_at, seconds, settings]) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def __enter__(self) -> Readers:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.__exit__(None, None, None)


@pytest.mark.slow
@pytest.mark.sqlite_first
@pytest.mark.parametrize("after", AFTER)
def test_a_reader_is_killed_before_each_call(
    queue: MessageQueue, store_uri: str, s3: S3Server, root: str, after: str
) -> None:
    sent, files = list[bytes](), s3.files()
    with Readers(store_uri, root, after, s3) as readers:
        step = ended = 0
        while ended != 0 or not step:
            step += 1
            # In a place of its own: where files are kept, a reader looks at each of them.
            sent += fill(files, f"{root}/{step}", 1, start=len(sent))
            ended = readers.run(f"/{step}", dies_at=step)
            assert ended in (0, -signal.SIGKILL)
            assert readers.run(f"/{step}") == 0
            assert landed(queue) == sorted(sent), f"at step {step}"
            assert is_put_away(files, f"{root}/{step}", after)
    assert step > 6


@pytest.mark.slow
@pytest.mark.sqlite_first
@pytest.mark.parametrize("after", AFTER)
def test_readers_die_and_the_server_restarts_and_connections_break(
    queue: MessageQueue, store_uri: str, s3: S3Server, proxy: CuttingProxy, root: str, after: str
) -> None:
    """Two readers at once die at random, while a sender writes and the server and its connections fail at random."""
    chance, files = random.Random(7), client(s3, tries=12)
    rounds, sent, faults = (40 if SOAK else 4), list[bytes](), 0
    with Readers(store_uri, root, after, s3) as one, Readers(store_uri, root, after, s3, proxy.url) as other:
        with ThreadPoolExecutor(2) as pool:
            for _ in range(rounds):
                sent += fill(files, root, 12, start=len(sent))
                marker = chance.choice([LIST, HEAD, COPY, DELETE])
                cuts = chance.randint(0, 3)
                proxy.cut(marker, cuts, answered=chance.random() < 0.5)
                dying = [
                    pool.submit(readers.run, dies_at=chance.randint(0, 60), seconds=chance.random() * 2)
                    for readers in (one, other)
                ]
                time.sleep(chance.random() / 2)
                if chance.random() < 0.5:
                    s3.restart()
                    faults += 1
                ends = [process.result() for process in dying]
                assert set(ends) <= {0, 1, -signal.SIGKILL, -signal.SIGALRM}
                faults += cuts - proxy.left + sum(end < 0 for end in ends)
        proxy.cut(b"", 0, answered=False)
        assert one.run() == 0 and other.run() == 0
    print(f"{after}: {len(sent)} files, {faults} faults")
    assert faults >= rounds and landed(queue) == sorted(sent)
    assert is_put_away(s3.files(), root, after)


# -- reports --


@pytest.fixture
def environment(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let plain addresses lead to the server, by a client that waits for no server that is gone."""
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    clients = fsspec.get_filesystem_class("s3")
    clients.clear_instance_cache()
    yield
    clients.clear_instance_cache()
    s3.restart()


@pytest.mark.slow
def test_the_command_reports_a_server_that_is_gone(
    environment: None, sqlite_uri: str, s3: S3Server, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sent = fill(s3.files(), root, 3)
    command = ["--store", sqlite_uri, "message", "receive-folder", f"s3://{root}", "--pattern", "{origin}/*"]
    s3.kill()
    assert main(command) == 3
    printed = capsys.readouterr().err
    assert f"error: s3://{root} failed (EndpointConnectionError: " in printed
    assert "report it" not in printed and "so run it again" in printed
    s3.restart()
    assert main(command) == 0
    with MessageQueue(sqlite_uri) as queue:
        assert landed(queue) == sorted(sent)


def test_a_server_that_is_busy_is_not_one_that_ignores_conditions(
    files: Any, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error passes, so that the task is tried again."""

    def busy(method: str, *args: Any, **how: Any) -> Any:
        raise translate_boto_error(ClientError({"Error": {"Code": "SlowDown", "Message": "slow down"}}, method))

    monkeypatch.setattr(files, "call_s3", busy)
    with pytest.raises(OSError, match="slow down"):
        LandingPrefix(files, root, "{origin}/*")


# -- external payloads --


@pytest.mark.slow
@pytest.mark.sqlite_first
def test_external_payloads_outlast_the_server(
    environment: None, queue: MessageQueue, store_uri: str, s3: S3Server, root: str
) -> None:
    """Two clients write, read and delete payloads at once; the server is killed before each of it."""
    queue.admin.change_ring(blob_path=f"s3://{root}")

    def kept() -> int:
        files = s3.files()
        return len(files.find(root)) if files.exists(root) else 0

    def sender(name: int) -> list[bytes]:
        with MessageQueue(store_uri) as own:
            made = [b"%d %d " % (name, n) + bytes(200_000) for n in range(6)]
            for payload in made:
                own.payloads.enqueue(f"o{name}", payload)
            return made

    with ThreadPoolExecutor(2) as pool:
        sent = [payload for made in pool.map(sender, range(2)) for payload in made]
    s3.kill()
    with pytest.raises(StoreUnreachable, match="external payloads, s3://.*EndpointConnectionError"):
        queue.payloads.enqueue("o0", bytes(300_000))
    with pytest.raises(StoreUnreachable):
        queue.payloads.open(queue.inspect.peek("o0")[0])
    s3.restart()
    assert kept() == 12

    read: list[bytes] = []

    def process(delivery: Delivery) -> None:
        with delivery_queue.payloads.open(delivery) as file:
            read.append(file.read())

    with MessageQueue(store_uri) as delivery_queue:
        s3.restart()
        delivery_queue.service_queues(process, Weight(10**9, 10**12))
    assert sorted(read) == sorted(sent)
    s3.kill()
    queue.admin.housekeep()
    s3.restart()
    queue.admin.housekeep()
    assert kept() == 0 and queue.payloads.list() == []


def test_an_absent_bucket_is_an_error_and_an_absent_prefix_is_empty(queue: MessageQueue, files: Any) -> None:
    assert read_all(queue, files, "plain/absent", "keep") == Received()
    with pytest.raises(InvalidInput, match="no bucket of 's3://absent/landing': expected an existing one; create it"):
        read_all(queue, files, "absent/landing", "keep")
