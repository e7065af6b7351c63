"""Plot of a soak's samples as SVG: one small chart per figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from docs.pictures.canvas import WIDTH, Canvas

from .sampling import Sample

MB = 1 << 20
LEFT, RIGHT, ROW = 20, 20, 96

#: Title of each chart, its value, and its unit.
CHARTS: list[tuple[str, Callable[[Sample], float], str]] = [
    ("Memory of the clients", lambda sample: sample.memory / MB, "MB"),
    ("Memory of the server's processes", lambda sample: sample.server_memory / MB, "MB"),
    ("Connections", lambda sample: sample.connections, ""),
    ("File descriptors of the clients", lambda sample: sample.descriptors, ""),
    ("Tables", lambda sample: sample.tables / MB, "MB"),
    ("Indexes", lambda sample: sample.indexes / MB, "MB"),
    ("Median time of a send", lambda sample: sample.send_median * 1_000, "ms"),
    ("95th percentile of a send", lambda sample: sample.send_p95 * 1_000, "ms"),
]


def plot(samples: Sequence[Sample]) -> str:
    """Return the picture as text."""
    seconds = samples[-1].seconds
    canvas = Canvas(40 + ROW * len(CHARTS), "Soak", f"Resources and latency over {seconds:,.0f} s of mixed load")
    for number, (title, value, unit) in enumerate(CHARTS):
        _draw(canvas, 24 + ROW * number, title, [(sample.seconds / seconds, value(sample)) for sample in samples], unit)
    canvas.text(LEFT, canvas.height - 14, "0 s", "muted", small=True)
    canvas.text(WIDTH - RIGHT, canvas.height - 14, f"{seconds:,.0f} s", "muted", anchor="end", small=True)
    return canvas.svg()


def _draw(canvas: Canvas, top: float, title: str, points: Sequence[tuple[float, float]], unit: str) -> None:
    most, bottom, width = max(value for _, value in points) or 1, top + ROW - 24, WIDTH - LEFT - RIGHT
    canvas.text(LEFT, top + 12, title, small=True, bold=True)
    last = points[-1][1]
    canvas.text(WIDTH - RIGHT, top + 12, f"last {last:,.4g}, most {most:,.4g} {unit}".rstrip(), "muted",
                anchor="end", small=True)  # fmt: skip
    canvas.path(f"M{LEFT} {bottom}H{WIDTH - RIGHT}")
    places = [f"{LEFT + part * width:.1f} {bottom - value / most * (ROW - 48):.1f}" for part, value in points]
    canvas.path("M" + "L".join(places), "blue")
