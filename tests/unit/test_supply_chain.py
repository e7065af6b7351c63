"""Supply chain: what the code may call, what is installed and shipped, and under which licence."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.audit import judge_page, judge_python

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "airflow_mq"
#: Modules that turn data into objects or code.
UNSAFE_MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "jsonpickle", "marshal", "shelve", "yaml"}
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__", "import_string", "run_path", "run_module", "literal_eval"}
#: What may be imported of them: an exception that a worker of Spark raises.
PERMITTED = {("spark/child.py", "UnpicklingError")}
#: The only module that imports what is not a constant: `module:function` of a DAG or of a command.
LOADING = {"loading.py"}
#: Others that import by a name which is no constant: their own submodules.
OWN_MODULES = {"__init__.py"}
LICENCES = ROOT / "docs" / "compatibility.md"


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Yield the path and the tree of each module of the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if "node_modules" not in path.parts:
            yield path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text("utf-8"))


def called(node: ast.Call) -> str:
    """Return the name that a call calls, without its module; `re.compile` is another function than `compile`."""
    if isinstance(node.func, ast.Attribute):
        return "" if node.func.attr in {"compile", "eval", "exec"} else node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def unsafe(place: str, tree: ast.Module) -> Iterator[str]:
    """Yield each import and call by which data becomes code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (f"{place}: import {one.name}" for one in node.names if one.name.split(".")[0] in UNSAFE_MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in UNSAFE_MODULES:
            names = [one.name for one in node.names if (place, one.name) not in PERMITTED]
            yield from (f"{place}: from {node.module} import {name}" for name in names)
        elif isinstance(node, ast.Call):
            if called(node) in UNSAFE_CALLS:
                yield f"{place}:{node.lineno}: {called(node)}()"
            is_constant = bool(node.args) and isinstance(node.args[0], ast.Constant)
            if called(node) == "import_module" and not is_constant and place not in LOADING | OWN_MODULES:
                yield f"{place}:{node.lineno}: import_module() of a name that is no constant"
            # Of any function but argcomplete's, whose `shell` is a name.
            is_shell = any(one.arg == "shell" and getattr(one.value, "value", True) for one in node.keywords)
            if is_shell and called(node) != "shellcode":
                yield f"{place}:{node.lineno}: a shell"


@pytest.mark.slow
def test_no_data_becomes_code() -> None:
    assert [found for place, tree in modules() for found in unsafe(place, tree)] == []


def test_the_rules_find_what_they_forbid() -> None:
    for text in (
        "import pickle", "from pickle import loads", "import yaml", "eval(x)", "exec(x)", "compile(x, '', 'exec')",
        "import_string(row.name)", "__import__(x)", "import_module(row.name)", "run(x, shell=True)", "runpy.run_path(x)",
    ):  # fmt: skip
        assert list(unsafe("queue/some.py", ast.parse(text))), text
    for text in ("re.compile(x)", "import_module('tomllib')", "run(x, shell=False)"):
        assert not list(unsafe("queue/some.py", ast.parse(text))), text


@pytest.mark.slow
def test_only_dags_and_commands_name_code_to_load() -> None:
    """`airflow_mq.loading` imports by name. No module that reads stored data uses it."""
    users = set()
    for place, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[-1] == "loading":
                users.add(place)
    assert users and not [place for place in users if place.startswith(("engine/", "api/", "adapters/"))], users


def test_each_required_package_is_pinned_with_hashes() -> None:
    text = (ROOT / "requirements.txt").read_text()
    constraints = dict(re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    entries = re.findall(
        r"^([\w.-]+)==([\w.]+)([^\n]*\\\n(?:    --hash=sha256:[0-9a-f]{64}[ \\]*\n?)+)", text, re.MULTILINE
    )
    assert len(entries) == len(re.findall(r"==", re.sub(r";[^\n]*", "", text))) >= 8
    assert {name: version for name, version, _ in entries}.items() <= constraints.items()
    required = re.search(r"^dependencies = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE | re.DOTALL)
    assert required is not None
    names = {name.replace("_", "-") for name in re.findall(r'"([\w.-]+)', required[1])}
    assert names <= {name for name, _, _ in entries}
    assert "://" not in text and "index" not in text


def test_the_list_of_licences_has_everything_that_is_shipped() -> None:
    listed = dict(re.findall(r"^\| ([\w./@-]+) [\d.]+ \| ([\w. -]+) \|", LICENCES.read_text("utf-8"), re.MULTILINE))
    bundled = re.findall(
        r"^([\w./@-]+) (\d+\.\d+\.\d+) \(([\w. -]+)\)$", (PACKAGE / "page/dist/LICENSES.txt").read_text(), re.MULTILINE
    )
    assert bundled and {name: licence for name, _, licence in bundled}.items() == listed.items()
    for name, version, _ in bundled:
        assert f"| {name} {version} |" in LICENCES.read_text("utf-8")
    lock = json.loads((PACKAGE / "page" / "package-lock.json").read_text())["packages"]
    shipped = {path.removeprefix("node_modules/") for path, one in lock.items() if path and not one.get("dev")}
    assert shipped == set(listed)


def test_no_answer_of_a_registry_counts_as_sound() -> None:
    skipped = {
        "dependencies": [{"name": "rich", "skip_reason": "not found"}, {"name": "a", "version": "1", "vulns": []}]
    }
    assert judge_python(skipped) == ("could not ask", "about 1 of 2 packages: rich")
    weak = {"dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "CVE-1"}]}]}
    assert judge_python(weak) == ("found", "a 1: CVE-1")
    assert judge_page(None, "npm error audit endpoint returned an error\n")[0] == "could not ask"
    assert judge_page({"message": "405 Method Not Allowed"}, "") == ("could not ask", "405 Method Not Allowed")
    assert judge_page({"vulnerabilities": {"react": {}}}, "") == ("found", "react")
    assert judge_page({"vulnerabilities": {}}, "")[0] == "ok"
