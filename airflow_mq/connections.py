"""Airflow connections of type `airflow_mq`: the store and the ring that they name.

A connection names a store by its fields, and nothing but a store. Forms are used inside the API server, where a person
with access to connections must be able neither to run code nor to read a secret. So the drivers and the keys of `extra`
are closed sets, and every address is checked (`airflow_mq.engine.store.address`).

    PostgreSQL   host (one or more), port, login, password, schema (the database); extra: db_schema, sslmode, time-outs
    SQLite       extra: path
    both         extra: driver (derived from host or path if left out), ring; origins and priority: the sending permit
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_mq import settings
from airflow_mq.engine.rules.config import DEFAULT_RING
from airflow_mq.engine.rules.errors import AddressRefused
from airflow_mq.engine.store.address import (
    DEFAULT_PORT,
    DEFAULT_SCHEMA,
    NUMBERS,
    PERMITTED,
    StoreAddress,
    sqlite_address,
)
from airflow_mq.provider import DRIVERS, FIELDS

if TYPE_CHECKING:
    from airflow.sdk import Connection


@dataclass(frozen=True)
class Target:
    """The store and the ring that a connection names."""

    address: StoreAddress
    ring: str


def target_of(connection: Connection) -> Target:
    """Return what a connection names, within the configured folder of SQLite stores, or raise `AddressRefused`."""
    extra = _read_extra(connection.extra)
    fields = {
        **{name: getattr(connection, name) for name in ("host", "port", "login", "password", "schema")},
        **{key: extra.get(key) for key in FIELDS},
    }
    # A form sends empty text for a field that is left empty.
    fields = {name: None if value == "" else value for name, value in fields.items()}
    driver, ring = _driver(fields), fields.pop("ring") or DEFAULT_RING
    permitted = {name: fields[name] for name in PERMITTED}
    if driver == "sqlite":
        _refuse_filled(fields, driver, but=("driver", "path", *PERMITTED))
        root = settings.text("sqlite_root")
        return Target(sqlite_address(fields["path"] or "", root=Path(root) if root else None, **permitted), ring)
    _refuse_filled(fields, driver, but=tuple(name for name in fields if name != "path"))
    numbers: dict[str, Any] = {name: _whole(name, fields[name], default) for name, (default, _, _) in NUMBERS.items()}
    address = StoreAddress(
        "postgresql",
        host=fields["host"],
        port=_whole("port", fields["port"], DEFAULT_PORT),
        user=fields["login"],
        password=fields["password"],
        database=fields["schema"],
        schema=fields["db_schema"] or DEFAULT_SCHEMA,
        sslmode=fields["sslmode"],
        **numbers,
        **permitted,
    )
    return Target(address, ring)


def _read_extra(text: str | None) -> dict[str, Any]:
    """Return the keys of `extra`, or raise `AddressRefused` without quoting a value."""
    try:
        extra = json.loads(text or "{}", object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as error:
        if isinstance(error, AddressRefused):
            raise
        raise AddressRefused("the extra of the connection is not JSON") from None
    if not isinstance(extra, dict):
        raise AddressRefused("the extra of the connection is not a JSON object")
    for key, value in extra.items():
        if key not in FIELDS:
            named = repr(key) if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]{0,39}", key) else "a key"
            raise AddressRefused(f"{named} in the extra of the connection is not known; it has {', '.join(FIELDS)}")
        if not (value is None or isinstance(value, str) or (key in NUMBERS and type(value) is int)):
            raise AddressRefused(f"{key} in the extra of the connection is not text")
    return extra


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise AddressRefused("the extra of the connection has a key twice")
    return dict(pairs)


def _driver(fields: dict[str, Any]) -> str:
    if not (fields["driver"] or fields["host"] or fields["path"]):
        raise AddressRefused("the connection names no store: it needs a host (PostgreSQL), or a path in extra (SQLite)")
    driver = fields["driver"] or ("sqlite" if fields["path"] and not fields["host"] else "postgresql")
    if driver not in DRIVERS:
        raise AddressRefused(f"the driver of the connection is not known; it is one of {', '.join(DRIVERS)}")
    return str(driver)


def _refuse_filled(fields: dict[str, Any], driver: str, *, but: tuple[str, ...]) -> None:
    filled = [name for name, value in fields.items() if value is not None and name not in but]
    if filled:
        raise AddressRefused(f"a connection with the driver {driver} has no {', '.join(filled)}; leave that empty")


def _whole(name: str, value: object, default: int) -> int:
    if value is None:
        return default
    if not re.fullmatch(r"[0-9]{1,5}", str(value)):
        raise AddressRefused(f"the {name} of the connection is not a whole number, or too large")
    return int(str(value))
