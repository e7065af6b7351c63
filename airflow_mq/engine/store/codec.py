"""Packing of numbers, pages, claims, events and outcomes into columns.

Rows of numbers repeat themselves (messages of one size, consecutive ids): a row of equal numbers is packed as one
number, any other row as the narrowest array.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from itertools import accumulate, chain, starmap
from operator import sub
from typing import Any, Final

from ..rules.blob import Reference
from ..rules.charging import Charge
from ..rules.claims import Claim, ClaimRun
from ..rules.errors import StoreCorrupt
from ..rules.events import EventRun, Fate
from ..rules.judging import Decision, Exceeded
from ..rules.message import Attributes, Posted
from ..rules.orders import Entry
from ..rules.outcome import (
    DONE,
    BadFormat,
    Begun,
    Corrupt,
    Done,
    Mark,
    NotBegun,
    Outcome,
    Overweight,
    StackLimitReached,
    Transferred,
    Unreadable,
    Unsupported,
    Yield,
)
from ..rules.page import Note, Slices
from ..rules.priority import origin_of, priority_of
from ..rules.weight import Weight

_AROUND = 1 << 64
#: A report that begins with ids, and the length of its text, which ends it.
_IDS_FIRST, _LENGTH = b"\0", struct.Struct(">I")
_HEAD = struct.Struct("<cIQ")
_WIDTHS = ((1 << 8, "B"), (1 << 16, "H"), (1 << 32, "I"), (1 << 64, "Q"))
_ARRAYS = {code.encode(): code for _, code in _WIDTHS}
_RUN = struct.Struct("<BQIIBI")
_WEIGHT = struct.Struct(">QQ")
#: Numbers of a charge: each of its two weights is two of them.
_SUMS = len(Charge._fields) + 2
_compact = json.JSONEncoder(separators=(",", ":")).encode


#: Errors that unpacking of damaged bytes may raise.
_ODD = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, struct.error, zlib.error)
#: Number of one-byte messages in the largest possible heap: no row is longer.
_MOST_NUMBERS = (1 << 30) // 6


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Raise `StoreCorrupt` for bytes that cannot be unpacked."""
    try:
        yield
    except _ODD as error:
        raise StoreCorrupt(f"{what} cannot be read: {type(error).__name__}: {str(error)[:200]}") from None


def pack_numbers(numbers: Sequence[int]) -> bytes:
    """Pack a row of numbers from 0 to 2**64 - 1."""
    if not numbers:
        return _HEAD.pack(b"=", 0, 0)
    # A list counts equal numbers much faster than it finds the smallest and the largest.
    if numbers.count(numbers[0]) == len(numbers):
        return _HEAD.pack(b"=", len(numbers), numbers[0])
    high = max(numbers)
    code = next(code for bound, code in _WIDTHS if high < bound)
    row = array(code, numbers)
    if sys.byteorder == "big":
        row.byteswap()
    return _HEAD.pack(code.encode(), len(numbers), 0) + row.tobytes()


def unpack_numbers(data: bytes, offset: int = 0, most: int = _MOST_NUMBERS) -> tuple[list[int], int]:
    """Return a row of numbers, and the offset after it; raise `StoreCorrupt` if it has more than `most`.

    Some bytes can promise millions of equal numbers: a caller that knows how many there are passes the bound.
    """
    try:
        kind, count, value = _HEAD.unpack_from(data, offset)
        offset += _HEAD.size
        if count > most:
            raise ValueError(f"its head promises {count:,} numbers")
        if kind == b"=":
            return [value] * count, offset
        row = array(_ARRAYS[kind])
        stop = offset + count * row.itemsize
        if stop > len(data):
            raise ValueError("the row ends early")
        row.frombytes(data[offset:stop])
    except (struct.error, ValueError, LookupError) as error:
        raise StoreCorrupt(f"a packed row of numbers cannot be read: {error!r}") from None
    if sys.byteorder == "big":
        row.byteswap()
    return row.tolist(), stop


def pack_lengths(lengths: Sequence[int]) -> bytes:
    """Pack the lengths of an inbox row's messages; nothing for a single message."""
    return b"" if len(lengths) == 1 else pack_numbers(lengths)


def unpack_lengths(data: bytes, items: int, size: int) -> list[int]:
    """Unpack `pack_lengths`; raise `StoreCorrupt` unless the lengths agree with `items` and `size`."""
    lengths = unpack_numbers(data, most=items)[0] if data else [size]
    if len(lengths) != items or sum(lengths) != size:
        raise StoreCorrupt(
            f"an inbox row of {items} messages and {size} bytes has lengths of {len(lengths)} and {sum(lengths)}"
        )
    return lengths


