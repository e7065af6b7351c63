"""Simulated runs: seeds, and what the simulation promises of itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from .__main__ import main, shrunk
from .messages import Violation
from .registers import Register
from .run import Figures, Outcome, assert_survives, run, run_budgeted, run_seed
from .scheduler import Process
from .script import GUESTS, Fault, Script, Step, draw
from .world import Stores, World

#: Seeds on SQLite and on PostgreSQL, in pieces that run in parallel. `make soak` sets more.
SEEDS = int(os.environ.get("MQ_SIMULATION_SEEDS", "160"))
SERVER_SEEDS = int(os.environ.get("MQ_SIMULATION_SERVER_SEEDS", "20"))
BUDGETED_SEEDS = int(os.environ.get("MQ_SIMULATION_BUDGETED_SEEDS", "40"))
PIECE = 20


def survive(
    seeds: range, stores: Stores, store: str, run_one: Callable[[int, Stores, str], Outcome] = run_seed
) -> Figures:
    """Run seeds; fail at the first one that violates an invariant, with the command that shrinks it."""
    total = Figures()
    for seed in seeds:
        outcome = run_one(seed, stores, store)
        total.add(outcome.figures)
        command = f"python -m tests.proofs.simulation --store {store} --shrink {seed}"
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
@pytest.mark.parametrize("first", range(0, BUDGETED_SEEDS, PIECE))
def test_seeds_with_budgets_on_sqlite(sqlite_stores: Stores, first: int) -> None:
    total = survive(range(first, min(first + PIECE, BUDGETED_SEEDS)), sqlite_stores, "sqlite", run_budgeted)
    assert total.met["exhausted budgets"] and total.met["event BudgetExhausted"]


@pytest.mark.slow
@pytest.mark.postgres
def test_seeds_with_budgets_on_postgres(both_stores: Stores) -> None:
    survive(range(1_000_000, 1_000_005), both_stores, "postgres", run_budgeted)


@pytest.mark.slow
def test_guests_meet_what_they_are_for(sqlite_stores: Stores) -> None:
    """Second queues in processors, callbacks that send, changed settings, fatal messages, lines, letters, traces, gaps."""
    total = Figures()
    for kind in GUESTS:
        actions = [*GUESTS[kind]] * 4
        steps = [
            step
            for number, action in enumerate(actions)
            for step in (
                Step("sender-1", "send_many", number), Step("sender-2", "send_parents", number),
                Step("sender-3", "send_overweight", number), Step(f"{kind}-1", action, number),
            )
        ]  # fmt: skip
        script = Script(9, steps)
        outcome = run(script, sqlite_stores)
        assert outcome.failure is None
        total.add(outcome.figures)
    for name in (
        "sends to another ring (ring)", "sends to another ring (store)", "services inside a processor",
        "sends of a callback", "sends by a kept delivery", "tune: done", "enlarge: done", "parts that were repeated",
        "workers that died of a message", "ends that were expected", "empty claims",
        "ends beside a service", "uploads of workers", "external payloads that were read",
        "readings", "blocks that were forecast", "receivers that stopped between lines", "letters that a processor sent",
        "letters in blocks", "messages sent within a trace", "traces in blocks", "runs that caught up",
    ):  # fmt: skip
        assert total.met[name], name


def test_a_step_that_does_not_end_fails_its_run(sqlite_stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    def housekeep(world: World, process: Process, random: Random) -> None:
        while True:
            with suppress(Exception):
                world.queue(process).admin.paused()

    monkeypatch.setattr("tests.proofs.simulation.run.ACTIONS", {**_actions(), "housekeep": housekeep})
    monkeypatch.setattr("tests.proofs.simulation.scheduler.MOST_STATEMENTS", 50)
    outcome = run(Script(1, [Step("keeper-1", "housekeep", 1)]), sqlite_stores)
    assert outcome.invariant == "Stuck"
    assert "has not ended" in str(outcome.failure)


def test_a_register_permits_what_may_be_the_last_change() -> None:
    register = Register(1)
    first, second = register.begin(2, 10), register.begin(3, 11)
    first.ended = second.ended = 12
    register.acknowledge(second)
    register.acknowledge(first)
    assert [register.permits(value) for value in (1, 2, 3)] == [False, True, True]
    third = register.begin(4, 20)
    assert register.permits(4) and register.permits(2)
    register.undo(third)
    assert not register.permits(4)
    last = register.begin(5, 21)
    last.ended = 22
    register.acknowledge(last)
    assert [register.permits(value) for value in (2, 3, 5)] == [False, False, True]


@pytest.mark.parametrize("seed", [12571, 15482, 880368])
def test_seeds_that_the_simulation_judged_wrongly(sqlite_stores: Stores, seed: int) -> None:
    assert_survives(draw(seed), sqlite_stores)


def test_a_seed_with_budgets_that_the_simulation_judged_wrongly(sqlite_stores: Stores) -> None:
    """An end that is applied late is no reason to forget since when its budget is charged."""
    assert run_budgeted(773891, sqlite_stores).failure is None


@pytest.mark.slow
def test_a_seed_reproduces_a_run_exactly(sqlite_stores: Stores) -> None:
    first, again = (run(draw(7), sqlite_stores, observe=True) for _ in range(2))
    assert first.results == again.results
    assert first.history == again.history
    assert first.figures.turns == again.figures.turns


@pytest.mark.postgres
@pytest.mark.parametrize("seed", [23, 27])
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


@pytest.mark.slow
def test_a_failing_run_shrinks_to_the_steps_that_matter(
    sqlite_stores: Stores, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bug that needs one action: the shortest script has one step, and is printed as a test."""

    def housekeep(*arguments: object) -> None:
        raise Violation("planted", "housekeeping is forbidden")

    monkeypatch.setattr("tests.proofs.simulation.actors.ACTIONS", {**_actions(), "housekeep": housekeep})
    monkeypatch.setattr("tests.proofs.simulation.run.ACTIONS", {**_actions(), "housekeep": housekeep})
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


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["error", "busy", "cut", "lost", "gone", "gone after", "slow", "jump", "dst", "skew"])
def test_each_fault_happens(sqlite_stores: Stores, kind: str) -> None:
    script = Script(2, [Step("sender-1", "send_many", 1, fault=Fault(kind, "commit")), Step("planner-1", "plan", 2)])
    outcome = run(script, sqlite_stores)
    assert outcome.failure is None
    assert outcome.figures.faults == {kind: 1}
    assert_survives(script, sqlite_stores)


@pytest.mark.slow
def test_the_command_prints_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--first", "3"]) == 0
    printed = capsys.readouterr().out
    assert "2 runs" in printed
    assert "0 of 2 seeds violate an invariant" in printed
    assert main(["--seeds", "1", "--met"]) == 0
    assert "event Processed" in capsys.readouterr().out
    assert main(["--replay", "3"]) == 0
    assert "Step('" in capsys.readouterr().out


def _actions() -> dict[str, object]:
    from .actors import ACTIONS

    return dict(ACTIONS)
