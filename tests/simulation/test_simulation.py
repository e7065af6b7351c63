"""Simulated runs: seeds of one ring and of a sharded queue, and what the simulation promises of itself."""

from __future__ import annotations

import os

import pytest

from .__main__ import main, shrunk
from .messages import Violation
from .run import Figures, assert_survives, run, run_seed
from .script import Fault, Script, Step, draw
from .world import Stores

#: Seeds on SQLite and on PostgreSQL, in pieces that run in parallel. `make soak` sets more.
SEEDS = int(os.environ.get("MQ_SIMULATION_SEEDS", "280"))
SERVER_SEEDS = int(os.environ.get("MQ_SIMULATION_SERVER_SEEDS", "20"))
#: The same for a sharded queue.
SHARDED_SEEDS = int(os.environ.get("MQ_SIMULATION_SHARDED_SEEDS", "30"))
SHARDED_SERVER_SEEDS = int(os.environ.get("MQ_SIMULATION_SHARDED_SERVER_SEEDS", "2"))
PIECE = 20


def survive(seeds: range, stores: Stores, store: str, *, sharded: bool = False) -> Figures:
    """Run seeds; fail at the first one that violates an invariant, with the command that shrinks it."""
    total = Figures()
    for seed in seeds:
        outcome = run_seed(seed, stores, store, sharded=sharded)
        total.add(outcome.figures)
        command = f"python -m tests.simulation {'--sharded ' if sharded else ''}--store {store} --shrink {seed}"
        assert outcome.failure is None, f"{outcome.failure}\n{command}"
    print(f"{store}: {total}")
    return total


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, PIECE))
def test_seeds_on_sqlite(sqlite_stores: Stores, first: int) -> None:
    total = survive(range(first, min(first + PIECE, SEEDS)), sqlite_stores, "sqlite")
    assert total.messages > total.runs * 10
    assert total.faults


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize("first", range(0, SERVER_SEEDS, 10))
def test_seeds_on_postgres(both_stores: Stores, first: int) -> None:
    survive(range(1_000_000 + first, 1_000_000 + min(first + 10, SERVER_SEEDS)), both_stores, "postgres")


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SHARDED_SEEDS, 10))
def test_sharded_seeds_on_sqlite(sqlite_stores: Stores, first: int) -> None:
    total = survive(range(first, min(first + 10, SHARDED_SEEDS)), sqlite_stores, "sqlite", sharded=True)
    assert total.messages > total.runs * 10
    # Shards are added and drained, origins move, servers stop, and interrupted tasks send again.
    for name in ("layouts adopted", "origins released", "servers stopped", "tasks that were repeated"):
        assert total.met[name], name


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize("seed", range(2_000_000, 2_000_000 + SHARDED_SERVER_SEEDS))
def test_sharded_seeds_on_postgres(sharded_stores: Stores, seed: int) -> None:
    survive(range(seed, seed + 1), sharded_stores, "postgres", sharded=True)


@pytest.mark.parametrize("seed", [12571, 15482])
def test_seeds_that_the_simulation_judged_wrongly(sqlite_stores: Stores, seed: int) -> None:
    assert_survives(draw(seed), sqlite_stores)


@pytest.mark.parametrize("sharded", [False, True], ids=["one ring", "sharded"])
def test_a_seed_reproduces_a_run_exactly(sqlite_stores: Stores, sharded: bool) -> None:
    first, again = (run(draw(7, sharded=sharded), sqlite_stores, observe=True) for _ in range(2))
    assert first.results == again.results
    assert first.history == again.history
    assert first.figures.turns == again.figures.turns


