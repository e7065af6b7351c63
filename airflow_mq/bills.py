"""Bills that tenants can verify: what a tenant was charged each day, and a proof that this was published.

A closed day has one leaf for each tenant: the hash of a random salt and of all that the bill reports of this day. The
leaves of a day make a tree with one root. The header of a day is the hash of the header before it, the day, the root
and the number of leaves. Headers are published; a tenant that kept one can prove that no leaf before it has changed.

    leaf    SHA-256(0x00, salt, canonical JSON of the leaf)
    node    SHA-256(0x01, left, right); the last node of an odd row goes up as it is
    header  SHA-256(0x02, header before, day, root, number of leaves)

The first header follows 32 random bytes, by which all leaves name their store.

A bill proves inclusion, and that nothing changed since the publication. It cannot prove that measurements were true.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, timedelta
from fractions import Fraction
from hashlib import sha256
from typing import Any, NamedTuple

from .engine.rules.errors import InvalidInput, MessageQueueError
from .engine.rules.weight import Weight
from .tariff import Tariff

FORMAT = "airflow-mq bill 1"
SALT_BYTES = 32
#: The root of a day without leaves.
NOTHING = bytes(32)
EPOCH = date(1970, 1, 1)
#: First bytes of what is hashed, so that no leaf, node or header passes for another.
_LEAF, _NODE, _HEADER = b"\x00", b"\x01", b"\x02"
#: Fields of each object of a bill, all of which have to be there, and no others.
BILL = ("format", "store", "ring", "tenant", "month", "headers", "days", "total")
HEADER = ("day", "before", "root", "leaves")
DAY = ("day", "salt", "index", "path", "tariff", "entries")
ENTRY = (
    "block", "origin", "priority", "processor", "planned", "charged", "measured", "messages", "bytes", "attempts",
    "set_aside",
)  # fmt: skip


class WrongBill(MessageQueueError):
    """The bill contradicts itself, or a published header."""


class Header(NamedTuple):
    """The published end of a day."""

    day: str
    before: bytes
    root: bytes
    leaves: int

    @property
    def hash(self) -> bytes:
        """The hash that is published."""
        return sha256(_HEADER + self.before + self.day.encode() + self.root + self.leaves.to_bytes(8, "big")).digest()

    def plain(self) -> dict[str, Any]:
        """Return the fields as a bill shows them."""
        return {**self._asdict(), "before": self.before.hex(), "root": self.root.hex()}


class Verified(NamedTuple):
    """A bill that is consistent, and whether it is also proven."""

    tenant: str
    month: str
    total: Mapping[str, Any]
    days: int
    #: Whether a published header confirms it.
    is_proven: bool


def canonical(value: object) -> bytes:
    """Return the one JSON text of a value: sorted names, no spaces, UTF-8, whole numbers only."""
    try:
        _refuse_other(value)
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
    except RecursionError:
        raise WrongBill("a value is nested too deeply") from None
    return text.encode("utf-8", "surrogatepass")


def _refuse_other(value: object) -> None:
    if isinstance(value, dict):
        for name, inner in value.items():
            if not isinstance(name, str):
                raise WrongBill(f"invalid name {name!r:.80}: expected text")
            _refuse_other(inner)
    elif isinstance(value, list):
        for inner in value:
            _refuse_other(inner)
    elif value is not None and type(value) not in (str, int):
        raise WrongBill(f"invalid value {value!r:.80}: expected text, a whole number, or a list or object of these")


def leaf_hash(salt: bytes, data: bytes) -> bytes:
    """Return the hash of the canonical JSON of what a bill reports of a day."""
    if len(salt) != SALT_BYTES:
        raise WrongBill(f"invalid salt of {len(salt)} bytes: expected {SALT_BYTES}")
    return sha256(_LEAF + salt + data).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return sha256(_NODE + left + right).digest()


def rows_of(leaves: Sequence[bytes]) -> list[list[bytes]]:
    """Return the rows of a tree, from its leaves to its root."""
    rows = [list(leaves) or [NOTHING]]
    while len(row := rows[-1]) > 1:
        odd = row[len(row) & ~1 :]
        rows.append([_node(*row[place : place + 2]) for place in range(0, len(row) - 1, 2)] + odd)
    return rows


def path_of(rows: Sequence[Sequence[bytes]], index: int) -> list[bytes]:
    """Return the hashes beside the way from a leaf to the root."""
    beside = [(row, (index >> level) ^ 1) for level, row in enumerate(rows[:-1])]
    return [row[place] for row, place in beside if place < len(row)]


def root_of(leaf: bytes, index: int, leaves: int, path: Sequence[bytes]) -> bytes:
    """Return the root to which a path leads from a leaf."""
    if not 0 <= index < leaves:
        raise WrongBill(f"invalid place {index} of a leaf: the day has {leaves:,} leaves")
    left = list(path)
    while leaves > 1:
        if index ^ 1 < leaves:
            if not left:
                raise WrongBill("a path is too short for its tree")
            other = left.pop(0)
            leaf = _node(other, leaf) if index & 1 else _node(leaf, other)
        index, leaves = index >> 1, (leaves + 1) >> 1
    if left:
        raise WrongBill("a path is too long for its tree")
    return leaf


# Sums.


def total_of(days: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sums of a bill: charged time and bytes, messages, and the cost by currency, rounded once."""
    time = size = messages = 0
    costs: dict[str, tuple[Tariff, Fraction]] = {}
    for day in days:
        own = Weight(*(sum(entry["charged"][part] for entry in day["entries"]) for part in (0, 1)))
        time, size, messages = time + own.time, size + own.size, messages + sum(e["messages"] for e in day["entries"])
        if day["tariff"] is not None:
            tariff = Tariff.from_json(day["tariff"])
            _, cost = costs.get(tariff.currency, (tariff, Fraction(0)))
            costs[tariff.currency] = tariff, cost + tariff.cost(date.fromisoformat(day["day"]), own)
    shown = {currency: str(tariff.rounded(cost)) for currency, (tariff, cost) in costs.items()}
    return {"time": time, "size": size, "messages": messages, "costs": shown}


