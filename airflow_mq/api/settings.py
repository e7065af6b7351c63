"""What Airflow's configuration says about the page."""

from __future__ import annotations

from airflow.configuration import conf

SECTION = "airflow_mq"


def overweight_dag() -> str:
    """The DAG that executes one set-aside message."""
    return str(conf.get(SECTION, "overweight_dag", fallback="overweight_by_hand"))


def refresh_seconds() -> int:
    """How often the page looks again."""
    return max(int(conf.getint(SECTION, "page_refresh_seconds", fallback=5)), 1)


def connections() -> list[str]:
    """Ids of connections to show beside those of Airflow's database and of the environment."""
    return [name.strip() for name in conf.get(SECTION, "connections", fallback="").split(",") if name.strip()]
