"""Jobs as they are submitted: `spark-submit` for real, on `local[2]`."""

from __future__ import annotations

import os
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from airflow_mq import MessageQueue, Processor
from airflow_mq.engine.store import parse
from airflow_mq.spark.arguments import REFUSED, Arguments
from airflow_mq.spark.java import spark_environment
from airflow_mq.spark.store_side import run_in_place
from tests.spark.conftest import job_command, job_environment, processors, run_job, whole
from tests.spark.functions import all_tried
from tests.spark.watching import Watched, files_with
from tests.waiting import eventually

MakeRing = Callable[..., MessageQueue]
pytestmark = [pytest.mark.spark, pytest.mark.slow]

ODD = [
    "{{ ds }}", "{% raw %}", "--conf spark.master=yarn", "-", "--", "$(id)", "`id`", "; rm -rf /", "a b", "%s%n", '"', "'", "\\",
    "../..", "\N{RIGHT-TO-LEFT OVERRIDE}x", "\U0001f600", "\N{NO-BREAK SPACE}",
]  # fmt: skip


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Callable[[Sequence[str], Mapping[str, str]], Watched]]:
    """Starts jobs, and ends what is left of them."""
    started: list[Watched] = []

    def start(command: Sequence[str], environment: Mapping[str, str]) -> Watched:
        started.append(Watched(command, environment, tmp_path / f"job-{len(started)}.log"))
        return started[-1]

    yield start
    for job in started:
        job.end()


def processed(queue: MessageQueue) -> Counter[tuple[str, int, int]]:
    return Counter((e.origin, e.page, e.index) for e in queue.inspect.events() if e.name == "Processed")


@pytest.mark.postgres_first
def test_a_block_end_to_end(
    either_store: str, make_ring: MakeRing, tmp_path: Path, watch: Callable[..., Watched], tried_folder: Path
) -> None:
    uri, canary = either_store, parse(either_store).password
    if canary is None:
        canary = f"canary{secrets.token_hex(8)}"
        (tmp_path / canary).mkdir()
        uri = f"sqlite:///{tmp_path / canary / 'store.db'}"
    queue = make_ring(uri, invisible_origins=True)
    for origin in ODD:
        queue.enqueue_messages(origin, [origin.encode(), bytes(range(256)), b"{{ var.value.x }}"])
    queue.enqueue_messages("poisoned", [b"1", b"poison {{ x }}", b"2"])
    queue.enqueue_messages("deadly", [b"1", b"die", b"2"])
    queue.enqueue_messages("mixed", [b"bad", b"used", b"enqueue later/new", b"false"])
    queue.enqueue_messages("arrow", [b"1", b"bad", b"used"])
    queue.enqueue_messages("frame", [b"1", b"bad"])
    queue.enqueue_messages("nothing", [b"1", b"2"])
    queue.admin.set_origin("relaxed", ordered=False)
    queue.enqueue_messages("relaxed", [b"later", b"1", b"2"])
    routes = processors(
        Processor("arrow", "tests.spark.functions:arrow", ("arrow",), "arrow"),
        Processor("frame", "tests.spark.functions:frame", ("frame",), "dataframe"),
        Processor("nothing", "tests.spark.functions:frame_of_nothing", ("nothing",), "dataframe"),
    )
    block = queue.blocks.plan(key="dag/{{ run }}/task", lease=600)
    (tmp_path / "events").mkdir()
    command = job_command(
        routes, "--lease", "120",
        **{"spark.eventLog.enabled": "true", "spark.eventLog.dir": str(tmp_path / "events"),
           "spark.eventLog.compress": "false", "spark.sql.adaptive.enabled": "false", "spark.app.name": "orders"},
    )  # fmt: skip
    environment = job_environment(uri, block.token)
    if uri.startswith("sqlite"):
        # A machine without any Java but the one that Python's package index has.
        environment = without_java(environment, tmp_path / "empty")

    job = watch(command, environment)

    assert job.wait() == 0, job.said()
    assert "airflow_mq: Spark application local-" in job.said()
    assert "airflow_mq: arrow + frame + nothing + all:" in job.said()
    settled = queue.blocks.settle(block)
    tried = all_tried(tried_folder)
    for origin in ODD:
        # Some twice: a process died before it had reported them.
        assert list(dict.fromkeys(payload for whose, payload in tried if whose == origin)) == [
            origin.encode(), bytes(range(256)), b"{{ var.value.x }}"]  # fmt: skip
    assert settled.failed == 3
    assert settled.processed == 3 * len(ODD) + 1 + 1 + 3 + 2 + 1 + 2 + 2
    assert [p.payload for p in queue.inspect.peek("poisoned")] == [b"poison {{ x }}", b"2"]
    assert [p.payload for p in queue.inspect.peek("relaxed")] == [b"later"]
    assert [(p.payload, p.attempts) for p in queue.inspect.peek("deadly")] == [(b"die", 1), (b"2", 0)]
    assert queue.footprint("later/new").count == 2
    for secret in (canary, block.token):
        assert secret not in job.said()
        assert not [line for line in job.command_lines if secret in line]
        assert not files_with(tmp_path / "events", secret)
    assert files_with(tmp_path / "events", '"App Name":"orders"'), "the job has the name that it was given"


