"""Commands of docs/how-to/upgrade.md: backup, offline SQL and restore, between this version and a next one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_mq import MessageQueue
from airflow_mq.cli import main
from airflow_mq.engine.store import StoreAddress, parse, schema_status, upgrade
from tests.postgres_server import Server
from tests.store import killed_upgrades
from tests.store.successor import NUMBER, fill, next_version

pytestmark = pytest.mark.empty_store

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "upgrade.md"
BACK_UP, BACK_UP_FILE, OFFLINE, GO_BACK, GO_BACK_FILE = re.findall(
    r"^ *```sh\n(.*?)^ *```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
)


def run(script: str, folder: Path, uri: str, programs: Path) -> None:
    """Run a block of the page, as a shell would."""
    path = os.pathsep.join([str(Path(sys.executable).parent), str(programs), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "AIRFLOW_MQ_STORE": uri}
    done = subprocess.run(["sh", "-ec", script], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"


def upgrade_and_go_back(uri: str, back_up: str, go_back: str, folder: Path, programs: Path) -> None:
    address = filled(uri)
    before = killed_upgrades.contents(address)
    run(back_up, folder, uri, programs)
    with next_version():
        upgrade(address)
        with MessageQueue(uri) as queue:
            assert queue.enqueue_message("acme", b"since", key="since").count == 1
    run(go_back, folder, uri, programs)
    assert schema_status(address).version == NUMBER - 1
    assert killed_upgrades.contents(address) == before
    # The restored store upgrades again. Keys of before hold, and those of since are forgotten.
    with next_version():
        assert upgrade(address) != []
        with MessageQueue(uri) as queue:
            check_keys(queue)


def filled(uri: str) -> StoreAddress:
    """Fill a store of this version."""
    address = parse(uri)
    upgrade(address)
    with MessageQueue(uri) as queue:
        fill(queue)
    return address


def check_keys(queue: MessageQueue) -> None:
    assert queue.check() == []
    assert queue.enqueue_message("initech", b"an order", key="order-1").repeated == 1
    assert queue.enqueue_message("acme", b"since", key="since").count == 1
    assert queue.check() == []


def test_a_file_goes_back(tmp_path: Path) -> None:
    upgrade_and_go_back(f"sqlite:///{tmp_path / 'queue.db'}", BACK_UP_FILE, GO_BACK_FILE, tmp_path, tmp_path)
    assert [(tmp_path / name).stat().st_mode & 0o077 for name in ("backup.db", "queue.db")] == [0, 0]


def test_a_backup_without_the_file_fails(tmp_path: Path) -> None:
    """In a wrong folder, it must not pass as a backup of an empty store."""
    with pytest.raises(AssertionError, match="unable to open database file"):
        run(BACK_UP_FILE, tmp_path, "", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.postgres
def test_a_schema_goes_back(postgres_server: Server, tmp_path: Path, pg_uri: str) -> None:
    upgrade_and_go_back(pg_uri, BACK_UP, GO_BACK, tmp_path, postgres_server.bindir)
    assert (tmp_path / "backup.dump").stat().st_mode & 0o077 == 0


@pytest.mark.postgres
def test_an_administrator_upgrades(
    postgres_server: Server, tmp_path: Path, pg_uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(pg_uri)
    capsys.readouterr()
    with next_version():
        assert main(["--store", pg_uri, "store", "sql"]) == 0
        (tmp_path / "upgrade.sql").write_text(capsys.readouterr().out)
        run(OFFLINE, tmp_path, pg_uri, postgres_server.bindir)
        with MessageQueue(pg_uri) as queue:
            check_keys(queue)
    with pytest.raises(AssertionError, match="already exists"):
        run(OFFLINE, tmp_path, pg_uri, postgres_server.bindir)
