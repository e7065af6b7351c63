"""Readers of what the store holds: pages, claims, reports, and attributes of messages."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from airflow_mq.engine.queue.attempts import outcome_of
from airflow_mq.engine.queue.blocks.reports import answers_of, pack_reports
from airflow_mq.engine.queue.values import Report
from airflow_mq.engine.rules.claims import Claim, ClaimRun
from airflow_mq.engine.rules.config import RingConfig
from airflow_mq.engine.rules.errors import InvalidInput, NotPermitted, StoreCorrupt
from airflow_mq.engine.rules.events import EventRun, Fate
from airflow_mq.engine.rules.judging import Decision, Exceeded
from airflow_mq.engine.rules.orders import Entry
from airflow_mq.engine.rules.outcome import (
    BEGUN,
    DONE,
    BadFormat,
    Corrupt,
    Done,
    NotBegun,
    Overweight,
    StackLimitReached,
    Transferred,
    Unsupported,
    Yield,
    check_outcome,
)
from airflow_mq.engine.rules.page import Note, Slices
from airflow_mq.engine.rules.priority import book_name
from airflow_mq.engine.rules.weight import LARGEST, Weight
from airflow_mq.engine.store import codec
from airflow_mq.engine.store.attributes import notes_of
from airflow_mq.engine.store.rows import PageRow, page_of, settings_of

from ..draw import Draw
from ..target import Target, attempt

ITEMS = 64


class Kind(NamedTuple):
    """A packed value: its reader, its writer, and examples."""

    unpack: Callable[[bytes], Any]
    pack: Callable[[Any], bytes]
    examples: tuple[Any, ...]


def _as_written(entries: list[Entry]) -> list[Entry]:
    """Return entries with the names of books as their origins, as a plan writes them."""
    return [replace(entry, origin=book_name(entry.origin, entry.priority)) for entry in entries]


def _without_zeros(note: Note) -> Note:
    """Return a note without the zeros that no writer stores: no payload is empty, and no block has the number 0."""
    return note._replace(blob=note.blob or None, arrived=note.arrived or None, beside=note.beside or 0)


ID = bytes(range(32))
CLAIM = Claim(
    "acme",
    [
        ClaimRun(0, 1, 3, True, {2: Decision(Exceeded("size", Weight(1, 1)), Weight(9, 9), ID)}, [Weight(1, 2)] * 3),
        ClaimRun(1, 0, 2, False, {0: Decision(None, Weight(0, 0))}),
    ],
    Weight(3, 2),
    True,
    Weight(5, 5),
)
PAGE_KINDS: dict[str, Kind] = {
    "numbers": Kind(lambda data: codec.unpack_numbers(data, most=ITEMS)[0], codec.pack_numbers, ([], [7] * 9, [1, 300, LARGEST])),
    "lengths": Kind(
        lambda data: codec.unpack_lengths(data[1:], data[0] if data else 0, 10),
        lambda lengths: bytes([len(lengths) & 255]) + codec.pack_lengths(lengths),
        ([1, 9], [5, 5], [10]),
    ),
    "slices": Kind(lambda data: codec.unpack_slices(data, ITEMS), codec.pack_slices, (Slices([1 << 40, 7], [0, 1], [9, 2]),)),
    "notes": Kind(
        lambda data: {item: _without_zeros(note) for item, note in codec.unpack_notes(data).items() if any(note)},
        codec.pack_notes,
        ({3: Note(Weight(1, 2), 3, 4, 5, 6, 7)}, {0: Note(attempts=2), 9: Note(expires=1)}),
    ),
    "events": Kind(
        lambda data: list(codec.unpack_events("acme", data)),
        codec.pack_events,
        (
            [EventRun(Fate.PROCESSED, "acme", 1, 2, [ID, ID], [Weight(1, 2), Weight(3, 4)], "why")],
            [EventRun(Fate.PAGE_REMOVED, "acme", 1, 2, [b""], [], ""), EventRun(Fate.SWEPT, "acme", 0, 0, [ID], [])],
        ),
    ),
    "weight": Kind(codec.unpack_weight, lambda weight: codec.pack_weight(weight) or b"", (Weight(1, LARGEST),)),
    "ledger": Kind(lambda data: codec.unpack_ledger(data)[0], lambda entries: codec.pack_ledger(_as_written(entries)), ([Entry("acme", 1, Weight(1, 2), 3, -4, "why", 5)],)),
    "squeezed": Kind(
        lambda data: codec.unpack_ledger(zlib.compress(data))[0],
        lambda entries: zlib.decompress(codec.pack_ledger(_as_written(entries))),
        ([Entry("acme", 1, Weight(1, 2), 3, 4, "", 5, "high", Weight(6, 7))],),
    ),
    "settings": Kind(
        lambda data: settings_of(data.decode("utf-8", "surrogateescape")),
        lambda settings: codec.write_json(
            {name: value for name, value in vars(settings).items() if value is not None}
        ),
        (),
    ),
}  # fmt: skip
NAMES = tuple(PAGE_KINDS)


def check_page(data: bytes) -> None:
    """Unpack what the first byte names, pack it, and compare."""
    kind = PAGE_KINDS[NAMES[data[0] % len(NAMES)] if data else "numbers"]
    value = attempt(lambda: kind.unpack(data[1:]), StoreCorrupt)
    again = kind.pack(value)
    assert kind.unpack(again) == value, "a value differs once it was packed again"
    assert kind.pack(kind.unpack(again)) == again, "packing is not stable"


def _page_row(data: bytes) -> PageRow:
    draw = Draw(data)
    items, used, first, remaining = draw.byte() % ITEMS, draw.whole(2), draw.byte(), draw.byte()
    slices, lengths, marks = draw.binary(), draw.binary(), draw.binary()
    return PageRow("acme", 1, items, used, first, remaining, draw.whole(2), slices, lengths, marks, draw.rest())


def check_rows(data: bytes) -> None:
    """Read a page's row, or the attributes of an inbox row."""
    if data[:1] == b"{":
        found = attempt(lambda: notes_of(data, ITEMS), StoreCorrupt)
        assert all(0 <= item < ITEMS for item in found)
        return
    row = _page_row(data)
    page = attempt(lambda: page_of(row), StoreCorrupt)
    assert len(page.lengths) == row.items == len(page.marks)
    assert sum(page.slices.counts) == row.items, "slices of another number of items"


