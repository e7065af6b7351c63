"""Settings of the page in Airflow's configuration, section `[airflow_mq]`."""

from __future__ import annotations

from airflow_mq.settings import number, text


def overweight_dag() -> str:
    """Return the id of the DAG that executes one set-aside message."""
    return text("overweight_dag", "overweight_by_hand")


def refresh_seconds() -> int:
    """Return the refresh interval of the page in seconds."""
    return max(number("page_refresh_seconds", 5), 1)


def connections() -> list[str]:
    """Return the ids of connections to show in addition to those in Airflow's database and environment."""
    return [name.strip() for name in text("connections").split(",") if name.strip()]
