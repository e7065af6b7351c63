"""Repository of the database server and its file: settings, dead rows, open transactions, and the rights of roles."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from .primitives import Repository


class RightRow(NamedTuple):
    """A right of a role on a schema, a table, a view, a column or a function."""

    what: str
    name: str
    column: str
    kind: str
    role: str
    #: The name of the role as SQL takes it.
    quoted: str
    #: Whether it is a right of this user.
    is_own: bool


class Server(Repository):
    """The database server; on SQLite, the file. The statements describe the columns of their rows."""

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

    def transactions(self) -> list[Any]:
        """Return the open transactions of other sessions, and those that are prepared, oldest first."""
        return self.unit.rows("open_transactions")

    def replication_slots(self) -> list[tuple[str, int, bool]]:
        """Return the slots that keep old rows, how many transactions they are behind, and whether they are read."""
        return self.unit.rows("replication_slots")

    def rights(self, schema: str) -> list[RightRow]:
        """Return the rights of other roles than the owner on a schema, and on what it holds."""
        return [RightRow(*row) for row in self.unit.rows("rights", schema=schema)]

    def senders(self, schema: str) -> list[tuple[int, str | None, list[str] | None]]:
        """Return number, name and groups of the roles with a grant to send; none if this role may not read them."""
        may_read = self.unit.rows("may_read", table="sender")[0][0]
        return self.unit.rows("sender_roles", schema=schema) if may_read else []
