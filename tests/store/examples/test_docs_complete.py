"""Complete tables of the documentation: each lists all items of its kind, and no other."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path

import pytest
import yaml

from airflow_mq import __all__, __version__
from airflow_mq.cli.command import EXIT_CODES
from airflow_mq.engine.rules import errors
from airflow_mq.engine.rules.events import NAMES
from airflow_mq.engine.store.address import PARAMETERS
from airflow_mq.provider import get_provider_info

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
CONFIGURATION = DOCS / "reference" / "configuration.md"


def table(page: Path, heading: str) -> list[list[str]]:
    """The rows of the first table below a heading."""
    text = page.read_text("utf-8").partition(f"| {heading} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in text.splitlines()[2:]]


def names(page: Path, heading: str) -> list[str]:
    """Return the names in code of the first column of a table."""
    return [name for row in table(page, heading) for name in re.findall(r"`([^`]+)`", row[0])]


def test_every_event_is_documented() -> None:
    assert sorted(names(DOCS / "reference" / "events.md", "event")) == sorted(set(NAMES.values()))


def test_every_option_of_airflows_configuration_is_documented_with_its_default() -> None:
    options = get_provider_info()["config"]["airflow_mq"]["options"]
    told = {row[0].strip("`"): row[1].strip("`") for row in table(CONFIGURATION, "option")}

    assert told == {name: str(option["default"] or "none") for name, option in options.items()}


def test_every_parameter_of_an_address_and_key_of_a_connection_is_documented() -> None:
    (kind,) = get_provider_info()["connection-types"]

    assert sorted(names(CONFIGURATION, "parameter")) == sorted(PARAMETERS)
    assert sorted(names(CONFIGURATION, "key")) == sorted(kind["conn-fields"])


def test_every_variable_that_the_package_reads_is_documented() -> None:
    """Variables of examples are exempt."""
    sources = [path for path in (ROOT / "airflow_mq").rglob("*.py") if "examples" not in path.parts]
    read = {
        node.value
        for path in sources
        if "AIRFLOW_MQ_" in (text := path.read_text("utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and re.fullmatch(r"AIRFLOW_MQ_[A-Z]+", str(node.value))
    }

    assert read and read <= set(re.findall(r"`(AIRFLOW_MQ_[A-Z]+)`", CONFIGURATION.read_text("utf-8")))


def test_exit_codes_are_those_of_the_help() -> None:
    told = {row[0]: row[1] for row in table(DOCS / "why-it-waits.md", "code")}
    helped = dict(re.findall(r"^  (\d+) +(.+)$", EXIT_CODES, re.MULTILINE))

    assert told.keys() == helped.keys()


def test_every_error_of_the_troubleshooting_is_one() -> None:
    found = names(DOCS / "faq.md", "error")

    assert len(found) == len(set(found)) > 10
    assert all(issubclass(getattr(errors, name), errors.MessageQueueError) for name in found)


def test_every_alert_has_a_section_in_the_runbook() -> None:
    """A section has a console to copy. The address of an alert leads to it."""
    rules = yaml.safe_load((DOCS / "grafana" / "alerts.yaml").read_text("utf-8"))["groups"][0]["rules"]
    parts = re.split(r"^## (.+)$", (DOCS / "runbook.md").read_text("utf-8"), flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2]))

    alerts = [rule["alert"] for rule in rules]
    assert alerts == list(sections)[: len(alerts)]
    assert all("```console\n$ airflow-mq " in sections[alert] for alert in alerts)
    assert [rule["annotations"]["runbook_url"] for rule in rules] == [f"runbook.html#{one.lower()}" for one in alerts]
    assert all("ring" in rule["expr"] and rule["annotations"]["summary"] for rule in rules)


@pytest.mark.slow
def test_the_reference_pages_are_current() -> None:
    """`make reference` writes them, and readers of the repository see them."""
    pages = runpy.run_path(str(DOCS / "hooks" / "reference.py"))["pages"]()
    stale = [path.name for path, text in pages.items() if path.read_text("utf-8") != text]

    assert stale == [], "run `make reference`"
    assert {path.name for path in pages} == {
        "airflow.md", "commands.md", "python.md", "rules.md", "settings.md", "testing.md",
    }  # fmt: skip
    assert not any(re.search(r"^:::(?!.*\n(?: +.*\n)*-->)", text, re.MULTILINE) for text in pages.values())


def headings(page: Path) -> set[str]:
    """Return the names that a reference page describes."""
    return set(re.findall(r"^### `(\w+)`$", page.read_text("utf-8"), re.MULTILINE))


def test_every_public_name_is_in_the_reference() -> None:
    described = set[str]().union(*map(headings, (DOCS / "reference").glob("*.md")))

    assert set(__all__) - described == {"Outcome"}, "the union of the classes in the section Outcomes"


def test_every_class_that_a_dag_uses_is_in_the_reference() -> None:
    pattern = re.compile(r"^class ([A-Z]\w*(?:Operator|Sensor|Trigger|Notifier))\(", re.MULTILINE)
    sources = [path.read_text("utf-8") for path in (ROOT / "airflow_mq").rglob("*.py")]
    classes = {name for source in sources for name in pattern.findall(source)}

    assert len(classes) > 25
    bases = {"EnqueueOperator", "QueueNotifier", "QueueOperator"}
    assert classes - bases - headings(DOCS / "reference" / "airflow.md") == set()


def test_the_version_is_one_and_the_changelog_knows_it() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    headings = re.findall(r"^## \[(.+?)\](.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)

    assert not re.search(r"^version =", project, re.MULTILINE) and 'path = "airflow_mq/__init__.py"' in project
    assert all(re.fullmatch(r" - \d{4}-\d\d-\d\d", date) for name, date in headings if name != "Unreleased")
    # Between two releases the version is the next one; at a release the newest of the changelog.
    newest = headings[1][0]
    assert __version__ == newest if ".dev" not in __version__ else __version__.split(".") > newest.split(".")


def test_no_table_escapes_a_bar_in_code() -> None:
    """The site would show the backslash, and a copied command would contain it."""
    pages = {path.name: path.read_text("utf-8") for path in DOCS.rglob("*.md")}

    assert [name for name, text in pages.items() if re.search(r"^\|.*(`[^`|]*\\\||`[^`]*&#124;)", text, re.M)] == []


def test_the_recipes_name_what_there_is() -> None:
    """Names in the recipes of CONTRIBUTING.md: files, and what the sources define or call."""
    recipes = (ROOT / "CONTRIBUTING.md").read_text("utf-8").split("## Add a fuzz target")[1]
    named = re.findall(r"`([\w./]+?)(?:\(.*?\))?`", re.sub(r"```.*?```", "", recipes, flags=re.DOTALL))
    sources = [path for top in ("airflow_mq", "tests", "lab") for path in (ROOT / top).rglob("*") if path.is_file()]
    kept = [path for path in sources if path.suffix in (".py", ".sql", ".tsx", ".ts") and "dist" not in path.parts]
    text = "\n".join(path.read_text("utf-8") for path in kept)

    # What is built is not in a checkout.
    files = [name.removesuffix("/NAME") for name in named if "/" in name and not name.startswith("build/")]
    assert len(files) > 40
    missing = [name for name in files if not any((ROOT / top / name).exists() for top in ("", "airflow_mq"))]
    words = {part for name in named if "/" not in name for part in name.split(".") if part.isidentifier()}
    assert missing == []
    assert sorted(word for word in words if not re.search(rf"\b{word}\b", text)) == []
