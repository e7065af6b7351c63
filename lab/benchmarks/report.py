"""The report: a table of targets, tables of all figures, and a picture, from raw samples alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.benchmarks.about import BIAS, table
from lab.benchmarks.measures import latency, profile, storage
from lab.benchmarks.measures.single import turn_of
from lab.benchmarks.picture import draw
from lab.benchmarks.rows import Row
from lab.benchmarks.sizes import SIZES, Sizes
from lab.benchmarks.stats import Figure, Sample, pick, rates
from lab.benchmarks.targets import rows

#: What was found out about targets that are missed: written by hand, kept beside the figures.
REMARKS = "remarks.md"


def write(folder: Path, about: Mapping[str, Any], samples: Sequence[Sample]) -> None:
    """Write `raw.json`, `report.png` and `REPORT.md`."""
    raw = {"about": about, "samples": samples}
    folder.joinpath("raw.json").write_text(_one_a_line(raw), "utf-8")
    found = rows(samples)
    draw(folder / "report.png", samples, found)
    remarks = folder / REMARKS
    text = _text(about, samples, found, remarks.read_text("utf-8") if remarks.exists() else "")
    folder.joinpath("REPORT.md").write_text(text, "utf-8")


def read(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    raw = json.loads(folder.joinpath("raw.json").read_text("utf-8"))
    return raw["about"], raw["samples"]


def merged(
    before: tuple[Mapping[str, Any], Sequence[Sample]], now: tuple[Mapping[str, Any], Sequence[Sample]]
) -> tuple[dict[str, Any], list[Sample]]:
    """Return a run with the samples and contenders of an earlier one that it did not try to measure again."""
    (earlier, old), (about, fresh) = before, now
    measured = {name for sample in fresh for name in (sample["measure"], sample.get("of"))} | {"failed"}
    contenders = {**earlier.get("contenders", {}), **about["contenders"]}
    return {**about, "contenders": contenders}, [*fresh, *(one for one in old if one["measure"] not in measured)]


def _one_a_line(raw: Mapping[str, Any]) -> str:
    samples = ",\n".join(json.dumps(sample, ensure_ascii=False) for sample in raw["samples"])
    return f'{{"about": {json.dumps(raw["about"], indent=1, ensure_ascii=False)},\n"samples": [\n{samples}\n]}}\n'


def _text(about: Mapping[str, Any], samples: Sequence[Sample], found: Sequence[Row], remarks: str) -> str:
    judged = [row for row in found if row.bound is not None and row.ratio is not None]
    met = sum(bool(row.met) for row in judged)
    parts = [
        "# Speed, measured",
        f"We meet {met} of our {len(judged)} performance targets. Made on {about['date']} by\n\n    {about['command']}\n",
        *([f"Measured apart: {about['apart']}."] if about.get("apart") else []),
        "Most figures are medians of interleaved runs on one PostgreSQL server, and ratios are ratios of medians. The "
        "flood, the profile and the mixed load are one run of each. A call of many messages is packed into one row for each "
        "origin, where a peer writes a row for each message: the ratios of bulk calls come from that. "
        "All samples are in `raw.json`; this page and the picture are made from them alone "
        "(`python -m lab.benchmarks --report FOLDER` makes them again).",
        "![The figures](report.png)",
        "## Targets",
        _targets(found),
        remarks.strip(),
        *(["## What failed", _failures(samples)] if pick(samples, "failed") else []),
        "## Bulk in and out",
        _rates(samples, ("bulk_in", "out")),
        "## Single sends, one transaction each",
        "A ratio of the table above compares turns that alternated. So this queue has a line beside each other one.",
        _rates(_beside(samples), ("single_in",)),
        "## Calls of ten messages, one transaction each",
        _rates(samples, ("ten_in",)),
        latency.section(samples),
        "## Write-ahead log of a message's whole life",
        _log(samples),
        "## Blocks and plans",
        _seconds(samples),
        storage.section(samples),
        profile.section(samples),
        "## Sizes",
        table(_sizes(SIZES[about["sizes"]])),
        "## Machine, server, contenders",
        table(about["machine"]),
        table(about["server"]),
        table(about["contenders"]),
        *([f"Could not be had here: {_missing(about)}."] if about["missing"] else []),
        "## Known biases",
        BIAS.strip(),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _sizes(sizes: Sizes) -> dict[str, str]:
    """Return the counts behind the figures."""
    return {
        "bulk calls, calls of ten, out": f"{sizes.bulk:,} messages, {sizes.rounds} rounds; a slower queue gets fewer, at "
        f"least {sizes.least:,}",
        "single sends": f"{sizes.turns} turns of {sizes.turn:,} messages for each two queues, {turn_of(sizes, 32):,} with 32 "
        "clients",
        "block": f"{sizes.block:,} messages; few are {sizes.few:,}, many {sizes.many:,}, a crowd {sizes.crowd:,} origins",
        "latency": f"{sizes.load:,} messages a second from {latency.CLIENTS} clients for {sizes.load_seconds} s, "
        f"{sizes.loads} runs",
        "flood": f"{sizes.flood:,} messages; of a peer in order of arrival at most {sizes.flood_peers:,}",
        "profile": f"{sizes.profiled_single:,} single sends, {sizes.profiled:,} messages otherwise",
        "mixed load": f"{sizes.rate:,} messages a second, half of them in single sends; one consumer of each queue",
    }


def _beside(samples: Sequence[Sample]) -> list[Sample]:
    """Return single sends, those of ours named by the queue that took turns with it."""
    return [
        {**s, "variant": f"{s['variant']}, beside {s['beside']}"} if s["contender"] == "ours" else s
        for s in pick(samples, "single_in")
    ]


def _missing(about: Mapping[str, Any]) -> str:
    return "; ".join(f"{name} ({why})" for name, why in about["missing"].items())


def _failures(samples: Sequence[Sample]) -> str:
    told = (f"- {s['contender']}, {s['of']} {s['variant']}: {s['why']}" for s in pick(samples, "failed"))
    return "\n".join(dict.fromkeys(told))


def _targets(found: Sequence[Row]) -> str:
    lines = ["| | what | target | measured | |", "|---|---|---|---|---|"]
    for row in found:
        ratio = "-"
        if row.ratio is not None:
            shown = f"{row.ratio:,.0f}" if row.ratio >= 100 else f"{row.ratio:.2f}"
            ratio = f"{shown} {row.unit}" + (f" ({row.detail})" if row.detail else "")
        lines.append(f"| {row.group} | {row.what} | {row.target} | {ratio} | {row.verdict} |")
    return "\n".join(lines)


def _kinds(samples: Sequence[Sample], measures: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Measure, contender and variant of these measures, as they came."""
    seen = dict.fromkeys((s["measure"], s["contender"], s["variant"]) for s in samples if s["measure"] in measures)
    return iter(sorted(seen, key=lambda kind: (measures.index(kind[0]), kind[1] != "ours", kind[1] != "bare")))


