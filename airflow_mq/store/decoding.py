"""Conversion of rows to values of the core; damaged rows raise `StoreCorrupt`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from ..core.book import DEFAULT_STANDING, Standing
from ..core.errors import StoreCorrupt
from ..core.message import header_bytes
from ..core.page import PROCESSED, InboxRow, Note, Page
from ..core.weight import Weight
from . import codec
from .rows import PageRow, StoredInboxRow


@codec.reading("what is set for an origin")
def standing_of(value: Any) -> Standing:
    """Return the settings of an origin."""
    if value is None or value == {}:
        return DEFAULT_STANDING
    plain = codec.read_json(value) if isinstance(value, str) else value
    if not plain.keys() <= {"share", "least", "most", "ordered"}:
        raise ValueError(f"it has {', '.join(plain)}")
    return Standing(
        plain.get("share", 1),
        Weight(*plain["least"]) if plain.get("least") else None,
        Weight(*plain["most"]) if plain.get("most") else None,
        plain.get("ordered"),
    )


@codec.reading("a page")
def page_of(row: PageRow) -> Page:
    """Return a stored page."""
    page = Page(row.page)
    page.slices = codec.unpack_slices(row.slices)
    page.lengths = codec.unpack_numbers(row.lengths)[0]
    page.notes = codec.unpack_notes(row.notes)
    page.first_index, page.used = row.first_index, row.used
    page.remaining, page.remaining_size = row.remaining, row.remaining_size
    page.marks = bytearray(row.marks) or bytearray([PROCESSED]) * row.first_index + bytes(row.items - row.first_index)
    if len(page.lengths) != row.items or len(page.marks) != row.items:
        raise StoreCorrupt(f"page {row.page} of {row.origin!r} has {row.items} items, but {len(page.lengths)} lengths")
    return page


def inbox_row_of(row: StoredInboxRow) -> InboxRow:
    """Return a stored inbox row, without its bytes."""
    lengths = codec.unpack_lengths(row.lengths, row.items, row.size)
    return InboxRow(row.id, lengths, notes_of(row.attributes, row.items), last=not row.more)


def notes_of(attributes: bytes, items: int) -> dict[int, Note]:
    """Return the attributes of single messages that planning needs."""
    if not attributes:
        return {}
    with codec.reading("the attributes of a message"):
        return _notes(codec.read_json(attributes), items)


def _notes(plain: Any, items: int) -> dict[int, Note]:
    notes: dict[int, Note] = {}
    blobs = plain.get("blobs", {})
    for item in range(items):
        own = {**plain.get("all", {}), **plain.get("each", {}).get(str(item), {})}
        weight = own.get("weight")
        blob = int(blobs[str(item)].partition(":")[2]) if str(item) in blobs else None
        declared = Weight(*weight) if weight else None
        note = Note(
            declared,
            own.get("attempts", 0),
            own.get("expires"),
            blob,
            own.get("arrived"),
            own.get("loan", False),
            header_bytes(own.get("headers", {})),
        )
        if any(part is not None and part != 0 for part in note):
            notes[item] = note
    return notes


def headers_of(page: Page, attributes: Mapping[int, Any]) -> dict[int, Mapping[str, str]]:
    """Return the headers of each item of a page, from the attributes of its inbox rows by id."""
    headers_by_item: dict[int, Mapping[str, str]] = {}
    places = ((part.row_id, part.start + at) for part in page.slices for at in range(part.items))
    for item, (row_id, place) in enumerate(places) if attributes else ():
        row = attributes.get(row_id, {})
        headers = row.get("each", {}).get(str(place), {}).get("headers") or row.get("all", {}).get("headers")
        if headers:
            headers_by_item[item] = headers
    return headers_by_item


def split_row(row: StoredInboxRow, heap: bytes) -> list[bytes]:
    """Return the messages of an inbox row."""
    if row.items == 1 and len(heap) == row.size:
        return [heap]
    return split(heap, codec.unpack_lengths(row.lengths, row.items, row.size))


def split(heap: bytes, lengths: Sequence[int]) -> list[bytes]:
    """Return the messages of an inbox row."""
    if len(heap) != sum(lengths):
        raise StoreCorrupt(f"an inbox row of {sum(lengths)} bytes has {len(heap)}")
    if len(lengths) == 1:
        return [heap]
    length = lengths[0]
    if min(lengths) == length == max(lengths):
        return [heap[start : start + length] for start in range(0, len(heap), length)]
    ends = list(accumulate(lengths, initial=0))
    return [heap[start:stop] for start, stop in pairwise(ends)]
