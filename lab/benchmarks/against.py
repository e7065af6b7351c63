"""Cost of a change for callers who do not use it: the plain path against the package of another commit.

    python -m lab.benchmarks.against COMMIT            every step, over ten turns
    python -m lab.benchmarks.against COMMIT --turns 3

Each turn runs both in processes of their own, one after the other, in turns first and second, on an embedded store
in memory where the machine has such a folder. The result is the median CPU time of the turns, as a ratio. Ends with 1 where
a step takes more than a tenth longer.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
DRIVER = ROOT / "lab" / "benchmarks" / "drivers" / "plain.py"
MEMORY = Path("/dev/shm")
#: By how much a step may take longer.
BOUND = 1.10
ROUNDS = 5


def package(commit: str, folder: Path) -> Path:
    """The package as it was, in a folder of its own."""
    packed = subprocess.run(["git", "archive", commit, "airflow_mq"], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def taken(tree: Path) -> dict[str, float]:
    """CPU seconds of each step with the package of this tree."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        told = subprocess.run(
            [sys.executable, str(DRIVER), f"sqlite:///{folder}/queue.db", str(ROUNDS)],
            env={**os.environ, "PYTHONPATH": str(tree)}, check=True, capture_output=True, text=True,
        )  # fmt: skip
    found: dict[str, float] = json.loads(told.stdout)
    return found


def compare(commit: str, turns: int) -> dict[str, tuple[float, float]]:
    """Of each step, the median seconds before and now."""
    with tempfile.TemporaryDirectory() as folder:
        trees = {"before": package(commit, Path(folder)), "now": ROOT}
        found: dict[str, list[dict[str, float]]] = {"before": [], "now": []}
        for turn in range(turns):
            for which in sorted(trees, reverse=bool(turn % 2)):
                found[which].append(taken(trees[which]))
    steps = found["now"][0]
    return {
        step: (median(one[step] for one in found["before"]), median(one[step] for one in found["now"]))
        for step in steps
    }  # fmt: skip


def main() -> int:
    """Measure, and report the steps that take longer than permitted."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.benchmarks.against", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("commit", help="what to compare with: any name that git knows")
    parser.add_argument("--turns", type=int, default=10, help="how often to run each (default: 10)")
    options = parser.parse_args()
    slower = False
    print(f"{'step':10} {'before':>10} {'now':>10}  ratio")
    for step, (before, now) in compare(options.commit, options.turns).items():
        slower |= now > before * BOUND
        print(f"{step:10} {before * 1e3:7.2f} ms {now * 1e3:7.2f} ms  {now / before:.2f}")
    return int(slower)


if __name__ == "__main__":
    sys.exit(main())
