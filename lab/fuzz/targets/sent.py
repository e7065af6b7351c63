"""Readers of what senders give: origins, keys, weights, headers, lines of JSON, and whole calls."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

from airflow_mq.cli.command import UsageError
from airflow_mq.cli.ndjson import Lines
from airflow_mq.engine.queue.sending.packing import PackedCall
from airflow_mq.engine.rules.config import MOST_HEADERS, RingConfig
from airflow_mq.engine.rules.errors import InvalidInput, NotPermitted
from airflow_mq.engine.rules.message import (
    PLAIN,
    Attributes,
    Message,
    check_address,
    check_headers,
    check_key,
    check_number,
    check_origin,
    check_payload,
    check_text,
    check_visible,
    header_bytes,
    key_digest,
)
from airflow_mq.engine.rules.patterns import Permit
from airflow_mq.engine.rules.priority import book_name, check_priority, origin_of, priority_of
from airflow_mq.engine.rules.units import check_seconds
from airflow_mq.engine.rules.weight import LARGEST, Weight
from airflow_mq.engine.store import codec
from airflow_mq.engine.store.rows import InboxRow, split_heap

from ..draw import Draw
from ..target import Target, attempt

CONFIG = RingConfig(heap_size=4_096)


def check_headers_of(data: bytes) -> None:
    """Check headers, and store them as attributes of a message."""
    draw = Draw(data)
    drawn: object = {
        draw.text(): draw.value(0) if draw.byte() % 8 == 0 else draw.text() for _ in range(draw.byte() % 6)
    }
    given = draw.value() if draw.byte() % 8 == 0 else drawn
    most = draw.pick((MOST_HEADERS, 16, 0))
    headers = attempt(
        lambda: check_headers(given, most, {"carried": "x"} if draw.byte() % 4 == 0 else None), InvalidInput
    )
    assert header_bytes(headers) <= most
    assert codec.read_json(codec.write_json({"headers": headers}))["headers"] == headers


_CHECKS: dict[str, Callable[[object], object]] = {
    "origin": check_origin,
    "visible": lambda value: check_visible(check_origin(value)),
    "key": check_key,
    "text": lambda value: check_text(value, "a text"),
    "number": lambda value: check_number(value, "a number"),
    "seconds": lambda value: check_seconds(value, "time"),
    "priority": check_priority,
    "weight": Weight.of,
    "payload": lambda value: check_payload(value, 1_000),
    "address": check_address,
}


def check_names(data: bytes) -> None:
    """Check a value as an origin, a key, a weight and so on; what is accepted is accepted again, unchanged."""
    draw = Draw(data)
    name = draw.pick(tuple(_CHECKS))
    check = _CHECKS[name]
    value = draw.text() if draw.byte() % 2 else draw.value()
    found = attempt(lambda: check(value), InvalidInput)
    assert check(found) == found
    if name == "weight":
        assert isinstance(found, Weight) and all(0 <= part <= LARGEST for part in found)
    if name in ("origin", "key") and isinstance(found, str):
        assert 1 <= len(found.encode()) <= 1_000 and "\0" not in found
        assert len(key_digest(found, b"x")) == 32
    if name == "origin" and isinstance(found, str):
        for priority in ("regular", "high"):
            book = book_name(found, priority)
            assert (origin_of(book), priority_of(book)) == (found, priority)


def check_permit(data: bytes) -> None:
    """Match an origin with the patterns of a permit."""
    draw = Draw(data)
    patterns, origin = draw.text(), draw.text()
    permit = attempt(lambda: Permit(patterns, draw.pick((None, "regular", draw.text()))), InvalidInput)
    assert attempt(lambda: permit.check_origin(origin), InvalidInput, NotPermitted) == origin


def check_ndjson(data: bytes) -> None:
    """Read lines of JSON; each accepted message reads the same from the line that it makes."""
    lines = Lines(data.splitlines(keepends=True), RingConfig(), "acme")
    try:
        pairs = attempt(lambda: list(lines.pairs()), UsageError)
    except Exception as error:
        _check_without_payload(str(error), data)
        raise
    for origin, message in pairs:
        assert list(Lines([_line(origin, message)], RingConfig()).pairs()) == [(origin, message)]


def _check_without_payload(text: str, data: bytes) -> None:
    """Raise `AssertionError` if the text of an error quotes a payload."""
    for line in data.splitlines():
        try:
            payload = json.loads(line)["payload"]
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        if isinstance(payload, str) and len(payload) >= 12 and data.count(payload.encode("utf-8", "replace")) == 1:
            assert payload not in text, "an error quotes a payload"


def _line(origin: str, message: bytes | Message) -> bytes:
    own = message if isinstance(message, Message) else Message(message)
    fields = {"key": own.key, "weight": own.weight, "headers": own.headers, "priority": own.priority}
    given = {name: value for name, value in fields.items() if value is not None}
    if isinstance(message, Message) and not given:
        given = {"key": None}
    return json.dumps({"origin": origin, "payload_base64": base64.b64encode(own.payload).decode(), **given}).encode()


def _drawn_message(draw: Draw) -> object:
    payload = draw.binary() or b"x"
    kind = draw.byte() % 6
    if kind <= 2:
        return payload
    if kind == 3:
        return draw.value()
    key = draw.text() if draw.byte() % 2 else None
    weight = draw.value() if draw.byte() % 3 == 0 else None
    headers = {draw.text(): draw.text()} if draw.byte() % 2 else None
    return Message(payload, key, weight, headers, draw.pick((None, "high", "regular")))  # type: ignore[arg-type]


def check_sender(data: bytes) -> None:
    """Pack the messages of a call into inbox rows, and read the rows."""
    draw = Draw(data)
    common = Attributes(headers={"c": draw.text()}) if draw.byte() % 4 == 0 else PLAIN
    pairs = [(draw.pick(("acme", "bolt", draw.text())), _drawn_message(draw)) for _ in range(draw.byte() % 8)]

    def pack() -> list[InboxRow]:
        return list(PackedCall(CONFIG, common).pack(pairs).rows())  # type: ignore[arg-type]

    sent: dict[str, list[bytes]] = {}
    for row in attempt(pack, InvalidInput):
        payloads = split_heap(row.heap, row.size, row.items, row.lengths)
        sent.setdefault(row.origin, []).extend(payloads)
        assert not row.attributes or isinstance(codec.read_json(row.attributes), dict)
    expected: dict[str, list[bytes]] = {}
    for origin, message in pairs:
        own = message if isinstance(message, Message) else Message(bytes(message))  # type: ignore[call-overload]
        expected.setdefault(book_name(origin, own.priority or "regular"), []).append(bytes(own.payload))
    # A message with a key leaves at once, so that it may overtake plain ones of its call only in its row.
    assert {name: sorted(found) for name, found in sent.items()} == {
        name: sorted(found) for name, found in expected.items()
    }


MESSAGE = (
    "airflow_mq.engine.rules.message",
    "airflow_mq.engine.rules.priority",
    "airflow_mq.engine.rules.weight",
    "airflow_mq.engine.rules.characters",
)
TARGETS = (
    Target(
        "headers", (*MESSAGE, "airflow_mq.engine.store.codec"), "InvalidInput", "accepted headers are stored as they are",
        check_headers_of, (b"\2\1a\1\1b\1c\1\2dd\1\0", b"\1\4\xc3\xa4bc\1\3\xf0\x9f\x98", b"\0\0\5"),
    ),
    Target(
        "names", MESSAGE, "InvalidInput", "an accepted origin, key, weight or priority is accepted again, unchanged",
        check_names,
        (
            *(bytes([at, 1, 9]) + text for at in range(10) for text in (b"acme/eu/1", b"\xe2\x80\x8bab")),
            b"\7\0\6\2\3\1\7\3\1\x09", b"\7\0\7\2\4time\3\1\5\4size\3\1\7",
        ),
    ),
    Target(
        "permit", ("airflow_mq.engine.rules.patterns", *MESSAGE), "InvalidInput, NotPermitted",
        "an origin is returned as it was given, or refused", check_permit,
        (b"\x0bacme|acme/*\7acme/eu", b"\6[a-c]?\2bx", b"\4[!a]\1b\1", b"\x09*a*a*a*b*\x08aaaaaaaa"),
    ),
    Target(
        "ndjson", ("airflow_mq.cli.ndjson", *MESSAGE), "UsageError, without the payload",
        "an accepted message is read again as it was", check_ndjson,
        (
            b'{"payload":"an order"}\n\n{"origin":"bolt","payload_base64":"AP8=","key":"k","weight":[1,2]}\n',
            b'{"payload":"x","headers":{"a":"b"},"priority":"high","weight":{"time":1,"size":2}}',
            b'{"payload":"a secret of a tenant","payload_base64":"x"}', b'{"payload":"\\ud800"}', b"[1]", b"\xef\xbb\xbf{}",
        ),
    ),
    Target(
        "sender", ("airflow_mq.engine.queue.sending.packing", "airflow_mq.engine.store.codec", *MESSAGE), "InvalidInput",
        "packed rows hold the messages of the call", check_sender,
        (
            b"\1\3\0\0\5order\0\1\1\2xy\2\1a\0\0\1b\0", b"\1\2\0\0\3abc\4\1\1k\1\1\1h\1v\1", b"\0\1x\2\0\0\xfaz\0\0\xffz\0",
            b"\1\4\0\0\2ab\5\0\1\1\1h\2vv\1\0\0\2cd\5\0\1\0\0\2",
        ),
    ),
)  # fmt: skip
