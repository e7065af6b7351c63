"""Processors, and the rules that route an origin to one of them.

A processor is a plain function, given by name: `orders:process` is loaded where it runs, never where a DAG is parsed.
Rules are patterns of origins. The first processor that matches takes the whole origin, so that the order within an
origin survives however the work is split. ::

    Processors([
        Processor("orders", "shop.orders:process", origins=("*/orders",), split=4),
        Processor("totals", "shop.totals:add_up", origins=("*/totals",), shape="arrow"),
        Processor("mail", "shop.mail:send", where="in place"),
    ])

Shapes of a function:

* `message`: `f(delivery)` or `f(payload, origin)` returns an outcome, or None for done. Its signature decides what it
  receives (`engine.queue.calls`). An exception is a failed attempt: the message goes back, its neighbours are not
  affected. With a `codec` (`shop.orders:Order`) it takes a value; bytes that do not
  decode are permanently wrong and never passed to it.
* `arrow`: `f(batches)` takes an iterator of record batches with the columns origin, priority, page, item, payload,
  headers, id, address, attempt, sent_at and block. It yields batches with origin, priority, page, item and outcome:
  `done` or null, `failed`, `yield`, `overweight`, `bad`, `corrupt`, `unsupported` or `stack`. Optional columns:
  `reason` (of a yield), `time` and `size` (the weight used, or the weight that an overweight message needs).
* `dataframe`: `f(df)` takes a DataFrame of the same columns and returns one of the same outcomes, or None if all are
  done. If it raises, all of its messages go back and the job fails.

A message without an outcome in a batch was not processed: it goes back, and that counts as an attempt.

DAGs import this module while they are parsed: it imports only the standard library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import translate
from importlib import import_module
from os import PathLike
from typing import Any, TypedDict
from zlib import crc32

from .engine.rules.characters import listed
from .engine.rules.errors import InvalidInput

SHAPES = ("message", "arrow", "dataframe")
WHERE = ("spark", "in place")
UNROUTED = ("skip", "pause", "refuse")
#: Upper bound of jobs at once; more are hardly intended.
MOST_SPLIT = 1000
_NAME = re.compile(r"[a-z0-9_-]{1,40}")
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
#: Spark options that the job sets itself.
_RESERVED = ("application", "application_args", "task_id")


class Part(TypedDict):
    """Work of one job, as plain JSON. Its origins are not listed: the job reads them from its block and selects its
    own.
    """

    #: Name for people: `orders`, `orders 1/2`, or `mail + totals` where processors share a job.
    name: str
    processors: list[str]
    part: int
    parts: int
    messages: int
    where: str


@dataclass(frozen=True)
class Processor:
    """One function, and the origins whose messages it takes."""

    #: Name of at most 40 characters: a to z, 0 to 9, `_` and `-`.
    name: str
    #: Name of the function, `module:function`, loaded where it runs.
    function: str
    #: Case-sensitive shell patterns of origins.
    origins: Sequence[str] = ("*",)
    #: Shape of the function: `message`, `arrow` or `dataframe`.
    shape: str = "message"
    #: Place of execution: `spark`, or `in place`, in the process of the task without a JVM.
    where: str = "spark"
    #: Codec, `module:codec` or `module:Type`, loaded where the function runs: it takes values instead of bytes.
    codec: str | None = None
    #: Largest number of jobs at once.
    split: int = 1
    #: Arguments for `SparkSubmitOperator`: conf, driver_memory, py_files, packages and so on.
    spark: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _is_text(self.name, _NAME):
            raise InvalidInput(f"invalid name of a processor {self.name!r:.80}: expected 1 to 40 of a-z, 0-9, _ and -")
        if not _is_text(self.function, _FUNCTION):
            raise self._invalid("function", self.function, "module:function, for example shop.orders:process")
        self._check_origins()
        self._check_choice("shape", SHAPES)
        self._check_choice("where", WHERE)
        if self.where == "in place" and self.shape == "dataframe":
            raise InvalidInput(f"processor {self.name!r} cannot run in place: shape 'dataframe' requires Spark")
        if type(self.split) is not int or not 1 <= self.split <= MOST_SPLIT:
            raise self._invalid("split", self.split, f"a whole number from 1 to {MOST_SPLIT}")
        self._check_codec()
        self._check_spark()

    def _invalid(self, what: str, value: object, expected: str) -> InvalidInput:
        return InvalidInput(f"invalid {what} {value!r:.80} of processor {self.name!r}: expected {expected}")

    def _check_codec(self) -> None:
        if self.codec is None:
            return
        if not _is_text(self.codec, _FUNCTION):
            raise self._invalid("codec", self.codec, "module:name, for example shop.orders:Order")
        if self.shape != "message":
            raise InvalidInput(f"codec of processor {self.name!r} requires shape 'message', not {self.shape!r}")

    def _check_origins(self) -> None:
        given: object = self.origins
        patterns = (given,) if isinstance(given, str) else given
        if not isinstance(patterns, (list, tuple)) or not patterns:
            raise self._invalid("origins", given, "patterns, for example ['acme/*']")
        for pattern in patterns:
            if not isinstance(pattern, str) or not 1 <= len(pattern) <= 255:
                raise self._invalid("pattern", pattern, "text of 1 to 255 characters")
        object.__setattr__(self, "origins", tuple(patterns))

    def _check_choice(self, what: str, known: Sequence[str]) -> None:
        if getattr(self, what) not in known:
            raise self._invalid(what, getattr(self, what), " or ".join(map(repr, known)))

    def _check_spark(self) -> None:
        given: object = self.spark
        if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
            raise self._invalid("spark", given, "arguments by name")
        for name in _RESERVED:
            if name in given:
                raise InvalidInput(f"spark of processor {self.name!r} cannot set {name}: the job sets it; remove it")
        if given and self.where == "in place":
            raise InvalidInput(f"processor {self.name!r} runs in place and cannot have spark arguments; remove them")
        object.__setattr__(self, "spark", dict(given))

    def __hash__(self) -> int:
        return hash((self.name, self.function))

    def to_plain(self) -> dict[str, object]:
        """Return the processor as plain JSON, without default values."""
        default = vars(Processor(self.name, self.function))
        given = {name: value for name, value in vars(self).items() if value != default[name]}
        origins = {"origins": list(self.origins)} if "origins" in given else {}
        return {"name": self.name, "function": self.function, **given, **origins}

    @classmethod
    def from_plain(cls, plain: object) -> Processor:
        """Return the processor that `to_plain` or a person wrote."""
        if not isinstance(plain, Mapping):
            raise InvalidInput(f"invalid processor {plain!r:.80}: expected an object with name and function")
        known = cls.__dataclass_fields__
        unknown = [str(key) for key in plain if key not in known]
        if unknown:
            raise InvalidInput(f"unknown field of a processor {', '.join(unknown)[:80]}: expected {', '.join(known)}")
        missing = [name for name in ("name", "function") if name not in plain]
        if missing:
            raise InvalidInput(f"processor {plain.get('name', '?')!r:.80} has no {' and no '.join(missing)}")
        return cls(**plain)


class Processors:
    """Processors in order: the first that matches an origin takes it.

    :param processors: in the order in which their patterns are tried.
    :param unrouted: action of a block for origins that no processor takes. `skip`: leave them to other DAGs; they keep
        their places. `pause`: pause them until a processor takes them or this rule is gone. `refuse`: fail.
    """

    def __init__(self, processors: Iterable[Processor], unrouted: str = "skip") -> None:
        self.all = tuple(processors)
        self.unrouted = unrouted
        if not self.all:
            raise InvalidInput("no processors: expected at least one")
        for given in self.all:
            if not isinstance(given, Processor):
                raise InvalidInput(f"invalid processor ({type(given).__name__}): expected a Processor object")
        if unrouted not in UNROUTED:
            raise InvalidInput(
                f"invalid unrouted {unrouted!r:.80}: expected {', '.join(map(repr, UNROUTED[:-1]))} or 'refuse'"
            )
        self._named = {processor.name: processor for processor in self.all}
        if len(self._named) < len(self.all):
            names = [processor.name for processor in self.all]
            duplicates = sorted({name for name in names if names.count(name) > 1})
            raise InvalidInput(f"duplicate name of processors {', '.join(duplicates)}: expected unique names")
        self._rules = [(_rule(processor.origins), processor) for processor in self.all]

    @classmethod
    def of(cls, given: AnyProcessors | Iterable[Processor]) -> Processors:
        """Return processors that an author wrote: as such, one or several of `Processor`, JSON text, or a file."""
        if isinstance(given, Processors):
            return given
        if isinstance(given, Processor):
            return cls([given])
        if isinstance(given, str) and given.lstrip().startswith("{"):
            return cls.from_json(given)
        return cls.from_file(given) if isinstance(given, (str, PathLike)) else cls(given)

    def __iter__(self) -> Iterator[Processor]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    def __getitem__(self, name: str) -> Processor:
        try:
            return self._named[name]
        except KeyError:
            raise InvalidInput(f"unknown processor {name!r:.80}: expected {', '.join(self._named)}") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Processors) and (self.all, self.unrouted) == (other.all, other.unrouted)

    def __hash__(self) -> int:
        return hash((self.all, self.unrouted))

    def __repr__(self) -> str:
        return f"Processors({', '.join(self._named)})"

    def route(self, origin: str) -> Processor | None:
        """Return the processor that takes an origin, or None."""
        for rule, processor in self._rules:
            if rule.match(origin):
                return processor
        return None

    @property
    def patterns(self) -> list[str]:
        """Patterns of all processors."""
        return list(dict.fromkeys(pattern for processor in self.all for pattern in processor.origins))

    def unrouted_of(self, origins: Iterable[str]) -> list[str]:
        """Return the origins that no processor takes."""
        return [origin for origin in origins if self.route(origin) is None]

    def mine(self, part: Part, origins: Iterable[str]) -> dict[str, list[str]]:
        """Return the origins of a part, by the name of their processor."""
        found: dict[str, list[str]] = {name: [] for name in part["processors"]}
        for origin in origins:
            processor = self.route(origin)
            if processor and processor.name in found and part_of(origin, part["parts"]) == part["part"]:
                found[processor.name].append(origin)
        return {name: origins for name, origins in found.items() if origins}

    def parts(self, counts: Mapping[str, int], share_below: int = 10_000) -> list[Part]:
        """Divide the work of a block into jobs: at most as many as the sum of the splits.

        :param counts: number of messages of each origin; origins that no processor takes are left out.
        :param share_below: processors with few messages share a job up to this many messages together; more than this
            justify a further job.
        """
        if type(share_below) is not int or share_below < 0:
            raise InvalidInput(f"invalid share_below {share_below!r:.80}: expected a number of messages")
        routed: dict[str, dict[str, int]] = {processor.name: {} for processor in self.all}
        for origin, count in counts.items():
            processor = self.route(origin) if count > 0 else None
            if processor:
                routed[processor.name][origin] = count
        found: list[Part] = []
        small: dict[str, list[Part]] = {}
        for processor in self.all:
            origins = routed[processor.name]
            messages = sum(origins.values())
            if messages and messages < share_below:
                _share(small.setdefault(_settings(processor), []), processor, messages, share_below, found)
            elif messages:
                found += _split(processor, origins, messages, share_below)
        return found

    def to_plain(self) -> dict[str, object]:
        """Return the processors as plain JSON."""
        return {"unrouted": self.unrouted, "processors": [processor.to_plain() for processor in self.all]}

    @classmethod
    def from_plain(cls, plain: object) -> Processors:
        """Return the processors that `to_plain` or a person wrote."""
        if not isinstance(plain, Mapping) or not isinstance(plain.get("processors"), (list, tuple)):
            raise InvalidInput("invalid processors: expected an object with a list called processors")
        unknown = [str(key) for key in plain if key not in ("processors", "unrouted")]
        if unknown:
            raise InvalidInput(f"unknown field {', '.join(unknown)[:80]}: expected processors and unrouted")
        return cls(map(Processor.from_plain, plain["processors"]), plain.get("unrouted", "skip"))

    def to_json(self) -> str:
        """Return the processors as JSON."""
        try:
            return json.dumps(self.to_plain(), separators=(",", ":"), ensure_ascii=True)
        except TypeError as error:
            raise InvalidInput(f"processors cannot be written as JSON: {error}; check their spark arguments") from None

    def routes_json(self) -> str:
        """Return as JSON what a job has to know: everything but the arguments of its submission."""
        return Processors([replace(processor, spark={}) for processor in self.all], self.unrouted).to_json()

    @classmethod
    def from_json(cls, text: str | bytes) -> Processors:
        """Return the processors that `to_json` wrote."""
        try:
            plain = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"invalid JSON of processors: {str(error)[:120]}") from None
        return cls.from_plain(plain)

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Processors:
        """Read processors from a file: `.json`, or `.toml` with a `[[processors]]` for each (Python 3.11 and later)."""
        from pathlib import Path  # not at the top: a DAG that names its processors itself reads no file

        file = Path(path)
        try:
            text = file.read_text("utf-8")
        except (OSError, UnicodeError) as error:
            raise InvalidInput(f"cannot read processors from {file}: {error}") from None
        try:
            if file.suffix == ".toml":
                return cls.from_plain(_read_toml(text))
            if file.suffix == ".json":
                return cls.from_json(text)
        except (ValueError, InvalidInput) as error:
            raise InvalidInput(f"{file}: {error}") from None
        raise InvalidInput(f"invalid file of processors {file.name!r}: expected .toml or .json")


#: Processors as an author may write them.
AnyProcessors = Processors | Processor | Sequence[Processor] | str | PathLike[str]


def _rule(patterns: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{translate(pattern)})" for pattern in patterns))


def part_of(origin: str, parts: int) -> int:
    """Return the part of an origin among this many, equal in every process and for ever."""
    return crc32(origin.encode("utf-8", "surrogatepass")) % parts


def _settings(processor: Processor) -> str:
    """Return a key of processors that can share a job."""
    return json.dumps([processor.where, processor.spark], sort_keys=True, default=repr)


def _share(open_: list[Part], processor: Processor, messages: int, share_below: int, found: list[Part]) -> None:
    """Add a processor with few messages to a job that has room, or open one."""
    for part in open_:
        if part["messages"] + messages <= share_below:
            part["processors"].append(processor.name)
            part["messages"] += messages
            part["name"] = listed(part["processors"], most=3, between=" + ")
            return
    part = _part(processor, messages)
    open_.append(part)
    found.append(part)


def _split(processor: Processor, origins: Mapping[str, int], messages: int, share_below: int) -> list[Part]:
    """Divide one processor's origins into jobs, none of them without work."""
    worth = max(1, -(-messages // share_below)) if share_below else len(origins)
    parts = min(processor.split, len(origins), worth)
    counts = [0] * parts
    for origin, count in origins.items():
        counts[part_of(origin, parts)] += count
    return [_part(processor, count, place, parts) for place, count in enumerate(counts) if count]


def _part(processor: Processor, messages: int, part: int = 0, parts: int = 1) -> Part:
    name = f"{processor.name} {part + 1}/{parts}" if parts > 1 else processor.name
    names = [processor.name]
    return Part(name=name, processors=names, part=part, parts=parts, messages=messages, where=processor.where)


def _read_toml(text: str) -> object:
    try:
        toml: Any = import_module("tomllib")
    except ImportError:
        raise InvalidInput("TOML requires Python 3.11 or later; write the processors as .json") from None
    return toml.loads(text)


def _is_text(value: object, pattern: re.Pattern[str]) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None
