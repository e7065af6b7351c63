"""Stores of rings: SQLite and PostgreSQL behind one interface.

`sql/` holds the statements by noun, `statements` reads them, and numbered `migrations/` define the schema. A `Unit` is
one transaction. `StoredSet` loads books and pages for the rules and writes back what they changed.
"""

from __future__ import annotations

from .address import StoreAddress, parse
from .files import refuse_network_file_system
from .schema import differences, schema_status, upgrade, upgrade_sql
from .sqlite import SqliteStore
from .store import AnyStore, Store
from .version import SchemaStatus


def open_store(uri: str | StoreAddress, busy_timeout: float = 10.0) -> AnyStore:
    """The store at an address. Its schema must be current; nothing is created."""
    address = parse(uri) if isinstance(uri, str) else uri
    if address.driver == "sqlite":
        refuse_network_file_system(address.file)
    schema_status(address).require()
    if address.driver == "sqlite":
        return SqliteStore(address, busy_timeout)
    # The driver takes longer to import than all else: only stores on PostgreSQL do.
    from .postgres import PostgresStore

    return PostgresStore(address, busy_timeout)


__all__ = [
    "SchemaStatus",
    "Store",
    "StoreAddress",
    "differences",
    "open_store",
    "parse",
    "schema_status",
    "upgrade",
    "upgrade_sql",
]
