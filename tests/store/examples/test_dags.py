"""The DAGs in `dags/`, and the one in the README: quick to import, without a warning, and without a look at any database (L8)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_mq.engine.rules.message import Address

REPOSITORY = Path(__file__).parents[3]
DAGS = REPOSITORY / "dags"
FILES = sorted(path.name for path in DAGS.glob("*.py"))
EXPECTED = {
    "event_driven_block.py": {"event_driven_block"},
    "housekeeping.py": {"housekeeping"},
    "landing_folder.py": {"landing_folder"},
    "monthly_bill.py": {"monthly_bill"},
    "nightly_drain.py": {"nightly_drain"},
    "orders.py": {"orders"},
    "outbox.py": {"outbox"},
    "overweight_by_hand.py": {"overweight_by_hand"},
    "overweight_with_approval.py": {"overweight_with_approval"},
    "processing_rules.py": set(),
    "scheduled_block.py": {"scheduled_block"},
    "set_aside_by_hand.py": {"set_aside_by_hand"},
}
LINES_OF_A_SCREEN = 72

# Airflow is imported first, with all that the DAGs use of it; then, in a fork for each file, our modules and the DAGs.
IMPORT = """
import gc, json, os, runpy, sqlite3, sys, time, warnings
import psycopg
from airflow.sdk import DAG
import airflow.providers.apache.spark.operators.spark_submit
import airflow.providers.common.compat.sdk
import airflow.providers.standard.operators.hitl
import airflow.sdk.bases.hook
import airflow.timetables.assets, airflow.triggers.base, airflow.listeners

def refuse(*args, **kwargs):
    raise AssertionError("a database was asked while a DAG was parsed")

sqlite3.connect = psycopg.connect = psycopg.Connection.connect = refuse
airflow.sdk.bases.hook.BaseHook.get_connection = refuse
folder, *names = sys.argv[1:]
sys.path.insert(0, folder)
for name in names:
    pid = os.fork()
    if pid == 0:
        warnings.simplefilter("error")
        gc.disable()
        began = time.process_time()
        names = runpy.run_path(f"{folder}/{name}")
        seconds = time.process_time() - began
        # Most DAGs are left in no name.
        dags = sorted({one.dag_id for one in gc.get_objects() if type(one) is DAG})
        print(json.dumps({"name": name, "seconds": seconds, "dags": dags, "pyspark": "pyspark" in sys.modules}))
        sys.exit()
    if os.waitpid(pid, 0)[1]:
        sys.exit(f"{name} failed")
"""
Imported = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Imported:
    """Import each DAG file, and return the results."""
    home = tmp_path_factory.mktemp("airflow")
    dags = home / "dags"
    shutil.copytree(DAGS, dags)
    (first,) = re.findall(r"## A DAG\n\n```python\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL)
    (dags / "readme.py").write_text(first)
    environment = {**os.environ, "AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    command = [sys.executable, "-c", IMPORT, str(dags), *FILES, "readme.py"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"name"')]
    return {line["name"]: line for line in lines}


def test_all_are_known() -> None:
    assert set(FILES) == set(EXPECTED)


@pytest.mark.airflow
@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_dag_is_imported_quickly_and_quietly(imported: Imported, name: str) -> None:
    found = imported[name]
    assert set(found["dags"]) == EXPECTED[name]
    assert not found["pyspark"]
    assert found["seconds"] < 5, "of the processor's time, however many there are beside it"


@pytest.mark.airflow
@pytest.mark.slow
def test_the_dag_in_the_readme_is_one(imported: Imported) -> None:
    assert imported["readme.py"]["dags"] == ["orders"]


@pytest.mark.parametrize("name", ["overweight_by_hand.py", "overweight_with_approval.py"])
def test_a_form_takes_the_address_of_any_message(name: str) -> None:
    (pattern,) = re.findall(r'"address": Param\(.*?pattern="(.*?)"', (DAGS / name).read_text(), re.DOTALL)
    for address in ("acme:0:3", "acme/orders:0:3", "a:b:17:3:high"):
        assert re.search(pattern, str(Address.parse(address)))
    assert not re.search(pattern, "acme:0") and not re.search(pattern, "acme:0:3:low")


@pytest.mark.parametrize("name", FILES)
def test_a_dag_fits_on_a_screen(name: str) -> None:
    assert len((DAGS / name).read_text().splitlines()) <= LINES_OF_A_SCREEN
