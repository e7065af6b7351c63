"""Bills: every change is detected, and a proof holds for one tenant without the data of others."""

from __future__ import annotations

import contextlib
import copy
import json
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_mq.bills import (
    FORMAT,
    Header,
    Leaf,
    WrongBill,
    bill_of,
    canonical,
    content_of,
    leaf_hash,
    path_of,
    root_of,
    rows_of,
    verify,
)
from airflow_mq.errors import MessageQueueError

BEFORE = bytes(range(32))
PLACE = (BEFORE.hex(), "default", "acme")
TARIFF = {"currency": "EUR", "places": 6, "prices": [{"from": "2026-01-01", "time": "1.20", "size": "0.05"}]}


def entry(block: int | None, charged: tuple[int, int] = (36_000, 1 << 20), **other: Any) -> dict[str, Any]:
    return {
        "block": block, "origin": "acme/orders", "priority": "regular", "processor": "orders:process",
        "planned": [30_000, 1 << 20], "charged": list(charged), "measured": 5, "messages": 100, "bytes": 1 << 20,
        "attempts": 101, "set_aside": 1, **other,
    }  # fmt: skip


def month(entries: int = 2, tenants: int = 5) -> tuple[dict[str, Any], list[Header]]:
    """Return the bill of one tenant for three days, on the second of which it sent nothing."""
    draw, before = random.Random(3), BEFORE
    headers, leaves = [], []
    for number in (1, 2, 3):
        day = f"2026-11-{number:02}"
        own = [entry(number * 100_000 + place) for place in range(entries)]
        salts = [draw.randbytes(32) for _ in range(tenants)]
        hashes = [leaf_hash(salt, canonical(f"other {place}")) for place, salt in enumerate(salts)]
        index = number % tenants
        if number != 2:
            data = canonical(content_of(*PLACE, day, TARIFF, own))
            hashes[index] = leaf_hash(salts[index], data)
        rows = rows_of(hashes)
        header = Header(day, before, rows[-1][0], len(hashes))
        headers.append(header)
        before = header.hash
        if number != 2:
            leaves.append(Leaf(index, salts[index], path_of(rows, index), data))
    return bill_of(*PLACE, "2026-11", headers, leaves), headers


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*path, key))


def changed(value: Any) -> list[Any]:
    if isinstance(value, int):
        return [value + 1, str(value), None, -1, float(value)]
    if isinstance(value, str):
        last = "0" if value[-1:] != "0" else "1"
        return [value[:-1] + last, value + "x", value.upper() + " ", "", None, 7]
    if isinstance(value, list):
        return [[*value, *value[:1]], value[:-1], value[::-1], None, {}] if value else [[1], None]
    if isinstance(value, dict):
        return [{**value, "more": 1}, dict(list(value.items())[1:]), None, []]
    return [0, ""]


def test_a_bill_is_proven_by_the_last_published_header() -> None:
    bill, headers = month()
    text = json.dumps(bill, indent=2)
    found = verify(text, [headers[-1].hash])
    assert found.is_proven and found.days == 2 and found.tenant == "acme"
    assert found.total == {
        "time": 144_000, "size": 4 << 20, "messages": 400, "costs": {"EUR": "0.048195"},
    }  # fmt: skip
    # Without a header, and with an earlier one, the bill is consistent only.
    assert not verify(text).is_proven and not verify(text, [headers[0].hash]).is_proven
    # Nor does the last header of the month before prove more.
    assert verify(text, [headers[0].before, headers[-1].hash]).is_proven
    assert not verify(text, [headers[0].before]).is_proven
    with pytest.raises(WrongBill, match="does not lead to the published header"):
        verify(text, [b"x" * 32])
    assert "other" not in text


def test_every_change_of_a_single_field_is_detected() -> None:
    bill, headers = month()
    tried = 0
    for path in places(bill):
        holder: Any = bill
        for key in path[:-1]:
            holder = holder[key]
        for value in changed(holder[path[-1]]):
            if value == holder[path[-1]] and type(value) is type(holder[path[-1]]):
                continue
            other = copy.deepcopy(bill)
            inner: Any = other
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
            with pytest.raises(WrongBill):
                verify(json.dumps(other), [headers[-1].hash])
                raise AssertionError(f"{path}: {value!r} was not detected")
            tried += 1
    assert tried > 400


