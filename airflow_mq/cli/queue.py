"""`queue`: what waits in queues, and decisions about them."""

from __future__ import annotations

import shlex
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from ..engine.rules.book import DEFAULT_SETTINGS
from ..engine.rules.budget import BURSTS, RATES, amount_text, burst_of, rate_of
from ..engine.rules.errors import InvalidInput
from ..engine.rules.groups import paths_of
from ..engine.rules.message import Footprint
from ..engine.rules.nearest import nearest
from ..engine.rules.priority import REGULAR
from ..engine.rules.weight import LARGEST, Weight
from ..sheets import Columns
from ..words import many, percent, size, span
from .arguments import ORDERED, ORIGIN, hexadecimal, limit, name_in, positive, weight, when, why, words
from .command import Group, UsageError, command, option
from .near import meant, question
from .output import shown
from .serialisation import changes_of, in_words, record
from .session import Session

if TYPE_CHECKING:
    from datetime import datetime

    from ..engine.queue import MessageQueue
    from ..engine.queue.inspect.queues import QueueState
    from ..engine.queue.inspect.servicing import Servicing
    from ..engine.queue.values import Paused

_SETTINGS = tuple(vars(DEFAULT_SETTINGS))

#: The orders of a list of queues.
SORTS = ("turn", "name", "backlog", "oldest")
#: A row is a turn or None, a queue, and why it waits.
QUEUES: Columns = (
    ("turn>", lambda row: row[0]),
    ("queue", lambda row: row[1].name),
    ("waiting>", lambda row: f"{row[1].ready:,}" + "+" * row[1].more),
    ("in flight>", lambda row: row[1].in_flight or None),
    ("set aside>", lambda row: row[1].set_aside or None),
    ("bytes>", lambda row: size(row[1].size)),
    ("oldest>", lambda row: None if row[1].age is None else span(row[1].age)),
    ("why", lambda row: row[2]),
)
Row: TypeAlias = "tuple[int | None, QueueState, str]"


def rows_of(states: Sequence[QueueState], servicing: Servicing, pauses: Sequence[Paused], *, turns: bool) -> list[Row]:
    """Return the rows of a table of queues.

    :param turns: whether the queues are in the order of their turns
    """
    by_origin = {pause.origin: pause for pause in pauses}
    whys = [servicing.wait_of(state, by_origin.get(state.origin)).why for state in states]
    return [(place if turns else None, *row) for place, row in enumerate(zip(states, whys), start=1)]


def fullest(queue: MessageQueue, origins: Sequence[str]) -> dict[str, float]:
    """Return for each origin with a quota, or in a group with one, the part of the fullest that is stored."""
    if not queue.session.has_quotas:
        return {}
    found = {one.path: one.part for one in queue.inspect.fullness(origins)}
    parts = {origin: [found.get(path, -1.0) for path in paths_of(origin, queue.config.paths)] for origin in origins}
    return {origin: max(own) for origin, own in parts.items() if max(own) >= 0}


def nothing_waits(cli: Callable[[str], str], due: datetime | None) -> str:
    """Return the text of a ring without queues: when its first delayed message is due, or how to send one."""
    how = "send a message: " + cli("enqueue acme 'an order'")
    return f"nothing waits here; {how if due is None else f'the first delayed message joins its queue at {shown(due)}'}"


@command(
    option("--prefix TEXT", "only origins that begin with TEXT, by name", words, default=""),
    option("--after ORIGIN", "only origins after this one, by name", words, default=""),
    option("--sort", "the order of the queues (default: turn)", choices=SORTS),
    option("--seed HEX", "the turns of a block that shuffled, by its seed: see `block show`", hexadecimal),
    limit(100),
    name="list",
    example="$ queue list\n$ queue list --sort backlog --limit 10\n$ queue list --prefix acme/",
)
def list_queues(session: Session, args: Namespace) -> None:
    """List queues in the order of their turns: what waits in each, for how long, and why.

    Queues without a turn hold set-aside messages only; `--sort name` lists these as well. A `+` marks a very long
    queue, of which a part was counted.
    """
    by_name = bool(args.prefix or args.after)
    sort = args.sort or ("name" if by_name else "turn")
    if by_name and sort != "name":
        raise UsageError(f"--prefix and --after list queues by name: omit --sort {sort}")
    if args.seed is not None and sort != "turn":
        raise UsageError("--seed is for the order of turns: omit --sort, --prefix and --after")
    found: Sequence[QueueState]
    most = args.limit + 1
    with session.queue() as queue:
        if args.seed is not None:
            names = queue.inspect.ring_order(most, seed=args.seed)
            found = queue.inspect.queues(among=[(name, REGULAR) for name in names])
        elif sort == "turn":
            found = queue.inspect.ring(most).queues
        elif sort == "name":
            found = queue.inspect.queues(args.prefix, args.after, most)
        else:
            backlog = queue.inspect.backlog(**{"deepest" if sort == "backlog" else "oldest": most})
            found = backlog.deepest or backlog.oldest
        # An origin may have two queues, and one page by name holds both.
        origins = set(islice(dict.fromkeys(one.origin for one in found), args.limit))
        listed = [one for one in found if one.origin in origins] if sort == "name" else found[: args.limit]
        rows = rows_of(listed, queue.inspect.servicing(), queue.admin.paused(), turns=sort == "turn")
        if args.prefix:
            empty = "" if rows else f"no queue begins with {args.prefix}{meant(queue, args.prefix)}"
        else:
            empty = "" if rows else nothing_waits(queue.session.cli, queue.inspect.ring(1).due)
        full = fullest(queue, [one.origin for one in listed])
        shuffles = queue.config.order == "shuffle" and sort == "turn" and args.seed is None
    values = [record(state, "name", "ready", turn=turn, why=why) for turn, state, why in rows]
    for value, (_, state, _) in zip(values, rows if full else ()):
        value["full"] = full.get(state.origin)
    columns = QUEUES if sort == "turn" else QUEUES[1:]
    if full:
        columns = (*columns[:-1], ("full>", lambda row: percent(full.get(row[1].origin))), columns[-1])
    if session.out.items(rows, columns, empty, values) and len(listed) < len(found):
        how = f"continue with --after={shlex.quote(listed[-1].origin)}" if sort == "name" else "see --limit"
        session.out.remark(f"there are more: {how}")
    if shuffles:
        session.out.remark("each block of this ring draws its own order; give its --seed, which `block show` prints")


