"""Planted bugs apply to today's sources, and the simulation finds them."""

from __future__ import annotations

import os
import re

import pytest

from .mutations import MUTATIONS, PACKAGE, Mutation
from .mutations.__main__ import hunt

#: Bugs for which no more than a few seeds are needed: the others are part of `make soak`.
QUICK = (
    "expired message deleted without an event", "weight budget off by one", "processed message still counted",
    "send by any queue goes to the delivery", "first outcome of all attempts counts",
)  # fmt: skip


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.name)
def test_a_planted_bug_applies_to_the_sources(mutation: Mutation) -> None:
    """After a change of the sources: change the texts of the bug, so that it is the same bug as before."""
    changed = mutation.apply()
    assert changed != (PACKAGE / mutation.file).read_text("utf-8")
    if mutation.file.endswith(".py"):
        compile(changed, mutation.file, "exec")


def test_planted_bugs_are_many_and_have_names_of_their_own() -> None:
    assert len(MUTATIONS) >= 20
    assert len({one.name for one in MUTATIONS}) == len(MUTATIONS)


def test_the_table_of_results_lists_every_planted_bug() -> None:
    """`python -m tests.proofs.simulation.mutations` prints its rows."""
    table = (PACKAGE.parent / "lab" / "results" / "planted-bugs.md").read_text("utf-8")
    rows = re.findall(r"^\| (.+?) \|(?: (SQLite|PostgreSQL) \|| +\| `(.+)` \|)", table, re.MULTILINE)
    stores = {"sqlite": "SQLite", "postgres": "PostgreSQL"}

    assert rows == [(one.name, "" if one.test else stores[one.store], one.test) for one in MUTATIONS]


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_the_simulation_finds_a_planted_bug(name: str) -> None:
    (mutation,) = (one for one in MUTATIONS if one.name == name)
    assert hunt(mutation, 40)["seeds"] is not None


@pytest.mark.soak
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.name)
def test_the_simulation_finds_every_planted_bug(mutation: Mutation) -> None:
    assert hunt(mutation, int(os.environ.get("MQ_MUTATION_SEEDS", "400")))["seeds"] is not None
