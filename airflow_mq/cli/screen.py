"""A reading of a ring as text: facts, queues and blocks, for `status`, `top` and the demo."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from rich.text import Text

from .. import words
from ..sheets import Columns, cells
from ..words import many, outcomes, span
from .output import shown
from .queue import QUEUES, nothing_waits
from .tables import cut, layout

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from ..engine.queue.blocks.block import Block
    from ..engine.queue.servers import Server
    from .watching import Look

#: Servers, and overdue plans, that are named; the smallest number of blocks of a screen.
_NAMED, _BLOCKS = 3, 3
#: The width from which on a table of queues has all columns.
_NARROW = 60
#: Seconds after which a reading counts as old, beyond the interval.
_OLD = 15.0


def facts(look: Look) -> Iterator[tuple[str, str]]:
    """Yield what waits in a ring or is in flight, and who services it, as names and texts."""
    backlog, servicing = look.backlog, look.servicing
    held = f"{many(backlog.messages, 'message')} ({words.size(backlog.size)}) in {many(backlog.queues, 'queue')}"
    held += "" if backlog.age is None else f", the oldest for {span(backlog.age)}"
    yield "backlog", held + (f"; {backlog.delayed:,} delayed" if backlog.delayed else "")
    paused = f"; {many(len(look.pauses), 'pause')}" if look.pauses else ""
    yield "in flight", f"{many(look.in_flight, 'message')}; {backlog.set_aside:,} set aside{paused}"
    skipped = Counter(state.skipped for state in look.queues if state.skipped)
    if skipped and look.sort == "turn":
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in skipped.items())
        yield "skipped", f"{sum(skipped.values()):,} of the first {many(len(look.queues), 'queue')}: {reasons}"
    if servicing.is_held:
        yield "serviced by", f"{servicing.holder}, now"
    for server in sorted(servicing.servers, key=lambda server: server.at, reverse=True)[:_NAMED]:
        yield "serviced by", _server(look, server)
    if not servicing.servers and not servicing.is_held:
        yield "serviced by", "nothing yet: start a DAG with block(), or a worker: airflow-mq service --help"


def _server(look: Look, server: Server) -> str:
    """Return when a server last serviced the ring, and when it is expected next."""
    text = f"{server.title}, last {span((look.at - server.at).total_seconds())} ago"
    usual = look.servicing.usual_interval(server)
    if usual is None:
        return text
    due = server.at + timedelta(seconds=usual)
    return f"{text}; {'next' if due > look.at else 'was'} expected at {due:%H:%M:%S} UTC, every {span(usual)}"


def queue_lines(look: Look, width: int | None) -> list[Text]:
    """Return a heading and a line for each queue."""
    columns = QUEUES if width is None or width >= _NARROW else [QUEUES[place] for place in (0, 1, 2, 6)]
    columns = columns if look.sort == "turn" else columns[1:]
    empty = [Text(nothing_waits(look.cli, look.due))]
    return layout(*cells(columns, look.rows()), width, shown) if look.queues else empty


def block_lines(look: Look, width: int | None, most: int) -> list[Text]:
    """Return a heading and a line for each block, those in progress first."""
    columns: Columns = (
        ("block>", "id"),
        ("state", lambda one: "by hand" if one.by_hand else one.state_at(look.at)),
        "messages>",
        ("used of its limit>", _used),
        ("result", lambda one: outcomes(one.result, processed=False) or None),
        "by",
        ("when", lambda one: _when(one, look.at)),
    )
    return layout(*cells(columns, look.blocks[:most]), width, shown) if look.blocks else [Text("no blocks yet")]


def _used(block: Block) -> str | None:
    """Return which part of the limit of a block is used, of time or of size, whichever is larger."""
    parts = [(used / limit, name) for used, limit, name in zip(block.cost, block.limit, ("time", "size")) if limit]
    return f"{100 * max(parts)[0]:.0f} % of {max(parts)[1]}" if parts else None


def _when(block: Block, now: datetime) -> str:
    if block.ended_at is not None:
        return f"{span((now - block.ended_at).total_seconds())} ago"
    left = (block.deadline - now).total_seconds()
    due = f"due in {span(left)}" if left > 0 else f"{block.state_at(now)} for {span(-left)}"
    return f"for {span((now - block.planned_at).total_seconds())}, {due}"


def _rate(per_second: float | None) -> str:
    if per_second is None:
        return "-"
    return f"{per_second:,.0f}/s" if per_second >= 10 else f"{per_second:.1f}/s"


class Screen:
    """The latest reading, with the error of the store if it does not answer.

    :param interval: seconds between readings, of a screen that fills the terminal; without it, all lines are drawn
    """

    def __init__(self, store: str, look: Look, interval: float | None = None) -> None:
        self.store, self.interval = store, interval
        self.show(look)

    def show(self, look: Look) -> None:
        """Draw another reading from now on."""
        self.look, self.trouble, self._seen = look, "", time.monotonic()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.lines(options.max_width, console.height)

    def lines(self, width: int | None, height: int = 1 << 20) -> list[Text]:
        """Return the lines of the screen; if it is live, as many as the terminal has."""
        rates = "last minute", f"in {_rate(self.look.rate_in)}, out {_rate(self.look.rate_out)}"
        lines = [Text(f"{name:11}  {shown(text)}") for name, text in (*facts(self.look), rates)]
        if height >= 12:
            lines.insert(0, Text(self._title(), "bold"))
        top = [*lines[: max(height // 3, 1)], *self._alarm()]
        below = [Text(), *block_lines(self.look, width, max(height // 4, _BLOCKS))] if height >= 16 else []
        room = max(height - len(top) - len(below), 0)
        table = queue_lines(self.look, width)[:room]
        fill = [Text()] * (0 if self.interval is None else room - len(table))
        found = [*top, *table, *fill, *below][:height]
        return found if width is None else [cut(line, width) for line in found]

    def _title(self) -> str:
        """Return where the ring is, its settings, and the time of the reading."""
        look, limit = self.look, "as each call limits it" if self.look.limit is None else self.look.limit
        is_old = self.trouble or time.monotonic() - self._seen > _OLD + (self.interval or 0.0)
        at = f"{'as of' if is_old else 'at'} {look.at:%H:%M:%S} UTC"
        return f"airflow-mq top  {at}  ring {look.ring}  order {look.order}  limit {limit}  {shown(self.store)}"

    def _alarm(self) -> Iterator[Text]:
        if self.trouble:
            yield Text(self.trouble, "bold white on red")
            return
        for one in self.look.overdue[:_NAMED]:
            yield Text(shown(f"{one.sentence} -> {one.remedy}"), "yellow" if one.is_new else "bold red")
