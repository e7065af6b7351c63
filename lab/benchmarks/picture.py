"""The figures as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any

from lab.benchmarks.drivers.common import SIZE
from lab.benchmarks.measures.profile import parts
from lab.benchmarks.rows import Row
from lab.benchmarks.stats import Figure, Sample, pick, rates, values

PANELS = [["bulk", "out", "bounds"], ["single", "log", "bounds"], ["blocks", "profile", "bounds"]]
#: Letters of a bound's name.
NAME = 80
OURS, BARE, PEER = "#1b7f5c", "#8a8f98", "#c9a45c"


def draw(path: Path, samples: Sequence[Sample], found: Sequence[Row]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplot_mosaic(PANELS, figsize=(28, 19), width_ratios=(1, 1, 1.1), layout="constrained")
    _bars(axes["bulk"], "Bulk in, messages a second", _of_rates(samples, "bulk_in"))
    _bars(axes["out"], "Out until the last row is gone, messages a second", _of_rates(samples, "out"))
    _bars(axes["single"], "Single sends, messages a second", _of_rates(samples, "single_in"))
    _bars(axes["log"], "Write-ahead log for a whole life, bytes a message", _of_log(samples), mark=SIZE)
    _bars(axes["blocks"], "Blocks and plans, milliseconds", _of_seconds(samples))
    _stacked(axes["profile"], "Where a message's time goes, a part of it", pick(samples, "profile"))
    _ratios(axes["bounds"], found)
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


Bar = tuple[str, Figure, str]


def _stacked(axis: Any, title: str, samples: Sequence[Sample]) -> None:
    """Show how the time of each way is divided; its microseconds stand beside it."""
    axis.set_title(title, loc="left", fontsize=11, fontweight="bold")
    names = [f"{s['variant']}: {s['seconds'] / s['count'] * 1e6:,.1f} µs" for s in samples]
    left = [0.0] * len(samples)
    divided = [parts(sample) for sample in samples]
    for name, colour in zip(divided[0] if divided else (), (OURS, PEER, BARE)):
        widths = [part[name] / sum(part.values()) for part in divided]
        axis.barh(names, widths, left=left, label=name, color=colour)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    if samples:
        axis.invert_yaxis()
        axis.legend(fontsize=8)


def _colour(contender: str) -> str:
    return {"ours": OURS, "bare": BARE}.get(contender, PEER)


def _label(sample: Sample) -> str:
    return f"{sample['contender']} {sample['variant']}".strip()


def _grouped(samples: Sequence[Sample]) -> list[list[Sample]]:
    kinds = dict.fromkeys((sample["contender"], sample["variant"]) for sample in samples)
    return [[s for s in samples if (s["contender"], s["variant"]) == kind] for kind in kinds]


def _of_rates(samples: Sequence[Sample], measure: str) -> list[Bar]:
    groups = _grouped(pick(samples, measure))
    bars = [(_label(group[0]), figure, _colour(group[0]["contender"])) for group in groups if (figure := rates(group))]
    return sorted(bars, key=lambda bar: bar[1].median)


def _of_log(samples: Sequence[Sample]) -> list[Bar]:
    bars = []
    for group in _grouped(pick(samples, "life", checkpoint_between=False)):
        figure = Figure.of(sample["bytes"] / sample["count"] for sample in group)
        if figure:
            bars.append((_label(group[0]), figure, _colour(group[0]["contender"])))
    return sorted(bars, key=lambda bar: -bar[1].median)


def _of_seconds(samples: Sequence[Sample]) -> list[Bar]:
    bars = []
    for measure in ("block", "held", "passed", "plan", "baseline"):
        for group in _grouped(pick(samples, measure)):
            for state in dict.fromkeys((s.get("state"), s.get("payloads")) for s in group):
                taken = [s for s in group if (s.get("state"), s.get("payloads")) == state]
                figure = values([{"seconds": s["seconds"] * 1000} for s in taken], "seconds")
                if figure:
                    note = state[0] or {True: "with payloads", False: "lengths only"}.get(state[1], "")
                    name = f"{measure}: {group[0]['variant']} {note}".strip()
                    bars.append((name, figure, BARE if measure == "baseline" else OURS))
    return bars[::-1]


def _bars(axis: Any, title: str, bars: Sequence[Bar], mark: float | None = None) -> None:
    from matplotlib import ticker

    axis.set_title(title, loc="left", fontsize=11, fontweight="bold")
    axis.spines[["top", "right"]].set_visible(False)
    for place, (_, figure, colour) in enumerate(bars):
        axis.barh(place, figure.median, color=colour)
        # What was least and most stays to be seen.
        axis.plot([figure.least, figure.most], [place, place], color="black", linewidth=1)
        axis.annotate(
            f" {figure.median:,.0f}" if figure.median >= 100 else f" {figure.median:,.1f}",
            (max(figure.most, figure.median), place),
            va="center",
            fontsize=8,
        )
    axis.set_yticks(range(len(bars)), [name for name, _, _ in bars], fontsize=8)
    axis.margins(x=0.15)
    axis.xaxis.set_major_locator(ticker.MaxNLocator(5))
    axis.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,.0f}"))
    if mark is not None:
        axis.axvline(mark, color="black", linestyle=":", linewidth=1)


def _ratios(axis: Any, found: Sequence[Row]) -> None:
    """By how much each target is met, right of the line, or missed, left of it."""
    axis.set_title("Targets: right of the line is met (logarithmic)", loc="left", fontsize=11, fontweight="bold")
    axis.spines[["top", "right"]].set_visible(False)
    judged = [row for row in found if row.bound and row.ratio][::-1]
    for place, row in enumerate(judged):
        assert row.bound and row.ratio
        margin = row.ratio / row.bound if row.at_least else row.bound / row.ratio
        axis.plot([1, margin], [place, place], color=OURS if row.met else "#b03a3a", linewidth=4, solid_capstyle="butt")
        axis.annotate(f" {row.ratio:.2f} ({row.target})", (max(margin, 1), place), va="center", fontsize=8)
    axis.set_xscale("log")
    axis.axvline(1, color="black", linewidth=1)
    axis.set_yticks(range(len(judged)), [_named(row) for row in judged], fontsize=8)
    axis.margins(x=0.3, y=0.01)


def _named(row: Row) -> str:
    return shorten(f"{row.group}: {row.what}", NAME, placeholder=" …")
