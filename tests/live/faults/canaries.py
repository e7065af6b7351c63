"""Canaries: a payload and a password that no log, table of Airflow, command line or page of Spark may hold."""

from __future__ import annotations

import base64
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
from psycopg.sql import SQL, Identifier

PAYLOAD = "canary-payload-5b1e0c"
#: What Spark's UI shows of an application.
PAGES = ("environment/", "jobs/", "stages/", "executors/")
#: Seconds between two readings of the process list.
_SECONDS = 0.5


def forms(canary: str) -> list[bytes]:
    """Return a canary as others may have encoded it."""
    plain = canary.encode()
    # The middle of its Base64 form depends on its place in a longer text.
    encoded = [base64.b64encode(b" " * place + plain)[4:-4] for place in range(3)]
    return [plain, plain.hex().encode(), *encoded]


class Canaries:
    """A search for canaries in all that a stage leaves for others to read."""

    def __init__(self, folder: Path, metadata: str, password: str) -> None:
        self.folder, self.metadata = folder, metadata
        self._forms = {"payload": forms(PAYLOAD), "password": forms(password)}
        self._command_lines: set[bytes] = set()
        self._texts: dict[str, bytes] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def read_pages(self, url: str) -> int:
        """Keep what Spark's UI shows; return the number of pages."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        api = f"{url}/api/v1/applications"
        for page in [api, *(f"{url}/{name}" for name in PAGES)]:
            with opener.open(page, timeout=30) as answer:
                self._texts[page] = answer.read()
        return len(self._texts)

    def found(self) -> list[str]:
        """Return where canaries are, and which."""
        texts = [*self._files(), *self._rows(), *self._texts.items()]
        texts += [("a command line", line) for line in tuple(self._command_lines)]
        return sorted(
            {
                f"{name} in {place}"
                for place, text in texts
                for name, encoded in self._forms.items()
                if any(form in text for form in encoded)
            }
        )

    def _files(self) -> Iterator[tuple[str, bytes]]:
        for path in self.folder.rglob("*"):
            with suppress(OSError):
                if path.is_file():
                    yield str(path.relative_to(self.folder)), path.read_bytes()

    def _rows(self) -> Iterator[tuple[str, bytes]]:
        """Yield each row of Airflow's tables: XComs, rendered templates, records of actions and all others."""
        tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        with psycopg.connect(self.metadata, autocommit=True) as connection:
            for (table,) in connection.execute(tables.encode()).fetchall():
                statement = SQL("SELECT t::text FROM {} AS t").format(Identifier(table))
                for (row,) in connection.execute(statement):
                    yield f"the table {table}", row.encode()

    def _watch(self) -> None:
        """Read the command lines of all processes, as every user of the machine can."""
        while not self._ended.wait(_SECONDS):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    self._command_lines.add(path.read_bytes())
