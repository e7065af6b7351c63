"""Version of a store's schema, compared with the one that this package requires."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ..rules.errors import SchemaMissing, SchemaTooNew, SchemaTooOld
from .files import missing_store
from .statements import migrations


@dataclass(frozen=True)
class SchemaStatus:
    """Schema version of a store, and the version that this client expects."""

    version: int | None
    expected: int
    #: What is missing, if that is the file of the store rather than its tables.
    lacks: str | None = None
    #: Name of the first migration that made the tables, if it was read.
    first: str | None = None

    @property
    def state(self) -> str:
        """`current`, `missing`, `older`, `newer` or `unreleased`."""
        if self.version is None:
            return "missing"
        # Each released store has the first migration.
        if self.first not in (None, migrations("sqlite")[0][1]):
            return "unreleased"
        if self.version == self.expected:
            return "current"
        return "older" if self.version < self.expected else "newer"

    def require(self) -> None:
        """Raise the error for the state of the schema, unless it is current."""
        facts = f"the store has schema version {self.version}, this client expects {self.expected}"
        if self.lacks:
            raise missing_store(self.lacks)
        if self.state == "missing":
            raise SchemaMissing()
        if self.state == "unreleased":
            raise SchemaTooOld(
                f"an unreleased airflow-mq made this store (schema version {self.version}), and no release reads it; "
                "drain it with that version, and start a new store"
            )
        if self.state == "older":
            raise SchemaTooOld(f"{facts}; run `airflow-mq store upgrade`")
        if self.state == "newer":
            raise SchemaTooNew(f"{facts}; upgrade airflow-mq here")


@cache
def expected_version() -> int:
    """Return the schema version that this package requires."""
    return migrations("sqlite")[-1][0]


def require_version(version: int | None) -> None:
    """Raise the error for a store of another version: it was upgraded, or restored, while it was open."""
    if version != expected_version():
        SchemaStatus(version, expected_version()).require()
