"""Codec: packed values come back equal, and damaged bytes raise `StoreCorrupt`."""

from __future__ import annotations

import sqlite3
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mq import MessageQueue
from airflow_mq.engine.rules.charging import Charge
from airflow_mq.engine.rules.claims import Claim, ClaimRun
from airflow_mq.engine.rules.errors import StoreCorrupt
from airflow_mq.engine.rules.events import EventRun, Fate
from airflow_mq.engine.rules.judging import Decision, Exceeded
from airflow_mq.engine.rules.message import Attributes, Posted
from airflow_mq.engine.rules.orders import Entry
from airflow_mq.engine.rules.outcome import (
    BadFormat,
    Corrupt,
    Done,
    Outcome,
    Overweight,
    StackLimitReached,
    Unsupported,
    Yield,
)
from airflow_mq.engine.rules.page import Note, Slices
from airflow_mq.engine.rules.weight import LARGEST, Weight
from airflow_mq.engine.store import codec, parse, upgrade

U64 = st.integers(0, LARGEST)
SMALL = st.integers(0, 1 << 20)
WEIGHTS = st.builds(Weight, U64, U64)
IDS = st.binary(min_size=32, max_size=32)
ORIGINS = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=20)


@given(st.lists(st.one_of(U64, SMALL, st.just(7))))
def test_numbers(numbers: list[int]) -> None:
    assert codec.unpack_numbers(codec.pack_numbers(numbers)) == (numbers, len(codec.pack_numbers(numbers)))


@given(st.lists(st.lists(U64), max_size=4))
def test_rows_of_numbers_one_after_the_other(rows: list[list[int]]) -> None:
    data, offset, found = b"".join(map(codec.pack_numbers, rows)), 0, []
    for _ in rows:
        row, offset = codec.unpack_numbers(data, offset)
        found.append(row)
    assert (found, offset) == (rows, len(data))


@given(st.lists(st.integers(1, 1 << 30), min_size=1))
def test_lengths(lengths: list[int]) -> None:
    data = codec.pack_lengths(lengths)
    assert codec.unpack_lengths(data, len(lengths), sum(lengths)) == lengths
    for items, size in ((len(lengths) + 1, sum(lengths)), (len(lengths), sum(lengths) + 1)):
        if data:
            with pytest.raises(StoreCorrupt):
                codec.unpack_lengths(data, items, size)


@given(st.lists(st.tuples(st.integers(0, 1 << 62), SMALL, SMALL), min_size=1))
def test_slices(parts: list[tuple[int, int, int]]) -> None:
    slices = Slices(*map(list, zip(*sorted(parts))))
    assert codec.unpack_slices(codec.pack_slices(slices)) == slices


LATER = st.none() | st.integers(1, 1 << 62)
NOTES = st.builds(Note, st.none() | WEIGHTS, SMALL, st.none() | st.integers(0, 1 << 62), LATER, LATER)


@pytest.mark.slow
@given(st.dictionaries(SMALL, NOTES))
def test_notes(notes: dict[int, Note]) -> None:
    assert codec.unpack_notes(codec.pack_notes(notes)) == {item: note for item, note in notes.items() if any(note)}


@given(st.none() | WEIGHTS)
def test_weights(weight: Weight | None) -> None:
    assert codec.unpack_weight(codec.pack_weight(weight)) == weight


@st.composite
def event_runs(draw: st.DrawFn) -> EventRun:
    count = draw(st.integers(1, 5))
    named, weighed = draw(st.booleans()), draw(st.booleans())
    ids = draw(st.lists(IDS, min_size=count, max_size=count)) if named else [b""] * count
    weights = draw(st.lists(WEIGHTS, min_size=count, max_size=count)) if weighed else []
    return EventRun(draw(st.sampled_from(Fate)), "acme", draw(SMALL), draw(SMALL), ids, weights, draw(st.text()))


@given(st.lists(event_runs()))
def test_events(runs: list[EventRun]) -> None:
    assert list(codec.unpack_events("acme", codec.pack_events(runs))) == runs


DECISIONS = st.builds(
    Decision,
    st.none() | st.builds(Exceeded, st.sampled_from(["overweight", "size"]), WEIGHTS),
    WEIGHTS,
    st.none() | IDS,
)


@st.composite
def claims(draw: st.DrawFn) -> Claim:
    runs = []
    for _ in range(draw(st.integers(1, 3))):
        first, count = draw(SMALL), draw(st.integers(1, 5))
        decisions = draw(st.dictionaries(st.integers(first, first + count - 1), DECISIONS))
        weights = draw(st.just([]) | st.lists(WEIGHTS, min_size=count, max_size=count))
        runs.append(ClaimRun(draw(SMALL), first, count, draw(st.booleans()), decisions, weights))
    return Claim(
        draw(ORIGINS), runs, draw(WEIGHTS), draw(st.booleans()), draw(st.none() | WEIGHTS), draw(ORIGINS | st.just(""))
    )


@given(claims())
def test_claims(claim: Claim) -> None:
    assert codec.unpack_claim(claim.origin, codec.pack_claim(claim)) == claim


COUNTS = st.integers(0, 1 << 70)
CHARGES = st.builds(Charge, WEIGHTS, WEIGHTS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)


