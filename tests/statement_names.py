"""Names of the statements in the package's files of SQL."""

from __future__ import annotations

from pathlib import Path

import airflow_mq
from airflow_mq.engine.store.statements import texts_in

SQL = sorted((Path(airflow_mq.__file__).parent / "engine" / "store" / "sql").glob("*.sql"))


def names(dialect: str) -> frozenset[str]:
    """Return the names of all statements of a database."""
    keys = [key for path in SQL for key in texts_in(path.read_text("utf-8"))]
    return frozenset(name for kind, name, variant in keys if kind == "name" and variant in ("", dialect))
