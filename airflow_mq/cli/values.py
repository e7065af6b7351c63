"""Reading what people write on a command line."""

from __future__ import annotations

import json
import re
from argparse import ArgumentTypeError
from datetime import datetime, timedelta
from typing import Any

from ..core.errors import InvalidInput
from ..core.message import Address
from ..core.weight import Weight

_CENTURY = 100 * 366 * 86400
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def weight(text: str) -> Weight:
    """`TIME/SIZE`, also as weights are printed: `600,000/1,073,741,824`."""
    parts = [part.strip().replace(",", "").replace("_", "") for part in text.split("/")]
    if len(parts) != 2 or not all(re.fullmatch("[0-9]{1,20}", part) for part in parts):
        raise ArgumentTypeError(f"a weight reads TIME/SIZE, say 600000/1073741824, not {text!r}")
    try:
        return Weight.of([int(part) for part in parts])
    except InvalidInput as error:
        raise ArgumentTypeError(str(error)) from None


def when(text: str) -> datetime | timedelta:
    """So long from now (`90`, `90s`, `15m`, `2h`, `1d`), or a time with its zone."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([smhd]?)", text)
    if found:
        seconds = float(found[1]) * _UNITS[found[2]]
        if seconds > _CENTURY:
            raise ArgumentTypeError(f"{text} from now is more than a century")
        return timedelta(seconds=seconds)
    try:
        moment = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text))
    except ValueError:
        raise ArgumentTypeError(
            f"a time reads 90s, 15m, 2h, 1d (from now) or 2026-12-24T18:00:00Z, not {text!r}"
        ) from None
    if moment.tzinfo is None:
        raise ArgumentTypeError(f"{text!r} needs a time zone; write {text}Z for UTC")
    return moment


def age(text: str) -> timedelta:
    """So long: `90`, `90s`, `15m`, `2h`, `1d`."""
    found = when(text) if re.fullmatch(r"[0-9.]+[smhd]?", text) else None
    if not isinstance(found, timedelta):
        raise ArgumentTypeError(f"an age reads 90s, 15m, 2h or 1d, not {text!r}")
    return found


def message(text: str) -> Address | bytes:
    """`ORIGIN:PAGE:INDEX`, or the id of a message in hexadecimal."""
    return address(text) if ":" in text else message_id(text)


def words(value: str) -> str:
    """Text that can be stored: what a shell hands over need not be."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ArgumentTypeError("this text is not valid UTF-8") from None
    return value


def header(text: str) -> tuple[str, str]:
    """`name=value`."""
    name, equals, value = words(text).partition("=")
    if not (name and equals):
        raise ArgumentTypeError(f"a header reads name=value, not {text!r}")
    return name, value


def setting(text: str) -> tuple[str, Any]:
    """`name=value` with a value in JSON; what is no JSON is text, but for `none`."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ArgumentTypeError(
            f"a setting reads name=value, say order=rotation or service_weight=[1000,5000], not {text!r}"
        )
    try:
        return name, json.loads(value)
    except ValueError:
        return name, None if value == "none" else value


def seed(text: str) -> bytes:
    """A seed in hexadecimal."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise ArgumentTypeError(f"a seed is written in hexadecimal, not {text!r}") from None


def address(text: str) -> Address:
    """`ORIGIN:PAGE:INDEX`."""
    try:
        return Address.parse(words(text))
    except InvalidInput as error:
        raise ArgumentTypeError(str(error)) from None


def message_id(text: str) -> bytes:
    """The name of a message, in hexadecimal."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise ArgumentTypeError(f"ids and hashes are written in hexadecimal, not {text!r}") from None


def count(text: str) -> int:
    """A whole number, zero or more."""
    if not re.fullmatch("[0-9]{1,18}", text):
        raise ArgumentTypeError(f"a whole number, 0 or more, not {text!r}")
    return int(text)


def positive(text: str) -> int:
    """A whole number, one or more."""
    found = count(text)
    if not found:
        raise ArgumentTypeError("at least 1")
    return found