def unpack_lengths_of(packed: Sequence[bytes], items: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Unpack the lengths of the messages of many inbox rows; once, if the rows are alike."""
    if all(column.count(column[0]) == len(column) for column in (packed, items, sizes)):
        return unpack_lengths(packed[0], items[0], sizes[0]) * len(packed)
    return list(chain.from_iterable(map(unpack_lengths, packed, items, sizes)))


def pack_slices(slices: Slices) -> bytes:
    """Pack the slices of a page."""
    row_ids = slices.row_ids
    # A row that was committed late has a smaller id than rows cut before it: a step back wraps around.
    steps = list(map(sub, row_ids[1:], row_ids))
    if steps and min(steps) < 0:
        steps = [step % _AROUND for step in steps]
    # The first id is large and the steps are small; in a row of their own they stay narrow.
    return b"".join(map(pack_numbers, (row_ids[:1], steps, slices.starts, slices.counts)))


def unpack_slices(data: bytes, most: int = _MOST_NUMBERS) -> Slices:
    """Unpack `pack_slices`; raise `StoreCorrupt` if the page has more than `most` slices."""
    first, offset = unpack_numbers(data, most=1)
    steps, offset = unpack_numbers(data, offset, most)
    starts, offset = unpack_numbers(data, offset, most)
    counts, _ = unpack_numbers(data, offset, most)
    if not len(first) + len(steps) == len(starts) == len(counts):
        raise StoreCorrupt(
            f"a page of {len(first) + len(steps)} slices has {len(starts)} starts and {len(counts)} counts"
        )
    row_ids = list(accumulate(first + steps))
    if row_ids and max(row_ids) >= _AROUND:
        row_ids = [row_id % _AROUND for row_id in row_ids]
    return Slices(row_ids, starts, counts)


def pack_notes(notes: Mapping[int, Note]) -> bytes:
    """Pack the notes of single messages; mostly none."""
    plain = {item: _plain_note(note) for item, note in notes.items() if any(note)}
    return _compact(plain).encode() if plain else b""


def _plain_note(note: Note) -> Sequence[object]:
    values: list[object] = list(note)
    while len(values) > 3 and not values[-1]:
        values.pop()
    return values


@reading("a row of notes")
def unpack_notes(data: bytes) -> dict[int, Note]:
    """Unpack `pack_notes`."""
    if not data:
        return {}
    return {
        int(item): Note(Weight(*weight) if weight else None, attempts, expires, *rest)
        for item, (weight, attempts, expires, *rest) in read_json(data).items()
    }


def pack_weight(weight: Weight | None) -> bytes | None:
    """Pack a weight into 16 bytes."""
    return None if weight is None else _WEIGHT.pack(*weight)


@reading("a weight")
def unpack_weight(data: bytes | None) -> Weight | None:
    """Unpack `pack_weight`."""
    return None if data is None else Weight(*_WEIGHT.unpack(data))


def read_json(data: Any) -> Any:
    """Return the value of stored JSON; a value that is read already stays as it is."""
    try:
        return json.loads(data) if isinstance(data, (str, bytes)) else data
    except (ValueError, RecursionError) as error:
        raise StoreCorrupt(f"stored JSON cannot be read: {error}") from None


def write_json(value: object) -> bytes:
    """Return compact JSON."""
    return _compact(value).encode()


def pack_events(runs: Sequence[EventRun]) -> bytes:
    """Pack runs of events."""
    parts = []
    for run in runs:
        detail = run.detail.encode()
        named = bool(run.ids and run.ids[0])
        parts.append(
            _RUN.pack(run.fate.value, run.page, run.first, len(run.ids), named | bool(run.weights) << 1, len(detail))
        )
        parts.append(detail)
        if named:
            parts.extend(run.ids)
        if run.weights:
            weight, count = run.weights[0], len(run.weights)
            alike = run.weights.count(weight) == count
            for part in (0, 1):
                row = [weight[part]] * count if alike else [weight[part] for weight in run.weights]
                parts.append(pack_numbers(row))
    return b"".join(parts)


def unpack_events(origin: str, data: bytes) -> Iterator[EventRun]:
    """Unpack `pack_events`."""
    with reading(f"a row of events of {origin!r}"):
        runs = list(_events(origin, data))
    yield from runs


def _events(origin: str, data: bytes) -> Iterator[EventRun]:
    offset = 0
    while offset < len(data):
        fate, page, first, count, flags, length = _RUN.unpack_from(data, offset)
        offset += _RUN.size
        detail = data[offset : offset + length].decode()
        offset += length
        # Events without message ids are about pages and queues.
        if count > (len(data) // 32 if flags & 1 else 1 << 16):
            raise ValueError(f"its head promises {count:,} events")
        ids = [b""] * count
        if flags & 1:
            ids = [data[at : at + 32] for at in range(offset, offset + 32 * count, 32)]
            offset += 32 * count
        weights: list[Weight] = []
        if flags & 2:
            times, offset = unpack_numbers(data, offset, count)
            sizes, offset = unpack_numbers(data, offset, count)
            if not len(times) == len(sizes) == count:
                raise ValueError(f"{count:,} events have {len(times):,} and {len(sizes):,} parts of weights")
            weights = list(map(Weight, times, sizes))
        yield EventRun(Fate(fate), origin, page, first, ids, weights, detail)


def pack_claim(claim: Claim) -> bytes:
    """Pack a claim as JSON, readable at a database prompt."""
    runs = [
        {
            "page": run.page,
            "first": run.first,
            "count": run.count,
            "closed": run.closed,
            **({"weights": run.weights} if run.weights else {}),
            **({"decisions": [_plain_decision(*pair) for pair in run.decisions.items()]} if run.decisions else {}),
        }
        for run in claim.runs
        if run.count or run.closed
    ]
    plain: dict[str, object] = {"planned": claim.planned, "ordered": claim.ordered}
    if claim.most is not None:
        plain["most"] = claim.most
    if claim.processor:
        plain["processor"] = claim.processor
    plain["runs"] = runs
    return _compact(plain).encode()


def _plain_decision(item: int, decision: Decision) -> list[object]:
    return [item, decision.exceeded, decision.weight, decision.id.hex() if decision.id else ""]


def _decision(item: int, exceeded: list[Any] | None, weight: list[int], name: str) -> tuple[int, Decision]:
    limit = None if exceeded is None else Exceeded(exceeded[0], Weight(*exceeded[1]))
    return item, Decision(limit, Weight(*weight), bytes.fromhex(name) if name else None)


@reading("a claim")
def unpack_claim(origin: str, data: bytes) -> Claim:
    """Unpack `pack_claim`."""
    plain = read_json(data)
    runs = [
        ClaimRun(
            run["page"], run["first"], run["count"], run["closed"],
            dict(starmap(_decision, run.get("decisions", ()))),
            [Weight(*weight) for weight in run.get("weights", ())],
        )
        for run in plain["runs"]
    ]  # fmt: skip
    most, processor = plain.get("most"), str(plain.get("processor", ""))
    return Claim(origin, runs, Weight(*plain["planned"]), plain["ordered"], Weight(*most) if most else None, processor)


_KINDS: dict[str, Callable[..., Outcome | Mark]] = {
    "done": Done, "overweight": Overweight, "yield": Yield, "transferred": Transferred, "bad": BadFormat,
    "corrupt": Corrupt, "unsupported": Unsupported, "stack": StackLimitReached, "begun": Begun, "not begun": NotBegun,
}  # fmt: skip
_CODES: dict[object, str] = {**{kind: code for code, kind in _KINDS.items()}, Unreadable: "yield"}
#: Readers of the values of an outcome that are not stored as they are.
_READERS: dict[str, Callable[[Any], object]] = {
    "id": bytes.fromhex,
    "used": lambda plain: Weight(*plain),
    "weight": lambda plain: Weight(*plain),
    "enqueue": lambda plain: tuple(_posted_of(*entry) for entry in plain),
}


def plain_outcome(outcome: Outcome | Mark) -> list[object]:
    """Return an outcome or a mark as a JSON value, without default values."""
    values: dict[str, object] = {}
    for one in fields(outcome):
        value = getattr(outcome, one.name)
        if value in (one.default, []):
            continue
        if one.name == "enqueue":
            value = list(map(_plain_posted, value))
        values[one.name] = value.hex() if isinstance(value, bytes) else value
    code = _CODES[type(outcome)]
    return [code, values] if values else [code]


#: Outcome of messages whose ids are stored beside the report.
DONE_WITH_IDS: Final = ["done", {"ids": True}]


def pack_report(plain: Sequence[object], ids: bytes) -> bytes:
    """Pack a report and the ids of its messages.

    The ids come first: PostgreSQL does not try to compress a value whose first 1,024 bytes look random.
    """
    text = write_json(plain)
    return _IDS_FIRST + ids + text + _LENGTH.pack(len(text)) if ids else text


def unpack_report(data: bytes) -> tuple[list[Any], bytes]:
    """Return the report and the ids of `pack_report`."""
    start = stop = 0
    if data[:1] == _IDS_FIRST:
        stop = len(data) - _LENGTH.size
        start = stop - _LENGTH.unpack(data[-_LENGTH.size :])[0]
        if start < 1:
            raise ValueError("its head is missing")
    plain = read_json(data[start:stop] if stop else data)
    if not isinstance(plain, list):
        raise TypeError("expected a list")
    return plain, data[1:start]


def _plain_posted(posted: Posted) -> list[object]:
    kind, attributes = "blob" if isinstance(posted.payload, Reference) else "", posted.attributes.plain()
    return [posted.origin, posted.payload.hex(), *((kind, attributes) if attributes else (kind,) if kind else ())]


def _posted_of(origin: str, payload: str, kind: str = "", attributes: Mapping[str, Any] | None = None) -> Posted:
    data = bytes.fromhex(payload)
    return Posted(origin, Reference.read(data) if kind == "blob" else data, Attributes.of(attributes or {}))


@reading("an outcome")
def outcome_of(plain: Sequence[Any]) -> Outcome | Mark:
    """Return the outcome or mark of `plain_outcome`."""
    code, values = plain[0], dict(plain[1]) if len(plain) > 1 else {}
    if code not in _KINDS:
        raise StoreCorrupt(f"there is no outcome called {code!r}")
    read = {name: _READERS[name](value) if name in _READERS else value for name, value in values.items()}
    return _KINDS[code](**read) if read or code != "done" else DONE


def pack_ledger(
    entries: Sequence[Entry],
    head: Mapping[str, object] | None = None,
    *skipped: Mapping[str, Sequence[str]],
) -> bytes:
    """Pack the entries of a block, after the head, which is about the whole block, and before what it skipped.

    :param skipped: names of the queues that were skipped without a visit, by reason, and of groups with all below them
    """
    rows = [
        [e.origin, e.offered, e.granted, e.messages, e.deficit, e.reason, e.visits, *([e.needs] if e.needs else ())]
        for e in entries
    ]
    data = (b"" if head is None else _squeeze(head)) + _squeeze(rows)
    if any(any(kind.values()) for kind in skipped):
        data += _squeeze([{reason: "\n".join(names) for reason, names in kind.items() if names} for kind in skipped])
    return data


def _squeeze(value: object) -> bytes:
    return zlib.compress(_compact(value).encode(), 1)


@reading("a page of the ledger")
def unpack_ledger(data: bytes) -> tuple[list[Entry], dict[str, list[str]], dict[str, list[str]]]:
    """Return the entries, the skipped queues and the skipped groups of `pack_ledger`."""
    rows, rest = _first_stream(data)
    if isinstance(rows, dict):
        rows, rest = _first_stream(rest)
    queues, groups = _first_stream(rest)[0] if rest else ({}, {})
    entries = [
        Entry(origin_of(name), offered, Weight(*granted), messages, deficit, reason, visits, priority_of(name),
              *(Weight(*needs) for needs in more))
        for name, offered, granted, messages, deficit, reason, visits, *more in rows
    ]  # fmt: skip
    lists = ({reason: names.split("\n") for reason, names in kind.items()} for kind in (queues, groups))
    return entries, next(lists), next(lists)


def pack_charges(charges: Mapping[tuple[str, ...], Charge]) -> bytes:
    """Pack charges by their keys: book and processor, and in sums of a day the server."""
    text = write_json([[*key, *charge.planned, *charge.charged, *charge[2:]] for key, charge in charges.items()])
    # To compress the charges of a few queues takes longer than to write them.
    return text if len(text) < 1_024 else zlib.compress(text, 1)


@reading("a row of charges")
def unpack_charges(data: bytes) -> dict[tuple[str, ...], Charge]:
    """Unpack `pack_charges`."""
    rows = read_json(data) if data[:1] == b"[" else _first_stream(data)[0]
    read = [(tuple(map(str, row[:-_SUMS])), list(map(int, row[-_SUMS:]))) for row in rows]
    return {key: Charge(Weight(*sums[:2]), Weight(*sums[2:4]), *sums[4:]) for key, sums in read}


@reading("the head of a page of the ledger")
def unpack_ledger_head(data: bytes) -> dict[str, Any]:
    """Return the head of `pack_ledger`; the first bytes of the data are enough."""
    first, _ = _first_stream(data, partial=True)
    return first if isinstance(first, dict) else {}


def _first_stream(data: bytes, *, partial: bool = False) -> tuple[Any, bytes]:
    """Return the first value of the data, and the rest; `None` if the data is partial and ends within the value."""
    squeezed = zlib.decompressobj()
    text = squeezed.decompress(data)
    if squeezed.eof:
        return read_json(text), squeezed.unused_data
    if partial:
        return None, b""
    raise ValueError("the data ends early")