@given(st.dictionaries(st.tuples(ORIGINS, ORIGINS | st.just("")), CHARGES))
def test_charges(charges: dict[tuple[str, str], Charge]) -> None:
    assert codec.unpack_charges(codec.pack_charges(charges)) == charges


OUTCOMES: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(
        Done, st.booleans(), st.none() | IDS, st.none() | WEIGHTS,
        st.lists(
            st.tuples(
                ORIGINS,
                st.binary(min_size=1),
                st.dictionaries(st.text(), st.text()).map(lambda headers: Attributes(headers=headers)),
            ).map(lambda sent: Posted(*sent))
        ).map(tuple),
    ),
    st.builds(Overweight, WEIGHTS, st.none() | IDS),
    st.builds(Yield, st.text()),
    *(st.builds(kind, st.none() | IDS) for kind in (BadFormat, Corrupt, Unsupported, StackLimitReached)),
)  # fmt: skip


@given(OUTCOMES)
def test_outcomes(outcome: Outcome) -> None:
    stored = codec.read_json(codec.write_json(codec.plain_outcome(outcome)))
    assert codec.outcome_of(stored) == outcome


@given(st.lists(st.builds(Entry, ORIGINS, SMALL, WEIGHTS, SMALL, st.integers(-(1 << 50), 1 << 50), st.text(), SMALL)))
def test_ledgers(entries: list[Entry]) -> None:
    assert codec.unpack_ledger(codec.pack_ledger(entries)) == (entries, {}, {})


# Wrong bytes.


@given(st.binary(max_size=20))
def test_any_bytes_are_numbers_or_raise(data: bytes) -> None:
    # A count of millions is no contradiction in itself, only slow.
    data = data[:3] + bytes(2) + data[5:16] + bytes(2) + data[18:]
    _readable_or_told(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.slow
@given(JSON | st.dictionaries(st.sampled_from(["planned", "runs", "0", "page", "first"]), JSON))
def test_any_json_is_notes_or_claims_or_raises(plain: object) -> None:
    data = codec.write_json(plain)
    for unpack in (codec.unpack_notes, lambda data: codec.unpack_claim("acme", data)):
        with suppress(StoreCorrupt):
            unpack(data)
    with suppress(StoreCorrupt):
        codec.unpack_ledger(zlib.compress(data))


def _readable_or_told(data: bytes) -> None:
    readers: list[Callable[[bytes], object]] = [
        codec.unpack_numbers, codec.unpack_slices, codec.unpack_notes, codec.unpack_weight, codec.read_json,
        lambda data: list(codec.unpack_events("acme", data)), lambda data: codec.unpack_claim("acme", data),
        codec.unpack_ledger,
    ]  # fmt: skip
    for unpack in readers:
        with suppress(StoreCorrupt):
            unpack(data)


@pytest.mark.slow
@given(st.lists(JSON, min_size=1) | st.tuples(st.sampled_from(["done", "overweight", "bad", "yield"]), JSON))
def test_any_json_is_an_outcome_or_raises(plain: list[object]) -> None:
    with suppress(StoreCorrupt):
        codec.outcome_of(plain)


@given(st.lists(U64, min_size=1), st.data())
def test_numbers_cut_short_raise(numbers: list[int], data: st.DataObject) -> None:
    packed = codec.pack_numbers(numbers)
    with pytest.raises(StoreCorrupt):
        codec.unpack_numbers(packed[: data.draw(st.integers(0, len(packed) - 1))])


def test_a_row_of_billions_raises() -> None:
    for data in (struct.pack("<cIQ", b"=", 2**32 - 1, 1), struct.pack("<cIQ", b"B", 2**32 - 1, 0)):
        with pytest.raises(StoreCorrupt):
            codec.unpack_numbers(data)
    run = struct.pack("<BQIIBI", 1, 0, 0, 2**32 - 1, 1, 0)
    with pytest.raises(StoreCorrupt):
        list(codec.unpack_events("acme", run))


@pytest.mark.parametrize("plain", [["nonsense"], ["nonsense", {}]])
def test_an_unknown_outcome_raises(plain: list[object]) -> None:
    with pytest.raises(StoreCorrupt, match="nonsense"):
        codec.outcome_of(plain)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE mq_page SET lengths = x'00'",
        "UPDATE mq_page SET slices = x'3d'",
        "UPDATE mq_page SET notes = x'7b'",
        "UPDATE mq_page SET marks = x'00'",
        "UPDATE mq_inbox SET lengths = x'7a7a7a'",
        "UPDATE mq_inbox SET attributes = x'7b7b'",
        "DELETE FROM mq_inbox",
    ],
)
def test_damage_in_the_store_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "store.db"
    upgrade(parse(f"sqlite:///{path}"))
    with MessageQueue(f"sqlite:///{path}") as queue:
        queue.enqueue_messages("acme", [b"a", b"bb"])
        if "attributes" not in damage:
            # Cut into pages; the attributes of a sender are read then.
            queue.blocks.release(queue.blocks.plan())
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute(damage)
        connection.close()
        seen: list[bytes] = []
        with pytest.raises(StoreCorrupt):
            queue.service_queues(lambda delivery: seen.append(delivery.payload))
            queue.inspect.peek("acme")
        assert seen == []
