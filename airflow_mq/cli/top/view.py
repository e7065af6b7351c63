"""Choices of the user: the cursor, the search, the order, and the open question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...core.priority import REGULAR
from ...queue import QueueState
from ...queue.inspect.order import SORTS
from ...queue.inspect.top import Look
from ..output import shown

#: The origin and the priority of a queue.
Key = tuple[str, str]


@dataclass(frozen=True)
class Wish:
    """An action besides drawing: `quit`, `look` again, `explain`, `pause` or `resume` a queue."""

    what: str
    origin: str = ""
    priority: str = REGULAR
    reason: str = ""


@dataclass
class View:
    """The shown part of a snapshot, and the effects of keys."""

    look: Look | None = None
    #: The error of the store and its time, as shown.
    trouble: str = ""
    selected: Key | None = None
    #: Index of the first shown queue, and the number of lines.
    first: int = 0
    room: int = 10
    search: str = ""
    sort: str = SORTS[0]
    frozen: bool = False
    #: `ring`, `search` or `pause` (a text is being typed), `resume` (yes or no), or `text` (something to read).
    mode: str = "ring"
    typed: str = ""
    #: The shown text and its title.
    title: str = ""
    text: Sequence[str] = field(default_factory=list)
    #: A line that stays until the next key.
    remark: str = ""

    #: Last known index of the selected queue.
    _stood: int = 0

    @property
    def limit(self) -> int:
        """The number of queues to read."""
        return self.first + 2 * max(self.room, 10)

    @property
    def turns(self) -> Sequence[QueueState]:
        """The listed queues."""
        return self.look.turns if self.look else ()

    @property
    def cursor(self) -> int:
        """Index of the selected queue; if it is gone, of the queue in its place."""
        for place, turn in enumerate(self.turns):
            if (turn.origin, turn.priority) == self.selected:
                return place
        return min(max(self._stood, 0), max(len(self.turns) - 1, 0))

    def see(self, look: Look) -> None:
        """Show a new snapshot, unless the view is frozen and shows what was searched for."""
        self.trouble, before = "", self.look
        if not self.frozen or before is None or (look.search, look.sort) != (before.search, before.sort):
            self.look = look
            self._go(self.cursor)

    def press(self, key: str) -> Wish | None:
        """Apply a key; return the action that it asks for."""
        self.remark = ""
        if self.mode == "ring":
            action = _KEYS.get(key)
            return action(self) if action else None
        if self.mode == "text":
            return self._read(key)
        if self.mode == "resume":
            return self._decide(key)
        return self._type(key)

    # Moving.

    def _go(self, place: int) -> None:
        turns = self.turns
        if not turns:
            self.selected, self.first = None, 0
            return
        place = min(max(place, 0), len(turns) - 1)
        self._stood, self.selected = place, (turns[place].origin, turns[place].priority)
        self.first = min(max(self.first, place - self.room + 1), place)

    def _move(self, by: int) -> Wish | None:
        self._go(self.cursor + by)
        # Read the queues below before the cursor reaches them.
        return Wish("look") if self.cursor + self.room > len(self.turns) else None

    def fit(self, room: int) -> None:
        """Set the number of lines for queues."""
        self.room = max(room, 1)
        self._go(self.cursor)

    # Asking.

    def _begin_search(self) -> None:
        self.mode, self.typed = "search", self.search

    def _turn_sort(self) -> Wish:
        self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]
        self.first = 0
        return Wish("look")

    def _freeze(self) -> Wish | None:
        self.frozen = not self.frozen
        return None if self.frozen else Wish("look")

    def _ask_pause(self) -> None:
        turn = self._chosen()
        if turn is not None:
            self.mode, self.typed = ("resume" if turn.paused else "pause"), ""

    def _explain(self) -> Wish | None:
        turn = self._chosen()
        if turn is None:
            return None
        self.read(f"why {shown(turn.origin)} waits", ["looking ahead …"])
        return Wish("explain", turn.origin, turn.priority)

    def _help(self) -> None:
        self.read("keys", HELP)

    def _back(self) -> Wish | None:
        if not self.search:
            return None
        self.search, self.first = "", 0
        return Wish("look")

    def _chosen(self) -> QueueState | None:
        if not self.turns:
            self.remark = "no queue is selected"
            return None
        return self.turns[self.cursor]

    def read(self, title: str, text: Sequence[str]) -> None:
        """Show a text until a key is pressed."""
        self.mode, self.title, self.text = "text", title, text

    def answer(self, text: Sequence[str]) -> None:
        """Show the answer to a question, if it is still open."""
        if self.mode == "text":
            self.text = text

    def _read(self, key: str) -> Wish | None:
        self.mode = "ring"
        return Wish("quit") if key == "q" else None

    def _decide(self, key: str) -> Wish | None:
        self.mode = "ring"
        turn = self._chosen()
        return Wish("resume", turn.origin) if turn is not None and key in ("y", "enter") else None

    def _type(self, key: str) -> Wish | None:
        if key == "esc":
            self.mode = "ring"
        elif key == "backspace":
            self.typed = self.typed[:-1]
        elif key == "clear":
            self.typed = ""
        elif key == "enter":
            return self._entered()
        elif len(key) == 1 and key.isprintable():
            self.typed += key
        return None

    def _entered(self) -> Wish | None:
        mode, self.mode = self.mode, "ring"
        if mode == "search":
            self.search, self.first = self.typed, 0
            return Wish("look")
        turn = self._chosen()
        return None if turn is None else Wish("pause", turn.origin, reason=self.typed)


def _moving(by: Callable[[View], int]) -> Callable[[View], Wish | None]:
    return lambda view: view._move(by(view))


_UP, _DOWN = _moving(lambda view: -1), _moving(lambda view: 1)
_TOP, _BOTTOM = _moving(lambda view: -len(view.turns)), _moving(lambda view: len(view.turns))
_KEYS: dict[str, Callable[[View], Wish | None]] = {
    "q": lambda view: Wish("quit"),
    "up": _UP,
    "k": _UP,
    "down": _DOWN,
    "j": _DOWN,
    "page up": _moving(lambda view: -view.room),
    "page down": _moving(lambda view: view.room),
    "home": _TOP,
    "g": _TOP,
    "end": _BOTTOM,
    "G": _BOTTOM,
    "/": View._begin_search,
    "s": View._turn_sort,
    " ": View._freeze,
    "p": View._ask_pause,
    "e": View._explain,
    "enter": View._explain,
    "?": View._help,
    "h": View._help,
    "esc": View._back,
    "r": lambda view: Wish("look"),
}

HELP = (
    "q          quit",
    "↑ ↓ j k    select a queue; page up and down, home and end go further",
    "/          search: only queues whose name holds a text; esc shows all again",
    "s          sort: as turns come, by backlog, by the oldest message, by name",
    "e enter    explain why the selected queue waits, and what would change that",
    "p          pause the selected queue, or resume it; it asks before",
    "space      freeze what is shown, and go on",
    "r          look again now",
    "",
    "The first queue is the head: its turn is next. A bar is what a queue holds:",
    "first what a block has in flight, then what waits; hatched where it is paused.",
    "A block's bar is what it uses of its limit, of time or of size, whichever is more.",
)
