"""Fairness fixtures: the measured figures are printed at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

Record = Callable[[str, str, str, str], None]
_ROWS: list[tuple[str, str, str, str]] = []


@pytest.fixture(params=["deficit", "rotation"])
def order(request: pytest.FixtureRequest) -> str:
    """Return the fair order, or the contract's rotation for comparison."""
    return str(request.param)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.soak])])
def store_uri(request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield a new store. Fairness does not depend on the store, so `make test` measures it on one."""
    if request.param == "sqlite":
        yield request.getfixturevalue("sqlite_uri")
        return
    yield request.getfixturevalue("pg_uri")


@pytest.fixture
def record(store_uri: str) -> Iterator[Record]:
    """Return a function that records a figure: name, order, measured and wanted value."""
    store = store_uri.partition(":")[0]

    def add_row(name: str, order: str, measured: str, wanted: str) -> None:
        _ROWS.append((name, f"{order}, {store}", measured, wanted if order != "rotation" else f"({wanted})"))

    yield add_row


@pytest.fixture(scope="session", autouse=True)
def table(request: pytest.FixtureRequest) -> Iterator[None]:
    """Print the recorded figures once, below the results."""
    yield
    if not _ROWS:
        return
    rows = [("fairness", "order, store", "measured", "wanted (of rotation, not)"), *sorted(_ROWS)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print("\n" + "\n".join(lines))
