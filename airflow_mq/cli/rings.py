"""`ring`: the rings of a store, and how they are set."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any

from ..core.config import ORDERS, RingConfig
from ..core.errors import ConfigRefused
from ..core.priority import PRIORITIES, REGULAR
from .command import Command, Option, UsageError, option
from .session import Session
from .values import positive, seed, setting, weight, words

_OFTEN = ("order", "service_weight", "heap_size", "lease", "max_attempts", "backoff", "ordered")


def list_rings(session: Session, args: Namespace) -> None:
    """List the rings of a store."""
    with session.any_ring() as queue:
        names = queue.admin.rings()
    session.out.value(names)
    for name in names:
        session.out.line(name)


def show(session: Session, args: Namespace) -> None:
    """Show how a ring is set."""
    with session.queue(args.name) as queue:
        _show(session, queue.ring, queue.config)


def create(session: Session, args: Namespace) -> None:
    """Make a ring."""
    config = RingConfig.from_json(_settings(args))
    with session.any_ring() as queue:
        queue.admin.create_ring(args.name, config)
    _done(
        session, args.name, config, f"ring {args.name} made; try: airflow-mq --ring {args.name} enqueue acme 'an order'"
    )


def change(session: Session, args: Namespace) -> None:
    """Set a ring differently."""
    settings = _settings(args)
    if not settings:
        raise UsageError("say what to change: --set name=value, or one of the options that --help lists")
    with session.queue(args.name) as queue:
        # Read as a whole ring would be, so that costs, weights and weighers get their types.
        typed = RingConfig.from_json(settings)
        config = queue.admin.change_ring(**{name: getattr(typed, name) for name in settings})
        name = queue.ring
    _done(session, name, config, f"ring {name} changed: {', '.join(sorted(settings))}")


def order(session: Session, args: Namespace) -> None:
    """Tell whose turn it is, also of a ring that shuffles."""
    with session.queue(args.name) as queue:
        if args.seed is None:
            names = queue.inspect.ring_order(args.limit, args.priority)
        else:
            names = queue.inspect.shuffled_order(args.seed, args.limit, args.priority)
        shuffles = queue.config.order == "shuffle"
    if session.out.as_json:
        session.out.value(names)
        return
    for name in names:
        session.out.line(name)
    if not names:
        session.out.remark("nothing of this priority is ready")
    elif shuffles and args.seed is None:
        session.out.remark("each block of this ring draws an order of its own: say its --seed (`block show`)")


def _settings(args: Namespace) -> dict[str, Any]:
    """What was said by --file, then by --set, then by the options of single settings."""
    found: dict[str, Any] = {}
    if args.file is not None:
        try:
            with open(args.file, encoding="utf-8") as file:
                found = json.load(file)
        except (OSError, ValueError) as error:
            raise UsageError(f"the settings in {args.file!r} cannot be read: {error}") from None
        if not isinstance(found, dict):
            raise ConfigRefused("settings are a JSON object, as `ring show --json` prints it")
        found = found.get("config", found)
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
        session.out.value({
            "ring": name, "config": settings, "max_message_len": config.max_message_len,
            "max_message_weight": heaviest, "warnings": warnings,
        })  # fmt: skip
        return
    written = {key: value if isinstance(value, str) else json.dumps(value) for key, value in settings.items()}
    session.out.fields({
        "ring": name, **written,
        "longest message": f"{config.max_message_len:,} bytes",
        "heaviest message": "as each call says" if heaviest is None else str(heaviest),
    })  # fmt: skip
    for warning in warnings:
        session.out.warn(warning)


_SETTINGS: tuple[Option, ...] = (
    option(
        "--set", action="append", type=setting, metavar="NAME=VALUE",
        help="any setting that `ring show` lists, its value in JSON; may be repeated",
    ),
    option("--file", metavar="PATH", help="settings in JSON, as `ring show --json` prints them"),
    option("--order", choices=ORDERS, help="whose turn it is"),
    option("--service-weight", type=weight, metavar="TIME/SIZE", help="what a block may cost"),
    option("--heap-size", type=positive, metavar="BYTES", help="what a page may hold; it may only grow"),
    option("--lease", type=float, metavar="SECONDS", help="after which anyone may release a block that nobody renewed"),
    option("--max-attempts", type=positive, metavar="N", help="tries after which a message is set aside"),
    option("--backoff", type=float, metavar="SECONDS", help="until a message that went back is tried again"),
    option("--ordered", action="store_true", default=None, help="process an origin's messages one after the other"),
    option(
        "--relaxed", action="store_false", dest="ordered", default=None, help="process an origin's messages at once"
    ),
)  # fmt: skip
_WHICH = option("name", type=words, nargs="?", metavar="RING", help="the ring (default: that of --ring)")

RINGS = (
    Command("list", "list the rings of the store", list_rings, example="$ ring list"),
    Command(
        "show", "show how a ring is set, and what is odd about it", show,
        (_WHICH,),
        example="$ ring show default --json",
    ),
    Command(
        "order", "the ready origins in the order of their turns, or of a block that shuffles by its seed", order,
        (
            _WHICH,
            option("--seed", type=seed, metavar="HEX", help="of a block that shuffled: `block show` tells it"),
            option("--priority", choices=PRIORITIES, default=REGULAR, help="which books (default: regular)"),
            option("--limit", type=positive, default=100, metavar="N", help="at most so many (default: 100)"),
        ),
        about="A seed and the same ready origins give the same order, always: what a block did can be shown after.",
        example="$ ring order --seed 00112233445566778899aabbccddeeff",
    ),
    Command(
        "create", "make a ring", create,
        (option("name", type=words, metavar="NAME", help="letters, digits, - and _"), *_SETTINGS),
        example="$ ring create night --order rotation --service-weight 3600000/10000000000",
    ),
    Command(
        "change", "set a ring differently, for everybody", change,
        (_WHICH, *_SETTINGS),
        about="Checked against what is stored: a heap may only grow.",
        example="$ ring change night --max-attempts 5 --set 'costs={\"service_page_item\": [1, 0]}'",
    ),
)  # fmt: skip