def check_claim(data: bytes) -> None:
    """Unpack a claim, pack it, and compare."""
    claim = attempt(lambda: codec.unpack_claim("acme", data), StoreCorrupt)
    again = codec.pack_claim(claim)
    stored = codec.unpack_claim("acme", again)
    assert codec.pack_claim(stored) == again
    handed_out = [(run.page, item) for run in claim.runs for item in run.handed_out()]
    assert handed_out == [(run.page, item) for run in stored.runs for item in run.handed_out()]


def _drawn_answer(draw: Draw) -> Any:
    def maybe(value: object) -> object:
        return draw.value() if draw.byte() % 4 == 0 else value

    name = ID if draw.byte() % 2 else None
    weight = maybe(Weight(draw.whole(), draw.whole()))
    kinds: list[Callable[[], object]] = [
        lambda: None, lambda: True, lambda: False, lambda: DONE, lambda: BEGUN, draw.value,
        lambda: Done(maybe(True), maybe(name), maybe(weight), maybe([_drawn_sent(draw) for _ in range(draw.byte() % 3)])),  # type: ignore[arg-type]
        lambda: Overweight(weight, maybe(name)),  # type: ignore[arg-type]
        lambda: Yield(maybe(draw.text())),  # type: ignore[arg-type]
        lambda: NotBegun(maybe(draw.text())),  # type: ignore[arg-type]
        lambda: Transferred("acme", name),
        *(lambda kind=kind: kind(maybe(name)) for kind in (BadFormat, Corrupt, Unsupported, StackLimitReached)),
    ]  # fmt: skip
    return draw.pick(kinds)()


def _drawn_sent(draw: Draw) -> object:
    pair = draw.pick(("acme", "\x01acme", draw.text())), draw.binary()
    return draw.pick((pair, (*pair, "high"), (*pair, {draw.text(): draw.text()}), draw.value()))


