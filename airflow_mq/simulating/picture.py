"""Picture of policies side by side: self-contained SVG, with every name escaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from .running import Simulated
from .scenario import Scenario

#: Colours of origins; further origins share one.
COLOURS = ("#1b7f5c", "#3b6fb6", "#c9803a", "#8a5aa8", "#b84a5a", "#5a8f9a", "#a39a2e", "#6b6f78")
OTHERS = "#c8ccd2"
INK, PALE = "#22262b", "#8a8f98"
#: Number of columns; with more blocks, several share a column.
COLUMNS = 160
_WIDTH, _LEFT, _PANEL, _TOP, _GAP = 980, 20, 150, 74, 62
_CHART, _BARS = 520, 330


def draw(scenario: Scenario, simulated: Sequence[Simulated]) -> str:
    """Return the picture: granted weight per block and origin, and each origin's share and longest wait."""
    named = _named(simulated)
    rows = max(len(named) + 1, 4)
    panel = max(_PANEL, 18 * rows + 10)
    height = _TOP + len(simulated) * (panel + _GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(
            _LEFT,
            26,
            f"{scenario.name}: {scenario.messages:,} messages, {scenario.blocks:,} blocks",
            size=17,
            bold=True,
        ),
        *_legend(named),
    ]
    for number, result in enumerate(simulated):
        parts += _panel(result, named, _TOP + number * (panel + _GAP) + 26, panel)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _named(simulated: Sequence[Simulated]) -> list[str]:
    """Return the origins that are drawn by name: those with the longest waits or the most weight."""
    weights: dict[str, tuple[int, float]] = {}
    for result in simulated:
        for fared in result.origins:
            wait, got = weights.get(fared.origin, (0, 0.0))
            granted = result.fairness.origin(fared.origin).granted
            weights[fared.origin] = max(wait, fared.longest_wait), max(got, granted)
    by_wait = sorted(weights, key=lambda origin: (-weights[origin][0], origin))
    by_share = sorted(weights, key=lambda origin: (-weights[origin][1], origin))
    chosen: dict[str, None] = {}
    for pair in zip(by_share, by_wait, strict=True):
        for origin in pair:
            if len(chosen) < len(COLOURS):
                chosen[origin] = None
    return sorted(chosen)


def _legend(named: Sequence[str]) -> Iterator[str]:
    x = float(_LEFT)
    for origin, colour in [*zip(named, COLOURS), ("others", OTHERS)]:
        name = _short(origin, 16)
        yield f'<rect x="{x:.0f}" y="42" width="11" height="11" fill="{colour}"/>'
        yield _text(x + 16, 52, name)
        x += 30 + 7 * len(name)


def _panel(result: Simulated, named: Sequence[str], top: float, height: float) -> Iterator[str]:
    jain = "no queue was left wanting" if result.fairness.jain is None else f"Jain's index {result.fairness.jain:.3f}"
    title = (
        f"{result.policy.name} ({result.order}, {result.limit}): longest wait {result.longest_wait:,} blocks, mean "
        f"{result.mean_wait:.1f}, {jain}, {result.left:,} left, blocks {result.filled:.0%} full"
    )
    yield _text(_LEFT, top, title, bold=True)
    top += 12
    yield from _chart(result, named, top, height)
    yield from _bars(result, named, _LEFT + _CHART + 30, top, height)


def _chart(result: Simulated, named: Sequence[str], top: float, height: float) -> Iterator[str]:
    """Yield the stacked shares of each block."""
    colours = dict(zip(named, COLOURS))
    each = -(-len(result.blocks) // COLUMNS) or 1
    columns = [result.blocks[at : at + each] for at in range(0, len(result.blocks), each)]
    width = _CHART / max(len(columns), 1)
    yield _frame(_LEFT, top, _CHART, height)
    for number, blocks in enumerate(columns):
        sums: dict[str, float] = dict.fromkeys([*named, ""], 0.0)
        for block in blocks:
            for origin, part in result.granted(block).items():
                sums[origin if origin in colours else ""] += part / len(blocks)
        # Different origins may use up the two parts of a weight; the column is scaled then.
        scale = height / max(sum(sums.values()), 1.0)
        y = top + height
        for origin, part in sums.items():
            if part:
                y -= part * scale
                yield (
                    f'<rect x="{_LEFT + number * width:.2f}" y="{y:.2f}" width="{max(width - 0.4, 0.4):.2f}" '
                    f'height="{part * scale:.2f}" fill="{colours.get(origin, OTHERS)}"/>'
                )
    yield _text(_LEFT, top + height + 14, "block 1", colour=PALE)
    yield _text(_LEFT + _CHART, top + height + 14, f"block {len(result.blocks):,}", colour=PALE, anchor="end")


def _bars(result: Simulated, named: Sequence[str], left: float, top: float, height: float) -> Iterator[str]:
    """Yield each origin's share, a mark at the promised share, and its longest wait."""
    half = (_BARS - 90) / 2
    longest = max(result.longest_wait, 1)
    fairs = [result.fairness.origin(origin) for origin in named]
    largest = max([max(fair.received or 0, fair.promised or 0) for fair in fairs], default=0) or 1
    yield _text(left + 96, top + 8, "share | promised", colour=PALE)
    yield _text(left + 110 + half, top + 8, "longest wait", colour=PALE)
    for number, (origin, colour) in enumerate(zip(named, COLOURS)):
        y, fair, fared = top + 16 + 18 * number, result.fairness.origin(origin), result.origin(origin)
        yield _text(left + 90, y + 10, _short(origin, 13), anchor="end")
        if fair.received is not None and fair.promised is not None:
            yield _bar(left + 96, y, half * fair.received / largest, colour)
            mark = left + 96 + half * fair.promised / largest
            yield f'<path d="M{mark:.1f} {y - 2:.1f}v16" stroke="{INK}" stroke-width="1.5"/>'
        wait = (half - 24) * fared.longest_wait / longest
        yield _bar(left + 110 + half, y, wait, colour)
        yield _text(left + 114 + half + wait, y + 10, f"{fared.longest_wait:,}", colour=PALE)


def _bar(x: float, y: float, width: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="12" fill="{colour}"/>'


def _frame(x: float, y: float, width: float, height: float) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="#f4f5f6"/>'


def _text(
    x: float, y: float, text: str, *, size: int = 12, bold: bool = False, colour: str = INK, anchor: str = "start"
) -> str:
    weight = ' font-weight="600"' if bold else ""
    shown = escape("".join(mark if mark.isprintable() else "\ufffd" for mark in text))
    style = f'font-size="{size}" fill="{colour}" text-anchor="{anchor}"{weight}'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{shown}</text>'


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
