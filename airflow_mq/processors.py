"""Who processes what: processors, and the rules that lead an origin to one of them.

A processor is a plain function, named and not held: `orders:process` is loaded where it runs, never
where a DAG is parsed. Rules are patterns of origins, and the first processor that matches takes an
origin, all of it, so that the order within an origin survives however the work is split. ::

    Processors([
        Processor("orders", "shop.orders:process", origins=("*/orders",), split=4),
        Processor("totals", "shop.totals:add_up", origins=("*/totals",), shape="arrow"),
        Processor("mail", "shop.mail:send", where="in place"),
    ])

The shapes of a function:

* `message`: `f(payload: bytes, origin: str)` returns an outcome; nothing returned means done. With a third parameter
  `message` it also gets the `Delivery`: id, address, attempt, headers, block, sent_at. What it
  raises is an attempt that failed: the message goes back, and its neighbours are not concerned. With a `codec`
  (`shop.orders:Order`) it takes a value; what does not decode is wrong for good, and never gets there.
* `arrow`: `f(batches)` takes an iterator of record batches with the columns origin, page, item, payload, headers, id,
  address, attempt, sent_at and block, and gives batches with origin, page, item and outcome: `done` or null, `failed`,
  `yield`, `overweight`, `bad`, `corrupt`, `unsupported` or `stack`. Further columns, if it likes: `reason`
  (of a yield), `time` and `size` (what was used, or what an overweight message needs).
* `dataframe`: `f(df)` takes a DataFrame of the same columns and gives one of the same outcomes, or
  nothing if all are done. If it raises, all of its messages go back and the job fails.

A batch that is silent about a message has not processed it: it goes back, and that counts as an attempt.

This module is imported while DAGs are parsed: it loads nothing but the standard library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from typing import Any, TypedDict
from zlib import crc32

from .core.errors import InvalidInput

SHAPES = ("message", "arrow", "dataframe")
WHERE = ("spark", "in place")
UNROUTED = ("skip", "pause", "refuse")
#: More jobs at once than this are hardly meant.
MOST_SPLIT = 1000
_NAME = re.compile(r"[a-z0-9_-]{1,40}")
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
#: What a job says itself, and nobody else may.
_RESERVED = ("application", "application_args", "task_id")
_FIELDS = ("name", "function", "origins", "shape", "where", "codec", "split", "spark")


class Part(TypedDict):
    """The work of one job: plain JSON. Its origins are not told; the job asks its block, and keeps what is its own."""

    #: For people: `orders`, `orders 1/2`, or `mail + totals` where processors share a job.
    name: str
    processors: list[str]
    part: int
    parts: int
    messages: int
    where: str


@dataclass(frozen=True)
class Processor:
    """One function, and whose messages it takes."""

    #: a to z, 0 to 9, `_` and `-`, at most 40 of them.
    name: str
    #: `module:function`, loaded where it runs.
    function: str
    #: Shell patterns of origins, in which upper and lower case differ.
    origins: Sequence[str] = ("*",)
    #: `message`, `arrow` or `dataframe`.
    shape: str = "message"
    #: `spark`, or `in place`: in the process of the task itself, without any JVM.
    where: str = "spark"
    #: `module:codec`, or `module:Type`, loaded where the function runs: it takes values in the place of bytes.
    codec: str | None = None
    #: How many jobs there are at most at once.
    split: int = 1
    #: Arguments for `SparkSubmitOperator`: conf, driver_memory, py_files, packages and so on.
    spark: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _is_text(self.name, _NAME):
            raise InvalidInput(f"the name of a processor is 1 to 40 of a-z, 0-9, _ and -, not {_short(self.name)}")
        self._check_function()
        self._check_origins()
        self._check_choice("shape", SHAPES)
        self._check_choice("where", WHERE)
        if self.where == "in place" and self.shape == "dataframe":
            raise InvalidInput(f"processor {self.name!r} cannot run in place: a DataFrame needs Spark")
        if not _is_whole(self.split) or not 1 <= self.split <= MOST_SPLIT:
            raise InvalidInput(
                f"split of processor {self.name!r} is a whole number from 1 to {MOST_SPLIT}, not {_short(self.split)}"
            )
        self._check_codec()
        self._check_spark()

    def _check_codec(self) -> None:
        if self.codec is None:
            return
        if not _is_text(self.codec, _FUNCTION):
            raise InvalidInput(
                f"the codec of processor {self.name!r} reads module:name, say shop.orders:Order, not "
                f"{_short(self.codec)}"
            )
        if self.shape != "message":
            raise InvalidInput(f"processor {self.name!r} takes rows; a codec goes with the shape 'message'")

    def _check_function(self) -> None:
        if not _is_text(self.function, _FUNCTION):
            raise InvalidInput(
                f"the function of processor {self.name!r} reads module:function, say shop.orders:process, "
                f"not {_short(self.function)}"
            )

    def _check_origins(self) -> None:
        given: object = self.origins
        patterns = (given,) if isinstance(given, str) else given
        if not isinstance(patterns, (list, tuple)) or not patterns:
            raise InvalidInput(f"origins of processor {self.name!r} are patterns, say ['acme/*'], not {_short(given)}")
        for pattern in patterns:
            if not isinstance(pattern, str) or not 1 <= len(pattern) <= 255:
                raise InvalidInput(
                    f"a pattern of processor {self.name!r} is text of 1 to 255 characters, not {_short(pattern)}"
                )
        object.__setattr__(self, "origins", tuple(patterns))

    def _check_choice(self, what: str, known: Sequence[str]) -> None:
        if getattr(self, what) not in known:
            raise InvalidInput(
                f"{what} of processor {self.name!r} is {' or '.join(map(repr, known))}, "
                f"not {_short(getattr(self, what))}"
            )

    def _check_spark(self) -> None:
        given: object = self.spark
        if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
            raise InvalidInput(f"spark of processor {self.name!r} is arguments by name, not {_short(given)}")
        for name in _RESERVED:
            if name in given:
                raise InvalidInput(f"spark of processor {self.name!r} cannot name {name}: the job says that itself")
        if given and self.where == "in place":
            raise InvalidInput(f"processor {self.name!r} runs in place, so spark says nothing to anybody; leave it out")
        object.__setattr__(self, "spark", dict(given))

    def __hash__(self) -> int:
        return hash((self.name, self.function))

    def to_plain(self) -> dict[str, Any]:
        """As JSON has it; what is left at its default is left out."""
        said = {name: getattr(self, name) for name in _FIELDS}
        plain = {**said, "origins": list(self.origins), "spark": dict(self.spark)}
        default = {**_DEFAULTS, "origins": ["*"]}
        return {name: value for name, value in plain.items() if name not in default or value != default[name]}

    @classmethod
    def from_plain(cls, plain: Any) -> Processor:
        """What `to_plain` wrote, or a person."""
        if not isinstance(plain, Mapping):
            raise InvalidInput(f"a processor is an object with name and function, not {_short(plain)}")
        unknown = [str(key) for key in plain if key not in _FIELDS]
        if unknown:
            raise InvalidInput(f"a processor has no {', '.join(unknown)[:80]}; it has {', '.join(_FIELDS)}")
        missing = [name for name in ("name", "function") if name not in plain]
        if missing:
            raise InvalidInput(f"processor {_short(plain.get('name', '?'))} has no {' and no '.join(missing)}")
        return cls(**plain)


_DEFAULTS: dict[str, Any] = {"shape": "message", "where": "spark", "codec": None, "split": 1, "spark": {}}


class Processors:
    """Processors in their order: the first that matches an origin takes it.

    :param processors: in the order in which they are asked.
    :param unrouted: what a block does about origins that no processor takes. `skip`: it leaves them to other DAGs, and
        they keep their places. `pause`: it pauses them, until a processor takes them or this rule is gone. `refuse`: it
        fails.
    """

    def __init__(self, processors: Iterable[Processor], unrouted: str = "skip") -> None:
        self.all = tuple(processors)
        self.unrouted = unrouted
        if not self.all:
            raise InvalidInput("there are no processors; name at least one")
        for one in self.all:
            if not isinstance(one, Processor):
                raise InvalidInput(f"processors are Processor objects, not {type(one).__name__}")
        if unrouted not in UNROUTED:
            raise InvalidInput(f"unrouted is {', '.join(map(repr, UNROUTED[:-1]))} or 'refuse', not {_short(unrouted)}")
        self._named = {one.name: one for one in self.all}
        if len(self._named) < len(self.all):
            names = [one.name for one in self.all]
            twice = sorted({name for name in names if names.count(name) > 1})
            raise InvalidInput(f"two processors are called {', '.join(twice)}; a name is used once")
        self._rules = [
            (re.compile("|".join(f"(?:{translate(pattern)})" for pattern in one.origins)), one) for one in self.all
        ]

    def __iter__(self) -> Any:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    def __getitem__(self, name: str) -> Processor:
        try:
            return self._named[name]
        except KeyError:
            raise InvalidInput(f"no processor is called {_short(name)}; there are {', '.join(self._named)}") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Processors) and (self.all, self.unrouted) == (other.all, other.unrouted)

    def __hash__(self) -> int:
        return hash((self.all, self.unrouted))

    def __repr__(self) -> str:
        return f"Processors({', '.join(self._named)})"

    def route(self, origin: str) -> Processor | None:
        """Who takes an origin; nothing where nobody does."""
        for rule, processor in self._rules:
            if rule.match(origin):
                return processor
        return None

    @property
    def patterns(self) -> list[str]:
        """The patterns of all processors."""
        return list(dict.fromkeys(pattern for one in self.all for pattern in one.origins))

    def unrouted_of(self, origins: Iterable[str]) -> list[str]:
        """The origins that nobody takes."""
        return [origin for origin in origins if self.route(origin) is None]

    def mine(self, part: Part, origins: Iterable[str]) -> dict[str, list[str]]:
        """The origins that are a part's, by the name of their processor."""
        found: dict[str, list[str]] = {name: [] for name in part["processors"]}
        for origin in origins:
            processor = self.route(origin)
            if processor and processor.name in found and part_of(origin, part["parts"]) == part["part"]:
                found[processor.name].append(origin)
        return {name: mine for name, mine in found.items() if mine}

    def parts(self, counts: Mapping[str, int], share_below: int = 10_000) -> list[Part]:
        """How the work of a block is cut into jobs: at most as many as the sum of the splits.

        :param counts: how many messages there are of each origin; those that nobody takes are left out.
        :param share_below: processors with few messages share a job, as long as together they have no more
            than this, and what is more than this is worth a further job.
        """
        if not _is_whole(share_below) or share_below < 0:
            raise InvalidInput(f"share_below is a number of messages, not {_short(share_below)}")
        mine: dict[str, dict[str, int]] = {one.name: {} for one in self.all}
        for origin, count in counts.items():
            processor = self.route(origin) if count > 0 else None
            if processor:
                mine[processor.name][origin] = count
        found: list[Part] = []
        small: dict[str, list[Part]] = {}
        for processor in self.all:
            origins = mine[processor.name]
            messages = sum(origins.values())
            if messages and messages < share_below:
                _share(small.setdefault(_settings(processor), []), processor, messages, share_below, found)
            elif messages:
                found += _split(processor, origins, messages, share_below)
        return found

    # As text.

    def to_plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"unrouted": self.unrouted, "processors": [one.to_plain() for one in self.all]}

    @classmethod
    def from_plain(cls, plain: Any) -> Processors:
        """What `to_plain` wrote, or a person."""
        if not isinstance(plain, Mapping) or not isinstance(plain.get("processors"), (list, tuple)):
            raise InvalidInput("processors are written as an object with a list called processors")
        unknown = [str(key) for key in plain if key not in ("processors", "unrouted")]
        if unknown:
            raise InvalidInput(f"beside processors and unrouted there is no {', '.join(unknown)[:80]}")
        return cls(map(Processor.from_plain, plain["processors"]), plain.get("unrouted", "skip"))

    def to_json(self) -> str:
        """Everything, as JSON."""
        try:
            return json.dumps(self.to_plain(), separators=(",", ":"), ensure_ascii=True)
        except TypeError as error:
            raise InvalidInput(f"these processors cannot be written as JSON: {error}; see their spark") from None

    def routes_json(self) -> str:
        """What a job has to know, as JSON: all but what it was submitted with."""
        plain = self.to_plain()
        plain["processors"] = [{k: v for k, v in one.items() if k != "spark"} for one in plain["processors"]]
        return json.dumps(plain, separators=(",", ":"), ensure_ascii=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Processors:
        """What `to_json` wrote."""
        try:
            plain = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"the processors are not JSON: {str(error)[:120]}") from None
        return cls.from_plain(plain)

    @classmethod
    def from_file(cls, path: Any) -> Processors:
        """Read processors from a file: `.json`, or `.toml` with a `[[processors]]` for each (Python 3.11 and later)."""
        from pathlib import Path  # not at the top: a DAG that names its processors itself reads no file

        file = Path(path)
        try:
            text = file.read_text("utf-8")
        except (OSError, UnicodeError) as error:
            raise InvalidInput(f"the processors cannot be read from {file}: {error}") from None
        try:
            if file.suffix == ".toml":
                return cls.from_plain(_read_toml(text))
            if file.suffix == ".json":
                return cls.from_json(text)
        except (ValueError, InvalidInput) as error:
            raise InvalidInput(f"{file}: {error}") from None
        raise InvalidInput(f"processors are read from a .toml or .json file, not from {file.name!r}")


