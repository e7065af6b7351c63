"""Scenarios as files: TOML or JSON by hand, JSON lines as they are recorded."""

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

#: The largest number of origins that one entry stands for.
MOST_ORIGINS = 10_000
Read = TypeVar("Read")

_SCENARIO = {"name", "blocks", "seed", "order", "limit", "ring", "origin", "policy"}
_ORIGIN = {"name", "count", "rate", "steady", "burst", "first", "last", "size", "weight",
           "share", "least", "most", "ordered", "priority"}  # fmt: skip
_POLICY = {"name", "order", "limit", "shares", "ring"}
_BURST = {"count", "first", "every"}
_ARRIVAL = {"block", "origin", "count", "size", "weight", "priority"}
_HEAD = {"scenario", "name", "blocks", "seed", "ring", "origins"}


def read_scenario(path: str | Path) -> Scenario:
    """A scenario from a file: `.toml`, `.json`, or JSON lines."""
    place = Path(path)
    try:
        text = place.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the scenario {str(path)!r} cannot be read: {error}") from None
    if place.suffix == ".toml":
        return _by_hand(_toml(text), place.stem)
    if place.suffix == ".json":
        return _by_hand(_json(text), place.stem)
    return _lines(text.splitlines(), place.stem)


def write_scenario(scenario: Scenario, path: str | Path) -> None:
    """Write what arrives, as JSON lines that `read_scenario` reads."""
    head = {
        "scenario": 1, "name": scenario.name, "blocks": scenario.blocks, "seed": scenario.seed,
        "ring": scenario.ring.to_json(),
        "origins": {origin: _standing_said(one) for origin, one in sorted(scenario.standings.items())},
    }  # fmt: skip
    lines = [head, *(_arrival_said(one) for one in scenario.arrivals)]
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    except OSError as error:
        raise InvalidInput(f"the scenario cannot be written to {str(path)!r}: {error}") from None


def _standing_said(standing: Standing) -> dict[str, Any]:
    return {name: value for name, value in asdict(standing).items() if value is not None}


def _arrival_said(one: Arrival) -> dict[str, Any]:
    said: dict[str, Any] = {"block": one.block, "origin": one.origin, "count": one.count, "size": one.size}
    if one.weight is not None:
        said["weight"] = list(one.weight)
    return said if one.priority == REGULAR else {**said, "priority": one.priority}


# -- by hand --


def _toml(text: str) -> Any:
    try:
        tomllib = import_module("tomllib")
    except ImportError:
        raise InvalidInput("reading TOML needs Python 3.11; write the scenario as JSON, with the same names") from None
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise InvalidInput(f"this is no TOML: {error}") from None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"this is no JSON: {error}") from None


def _by_hand(said: Any, name: str) -> Scenario:
    told = _known(said, _SCENARIO, "a scenario")
    ring = dict(_known(told.get("ring", {}), None, "ring"))
    for short, setting in (("order", "order"), ("limit", "service_weight")):
        if short in told:
            ring[setting] = told[short]
    blocks, seed = _whole(told.get("blocks", 100), "blocks"), _whole(told.get("seed", 0), "seed", 0)
    arrivals: list[Arrival] = []
    standings: dict[str, Standing] = {}
    for entry in _several(told.get("origin", []), "origin"):
        for origin, source, standing in _origins(entry):
            arrivals += source.arrivals(blocks, seed)
            if standing != Standing():
                standings[origin] = standing
    # Who is named first arrives first; within a block, that is the order of the ring.
    arrivals.sort(key=lambda one: one.block)
    policies = [_policy(entry, at) for at, entry in enumerate(_several(told.get("policy", []), "policy"), 1)]
    return Scenario(arrivals, blocks, RingConfig.from_json(ring), standings, policies, seed,
                    str(told.get("name", name)))  # fmt: skip


def _origins(entry: Any) -> Iterator[tuple[str, Source, Standing]]:
    said = _known(entry, _ORIGIN, "an origin")
    if not isinstance(said.get("name"), str):
        raise InvalidInput("each origin of a scenario has a name")
    many = _whole(said.get("count", 1), "count", most=MOST_ORIGINS)
    burst = _known(said.get("burst", {}), _BURST, "a burst")
    with_burst = {f"burst_{name}": _whole(burst[name], name) for name in ("first", "every") if name in burst}
    source = Source(
        said["name"], _number(said.get("rate", 0), "rate"), bool(said.get("steady", False)),
        _whole(burst.get("count", 0), "the count of a burst", 0), **with_burst,
        first=_whole(said.get("first", 1), "first"),
        last=_whole(said["last"], "last") if "last" in said else None,
        sizes=_list(said.get("size", 100), lambda one: _whole(one, "size")),
        weights=_weights(said["weight"]) if "weight" in said else (),
        priority=check_priority(said.get("priority", REGULAR)),
    )  # fmt: skip
    standing = _standing(said)
    for number in range(1, many + 1):
        origin = said["name"] if many == 1 else f"{said['name']}-{number}"
        yield origin, replace(source, origin=origin), standing


