"""`airflow mq …`, and stores named by connections of Airflow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_mq import MessageQueue
from airflow_mq.engine.store import parse, upgrade

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

CANARY = "s3cret-Canary"
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home for Airflow, with its database and a connection in it."""
    home = tmp_path_factory.mktemp("airflow-home")
    upgrade(parse(f"sqlite:///{home / 'queue.db'}"))
    run(home, "airflow", "db", "migrate")
    extra = {"driver": "sqlite", "path": str(home / "queue.db")}
    connection = json.dumps({"conn_type": "airflow_mq", "extra": extra})
    run(home, "airflow", "connections", "add", "in_database", "--conn-json", connection)
    return home


def run(home: Path, *words: str, code: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    environment |= {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        **more,
    }
    done = subprocess.run([str(BIN / words[0]), *words[1:]], capture_output=True, text=True, env=environment)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_airflow_lists_the_commands(home: Path) -> None:
    assert "mq " in run(home, "airflow", "--help").stdout
    listed = run(home, "airflow", "mq", "--help").stdout
    assert all(name in listed for name in ("queue", "set-aside", "doctor", "enqueue"))
    shown = run(home, "airflow", "mq", "queue", "list", "--help").stdout
    assert "--prefix" in shown and "airflow mq queue list --prefix acme/" in shown


def test_every_command_can_be_drawn_by_airflow() -> None:
    from airflow.cli import cli_parser

    from airflow_mq.cli.airflow import get_cli_commands

    (group,) = get_cli_commands()
    parser = cli_parser.DefaultHelpParser(prog="airflow")
    cli_parser._add_command(parser.add_subparsers(), group)

    args = parser.parse_args(["mq", "ring", "create", "night", "--lease", "60", "--json"])
    assert (args.name, args.lease, args.json) == ("night", 60.0, True)


def test_the_commands_work_on_a_connection(home: Path) -> None:
    run(home, "airflow", "mq", "enqueue", "--conn-id", "in_database", "acme", "x")

    for program in (("airflow", "mq"), ("airflow-mq",)):
        done = run(home, *program, "queue", "show", "acme", "--conn-id", "in_database", "--json")
        assert json.loads(done.stdout)["count"] == 1
        paused = run(home, *program, "queue", "pause", "acme", "--conn-id", "in_database").stdout
        assert "to resume: airflow-mq queue resume acme --conn-id in_database --ring default\n" in paused


def test_the_default_connection_is_used_where_none_is_named(home: Path) -> None:
    extra = {"driver": "sqlite", "path": str(home / "queue.db"), "ring": "night"}
    with MessageQueue(f"sqlite:///{home / 'queue.db'}") as queue:
        queue.admin.create_ring("night")
    said = {"AIRFLOW_CONN_AIRFLOW_MQ_DEFAULT": json.dumps({"conn_type": "airflow_mq", "extra": extra})}

    assert json.loads(run(home, "airflow", "mq", "ring", "show", "--json", **said).stdout)["ring"] == "night"


def test_what_goes_wrong_is_one_line_and_a_code(home: Path) -> None:
    done = run(home, "airflow", "mq", "queue", "list", "--conn-id", "nowhere", code=4)
    assert "error: Airflow has no connection 'nowhere'" in done.stderr
    secret = {"AIRFLOW_CONN_BAD": f"airflow_mq://user:{CANARY}@127.0.0.1:1/database"}
    done = run(home, "airflow-mq", "queue", "list", "--conn-id", "bad", code=4, **secret)
    assert CANARY not in done.stdout + done.stderr and "Traceback" not in done.stderr
    run(home, "airflow", "mq", "queue", "resume", "nobody", "--conn-id", "in_database", code=1)


def test_without_airflow_a_connection_cannot_be_used(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['airflow'] = None; from airflow_mq.cli import main;"
        "sys.exit(main(['queue', 'list', '--conn-id', 'x']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)

    assert done.returncode == 2
    assert "pip install 'airflow-mq[airflow]'" in done.stderr