# Making and verifying.


class Leaf(NamedTuple):
    """Content that a bill reports of a closed day, as canonical JSON, and where it is in the tree of the day."""

    place: int
    salt: bytes
    path: Sequence[bytes]
    data: bytes

    def leads_to(self, header: Header) -> bool:
        """Return whether it is in the tree of a day."""
        with suppress(WrongBill):
            return root_of(leaf_hash(self.salt, self.data), self.place, header.leaves, self.path) == header.root
        return False


def content_of(store: str, ring: str, tenant: str, day: str, tariff: object, entries: object) -> dict[str, Any]:
    """Return what is hashed of a day."""
    return {"store": store, "ring": ring, "tenant": tenant, "day": day, "tariff": tariff, "entries": entries}


def bill_of(
    store: str, ring: str, tenant: str, month: str, headers: Iterable[Header], leaves: Iterable[Leaf]
) -> dict[str, Any]:
    """Return the bill of one tenant and month."""
    days = []
    for leaf in leaves:
        content = json.loads(leaf.data)
        shown = {name: content[name] for name in ("day", "tariff", "entries")}
        days.append({**shown, "salt": leaf.salt.hex(), "index": leaf.place, "path": [one.hex() for one in leaf.path]})
    named = {"format": FORMAT, "store": store, "ring": ring, "tenant": tenant, "month": month}
    return {**named, "headers": [header.plain() for header in headers], "days": days, "total": total_of(days)}


def verify(text: str | bytes, published: Iterable[bytes] = ()) -> Verified:
    """Recompute a bill from its text alone, and raise `WrongBill` at the first contradiction.

    :param published: hashes of headers that were published, of this month or of the day before. The bill is proven if
        its last header is one of them, because that depends on all others.
    """
    wanted = set(published)
    for root in wanted:
        if len(root) != len(NOTHING):
            raise InvalidInput(f"invalid header {root.hex()!r:.80}: expected 64 hexadecimal digits")
    bill = _object(_parsed(text), BILL, "the bill")
    if bill["format"] != FORMAT:
        raise WrongBill(f"unknown format {bill['format']!r:.80}: expected {FORMAT!r}")
    for name in ("store", "ring", "month"):
        _text(bill[name], name)
    # The first part of an origin such as `/acme` is empty.
    _text(bill["tenant"], "tenant", 0)
    headers = _headers(bill)
    days = _each(bill["days"], DAY, "a day")
    for day in days:
        _check_day(bill, day, headers)
    if [day["day"] for day in days] != sorted({day["day"] for day in days}):
        raise WrongBill("two leaves of one day, or days that are not in order")
    try:
        total = total_of(days)
    except InvalidInput as error:
        raise WrongBill(f"wrong tariff: {error}") from None
    if canonical(bill["total"]) != canonical(total):
        raise WrongBill(f"wrong total {bill['total']!r:.200}: its entries add up to {total}")
    last = list(headers.values())[-1].hash
    known = {next(iter(headers.values())).before, *(header.hash for header in headers.values())}
    if unknown := wanted - known:
        raise WrongBill(f"the bill does not lead to the published header {min(unknown).hex()} (of its month?)")
    return Verified(bill["tenant"], bill["month"], total, len(days), last in wanted)


