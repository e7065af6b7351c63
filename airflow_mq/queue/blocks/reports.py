"""Reports on messages of a block, as they are stored until the block is settled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...core.config import RingConfig
from ...core.errors import InvalidInput
from ...core.message import ID_BYTES, check_number, check_origin
from ...core.outcome import DONE, Begun, Mark, NotBegun, check_outcome
from ...core.permit import OPEN, Permit
from ...core.priority import REGULAR, book_name, check_priority
from ...core.service import MOST_WHY
from ...core.settle import Answers
from ...store import codec
from ..values import Report


def pack_reports(reports: Iterable[Report], config: RingConfig, permit: Permit = OPEN) -> bytes:
    """Return checked reports as they are stored, or nothing: an invalid report would keep its block from settling."""
    items, bounds = config.heap_size, (config.max_message_len, permit, config.max_headers)
    reports = list(reports)
    plain = [_plain_report(report, items, bounds) for report in reports]
    return codec.pack_report(plain, b"".join(report.ids for report in reports)) if plain else b""


def _plain_report(report: Report, items: int, bounds: tuple[int, Permit, int]) -> list[Any]:
    if not isinstance(report, Report):
        raise InvalidInput(f"invalid report ({type(report).__name__}): expected a Report")
    page, first, last = report.page, report.first, report.last
    for place in (page, first, last):
        check_number(place, "a place in a report")
    # No page has as many items as it has bytes.
    if not first <= last < items:
        raise InvalidInput(f"invalid report on messages {first} to {last}: a page of this ring has fewer messages")
    outcome = report.outcome
    outcome = _checked_mark(outcome) if isinstance(outcome, (Begun, NotBegun)) else check_outcome(outcome, *bounds)
    name = check_origin(report.origin)
    if report.priority != REGULAR:
        name = book_name(name, check_priority(report.priority))
    if not ids_fit(report):
        raise InvalidInput(
            f"invalid ids in the report on messages {first} to {last}: expected {ID_BYTES} bytes each, "
            "with the outcome Done()"
        )
    return [name, page, first, last, *(codec.DONE_WITH_IDS if report.ids else codec.plain_outcome(outcome))]


def ids_fit(report: Report) -> bool:
    """Return whether a report has no ids, or one for each message of a plain `Done`."""
    ids, count = report.ids, report.last - report.first + 1
    return not ids or (type(ids) is bytes and report.outcome == DONE and len(ids) == count * ID_BYTES)


def _checked_mark(mark: Mark) -> Mark:
    if isinstance(mark, Begun):
        return mark
    return NotBegun(str(mark.error).encode("utf-8", "replace").decode().replace("\0", " ")[:MOST_WHY])


def answers_of(rows: Iterable[bytes]) -> dict[str, Answers]:
    """Return reported outcomes by book."""
    found: dict[str, Answers] = {}
    for data in rows:
        with codec.reading("a report"):
            _read_report(found, data)
    return found


def _read_report(found: dict[str, Answers], data: bytes) -> None:
    plain, ids = codec.unpack_report(data)
    start = 0
    for origin, page, first, last, *outcome in plain:
        has_ids = outcome == codec.DONE_WITH_IDS
        stop = start + (last - first + 1) * ID_BYTES if has_ids else start
        answer = DONE if has_ids else codec.outcome_of(outcome)
        if not start <= stop <= len(ids):
            raise ValueError(f"{len(ids) - start} bytes of ids for messages {first} to {last}")
        found.setdefault(origin, Answers()).add(page, first, last, answer, ids[start:stop])
        start = stop
