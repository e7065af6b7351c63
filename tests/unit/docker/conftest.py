"""A home for Airflow, unless other tests gave it one: importing it writes its settings there."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

if "AIRFLOW_HOME" not in os.environ:
    _HOME = tempfile.mkdtemp(prefix="mq-airflow-home-")
    atexit.register(shutil.rmtree, _HOME, ignore_errors=True)
    os.environ["AIRFLOW_HOME"] = _HOME
