"""Apply planted bugs and print which invariant finds each: `python -m tests.proofs.simulation.mutations --help`."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.memory import in_memory

from . import MUTATIONS, PACKAGE, Mutation

#: Seeds after which a bug counts as not found.
MOST = {"sqlite": 400, "postgres": 150}
#: Refuses to run a test with another package than the changed one.
PLUGIN = "tests.proofs.simulation.mutations.changed"


@contextmanager
def copied() -> Iterator[Path]:
    """Yield a folder with a copy of the package, and with all beside it."""
    with tempfile.TemporaryDirectory(prefix="mq_mutation_", dir=in_memory()) as name:
        folder = Path(name)
        ignored = shutil.ignore_patterns("__pycache__", "page", "node_modules")
        shutil.copytree(PACKAGE, folder / "airflow_mq", ignore=ignored)
        for other in PACKAGE.parent.glob("[!.]*"):
            if other.name not in (PACKAGE.name, "build"):
                (folder / other.name).symlink_to(other)
        yield folder


@contextmanager
def planted(mutation: Mutation) -> Iterator[Path]:
    """Yield such a folder whose package has a bug."""
    with copied() as folder:
        (folder / "airflow_mq" / mutation.file).write_text(mutation.apply(), "utf-8")
        yield folder


def hunt(mutation: Mutation, most: int, first: int = 0) -> dict[str, object]:
    """Return how many seeds found a bug, and the invariant that it violates."""
    with planted(mutation) as folder:
        if mutation.test:
            return run_test(mutation.test, folder)
        module = "tests.proofs.simulation.mutations.hunt"
        command = [sys.executable, "-m", module, mutation.runs, mutation.store, str(first), str(most)]
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if result.returncode:
        lines = result.stderr.strip().splitlines()
        return {"seeds": 1, "invariant": "the run ends with an error", "text": lines[-1] if lines else ""}
    found: dict[str, object] = json.loads(result.stdout.strip().splitlines()[-1])
    return found


def run_test(test: str, folder: Path) -> dict[str, object]:
    """Return whether a test fails with the changed package in a folder."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", PLUGIN, test]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    failed = [line for line in result.stdout.splitlines() if line.startswith("FAILED ")]
    if result.returncode > 1 or (result.returncode and not failed):
        raise RuntimeError(f"{test} did not run:\n{result.stdout[-2_000:]}{result.stderr[-2_000:]}")
    if not failed:
        return {"seeds": None, "invariant": "", "text": ""}
    return {"seeds": 1, "invariant": f"`{test}`", "text": failed[0][:300]}


def row(mutation: Mutation, found: dict[str, object]) -> str:
    """Return a row of the table, in Markdown."""
    store = "" if mutation.test else "PostgreSQL" if mutation.store == "postgres" else "SQLite"
    return f"| {mutation.name} | {store} | {found['invariant'] or '**survives**'} | {found['seeds'] or '-'} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Hunt for all bugs, or for one; return the number of survivors."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.proofs.simulation.mutations",
        description="Plant one bug at a time in a copy of the package, and run seeds until the simulation finds it.",
    )
    parser.add_argument("--only", metavar="NAME", help="only bugs whose name contains this")
    parser.add_argument("--most", type=int, metavar="N", help=f"seeds for each (default: {MOST})")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="first seed (default: 0)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="bugs at a time (default: 1)")
    parser.add_argument("--texts", action="store_true", help="print what each invariant reports")
    options = parser.parse_args(arguments)
    chosen = [one for one in MUTATIONS if not options.only or options.only in one.name]
    survivors = 0
    print("| planted bug | store | found by | seeds |\n| --- | --- | --- | ---: |", flush=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        results = pool.map(lambda one: hunt(one, options.most or MOST[one.store], options.first), chosen)
        for mutation, found in zip(chosen, results):
            survivors += found["seeds"] is None
            print(row(mutation, found), flush=True)
            if options.texts and found["text"]:
                print(f"    {found['text']}", flush=True)
    return min(survivors, 1)


if __name__ == "__main__":
    sys.exit(main())