def without_java(environment: Mapping[str, str], nowhere: Path) -> dict[str, str]:
    """Return the environment of a machine without a Java of its own."""
    nowhere.mkdir()
    for place in ("/usr/bin", "/bin"):
        for program in Path(place).iterdir():
            if not program.name.startswith("java") and not (nowhere / program.name).is_symlink():
                (nowhere / program.name).symlink_to(program)
    path = os.pathsep.join([str(Path(sys.executable).parent), str(nowhere)])
    bare = {name: value for name, value in environment.items() if name != "JAVA_HOME"}
    made = {**bare, **spark_environment({"PATH": path}), "PATH": path}
    assert "airflow_mq" in made["JAVA_HOME"]
    return made


def test_a_job_that_comes_too_late_is_refused(make_ring: MakeRing, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'store.db'}"
    queue = make_ring(uri)
    queue.enqueue_messages("a", [b"1"])
    block = queue.blocks.plan()
    queue.blocks.release(block)

    code, said = run_job(job_command(processors()), job_environment(uri, block.token))

    assert code == REFUSED
    assert f"airflow_mq: refused: block {block.id} was released; it is too late" in said
    assert "Traceback" not in said


def test_a_block_that_is_released_meanwhile_stops_its_job(
    make_ring: MakeRing, tmp_path: Path, watch: Callable[..., Watched], tried_folder: Path
) -> None:
    uri = f"sqlite:///{tmp_path / 'store.db'}"
    queue = make_ring(uri)
    for origin in ("a", "b"):
        queue.enqueue_messages(origin, [b"slow 0.5"] * 1000)
    block = queue.blocks.plan(lease=600)
    job = watch(job_command(processors(), "--lease=9"), job_environment(uri, block.token))
    eventually(lambda: all_tried(tried_folder), 300)

    queue.blocks.release(block)

    # Left alone, it would go on for eight minutes.
    assert job.wait(240) == REFUSED, job.said()
    assert "airflow_mq: refused: block" in job.said()
    settled = sum(processed(queue).values())
    assert settled < 2000
    assert sum(queue.footprint(origin).count for origin in ("a", "b")) == 2000 - settled


def test_a_driver_that_is_killed_leaves_everything_to_the_next_block(
    make_ring: MakeRing, tmp_path: Path, watch: Callable[..., Watched], tried_folder: Path
) -> None:
    uri = f"sqlite:///{tmp_path / 'store.db'}"
    queue = make_ring(uri)
    for origin in ("a", "b"):
        queue.enqueue_messages(origin, [b"slow 0.2"] * 60)
    block = queue.blocks.plan(lease=600)
    job = watch(job_command(processors(), "--lease=60"), job_environment(uri, block.token))
    # Some answers were reported, and most messages are still to be tried.
    eventually(lambda: any(answers.items() for answers in queue.blocks.reported(block.token).values()), 300)

    job.process.kill()
    eventually(lambda: not job.left())
    assert queue.blocks.get(block.token).state == "planned"
    # As if its lease had run out by now: no process renews it.
    with queue.store.writing() as unit:
        assert unit.blocks.close(queue.session.ring_id, bytes.fromhex(block.token), unit.now())
    eventually(queue.blocks.release_dead)

    done = sum(processed(queue).values())
    assert 0 < done < 120
    for process in tried_folder.iterdir():
        process.unlink()
    again = queue.blocks.plan()
    assert again.messages == 120 - done
    run_in_place(queue, again.token, processors(), whole(processors()))
    queue.blocks.settle(again)
    assert processed(queue) == Counter(processed(queue).keys())
    assert len(processed(queue)) == 120


def test_invalid_arguments_are_reported_in_one_line(
    make_ring: MakeRing, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from airflow_mq.spark.program import main

    for words, code, said in (
        (["--nonsense", "x"], 2, "--nonsense"),
        (["--routes"], 2, "--routes needs a value"),
        (["--processors", "a"], 2, "--routes is missing"),
        (["--routes", "{", "--processors", "all"], 1, "invalid JSON of processors"),
        (["--routes", processors().routes_json(), "--processors", "none"], 1, "unknown processor 'none'"),
        (["--routes", processors().routes_json(), "--processors", "all"], 1, "AIRFLOW_MQ_STORE is not set"),
        (
            ["--routes", processors().routes_json(), "--processors", "all", "--exchange", str(tmp_path)],
            1,
            "missing file manifest.json",
        ),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("AIRFLOW_MQ_STORE", raising=False)
            assert main(words) == code
        told = capfd.readouterr().err.strip().splitlines()[-1]
        assert told.startswith("airflow_mq: ") and said in told


def test_values_may_look_like_options() -> None:
    read = Arguments.read(
        ["--ring", "--conf", "--routes={=}", "--processors", "-a,b", "--part=1", "--parts", "2", "--lease=1.5"]
    )

    assert (read.ring, read.routes, read.processors, read.part, read.parts, read.lease) == (
        "--conf", "{=}", ["-a", "b"], 1, 2, 1.5)  # fmt: skip
