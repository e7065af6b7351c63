"""Every error of this package, to be caught by name: `from airflow_mq.errors import TokenRefused`."""

from __future__ import annotations

from .engine.rules.errors import *  # noqa: F403
