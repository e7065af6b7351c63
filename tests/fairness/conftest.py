"""What the fairness tests measured, told at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

Tell = Callable[[str, str, str, str], None]
_ROWS: list[tuple[str, str, str, str]] = []


@pytest.fixture(params=["deficit", "rotation"])
def order(request: pytest.FixtureRequest) -> str:
    """The order that must be fair, and the contract's beside it for comparison."""
    return str(request.param)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store_uri(request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh store; fairness is the rules' business, so one PostgreSQL is enough."""
    if request.param == "sqlite":
        yield request.getfixturevalue("sqlite_uri")
        return
    yield request.getfixturevalue("pg_uri")


@pytest.fixture
def tell(store_uri: str) -> Iterator[Tell]:
    """Note a figure: what was asked, in which order, what came out, what must."""
    store = store_uri.partition(":")[0]

    def note(what: str, order: str, found: str, wanted: str) -> None:
        _ROWS.append((what, f"{order}, {store}", found, wanted if order != "rotation" else f"({wanted})"))

    yield note


@pytest.fixture(scope="session", autouse=True)
def table(request: pytest.FixtureRequest) -> Iterator[None]:
    """Print everything that was noted, once, below the results."""
    yield
    if not _ROWS:
        return
    rows = [("fairness", "order, store", "measured", "wanted (of rotation, not)"), *sorted(_ROWS)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print("\n" + "\n".join(lines))
