"""Drawing of a ring as lines of text: for a terminal of any size, for a pipe, and for the demo."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from textwrap import wrap

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from ...core.priority import queue_name
from ...core.weight import Weight
from ...queue import Block, QueueState
from ...queue.inspect.top import Look
from ..output import shown
from .units import rate, size, span
from .view import View

#: Colours of the states of a block.
_STATES = {"planned": "cyan", "settled": "green", "released": "yellow", "overdue": "bold red"}
#: Smallest and largest number of lines for blocks and for waits.
_LEAST_BLOCKS, _MOST_BLOCKS = 3, 8
_EMPTY = "the ring is empty; send something: airflow-mq enqueue acme 'an order'"
_NO_MATCH = "no queue here has this in its name; esc shows all"
_KEYS = (
    ("q", "quit"),
    ("?", "help"),
    ("↑↓", "select"),
    ("/", "search"),
    ("s", "sort"),
    ("e", "explain"),
    ("p", "pause"),
    ("space", "freeze"),
)


@dataclass(frozen=True)
class Marks:
    """Characters of bars."""

    full: str = "█"
    parts: str = "▏▎▍▌▋▊▉"
    flight: str = "▓"
    paused: str = "▒"
    rest: str = "·"
    cursor: str = "▸"
    plain: bool = False


UNICODE = Marks()
ASCII = Marks("#", "", "=", ":", ".", ">", True)


def frame(view: View, store: str, width: int, height: int, marks: Marks = UNICODE) -> list[Text]:
    """Return the lines of a screen, at most `height`."""
    lines = header(view.look, store, width, 1 if height < 12 else 4, view)
    if view.trouble:
        lines.append(_line(width, (f" {view.trouble} ", "bold white on red")))
    below = 1
    if view.mode == "text":
        return [*lines, *_text(view, width, height - len(lines) - below), *_footer(view, width)]
    if view.look is None:
        lines.append(Text("looking …", "dim"))
        return [*lines, *_fill(height - len(lines) - below), *_footer(view, width)]
    tables = _tables(view.look, width, height - len(lines) - below, marks)
    room = height - len(lines) - len(tables) - below - 1
    view.fit(room)
    lines += ring(view.look, width, max(room, 0), marks, view)
    lines += _fill(height - len(lines) - len(tables) - below)
    return [*lines, *tables, *_footer(view, width)][:height]


# The header.


def header(look: Look | None, store: str, width: int, most: int = 4, view: View | None = None) -> list[Text]:
    """Return the lines with the store, the ring, its totals and its rates."""
    facts = [("", "airflow-mq top"), ("", store)]
    if look is not None:
        facts = [*facts, *_facts(look)]
    lines = _flow(facts, width)
    if view is not None and look is not None:
        state = "frozen" if view.frozen else f"{look.at:%H:%M:%S} UTC"
        room = width - lines[0].cell_len - cell_len(state) - 1
        if room >= 0:
            lines[0].append(" " * (room + 1))
            lines[0].append(state, "bold yellow" if view.frozen else "dim")
    return lines[:most]


def _facts(look: Look) -> list[tuple[str, str]]:
    found = [
        ("ring", look.ring),
        ("order", look.order),
        ("limit", "as each call limits it" if look.limit is None else str(look.limit)),
    ]
    totals = look.totals
    if totals is not None:
        found += [
            ("ready", f"{totals.queues:,}"),
            ("waiting", f"{totals.waiting:,} ({size(totals.size)})"),
            ("in flight", f"{totals.in_flight:,}"),
            ("set aside", f"{totals.set_aside:,}"),
        ]
        found += [("delayed", f"{totals.delayed:,}")] if totals.delayed else []
    found += [
        ("paused", f"{look.paused:,}"),
        ("oldest", span(look.oldest, look.at)),
        ("in", rate(look.rate_in)),
        ("out", rate(look.rate_out)),
    ]
    return found


def _flow(facts: Iterable[tuple[str, str]], width: int) -> list[Text]:
    """Return names and values, as many per line as fit."""
    lines = [Text()]
    for place, (name, value) in enumerate(facts):
        one = Text()
        if name:
            one.append(f"{name} ", "dim")
        one.append(shown(value), "bold" if name or place == 0 else "")
        if lines[-1].cell_len and (lines[-1].cell_len + 2 + one.cell_len > width or name == "ring"):
            lines.append(Text())
        if lines[-1].cell_len:
            lines[-1].append("  ")
        lines[-1].append_text(one)
    return [_cut(line, width) for line in lines]


# The ring.


def ring(look: Look, width: int, rows: int, marks: Marks = UNICODE, view: View | None = None) -> list[Text]:
    """Return a heading, and a line for each ready queue from the head on."""
    first = view.first if view is not None else 0
    turns = look.turns[first : first + rows]
    columns = _Columns(width, [queue_name(one.origin, one.priority) for one in turns])
    lines = [columns.heading(look)]
    most = max((one.messages for one in look.turns), default=0)
    for place, turn in enumerate(turns, start=first):
        selected = view is not None and place == view.cursor
        lines.append(columns.row(place, turn, most, look, marks, selected))
    if not turns:
        nothing = _NO_MATCH if look.search else _EMPTY
        lines.append(_line(width, (f"  {nothing}", "dim")))
    return lines


class _Columns:
    """Columns that fit a line, and their widths."""

    def __init__(self, width: int, names: Sequence[str]) -> None:
        self.width = width
        self.has_bar, self.has_bytes, self.has_note = width >= 48, width >= 72, width >= 60
        self.has_age = width >= 34
        fixed = 7 + 9 + 9 * self.has_bytes + 8 * self.has_age + 18 * self.has_note
        longest = max((cell_len(shown(name)) for name in names), default=0)
        left = max(width - fixed, 4)
        if not self.has_bar:
            self.name, self.bar = left, 0
            return
        # A name that can be read is worth more than a long bar.
        self.name = min(max(longest, 12), max(left * 2 // 5, min(left - 12, 24), 12))
        self.bar = max(left - self.name - 2, 4)

    def heading(self, look: Look) -> Text:
        turn = "turn" if look.sort == "turn" else "    "
        title = f"queue ({look.search})" if look.search else "queue"
        cells = [f" {turn} ", set_cell_size(shown(title), self.name)]
        if self.bar:
            cells.append("  " + " " * self.bar)
        cells.append(" messages")
        cells += ["    bytes"] if self.has_bytes else []
        cells += ["  oldest"] if self.has_age else []
        cells += ["  " + ("" if look.sort == "turn" else f"by {look.sort}")] if self.has_note else []
        return _line(self.width, ("".join(cells).ljust(self.width), "bold reverse"))

    def row(self, place: int, turn: QueueState, most: int, look: Look, marks: Marks, selected: bool) -> Text:
        line, by_turn = Text(), look.sort == "turn"
        cursor = marks.cursor if selected else " "
        at = f"{place + 1:>4,}" if by_turn else "    "
        line.append(f"{cursor}{at} ", "bold" if place == 0 and by_turn else "dim")
        name = fitted(queue_name(shown(turn.origin), turn.priority), self.name)
        line.append(name, "bold" if place == 0 and by_turn else "")
        if self.bar:
            line.append("  ")
            line.append_text(_arc(turn, most, self.bar, marks))
        count = f"{turn.messages:,}{'+' if turn.more else ''}"
        line.append(f"{count:>9}")
        if self.has_bytes:
            line.append(f"{size(turn.size):>9}", "dim")
        if self.has_age:
            line.append(f"{span(turn.oldest, look.at):>8}")
        if self.has_note:
            line.append_text(_note(turn))
        if selected:
            line.stylize("reverse")
            line.append(" " * max(self.width - line.cell_len, 0), "reverse")
        return _cut(line, self.width)


def _note(turn: QueueState) -> Text:
    note = Text("  ")
    if turn.paused:
        note.append("paused", "yellow")
    elif turn.in_flight:
        note.append(f"in flight {turn.in_flight:,}", "cyan")
    return note


def _arc(turn: QueueState, most: int, width: int, marks: Marks) -> Text:
    """Return the bar of the messages of a queue, relative to the largest queue."""
    whole = bar(turn.messages, most, width, marks)
    if turn.paused:
        return _padded(Text(marks.paused * max(len(whole), 1), "yellow"), width)
    flying = min(len(bar(turn.in_flight, most, width, marks)), len(whole))
    line = Text(marks.flight * flying, "cyan")
    line.append(whole[flying:], "green")
    return _padded(line, width)


# Blocks and waits.


def blocks(look: Look, width: int, rows: int, marks: Marks = UNICODE) -> list[Text]:
    """Return the lines of the latest blocks, each with a bar of the used part of its limit."""
    lines = [_line(width, (_title("blocks, used of their limits", width), "bold"))]
    for one in look.blocks[:rows]:
        lines.append(_block(one, look.at, width, marks))
    if not look.blocks:
        lines.append(_line(width, ("  none yet", "dim")))
    return lines


def _block(one: Block, now: datetime, width: int, marks: Marks) -> Text:
    part, used, most = dominant(one.cost, one.limit)
    state = one.state_at(now)
    line = Text(f"{one.id:>7} ")
    line.append(f"{'by hand' if one.by_hand else state:<8} ", _STATES[state])
    line.append(f"{one.messages:>7,} ")
    share = f" {100 * used / most:>3.0f} % {part} " if most else f" {'':>3}   {part} "
    when = span(one.planned_at if one.ended_at is None else one.ended_at, now)
    came = _came(one)
    tail = f"{share}{when:>5}"
    if width - line.cell_len - len(tail) - len(came) - 2 >= 8:
        tail += f"  {came}" if came else ""
    room = min(width - line.cell_len - len(tail), 40)
    if room >= 4:
        line.append_text(_padded(Text(bar(used, most, room, marks), _STATES[state]), room, marks.rest))
    line.append(tail)
    return _cut(line, width)


def _came(one: Block) -> str:
    parts = ((one.result.get(part, 0), part.replace("_", " ")) for part in ("failed", "went_back", "set_aside"))
    return ", ".join(f"{count:,} {what}" for count, what in parts if count)


def dominant(used: Weight, limit: Weight) -> tuple[str, int, int]:
    """Return the part of a limit of which most is used: its name, the used amount, and the limit."""
    parts = [("time", used.time, limit.time), ("size", used.size, limit.size)]
    return max(parts, key=lambda one: one[1] / one[2] if one[2] else float(one[1] > 0))


def waits(look: Look, width: int, rows: int) -> list[Text]:
    """Return the lines of the queues that wait longest."""
    lines = [_line(width, (_title("longest waits", width), "bold"))]
    for one in look.waits[:rows]:
        line = Text(f"{span(one.oldest, look.at):>7}  ")
        line.append(fitted(queue_name(shown(one.origin), one.priority), max(width - 10, 1)).rstrip())
        lines.append(_cut(line, width))
    if not look.waits:
        lines.append(_line(width, ("  no queue waits", "dim")))
    return lines


def _tables(look: Look, width: int, room: int, marks: Marks) -> list[Text]:
    """Return the lines of blocks, and of waits beside or below them if there is room."""
    rows = min(max(room // 4, _LEAST_BLOCKS), _MOST_BLOCKS)
    if room < 3 * (_LEAST_BLOCKS + 1) or width < 40:
        return []
    if width < 100:
        found = _tall(blocks(look, width, rows, marks), rows)
        return found + _tall(waits(look, width, _LEAST_BLOCKS), _LEAST_BLOCKS) if room >= 24 else found
    right = 34
    left = width - right - 2
    pairs = zip(_tall(blocks(look, left, rows, marks), rows), _tall(waits(look, right, rows), rows))
    return [_padded(one, left).append("  ").append_text(other) for one, other in pairs]


def _tall(lines: list[Text], rows: int) -> list[Text]:
    return lines + _fill(rows + 1 - len(lines))


# Questions and texts.


def _footer(view: View, width: int) -> list[Text]:
    queue = shown(view.selected[0]) if view.selected else ""
    asks = {
        "search": f"search: {shown(view.typed)}_",
        "pause": f"pause {queue}? why (enter pauses, esc does not): {shown(view.typed)}_",
        "resume": f"resume {queue}? y, or any other key for no",
        "text": "any key goes back",
    }
    if view.mode in asks:
        return [_line(width, (asks[view.mode], "bold"))]
    if view.remark:
        return [_line(width, (shown(view.remark), "bold yellow"))]
    line = Text()
    for key, what in _KEYS:
        label = f"sort: {view.sort}" if what == "sort" else "go on" if what == "freeze" and view.frozen else what
        one = Text(f"{key} ", "bold").append(label, "not bold dim")
        if line.cell_len + one.cell_len + 2 <= width:
            line.append_text(one).append("  ")
    return [line]


def _text(view: View, width: int, rows: int) -> list[Text]:
    lines = [Text(), _line(width, (shown(view.title), "bold")), Text()]
    for paragraph in view.text:
        lines += [Text(f"  {one}") for one in wrap(paragraph, max(width - 4, 10), drop_whitespace=False)] or [Text()]
    return (lines + _fill(rows - len(lines)))[: max(rows, 0)]


# Pieces.


def bar(part: float, whole: float, width: int, marks: Marks = UNICODE) -> str:
    """Return the bar of a part of a whole; a positive part has at least the smallest mark."""
    if part <= 0 or whole <= 0:
        return ""
    steps = len(marks.parts) + 1
    eighths = max(1, round(min(part / whole, 1.0) * width * steps))
    full, rest = divmod(eighths, steps)
    return marks.full * full + (marks.parts[rest - 1] if rest else "")


def fitted(text: str, width: int) -> str:
    """Return a text of exactly this width; a longer one loses its middle: tenants and paths differ at the ends."""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    front, end = set_cell_size(text, (width - 1) // 2), text
    while cell_len(end) > width - 1 - cell_len(front):
        end = end[1:]
    return set_cell_size(f"{front}…{end}", width)


def _title(text: str, width: int) -> str:
    return f"─ {text} ".ljust(width, "─")


def _line(width: int, *parts: tuple[str, str]) -> Text:
    return _cut(Text.assemble(*parts), width)


def _cut(line: Text, width: int) -> Text:
    line.no_wrap = True
    line.truncate(width, overflow="ellipsis")
    return line


def _padded(line: Text, width: int, mark: str = " ") -> Text:
    return line.append(mark * max(width - line.cell_len, 0), "dim" if mark != " " else "")


def _fill(count: int) -> list[Text]:
    return [Text() for _ in range(count)]
