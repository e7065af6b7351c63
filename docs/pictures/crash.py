"""Picture of plan and settle around a crash."""

from __future__ import annotations

from .canvas import Canvas

#: Moments of the run, with their place on the time axis.
PLAN, FIRST, SECOND, CRASH, RELEASE, LATE, SETTLE = 120, 172, 224, 276, 372, 432, 500
END = 536
ROWS = {
    "order 1": [(24, PLAN, "waiting"), (PLAN, FIRST, "in flight"), (FIRST, RELEASE, "reported")],
    "order 2": [(24, PLAN, "waiting"), (PLAN, SECOND, "in flight"), (SECOND, RELEASE, "reported")],
    "order 3": [(24, PLAN, "waiting"), (PLAN, RELEASE, "in flight"), (RELEASE, SETTLE, "again")],
    "order 4": [(24, PLAN, "waiting"), (PLAN, RELEASE, "in flight"), (RELEASE, SETTLE, "again")],
}
COLOURS = {"waiting": "line", "in flight": "blue", "reported": "green", "again": "purple"}
LEGEND = (("waiting", "waiting"), ("in flight", "in block 17"), ("reported", "reported"), ("again", "in block 18"))
NOTES = (
    ("Block 17 is planned. It claims four messages.",),
    ("The processor has reported orders 1 and 2: they count as done.",),
    ("The worker crashes while it works on order 3. Nothing is lost.",),
    ("The lease has ended. The next plan releases block 17: it settles",
     "orders 1 and 2 and requeues 3 and 4. Block 18 claims these two."),
    ("A late report of block 17 arrives. The store rejects it.",),
    ("Block 18 settles. Each message has exactly one outcome.",),
)  # fmt: skip


def draw() -> str:
    """Return the picture."""
    canvas = Canvas(
        508, "Plan and settle around a crash",
        "Block 17 claims four messages and reports two. After a crash the next plan settles these two and claims the "
        "other two as block 18. A late report of block 17 is rejected.",
    )  # fmt: skip
    for number, x in enumerate((PLAN, SECOND, CRASH, RELEASE, LATE, SETTLE), 1):
        canvas.path(f"M{x} 46 V222", "red" if x in (CRASH, LATE) else "line", dashed=True)
        canvas.number(x, 32, number, "red" if x in (CRASH, LATE) else "ink")
    for row, (name, states) in enumerate(ROWS.items()):
        y = 58 + row * 40
        for start, end, state in states:
            canvas.box(max(start, 92) if start == 24 else start, y + 3, end - (92 if start == 24 else start), 24,
                       COLOURS[state], radius=2)  # fmt: skip
        canvas.text(24, y + 20, name, small=True)
    canvas.arrow(f"M92 228 H{END}")
    canvas.text(24, 233, "time", "muted", small=True)
    for x, (state, text) in zip((24, 134, 268, 388), LEGEND):
        canvas.box(x, 252, 18, 18, COLOURS[state], radius=2)
        canvas.text(x + 26, 266, text, small=True)
    canvas.path("M24 288 H536")
    canvas.notes(318, NOTES)
    return canvas.svg()
