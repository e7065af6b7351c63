"""Drawing of a ring as lines of text: for a terminal of any size, for a pipe, and for the demo."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from textwrap import wrap
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from .. import words
from ..engine.rules.priority import queue_name
from .output import shown

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import Console, ConsoleOptions, RenderResult

    from ..engine.queue import Block, QueueState
    from .watching import Look

#: Colours of the states of a block.
_STATES = {"planned": "cyan", "settled": "green", "released": "yellow", "overdue": "bold red"}
#: Smallest and largest number of lines for blocks, the largest for a sentence, and the largest number of sentences.
_FEW, _MANY, _SENTENCE, _SENTENCES = 3, 8, 3, 3
_EMPTY = "the ring is empty; send something: airflow-mq enqueue acme 'an order'"
#: The mark of bars, where the terminal knows it.
_BLOCK = "█"
#: Width of the clock.
_CLOCK = 20
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
        mark, width = mark_of(options.encoding), options.max_width
        for line in self._whole(width, mark) if self.interval is None else self._fitted(width, console.height, mark):
            if mark != _BLOCK:
                line.plain = line.plain.replace("…", "~")
            yield line

    def _whole(self, width: int, mark: str) -> list[Text]:
        look = self.look
        found = [*header(look, self.store, width), *self._alarm(width), Text()]
        found += [*queues(look, width, len(look.queues) or 1, mark), Text()]
        return found + blocks(look, width, len(look.blocks), mark)

    def _fitted(self, width: int, height: int, mark: str) -> list[Text]:
        look = self.look
        # There is no room for the store and the ring's settings.
        if height < 12:
            top = _flow(_totals(look), width)[: 2 if height > 6 else 1]
        else:
            top = header(look, self.store, width)[:6]
            top[0] = _beside(top[0], self._clock(), width)
        top += self._alarm(width)[: max(height - len(top) - 2, 0)]
        room = height - len(top)
        below: list[Text] = []
        if room >= 10:
            below = blocks(look, width, min(max(room // 4, _FEW), _MANY, max(len(look.blocks), 1)), mark)
        table = queues(look, width, max(room - len(below) - 1, 0), mark)
        gap = [Text() for _ in range(room - len(below) - len(table))]
        return [*top, *table, *gap, *below][:height]

    def _alarm(self, width: int) -> list[Text]:
        if self.trouble:
            return _paragraph(f" {self.trouble} ", width, "bold white on red")
        lines: list[Text] = []
        for one in self.look.overdue[:_SENTENCES]:
            lines += _paragraph(f"{one.sentence} -> {one.remedy}", width, "yellow" if one.is_new else "bold red")
        return lines

    def _clock(self) -> Text:
        old = time.monotonic() - self._seen
        if self.trouble or old > _OLD + (self.interval or 0.0):
            return Text(f"as of {self.look.at:%H:%M:%S} UTC", "bold yellow")
        return Text(f"{self.look.at:%H:%M:%S} UTC", "dim")


def mark_of(encoding: str) -> str:
    """Return the character of bars."""
    return _BLOCK if encoding.lower().startswith("utf") else "#"


# The header.


def header(look: Look, store: str, width: int) -> list[Text]:
    """Return the store and the ring, then its totals and rates: as many facts a line as fit."""
    limit = "as each call limits it" if look.limit is None else str(look.limit)
    ring = [("airflow-mq top", store), ("ring", look.ring), ("order", look.order), ("limit", limit)]
    return [*_flow(ring, width - _CLOCK), *_flow(_totals(look), width)]


def _totals(look: Look) -> Iterator[tuple[str, str]]:
    backlog, servicing = look.backlog, look.servicing
    yield "waiting", f"{backlog.waiting:,} ({words.size(backlog.size)})"
    yield "in flight", f"{look.in_flight:,}"
    yield "set aside", f"{backlog.set_aside:,}"
    if backlog.delayed:
        yield "delayed", f"{backlog.delayed:,}"
    yield "queues", f"{backlog.queues:,}"
    if look.paused:
        yield "paused", f"{look.paused:,}"
    yield "oldest", span(backlog.age)
    yield "in", rate(look.rate_in)
    yield "out", rate(look.rate_out)
    if servicing.is_held:
        yield "now", servicing.holder or ""
    elif servicing.servers:
        latest = max(servicing.servers, key=lambda server: server.at)
        yield "last serviced", f"{span((look.at - latest.at).total_seconds())} ago by {latest.name}"


def _flow(facts: Iterable[tuple[str, str]], width: int) -> list[Text]:
    lines = [Text()]
    for name, value in facts:
        fact = Text(f"{name} ", "dim").append(shown(value), "not dim bold")
        if lines[-1].cell_len and lines[-1].cell_len + 2 + fact.cell_len > width:
            lines.append(Text())
        if lines[-1].cell_len:
            lines[-1].append("  ")
        lines[-1].append_text(fact)
    return [_cut(line, max(width, 1)) for line in lines]


# Queues and blocks.


def queues(look: Look, width: int, rows: int, mark: str) -> list[Text]:
    """Return a heading, and a line for each queue."""
    names = [shown(queue_name(one.origin, one.priority)) for one in look.queues[:rows]]
    has_age, has_bar, has_note, has_bytes = width >= 34, width >= 48, width >= 60, width >= 72
    left = max(width - 17 - 9 * has_bytes - 8 * has_age - 18 * has_note, 4)
    # A name that can be read is worth more than a long bar.
    longest = max(map(cell_len, names), default=0)
    wide = min(max(longest, 12), max(left * 2 // 5, min(left - 12, 24), 12)) if has_bar else left
    bar_wide = min(max(left - wide - 2, 4), 60) if has_bar else 0
    order = "turn" if look.sort == "turn" else "    "
    heading = f" {order} {set_cell_size('queue', wide)}{'':{bar_wide + 2 * has_bar}} messages"
    heading += f"{'bytes':>9}" * has_bytes + f"{'oldest':>8}" * has_age
    heading += f"  by {look.sort}" * (has_note and look.sort != "turn")
    lines = [_cut(Text(heading.ljust(width), "bold reverse"), width)]
    most = max((_depth(one) for one in look.queues), default=0)
    for place, (name, one) in enumerate(zip(names, look.queues)):
        is_head = place == 0 and look.sort == "turn"
        line = Text(f"{f'{place + 1:,}' if look.sort == 'turn' else '':>5} ", "dim")
        line.append(fitted(name, wide), "not dim bold" if is_head else "not dim")
        if has_bar:
            line.append("  ").append_text(_bar(_depth(one), most, bar_wide, "yellow" if one.paused else "green", mark))
        line.append(f"{f'{_depth(one):,}' + '+' * one.more:>9}", "not dim")
        line.append(f"{words.size(one.size):>9}" if has_bytes else "", "dim")
        line.append(f"{span(one.age):>8}" if has_age else "", "not dim")
        if has_note:
            line.append_text(_note(one))
        lines.append(_cut(line, width))
    if not names and rows > 0:
        lines.append(_cut(Text(f"  {_EMPTY}", "dim"), width))
    return lines


def _depth(one: QueueState) -> int:
    """Return the messages of a queue that have a turn."""
    return max(one.messages - one.set_aside, 0)


def _note(one: QueueState) -> Text:
    if one.skipped in ("paused", "backoff"):
        return Text(f"  {one.skipped}", "yellow")
    if one.in_flight:
        return Text(f"  in flight {one.in_flight:,}", "cyan")
    return Text(f"  set aside {one.set_aside:,}" if one.set_aside else "", "dim")


def blocks(look: Look, width: int, rows: int, mark: str) -> list[Text]:
    """Return the blocks, those in progress first, each with the used part of its limit."""
    lines = [_cut(Text(" block state    messages  used of limit".ljust(width), "bold reverse"), width)]
    for one in look.blocks[:rows]:
        lines.append(_block(one, look.at, width, mark))
    if not look.blocks:
        lines.append(_cut(Text("  none yet", "dim"), width))
    return lines


def _block(one: Block, now: datetime, width: int, mark: str) -> Text:
    state = one.state_at(now)
    used, limit, part = max(
        ((one.cost.time, one.limit.time, "time"), (one.cost.size, one.limit.size, "size")),
        key=lambda each: each[0] / each[1] if each[1] else float(each[0] > 0),
    )
    line = Text(f"{one.id:>6} ").append(f"{'by hand' if one.by_hand else state:<8} ", _STATES[state])
    line.append(f"{one.messages:>8,}  ")
    share = f"{100 * used / limit:>4.0f} % {part} " if limit else f"{'':>12}"
    bar_wide = min(width - line.cell_len - len(share) - 30, 30)
    if bar_wide >= 6:
        line.append_text(_bar(used, limit, bar_wide, _STATES[state], mark))
    line.append(share)
    if one.ended_at is not None:
        line.append(f"{span((now - one.ended_at).total_seconds())} ago")
    else:
        left = (one.deadline - now).total_seconds()
        due = f"due in {span(left)}" if left > 0 else f"overdue {span(-left)}"
        line.append(f"for {span((now - one.planned_at).total_seconds())}, {due}")
    parts = ((one.result.get(name, 0), name.replace("_", " ")) for name in ("failed", "went_back", "set_aside"))
    came = ", ".join(f"{count:,} {what}" for count, what in parts if count)
    return _cut(line.append(f"  {came}" if came else f"  {shown(one.by)}", "dim"), width)


# Pieces.


def fitted(text: str, width: int) -> str:
    """Return a text of exactly this width; a longer one loses its middle: tenants and paths differ at the ends."""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    front, end = set_cell_size(text, (width - 1) // 2), text
    while cell_len(end) > width - 1 - cell_len(front):
        end = end[1:]
    return set_cell_size(f"{front}…{end}", width)


def _bar(part: float, whole: float, width: int, style: str, mark: str) -> Text:
    """Return the bar of a part of a whole; a positive part has at least one mark."""
    length = max(1, round(min(part / whole, 1.0) * width)) if part > 0 and whole > 0 else 0
    return Text(mark * length, style).append(" " * (width - length))


def _paragraph(text: str, width: int, style: str) -> list[Text]:
    lines = wrap(shown(text), max(width, 10))[:_SENTENCE]
    return [_cut(Text(line.ljust(width), style), width) for line in lines]


def _beside(line: Text, right: Text, width: int) -> Text:
    """Return a line with a text at its right end, if both fit."""
    room = width - line.cell_len - right.cell_len
    return line.append(" " * room).append_text(right) if room >= 2 else line


def _cut(line: Text, width: int) -> Text:
    line.no_wrap = True
    line.truncate(width, overflow="ellipsis")
    return line


def span(seconds: float | None) -> str:
    """Return a length of time, or a dash if there is none."""
    return "-" if seconds is None else words.span(seconds)


def rate(per_second: float | None) -> str:
    """Return a number of messages per second."""
    if per_second is None:
        return "-"
    return f"{per_second:,.0f}/s" if per_second >= 10 else f"{per_second:.1f}/s"
