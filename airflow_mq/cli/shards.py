"""`shards`: the stores of a sharded queue, their layout, and the size of a fleet."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .command import Group, command, option
from .errors import UsageError
from .session import DEFAULT_RING, Session
from .values import count, json_object, positive

if TYPE_CHECKING:
    from ..sharding import ShardedQueue

VARIABLE = "AIRFLOW_MQ_SHARDS"
_FILE = option(
    "--shards FILE",
    f'the shards in JSON: {{NAME: {{"store": URI, "weight": 1}}}} (default: {VARIABLE}, or the Airflow connection of '
    "--conn-id)",
)


@contextmanager
def _opened(session: Session, args: Namespace) -> Iterator[tuple[ShardedQueue, dict[str, int]]]:
    """Open the sharded queue of the command line, and yield it with the configured weights."""
    from ..sharding import ShardedQueue

    file = args.shards or os.environ.get(VARIABLE)
    if session.conn_id and not file:
        queue, weights = session.sharded(session.conn_id)
    elif file:
        stores, weights = _read(file)
        queue = ShardedQueue(stores, session.ring or DEFAULT_RING)
    else:
        raise UsageError(f"no shards: expected --shards FILE, the variable {VARIABLE}, or --conn-id")
    with queue:
        yield queue, weights


def _read(path: str) -> tuple[dict[str, str], dict[str, int]]:
    """Return stores and weights of a file; errors quote no address."""
    stores: dict[str, str] = {}
    weights: dict[str, int] = {}
    for name, shard in json_object(path).items():
        if not isinstance(shard, dict) or not isinstance(shard.get("store"), str) or shard.keys() - {"store", "weight"}:
            raise UsageError(f'invalid shard {name!r} in {path}: expected {{"store": URI, "weight": NUMBER}}')
        stores[name], weights[name] = shard["store"], shard.get("weight", 1)
    return stores, weights


@command(_FILE, example="$ shards status --shards shards.json")
def status(session: Session, args: Namespace) -> bool:
    """Show each shard: whether it answers, its weight, its layout, and what it holds."""
    with _opened(session, args) as (queue, weights):
        found = queue.status()
    session.out.value(found)
    rows = [
        (
            each.name, each.where, "-" if each.weight is None else each.weight, each.version or "-",
            "-" if each.pinned is None else each.pinned, each.backlog.messages if each.backlog else "-",
            "down" if each.error else "",
        )
        for each in found
    ]  # fmt: skip
    if not session.out.as_json:
        session.out.table(("shard", "store", "weight>", "layout>", "pinned>", "messages>", ""), rows)
    stored = {each.name: each.weight for each in found if each.weight is not None}
    if stored != weights:
        session.out.remark("configured weights differ from the layout; to adopt them, run `airflow-mq shards apply`")
    return not any(each.error for each in found)


@command(
    option("origin ORIGIN", "the origin"),
    _FILE,
    example="$ shards where acme --shards shards.json",
)
def where(session: Session, args: Namespace) -> None:
    """Show the shard of an origin, and whether the origin moves on when it is empty."""
    with _opened(session, args) as (queue, _):
        place, owner = queue.place(args.origin), queue.layout().owner(args.origin)
    text = f"{place.shard}, until its messages and keys are gone; then {owner}" if place.pinned else place.shard
    session.out.answer({"origin": args.origin, "shard": place.shard, "pinned": place.pinned, "owner": owner}, text)


@command(
    _FILE,
    option("--without NAME", "remove this shard, which has weight 0 and has drained"),
    example="$ shards apply --shards shards.json\n$ shards apply --shards shards.json --without two",
)
def apply(session: Session, args: Namespace) -> None:
    """Let all shards adopt the configured weights; no message moves.

    A shard that is removed adopts the new layout, too: remove it from the configuration afterwards.
    """
    with _opened(session, args) as (queue, weights):
        if args.without and args.without not in weights:
            raise UsageError(f"unknown shard {args.without!r}: expected one of {', '.join(sorted(weights))}")
        layout = queue.apply({name: weight for name, weight in weights.items() if name != args.without})
    shards = ", ".join(f"{name}={weight}" for name, weight in layout.shards.items())
    session.out.answer(json.loads(layout.to_json()), f"layout {layout.version}: {shards}")


@command(_FILE, example="$ shards drain --shards shards.json")
def drain(session: Session, args: Namespace) -> bool:
    """Release the origins that have left their former shard; exit with 1 while some are left."""
    with _opened(session, args) as (queue, _):
        drained = queue.drain()
    released, left = sum(drained.released.values()), sum(drained.pinned.values())
    session.out.answer(
        {"released": dict(drained.released), "pinned": dict(drained.pinned), "missing": sorted(drained.missing)},
        f"{released:,} origins released, {left:,} still pinned"
        + (f"; no answer from {', '.join(sorted(drained.missing))}" if drained.missing else ""),
    )
    return not left and not drained.missing


@command(
    option("--messages-per-second N", "messages in and out per second", positive, required=True),
    option("--origins N", "origins (default: 1000)", positive, default=1_000),
    option("--single PERCENT", "the part of messages that are sent one by one (default: 0)", count, default=0),
    option("--block-messages N", "messages of a block (default: 100000)", positive, default=100_000),
    option("--cores N", "cores of a database server (default: 4)", positive, default=4),
    option("--use PERCENT", "the part of the cores to plan with (default: 50)", positive, default=50),
    option("--report FILE", "take the costs from `raw.json` of a benchmark report of your own machines"),
    example="$ shards plan --messages-per-second 50000 --origins 20000",
)
def plan(session: Session, args: Namespace) -> None:
    """Plan a fleet: servers and blocks for a load, from measured costs of a message."""
    from ..sharding.fleet import Costs, Load, fleet_of

    costs = Costs.of_report(json_object(args.report), args.report) if args.report else Costs()
    load = Load(args.messages_per_second, args.origins, args.block_messages, args.single)
    fleet = fleet_of(load, costs, args.cores, args.use)
    session.out.value(fleet)
    if not session.out.as_json:
        session.out.fields(fleet.shown())


SHARDS = Group(
    "shards",
    "show, change and plan the stores of a sharded queue",
    (status, where, apply, drain, plan),
    example="$ shards apply --shards shards.json\n$ shards status --shards shards.json",
)
