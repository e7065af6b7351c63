"""Files of scenarios: TOML or JSON written by hand, and recorded JSON lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from ..core.book import Standing
from ..core.config import RingConfig
from ..core.errors import ConfigRefused, InvalidInput, InvalidWeight
from ..core.priority import REGULAR, check_priority
from ..core.weight import Weight
from .scenario import Arrival, Policy, Scenario, Source

#: Largest number of origins for which one entry stands.
MOST_ORIGINS = 10_000
Read = TypeVar("Read")

_SCENARIO = {"name", "blocks", "seed", "order", "limit", "ring", "origin", "policy"}
_ORIGIN = {
    "name",
    "count",
    "rate",
    "steady",
    "burst",
    "first",
    "last",
    "size",
    "weight",
    "share",
    "least",
    "most",
    "ordered",
    "priority",
}
_POLICY = {"name", "order", "limit", "shares", "ring"}
_BURST = {"count", "first", "every"}
_ARRIVAL = {"block", "origin", "count", "size", "weight", "priority"}
_HEAD = {"scenario", "name", "blocks", "seed", "ring", "origins"}


def read_scenario(path: str | Path) -> Scenario:
    """Return the scenario of a file: `.toml`, `.json`, or JSON lines."""
    place = Path(path)
    try:
        text = place.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read scenario {str(path)!r}: {error}") from None
    if place.suffix == ".toml":
        return _by_hand(_toml(text), place.stem)
    if place.suffix == ".json":
        return _by_hand(_json(text), place.stem)
    return _lines(text.splitlines(), place.stem)


def write_scenario(scenario: Scenario, path: str | Path) -> None:
    """Write a scenario as JSON lines that `read_scenario` reads."""
    head = {
        "scenario": 1,
        "name": scenario.name,
        "blocks": scenario.blocks,
        "seed": scenario.seed,
        "ring": scenario.ring.to_json(),
        "origins": {origin: _standing_json(standing) for origin, standing in sorted(scenario.standings.items())},
    }
    lines = [head, *map(_arrival_json, scenario.arrivals)]
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    except OSError as error:
        raise InvalidInput(f"cannot write scenario {str(path)!r}: {error}") from None


def _standing_json(standing: Standing) -> dict[str, object]:
    return {name: value for name, value in asdict(standing).items() if value is not None}


def _arrival_json(arrival: Arrival) -> dict[str, object]:
    plain = asdict(arrival)
    if arrival.priority == REGULAR:
        del plain["priority"]
    if arrival.weight is None:
        del plain["weight"]
    return plain


def _toml(text: str) -> object:
    try:
        tomllib = import_module("tomllib")
    except ImportError:
        raise InvalidInput(
            "TOML requires Python 3.11 or later; write the scenario as JSON, with the same names"
        ) from None
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise InvalidInput(f"invalid TOML: {error}") from None


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"invalid JSON: {error}") from None


def _by_hand(given: object, name: str) -> Scenario:
    table = _known(given, _SCENARIO, "a scenario")
    ring = dict(_known(table.get("ring", {}), None, "ring"))
    for short, setting in (("order", "order"), ("limit", "service_weight")):
        if short in table:
            ring[setting] = table[short]
    blocks, seed = _whole(table.get("blocks", 100), "blocks"), _whole(table.get("seed", 0), "seed", 0)
    arrivals: list[Arrival] = []
    standings: dict[str, Standing] = {}
    for entry in _several(table.get("origin", []), "origin"):
        for origin, source, standing in _origins(entry):
            arrivals += source.arrivals(blocks, seed)
            if standing != Standing():
                standings[origin] = standing
    # The first named origin arrives first; within a block, that is the order of the ring.
    arrivals.sort(key=lambda arrival: arrival.block)
    policies = [_policy(entry, at) for at, entry in enumerate(_several(table.get("policy", []), "policy"), 1)]
    return Scenario(
        arrivals, blocks, RingConfig.from_json(ring), standings, policies, seed, str(table.get("name", name))
    )


def _origins(entry: object) -> Iterator[tuple[str, Source, Standing]]:
    given = _known(entry, _ORIGIN, "an origin")
    name = given.get("name")
    if not isinstance(name, str):
        raise InvalidInput("missing name of an origin: expected text")
    many = _whole(given.get("count", 1), "count", most=MOST_ORIGINS)
    burst = _known(given.get("burst", {}), _BURST, "a burst")
    with_burst = {f"burst_{name}": _whole(burst[name], name) for name in ("first", "every") if name in burst}
    source = Source(
        name,
        _number(given.get("rate", 0), "rate"),
        bool(given.get("steady", False)),
        _whole(burst.get("count", 0), "the count of a burst", 0),
        **with_burst,
        first=_whole(given.get("first", 1), "first"),
        last=_whole(given["last"], "last") if "last" in given else None,
        sizes=_list(given.get("size", 100), lambda size: _whole(size, "size")),
        weights=_weights(given["weight"]) if "weight" in given else (),
        priority=check_priority(given.get("priority", REGULAR)),
    )
    standing = _standing(given)
    for number in range(1, many + 1):
        origin = name if many == 1 else f"{name}-{number}"
        yield origin, replace(source, origin=origin), standing


def _standing(given: Mapping[str, object]) -> Standing:
    least, most = (_weight(given[name]) if name in given else None for name in ("least", "most"))
    ordered = given.get("ordered")
    if ordered is not None and not isinstance(ordered, bool):
        raise InvalidInput(f"invalid ordered {ordered!r}: expected true or false")
    return Standing(_whole(given.get("share", 1), "share"), least, most, ordered)


def _policy(entry: object, number: int) -> Policy:
    given = _known(entry, _POLICY, "a policy")
    shares = {
        origin: _whole(share, "share") for origin, share in _known(given.get("shares", {}), None, "shares").items()
    }
    limit = _weight(given["limit"]) if "limit" in given else None
    order = given.get("order")
    if not isinstance(order, (str, type(None))):
        raise InvalidInput(f"invalid order {order!r}: expected text")
    name = given.get("name") or order or f"policy {number}"
    return Policy(str(name), order, limit, shares, _known(given.get("ring", {}), None, "ring"))


def _lines(lines: Iterable[str], name: str) -> Scenario:
    read = [(at, _json_line(line, at)) for at, line in enumerate(lines, 1) if line.strip()]
    head: Mapping[str, object] = {}
    if read and isinstance(read[0][1], dict) and "scenario" in read[0][1]:
        head = _known(read.pop(0)[1], _HEAD, "the first line")
        if head["scenario"] != 1:
            raise InvalidInput(f"unsupported version of a scenario {head['scenario']!r}: this client reads version 1")
    arrivals = [_on_line(at, partial(_arrival, plain)) for at, plain in read]
    standings = {
        origin: _standing(_known(given, _ORIGIN, "an origin"))
        for origin, given in _known(head.get("origins", {}), None, "origins").items()
    }
    return Scenario(
        arrivals,
        _whole(head.get("blocks", 0), "blocks", 0),
        RingConfig.from_json(_known(head.get("ring", {}), None, "ring")),
        standings,
        (),
        _whole(head.get("seed", 0), "seed", 0),
        str(head.get("name", name)),
    )


def _arrival(given: object) -> Arrival:
    table: dict[str, Any] = dict(_known(given, _ARRIVAL, "an arrival"))
    if not {"block", "origin"} <= set(table):
        raise InvalidInput("incomplete arrival: expected block and origin")
    if "weight" in table:
        table["weight"] = _weight(table["weight"])
    return Arrival(**table)


def _json_line(line: str, number: int) -> object:
    return _on_line(number, partial(_json, line))


def _on_line(number: int, read: Callable[[], Read]) -> Read:
    try:
        return read()
    except InvalidInput as error:
        raise InvalidInput(f"line {number}: {error}") from None


def _known(given: object, names: set[str] | None, what: str) -> Mapping[str, object]:
    if not isinstance(given, dict):
        raise InvalidInput(f"invalid {what} {str(given)[:40]!r}: expected a table of names and values")
    unknown = set(given) - names if names is not None else set()
    if unknown:
        raise InvalidInput(
            f"unknown name in {what} {', '.join(sorted(map(str, unknown)))}: expected {', '.join(sorted(names or ()))}"
        )
    return given


def _several(given: object, what: str) -> list[object]:
    if not isinstance(given, list):
        raise InvalidInput(f"invalid {what}: expected a list of tables, [[{what}]]")
    return given


def _list(given: object, read: Callable[[object], Read]) -> list[Read]:
    return [read(part) for part in given] if isinstance(given, list) else [read(given)]


def _weights(given: object) -> list[Weight]:
    alone = isinstance(given, list) and len(given) == 2 and not isinstance(given[0], list)
    return [_weight(given)] if alone or not isinstance(given, list) else [_weight(part) for part in given]


def _weight(given: object) -> Weight:
    try:
        return Weight.of(given)
    except InvalidWeight as error:
        raise ConfigRefused(str(error)) from None


def _whole(given: object, what: str, least: int = 1, most: int = 1 << 53) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not least <= given <= most:
        raise InvalidInput(f"invalid {what} {given!r}: expected a whole number from {least:,} to {most:,}")
    return given


def _number(given: object, what: str) -> float:
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise InvalidInput(f"invalid {what} {given!r}: expected a number")
    return float(given)
