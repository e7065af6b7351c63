"""Picture of the ready ring, with its books and pages."""

from __future__ import annotations

from .canvas import Canvas

#: State of a message, with its colour and whether the square is only outlined.
STATES = {"processed": "card", "in flight": "blue", "waiting": "green", "set aside": "orange"}


def draw() -> str:
    """Return the picture."""
    canvas = Canvas(
        620, "The ready ring, its books and pages",
        "Four ready books stand in a ring; acme is the head. The book of acme holds a stale page with a set-aside "
        "message, two pages in the window from begin to end, and inbox rows that are not cut into pages yet.",
    )  # fmt: skip
    _ring(canvas)
    _book(canvas)
    _legend(canvas, 590)
    return canvas.svg()


def _ring(canvas: Canvas) -> None:
    canvas.text(24, 34, "Ready ring", bold=True)
    canvas.text(24, 56, "Each ready queue has one turn per round.", "muted", small=True)
    for x, y, origin, count in (
        (280, 95, "acme", "9 messages"),
        (425, 170, "birch", "2 messages"),
        (280, 245, "cobalt", "3 messages"),
        (135, 170, "dune", "1 message"),
    ):
        head = origin == "acme"
        canvas.box(x - 66, y - 25, 132, 50, "panel", "blue" if head else "line")
        canvas.text(x, y - 3, origin, "blue" if head else "ink", anchor="middle", bold=True)
        canvas.text(x, y + 17, count, "muted", anchor="middle", small=True)
    canvas.arrow("M350 95 Q412 97 422 142")
    canvas.arrow("M424 198 Q412 243 350 245")
    canvas.arrow("M210 245 Q148 243 136 198")
    canvas.arrow("M136 142 Q148 97 210 95")
    canvas.text(362, 80, "head: next turn", "blue", small=True)


def _book(canvas: Canvas) -> None:
    canvas.path("M24 296 H536")
    canvas.text(24, 328, "Book of acme", bold=True)
    canvas.text(24, 350, "Messages lie in pages, in the order in which they were sent.", "muted", small=True)
    _page(canvas, 24, "page 0", ["processed", "set aside", "processed", "processed"])
    _page(canvas, 154, "page 1", ["processed", "processed", "in flight", "in flight"])
    _page(canvas, 284, "page 2", ["in flight", "waiting", "waiting", "waiting"])
    canvas.box(414, 372, 122, 88, "card", "line", dashed=True)
    canvas.text(475, 394, "inbox", "muted", anchor="middle", small=True)
    for column in range(2):
        _message(canvas, 447 + column * 31, 404, "waiting")
    canvas.text(475, 450, "not cut yet", "muted", anchor="middle", small=True)
    _window(canvas)


def _page(canvas: Canvas, x: float, name: str, messages: list[str]) -> None:
    canvas.box(x, 372, 122, 88, "panel", "line")
    canvas.text(x + 61, 394, name, "muted", anchor="middle", small=True)
    for column, state in enumerate(messages):
        _message(canvas, x + 8 + column * 28, 412, state)


def _message(canvas: Canvas, x: float, y: float, state: str) -> None:
    fill = STATES[state]
    canvas.box(x, y, 22, 26, fill, "line" if fill == "card" else fill, radius=3, dashed=state == "processed")


def _window(canvas: Canvas) -> None:
    canvas.path("M154 470 V482 H406 V470", "ink")
    canvas.text(154, 503, "begin", anchor="start", small=True)
    canvas.text(280, 503, "window to service", anchor="middle", small=True, bold=True)
    canvas.text(406, 503, "end", anchor="end", small=True)
    canvas.text(24, 530, "Page 0 lies behind the window: a stale page.", "muted", small=True)
    canvas.text(24, 550, "It stays until a person decides about its set-aside message.", "muted", small=True)


def _legend(canvas: Canvas, y: float) -> None:
    for x, state in zip((24, 152, 266, 376), STATES):
        _message(canvas, x, y - 16, state)
        canvas.text(x + 30, y + 3, state, small=True)
