"""JSON of every value that a command returns: one serialiser for all commands."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any

from ..engine.rules.blob import Reference
from ..engine.rules.budget import Rate
from ..engine.rules.config import BLOCK_PARTS
from ..engine.rules.message import Address
from ..engine.rules.weight import PER, LinearWeigher, Weight


def to_json(value: object) -> str:
    """Return a value as JSON in one line."""
    return json.dumps(plain(value), separators=(",", ":")).replace("\x7f", "\\u007f")


def plain(value: object) -> Any:
    """Return a value in JSON's terms; of a dataclass, the fields that its `repr` shows."""
    if isinstance(value, Weight):
        return {"time": value.time, "size": value.size}
    if isinstance(value, (Address, Rate)):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if is_dataclass(value):
        return plain(record(value))
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def record(value: Any, *properties: str, **more: object) -> dict[str, object]:
    """Return the fields of a dataclass with some of its properties, and further values.

    :param more: values to add, or to put in the place of a field's.
    """
    names = [one.name for one in fields(value) if one.repr]
    return {**{name: getattr(value, name) for name in (*names, *properties)}, **more}


def picked(value: object, names: str, **more: object) -> dict[str, object]:
    """Return some attributes of a value, named in one text, and further values."""
    return {**{name: getattr(value, name) for name in names.split()}, **more}


def address_fields(address: Address) -> dict[str, object]:
    """Return an address and its parts."""
    return {"address": address, **picked(address, "origin page index priority")}


def payload_fields(payload: bytes) -> dict[str, str]:
    """Return a payload as text, or in base64; `enqueue --ndjson` reads both.

    An external payload is represented by its hash, which `payload get` takes.
    """
    if isinstance(payload, Reference):
        return {"external": payload.hash.hex()}
    try:
        return {"payload": payload.decode("utf-8")}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode()}


def changes_of(changed: Mapping[str, tuple[object, object]]) -> dict[str, object]:
    """Return changed settings with their old and new values."""
    return {name: {"was": was, "is": now} for name, (was, now) in changed.items()}


def in_words(changed: Mapping[str, tuple[object, object]]) -> str:
    """Return changed settings as a sentence."""
    if not changed:
        return "nothing changed"
    return ", ".join(f"{name} {_value(was)} → {_value(now)}" for name, (was, now) in changed.items())


def _value(value: object) -> str:
    if value is None:
        return "unset"
    return str(value) if isinstance(value, (str, Weight, Rate)) else json.dumps(plain(value))


def as_percent(parts: int) -> str:
    """Return a deficit, which is counted in parts of a block, as a percentage."""
    return f"{100 * parts / BLOCK_PARTS:.2f}%"


def formula(weigher: LinearWeigher) -> str:
    """Return a weigher as a formula."""
    base, per_byte = weigher.base, weigher.per_byte
    return f"{base} + {per_byte.time / PER:g} ms · {per_byte.size / PER:g} B per byte"
