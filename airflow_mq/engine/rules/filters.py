"""Filters of set-aside messages. Commands, operators and the API read the names and words of the filters here."""

from __future__ import annotations

from typing import Annotated, Protocol, TypedDict, cast, get_type_hints

from .errors import InvalidInput
from .judging import ATTEMPTS, REASONS
from .message import check_number, check_origin, check_text
from .units import check_seconds


class Span(Protocol):
    """A time span, such as a `timedelta`."""

    def total_seconds(self) -> float:
        """Return its seconds."""
        ...


class Filters(TypedDict, total=False):
    """Filters of set-aside messages: for each, the name of its value, and which messages it selects."""

    #: `overweight` (too heavy for a full block), `most` (for its origin's share of one), `fraction` (for the ring's
    #: `most_of_limit`), `size` (larger than its `max_message_size`), `attempts` (tried too often), or `swept`.
    reason: Annotated[str | None, "REASON", f"with this reason: {', '.join(REASONS)}"]
    block: Annotated[int | None, "N", "that this block set aside"]
    arrived: Annotated[int | None, "N", "sent before this block, after the one before it"]
    older_than: Annotated[Span | float | None, "AGE", "sent longer ago than AGE: 90s, 15m, 2h, 1d"]
    error: Annotated[str | None, "TEXT", "whose last error begins with TEXT"]


class Selection(Filters, total=False):
    """Filters, the origin included."""

    origin: Annotated[str | None, "ORIGIN", "of this origin"]


#: Of each filter, the name of its value, and which messages it selects.
FILTERS: dict[str, tuple[str, str]] = {
    name: hint.__metadata__ for name, hint in get_type_hints(Selection, include_extras=True).items()
}


def checked(given: Selection) -> Selection:
    """Return the filters that are set, or raise the error that makes one of them invalid."""
    found = cast(Selection, {name: value for name, value in given.items() if value is not None})
    reason, error = found.get("reason"), found.get("error")
    if error is not None and (not check_text(error, "an error") or reason not in (None, ATTEMPTS)):
        raise InvalidInput(
            f"error={error[:40]!r} with reason={reason!r}: expected the beginning of an error's "
            f"text, and no reason but {ATTEMPTS!r}; only messages that were tried too often have an error"
        )
    if "origin" in found:
        check_origin(found["origin"])
    if reason is not None and reason not in REASONS:
        raise InvalidInput(f"invalid reason {str(reason)[:40]!r}: expected one of {', '.join(REASONS)}")
    for name in {"block", "arrived"} & found.keys():
        check_number(given[name], "a block")  # type: ignore[literal-required]
    least_age(found)
    if error is not None:
        found["reason"] = ATTEMPTS
    return found


def least_age(chosen: Selection) -> int | None:
    """Return the age in microseconds that messages must exceed; None without such a filter."""
    age = chosen.get("older_than")
    if age is None:
        return None
    return int(check_seconds(age, "age") * 1_000_000)
