"""Repository of the database server and its file: settings, dead rows, open transactions, and the rights of roles."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from .primitives import Repository


class OpenTransaction(NamedTuple):
    """A session of the server with an open transaction, and for how many seconds it has been open and idle."""

    pid: int
    user: str
    program: str
    database: str
    state: str
    opened: float
    idle: float


class Right(NamedTuple):
    """A privilege of a role on a table, or on one of its columns; the role's name is quoted."""

    table: str
    column: str
    kind: str
    role: str


class SenderRole(NamedTuple):
    """A role with a grant to send, and the roles with rights on tables that it is a member of."""

    number: int
    #: None if the role was dropped.
    role: str | None
    groups: list[str] | None


class Server(Repository):
    """The database server; on SQLite, the file."""

    __slots__ = ()

    def file(self) -> tuple[str, int, int, int]:
        """Return the journal mode of a file, its pages, the empty ones of them, and the bytes of a page."""
        mode, pages, empty, size = self.unit.rows("file")[0]
        return mode, pages, empty, size

    def settings(self, names: Collection[str]) -> dict[str, str]:
        """Return the values of some settings that other sessions get."""
        return dict(self.unit.rows("server_settings", names=[*names]))

    def dead_rows(self, schema: str) -> list[tuple[str, int, int, int | None]]:
        """Return the live and dead rows of each table, and when it was vacuumed; most dead rows first."""
        return self.unit.rows("dead_rows", schema=schema)

    def open_transactions(self) -> list[OpenTransaction]:
        """Return the open transactions of other sessions, oldest first."""
        return [OpenTransaction(*row) for row in self.unit.rows("open_transactions")]

    def prepared_transactions(self) -> list[tuple[str, float]]:
        """Return the prepared transactions, and for how many seconds each has been."""
        return self.unit.rows("prepared_transactions")

    def replication_slots(self) -> list[tuple[str, int, bool]]:
        """Return the slots that keep old rows, how many transactions they are behind, and whether they are read."""
        return self.unit.rows("replication_slots")

    def rights_to_run_code(self, schema: str, deciding: Collection[str]) -> list[tuple[str, str, str, str]]:
        """Return the kinds, table, role and quoted role of rights to run code as others, or to write these tables."""
        return self.unit.rows("rights_to_run_code", schema=schema, deciding=[*deciding])

    def rights_on_tables(self, schema: str) -> list[Right]:
        """Return the rights of other roles on tables and their columns."""
        return [Right(*row) for row in self.unit.rows("rights_on_tables", schema=schema)]

    def public_functions(self, schema: str) -> list[str]:
        """Return the functions that PUBLIC may execute."""
        return [name for (name,) in self.unit.rows("public_functions", schema=schema)]

    def sender_roles(self, schema: str) -> list[SenderRole]:
        """Return the roles with a grant to send; none if this role may not read the grants."""
        if not self.unit.rows("may_read", table="sender")[0][0]:
            return []
        return [SenderRole(*row) for row in self.unit.rows("sender_roles", schema=schema)]
