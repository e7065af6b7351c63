"""Every example in the documentation runs, in the order of its page; what cannot run here is read by what would run it.

A page is one program: its Python shares names, its commands share the store of `AIRFLOW_MQ_STORE`, which Python knows
as `STORE`. What a page prints below a command is compared, where `…` stands for anything.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from airflow_mq import MessageQueue
from airflow_mq.cli import main
from airflow_mq.cli.parser import parse_line
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.provider import get_provider_info

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docker/README.md"]
)
#: Pages whose Python runs in a separate test, which also checks the results.
TESTED_ELSEWHERE = {"how-it-works.md", "priorities.md", "set-aside.md"}
#: Pages whose commands run in a separate test, between steps that they need.
COMMANDS_ELSEWHERE = {"how-it-works.md", "priorities.md"}
#: Pages about a queue in which messages wait already: an operator who copies their commands must not enqueue any.
ABOUT_A_QUEUE = {"runbook.md", "faq.md", "operations.md"}
#: Commands of airflow-mq that the parser reads and no test runs here, with the reason.
ONLY_READ = {
    r"\b(HASH|TOKEN|ADDRESS|ID)\b": "the reader replaces this word",
    r"postgresql://|s3://": "no server has this name",
    r"--conn-id mq_(one|two)": "tests/airflow/test_several_databases.py runs them, in two databases",
    r"^airflow-mq message receive-kafka": "tests/store/adapters has a Kafka",
    r"^airflow-mq (report bill|verify) ": "tests/store/cli/test_verify.py follows these steps, on a day that is over",
    r"^airflow-mq service .*--follow$": "it runs until a signal ends it; tests/store/cli runs it",
    r"^airflow-mq top( --json.*)?$": "it runs until Ctrl-C ends it; tests/store/terminal runs it",
    r"^airflow-mq store (grant|grants|revoke)\b": "tests/store/test_roles.py runs them on PostgreSQL",
    r"^airflow-mq dev( .*)?$": "tests/live/test_first_steps.py starts it",
}
#: Commands of other programs: a shell reads them, and none runs, with the reason.
OF_OTHERS = {
    r"^(mkdir|cd) |^airflow dags unpause ": "tests/live/test_first_steps.py follows that page to the letter",
    r"^make [a-z]+": "the Makefile has the target; its programs have their own tests",
    r"^export AIRFLOW_MQ_STORE=": "the store of a test is its own",
    r"^(pip install|python -m venv) ": "tests/matrix.py installs, in environments of their own",
    r"^(cp docker/|docker compose )": "no container engine is available; tests/unit/docker checks the files",
    r"^(TOKEN=\$\()?curl ": "tests/live/test_page.py sends the same to an API server",
}
OF_AIRFLOW = re.compile(
    r"airflow\.(sdk|providers)|airflow_mq\.(block|operators|sensors|triggers|hooks|testing\.live)|\bblock\("
)
FENCE = re.compile(r"^( *)```([a-z]+)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
#: Kinds of blocks that are run or read here.
RUN = {"console", "ini", "json", "python", "sh", "yaml"}
#: Other kinds, and the tests that cover them.
SHOWN = {
    "sql": "tests/store/test_sending_by_sql.py runs it",
    "text": "a picture, or a file for a tool that is not here",
}


class Example(NamedTuple):
    """A fenced block of a page."""

    kind: str
    text: str
    line: int


#: Text that `make reference` writes: examples of docstrings, and commands with placeholder arguments.
GENERATED = re.compile(r"^<!-- `make reference` writes.*\Z|^<!--\n:::.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)


def examples(page: Path) -> list[Example]:
    text = GENERATED.sub(lambda part: "\n" * part[0].count("\n"), page.read_text("utf-8"))
    return [
        Example(
            found[2], re.sub(f"^{found[1]}", "", found[3], flags=re.MULTILINE), text[: found.start()].count("\n") + 2
        )
        for found in FENCE.finditer(text)
    ]


def file_of(page: Path, example: Example) -> str | None:
    """Return the name of the file in which the reader saves an example, to run it as a program."""
    before = page.read_text("utf-8").splitlines()[example.line - 4]
    found = re.search(r"[Ss]ave this as `(\w+\.py)`", before)
    return found and found[1]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT / "docs" if page.is_relative_to(ROOT / "docs") else ROOT))


def run_python(page: Path, example: Example, names: dict[str, Any]) -> None:
    # An error names the line of the page.
    text = example.text.replace("from __future__ import annotations", "").replace('"postgresql://…"', "ELSEWHERE")
    code = "\n" * (example.line - 1) + text
    exec(compile(code, page, "exec"), names)  # noqa: S102 - our own page


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command of a console, and what it prints there."""
    parts = re.split(r"^\$ ", text.replace("\\\n", " "), flags=re.MULTILINE)
    assert not parts[0].strip(), f"a console begins with a command: {parts[0]!r}"
    for part in parts[1:]:
        command, _, printed = part.partition("\n")
        yield command, printed


def read_only(command: str) -> None:
    assert any(re.search(pattern, command) for pattern in OF_OTHERS), f"no reason is given for not running: {command}"
    subprocess.run(["sh", "-n", "-c", command], check=True)
    if command.startswith("make "):
        assert f"\n{command.split()[1]}:" in (ROOT / "Makefile").read_text("utf-8")


