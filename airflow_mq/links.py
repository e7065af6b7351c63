"""Links from a task to what it did."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from airflow.providers.common.compat.sdk import BaseOperatorLink, conf


class PlanLink(BaseOperatorLink):
    """The task that planned the block: what it claimed, for whom, and why it stopped there."""

    name = "Plan of this block"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Address of the planning task in the same run."""
        return task_url(ti_key, getattr(operator, "plan_task_id", None) or ti_key.task_id)


class BlockLink(BaseOperatorLink):
    """What the planned block is: its id, weight and token, as kept by the planning task."""

    name = "Block"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Address of what the planning task left behind."""
        return task_url(ti_key, getattr(operator, "plan_task_id", None) or ti_key.task_id) + "/xcom"


def task_url(ti_key: Any, task_id: str) -> str:
    """Address of a task of the same run."""
    base = str(conf.get("api", "base_url", fallback="") or "http://localhost:8080").rstrip("/")
    return f"{base}/dags/{quote(ti_key.dag_id)}/runs/{quote(ti_key.run_id, safe='')}/tasks/{quote(task_id)}"