@command(
    ORIGIN,
    why(),
    option("--until WHEN", "resume by itself then: 90s, 15m, 2h, 1d or a time with zone", when),
    option("--below", "also pause all present and future origins below it"),
    example="$ queue pause acme --why 'their API is down' --until 2h\n$ queue pause acme --below",
)
def pause(session: Session, args: Namespace) -> None:
    """Skip an origin when servicing; enqueuing continues.

    A block in flight is not stopped. Groups are paused in rings with paths: ring change --set paths=true.
    """
    with session.queue() as queue:
        queue.admin.pause(args.origin, args.why, args.until, below=args.below)
        near = "" if args.below else meant(queue, args.origin)
    what = f"{args.origin} and all below it" if args.below else args.origin
    session.out.answer(
        {"paused": args.origin, "below": args.below},
        f"paused {what}; enqueuing goes on; to resume: {queue.session.cli('queue resume', args.origin)}",
    )
    if near:
        session.out.remark(f"{args.origin} has no messages{near}")


@command(ORIGIN, example="$ queue resume acme")
def resume(session: Session, args: Namespace) -> bool:
    """Service an origin again: end its pause, and the backoff of its messages that returned.

    Also resumes a group that was paused with all origins below it. Exit code 1 if there was neither.
    """
    with session.queue() as queue:
        resumed = queue.admin.resume(args.origin)
        pauses = [] if resumed else queue.admin.paused()
        near = question(nearest(args.origin, [one.origin for one in pauses]))
        for group in (one.origin for one in pauses if one.below and args.origin.startswith(f"{one.origin}/")):
            near = f"; its group {group} is paused; to resume that: {queue.session.cli('queue resume', group)}"
            break
    session.out.answer(
        {"origin": args.origin, "resumed": resumed},
        f"resumed {args.origin}" if resumed else f"{args.origin} was not paused, nor did it wait for a backoff{near}",
    )
    return resumed


_PAUSED: Columns = (
    "origin",
    ("all below", lambda one: "yes" if one.below else ""),
    "reason",
    "actor",
    "since",
    "until",
)


@command(example="$ queue paused")
def paused(session: Session, args: Namespace) -> None:
    """List the paused origins, with time, actor and reason."""
    with session.queue() as queue:
        session.out.items(queue.admin.paused(), _PAUSED, "nothing is paused")


def _reader(name: str) -> Callable[[str], object]:
    """Return the reader of an option of a budget."""

    def read(text: str) -> object:
        try:
            return rate_of(name, text) if name in RATES else burst_of(name, text)
        except InvalidInput as error:
            raise ArgumentTypeError(str(error).replace("_bytes", "-bytes")) from None

    return read