def _spread(figure: Figure, form: str) -> str:
    median, least, most = (format(value, form) for value in (figure.median, figure.least, figure.most))
    return f"{median} | {least} to {most} | {figure.samples}"


def _rates(samples: Sequence[Sample], measures: Sequence[str]) -> str:
    lines = ["| | contender | how | messages/s | least to most | runs |", "|---|---|---|---:|---:|---:|"]
    for measure, contender, variant in _kinds(samples, measures):
        figure = rates(pick(samples, measure, contender, variant=variant))
        assert figure
        lines.append(f"| {measure.replace('_', ' ')} | {contender} | {variant} | {_spread(figure, ',.0f')} |")
    return "\n".join(lines)


def _log(samples: Sequence[Sample]) -> str:
    lines = [
        "Bytes for each message, until its last row is deleted and vacuumed. A checkpoint comes just before; "
        "with “checkpoint between”, one more after the last message was sent.",
        "",
        "| contender | how | checkpoint between | bytes | least to most | runs | in | out | vacuum | full-page images (count) |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for _, contender, variant in _kinds(samples, ("life",)):
        for between in (False, True):
            taken = pick(samples, "life", contender, variant=variant, checkpoint_between=between)
            figure = Figure.of(sample["bytes"] / sample["count"] for sample in taken)
            if figure:
                parts = [
                    Figure.of(sample[part] / sample["count"] for sample in taken)
                    for part in ("sent", "serviced", "vacuumed")
                ]
                shown = " | ".join(f"{part.median:,.0f}" for part in parts if part)
                images = Figure.of(sample["full_page_images"] for sample in taken)
                assert images
                lines.append(
                    f"| {contender} | {variant} | {'yes' if between else 'no'} | {_spread(figure, ',.0f')} "
                    f"| {shown} | {images.median:,.0f} |"
                )
    return "\n".join(lines)


def _seconds(samples: Sequence[Sample]) -> str:
    lines = [
        "| | which | milliseconds | least to most | runs | of it plan, process, settle |",
        "|---|---|---:|---:|---:|---|",
    ]
    kinds = dict.fromkeys(
        (s["measure"], s["variant"], s.get("state"), s.get("payloads"))
        for s in samples
        if s["measure"] in ("block", "held", "passed", "plan", "baseline")
    )
    for measure, variant, state, payloads in kinds:
        taken = pick(samples, measure, variant=variant, state=state, payloads=payloads)
        figure = Figure.of(sample["seconds"] * 1000 for sample in taken)
        assert figure
        halves = [
            Figure.of(s[part] * 1000 for s in taken) for part in ("plan", "process", "settle") if part in taken[0]
        ]
        shown = ", ".join(f"{half.median:,.1f}" for half in halves if half)
        name = {True: "baseline, payloads read", False: "baseline, lengths only"}.get(payloads, measure)
        which = f"{variant}, {state}" if state else variant
        lines.append(f"| {name} | {which} | {_spread(figure, ',.1f')} | {shown} |")
    return "\n".join(lines)
