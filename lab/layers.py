"""Which layer of the tests finds which planted bug: `python -m lab.layers --help`.

A layer that finds nothing that another one does not find costs time and proves nothing. Each planted bug of the
simulation is planted in a copy of the package, and each layer runs there until its first failure. The results are kept
in a file, line by line, so that a run that was ended goes on. One bug takes about five minutes on all layers, so all
of them take a night; `--only` and `--layers` choose.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.proofs.simulation.mutations import MUTATIONS, Mutation
from tests.proofs.simulation.mutations.__main__ import MOST, PLUGIN, hunt, planted

#: Folders of tests of each layer; the simulation runs by itself.
LAYERS = {
    "rules": ["tests/unit/rules"],
    "store": ["tests/store"],
    "model": ["tests/proofs/model"],
    "conformance": ["tests/proofs/conformance"],
    "concurrency": ["tests/proofs/concurrency"],
    "crash": ["tests/proofs/crash"],
    "simulation": [],
}
#: Seconds after which a layer counts as not having found a bug.
PATIENCE = 900


def finds(layer: str, mutation: Mutation) -> str:
    """Return the first test of a layer that fails with a planted bug, or the invariant; empty if none does."""
    if layer == "simulation":
        return str(hunt(Mutation(**{**vars(mutation), "test": ""}), MOST[mutation.store])["invariant"])
    stores = "not soak" if mutation.store == "postgres" else "not soak and not postgres"
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", PLUGIN, "-m", stores]
    with planted(mutation) as folder:
        command = [sys.executable, "-m", "pytest", *options, *LAYERS[layer]]
        try:
            result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            return f"no answer in {PATIENCE} s"
    failed = [line for line in result.stdout.splitlines() if line.startswith(("FAILED tests/", "ERROR tests/"))]
    if result.returncode and not failed:
        raise RuntimeError(f"{layer} did not run:\n{result.stdout[-2_000:]}{result.stderr[-2_000:]}")
    return failed[0].split()[1] if failed else ""


def known(results: Path) -> dict[tuple[str, str], str]:
    """Return what each layer found before, by bug and layer."""
    lines = results.read_text("utf-8").splitlines() if results.exists() else []
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
    parser.add_argument("--results", type=Path, required=True, metavar="FILE", help="where results are kept")
    parser.add_argument("--only", default="", metavar="NAME", help="only bugs whose name contains this")
    parser.add_argument("--layers", nargs="+", choices=LAYERS, default=list(LAYERS), metavar="LAYER", help="only these")
    parser.add_argument("--table", action="store_true", help="run nothing, print the table of what is known")
    options = parser.parse_args(arguments)
    found = known(options.results)
    for layer in options.layers if not options.table else ():
        for mutation in MUTATIONS:
            if options.only in mutation.name and (mutation.name, layer) not in found:
                began = time.monotonic()
                answer = found[mutation.name, layer] = finds(layer, mutation)
                with options.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([mutation.name, layer, answer, round(time.monotonic() - began)]) + "\n")
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
