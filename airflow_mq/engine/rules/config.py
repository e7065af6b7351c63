"""Ring configuration: stored with the ring, equal for all clients, checked when written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from math import inf, nextafter
from typing import Any

from .characters import shown
from .errors import ConfigRefused, InvalidInput, InvalidWeight
from .nearest import suggestion
from .units import byte_count, seconds
from .weight import Costs, LinearWeigher, Weight, max_message_weight

#: Default limit in bytes of all headers of one message.
MOST_HEADERS = 16_384
#: Header of a message in a page: its length in four bytes and a mark in one.
HEADER_SIZE = 5
DEFAULT_RING = "default"
ORDERS = ("deficit", "rotation", "shuffle")
#: Limits above which a message is too heavy: the ring's service weight, or the limit of the block that meets it.
SET_ASIDE_ABOVE = ("ring", "block")
#: Unit of deficits: a message that fills a block costs this many parts.
BLOCK_PARTS = 1 << 40
DAY = 86_400.0

_ABOVE_0, _BELOW_1 = nextafter(0, 1), nextafter(1, 0)
_COUNT, _SECONDS = "a whole number of at least", "a number of seconds from"
#: Settings that are times or sizes: they can be written as text such as `15m` or `64KiB`.
TIMES = (
    "backoff", "backoff_most", "key_window", "keep_uploads", "keep_events", "keep_ledger", "lease", "set_aside_expires",
)  # fmt: skip
SIZES = ("heap_size", "max_headers", "max_message_size", "whole_payloads")
#: Smallest and largest value of each number, and both in words.
_BOUNDS: dict[str, tuple[float, float, str]] = {
    "heap_size": (
        HEADER_SIZE + 1,
        1 << 30,
        f"a whole number from {HEADER_SIZE + 1} (a header and one byte) to {1 << 30}",
    ),
    **dict.fromkeys(("rounds_per_block", "max_block_queues"), (1, (1 << 31) - 1, f"{_COUNT} 1")),
    **dict.fromkeys(("max_stale", "whole_payloads", "max_headers"), (0, (1 << 31) - 1, f"{_COUNT} 0")),
    **dict.fromkeys(("max_origins", "max_origins_per_group"), (1, (1 << 31) - 1, f"{_COUNT} 1, or none")),
    "max_attempts": (1, inf, f"{_COUNT} 1, or none"),
    "max_message_size": (1, inf, f"{_COUNT} 1 byte, or none"),
    **dict.fromkeys(TIMES, (0, 1e9, f"{_SECONDS} 0 to 1e9, or text such as 15m")),
    **dict.fromkeys(("lease", "keep_uploads"), (1, 1e9, f"{_SECONDS} 1 to 1e9, or text such as 15m")),
    "set_aside_expires": (_ABOVE_0, 1e9, "a number of seconds above 0 and up to 1e9, text such as 30d, or none"),
    "most_of_limit": (_ABOVE_0, 1, "a fraction above 0 and up to 1, or none"),
    "kept_for_regular": (0, _BELOW_1, "a fraction from 0 to below 1"),
}


@dataclass(frozen=True)
class RingConfig:
    """All settings of a ring."""

    #: Bytes that a page may hold, headers included. It may grow, never shrink.
    heap_size: int = 65_536
    #: Number of pages behind the window that an origin keeps before old ones can be culled.
    max_stale: int = 256
    #: Costs of the steps of servicing.
    costs: Costs = Costs()
    #: Limit of a block. If None, each call names its limit, and overweight is judged by that one.
    service_weight: Weight | None = Weight(600_000, 1 << 30)
    #: Order of service: `deficit` (fair within a block), `rotation` (the pallet's), `shuffle`.
    order: str = "deficit"
    #: Deficit order: credit that an origin of share 1 earns per round, as a fraction 1/n of a block.
    rounds_per_block: int = 256
    #: Deficit order: whether an origin is a path (`acme/orders`), and weight is shared fairly at each level of it.
    paths: bool = False
    #: Whether the messages of an origin are processed strictly one after the other.
    ordered: bool = True
    #: Seconds after which a block that was not renewed may be released by any process.
    lease: float = 900.0
    #: Attempts without an outcome after which a message is set aside; None: no limit.
    max_attempts: int | None = None
    #: Seconds until a message that returned is tried again; doubled after each attempt, up to `backoff_most`. An
    #: ordered queue waits as a whole.
    backoff: float = 0.0
    #: The longest such time in seconds.
    backoff_most: float = 3_600.0
    #: Bytes above which a message is set aside although it would fit; None: no limit.
    max_message_size: int | None = None
    #: Limit in bytes of the names and values of all headers of one message.
    max_headers: int = MOST_HEADERS
    #: Fraction of a full block above which a message is set aside although it would fit; None: no limit.
    most_of_limit: float | None = None
    #: Limit above which a message is set aside: the ring's service weight (`ring`), or that of the block that meets it
    #: (`block`). With `ring`, a message between both limits stays where it is, and its queue waits behind it.
    set_aside_above: str = "ring"
    #: Seconds since its arrival after which housekeeping discards a set-aside message; None: never.
    set_aside_expires: float | None = None
    #: Whether housekeeping discards messages that were set aside after too many attempts.
    discard_unreadable: bool = False
    #: Largest number of origins with stored messages in the ring; None: no limit.
    max_origins: int | None = None
    #: Largest number of origins with stored messages for each first part of a path; None: no limit.
    max_origins_per_group: int | None = None
    #: Whether senders may use origins with characters that are invisible or change the direction of text.
    invisible_origins: bool = False
    #: Largest number of queues from which a block takes messages. Planning holds the ring longer the more there are.
    max_block_queues: int = 4_096
    #: The fraction of blocks, and of budgets for both, that is kept for regular messages, however many high ones wait.
    kept_for_regular: float = 0.5
    #: Whether any message was ever sent with high priority. The first one sets it for good.
    high: bool = False
    #: Default weigher; a weight from the sender or the processor wins.
    weigher: LinearWeigher = LinearWeigher()
    #: Names of processors that are charged the use that they report also where it is below the prediction.
    trusted: tuple[str, ...] = ()
    #: Whether a queue is charged the measured time of its processor's calls where it exceeds the charged time. The
    #: times of one queue and processor are compared with each save.
    charges_time: bool = False
    #: Dated prices by which closed days are billed, as an object; None: bills have no costs.
    tariff: Mapping[str, Any] | None = None
    #: Seconds that an external payload waits for a message that refers to it, and an upload for its next piece.
    keep_uploads: float = 3_600.0
    #: Folder or address in which external payloads are files; None: they are in the database.
    blob_path: str | None = None
    #: Earlier values of `blob_path`, in which payloads may still lie. A change of `blob_path` adds to them.
    earlier_blob_paths: tuple[str, ...] = ()
    #: Largest external payload that processors of blocks get whole; larger ones are passed as references.
    whole_payloads: int = 64 << 20
    #: Seconds for which an idempotency key is stored.
    key_window: float = DAY
    #: Seconds for which events are stored.
    keep_events: float = 7 * DAY
    #: Seconds for which the ledger, ended blocks and single charges are stored. Charges stay for two days at least.
    keep_ledger: float = 30 * DAY

    def __post_init__(self) -> None:
        self._check_numbers()
        if self.order not in ORDERS:
            raise ConfigRefused(f"invalid order {self.order!r:.80}: expected one of {', '.join(ORDERS)}")
        if self.set_aside_above not in SET_ASIDE_ABOVE:
            raise ConfigRefused(
                f"invalid set_aside_above {self.set_aside_above!r:.80}: expected {' or '.join(SET_ASIDE_ABOVE)}"
            )
        for name in ("ordered", "discard_unreadable", "high", "invisible_origins", "paths", "charges_time"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigRefused(f"invalid {name} {getattr(self, name)!r:.80}: expected true or false")
        self._check_blob_paths()
        names: object = self.trusted
        if not isinstance(names, (tuple, list)) or not all(isinstance(name, str) and name for name in names):
            raise ConfigRefused(f"invalid trusted {names!r:.80}: expected a list of names of processors")
        object.__setattr__(self, "trusted", tuple(names))
        if self.service_weight is not None:
            object.__setattr__(self, "service_weight", Weight.of(self.service_weight))
        for name, kind in (("costs", Costs), ("weigher", LinearWeigher)):
            if not isinstance(getattr(self, name), kind):
                raise ConfigRefused(f"invalid {name} ({type(getattr(self, name)).__name__}): expected {kind.__name__}")
        if self.paths and self.order != "deficit":
            raise ConfigRefused(
                f"paths require order='deficit', not order={self.order!r}; set order to 'deficit', or paths to false"
            )

    def _check_numbers(self) -> None:
        for name, (low, high, expected) in _BOUNDS.items():
            value: object = getattr(self, name)
            if isinstance(value, str) or hasattr(value, "total_seconds"):
                try:
                    value = seconds(value) if name in TIMES else byte_count(value) if name in SIZES else value
                except InvalidInput as error:
                    raise ConfigRefused(f"invalid {name}: {error}") from None
                object.__setattr__(self, name, value)
            if value is None and expected.endswith("or none"):
                continue
            kinds = int if expected.startswith("a whole") else (int, float)
            if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
                raise ConfigRefused(f"invalid {name} {shown(value, 80, repr)}: expected {expected}")
            if kinds is not int:
                object.__setattr__(self, name, float(value))

    def _check_blob_paths(self) -> None:
        paths: object = self.earlier_blob_paths
        if not isinstance(paths, (tuple, list)) or None in paths:
            raise ConfigRefused(f"invalid earlier_blob_paths {paths!r:.80}: expected a list of folders")
        _check_blob_path("blob_path", self.blob_path)
        for path in paths:
            _check_blob_path("earlier_blob_paths", path)
        object.__setattr__(self, "earlier_blob_paths", tuple(paths))

    def check(self) -> RingConfig:
        """Raise `ConfigRefused` if settings contradict each other, or could never service a message."""
        if self.backoff > self.backoff_most:
            raise ConfigRefused(
                f"backoff={self.backoff:g} is above backoff_most={self.backoff_most:g}: expected at most backoff_most "
                "seconds; raise backoff_most, or lower backoff"
            )
        least = self.costs.overhead
        if self.service_weight is not None and least.exceeds(self.service_weight):
            raise ConfigRefused(
                f"service_weight too small ({self.service_weight}): it does not pay for looking at one message; "
                "expected "
                f"at least {self.service_weight.at_least(least)} with these costs"
            )
        lightest = self.weigher.weigh(1)
        if self.service_weight is not None and any(
            needed and not part for needed, part in zip(lightest, self.service_weight)
        ):
            raise ConfigRefused(
                f"service_weight too small ({self.service_weight}): every message would be set aside, because one of a "
                f"single byte weighs {lightest}; raise service_weight, or change weigher"
            )
        return self

    @property
    def max_message_len(self) -> int:
        """Length of the longest message that a page can hold."""
        return self.heap_size - HEADER_SIZE

    @property
    def judges_by_block(self) -> bool:
        """Whether each block judges messages by its own limit, not by the ring's service weight."""
        return self.set_aside_above == "block" or self.service_weight is None

    @property
    def limits_origins(self) -> bool:
        """Whether the ring limits the number of its origins."""
        return self.max_origins is not None or self.max_origins_per_group is not None

    @property
    def max_message_weight(self) -> Weight | None:
        """Heaviest message that fits a full block; None if each call names its limit."""
        if self.service_weight is None:
            return None
        return max_message_weight(self.service_weight, self.costs)

    def warnings(self) -> list[str]:
        """Return warnings about settings that are valid but hardly intended."""
        found = []
        heaviest = self.max_message_weight
        if self.service_weight is not None and heaviest is not None and 0 in heaviest:
            found.append(
                f"a block of {self.service_weight} leaves {heaviest} for a message after the overhead of "
                f"{self.costs.overhead}: only messages whose weight is zero there will be processed"
            )
        if heaviest is not None and self.weigher.weigh(self.max_message_len).exceeds(heaviest):
            found.append(
                f"a message of {self.max_message_len:,} bytes weighs {self.weigher.weigh(self.max_message_len)}, "
                f"more than the {heaviest} that fit a block: the longest messages will be set aside"
            )
        return found

    def changed(self, **changes: Any) -> RingConfig:
        """Return the configuration with other settings; a heap may only grow."""
        changes = _known(changes, RingConfig, "setting")
        if isinstance(changes.get("costs"), Mapping):
            changes["costs"] = replace(self.costs, **_known(changes["costs"], Costs, "cost"))
        after = replace(self, **changes).check()
        if self.blob_path not in (None, after.blob_path, *after.earlier_blob_paths):
            after = replace(after, earlier_blob_paths=(*after.earlier_blob_paths, str(self.blob_path)))
        if self.high and not after.high:
            raise ConfigRefused("high cannot be reset: high messages were sent to this ring")
        if after.heap_size < self.heap_size:
            raise ConfigRefused(
                f"heap_size cannot shrink from {self.heap_size:,} to {after.heap_size:,} bytes: stored pages may be "
                "that large; expected at least the present value"
            )
        return after

    def to_json(self) -> dict[str, Any]:
        """Return the configuration as it is stored."""
        plain = asdict(self)
        plain["costs"] = self.costs.to_json()
        plain["weigher"] = self.weigher.to_json()
        plain["service_weight"] = list(self.service_weight) if self.service_weight else None
        plain["earlier_blob_paths"], plain["trusted"] = list(self.earlier_blob_paths), list(self.trusted)
        return plain

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RingConfig:
        """Return the configuration that `to_json` or a user wrote; reject unknown settings."""
        settings = _known(value, RingConfig, "setting")
        try:
            if "costs" in settings:
                settings["costs"] = Costs(**_known(settings["costs"], Costs, "cost"))
            if "weigher" in settings:
                settings["weigher"] = LinearWeigher.from_json(settings["weigher"])
            return cls(**settings)
        except (TypeError, AttributeError, InvalidWeight) as error:
            raise ConfigRefused(f"invalid configuration of a ring: {error}") from error


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the old and the new value of each setting that differs."""
    return {name: (before[name], value) for name, value in after.items() if before[name] != value}


def _known(values: Mapping[str, Any], kind: type[RingConfig] | type[Costs], what: str) -> dict[str, Any]:
    """Return a copy of values by name, or raise `ConfigRefused` for a name that this kind does not have."""
    known = [item.name for item in fields(kind)]
    for name in sorted(set(values).difference(known)):
        raise ConfigRefused(f"unknown {what} {name[:80]!r}: {suggestion(name, known)}")
    return dict(values)


def _check_blob_path(name: str, path: object) -> None:
    if path is None:
        return
    bare = path.removeprefix("file://") if isinstance(path, str) else ""
    absolute = bare.isprintable() and (bare.startswith("/") or (bare == path and "://" in path.strip("/")))
    if not absolute or ".." in str(path).split("/") or len(str(path)) > 1_000:
        raise ConfigRefused(
            f"invalid {name} {path!r:.80}: expected an absolute folder, or an address like s3://bucket/folder"
        )
