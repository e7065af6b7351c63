"""`ring`: the rings of a store, and their configuration."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import fields

from ..engine.rules.config import ORDERS, SIZES, TIMES, RingConfig, difference
from ..engine.rules.units import size_text, time_text
from ..engine.rules.weight import Costs, LinearWeigher, Weight
from ..words import many
from .arguments import ORDERED, duration, json_object, name_in, positive, setting, weight, words
from .command import Group, UsageError, command, option
from .output import shown
from .serialisation import formula, in_words
from .session import Session

_OFTEN = ("order", "service_weight", "lease", "max_attempts", "backoff", "ordered")
_SETTINGS = (
    option(
        "--set NAME=VALUE",
        "any setting that `ring show` lists, with its value in JSON; may be repeated",
        setting,
        action="append",
    ),
    option("--file PATH", "settings in JSON, as `ring show --json` prints them"),
    option("--order", "the order of turns", choices=ORDERS),
    option("--service-weight TIME/SIZE", "the limit of a block, for example 20m/4GiB", weight),
    option("--lease AGE", "release a block that is not renewed for AGE, for example 15m", duration),
    option("--max-attempts N", "set a message aside after N attempts", positive),
    option("--backoff AGE", "the time until a message that returned is tried again", duration),
    ORDERED,
)
_NAMED = name_in(*(item.name for item in fields(RingConfig)))
_RING = option("name RING", "the ring (default: that of --ring)", words, nargs="?")


@command(name="list", example="$ ring list")
def list_rings(session: Session, args: Namespace) -> None:
    """List the rings of the store."""
    with session.any_ring() as queue:
        names = queue.admin.rings()
    session.out.value(names)
    for name in names:
        session.out.line(name)


@command(_RING, example="$ ring show default --json")
def show(session: Session, args: Namespace) -> None:
    """Show the configuration of a ring, and warnings about it."""
    with session.queue(args.name) as queue:
        _show(session, queue.ring, queue.config)


@command(
    option("name NAME", "letters, digits, - and _", words),
    *_SETTINGS,
    example="$ ring create night --order rotation --service-weight 1h/10GB",
)
def create(session: Session, args: Namespace) -> None:
    """Create a ring."""
    config = RingConfig.from_json(_settings(args))
    with session.any_ring() as queue:
        queue.admin.create_ring(args.name, config)
    text = f"created ring {args.name}; try: airflow-mq --ring {args.name} enqueue acme 'an order'"
    _done(session, args.name, config, text)


@command(
    _RING,
    *_SETTINGS,
    option("--unset NAME", "return a setting to its default; may be repeated", _NAMED, action="append"),
    example="$ ring change night --max-attempts 5 --unset backoff\n"
    "$ ring change night --set 'costs={\"service_page_item\": [1, 0]}'",
)
def change(session: Session, args: Namespace) -> None:
    """Configure a ring, for all its users.

    Omitted settings stay. Checked against what is stored: a heap can only grow.
    """
    settings = _settings(args)
    default, unset = RingConfig(), set(args.unset or ())
    if not settings and not unset:
        raise UsageError("no setting: expected --set NAME=VALUE, --unset NAME, or one of the options that --help lists")
    if both := unset & settings.keys():
        raise UsageError(f"{min(both)} is both set and unset: specify one of them")
    with session.queue(args.name) as queue:
        before, name = queue.config, queue.ring
        # Read as a whole ring would be, so that weights and weighers get their types.
        typed = RingConfig.from_json(settings)
        changes = {name: getattr(typed, name) for name in settings} | {name: getattr(default, name) for name in unset}
        if "costs" in settings:
            changes["costs"] = settings["costs"]
        config = queue.admin.change_ring(**changes)
    done = {
        key: (_written(key, getattr(before, key)), _written(key, getattr(config, key)))
        for key in difference(before.to_json(), config.to_json())
    }
    _done(session, name, config, f"ring {name}: {in_words(done)}")


def _settings(args: Namespace) -> dict[str, object]:
    """Return the settings: of --file, then of --set, then of the options of single settings."""
    found = json_object(args.file) if args.file is not None else {}
    inner = found.get("config")
    found = inner if isinstance(inner, dict) else found
    found.update(args.set or ())
    found.update({name: value for name in _OFTEN if (value := getattr(args, name)) is not None})
    return found


def _done(session: Session, name: str, config: RingConfig, text: str) -> None:
    if session.out.as_json:
        _show(session, name, config)
        return
    session.out.remark(text)
    for warning in config.warnings():
        session.out.warn(warning)


def _show(session: Session, name: str, config: RingConfig) -> None:
    settings, warnings = config.to_json(), config.warnings()
    longest, heaviest = config.max_message_len, config.max_message_weight
    session.out.fields(
        {
            "ring": name,
            **{key: _written(key, getattr(config, key)) for key in settings},
            "longest message": size_text(longest),
            "heaviest message": "as each call limits it" if heaviest is None else str(heaviest),
        },
        {
            "ring": name, "config": settings, "max_message_len": longest, "max_message_weight": heaviest,
            "warnings": warnings,
        },
    )  # fmt: skip
    for warning in () if session.out.as_json else warnings:
        session.out.warn(warning)


def _written(name: str, value: object) -> str:
    """Return a setting as a person reads it, and as `--set` accepts it where it is a number."""
    if value is None:
        return _WITHOUT.get(name, "no limit")
    if isinstance(value, Costs):
        return ", ".join(f"{step} {Weight(*cost)}" for step, cost in value.to_json().items()) or "none"
    if isinstance(value, LinearWeigher):
        return formula(value)
    if isinstance(value, tuple) and not isinstance(value, Weight):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, float) and name in TIMES:
        return time_text(round(value * 1_000))
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int) and name in SIZES:
        return size_text(value)
    return shown(value) if isinstance(value, (bool, int)) else str(value)


#: What the settings without a value mean, except for limits.
_WITHOUT = {
    "set_aside_expires": "never", "blob_path": "in the database", "service_weight": "as each call limits it",
    "tariff": "none",
}  # fmt: skip


@command(
    option("--stale-pages", "also remove old pages, with the set-aside messages on them"), example="$ ring housekeep"
)
def housekeep(session: Session, args: Namespace) -> None:
    """Release dead blocks, and delete what the ring no longer keeps.

    For cron, where no DAG does it: deletes expired events, ledgers, keys and payloads, and applies the ring's policies
    to set-aside messages.
    """
    with session.queue() as queue:
        dead = queue.admin.housekeep()
        done = {
            "expired_messages": queue.set_aside.expired,
            "dead_blocks": dead,
            "removed_pages": queue.set_aside.cull() if args.stale_pages else 0,
        }
    session.out.answer(
        done,
        f"{many(done['dead_blocks'], 'dead block')} released, "
        f"{many(done['expired_messages'], 'set-aside message')} expired, "
        f"{many(done['removed_pages'], 'page')} removed; expired events, ledgers, keys and payloads are deleted",
    )


RING = Group(
    "ring",
    "list, create, configure and maintain rings",
    (list_rings, show, create, change, housekeep),
    example="$ ring create night --order rotation\n$ --ring night enqueue acme 'an order'",
)
