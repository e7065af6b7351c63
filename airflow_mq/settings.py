"""What people set for this package in Airflow's configuration, section `[airflow_mq]`."""

from __future__ import annotations

from typing import Any

from airflow_mq.provider import CONNECTION_TYPE as SECTION


def configuration() -> Any:
    """Airflow's configuration, as tasks may read it."""
    try:
        from airflow.sdk.configuration import conf
    except ImportError:  # Airflow 3.1
        from airflow.configuration import conf
    return conf


def text(name: str, default: str = "") -> str:
    """An option that is text."""
    return str(configuration().get(SECTION, name, fallback=default) or "")


def number(name: str, default: int) -> int:
    """An option that counts something."""
    return int(configuration().getint(SECTION, name, fallback=default))


def flag(name: str) -> bool:
    """An option that is on or off; off, where nothing is said."""
    return bool(configuration().getboolean(SECTION, name, fallback=False))