def part_of(origin: str, parts: int) -> int:
    """Which of so many parts an origin belongs to, the same in every process and for ever."""
    return crc32(origin.encode("utf-8", "surrogatepass")) % parts


def _settings(processor: Processor) -> str:
    """Processors of which this is equal can share a job."""
    return json.dumps([processor.where, processor.spark], sort_keys=True, default=repr)


def _share(open_: list[Part], processor: Processor, messages: int, share_below: int, found: list[Part]) -> None:
    """Give a processor with few messages to a job that has room, or open one."""
    for part in open_:
        if part["messages"] + messages <= share_below:
            part["processors"].append(processor.name)
            part["messages"] += messages
            part["name"] = _together(part["processors"])
            return
    part = Part(
        name=processor.name, processors=[processor.name], part=0, parts=1, messages=messages, where=processor.where
    )
    open_.append(part)
    found.append(part)


def _split(processor: Processor, origins: Mapping[str, int], messages: int, share_below: int) -> list[Part]:
    """Cut one processor's origins into jobs, none of them without work."""
    worth = max(1, -(-messages // share_below)) if share_below else len(origins)
    parts = min(processor.split, len(origins), worth)
    counts = [0] * parts
    for origin, count in origins.items():
        counts[part_of(origin, parts)] += count
    return [
        Part(
            name=f"{processor.name} {place + 1}/{parts}" if parts > 1 else processor.name,
            processors=[processor.name], part=place, parts=parts, messages=count, where=processor.where,
        )
        for place, count in enumerate(counts) if count
    ]  # fmt: skip


def _together(names: Sequence[str]) -> str:
    shown = " + ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def _read_toml(text: str) -> Any:
    try:
        from importlib import import_module

        toml: Any = import_module("tomllib")
    except ImportError:
        raise InvalidInput("TOML is read from Python 3.11 on; write the processors as .json") from None
    return toml.loads(text)


def _is_text(value: object, pattern: re.Pattern[str]) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _short(value: object) -> str:
    return repr(value)[:80]
