"""Upgraded stores that tests copy, so that each process runs the migrations once for each kind of database."""

from __future__ import annotations

from pathlib import Path

from airflow_mq.engine.store import parse, upgrade
from tests.postgres_server import Server


class Templates:
    """One upgraded store for each kind of database, made at the first request."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "store.db"
        self._databases: dict[Server, str] = {}

    def sqlite(self) -> Path:
        """Return the file of an upgraded store."""
        if not self._path.exists():
            upgrade(parse(f"sqlite:///{self._path}"))
        return self._path

    def postgres(self, server: Server) -> str:
        """Return the name of a database with an upgraded store, for `CREATE DATABASE … TEMPLATE`."""
        if server not in self._databases:
            uri = server.create_database()
            upgrade(parse(uri))
            self._databases[server] = uri.rpartition("/")[2]
        return self._databases[server]
