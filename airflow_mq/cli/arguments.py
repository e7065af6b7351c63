"""Arguments that several commands share, and readers of their values."""

from __future__ import annotations

import json
import re
from argparse import SUPPRESS, ArgumentTypeError, BooleanOptionalAction
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timedelta

from ..engine.rules.errors import InvalidInput
from ..engine.rules.message import Address
from ..engine.rules.nearest import suggestion
from ..engine.rules.priority import PRIORITIES, REGULAR
from ..engine.rules.units import check_seconds
from ..engine.rules.weight import Weight
from .command import Option, UsageError, option

_DURATION = r"[0-9][0-9.,_]*[a-z]*"


def weight(text: str) -> Weight:
    """Read `TIME/SIZE`: `20m/4GiB`, or in milliseconds and bytes, as `600000/1073741824`."""
    try:
        return Weight.of(text)
    except InvalidInput as error:
        raise ArgumentTypeError(str(error)) from None


def when(text: str) -> datetime | timedelta:
    """Read a time from now (`90`, `90s`, `15m`, `2h`, `1d`), or a time with its zone."""
    if re.fullmatch(_DURATION, text):
        return age(text)
    try:
        moment = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text))
    except ValueError:
        raise ArgumentTypeError(
            f"invalid time {text[:80]!r}: expected 90s, 15m, 2h, 1d (from now) or 2026-12-24T18:00:00Z"
        ) from None
    if moment.tzinfo is None:
        own = text if len(text) > 10 else f"{moment:%Y-%m-%dT%H:%M:%S}"
        raise ArgumentTypeError(f"{text[:80]!r} needs a time zone; write {own[:80]}Z for UTC")
    return moment


def day(text: str) -> date:
    """Read a day of UTC, or the first one of a month: `2026-11-28`, `2026-11`."""
    try:
        return date.fromisoformat(text if len(text) > 7 else f"{text}-01")
    except ValueError:
        raise ArgumentTypeError(
            f"invalid day {text[:80]!r}: expected 2026-11-28, or 2026-11 for its first day"
        ) from None


def age(text: str) -> timedelta:
    """Read a length of time: `90`, `90s`, `15m`, `1.5h`, `1d`."""
    return timedelta(seconds=duration(text))


def duration(text: str) -> float:
    """Read a length of time in seconds: `90`, `90s`, `15m`, `1.5h`, `1d`."""
    try:
        return check_seconds(text, "duration", bare=True)
    except InvalidInput as error:
        raise ArgumentTypeError(str(error)) from None


def message(text: str) -> Address | bytes:
    """Read `ORIGIN:PAGE:INDEX`, or the id of a message in hexadecimal."""
    return address(text) if ":" in text else hexadecimal(text)


def words(value: str) -> str:
    """Read text that can be stored; the text of a shell need not be UTF-8."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ArgumentTypeError("this text is not valid UTF-8") from None
    return value


def header(text: str) -> tuple[str, str]:
    """Read `name=value`."""
    name, equals, value = words(text).partition("=")
    if not (name and equals):
        raise ArgumentTypeError(f"invalid header {text[:80]!r}: expected name=value")
    return name, value


def setting(text: str) -> tuple[str, object]:
    """Read `name=value` with a value in JSON; other values are text, except `none`."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ArgumentTypeError(
            f"invalid setting {text[:80]!r}: expected name=value, for example order=rotation or "
            "service_weight=[1000,5000]"
        )
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, None if value == "none" else value


def name_in(*names: str) -> Callable[[str], str]:
    """Return a reader of the name of a setting, as its option spells it, or as Python does."""

    def read(text: str) -> str:
        name = text.replace("-", "_")
        if name not in names:
            raise ArgumentTypeError(f"unknown setting {text[:80]!r}: {suggestion(name, names)}")
        return name

    return read


