"""Picture of a block's life as a sequence."""

from __future__ import annotations

from .canvas import Canvas

LIFELINES = {"Sender": 74, "Store": 212, "DAG run": 350, "Processor": 486}
#: A step: from, to, text, and whether it is an answer.
STEPS = (
    ("Sender", "Store", "enqueue", False),
    ("DAG run", "Store", "plan: claim", False),
    ("Store", "DAG run", "block 17", True),
    ("DAG run", "Processor", "start a part", False),
    ("Processor", "Store", "read the claimed messages", False),
    ("Processor", "Store", "report outcomes, renew the lease", False),
    ("Processor", "DAG run", "end", True),
    ("DAG run", "Store", "settle", False),
)
OUTCOMES = (
    ("green", "done", "deleted, with one event"),
    ("muted", "failed for good", "deleted, with one event"),
    ("blue", "yield, or no outcome", "back at its old place"),
    ("orange", "too heavy, or tried too often", "set aside for a person"),
)


def draw() -> str:
    """Return the picture."""
    canvas = Canvas(
        600, "The life of a block",
        "A sender enqueues. A plan claims messages in the store as block 17. A processor reads them, "
        "reports outcomes and renews the lease. Settling gives each message its outcome in one transaction.",
    )  # fmt: skip
    for name, x in LIFELINES.items():
        canvas.box(x - 58, 22, 116, 36, "panel", "line")
        canvas.text(x, 46, name, anchor="middle", bold=True)
        canvas.path(f"M{x} 58 V446", dashed=True)
    for row, step in enumerate(STEPS):
        _step(canvas, 102 + row * 46, *step)
    _outcomes(canvas)
    return canvas.svg()


def _step(canvas: Canvas, y: float, source: str, target: str, text: str, answer: bool) -> None:
    start, end = LIFELINES[source], LIFELINES[target]
    way = 1 if end > start else -1
    canvas.arrow(f"M{start + 4 * way} {y} H{end - 4 * way}", "muted" if answer else "blue", dashed=answer)
    width = 9 + 7.3 * len(text)
    middle = (start + end) / 2
    canvas.box(middle - width / 2, y - 25, width, 20, "card", radius=0)
    canvas.text(middle, y - 9, text, anchor="middle", small=True)


def _outcomes(canvas: Canvas) -> None:
    canvas.box(16, 456, 528, 130, "panel", "line")
    canvas.text(32, 482, "Settle: one outcome for each message, in one transaction", small=True, bold=True)
    for row, (colour, outcome, meaning) in enumerate(OUTCOMES):
        y = 508 + row * 22
        canvas.dot(38, y - 5, 6, colour)
        canvas.text(54, y, outcome, small=True)
        canvas.text(300, y, meaning, "muted", small=True)
