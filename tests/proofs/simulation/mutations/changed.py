"""Plugin of pytest: tests run with the changed copy of the package in the current folder, or not at all."""

from __future__ import annotations

from pathlib import Path

import airflow_mq

assert Path(airflow_mq.__file__).is_relative_to(Path.cwd()), airflow_mq.__file__
