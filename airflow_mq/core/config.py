"""How a ring behaves. Stored with the ring, the same for everybody, checked when written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from .errors import ConfigRefused, InvalidWeight
from .weigher import LinearWeigher
from .weight import Costs, Weight, max_message_weight

#: Bytes of all headers of one message, unless a ring sets another limit.
MOST_HEADERS = 16_384
#: Length in four bytes and a mark in one: what a message takes in a page beside its payload.
HEADER_SIZE = 5
ORDERS = ("deficit", "rotation", "shuffle")
#: By which limit a message counts as too heavy: the ring's service weight, or the limit of the block that meets it.
SET_ASIDE_ABOVE = ("ring", "block")
#: Deficits are counted in parts of a block: a message that fills one costs this much.
BLOCK_PARTS = 1 << 40
DAY = 86_400.0


@dataclass(frozen=True)
class RingConfig:
    """Everything that can be set for a ring."""

    #: Bytes that a page may hold, headers included. It may grow, never shrink.
    heap_size: int = 65_536
    #: How many pages behind the window an origin may keep before old ones can be culled.
    max_stale: int = 256
    #: What the steps of servicing cost.
    costs: Costs = Costs()
    #: What a block may cost. Without one, each call says, and overweight is judged by that.
    service_weight: Weight | None = Weight(600_000, 1 << 30)
    #: Whose turn it is: `deficit` (fair within a block), `rotation` (the pallet's), `shuffle`.
    order: str = "deficit"
    #: Deficit order: what an origin of share 1 earns per round, as a fraction 1/n of a block.
    rounds_per_block: int = 256
    #: Deficit order: whether an origin is a path (`acme/orders`), and weight is shared fairly at each level of it.
    paths: bool = False
    #: Whether the messages of an origin are processed strictly one after the other.
    ordered: bool = True
    #: Seconds after which a block that nobody renewed may be released by anyone.
    lease: float = 900.0
    #: Tries without an outcome after which a message is set aside; none: it is tried for ever.
    max_attempts: int | None = None
    #: Seconds until a message that went back is tried again; doubled at each try, up to the most.
    backoff: float = 0.0
    backoff_most: float = 3_600.0
    #: Bytes above which a message is set aside although it would fit; none: there is no such limit.
    max_message_size: int | None = None
    #: Bytes that the names and values of all headers of one message may have.
    max_headers: int = MOST_HEADERS
    #: The fraction of a full block above which a message is set aside although it would fit; none: as the size.
    most_of_limit: float | None = None
    #: Whose limit sets a heavier message aside: the ring's service weight (`ring`), or that of the block that meets it
    #: (`block`). With `ring`, a message between the two stays where it is, and its queue waits behind it.
    set_aside_above: str = "ring"
    #: Seconds since its arrival after which housekeeping lets go of what is set aside; none: never.
    set_aside_expires: float | None = None
    #: Whether housekeeping lets go of what no processor could read: set aside after too many tries.
    discard_unreadable: bool = False
    #: How many origins may have something stored at a time; and how many of one first part of the path.
    max_origins: int | None = None
    max_origins_per_group: int | None = None
    #: Whether senders may use origins with characters that are invisible or change the direction of text.
    invisible_origins: bool = False
    #: How many queues a block takes messages of: planning it holds the ring the longer the more there are.
    max_block_queues: int = 4_096
    #: The fraction of each block that is kept for regular messages, however many high ones wait.
    kept_for_regular: float = 0.5
    #: Whether anything was ever sent with high priority; the first such message says so, and so it stays.
    high: bool = False
    #: What a message costs unless its sender or the processor knows better.
    weigher: LinearWeigher = LinearWeigher()
    #: Seconds for which a payload kept apart waits for a message to refer to it, and an upload for its next piece.
    keep_uploads: float = 3_600.0
    #: The folder, or address, in which payloads kept apart are files; none: they are in the database.
    blob_path: str | None = None
    #: Folders that `blob_path` named before, in which payloads may still lie; a change of it adds to them.
    earlier_blob_paths: tuple[str, ...] = ()
    #: Payloads kept apart of up to so many bytes go whole to the processors of blocks; larger ones as references.
    whole_payloads: int = 64 << 20
    #: Seconds for which an idempotency key is remembered.
    key_window: float = DAY
    #: Seconds for which events are kept.
    keep_events: float = 7 * DAY
    #: Seconds for which the ledger, and blocks that have ended, are kept.
    keep_ledger: float = 30 * DAY

    def __post_init__(self) -> None:
        self._check_numbers()
        if self.order not in ORDERS:
            raise ConfigRefused(f"order is one of {', '.join(ORDERS)}, not {self.order!r}")
        if self.set_aside_above not in SET_ASIDE_ABOVE:
            raise ConfigRefused(f"set_aside_above is {' or '.join(SET_ASIDE_ABOVE)}, not {self.set_aside_above!r}")
        for name in ("ordered", "discard_unreadable", "high", "invisible_origins"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigRefused(f"{name} is true or false, not {getattr(self, name)!r}")
        self._check_thresholds()
        self._check_origins()
        self._check_kept()
        _check_blob_path("blob_path", self.blob_path)
        self._check_earlier_blob_paths()
        if self.service_weight is not None:
            object.__setattr__(self, "service_weight", Weight.of(self.service_weight))
        for name, kind in (("costs", Costs), ("weigher", LinearWeigher)):
            if not isinstance(getattr(self, name), kind):
                raise ConfigRefused(f"{name} is a {kind.__name__}, not {type(getattr(self, name)).__name__}")
        if not isinstance(self.paths, bool):
            raise ConfigRefused(f"paths is true or false, not {self.paths!r}")
        if self.paths and self.order != "deficit":
            raise ConfigRefused(
                f"paths share weight by deficits, which the order {self.order!r} has not; "
                "set order to 'deficit', or paths to false"
            )

    def _check_numbers(self) -> None:
        if not _whole(self.heap_size) or not HEADER_SIZE < self.heap_size <= 1 << 30:
            raise ConfigRefused(
                f"heap_size is a whole number from {HEADER_SIZE + 1} (a header and one byte) "
                f"to {1 << 30}, not {self.heap_size!r}"
            )
        for name, least in (
            ("max_stale", 0), ("rounds_per_block", 1), ("max_block_queues", 1), ("whole_payloads", 0),
            ("max_headers", 0),
        ):  # fmt: skip
            value = getattr(self, name)
            if not _whole(value) or not least <= value < 1 << 31:
                raise ConfigRefused(f"{name} is a whole number of at least {least}, not {value!r}")
        if self.max_attempts is not None and (not _whole(self.max_attempts) or self.max_attempts < 1):
            raise ConfigRefused(f"max_attempts is a whole number of at least 1, or none, not {self.max_attempts!r}")
        for name in ("lease", "backoff", "backoff_most", "key_window", "keep_uploads", "keep_events", "keep_ledger"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1e9:
                raise ConfigRefused(f"{name} is a number of seconds from 0 to 1e9, not {value!r}")
            object.__setattr__(self, name, float(value))
        if self.lease < 1:
            raise ConfigRefused(f"lease is at least one second, not {self.lease!r}")

    def _check_kept(self) -> None:
        kept: object = self.kept_for_regular
        if isinstance(kept, bool) or not isinstance(kept, (int, float)) or not 0 <= kept < 1:
            raise ConfigRefused(f"kept_for_regular is a fraction from 0 to below 1, not {kept!r}")

    def _check_earlier_blob_paths(self) -> None:
        paths: object = self.earlier_blob_paths
        if not isinstance(paths, (tuple, list)) or None in paths:
            raise ConfigRefused(f"earlier_blob_paths is a list of folders, not {paths!r:.80}")
        for path in paths:
            _check_blob_path("earlier_blob_paths", path)
        object.__setattr__(self, "earlier_blob_paths", tuple(paths))

    def _check_thresholds(self) -> None:
        if self.max_message_size is not None and not (_whole(self.max_message_size) and self.max_message_size >= 1):
            raise ConfigRefused(
                f"max_message_size is a whole number of bytes of at least 1, or none, not {self.max_message_size!r}"
            )
        for name, most, what in (
            ("most_of_limit", 1, "a fraction above 0 and up to 1, or none"),
            ("set_aside_expires", 1e9, "a number of seconds above 0 and up to 1e9, or none"),
        ):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= most:
                raise ConfigRefused(f"{name} is {what}, not {value!r}")
            object.__setattr__(self, name, float(value))

    def _check_origins(self) -> None:
        for name in ("max_origins", "max_origins_per_group"):
            value = getattr(self, name)
            if value is not None and not (_whole(value) and 1 <= value < 1 << 31):
                raise ConfigRefused(f"{name} is a whole number of at least 1, or none, not {value!r}")

    def check(self) -> RingConfig:
        """Refuse settings that contradict each other, or could never service a message."""
        self._check_backoff()
        return self._check_weight()

    def _check_backoff(self) -> None:
        if self.backoff > self.backoff_most:
            raise ConfigRefused(
                f"backoff={self.backoff:g} is above backoff_most={self.backoff_most:g}: expected at most as many "
                "seconds as backoff_most; raise backoff_most, or lower backoff"
            )

    def _check_weight(self) -> RingConfig:
        least = self.costs.overhead
        if self.service_weight is not None and least.exceeds(self.service_weight):
            raise ConfigRefused(
                f"a service weight of {self.service_weight} does not even pay for looking at one message; "
                f"with these costs it must be at least {self.service_weight.at_least(least)}"
            )
        return self

    @property
    def max_message_len(self) -> int:
        """The longest message that a page can hold."""
        return self.heap_size - HEADER_SIZE

    @property
    def max_message_weight(self) -> Weight | None:
        """What a message may weigh to fit a full block; nothing where each call says the limit."""
        if self.service_weight is None:
            return None
        return max_message_weight(self.service_weight, self.costs)

    def warnings(self) -> list[str]:
        """What is allowed and will hardly be wanted."""
        found = []
        heaviest = self.max_message_weight
        if self.service_weight is not None and heaviest is not None and 0 in heaviest:
            found.append(
                f"a block of {self.service_weight} leaves {heaviest} for a message after the overhead of "
                f"{self.costs.overhead}: only messages that weigh nothing there will ever be processed"
            )
        if heaviest is not None and self.weigher.weigh(self.max_message_len).exceeds(heaviest):
            found.append(
                f"a message of {self.max_message_len:,} bytes weighs {self.weigher.weigh(self.max_message_len)}, "
                f"more than the {heaviest} that fit a block: the longest messages will be set aside"
            )
        return found

    def changed(self, **changes: Any) -> RingConfig:
        """The same ring with other settings; a heap may only grow."""
        unknown = set(changes) - {item.name for item in fields(self)}
        if unknown:
            raise ConfigRefused(f"a ring has no setting {', '.join(sorted(unknown))}")
        after = replace(self, **changes)._check_weight()
        if changes.keys() & {"backoff", "backoff_most"}:
            # A ring that an earlier version let be stored like this can still be changed in other ways.
            after._check_backoff()
        if self.blob_path not in (None, after.blob_path, *after.earlier_blob_paths):
            after = replace(after, earlier_blob_paths=(*after.earlier_blob_paths, str(self.blob_path)))
        if self.high and not after.high:
            raise ConfigRefused("high messages are stored, or were: a ring on which they are in use keeps them so")
        if after.heap_size < self.heap_size:
            raise ConfigRefused(
                f"heap_size may only grow: pages of up to {self.heap_size:,} bytes are stored, "
                f"or on their way, and {after.heap_size:,} would not hold them"
            )
        return after

    def to_json(self) -> dict[str, Any]:
        """As it is stored."""
        plain = asdict(self)
        plain["costs"] = self.costs.to_json()
        plain["weigher"] = self.weigher.to_json()
        plain["service_weight"] = list(self.service_weight) if self.service_weight else None
        plain["earlier_blob_paths"] = list(self.earlier_blob_paths)
        return plain

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RingConfig:
        """What `to_json` wrote, or what a user wrote by hand: an unknown setting is an error."""
        known = {item.name for item in fields(cls)}
        unknown = set(value) - known
        if unknown:
            raise ConfigRefused(
                f"a ring has no setting {', '.join(sorted(map(repr, unknown)))}; it has {', '.join(sorted(known))}"
            )
        settings = dict(value)
        try:
            if "costs" in settings:
                settings["costs"] = Costs(**{name: Weight.of(cost) for name, cost in settings["costs"].items()})
            if "weigher" in settings:
                settings["weigher"] = LinearWeigher.from_json(settings["weigher"])
            if settings.get("service_weight") is not None:
                settings["service_weight"] = Weight.of(settings["service_weight"])
            return cls(**settings)
        except (TypeError, AttributeError, InvalidWeight) as error:
            raise ConfigRefused(f"a ring cannot be configured like this: {error}") from error


def _check_blob_path(name: str, path: object) -> None:
    if path is None:
        return
    bare = path.removeprefix("file://") if isinstance(path, str) else ""
    absolute = bare.isprintable() and (bare.startswith("/") or (bare == path and "://" in path.strip("/")))
    if not absolute or ".." in str(path).split("/") or len(str(path)) > 1_000:
        raise ConfigRefused(f"{name} is an absolute folder or an address like s3://bucket/folder, not {path!r:.80}")


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