def json_object(path: str) -> dict[str, object]:
    """Return the JSON object in a file of settings."""
    try:
        with open(path, encoding="utf-8") as file:
            settings = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"the settings in {path!r} cannot be read: {error}") from None
    if not isinstance(settings, dict):
        raise UsageError(f"invalid settings in {path!r}: expected a JSON object")
    return settings


def address(text: str) -> Address:
    """Read `ORIGIN:PAGE:INDEX`."""
    try:
        return Address.parse(words(text))
    except InvalidInput as error:
        raise ArgumentTypeError(str(error)) from None


def hexadecimal(text: str) -> bytes:
    """Read an id, a hash or a seed in hexadecimal."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise ArgumentTypeError(f"invalid id, hash or seed {text[:80]!r}: expected hexadecimal digits") from None


def count(text: str) -> int:
    """Read a whole number, zero or more."""
    if not re.fullmatch("[0-9]{1,18}", text):
        raise ArgumentTypeError(f"invalid number {text[:80]!r}: expected a whole number, 0 or more")
    return int(text)


def positive(text: str) -> int:
    """Read a whole number, one or more."""
    found = count(text)
    if not found:
        raise ArgumentTypeError(f"invalid number {text[:80]!r}: expected at least 1")
    return found


COMMON = (
    option(
        "--store URI",
        "the store: sqlite:///path or postgresql://user:password@host/database (default: AIRFLOW_MQ_STORE, "
        "which keeps a password out of the list of processes)",
        default=SUPPRESS,
    ),
    option("--conn-id ID", "take the store from this Airflow connection", default=SUPPRESS),
    option("--ring RING", "the ring of the store (default: default)", words, default=SUPPRESS),
    option("--json", "print JSON; commands that stream print one per line", default=SUPPRESS),
    option("-q --quiet", "print results and errors only", default=SUPPRESS),
)


#: The same as each command has them; its help does not repeat them.
HIDDEN = [replace(one, settings={**one.settings, "help": SUPPRESS}) for one in COMMON]
ORIGIN = option("origin ORIGIN", "the origin, which names the queue")
#: Of which messages, of what is enqueued, and of what is listed.
PRIORITY = option("--priority", "the messages' priority (default: regular)", choices=PRIORITIES, default=REGULAR)
ENQUEUED_PRIORITY = option(
    "--priority", "high is serviced first (default: regular)", choices=PRIORITIES, default=REGULAR
)
ORDERED = option(
    "--ordered",
    "process an origin's messages one after the other; --no-ordered: in parallel",
    action=BooleanOptionalAction,
    default=None,
)
WEIGHT = option("--weight TIME/SIZE", "weight of each message, for example 20m/4GiB", weight)
ADDRESSES = option("address ADDRESS", "ORIGIN:PAGE:INDEX", address, nargs="*")
PROCESSOR = option(
    "--processor MODULE:FUNCTION",
    "the function to call for each message, for example orders:process; found as Python finds modules, and in "
    "the current folder",
    required=True,
)
TRACEBACK = option(
    "--traceback", "print the traceback and text of exceptions that a processor raises; the text may quote the message"
)


def limit(default: int | None, what: str = "") -> Option:
    """Return the option for the largest number of results."""
    shown = "all" if default is None else default
    return option("--limit N", f"at most N{what and f' {what}'} (default: {shown})", positive, default=default)


def why(required: bool = False) -> Option:
    """Return the option for the reason of a decision."""
    more = {"required": True} if required else {"default": ""}
    return option("--why TEXT", "the reason, which the event records", words, **more)


BLOCK_LIMIT = option(
    "--service-weight TIME/SIZE",
    "the limit of a block (default: that of the DAG or program that services the queues, else the ring's)",
    weight,
)
EVERY = option(
    "--every TIME",
    "the time between two blocks, for example 10m (default: the usual one of the DAG or program that services them)",
    duration,
)
BLOCK_SEED = option("--seed HEX", "the seed of the blocks, in a ring that shuffles", hexadecimal)
