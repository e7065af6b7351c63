"""The report is made from raw samples alone and lists met and missed targets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.benchmarks import report
from lab.benchmarks.targets import rows


def sample(measure: str, contender: str, variant: str, seconds: float, **more: Any) -> dict[str, Any]:
    return {"measure": measure, "contender": contender, "variant": variant, "count": 1000, "seconds": seconds, **more}


SAMPLES = [
    *(sample("bulk_in", "ours", "calls of 1,000 to one origin", seconds) for seconds in (0.9, 1.0, 5.0)),
    *(sample("bulk_in", "bare", "COPY of 1,000", seconds) for seconds in (3.0, 1.0, 4.0)),
    sample("bulk_in", "pgmq", "calls of 1,000", 8.0),
    sample("bulk_in", "river", "calls of 10,000", 9.0),
    sample("out", "ours", "batch, sent in calls of 10", 1.0, vacuum=1.0),
    sample("out", "bare", "IN (SELECT …)", 5.0, vacuum=1.0),
]
ABOUT = {
    "date": "today",
    "command": "this",
    "sizes": "quick",
    "machine": {},
    "server": {},
    "contenders": {},
    "missing": {"pg-boss": "why"},
}


def test_targets_are_ratios_of_medians() -> None:
    found = {(row.group, row.what): row for row in rows(SAMPLES)}

    bare = found["bulk in", "calls of 1,000 to one origin, against the bare table"]
    best = found["bulk in", "calls of 1,000 to one origin, against the best peer"]
    out = found["out", "batch, sent in calls of 10, against the bare table"]

    assert (bare.ratio, bare.met) == (3.0, None)
    assert (best.ratio, best.detail, best.verdict) == (8.0, "pgmq", "met")
    assert out.ratio == 3.0
    assert found["single in", "32 clients, against the bare table's INSERT"].verdict == "not measured"


def test_the_report_can_be_made_again_from_its_own_samples(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="only the benchmark needs it")
    (tmp_path / report.REMARKS).write_text("Because of this.\n")

    report.write(tmp_path, ABOUT, SAMPLES)
    once = (tmp_path / "REPORT.md").read_text("utf-8")
    report.write(tmp_path, *report.read(tmp_path))

    assert (tmp_path / "REPORT.md").read_text("utf-8") == once
    assert "Because of this." in once
    assert "pg-boss (why)" in once
    assert (tmp_path / "report.png").stat().st_size > 1000


def test_a_part_that_is_measured_again_replaces_its_samples_only() -> None:
    before = {**ABOUT, "contenders": {"pgmq": "1", "pgq": "3"}}, [*SAMPLES, {"measure": "failed"}]
    fresh = [sample("bulk_in", "ours", "calls of 1,000 to one origin", 2.0)]

    about, samples = report.merged(before, ({**ABOUT, "date": "later", "contenders": {"pgmq": "2"}}, fresh))

    assert samples == [*fresh, *SAMPLES[-2:]]
    assert (about["date"], about["contenders"]) == ("later", {"pgmq": "2", "pgq": "3"})


def test_a_measure_that_failed_keeps_no_samples_of_an_earlier_run() -> None:
    failed = sample("failed", "ours", "all", 0.0, of="out")

    _, samples = report.merged((ABOUT, SAMPLES), (ABOUT, [failed]))

    assert samples == [failed, *SAMPLES[:-2]]