@pytest.mark.postgres
@pytest.mark.parametrize("seed", [17, 23])
def test_a_seed_reproduces_a_run_on_a_server(both_stores: Stores, seed: int) -> None:
    """In these runs processes wait for locks, but one at a time: which of two goes on is the server's choice."""
    first, again = (run(draw(seed), both_stores, "postgres", observe=True) for _ in range(2))
    assert first.results == again.results
    assert first.history == again.history


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize("seed", range(6))
def test_a_schedule_without_cuts_gives_the_same_results_on_both_stores(both_stores: Stores, seed: int) -> None:
    """I9: same steps and seeds, same plans and events on SQLite and PostgreSQL."""
    script = draw(seed).plain
    sqlite, postgres = (
        run(script, both_stores, store, cutting=False, observe=True) for store in ("sqlite", "postgres")
    )
    assert sqlite.failure is None
    assert postgres.failure is None
    assert sqlite.results == postgres.results
    assert sqlite.history == postgres.history


def test_a_failing_run_shrinks_to_the_steps_that_matter(
    sqlite_stores: Stores, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bug that needs one action: the shortest script has one step, and is printed as a test."""

    def housekeep(*arguments: object) -> None:
        raise Violation("planted", "housekeeping is forbidden")

    monkeypatch.setattr("tests.simulation.actors.ACTIONS", {**_actions(), "housekeep": housekeep})
    monkeypatch.setattr("tests.simulation.run.ACTIONS", {**_actions(), "housekeep": housekeep})
    outcome = run_seed(3, sqlite_stores)
    assert outcome.invariant == "planted"
    shortest = shrunk(outcome, lambda script: run(script, sqlite_stores))
    assert [step.action for step in shortest.steps] == ["housekeep"]
    text = shortest.as_test("planted", str(outcome.failure), "sqlite")
    names: dict[str, object] = {}
    exec(compile(text, "planted.py", "exec"), names)  # noqa: S102 (the text that the simulation prints)
    assert names["SCRIPT"] == shortest


def test_a_step_that_is_cut_lets_others_run_between_its_statements(sqlite_stores: Stores) -> None:
    steps = [Step("sender-1", "send", 1, cuts={9: 3}), Step("sender-2", "send", 2), Step("planner-1", "plan", 3)]
    outcome = run(Script(1, steps), sqlite_stores)
    assert outcome.failure is None
    assert outcome.figures.cuts == 1
    # The others wait for the writer that pauses in the middle of its transaction.
    assert outcome.figures.blocks >= 1


@pytest.mark.parametrize("kind", ["error", "busy", "cut", "lost", "gone", "gone after", "slow", "jump", "dst", "skew"])
def test_each_fault_happens(sqlite_stores: Stores, kind: str) -> None:
    script = Script(2, [Step("sender-1", "send_many", 1, fault=Fault(kind, "commit")), Step("planner-1", "plan", 2)])
    outcome = run(script, sqlite_stores)
    assert outcome.failure is None
    assert outcome.figures.faults == {kind: 1}
    assert_survives(script, sqlite_stores)


def test_a_server_that_is_down_refuses_its_own_actors_only(sqlite_stores: Stores) -> None:
    """All shards stop one after the other, and each of them is up again before the next one stops."""
    outage = [Step("outage-1", "stop_server", seed) for seed in range(8)]
    between = [Step(f"sender-{number}", "send_pairs", number, wait=2.0) for number in range(1, 9)]
    steps = [step for pair in zip(outage, between) for step in pair]
    outcome = run(Script(5, steps, sharded=True), sqlite_stores)
    assert outcome.failure is None
    met = outcome.figures.met
    assert met["servers stopped"]
    assert met["send_pairs: ShardsFailed"] + met["send_pairs: ShardUnavailable"]
    assert 0 < met["event Processed"] < outcome.figures.messages


def test_the_command_prints_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--first", "3"]) == 0
    printed = capsys.readouterr().out
    assert "2 runs" in printed
    assert "0 of 2 seeds violate an invariant" in printed
    assert main(["--seeds", "1", "--sharded", "--met"]) == 0
    assert "layouts adopted" in capsys.readouterr().out
    assert main(["--replay", "3"]) == 0
    assert "Step('" in capsys.readouterr().out


def _actions() -> dict[str, object]:
    from .actors import ACTIONS

    return dict(ACTIONS)
