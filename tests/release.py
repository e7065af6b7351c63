"""`make dist`: build the archive and the wheel into dist/, and check them before anybody publishes them.

    python -m tests.release TOOLS [--tag v0.4.0] [--airflow]

TOOLS is the folder of the programs pyproject-build, twine and check-wheel-contents. Any failed check fails the command.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from airflow_mq import __version__
from tests.matrix import clean_environment, find_uv

ROOT = Path(__file__).parents[1]
#: What a wheel may contain beside the package.
METADATA = re.compile(r"airflow_mq-[^/]+\.dist-info/(METADATA|WHEEL|RECORD|entry_points\.txt|licenses/LICENSE)")
#: What a wheel must not contain: sources of the page, and anything that only a checkout needs.
FOREIGN = re.compile(r"^airflow_mq/page/(?!dist/|__init__)|node_modules|__pycache__|\.(db|log|ipynb)$")


class Unfit(Exception):
    """The result is not fit to be published; the text gives the reason."""


def run(*words: str | Path, cwd: Path = ROOT, **variables: str) -> str:
    """Run a program and return what it printed. Raises `Unfit` if it fails."""
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=clean_environment() | variables, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        raise Unfit(f"{Path(words[0]).name} ended with {done.returncode}\n{done.stdout[-3000:]}")
    return done.stdout


def tracked(folder: Path) -> None:
    """Copy the files of the repository, without what is not committed, into a folder."""
    for name in run("git", "ls-files").splitlines():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)


@dataclass
class Release:
    """One build of the package, and what it is checked with."""

    tools: Path
    work: Path
    tag: str | None = None
    built: dict[str, bytes] = field(default_factory=dict)

    @property
    def wheel(self) -> Path:
        (found,) = (ROOT / "dist").glob("*.whl")
        return found

    def build(self, name: str, **variables: str) -> dict[str, bytes]:
        """Build from a copy of the committed files; return the bytes of each result by name."""
        tree, out = self.work / name, self.work / f"{name}-dist"
        tracked(tree)
        run(self.tools / "pyproject-build", "--installer", "uv", "--outdir", out, tree, **variables)
        return {path.name: path.read_bytes() for path in sorted(out.iterdir())}

    def is_reproducible(self) -> str:
        """Two builds in other folders, time zones and with other rights of new files give the same bytes."""
        first = self.build("one", TZ="UTC")
        before = os.umask(0o077)
        try:
            second = self.build("two", TZ="Pacific/Kiritimati")
        finally:
            os.umask(before)
        if first != second:
            raise Unfit(f"two builds differ: {', '.join(name for name in first if first[name] != second.get(name))}")
        shutil.rmtree(ROOT / "dist", ignore_errors=True)
        (ROOT / "dist").mkdir()
        for name, content in first.items():
            (ROOT / "dist" / name).write_bytes(content)
        return ", ".join(f"{name} {sha256(content).hexdigest()[:16]}" for name, content in first.items())

    def has_the_version(self) -> str:
        """File names, package, changelog and tag name one version."""
        changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
        names = [path.name for path in (ROOT / "dist").iterdir()]
        if not all(name.startswith(f"airflow_mq-{__version__}") for name in names):
            raise Unfit(f"the package is {__version__}, the files are {', '.join(names)}")
        if self.tag is None:
            return __version__
        if self.tag != f"v{__version__}":
            raise Unfit(f"the tag is {self.tag}, the package is {__version__}")
        if not re.search(rf"^## \[{re.escape(__version__)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE):
            raise Unfit(f"CHANGELOG.md has no section for {__version__} with a date")
        if "\n[project.urls]\n" not in (ROOT / "pyproject.toml").read_text("utf-8"):
            raise Unfit("pyproject.toml has no [project.urls]; see .github/RELEASING.md")
        return f"{__version__}, with its section in the changelog"

    def describes_itself(self) -> str:
        """The index can show the description, and the wheel is laid out well."""
        run(self.tools / "twine", "check", "--strict", *sorted((ROOT / "dist").iterdir()))
        return run(self.tools / "check-wheel-contents", self.wheel).strip().rpartition(": ")[2]

    def has_its_files_only(self) -> str:
        """The wheel has the package and its metadata, all SQL and the built page, and nothing else."""
        names = set(zipfile.ZipFile(self.wheel).namelist())
        beside = [name for name in names if not name.startswith("airflow_mq/") and not METADATA.fullmatch(name)]
        foreign = [name for name in names if FOREIGN.search(name)]
        kept = {".py", ".sql", ".typed"}
        wanted = [
            path for path in run("git", "ls-files", "airflow_mq").splitlines()
            if Path(path).suffix in kept or path.startswith("airflow_mq/page/dist/")
        ]  # fmt: skip
        missing = [path for path in wanted if path not in names]
        if beside or foreign or missing:
            raise Unfit(f"beside the package: {beside}; foreign: {foreign}; missing: {missing}")
        return f"{len(names)} files, {self.wheel.stat().st_size / 1e6:.1f} MB"

    def works_alone(self) -> str:
        """In an environment with nothing else, the wheel sends, services and checks messages."""
        with environment(self.work / "alone", str(self.wheel)) as (begun, programs):
            said = run("sh", ROOT / "tests" / "tour.sh", PATH=f"{programs}{os.pathsep}{os.environ['PATH']}")
            if "all is well in ring default" not in said:
                raise Unfit(f"the tour did not end well\n{said[-3000:]}")
            return f"from nothing to the last message in {time.monotonic() - begun:.0f} s"

    def is_a_provider(self) -> str:
        """Airflow lists the provider and its commands."""
        with environment(self.work / "airflow", f"{self.wheel}[airflow]") as (_, programs):
            home = {"AIRFLOW_HOME": str(self.work / "home"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
            listed = run(programs / "airflow", "providers", "list", "--output", "plain", **home)
            line = next((line for line in listed.splitlines() if line.startswith("airflow-mq ")), "")
            if __version__ not in line:
                raise Unfit(f"airflow providers list does not name airflow-mq {__version__}\n{listed[-3000:]}")
            run(programs / "airflow", "mq", "--help", **home)
            return " ".join(line.split())


@contextmanager
def environment(folder: Path, wanted: str) -> Iterator[tuple[float, Path]]:
    """Make an environment of its own with a package; yield when that began, and the folder of its programs."""
    uv, begun = find_uv(), time.monotonic()
    run(uv, "venv", "--quiet", "--python", sys.executable, folder)
    run(uv, "pip", "install", "--quiet", "--python", folder / "bin" / "python", "-c", ROOT / "constraints.txt", wanted)
    try:
        yield begun, folder / "bin"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("tools", type=Path, help="folder of pyproject-build, twine and check-wheel-contents")
    parser.add_argument("--tag", help="the tag to be published, such as v0.4.0")
    parser.add_argument("--airflow", action="store_true", help="check the wheel in an Airflow, too (some minutes)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="airflow-mq-release-") as work:
        release = Release(options.tools.absolute(), Path(work), options.tag)
        checks: dict[str, Callable[[], str]] = {
            "reproducible": release.is_reproducible,
            "version": release.has_the_version,
            "metadata": release.describes_itself,
            "contents": release.has_its_files_only,
            "alone": release.works_alone,
        }
        if options.airflow:
            checks["provider"] = release.is_a_provider
        for name, check in checks.items():
            try:
                print(f"{name:14}ok      {check()}", flush=True)
            except Unfit as error:
                print(f"{name:14}failed  {error}", flush=True)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
