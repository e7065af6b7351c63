"""Write the dumps of schema versions: `python -m tests.store.versions [VERSION …]`.

The code of an earlier version comes from the history of this repository, so this needs a full clone. The newest version
is written by the package as it is. Run it for the newest version after a change to its migration.
"""

from __future__ import annotations

import io
import json
import os
import re
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from tests.postgres_server import Server, find_bindirs, running_postgres

from . import FACTS, FOLDER, NEWEST, SENDERS

#: The last working commit of each earlier version. Version 2 never was the newest one: migration 3 came before it.
COMMITS = {
    1: "6adf9dd",
    3: "b9d5708",
    4: "57e7b2d",
    5: "704b63f",
    6: "298f23f",
    7: "03f67c3",
    8: "5f02a94",
    9: "2c79730",
    10: "15734dd",
    11: "71da710",
    12: "25221f9",
    13: "23441cb",
}
ROOT = Path(__file__).parents[3]
#: Headings that pg_dump writes, and commands that only psql knows.
_NOISE = re.compile(r"^--\n-- .*\n--\n|^\\(?:un)?restrict .*\n", re.MULTILINE)


def unpack(version: int, folder: Path) -> Path:
    """Return the folder with the package of a version."""
    if version == NEWEST:
        return ROOT
    archive = subprocess.run(
        ["git", "archive", COMMITS[version], "airflow_mq"], cwd=ROOT, check=True, capture_output=True
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")
    return folder


def write(package: Path, address: str, dump: Callable[[], str], path: Path) -> None:
    """Fill a store with the code of a package, and dump it."""
    writer = subprocess.Popen(
        [sys.executable, "-P", str(FOLDER / "writer.py"), address],
        env={**os.environ, "PYTHONPATH": str(package)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdin is not None and writer.stdout is not None
    facts = writer.stdout.readline()
    text = dump()
    senders, _ = writer.communicate("\n")
    if writer.returncode:
        raise SystemExit(f"the writer of {path.name} failed")
    path.parent.mkdir(exist_ok=True)
    # A trigger shows its statement again.
    unique = {
        name: [text for number, text in enumerate(texts) if text not in texts[max(number - 1, 0) : number]]
        for name, texts in json.loads(senders).items()
    }
    path.write_text(f"{FACTS}{facts}{SENDERS}{json.dumps(unique)}\n{text}")
    print(path.relative_to(ROOT), len(text))


def dump_sqlite(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return "\n".join(connection.iterdump()) + "\n"


def dump_postgres(server: Server, uri: str) -> str:
    dumped = server.run("pg_dump", "--inserts", "--no-owner", "--no-privileges", "--schema=airflow_mq", uri)
    return re.sub(r"\n{3,}", "\n\n", _NOISE.sub("", dumped.stdout))


def main(versions: list[int]) -> None:
    # The oldest server's dumps are read by all servers.
    label = "system" if "system" in find_bindirs() else "embedded"
    with running_postgres(label) as server:
        for version in versions:
            with tempfile.TemporaryDirectory() as folder, server.database() as uri:
                package, path = unpack(version, Path(folder)), Path(folder) / "store.db"
                write(package, f"sqlite:///{path}", lambda p=path: dump_sqlite(p), FOLDER / "sqlite" / f"{version}.sql")
                write(package, uri, lambda u=uri: dump_postgres(server, u), FOLDER / "postgres" / f"{version}.sql")


if __name__ == "__main__":
    main([int(version) for version in sys.argv[1:]] or [*COMMITS, NEWEST])
