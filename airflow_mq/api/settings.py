"""What Airflow's configuration says about the page."""

from __future__ import annotations

from airflow_mq.settings import number, text


def overweight_dag() -> str:
    """The DAG that executes one set-aside message."""
    return text("overweight_dag", "overweight_by_hand")


def refresh_seconds() -> int:
    """How often the page looks again."""
    return max(number("page_refresh_seconds", 5), 1)


def connections() -> list[str]:
    """Ids of connections to show beside those of Airflow's database and of the environment."""
    return [name.strip() for name in text("connections").split(",") if name.strip()]
