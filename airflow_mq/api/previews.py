"""Previews of payloads: bounded, never interpreted beyond text and JSON."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from airflow_mq.core.blob import Reference

from .schemas import Payload

#: Bytes of a payload that a response contains.
SHOWN = 4096
#: Nesting levels of JSON that a response contains; the encoder of responses is recursive.
DEEPEST = 100


def preview(payload: bytes) -> Payload:
    """Return the beginning of a payload in hexadecimal, and as text and JSON if it is valid."""
    if isinstance(payload, Reference):
        return Payload(shown=0, truncated=True, external=payload.hash.hex())
    shown = payload[:SHOWN]
    truncated = len(shown) < len(payload)
    text = _text(shown, truncated)
    value = None if text is None or truncated else _json(text)
    return Payload(shown=len(shown), truncated=truncated, text=text, json_=value, hex=shown.hex())


def _text(data: bytes, truncated: bool) -> str | None:
    """Decode UTF-8; the last character may have been cut in two."""
    for end in range(len(data), max(len(data) - (4 if truncated else 1), -1), -1):
        try:
            return data[:end].decode("utf-8")
        except UnicodeDecodeError:
            continue
    return None


def _json(text: str) -> Any:
    """Return the JSON value of a text if a response can contain the same value, else None."""
    try:
        value = json.loads(text, parse_constant=_reject, parse_float=_finite)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (ValueError, RecursionError):
        return None
    return None if _is_deep(value) else value


def _is_deep(value: Any) -> bool:
    """Return whether a JSON value has more than `DEEPEST` levels."""
    level = [value]
    for _ in range(DEEPEST):
        level = [part for container in level for part in _parts(container)]
    return bool(level)


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _reject(name: str) -> NoReturn:
    raise ValueError(name)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number