@command(
    ORIGIN,
    option("--share N", "earn N times as much as other origins", positive),
    option("--least TIME/SIZE", "get at least this of each block", weight),
    option("--most TIME/SIZE", "get at most this of each block", weight),
    ORDERED,
    option("--rate TIME/PERIOD", "use at most this over time: 2h/day, 30m/hour", _reader("rate")),
    option("--rate-bytes SIZE/PERIOD", "handle at most this over time: 50GiB/day", _reader("rate_bytes")),
    option("--burst TIME", "save up at most this of the rate (default: one hour's rate)", _reader("burst")),
    option("--burst-bytes SIZE", "save up at most this of the bytes (default: one hour's)", _reader("burst_bytes")),
    option("--quota SIZE", "store at most this many bytes, for example 5GiB: further sends are refused", words),
    option("--unset NAME", "use the ring's setting for NAME, or for all", name_in(*_SETTINGS, "all"), action="append"),
    name="set",
    example="$ queue set acme --share 4 --most 5m/500MB\n$ queue set acme --rate 2h/day\n$ queue set acme --unset most",
)
def set_origin(session: Session, args: Namespace) -> None:
    """Change how an origin is serviced, from the next block on.

    Omitted settings stay. In a ring with paths, share, least, most, rate, burst and quota are those of the whole group
    of this name.
    """
    settings = {name: getattr(args, name) for name in _SETTINGS}
    unset = set(_SETTINGS if "all" in (args.unset or ()) else args.unset or ())
    given = {name for name, value in settings.items() if value is not None}
    if not given and not unset:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in _SETTINGS)
        raise UsageError(f"no setting: expected {flags} or --unset")
    if both := unset & given:
        raise UsageError(f"{min(both)} is both set and unset: specify one of them")
    with session.queue() as queue:
        changed = queue.admin.set_origin(args.origin, **settings, unset=sorted(unset))
        remarks = _budget_remarks(queue, args.origin) if changed.keys() & {*RATES, *BURSTS, "least"} else []
    told = {name: (_amount(name, was), _amount(name, now)) for name, (was, now) in changed.items()}
    session.out.answer({"origin": args.origin, "changed": changes_of(changed)}, f"{args.origin}: {in_words(told)}")
    for remark in remarks:
        session.out.remark(remark)


def _budget_remarks(queue: MessageQueue, origin: str) -> list[str]:
    """Return what is surprising about the budget of an origin."""
    settings = queue.inspect.origin_settings(origin)
    budgets = [one for one in queue.inspect.budgets(origin) if one.path == origin]
    found = []
    for state in budgets:
        bursts = Weight(*(LARGEST if burst is None else burst for burst in (state.burst, state.burst_bytes)))
        first = next((one.needs for one in queue.inspect.queues(among=[(origin, REGULAR)])), None)
        if first is not None and first.exceeds(bursts):
            found.append(
                f"its first message weighs {first}, more than the burst: it starts when the budget is full, and the "
                "messages behind it wait until it is paid for"
            )
        if settings.least is not None and settings.least.exceeds(bursts):
            found.append(f"its least of {settings.least} per block is more than the burst: the budget comes first")
        below = next(iter(queue.inspect.queues(prefix=f"{origin}/", limit=1)), None)
        if below is not None and not queue.config.paths:
            found.append(
                f"this ring has no paths: the budget is of {origin} alone, not of {below.origin}; for one budget of all"
                f" below: {queue.session.cli('ring change --set paths=true')}"
            )
        elif below is None and not queue.footprint(origin).count:
            found.append(f"{origin} has no messages{meant(queue, origin)}")
    return found


@command(ORIGIN, example="$ queue show acme")
def show(session: Session, args: Namespace) -> None:
    """Show what a queue holds, counted exactly, and how it is serviced.

    In a ring with paths, also shows what the origin and all origins below it hold together.
    """
    with session.queue() as queue:
        held, found = queue.footprint(args.origin), queue.inspect.origin_settings(args.origin)
        budgets = queue.inspect.budgets(args.origin)
        group = queue.footprint(args.origin, below=True) if queue.config.paths else None
        near = "" if held.count or held.pages or (group and group.count) else meant(queue, args.origin)
        full = next((one for one in queue.inspect.fullness([args.origin]) if one.path == args.origin), None)
    ordered = "one after the other" if found.ordered else "in parallel"
    pairs = {"origin": args.origin, "holds": _held(held)} | ({"with all below": _held(group)} if group else {})
    pairs |= {"share": found.share, "least": found.least, "most": found.most, "processes": ordered}
    budget = {name: _amount(name, getattr(found, name)) for name in (*RATES, *BURSTS)}
    pairs |= {name.replace("_", " "): value for name, value in budget.items() if value is not None}
    pairs |= {f"budget of {one.path}": one for one in budgets}
    pairs |= {"quota": f"{size(full.quota)}, {percent(full.part)} full, delayed messages included"} if full else {}
    value = {"origin": args.origin, **record(held), "below": group and record(group), **record(found)}
    value |= {"budgets": budgets} | ({"stored": full.stored} if full else {})
    session.out.fields(pairs, value)
    why_it_waits = f"why it waits: {queue.session.cli('explain', args.origin)}"
    session.out.remark(f"{args.origin} has no messages{near}" if near else why_it_waits)


def _amount(name: str, value: object) -> object:
    """Return the value of a setting, a burst as text."""
    return amount_text(BURSTS[name], value) if name in BURSTS and isinstance(value, int) else value


def _held(one: Footprint) -> str:
    return (
        f"{many(one.count, 'message')}, {many(one.size, 'byte')}, {many(one.pages, 'page')} ({one.ready_pages:,} ready)"
    )


QUEUE = Group(
    "queue",
    "list, show, pause and configure queues",
    (list_queues, show, set_origin, pause, resume, paused),
    example="$ queue list\n$ queue pause acme --why 'their API is down'",
)
