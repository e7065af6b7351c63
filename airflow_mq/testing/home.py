"""Home of a live Airflow: its folder, keys, settings and environment."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

USER = "admin"

#: Settings with short intervals; a production Airflow uses longer ones.
SETTINGS = {
    "core.load_examples": "False",
    # A busy machine may take longer than half a minute to import a DAG.
    "core.dagbag_import_timeout": "300",
    "core.min_serialized_dag_update_interval": "0",
    "core.simple_auth_manager_users": f"{USER}:admin",
    "dag_processor.dag_file_processor_timeout": "300",
    "dag_processor.refresh_interval": "5",
    "dag_processor.bundle_refresh_check_interval": "2",
    "dag_processor.parsing_processes": "1",
    "scheduler.scheduler_idle_sleep_time": "0.2",
    "scheduler.job_heartbeat_sec": "2",
    "scheduler.scheduler_heartbeat_sec": "2",
    "scheduler.task_instance_heartbeat_timeout": "20",
    "scheduler.task_instance_heartbeat_timeout_detection_interval": "2",
    "scheduler.orphaned_tasks_check_interval": "5",
    "scheduler.scheduler_health_check_threshold": "15",
    "triggerer.job_heartbeat_sec": "2",
    "triggerer.triggerer_health_check_threshold": "15",
    "workers.min_heartbeat_interval": "2",
    "api.workers": "1",
    "api.maximum_page_limit": "1000",
    "api.expose_stacktrace": "True",
    "usage_data_collection.enabled": "False",
}


@dataclass
class AirflowHome:
    """Folder of an Airflow with the files, settings and environment of its components; see `LiveAirflow`."""

    folder: Path
    dags_folder: Path
    port: int
    metadata: str
    connections: Mapping[str, object]
    #: Over `SETTINGS`, and over those of this home.
    own_settings: Mapping[str, str]
    own_environment: Mapping[str, str]

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.secrets = self._secrets()

    @property
    def url(self) -> str:
        """Address of the UI."""
        return f"http://127.0.0.1:{self.port}"

    def settings(self) -> dict[str, str]:
        """Return every setting, by `section.name`."""
        settings = {
            **SETTINGS,
            "core.dags_folder": str(self.dags_folder),
            "core.plugins_folder": str(self.folder / "plugins"),
            "core.fernet_key": self.secrets["fernet"],
            "core.execution_api_server_url": f"{self.url}/execution/",
            "core.simple_auth_manager_passwords_file": str(self.folder / "passwords.json"),
            "api.base_url": self.url,
            "api.port": str(self.port),
            "api.secret_key": self.secrets["jwt"],
            "api_auth.jwt_secret": self.secrets["jwt"],
            "logging.base_log_folder": str(self.folder / "logs"),
            **self._database(),
        }
        return {**settings, **self.own_settings}

    def environment(self) -> dict[str, str]:
        """Return the environment of every component and command of this Airflow."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "PYTEST_"))}
        variables = {f"AIRFLOW__{name.replace('.', '__').upper()}": value for name, value in self.settings().items()}
        connections = {
            f"AIRFLOW_CONN_{name.upper()}": fields if isinstance(fields, str) else json.dumps(fields)
            for name, fields in self.connections.items()
        }
        return {
            **kept,
            "AIRFLOW_HOME": str(self.folder),
            "AIRFLOW_CONFIG": str(self.folder / "airflow.cfg"),
            # Tasks find spark-submit on the PATH.
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), kept.get("PATH", os.defpath))),
            "PYTHONUNBUFFERED": "1",
            # Loopback needs no proxy.
            "NO_PROXY": ",".join(filter(None, (kept.get("NO_PROXY"), "127.0.0.1,localhost"))),
            "no_proxy": ",".join(filter(None, (kept.get("no_proxy"), "127.0.0.1,localhost"))),
            **variables,
            **connections,
            **self.own_environment,
        }

    def _database(self) -> dict[str, str]:
        if self.metadata == "sqlite":
            # A writer waits for another one so long; SQLite's own default is 5 s.
            return {"database.sql_alchemy_conn": f"sqlite:///{self.folder / 'airflow.db'}?timeout=30"}
        # One driver for synchronous and asynchronous access: psycopg 3, a dependency of this package.
        address = "postgresql+psycopg://" + self.metadata.partition("://")[2]
        return {"database.sql_alchemy_conn": address, "database.sql_alchemy_conn_async": address}

    def write_password(self) -> None:
        """Write the password of the UI, and create the folder of plugins."""
        (self.folder / "plugins").mkdir(exist_ok=True)
        passwords = self.folder / "passwords.json"
        passwords.touch(mode=0o600)
        passwords.write_text(json.dumps({USER: self.secrets["password"]}) + "\n")

    def copy_cached_tables(self) -> bool:
        """Copy the cached empty tables into a home without tables; return whether that was possible."""
        kept = _kept_tables()
        is_possible = not self.database.exists() and kept.exists()
        if is_possible:
            shutil.copyfile(kept, self.database)
        return is_possible

    def cache_tables(self) -> None:
        """Cache the empty tables of this home."""
        kept = _kept_tables()
        with contextlib.suppress(OSError):
            kept.parent.mkdir(parents=True, exist_ok=True)
            scratch = kept.with_name(f"{kept.name}.{secrets.token_hex(4)}")
            shutil.copyfile(self.database, scratch)
            scratch.replace(kept)

    @property
    def database(self) -> Path:
        """File of the metadata on SQLite."""
        return self.folder / "airflow.db"

    def _secrets(self) -> dict[str, str]:
        """Return the password and the keys of this home, created at its first start: stored data is encrypted."""
        file = self.folder / "secrets.json"
        if not file.exists():
            made = {
                "password": secrets.token_urlsafe(9),
                "fernet": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
                "jwt": secrets.token_hex(32),
            }
            file.touch(mode=0o600)
            file.write_text(json.dumps(made) + "\n")
        kept: dict[str, str] = json.loads(file.read_text())
        return kept


def _kept_tables() -> Path:
    """Return the path of the cached empty tables of this version of Airflow."""
    versions = "-".join(version(name) for name in ("apache-airflow-core", "sqlalchemy"))
    return Path(sys.prefix) / "var" / "airflow-mq" / f"airflow-{versions}.db"
