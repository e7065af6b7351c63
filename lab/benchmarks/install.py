"""Getting the peers: each from its own registry, by its ordinary client, into a folder outside the repository.

What was installed is kept for the next run, in `$MQ_BENCH_CACHE` or the user's cache folder, and
made again when the list of what is wanted changes.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DRIVERS = Path(__file__).resolve().parent / "drivers"
NODE_LEAST = (22, 18)


class Unavailable(Exception):
    """A peer that could not be had on this machine, and why."""


def cache() -> Path:
    if named := os.environ.get("MQ_BENCH_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "airflow-mq-benchmarks"


def python_driver(name: str) -> list[str]:
    """The command that runs a Python driver of a peer, in an environment of the peers' own."""
    home = _made("python", [DRIVERS / "requirements.txt"], _make_python)
    return [str(home / "bin" / "python"), "-m", f"lab.benchmarks.drivers.{name}"]


def own_driver(name: str) -> list[str]:
    """The command that runs a driver with what this program runs with."""
    return [sys.executable, "-m", f"lab.benchmarks.drivers.{name}"]


def node_driver(name: str) -> list[str]:
    home = _made("node", [DRIVERS / "node" / "package.json"], _make_node)
    for file in (DRIVERS / "node").glob("*.mjs"):
        shutil.copy(file, home)
    return [_node(home), "--expose-gc", str(home / f"{name}.mjs")]


def go_driver(name: str) -> list[str]:
    home = _made(name, sorted((DRIVERS / name).iterdir()), _make_go)
    return [str(home / "driver")]


def _made(name: str, wanted: list[Path], make: Callable[[Path, Path], None]) -> Path:
    """The folder of this name in the cache, made anew unless it was made from the same files."""
    home = cache() / name
    stamp = home / ".made-from"
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in wanted)).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return home
    print(f"  getting {name} ...", flush=True)
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    make(wanted[0].parent, home)
    stamp.write_text(digest)
    return home


def _run(*command: str | Path, cwd: Path) -> str:
    if shutil.which(str(command[0])) is None:
        raise Unavailable(f"{command[0]} is not installed")
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()[-8:]
        raise Unavailable(f"{Path(command[0]).name} {command[1]} failed: " + " | ".join(said))
    return done.stdout


def _make_python(source: Path, home: Path) -> None:
    _run(sys.executable, "-m", "venv", home, cwd=source)
    _run(home / "bin" / "python", "-m", "pip", "install", "--quiet", "-r", source / "requirements.txt", cwd=source)


def _make_node(source: Path, home: Path) -> None:
    shutil.copy(source / "package.json", home)
    _run("npm", "install", "--no-audit", "--no-fund", "--no-package-lock", cwd=home)


def _make_go(source: Path, home: Path) -> None:
    _run("go", "build", "-o", home / "driver", ".", cwd=source)


def _node(home: Path) -> str:
    """A Node that the peers can run on: the one that came with them, or the machine's if new enough."""
    for node in (str(home / "node_modules" / ".bin" / "node"), shutil.which("node")):
        if node and Path(node).exists():
            said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
            found = re.match(r"v(\d+)\.(\d+)", said)
            if found and tuple(map(int, found.groups())) >= NODE_LEAST:
                return node
    raise Unavailable(f"no Node {'.'.join(map(str, NODE_LEAST))} or newer")
