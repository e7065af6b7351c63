"""The page of the architecture: its picture, the modules that it names, and the calls of its four ways."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path
from typing import Any

import grimp
import pytest

from docs.pictures.architecture import CALLS, MODULES
from lab.hops import Hops, measure, place_of

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib  # type: ignore[no-redef]

ROOT = Path(__file__).parents[3]
PACKAGE = "airflow_mq"
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(PACKAGE, cache_dir=None)


def contracts(kind: str) -> list[dict[str, Any]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    return [contract for contract in settings["contracts"] if contract["type"] == kind]


def level(contract: dict[str, Any], container: str, module: str) -> tuple[int, str] | None:
    """Return the layer of a module in a container, counted from the top, and its name there."""
    if not module.startswith(f"{container}."):
        return None
    name = module.removeprefix(f"{container}.")
    for number, layer in enumerate(contract["layers"]):
        for part in layer.split("|"):
            if f"{name}.".startswith(f"{part.strip(' ()')}."):
                return number, part
    return None


def is_permitted(importer: str, imported: str) -> bool:
    for contract in contracts("layers"):
        for container in contract["containers"]:
            above, below = level(contract, container, importer), level(contract, container, imported)
            if above and below and above[1] != below[1] and above[0] >= below[0]:
                return False
    return not any(
        f"{importer}.".startswith(f"{source}.") and f"{imported}.".startswith(f"{target}.")
        for contract in contracts("forbidden")
        for source in contract["source_modules"]
        for target in contract["forbidden_modules"]
    )


@pytest.mark.parametrize("name", [module.name for module in MODULES])
def test_a_module_of_the_picture_exists(name: str) -> None:
    path = ROOT / PACKAGE / name.replace(".", "/")
    assert path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


@pytest.mark.parametrize(("importer", "imported"), CALLS)
def test_a_call_of_the_picture_is_an_import_that_the_contracts_permit(
    graph: grimp.ImportGraph, importer: str, imported: str
) -> None:
    source, target = f"{PACKAGE}.{importer}", f"{PACKAGE}.{imported}"
    assert is_permitted(source, target)
    assert not is_permitted(target, source) or source.split(".")[1] == target.split(".")[1]
    assert graph.find_shortest_chain(source, target, as_packages=True), "no import leads from one to the other"


def test_all_modules_of_the_picture_are_called_or_call() -> None:
    assert {module.name for module in MODULES} == {name for call in CALLS for name in call}


def test_the_page_names_modules_that_exist() -> None:
    named = set(re.findall(r"`((?:engine|operators|spark|api|cli)/[\w/.]*)`", PAGE))
    assert len(named) > 10
    assert [name for name in named if not (ROOT / PACKAGE / name).exists()] == []


#: Each way of the page, and the way of `lab.hops` of which it is a part.
WAYS = {"Enqueue": "enqueue_message", "Plan": "plan_settle", "Settle": "plan_settle", "Service": "service"}


@pytest.fixture(scope="module")
def hops() -> dict[str, Hops]:
    with contextlib.redirect_stdout(io.StringIO()):
        return measure()


def listed(way: str) -> list[tuple[int, str]]:
    """Return the calls of a way as the page lists them, each with its depth."""
    section = PAGE.partition(f"\n### {way}\n")[2].partition("\n#")[0]
    found = re.findall(r"^( *)- `([\w/]+\.py)` `([\w.]+)`", section, re.MULTILINE)
    return [(len(indent) // 2, f"{module}:{name}") for indent, module, name in found]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="older versions of Python do not know the class of a function")
@pytest.mark.parametrize("way", WAYS)
def test_the_calls_of_a_way_happen_in_this_order(way: str, hops: dict[str, Hops]) -> None:
    calls, within = hops[WAYS[way]].places(), hops[WAYS[way]].within
    above = {place_of(code): set(map(place_of, outer)) for code, outer in within.items()}
    steps = listed(way)
    assert len(steps) > 5
    assert [place for _, place in steps if place not in calls] == []
    assert [place for _, place in steps] == sorted((place for _, place in steps), key=calls.index)
    path: list[str] = []
    for depth, place in steps:
        path[depth:] = [place]
        assert len(path) == depth + 1, f"{place} is two levels below the call before it"
        assert set(path[:-1]) <= above[place], f"{place} is not called within {path[-2]}"


def test_the_page_has_four_ways() -> None:
    assert re.findall(r"^### (.*)$", PAGE, re.MULTILINE) == list(WAYS)
