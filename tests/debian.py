"""Programs of Debian's packages, fetched once into the user's cache. Nothing is installed on the machine.

A package's files are unpacked beside each other, with those of the libraries that the machine lacks. Services that a
package would start are not started, because its scripts do not run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from airflow_mq.spark.java import cache_folder

FOLDERS = ("/usr/local/bin", "/usr/local/sbin", "/usr/bin", "/usr/sbin")


def can_have(name: str) -> bool:
    """Return whether this machine has a program or can fetch it."""
    return _installed(name) is not None or bool(shutil.which("apt-get") and shutil.which("dpkg-deb"))


@cache
def debian_program(name: str, package: str) -> Path:
    """Return a program: an installed one, else that of Debian's package."""
    if installed := _installed(name):
        return Path(installed)
    root = cache_folder() / "debian" / package
    if not root.exists():
        _fetch(package, root)
    found = next((path for place in ("bin", "sbin") if (path := root / "usr" / place / name).exists()), None)
    if found is None:
        raise LookupError(f"the package {package} has no program {name}")
    return found


def libraries(program: Path) -> dict[str, str]:
    """Return the environment with which a fetched program finds its libraries."""
    if not program.is_relative_to(cache_folder()):
        return {}
    folders = sorted({str(path.parent) for path in program.parents[2].glob("usr/lib/**/*.so*")})
    return {"LD_LIBRARY_PATH": os.pathsep.join(folders)} if folders else {}


def _installed(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), *FOLDERS)))


def _fetch(package: str, root: Path) -> None:
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root.parent) as folder:
        archives, unpacked = Path(folder) / "archives", Path(folder) / "unpacked"
        (archives / "partial").mkdir(parents=True)
        download = [
            "apt-get", "install", "--download-only", "--yes", "--quiet", "--no-install-recommends", "--reinstall",
            "-o", f"Dir::Cache::Archives={archives}", "-o", "Debug::NoLocking=true", package,
        ]  # fmt: skip
        # The lists of a new machine are empty; only root may fetch them.
        if _run(*download).returncode and os.geteuid() == 0:
            _run("apt-get", "update", "--quiet")
        done = _run(*download)
        if done.returncode:
            raise RuntimeError(f"cannot fetch the Debian package {package}: install it, or {done.stderr.strip()}")
        for archive in archives.glob("*.deb"):
            subprocess.run(["dpkg-deb", "--extract", str(archive), str(unpacked)], check=True)
        # Another process may have been faster.
        if not root.exists():
            unpacked.rename(root)


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
