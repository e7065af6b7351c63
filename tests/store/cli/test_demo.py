"""`airflow-mq demo`, without starting an Airflow; tests/live/test_orders.py runs it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from airflow_mq.cli import dev
from tests.store.cli.conftest import Terminal

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.airflow


def without(name: str) -> Callable[[str], object]:
    return lambda wanted: None if wanted == name else find_spec(wanted)


@pytest.mark.parametrize("name", ["airflow", "pyspark"])
def test_a_missing_package_is_an_error_with_the_command_that_installs_it(
    mq: Terminal, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dev, "find_spec", without(name))

    printed = mq("demo", code=2).err

    assert f"missing packages ({name})" in printed and "pip install 'airflow-mq[airflow,spark]'" in printed


def test_stay_and_leave_exclude_each_other(mq: Terminal) -> None:
    assert "--stay and --leave exclude each other" in mq("demo", "--stay", "--leave", code=2).err


@pytest.mark.parametrize("words", [("--store", "sqlite:///other.db"), ("--conn-id", "other"), ("--ring", "night")])
def test_another_store_is_rejected_not_ignored(mq: Terminal, words: tuple[str, str]) -> None:
    assert "the demo creates its own store" in mq("demo", *words, code=2).err


@pytest.mark.parametrize("number", ["0", "-1", "many"])
def test_the_number_of_files_is_a_positive_number(mq: Terminal, number: str) -> None:
    assert "--loud" in mq("demo", f"--loud={number}", code=2).err


def test_a_summary_that_cannot_be_written_is_an_error_before_the_demo_starts(
    mq: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dev, "_run", lambda *_: pytest.fail("it started"))
    for file, why in (
        (tmp_path / "missing" / "summary.json", "No such file or directory"),
        (tmp_path, "Is a directory"),
    ):
        printed = mq("demo", "--leave", "--summary", str(file), code=2).err

        assert f"'{file}' cannot be written: {why}" in printed


def test_only_its_owner_may_read_the_summary(mq: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dev, "_run", lambda *_: True)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for file in (tmp_path / "old.json", tmp_path / "new.json"):
        if file.name == "old.json":
            file.touch(mode=0o644)
        mq("demo", "--leave", "--summary", str(file))
        assert file.stat().st_mode & 0o777 == 0o600


def test_the_wheel_contains_the_dags_of_the_demo() -> None:
    tomllib = pytest.importorskip("tomllib")
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packed = config["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]

    assert dev.EXAMPLE_DAGS == ROOT / "dags"
    assert {Path(source).name for source in packed} == {"orders.py", "overweight_by_hand.py", "processing_rules.py"}
    assert all((ROOT / source).is_file() for source in packed)
    assert all(Path(target).parent == Path("airflow_mq/cli/dev/dags") for target in packed.values())
