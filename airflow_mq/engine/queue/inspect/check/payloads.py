"""Check of external payloads: their references are counted exactly, and all bytes are there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ....rules.errors import StoreCorrupt
from ....rules.invariants import Violation
from ....rules.page import PROCESSED
from ....store import codec
from ....store.attributes import StoredAttributes
from ....store.blobs import stored_file
from ....store.payloads import BlobRow
from ....store.unit import Unit
from ...session import RingSession

#: A message: the id of its inbox row, and its place in that row.
Place = tuple[int, int]
Uses = dict[Place, tuple[str, int | None, bool]]


def check_blobs(session: RingSession, unit: Unit, missing: dict[str, str]) -> Iterator[Violation]:
    """Return the violations in the messages of one ring and in all payloads of its store.

    The references of reports to blocks are not compared: they become messages when their blocks end.

    :param missing: receives the missing files, by hash; see `confirm_missing`.
    """
    uses = unit.payloads.uses()
    rows = unit.inbox.with_blobs(session.ring_id)
    live = _named((id_, attributes) for _, id_, attributes, is_delayed in rows if is_delayed)
    for origin in {origin for origin, *_ in rows}:
        own = [(id_, attributes) for name, id_, attributes, is_delayed in rows if name == origin and not is_delayed]
        live.update(_still_there(session, unit, origin, own))
    blobs = unit.payloads.blobs(0, counted=True)
    yield from _check_references(live, uses, {blob.hash for blob in blobs})
    ours = {id_ for _, id_, *_ in rows}
    yield from _check_uses(uses, live, ours)
    for blob in blobs:
        yield from _check_bytes(session, unit, blob, missing)
        if not blob.uses:
            yield Violation(f"payload {blob.hash}", "no message refers to it, and no sweep would find it")
    yield from _check_past_uploads(session, unit)


def confirm_missing(session: RingSession, missing: dict[str, str]) -> Iterator[Violation]:
    """Return the missing files of payloads that still exist.

    Call it outside of the snapshot: a sweep may remove a payload after a snapshot began. A sweep deletes the payload
    before it removes the file.
    """
    if not missing:
        return
    with session.store.reading() as unit:
        blobs = unit.payloads.blobs(0)
    for blob in blobs:
        if missing.get(blob.hash) == blob.path:
            yield Violation(f"payload {blob.hash}", f"its file {blob.path} is missing")


def _named(rows: Iterable[tuple[int, bytes]]) -> dict[Place, str]:
    """Return the messages of inbox rows that refer to payloads, with the hashes, by the ids and attributes of rows."""
    found: dict[Place, str] = {}
    for id_, attributes in rows:
        with codec.reading("attributes of inbox rows"):
            for place, reference in StoredAttributes(bytes(attributes)).blobs.items():
                found[id_, int(place)] = reference.partition(":")[0]
    return found


def _still_there(session: RingSession, unit: Unit, origin: str, rows: Iterable[tuple[int, bytes]]) -> dict[Place, str]:
    """Return the unprocessed messages of inbox rows that refer to payloads, with the hashes."""
    working_set = session.stored_working_set(unit)
    working_set.book(origin)
    cut = working_set.stored[origin].cut
    left: set[Place] = set()
    for _, page in working_set.loader.pages.read_all(origin):
        places = page.slices.places()
        left.update(place for place, mark in zip(places, page.marks) if mark != PROCESSED)
    named = _named(rows)
    return {place: hash_ for place, hash_ in named.items() if place in left or not cut.has(place[0])}


def _check_references(live: dict[Place, str], uses: Uses, blobs: set[str]) -> Iterator[Violation]:
    for (row_id, place), hash_ in live.items():
        if hash_ not in blobs:
            yield Violation(f"message {place} of inbox row {row_id}", f"it refers to payload {hash_}, which is missing")
        elif uses.get((row_id, place), ())[:2] != (hash_, None):
            yield Violation(
                f"message {place} of inbox row {row_id}",
                f"its reference to payload {hash_} is not counted",
            )


def _check_uses(uses: Uses, live: dict[Place, str], ours: set[int]) -> Iterator[Violation]:
    for (row_id, place), (hash_, until, is_there) in sorted(uses.items()):
        # The check of another ring covers the inbox rows of that ring.
        if until is None and (row_id, place) not in live and (row_id in ours or not is_there):
            what = f"message {place} of inbox row {row_id} is gone, but its reference is still counted"
            yield Violation(f"payload {hash_}", what)


def _check_past_uploads(session: RingSession, unit: Unit) -> Iterator[Violation]:
    for upload, path, _ in unit.payloads.past_uploads(unit.now()):
        if path:
            try:
                stored_file(session.store, unit, path)
            except StoreCorrupt as error:
                yield Violation(f"upload {upload}", str(error))


def _check_bytes(session: RingSession, unit: Unit, blob: BlobRow, missing: dict[str, str]) -> Iterator[Violation]:
    stored = blob.stored
    if blob.path:
        try:
            there = stored_file(session.store, unit, blob.path).size()
        except StoreCorrupt as error:
            yield Violation(f"payload {blob.hash}", str(error))
            return
        if there is None:
            missing[blob.hash] = blob.path
            return
        stored = there
    if stored != blob.size:
        yield Violation(f"payload {blob.hash}", f"{stored:,} of its {blob.size:,} bytes are stored")
