"""Planted bugs: what each one is, and how it is planted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[4] / "airflow_mq"


@dataclass(frozen=True)
class Mutation:
    """One planted bug."""

    name: str
    #: Path within the package.
    file: str
    #: Pairs of the exact text of today and the text that replaces it. Each text occurs once.
    changes: Sequence[tuple[str, str]]
    store: str = "sqlite"
    #: What runs: `ring`, one with `budgets`, the `crowd` of many queues, or `busy` queues.
    runs: str = "ring"
    #: The test that finds it where no run of the simulation can: it needs real processes, Spark or many messages.
    test: str = ""

    def apply(self, package: Path = PACKAGE) -> str:
        """Return the changed text of the file; raise if it does not apply."""
        text = (package / self.file).read_text("utf-8")
        for old, new in self.changes:
            if text.count(old) != 1:
                raise LookupError(f"{self.name}: {self.file} has {text.count(old)} times, expected once: {old!r}")
            text = text.replace(old, new)
        return text


def bug(name: str, file: str, *texts: str, store: str = "sqlite", runs: str = "ring", test: str = "") -> Mutation:
    """Return a planted bug: texts of today, each followed by the text that replaces it."""
    return Mutation(name, file, list(zip(texts[::2], texts[1::2])), store, runs, test)
