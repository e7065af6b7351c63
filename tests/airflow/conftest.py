"""A home of its own for Airflow, set before anything imports it."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

_HOME = tempfile.mkdtemp(prefix="mq-airflow-home-")
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)

os.environ.update(
    AIRFLOW_HOME=_HOME,
    AIRFLOW__CORE__DAGS_FOLDER=f"{_HOME}/dags",
    AIRFLOW__CORE__LOAD_EXAMPLES="False",
    AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=f"sqlite:///{_HOME}/airflow.db",
)
