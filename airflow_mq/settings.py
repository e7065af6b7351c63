"""Options of Airflow's configuration, section `[airflow_mq]`."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import conf

from airflow_mq.provider import CONNECTION_TYPE as SECTION


def text(name: str, default: str = "") -> str:
    return str(conf.get(SECTION, name, fallback=default) or "")


def number(name: str, default: int) -> int:
    return int(conf.getint(SECTION, name, fallback=default))


def flag(name: str) -> bool:
    """Return whether an option is on; off if it is not set."""
    return bool(conf.getboolean(SECTION, name, fallback=False))
