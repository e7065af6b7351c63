"""What was reported on a block's messages, as it is stored until the block is settled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core.config import RingConfig
from ..core.errors import InvalidInput
from ..core.message import check_number, check_origin
from ..core.outcome import check_outcome
from ..core.permit import OPEN, Permit
from ..core.priority import book_name, check_priority
from ..core.settle import Answers
from ..store import codec
from .values import Report


def plain_report(report: Report, config: RingConfig, permit: Permit = OPEN) -> list[Any]:
    """A report as it is stored, checked: what does not settle would keep the block for ever."""
    if not isinstance(report, Report):
        raise InvalidInput(f"what is reported is a Report, not {type(report).__name__}")
    places = [check_number(place, "a place in a report") for place in (report.page, report.first, report.last)]
    # No page has as many items as it has bytes.
    if not report.first <= report.last < config.heap_size:
        raise InvalidInput(f"a page of this ring has no messages {report.first} to {report.last}")
    outcome = check_outcome(report.outcome, config.max_message_len, permit)
    name = book_name(check_origin(report.origin), check_priority(report.priority))
    return [name, *places, *codec.plain_outcome(outcome)]


def answers_of(rows: Iterable[bytes]) -> dict[str, Answers]:
    """What was reported, by origin."""
    found: dict[str, Answers] = {}
    for data in rows:
        with codec.reading("a report"):
            _read_report(found, data)
    return found


def _read_report(found: dict[str, Answers], data: bytes) -> None:
    plain = codec.read_json(bytes(data))
    if not isinstance(plain, list):
        raise TypeError("it is no list")
    for origin, page, first, last, *outcome in plain:
        found.setdefault(origin, Answers()).add(page, first, last, codec.outcome_of(outcome))
