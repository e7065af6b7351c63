"""Arguments of instruments: a run of nothing must not look like a good result."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import hops
from lab.benchmarks import quotas
from lab.chaos.__main__ import main as chaos
from lab.fuzz.__main__ import main as fuzz
from lab.powerloss.__main__ import main as powerloss


@pytest.mark.parametrize("words", [["--runs", "0"], ["--runs", "-1"], ["--faults", "0"], ["--runs", "many"]])
def test_chaos_takes_no_numbers_that_run_nothing(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        chaos(["--report", *words])
    assert "expected a whole number of at least 1" in capsys.readouterr().err


def test_a_report_of_no_run_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert chaos(["--report", "--out", str(tmp_path / "none.jsonl")]) == 1
    assert "0 runs, 0 clean" in capsys.readouterr().out


def test_others_take_no_numbers_that_run_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for instrument, name in ((powerloss, "--runs"), (fuzz, "--seconds")):
        with pytest.raises(SystemExit):
            instrument([name, "0"])
        assert "at least 1" in capsys.readouterr().err
    monkeypatch.setattr("sys.argv", ["quotas", "--pairs", "1"])
    with pytest.raises(SystemExit):
        quotas.main()
    assert "at least 2" in capsys.readouterr().err


def test_an_unknown_way_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["hops", "--list", "enqueue"])
    monkeypatch.setattr(hops, "measure", lambda: {"enqueue_message": None, "service": None})
    with pytest.raises(SystemExit):
        hops.main()
    assert "unknown way enqueue: expected enqueue_message, service" in capsys.readouterr().err
