"""Which layer of the tests finds which planted bug: `python -m lab.layers --help`.

A layer that finds nothing that another one does not find costs time and proves nothing. Each planted bug of the
simulation is planted in a copy of the package, and each layer runs there until its first failure: the tests that reach
the bug, the fastest first. Which ones these are, one run of a layer without bugs shows. The folder of results keeps
everything, so that a run that was ended goes on. All bugs on all layers take a night; `--only` and `--layers` choose.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.proofs.simulation.mutations import MUTATIONS, Mutation
from tests.proofs.simulation.mutations.__main__ import MOST, PLUGIN, copied, hunt, planted

from .reached import CHOSEN, REPORTS, add_probes, choose

#: Folders of tests of each layer; the simulation runs by itself.
LAYERS = {
    "unit": ["tests/unit"],
    "store": ["tests/store"],
    "model": ["tests/proofs/model"],
    "conformance": ["tests/proofs/conformance"],
    "concurrency": ["tests/proofs/concurrency"],
    "crash": ["tests/proofs/crash"],
    "fairness": ["tests/proofs/fairness"],
    "simulation": [],
}
#: The file of results that names what each layer found.
FOUND = "found.jsonl"
#: Seconds of tests, the fastest first, after which a layer counts as not having found a bug.
MOST_SECONDS = 300.0


def run_tests(folder: Path, store: str, tests: Sequence[str], *options: str, **variables: str) -> list[str]:
    """Run tests with the package in a folder, and return those that fail."""
    stores = "not soak" if store == "postgres" else "not soak and not postgres"
    options = ("-q", "-p", "no:cacheprovider", "-p", PLUGIN, "-p", "lab.reached", "-m", stores, *options)
    command = [sys.executable, "-m", "pytest", *options, *tests]
    environment = {**os.environ, **variables}
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    failed = [line for line in result.stdout.splitlines() if line.startswith(("FAILED tests/", "ERROR tests/"))]
    if result.returncode and not failed:
        raise RuntimeError(f"the tests did not run:\n{result.stdout[-2_000:]}{result.stderr[-2_000:]}")
    return failed


def reports(layer: str, store: str, results: Path) -> Path:
    """Return the file of a layer that lists its tests with their seconds, and what each reaches; write it if need be."""
    file = results / f"{layer}-{store}.jsonl"
    if not file.exists():
        new = file.with_suffix(".new")
        new.unlink(missing_ok=True)
        with copied() as folder:
            add_probes(folder, MUTATIONS)
            run_tests(folder, store, LAYERS[layer], **{REPORTS: str(new.absolute())})
        new.rename(file)
    return file


def finds(layer: str, mutation: Mutation, results: Path) -> str:
    """Return the first test of a layer that fails with a planted bug, or the invariant; empty if none does."""
    if layer == "simulation":
        return str(hunt(Mutation(**{**vars(mutation), "test": ""}), MOST[mutation.store])["invariant"])
    tests = choose(reports(layer, mutation.store, results), mutation, MOST_SECONDS)
    if not tests:
        return ""
    with planted(mutation) as folder:
        chosen = folder / "chosen.json"
        chosen.write_text(json.dumps(tests), "utf-8")
        files = sorted({test.partition("::")[0] for test in tests})
        failed = run_tests(folder, mutation.store, files, "-x", **{CHOSEN: str(chosen)})
    return failed[0].split()[1] if failed else ""


def known(results: Path) -> dict[tuple[str, str], str]:
    """Return what each layer found before, by bug and layer."""
    file = results / FOUND
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    return {(bug, layer): found for bug, layer, found, _ in map(json.loads, lines)}


def table(found: dict[tuple[str, str], str]) -> str:
    """Return a table of bugs and layers, and how many bugs each layer alone finds, in Markdown."""
    bugs = list(dict.fromkeys(bug for bug, _ in found))
    rows = [f"| planted bug | {' | '.join(LAYERS)} |", f"| --- {'| :---: ' * len(LAYERS)}|"]
    marks = {bug: [_mark(found.get((bug, layer))) for layer in LAYERS] for bug in bugs}
    rows += [f"| {bug} | {' | '.join(own)} |" for bug, own in marks.items()]
    alone = [sum(own[at] == "yes" and own.count("yes") == 1 for own in marks.values()) for at in range(len(LAYERS))]
    sums = [sum(own[at] == "yes" for own in marks.values()) for at in range(len(LAYERS))]
    rows.append(f"| **found** | {' | '.join(map(str, sums))} |")
    rows.append(f"| **found by no other layer** | {' | '.join(map(str, alone))} |")
    return "\n".join(rows)


def _mark(answer: str | None) -> str:
    return "" if answer is None else "yes" if answer else "-"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the layers that are not known yet, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.layers", description="Show which layer finds which planted bug."
    )
    parser.add_argument("--results", type=Path, required=True, metavar="FOLDER", help="where results are kept")
    parser.add_argument("--only", default="", metavar="NAME", help="only bugs whose name contains this")
    parser.add_argument("--layers", nargs="+", choices=LAYERS, default=list(LAYERS), metavar="LAYER", help="only these")
    parser.add_argument("--table", action="store_true", help="run nothing, print the table of what is known")
    options = parser.parse_args(arguments)
    options.results.mkdir(exist_ok=True)
    found = known(options.results)
    for layer in options.layers if not options.table else ():
        for mutation in MUTATIONS:
            if options.only in mutation.name and (mutation.name, layer) not in found:
                began = time.monotonic()
                answer = found[mutation.name, layer] = finds(layer, mutation, options.results)
                with (options.results / FOUND).open("a", encoding="utf-8") as file:
                    file.write(json.dumps([mutation.name, layer, answer, round(time.monotonic() - began)]) + "\n")
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