def _standing(said: Mapping[str, Any]) -> Standing:
    least, most = (_weight(said[name]) if name in said else None for name in ("least", "most"))
    ordered = said.get("ordered")
    if ordered is not None and not isinstance(ordered, bool):
        raise InvalidInput(f"ordered is true or false, not {ordered!r}")
    return Standing(_whole(said.get("share", 1), "share"), least, most, ordered)


def _policy(entry: Any, number: int) -> Policy:
    said = _known(entry, _POLICY, "a policy")
    shares = {
        origin: _whole(share, "share") for origin, share in _known(said.get("shares", {}), None, "shares").items()
    }
    limit = _weight(said["limit"]) if "limit" in said else None
    name = said.get("name") or said.get("order") or f"policy {number}"
    return Policy(str(name), said.get("order"), limit, shares, _known(said.get("ring", {}), None, "ring"))


# -- as it is recorded --


def _lines(lines: Iterable[str], name: str) -> Scenario:
    read = [(at, _json_line(line, at)) for at, line in enumerate(lines, 1) if line.strip()]
    head: Mapping[str, Any] = {}
    if read and isinstance(read[0][1], dict) and "scenario" in read[0][1]:
        head = _known(read.pop(0)[1], _HEAD, "the first line")
        if head["scenario"] != 1:
            raise InvalidInput(f"this is a scenario of version {head['scenario']!r}; this client reads version 1")
    arrivals = [_on_line(at, partial(_arrival, one)) for at, one in read]
    standings = {
        origin: _standing(_known(said, _ORIGIN, "an origin"))
        for origin, said in _known(head.get("origins", {}), None, "origins").items()
    }
    return Scenario(
        arrivals, _whole(head.get("blocks", 0), "blocks", 0), RingConfig.from_json(head.get("ring", {})), standings,
        (), _whole(head.get("seed", 0), "seed", 0), str(head.get("name", name)),
    )  # fmt: skip


def _arrival(said: Any) -> Arrival:
    told = dict(_known(said, _ARRIVAL, "an arrival"))
    if not {"block", "origin"} <= set(told):
        raise InvalidInput("an arrival names its block and its origin")
    if "weight" in told:
        told["weight"] = _weight(told["weight"])
    return Arrival(**told)


def _json_line(line: str, number: int) -> Any:
    return _on_line(number, partial(_json, line))


def _on_line(number: int, read: Callable[[], Read]) -> Read:
    try:
        return read()
    except InvalidInput as error:
        raise InvalidInput(f"line {number}: {error}") from None


# -- values --


def _known(said: Any, names: set[str] | None, what: str) -> Mapping[str, Any]:
    if not isinstance(said, dict):
        raise InvalidInput(f"{what} is a table of names and values, not {str(said)[:40]!r}")
    unknown = set(said) - names if names is not None else set()
    if unknown:
        raise InvalidInput(
            f"{what} has no {', '.join(sorted(map(str, unknown)))}; it has {', '.join(sorted(names or ()))}"
        )
    return said


def _several(said: Any, what: str) -> list[Any]:
    if not isinstance(said, list):
        raise InvalidInput(f"{what} is a list of tables: [[{what}]]")
    return said


def _list(said: Any, read: Callable[[Any], Read]) -> list[Read]:
    return [read(one) for one in said] if isinstance(said, list) else [read(said)]


def _weights(said: Any) -> list[Weight]:
    alone = isinstance(said, list) and len(said) == 2 and not isinstance(said[0], list)
    return [_weight(said)] if alone or not isinstance(said, list) else [_weight(one) for one in said]


def _weight(said: Any) -> Weight:
    try:
        return Weight.of(said)
    except InvalidWeight as error:
        raise ConfigRefused(str(error)) from None


def _whole(said: Any, what: str, least: int = 1, most: int = 1 << 53) -> int:
    if isinstance(said, bool) or not isinstance(said, int) or not least <= said <= most:
        raise InvalidInput(f"{what} is a whole number from {least:,} to {most:,}, not {said!r}")
    return said


def _number(said: Any, what: str) -> float:
    if isinstance(said, bool) or not isinstance(said, (int, float)):
        raise InvalidInput(f"{what} is a number, not {said!r}")
    return float(said)
