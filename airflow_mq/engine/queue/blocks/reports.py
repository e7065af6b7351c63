"""Reports on messages of a block, as they are stored until the block is settled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from ...rules.config import RingConfig
from ...rules.errors import InvalidInput
from ...rules.message import ID_BYTES, PLAIN, Posted, check_number, check_origin
from ...rules.outcome import DONE, Begun, Mark, NotBegun, SendBounds, check_outcome, send_bounds
from ...rules.patterns import OPEN, Permit
from ...rules.priority import REGULAR, book_name, check_priority
from ...rules.service import shortened
from ...rules.settle import UNTIMED, Answers, Ranges
from ...store import codec
from ...store.attributes import pack_attributes
from ..values import Report


def pack_reports(reports: Iterable[Report], config: RingConfig, permit: Permit = OPEN) -> tuple[bytes, bytes]:
    """Return reports as they are stored, and the external payloads of what they send, as an inbox row names them.

    Each report is checked: an invalid one would keep its block from settling. Without reports, both are empty.
    """
    items, bounds, sent = config.heap_size, send_bounds(config, permit), list[Posted]()
    reports = list(reports)
    plain = [_plain_report(report, items, bounds, sent) for report in reports]
    return codec.pack_report(plain, b"".join(report.ids for report in reports)) if plain else b"", blobs_of(sent)


def blobs_of(sent: Sequence[Posted]) -> bytes:
    """Return the external payloads of messages that a block sends when it ends, as an inbox row names them."""
    return pack_attributes(PLAIN, [posted.payload for posted in sent]) if sent else b""


def _plain_report(report: Report, items: int, bounds: SendBounds, sent: list[Posted]) -> list[Any]:
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
    sent += getattr(outcome, "enqueue", ())
    plain = codec.DONE_WITH_IDS if report.ids else codec.plain_outcome(outcome)
    if report.epoch or report.took != UNTIMED:
        # They come third, so a plain outcome gets an empty second part.
        rest = [check_number(report.epoch, "an epoch"), *(check_number(part, "a time") for part in report.took)]
        plain = [*[*plain, {}][:2], *rest]
    return [name, page, first, last, *plain]


def ids_fit(report: Report) -> bool:
    """Return whether a report has no ids, or one for each message of a plain `Done`."""
    ids, count = report.ids, report.last - report.first + 1
    return not ids or (type(ids) is bytes and report.outcome == DONE and len(ids) == count * ID_BYTES)


def _checked_mark(mark: Mark) -> Mark:
    if isinstance(mark, Begun):
        return mark
    return NotBegun(shortened(str(mark.error).encode("utf-8", "replace").decode().replace("\0", " ")))


def answers_of(rows: Iterable[bytes]) -> dict[str, Answers]:
    """Return reported outcomes by book."""
    kept = list(rows)
    with codec.reading("a report"):
        return collected(lambda: _reports(kept))


def collected(reports: Callable[[], Iterable[Report]]) -> dict[str, Answers]:
    """Return the outcomes that count, by book: of a message that an epoch began, those of the largest epoch.

    :param reports: called twice if any attempt has an epoch; the marks of an epoch may come after earlier outcomes
    """
    found, begun = _collect(reports(), {})
    return _collect(reports(), {page: _layers(spans) for page, spans in begun.items()})[0] if begun else found


_Spans = list[tuple[int, int, int]]


def _collect(
    reports: Iterable[Report], layers: Mapping[tuple[str, int], _Spans]
) -> tuple[dict[str, Answers], dict[tuple[str, int], _Spans]]:
    """Return outcomes by book, and the messages that epochs began, by page.

    :param layers: the largest epoch of each row of messages that an epoch began, by page
    """
    found: dict[str, Answers] = {}
    begun: dict[tuple[str, int], _Spans] = {}
    for report in reports:
        book, page, first = report.book, report.page, report.first
        answers = found.setdefault(book, Answers())
        if report.epoch and isinstance(report.outcome, Begun):
            begun.setdefault((book, page), []).append((first, report.last, report.epoch))
            answers.epoch = max(answers.epoch, report.epoch)
        for start, stop in _standing(report, layers.get((book, page), ())):
            skipped = (start - first) * ID_BYTES
            ids = report.ids[skipped : skipped + (stop - start + 1) * ID_BYTES]
            answers.add(page, start, stop, report.outcome, ids, report.took)
    return found, begun


def _layers(spans: _Spans) -> _Spans:
    """Return rows of messages that do not overlap, each with the largest epoch that began it."""
    layers: Ranges[int] = Ranges()
    for first, last, epoch in sorted(spans, key=itemgetter(2), reverse=True):
        layers.add(first, last, epoch)
    return list(layers.spans())


def _standing(report: Report, layers: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the rows of messages for which a report counts."""
    start = report.first
    if not isinstance(report.outcome, (Begun, NotBegun)):
        for first, last, epoch in layers:
            if epoch == report.epoch or last < start or first > report.last:
                continue
            if start < first:
                yield start, first - 1
            start = last + 1
    if start <= report.last:
        yield start, report.last


def _reports(rows: Iterable[bytes]) -> Iterator[Report]:
    for data in rows:
        plain, ids = codec.unpack_report(data)
        start = 0
        for book, page, first, last, *outcome in plain:
            outcome, (epoch, *took) = outcome[:2], [*map(int, outcome[2:]), 0, 0, 0][:3]
            has_ids = outcome == codec.DONE_WITH_IDS
            stop = start + (last - first + 1) * ID_BYTES if has_ids else start
            answer = DONE if has_ids else codec.outcome_of(outcome)
            if not start <= stop <= len(ids):
                raise ValueError(f"{len(ids) - start} bytes of ids for messages {first} to {last}")
            yield Report(book, page, first, last, answer, ids=ids[start:stop], epoch=epoch, took=(took[0], took[1]))
            start = stop
