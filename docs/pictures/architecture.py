"""Picture of the architecture: the way of a message through the modules.

`MODULES` and `CALLS` are the source of the picture. A test checks that each module exists, that each call follows an
import, and that the import contracts permit it.
"""

from __future__ import annotations

from typing import NamedTuple

from .canvas import Canvas


class Module(NamedTuple):
    """A module with its place in the picture and its part in the flow."""

    name: str
    row: int
    column: int
    role: str
    columns: int = 1


ROWS = 6
STEPS = ("Enqueue", "Plan", "Process", "Settle")
MODULES = (
    Module("operators.enqueue", 0, 0, "sends"),
    Module("operators.blocks.plan", 0, 1, "one plan"),
    Module("operators.blocks.process", 0, 2, "a task per part"),
    Module("operators.blocks.settle", 0, 3, "always runs"),
    Module("spark.job", 1, 2, "runs function"),
    Module("engine.queue.sending", 2, 0, "packs rows"),
    Module("engine.queue.blocks.plan", 2, 1, "claims"),
    Module("engine.queue.blocks.reports", 2, 2, "stores answers"),
    Module("engine.queue.blocks.settlement", 2, 3, "ends the block"),
    Module("engine.rules.service", 3, 1, "ladder"),
    Module("engine.rules.outcome", 3, 2, "answers"),
    Module("engine.rules.settle", 3, 3, "outcomes"),
    Module("engine.queue.session", 4, 0, "holds the ring: transaction, snapshot, lease", 4),
    Module("engine.store.inbox", 5, 0, "appends rows"),
    Module("engine.store.working_set", 5, 1, "loader and writer over the repositories", 3),
)
#: Who calls whom: the first module imports the second, directly or through others.
CALLS = (
    ("operators.enqueue", "engine.queue.sending"),
    ("operators.blocks.plan", "engine.queue.blocks.plan"),
    ("operators.blocks.process", "spark.job"),
    ("spark.job", "engine.queue.blocks.reports"),
    ("operators.blocks.settle", "engine.queue.blocks.settlement"),
    ("engine.queue.sending", "engine.queue.session"),
    ("engine.queue.blocks.plan", "engine.rules.service"),
    ("engine.queue.blocks.reports", "engine.rules.outcome"),
    ("engine.queue.blocks.settlement", "engine.rules.settle"),
    ("engine.queue.blocks.plan", "engine.queue.session"),
    ("engine.queue.blocks.settlement", "engine.queue.session"),
    ("engine.queue.session", "engine.store.inbox"),
    ("engine.queue.session", "engine.store.working_set"),
)
TABLES = ("inbox", "page", "block", "event")
TABLE_STEPS = ("cut", "claim", "end")
TOP, PITCH, HEIGHT = 74, 88, 46
LEFT, COLUMN, WIDTH = 16, 134, 126


def draw() -> str:
    """Return the picture."""
    canvas = Canvas(
        664, "The way of a message through the modules",
        "Enqueue, plan, process and settle lead from the operators through the queue and the rules to the "
        "store, whose tables hold inbox rows, pages, blocks and events.",
    )  # fmt: skip
    for column, step in enumerate(STEPS):
        x = LEFT + column * COLUMN
        canvas.number(x + 11, 28, column + 1, "blue")
        canvas.text(x + 28, 34, step, bold=True)
    places = {module.name: module for module in MODULES}
    for source, target in CALLS:
        _call(canvas, places[source], places[target])
    for module in MODULES:
        _module(canvas, module)
    _tables(canvas)
    return canvas.svg()


def _y(row: int) -> float:
    return TOP + row * PITCH


def _call(canvas: Canvas, source: Module, target: Module) -> None:
    narrow = source if source.columns <= target.columns else target
    # Calls of rules end in the middle of the box; the others pass to the right of it.
    x = LEFT + narrow.column * COLUMN + (52 if target.name.startswith("engine.rules.") else 114)
    canvas.arrow(f"M{x:g} {_y(source.row) + HEIGHT} V{_y(target.row) - 3}", "muted")


def _module(canvas: Canvas, module: Module) -> None:
    x, y = LEFT + module.column * COLUMN, _y(module.row)
    package, _, name = module.name.rpartition(".")
    is_rule = package == "engine.rules"
    width = 102 if is_rule else WIDTH + (module.columns - 1) * COLUMN
    canvas.box(x, y, width, HEIGHT, "panel", "blue" if is_rule else "line")
    canvas.text(x + 9, y + 19, name, bold=True, small=True)
    canvas.text(x + 9, y + 37, module.role, "muted", small=True)
    beside = (other for other in MODULES if (other.row, other.column) < (module.row, module.column))
    if not any(other.row == module.row and other.name.rpartition(".")[0] == package for other in beside):
        canvas.text(x, y - 7, package, "muted", small=True)


def _tables(canvas: Canvas) -> None:
    y = _y(ROWS)
    canvas.text(LEFT, y - 7, "tables", "muted", small=True)
    for column, table in enumerate(TABLES):
        x = LEFT + column * 144
        canvas.box(x, y, 84, 34, "card", "green")
        canvas.text(x + 42, y + 22, table, anchor="middle", small=True)
        if column:
            canvas.arrow(f"M{x - 58} {y + 17} H{x - 4}", "green")
            canvas.text(x - 31, y + 10, TABLE_STEPS[column - 1], "muted", anchor="middle", small=True)