def run_console(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command, printed in commands(text):
        command = command.replace("python -m airflow_mq", "airflow-mq").replace("airflow mq ", "airflow-mq ")
        if re.fullmatch(r"python \w+\.py", command):
            done = subprocess.run([sys.executable, command.split()[1]], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            assert_printed(command, done.stdout, printed)
            continue
        if not command.startswith("airflow-mq "):
            read_only(command)
            continue
        command = command.partition(" | ")[0]
        command, _, into = command.replace(" >> ", " > ").partition(" > ")
        words = shlex.split(command, comments=True)[1:]
        expected = int(found[1]) if (found := re.search(r"# exit code (\d)", into + command)) else 0
        if any(re.search(pattern, command) for pattern in ONLY_READ):
            parse_line(["0" * 64 if word == "HASH" else word for word in words])
            continue
        capsys.readouterr()
        assert main(words) == expected, f"{command}\n{capsys.readouterr()}"
        told = "".join(capsys.readouterr())
        if into:
            Path(into.partition("#")[0].strip()).write_text(told)
        if printed.strip():
            assert_printed(command, told, printed)


def assert_printed(command: str, output: str, printed: str) -> None:
    """Compare the output of a command with the page."""
    like = "".join(".*" if part == "…" else re.escape(part) for part in re.split("(…)", _spaced(printed)))
    assert re.fullmatch(like, _spaced(output), re.DOTALL), f"{command}\n{output}\nis not\n{printed}"


def _spaced(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.splitlines() if line.strip())


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AIRFLOW_MQ_STORE", f"sqlite:///{tmp_path}/queue.db")
    elsewhere = f"sqlite:///{tmp_path}/elsewhere.db"  # in the place of `postgresql://…`
    for store in (os.environ["AIRFLOW_MQ_STORE"], elsewhere):
        upgrade(parse(store))
    if name_of(page) in ABOUT_A_QUEUE:
        with MessageQueue(os.environ["AIRFLOW_MQ_STORE"]) as queue:
            queue.enqueue_message("acme", b"an order")
    (tmp_path / "orders.parquet").write_bytes(b"PAR1")
    names: dict[str, Any] = {"STORE": os.environ["AIRFLOW_MQ_STORE"], "ELSEWHERE": elsewhere, "__name__": name_of(page)}
    for example in examples(page):
        assert example.kind in RUN | SHOWN.keys(), (
            f"line {example.line}: no test covers blocks of kind {example.kind!r}"
        )
        match example.kind:
            case "python" if name_of(page) not in TESTED_ELSEWHERE and not OF_AIRFLOW.search(example.text):
                if name := file_of(page, example):
                    Path(name).write_text(example.text)
                else:
                    run_python(page, example, names)
            case "console" if name_of(page) not in COMMANDS_ELSEWHERE:
                run_console(example.text, capsys)
            case "json":
                json.loads(example.text)
            case "yaml":
                assert all(isinstance(one, (dict, list)) for one in yaml.safe_load_all(example.text))
            case "ini":
                settings = configparser.ConfigParser()
                settings.read_string(example.text)
                known = get_provider_info()["config"]["airflow_mq"]["options"]
                assert set(settings["airflow_mq"]) <= set(known)
            case "sh":
                subprocess.run(["sh", "-n"], input=example.text, text=True, check=True)


@pytest.mark.airflow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if "export AIRFLOW_CONN_" in page.read_text("utf-8")], ids=name_of
)
def test_the_connections_of_a_page_are_connections(page: Path, tmp_path: Path) -> None:
    """Airflow reads each of them; ours lead to a store, and those of Spark to a master."""
    from airflow.models import Connection

    from airflow_mq.connections import target_of

    lines = re.findall(r"^export (AIRFLOW_CONN_[A-Z_]+)=(.*)$", page.read_text("utf-8"), re.MULTILINE)
    assert lines
    for name, written in lines:
        # As a shell reads it.
        told = subprocess.run(["sh", "-c", f'{name}={written}; printf %s "${name}"'], capture_output=True, check=True)
        connection = Connection.from_json(told.stdout.decode())
        if connection.conn_type == "airflow_mq":
            assert target_of(connection).address.safe
        else:
            assert (connection.conn_type, connection.host) == ("spark", "local[*]")


@pytest.mark.airflow
@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in page.read_text("utf-8")], ids=name_of)
def test_the_dags_of_a_page_are_dags(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is imported as Airflow would; what is no whole DAG stands in one."""
    shown = [one for one in examples(page) if one.kind == "python" and OF_AIRFLOW.search(one.text)]
    if not shown:
        return
    from airflow.sdk import DAG

    from airflow_mq.block import block
    from airflow_mq.processors import Processor, Processors

    monkeypatch.syspath_prepend(str(ROOT / "dags"))
    monkeypatch.chdir(tmp_path)
    known = {"block": block, "Processor": Processor, "RULES": Processors([Processor("all", "shop.orders:process")])}
    for example in shown:
        with DAG("page", schedule=None):
            run_python(page, example, {**known, "__name__": name_of(page), "__file__": str(page)})