def _headers(bill: Mapping[str, Any]) -> dict[str, Header]:
    """Return the headers by day: a chain of all days of the month up to the last one, or from the store's first."""
    found: dict[str, Header] = {}
    last: Header | None = None
    for one in _each(bill["headers"], HEADER, "a header"):
        header = Header(_day(one["day"]), _hash(one["before"]), _hash(one["root"]), _number(one["leaves"], 1 << 64))
        if last is None:
            follows = header.day == f"{bill['month']}-01" or header.before == _hash(bill["store"])
        else:
            days = date.fromisoformat(header.day) - date.fromisoformat(last.day)
            follows = header.before == last.hash and days == timedelta(1)
        if not follows or header.day[:7] != bill["month"]:
            raise WrongBill(f"the header of {header.day} does not follow the one before it")
        last = found[header.day] = header
    if not found:
        raise WrongBill("the bill has no header: expected those of the month's closed days")
    return found


def _check_day(bill: Mapping[str, Any], day: Mapping[str, Any], headers: Mapping[str, Header]) -> None:
    header = headers.get(_day(day["day"]))
    if header is None:
        raise WrongBill(f"{day['day']} has no header")
    for entry in _each(day["entries"], ENTRY, "an entry"):
        _check_entry(entry)
    if not isinstance(day["path"], list):
        raise WrongBill("invalid path: expected a list")
    salt, path = _hash(day["salt"]), [_hash(one) for one in day["path"]]
    place = (bill["store"], bill["ring"], bill["tenant"])
    data = canonical(content_of(*place, day["day"], day["tariff"], day["entries"]))
    if not Leaf(_number(day["index"]), salt, path, data).leads_to(header):
        raise WrongBill(f"what the bill reports of {day['day']} is not what was published")


def _check_entry(entry: Mapping[str, Any]) -> None:
    for name in ("origin", "priority"):
        _text(entry[name], name)
    # Messages that a program serviced in place have none.
    _text(entry["processor"], "processor", 0)
    for name in ("planned", "charged"):
        if not isinstance(entry[name], list) or len(entry[name]) != 2:
            raise WrongBill(f"invalid {name} {entry[name]!r:.80}: expected time and size")
        list(map(_number, entry[name]))
    for name in ("measured", "messages", "bytes", "attempts", "set_aside"):
        _number(entry[name])
    if entry["block"] is not None:
        _number(entry["block"])


def _parsed(text: str | bytes) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_float=_refused, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the bill cannot be read: {error}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise WrongBill("a field is given twice")
    return found


def _refused(text: str) -> Any:
    raise WrongBill(f"invalid number {text:.40}: expected whole numbers")


def _object(value: Any, fields: Sequence[str], what: str) -> dict[str, Any]:
    if not isinstance(value, dict) or value.keys() != set(fields):
        names = sorted(set(value) ^ set(fields)) if isinstance(value, dict) else []
        raise WrongBill(f"{what} has unknown or missing fields ({', '.join(names)[:200]})")
    return value


def _each(value: Any, fields: Sequence[str], what: str) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise WrongBill(f"invalid value in place of a list: {what} was expected in it")
    return [_object(one, fields, what) for one in value]


def _refuse(value: object, what: str, expected: str) -> None:
    raise WrongBill(f"invalid {what} {value!r:.80}: expected {expected}")


def _text(value: Any, what: str, least: int = 1) -> str:
    if not isinstance(value, str) or len(value) < least:
        _refuse(value, what, "text")
    return str(value)


def _number(value: Any, above: int = 1 << 80) -> int:
    if type(value) is not int or not 0 <= value < above:
        _refuse(value, "number", "a whole number")
    return int(value)


def _day(value: Any) -> str:
    try:
        is_day = isinstance(value, str) and date.fromisoformat(value).isoformat() == value
    except ValueError:
        is_day = False
    if not is_day:
        _refuse(value, "day", "one such as 2026-11-28")
    return str(value)


def _hash(value: Any) -> bytes:
    if not isinstance(value, str) or len(value) != 64 or value.strip("0123456789abcdef"):
        _refuse(value, "hash", "64 hexadecimal digits")
    return bytes.fromhex(value)