def test_unknown_fields_repeated_fields_and_two_leaves_of_a_day_are_refused() -> None:
    bill, headers = month()
    for text, why in (
        (json.dumps({**bill, "note": 1}), "unknown or missing fields"),
        (json.dumps(bill).replace('"index": 1', '"index": 1, "index": 1', 1), "given twice"),
        (json.dumps({**bill, "days": [bill["days"][0], *bill["days"]]}), "two leaves of one day"),
        (json.dumps(bill).replace("100000", "100000.0", 1), "expected whole numbers"),
        (json.dumps({**bill, "tenant": "\ud800"}), "not what was published"),
        (json.dumps(bill).replace('"leaves": 5', f'"leaves": {1 << 64}', 1), "expected a whole number"),
        (json.dumps(bill).replace("2026-11-03", "9999-12-31"), "does not follow the one before it"),
    ):
        with pytest.raises(WrongBill, match=why):
            verify(text, [headers[-1].hash])
    last = {**bill["headers"][0], "day": "9999-12-31", "before": bill["store"]}
    with pytest.raises(WrongBill, match="does not follow the one before it"):
        verify(json.dumps({**bill, "month": "9999-12", "headers": [last, last]}))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("price", ["1e99999999", "1E-99999999", "9" * 4_000, "-1", "NaN", "Infinity", "1_0", "", " 1"])
def test_prices_of_a_hostile_bill_cost_no_time(price: str) -> None:
    tariff = {"currency": "EUR", "prices": [{"from": "2026-01-01", "time": price, "size": "0"}]}
    salt, data = bytes(32), canonical(content_of(*PLACE, "2026-11-01", tariff, [entry(1)]))
    header = Header("2026-11-01", BEFORE, leaf_hash(salt, data), 1)
    plain = {"day": "2026-11-01", "salt": salt.hex(), "index": 0, "path": [], "tariff": tariff, "entries": [entry(1)]}
    named = dict(zip(("store", "ring", "tenant"), PLACE))
    bill = {"format": FORMAT, **named, "month": "2026-11", "headers": [header.plain()], "days": [plain], "total": {}}
    with pytest.raises(WrongBill, match="wrong tariff"):
        verify(json.dumps(bill))


def test_values_that_are_nested_too_deeply_are_refused() -> None:
    nested: list[Any] = []
    for _ in range(5_000):
        nested = [nested]
    with pytest.raises(WrongBill, match="nested too deeply"):
        canonical(nested)
    bill, _ = month()
    bill["days"][0]["tariff"] = "here"
    text = json.dumps(bill).replace('"here"', "[" * 5_000 + "]" * 5_000)
    with pytest.raises(MessageQueueError, match=r"nested too deeply|cannot be read"):
        verify(text)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 8, 9, 31, 32, 33])
def test_paths_of_all_leaves(count: int) -> None:
    leaves = [leaf_hash(bytes([place]) * 32, canonical({"n": place})) for place in range(count)]
    rows = rows_of(leaves)
    for place, leaf in enumerate(leaves):
        path = path_of(rows, place)
        assert root_of(leaf, place, count, path) == rows[-1][0]
        for wrong in (place ^ 1, place + 1):
            if wrong < count:
                with contextlib.suppress(WrongBill):
                    assert root_of(leaf, wrong, count, path) != rows[-1][0]
        with pytest.raises(WrongBill):
            root_of(leaf, place, count, [*path, leaf])
    # A tree with one leaf more, equal to the last one, has another root.
    assert rows_of([*leaves, leaves[-1]])[-1][0] != rows[-1][0]


def test_no_node_passes_for_a_leaf() -> None:
    left, right = (leaf_hash(bytes([place]) * 32, b"{}") for place in (1, 2))
    root = rows_of([left, right])[-1][0]
    assert root not in (left, right, leaf_hash(left, right))
    assert Header("2026-11-01", left, right, 2).hash not in (root, leaf_hash(left, b"2026-11-01" + right))


def test_canonical_text() -> None:
    assert canonical({"b": [1, None], "a": "ü"}) == '{"a":"ü","b":[1,null]}'.encode()
    for value in (1.5, True, float("nan"), {1: 2}, (1,)):
        with pytest.raises(WrongBill):
            canonical(value)


@pytest.mark.slow
def test_a_million_messages_in_ten_thousand_blocks() -> None:
    bill, headers = month(entries=5_000, tenants=1_000)
    assert bill["total"]["messages"] == 1_000_000
    text, began = json.dumps(bill), time.process_time()
    assert verify(text, [headers[-1].hash]).is_proven
    assert time.process_time() - began < 10
