"""Options of Airflow's configuration, section `[airflow_mq]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mq.provider import CONNECTION_TYPE as SECTION

if TYPE_CHECKING:
    from airflow.sdk.configuration import AirflowSDKConfigParser


def configuration() -> AirflowSDKConfigParser:
    """Return Airflow's configuration, as tasks may read it."""
    try:
        from airflow.sdk.configuration import conf
    except ImportError:  # Airflow 3.1
        from airflow.configuration import conf
    return conf


def text(name: str, default: str = "") -> str:
    """Return an option that is text."""
    return str(configuration().get(SECTION, name, fallback=default) or "")


def number(name: str, default: int) -> int:
    """Return an option that is a whole number."""
    return int(configuration().getint(SECTION, name, fallback=default))


def flag(name: str) -> bool:
    """Return whether an option is on; off if it is not set."""
    return bool(configuration().getboolean(SECTION, name, fallback=False))
