"""Conformance runner: it finds and locates differences, and works in scripts."""

from __future__ import annotations

import copy
import gzip
import lzma
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_mq.testing.conformance import main
from tests.proofs.conformance.traces import TRACES, Example, examples, otherwise, recorded_runs, write_runs

#: All kinds of values in a step.
KINDS = {
    "result.ok", "result.err", "result.ok[0]", "result.ok[1]", "result.weight[0]", "result.weight[1]",
    "result.ok.first_page_position", "result.ok.footprints[].messages", "result.ok.footprints[].new_pages",
    "result.ok.footprints[].size",
    *(f"events[](Processed).{name}" for name in ("event", "id", "origin", "success")),
    "events[](Processed).weight_used[0]", "events[](Processed).weight_used[1]",
    *(f"events[](ProcessingFailed).{name}" for name in ("event", "id", "origin", "error")),
    *(f"events[](OverweightEnqueued).{name}" for name in ("event", "id", "origin", "page_index", "message_index")),
    *(f"events[](PageReaped).{name}" for name in ("event", "origin", "index")),
    "queue_changed[].origin",
    *(f"queue_changed[].footprint.{name}" for name in ("count", "pages", "ready_pages", "size")),
    "nested[].call", "nested[].result.ok[0]", "nested[].result.ok[1]", "nested[].result.err",
    *(f"footprints.N.{name}" for name in ("count", "pages", "ready_pages", "size")),
    "state.ring[]", "state.ring[0]", "state.ring[1]",
    *(f"state.books.N.{name}" for name in ("begin", "end", "count", "ready", "message_count", "size")),
    *(f"state.books.N.pages.N.{name}" for name in ("first", "first_index", "last", "remaining", "remaining_size")),
    "state.books.N.pages.N.items[][0]", "state.books.N.pages.N.items[][1]",
}  # fmt: skip


def replay(tmp_path: Path, capsys: pytest.CaptureFixture[str], *runs: dict[str, Any]) -> tuple[int, str]:
    code = main([str(write_runs(tmp_path / "runs.jsonl", list(runs)))])
    return code, capsys.readouterr().out


@pytest.fixture(scope="module", autouse=True)
def runs() -> Iterator[None]:
    """Keep the recorded runs only for this module: they are a million objects."""
    yield
    recorded_runs.cache_clear()


def test_examples_cover_each_part_of_a_step() -> None:
    assert set(examples()) == KINDS


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_runner_locates_a_changed_value(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = examples()[kind]
    code, out = replay(tmp_path, capsys, example.changed(otherwise))
    assert (code, out.splitlines()[-1]) == (1, "1 runs, 1 diverge")
    assert f"step {example.step}, " in out
    assert f"    {example.path}: expected " in out


def _drop_first(value: list[Any]) -> list[Any]:
    return value[1:]


def _repeat_first(value: list[Any]) -> list[Any]:
    return [value[0], *value]


def _turn(value: list[Any]) -> list[Any]:
    return [*value[1:], value[0]]


def _drop_one(value: dict[str, Any]) -> dict[str, Any]:
    return dict(list(value.items())[1:])


def _add_one(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, "9": next(iter(value.values()))}


@pytest.mark.parametrize("change", [_drop_first, _repeat_first])
@pytest.mark.parametrize("part", ["events", "queue_changed", "nested", "state.ring", "state.books.N.pages.N.items"])
def test_runner_finds_extra_and_missing_items(
    part: str, change: Callable[[Any], Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = _around(part)
    code, out = replay(tmp_path, capsys, example.changed(change))
    assert (code, out.splitlines()[-1]) == (1, "1 runs, 1 diverge")
    assert f"    {example.path}: expected " in out


@pytest.mark.parametrize("change", [_drop_one, _add_one])
@pytest.mark.parametrize("part", ["state.books", "state.books.N.pages"])
def test_runner_finds_missing_and_extra_books_and_pages(
    part: str, change: Callable[[Any], Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = _around(part)
    code, out = replay(tmp_path, capsys, example.changed(change))
    assert (code, out.splitlines()[-1]) == (1, "1 runs, 1 diverge")
    assert f"    {example.path}." in out


def test_runner_finds_another_ring_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, step = next(
        (number, index)
        for number, run in enumerate(recorded_runs())
        for index, step in enumerate(run["steps"])
        if len(step["state"]["ring"]) > 2
    )
    code, out = replay(tmp_path, capsys, Example(run, step, ("state", "ring")).changed(_turn))
    assert (code, out.splitlines()[-1]) == (1, "1 runs, 1 diverge")
    assert "    state.ring[0]: expected " in out


def test_runner_continues_after_a_divergent_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = examples()["state.ring[]"].changed(otherwise)
    right = examples()["state.ring[]"].cut_out()
    code, out = replay(tmp_path, capsys, right, wrong, right)
    assert (code, out.splitlines()[-1]) == (1, "3 runs, 1 diverge")


def test_runner_prints_only_the_count_without_differences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right = examples()["state.ring[]"].cut_out()
    assert replay(tmp_path, capsys, right) == (0, "1 runs, 0 diverge\n")


def _around(part: str) -> Example:
    """Return the innermost value of this name around the first example in it."""
    kind = next(kind for kind in examples() if kind.startswith(part))
    example = examples()[kind]
    return example._replace(place=example.place[: len(part.split("."))])


# Command line.


def run_program(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "airflow_mq.testing.conformance", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "jsonl.xz"])
def test_program_reads_plain_and_compressed_files(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"some.{ending}"
    text = gzip.decompress(TRACES.read_bytes())
    compress = {"jsonl": bytes, "jsonl.gz": gzip.compress, "jsonl.xz": lzma.compress}[ending]
    path.write_bytes(compress(text))
    done = run_program("--limit", "3", path)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "3 runs, 0 diverge")


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--blocks"], ["--sparse", "7"]])
def test_program_supports_blocks_and_sparse(options: list[str]) -> None:
    done = run_program("--limit", "3", *options, TRACES)
    assert (done.returncode, done.stdout) == (0, "3 runs, 0 diverge\n")


def test_program_fails_if_a_run_diverges(tmp_path: Path) -> None:
    example = examples()["events[](Processed).success"]
    run = copy.deepcopy(example.changed(otherwise))
    done = run_program(write_runs(tmp_path / "wrong.jsonl", [run]))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "1 runs, 1 diverge")
    assert f"wrong.jsonl, seed {run['seed']}: step {example.step}, " in done.stdout


def test_program_counts_runs_of_several_files(tmp_path: Path) -> None:
    run = examples()["state.ring[]"].cut_out()
    files = [write_runs(tmp_path / f"{name}.jsonl", [run, run]) for name in "ab"]
    done = run_program(*files)
    assert (done.returncode, done.stdout) == (0, "4 runs, 0 diverge\n")


@pytest.mark.postgres
def test_program_removes_its_schema(pg_uri: str) -> None:
    import psycopg

    done = run_program("--store", pg_uri, "--limit", "2", TRACES)
    assert (done.returncode, done.stdout) == (0, "2 runs, 0 diverge\n")
    with psycopg.connect(pg_uri) as connection:
        schemas = connection.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'airflow_mq_scratch%'"
        ).fetchall()
    assert schemas == []


def test_program_prints_help() -> None:
    done = run_program("--help")
    assert done.returncode == 0
    assert {"--store", "--limit", "--blocks", "--sparse", "FILE"} <= set(done.stdout.replace("[", " ").split())


def test_a_replay_of_no_run_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(tmp_path, capsys) == (1, "0 runs, 0 diverge\n")
