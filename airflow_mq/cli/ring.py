"""`ring`: the rings of a store, and their configuration."""

from __future__ import annotations

import json
from argparse import Namespace

from ..core.config import ORDERS, RingConfig
from ..core.priority import PRIORITIES, REGULAR
from ..words import many
from .arguments import limit
from .command import Group, command, option
from .errors import UsageError
from .session import Session
from .values import json_object, positive, seed, setting, weight, words
from .weights import fit_weigher, measure_costs

_OFTEN = ("order", "service_weight", "heap_size", "lease", "max_attempts", "backoff", "ordered")
_SETTINGS = (
    option(
        "--set NAME=VALUE",
        "any setting that `ring show` lists, with its value in JSON; may be repeated",
        setting,
        action="append",
    ),
    option("--file PATH", "settings in JSON, as `ring show --json` prints them"),
    option("--order", "the order of turns", choices=ORDERS),
    option("--service-weight TIME/SIZE", "the limit of a block", weight),
    option("--heap-size BYTES", "the size of a page; it can only grow", positive),
    option("--lease SECONDS", "release a block that is not renewed for SECONDS", float),
    option("--max-attempts N", "set a message aside after N attempts", positive),
    option("--backoff SECONDS", "the time until a message that went back is tried again", float),
    option("--ordered", "process an origin's messages one after the other", default=None),
    option("--relaxed", "process them in parallel", action="store_false", dest="ordered", default=None),
)
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
    example="$ ring create night --order rotation --service-weight 3600000/10000000000",
)
def create(session: Session, args: Namespace) -> None:
    """Create a ring."""
    config = RingConfig.from_json(_settings(args))
    with session.any_ring() as queue:
        queue.admin.create_ring(args.name, config)
    text = f"created ring {args.name}; try: airflow-mq --ring {args.name} enqueue acme 'an order'"
    _done(session, args.name, config, text)


@command(
    _RING, *_SETTINGS, example="$ ring change night --max-attempts 5 --set 'costs={\"service_page_item\": [1, 0]}'"
)
def change(session: Session, args: Namespace) -> None:
    """Configure a ring, for all its users.

    Checked against what is stored: a heap can only grow.
    """
    settings = _settings(args)
    if not settings:
        raise UsageError("no setting: expected --set NAME=VALUE, or one of the options that --help lists")
    with session.queue(args.name) as queue:
        # Read as a whole ring would be, so that costs, weights and weighers get their types.
        typed = RingConfig.from_json(settings)
        config = queue.admin.change_ring(**{name: getattr(typed, name) for name in settings})
        name = queue.ring
    _done(session, name, config, f"configured ring {name}: {', '.join(sorted(settings))}")


@command(
    _RING,
    option("--seed HEX", "the seed of a block that shuffled, as `block show` prints it", seed),
    option("--priority", "the priority of the queues (default: regular)", choices=PRIORITIES, default=REGULAR),
    limit(100),
    example="$ ring order --seed 00112233445566778899aabbccddeeff",
)
def order(session: Session, args: Namespace) -> None:
    """List the ready origins in the order of their turns, also that of a block with a seed.

    The same seed and the same ready origins always give the same order.
    """
    with session.queue(args.name) as queue:
        if args.seed is None:
            names = queue.inspect.ring_order(args.limit, args.priority)
        else:
            names = queue.inspect.shuffled_order(args.seed, args.limit, args.priority)
        shuffles = queue.config.order == "shuffle"
    session.out.value(names)
    for name in names:
        session.out.line(name)
    if not names:
        session.out.remark("nothing of this priority is ready")
    elif shuffles and args.seed is None:
        session.out.remark("each block of this ring draws its own order; give its --seed, which `block show` prints")


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
    heaviest = config.max_message_weight
    if session.out.as_json:
        session.out.value(
            {
                "ring": name,
                "config": settings,
                "max_message_len": config.max_message_len,
                "max_message_weight": heaviest,
                "warnings": warnings,
            }
        )
        return
    written = {key: value if isinstance(value, str) else json.dumps(value) for key, value in settings.items()}
    session.out.fields(
        {
            "ring": name,
            **written,
            "longest message": f"{config.max_message_len:,} bytes",
            "heaviest message": "as each call limits it" if heaviest is None else str(heaviest),
        }
    )
    for warning in warnings:
        session.out.warn(warning)


@command(option("--cull", "remove stale pages, too, with the set-aside messages on them"), example="$ ring housekeep")
def housekeep(session: Session, args: Namespace) -> None:
    """Release dead blocks, and delete what the ring no longer keeps.

    For cron, where no DAG does it: deletes expired events, ledgers, keys and payloads, and applies the ring's policies
    to set-aside messages.
    """
    with session.queue() as queue:
        done = {
            "expired_messages": queue.set_aside.expire(),
            "dead_blocks": queue.admin.housekeep(),
            "culled_pages": queue.set_aside.cull() if args.cull else 0,
        }
    session.out.answer(
        done,
        f"{many(done['dead_blocks'], 'dead block')} released, "
        f"{many(done['expired_messages'], 'set-aside message')} expired, {many(done['culled_pages'], 'page')} culled; "
        "expired events, ledgers, keys and payloads are deleted",
    )


RING = Group(
    "ring",
    "list, create, configure and maintain rings",
    (list_rings, show, order, create, change, fit_weigher, measure_costs, housekeep),
    example="$ ring create night --order rotation\n$ --ring night enqueue acme 'an order'",
)
