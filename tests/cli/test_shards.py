"""`airflow-mq shards`: status, place, change and plan of a sharded queue."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_mq import ShardedQueue
from airflow_mq.core.errors import InvalidInput
from airflow_mq.sharding.fleet import Costs, Load, fleet_of
from airflow_mq.store import parse, upgrade


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """A file that names two shards."""
    uris = {name: f"sqlite:///{tmp_path / name}.db" for name in "ab"}
    for uri in uris.values():
        upgrade(parse(uri))
    file = tmp_path / "shards.json"
    file.write_text(json.dumps({"a": {"store": uris["a"]}, "b": {"store": uris["b"], "weight": 2}}))
    return file


def run(*words: object) -> tuple[int, Any, str]:
    """Run a command with --json; return its exit code, its answer and its errors."""
    done = subprocess.run(
        [sys.executable, "-m", "airflow_mq", "--json", "shards", *map(str, words)], capture_output=True, text=True
    )
    return done.returncode, json.loads(done.stdout) if done.stdout.strip() else None, done.stderr


def test_shards_are_applied_shown_and_drained(shards: Path) -> None:
    at = ("--shards", shards)
    code, _, error = run("where", "acme", *at)
    assert (code, "shards apply" in error) == (4, True)
    assert run("apply", *at)[1] == {"version": 1, "shards": {"a": 1, "b": 2}, "former": []}
    code, status, _ = run("status", *at)
    assert code == 0
    assert [(each["name"], each["weight"], each["version"], each["pinned"]) for each in status] == [
        ("a", 1, 1, 0), ("b", 2, 1, 0),
    ]  # fmt: skip
    stores = {name: shard["store"] for name, shard in json.loads(shards.read_text()).items()}
    with ShardedQueue(stores) as queue:
        queue.enqueue_messages((f"o{number}", b"x") for number in range(20))
        queue.apply({"a": 5, "b": 1})
        moving = next(f"o{number}" for number in range(20) if queue.place(f"o{number}").pinned)
    answer = run("where", moving, *at)[1]
    assert (answer["shard"], answer["pinned"], answer["owner"]) == ("b", True, "a")
    code, drained, _ = run("drain", *at)
    assert code == 1
    assert drained["pinned"]["b"] > 0


def test_a_drained_shard_is_removed(shards: Path) -> None:
    at = ("--shards", shards)
    run("apply", *at)
    code, _, error = run("apply", *at, "--without", "b")
    assert (code, "cannot be removed yet" in error) == (2, True)
    assert run("apply", *at, "--without", "c")[0] == 2
    plain = json.loads(shards.read_text())
    shards.write_text(json.dumps({**plain, "b": {**plain["b"], "weight": 0}}))
    run("apply", *at)
    assert run("drain", *at)[0] == 0
    code, layout, _ = run("apply", *at, "--without", "b")
    assert (code, layout["shards"]) == (0, {"a": 1})
    shards.write_text(json.dumps({"a": plain["a"]}))
    assert run("where", "acme", *at)[1]["shard"] == "a"
    code, status, _ = run("status", *at)
    assert (code, [each["name"] for each in status]) == (0, ["a"])


def test_a_shard_that_is_down_is_shown_without_its_password(shards: Path) -> None:
    run("apply", "--shards", shards)
    plain = json.loads(shards.read_text())
    plain["b"]["store"] = "postgresql://mq:secret-word@127.0.0.1:9/db?connect_timeout=1"
    shards.write_text(json.dumps(plain))
    code, status, error = run("status", "--shards", shards)
    assert code == 1
    assert "shard 'b'" in status[1]["error"]
    assert "secret-word" not in f"{status} {error}"
    code, _, error = run("apply", "--shards", shards)
    assert (code, "secret-word" in error) == (4, False)


@pytest.mark.parametrize("text", ['{"a": 1}', '{"a": {"store": 7}}', '{"a": {"store": "sqlite:///x", "wight": 2}}'])
def test_a_wrong_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "shards.json"
    file.write_text(text)
    code, _, error = run("status", "--shards", file)
    assert (code, "invalid shard 'a'" in error) == (2, True)
    assert run("status")[0] == 2


def test_single_sends_count_apart() -> None:
    """The example of the documentation."""
    fleet = fleet_of(Load(200_000, 20_000, single_percent=5), Costs())
    assert (fleet.servers, round(fleet.server_use, 2), round(fleet.sender_cores, 2)) == (2, 0.34, 1.22)
    assert fleet_of(Load(200_000, single_percent=20), Costs()).servers == 5
    with pytest.raises(InvalidInput, match="single sends"):
        fleet_of(Load(1, single_percent=101), Costs())


def test_the_planned_costs_are_those_of_the_report() -> None:
    """Within a factor of two: the report is made anew more often than the documentation."""
    path = Path(__file__).parents[1] / "benchmarks" / "report" / "raw.json"
    measured = Costs.of_report(json.loads(path.read_text("utf-8")), "the report")
    for name, cost in vars(Costs()).items():
        if name != "source":
            assert cost / 2 <= getattr(measured, name) <= cost * 2, name


def test_a_fleet_is_planned_from_measured_costs(tmp_path: Path) -> None:
    costs = Costs(server_in=10, server_out=30, client_in=5, client_out=20, source="here")
    fleet = fleet_of(Load(100_000, 9_000, 60_000), costs, cores=2, percent=50)
    assert (fleet.servers, fleet.origins_per_server, fleet.server_use) == (4, 2_250, 0.5)
    assert (fleet.blocks_per_minute, fleet.sender_cores, fleet.worker_cores) == (25.0, 0.5, 2.0)
    sample = {"measure": "sharded", "servers": 1, "count": 1_000, "client_cpu": 0.002, "server_cpu": 0.004}
    report = tmp_path / "raw.json"
    report.write_text(json.dumps({"samples": [{**sample, "variant": way} for way in ("in", "single in", "out")]}))
    planned = run("plan", "--messages-per-second", 50_000, "--report", report)[1]
    assert planned["costs"]["server_in"] == 4.0
    assert planned["servers"] == 1
    report.write_text(json.dumps({"samples": [{**sample, "variant": "in"}]}))
    assert run("plan", "--messages-per-second", 50_000, "--report", report)[0] == 3 - 1
