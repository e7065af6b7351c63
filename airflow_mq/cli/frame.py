"""Picture of a ring as lines of text, for a terminal of any size and for a pipe."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from textwrap import wrap
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from .. import words
from ..engine.rules.book import IN_FLIGHT
from ..engine.rules.priority import queue_name
from .output import shown

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import Console, ConsoleOptions, RenderResult

    from ..engine.queue.blocks.block import Block
    from ..engine.queue.inspect.queues import QueueState
    from .watching import Look

#: Colours of the states of a block.
_STATES = {"planned": "cyan", "settled": "green", "released": "yellow", "overdue": "bold red"}
#: The largest number of lines of a sentence, and of sentences; the smallest number of blocks.
_SENTENCE, _SENTENCES, _BLOCKS = 3, 3, 3
_EMPTY = "the ring is empty; send something: airflow-mq enqueue acme 'an order'"
#: Seconds after which a reading counts as old, beyond the interval.
_OLD = 15.0


class Frame:
    """Picture of the latest reading, with the error of the store if it does not answer.

    :param interval: seconds between readings, of a picture that fills the terminal; without it, all lines are drawn
    """

    def __init__(self, store: str, look: Look, interval: float | None = None) -> None:
        self.store, self.interval = store, interval
        self.show(look)

    def show(self, look: Look) -> None:
        """Draw another reading from now on."""
        self.look, self.trouble, self._seen = look, "", time.monotonic()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        look, width, mark = self.look, options.max_width, mark_of(options)
        height = 1 << 20 if self.interval is None else console.height
        if height < 12:
            # There is no room for the store and the ring's settings.
            top = _flow(_totals(look), width)[: 2 if height > 6 else 1]
        else:
            top = [*_flow(self._ring(), width), *_flow(_totals(look), width)][:6]
        top = [*top, *self._alarm(width)][: max(height - 2, 1)]
        room = height - len(top)
        below = [Text(), *blocks(look, width, max(room // 4, _BLOCKS), mark)] if room >= 10 else []
        table = [*queues(look, width, max(room - len(below) - 1, 0), mark)]
        gap = [Text()] * (0 if self.interval is None else room - len(table) - len(below))
        for line in [*top, *table, *gap, *below][:height]:
            if mark == "#":
                line.plain = line.plain.replace("…", "~")
            yield line

    def _ring(self) -> Iterator[tuple[str, str]]:
        """Yield where the ring is, and its settings."""
        look, limit = self.look, self.look.limit
        yield "airflow-mq top", self.store
        yield "ring", look.ring
        yield "order", look.order
        yield "limit", "as each call limits it" if limit is None else str(limit)
        is_old = self.trouble or time.monotonic() - self._seen > _OLD + (self.interval or 0.0)
        yield "as of" if is_old else "at", f"{look.at:%H:%M:%S} UTC"

    def _alarm(self, width: int) -> Iterator[Text]:
        if self.trouble:
            yield from _paragraph(f" {self.trouble} ", width, "bold white on red")
            return
        for one in self.look.overdue[:_SENTENCES]:
            yield from _paragraph(f"{one.sentence} -> {one.remedy}", width, "yellow" if one.is_new else "bold red")


def mark_of(options: ConsoleOptions) -> str:
    """Return the character of bars."""
    return "#" if options.ascii_only else "█"


def _totals(look: Look) -> Iterator[tuple[str, str]]:
    """Yield the totals and rates of a ring, and who services it."""
    backlog, servicing = look.backlog, look.servicing
    yield "waiting", f"{backlog.waiting:,} ({words.size(backlog.size)})"
    yield "in flight", f"{look.in_flight:,}"
    yield "set aside", f"{backlog.set_aside:,}"
    if backlog.delayed:
        yield "delayed", f"{backlog.delayed:,}"
    yield "queues", f"{backlog.queues:,}"
    if look.paused:
        yield "paused", f"{look.paused:,}"
    yield "oldest", _span(backlog.age)
    yield "in", _rate(look.rate_in)
    yield "out", _rate(look.rate_out)
    if servicing.is_held:
        yield "now", servicing.holder or ""
    elif servicing.servers:
        latest = max(servicing.servers, key=lambda server: server.at)
        yield "last serviced", f"{_span((look.at - latest.at).total_seconds())} ago by {latest.name}"


def _flow(facts: Iterable[tuple[str, str]], width: int) -> list[Text]:
    """Return as many facts a line as fit."""
    lines = [Text()]
    for name, value in facts:
        fact = Text(f"{name} ", "dim").append(shown(value), "not dim bold")
        if lines[-1].cell_len and lines[-1].cell_len + 2 + fact.cell_len > width:
            lines.append(Text())
        lines[-1].append("  " if lines[-1].cell_len else "").append_text(fact)
    return [_cut(line, width) for line in lines]


def queues(look: Look, width: int, rows: int, mark: str) -> Iterator[Text]:
    """Yield a heading, and a line for each queue."""
    names = [shown(queue_name(one.origin, one.priority)) for one in look.queues[:rows]]
    has_age, has_bar, has_note, has_bytes = width >= 34, width >= 48, width >= 60, width >= 72
    left = max(width - 17 - 9 * has_bytes - 8 * has_age - 18 * has_note, 4)
    # A name that can be read is worth more than a long bar.
    longest = max(map(cell_len, names), default=0)
    wide = min(max(longest, 12), max(left * 2 // 5, min(left - 12, 24), 12)) if has_bar else left
    bar_wide = min(max(left - wide - 2, 4), 60) if has_bar else 0
    in_turn = look.sort == "turn"
    heading = f" {'turn' if in_turn else '    '} {set_cell_size('queue', wide)}{'':{bar_wide + 2 * has_bar}} messages"
    heading += (
        f"{'bytes':>9}" * has_bytes + f"{'oldest':>8}" * has_age + f"  by {look.sort}" * (has_note and not in_turn)
    )
    yield _heading(heading, width)
    depths = [max(one.messages - one.set_aside, 0) for one in look.queues]
    deepest = max(depths, default=0) or 1
    for place, (name, one, depth) in enumerate(zip(names, look.queues, depths), start=1):
        line = Text(f"{f'{place:,}' if in_turn else '':>5} ", "dim")
        line.append(fitted(name, wide), "not dim bold" if in_turn and place == 1 else "not dim")
        if has_bar:
            line.append("  ").append_text(_bar(depth / deepest, bar_wide, "yellow" if one.paused else "green", mark))
        line.append(f"{f'{depth:,}' + '+' * one.more:>9}", "not dim")
        line.append(f"{words.size(one.size):>9}" * has_bytes, "dim").append(f"{_span(one.age):>8}" * has_age, "not dim")
        yield _cut(line.append_text(_note(one)) if has_note else line, width)
    if not names and rows > 0:
        yield _cut(Text(f"  {_EMPTY}", "dim"), width)


def _note(one: QueueState) -> Text:
    if one.skipped not in ("", IN_FLIGHT):
        return Text(f"  {one.skipped}", "yellow")
    if one.in_flight:
        return Text(f"  in flight {one.in_flight:,}", "cyan")
    return Text(f"  set aside {one.set_aside:,}" if one.set_aside else "", "dim")


def blocks(look: Look, width: int, rows: int, mark: str) -> Iterator[Text]:
    """Yield a heading and the blocks, those in progress first, each with the used part of its limit."""
    yield _heading(" block state    messages  used of limit", width)
    for one in look.blocks[:rows]:
        yield _block(one, look.at, width, mark)
    if not look.blocks:
        yield _cut(Text("  none yet", "dim"), width)


def _block(one: Block, now: datetime, width: int, mark: str) -> Text:
    state = one.state_at(now)
    line = Text(f"{one.id:>6} ").append(f"{'by hand' if one.by_hand else state:<8} ", _STATES[state])
    line.append(f"{one.messages:>8,}  ")
    parts = [(used / limit if limit else float(used > 0), limit) for used, limit in zip(one.cost, one.limit)]
    (part, limit), what = max(zip(parts, ("time", "size")), key=lambda pair: pair[0][0])
    share = f"{100 * part:>4.0f} % {what} " if limit else f"{'':>12}"
    bar_wide = min(width - line.cell_len - len(share) - 30, 30)
    if bar_wide >= 6:
        line.append_text(_bar(part if limit else 0.0, bar_wide, _STATES[state], mark))
    line.append(share)
    if one.ended_at is not None:
        line.append(f"{_span((now - one.ended_at).total_seconds())} ago")
    else:
        left = (one.deadline - now).total_seconds()
        due = f"due in {_span(left)}" if left > 0 else f"overdue {_span(-left)}"
        line.append(f"for {_span((now - one.planned_at).total_seconds())}, {due}")
    counts = ((one.result.get(name, 0), name.replace("_", " ")) for name in ("failed", "returned", "set_aside"))
    came = ", ".join(f"{count:,} {what}" for count, what in counts if count)
    return _cut(line.append(f"  {came or shown(one.by)}", "dim"), width)


def fitted(text: str, width: int) -> str:
    """Return a text of exactly this width; a longer one loses its middle: tenants and paths differ at the ends."""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    front, end = set_cell_size(text, (width - 1) // 2), text
    while cell_len(end) > width - 1 - cell_len(front):
        end = end[1:]
    return set_cell_size(f"{front}…{end}", width)


def _bar(part: float, width: int, style: str, mark: str) -> Text:
    """Return the bar of a part of a whole; a positive part has at least one mark."""
    length = max(1, round(min(part, 1.0) * width)) if part > 0 else 0
    return Text(mark * length, style).append(" " * (width - length))


def _paragraph(text: str, width: int, style: str) -> list[Text]:
    lines = wrap(shown(text), max(width, 10))[:_SENTENCE]
    return [_cut(Text(line.ljust(width), style), width) for line in lines]


def _heading(text: str, width: int) -> Text:
    return _cut(Text(text.ljust(width), "bold reverse"), width)


def _cut(line: Text, width: int) -> Text:
    line.no_wrap = True
    line.truncate(max(width, 1), overflow="ellipsis")
    return line


def _span(seconds: float | None) -> str:
    """Return a length of time, or a dash if there is none."""
    return "-" if seconds is None else words.span(seconds)


def _rate(per_second: float | None) -> str:
    """Return a number of messages per second."""
    if per_second is None:
        return "-"
    return f"{per_second:,.0f}/s" if per_second >= 10 else f"{per_second:.1f}/s"