def check_answers(data: bytes) -> None:
    """Check a processor's answer, store it in a report, and read the report."""
    draw = Draw(data)
    if draw.byte() % 4 == 0:
        stored = attempt(lambda: codec.outcome_of(codec.read_json(draw.rest())), StoreCorrupt)
        assert codec.outcome_of(codec.read_json(codec.write_json(codec.plain_outcome(stored)))) == stored
        return
    if draw.byte() % 4 == 0:
        read = attempt(lambda: answers_of([draw.rest()]), StoreCorrupt)
        for answers in read.values():
            assert isinstance(answers.any_begun, bool) and answers.get(0, 0) in (None, answers.get(0, 0))
        return
    answer, config = _drawn_answer(draw), RingConfig()
    if not isinstance(answer, (NotBegun, type(BEGUN))):
        answer = attempt(lambda: check_outcome(outcome_of(answer), config.max_message_len), InvalidInput, NotPermitted)
    report = Report(draw.pick(("acme", draw.text())), draw.whole(), draw.whole(2), draw.whole(2), answer)
    data, _ = attempt(lambda: pack_reports([report], config), InvalidInput, NotPermitted)
    found, ((plain,), _) = answers_of([data])[report.book], codec.unpack_report(data)
    outcome = codec.outcome_of(plain[4:])
    is_mark = isinstance(outcome, (NotBegun, type(BEGUN)))
    assert found.get(report.page, report.first) == (None if is_mark else outcome)
    assert is_mark or outcome == (
        replace(answer, enqueue=tuple(answer.enqueue)) if isinstance(answer, Done) else answer
    )


def _examples() -> tuple[bytes, ...]:
    return tuple(
        bytes([NAMES.index(name)]) + kind.pack(value) for name, kind in PAGE_KINDS.items() for value in kind.examples
    )


CODEC = ("airflow_mq.engine.store.codec",)
TARGETS = (
    Target(
        "page", (*CODEC, "airflow_mq.engine.store.rows"), "StoreCorrupt",
        "a value packs again to the same", check_page, (*_examples(), b'\x08{"share":2,"least":[1,2],"ordered":false}'),
    ),
    Target(
        "rows",
        (
            *CODEC, "airflow_mq.engine.store.attributes", "airflow_mq.engine.store.rows", "airflow_mq.engine.rules.message",
        ),
        "StoreCorrupt",
        "lengths, marks and slices agree with the number of items", check_rows,
        (
            b'{"all":{"weight":[1,2]},"each":{"1":{"headers":{"a":"b"},"expires":5}},"blobs":{"0":"00ff:9"}}',
            bytes([2, 1, 9, 0, 2, 1, 9]) + b"".join(
                bytes([len(part)]) + part
                for part in (codec.pack_slices(Slices([1], [0], [2])), codec.pack_numbers([4, 5]), b"\0\0")
            ) + b'{"1":[null,1,null]}',
        ),
    ),
    Target("claim", CODEC, "StoreCorrupt", "a claim packs again to the same", check_claim, (codec.pack_claim(CLAIM),)),
    Target(
        "answers",
        (
            *CODEC, "airflow_mq.engine.rules.outcome", "airflow_mq.engine.rules.message", "airflow_mq.engine.rules.patterns",
            "airflow_mq.engine.queue.blocks.reports", "airflow_mq.engine.rules.settle", "airflow_mq.engine.queue.attempts",
        ),
        "InvalidInput, NotPermitted; stored: StoreCorrupt",
        "an accepted outcome is stored and read as it was", check_answers,
        (
            b'\0["done",{"used":[1,2],"enqueue":[["acme","00ff","",{"headers":{"a":"b"}}]]}]', b'\0["overweight",{"weight":[1,2]}]',
            b'\1\0[["acme",1,0,3,"begun"],["acme",1,0,0,"done"]]', *(bytes([1, 1, at, at, 3, 1, 2]) for at in range(15)),
        ),
    ),
)  # fmt: skip
