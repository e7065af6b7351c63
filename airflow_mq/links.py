"""Links from a task to its block and to the plan of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from airflow.providers.common.compat.sdk import BaseOperatorLink, conf

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator, TaskInstanceKey

#: XCom with the block that a task planned.
BLOCK = "block"


class PlanLink(BaseOperatorLink):
    """Link to the task that planned the block: its log names what it claimed."""

    name = "Plan of this block"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the address of the planning task in the same run."""
        return task_url(ti_key, getattr(operator, "plan_task_id", None) or ti_key.task_id)


class BlockLink(BaseOperatorLink):
    """Link to the Message queue page, at the block that this run planned."""

    name = "Block"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        if not hasattr(operator, "mq_conn_id"):
            # A mapped task that Airflow could not expand, because the plan's XComs are gone.
            return ""
        block, plan = None, getattr(operator, "plan_task_id", None)
        if hasattr(ti_key, "xcom_pull"):
            # Of a mapped task that plans its own block, Airflow returns the blocks of all unless it gets an index.
            own = {} if plan else {"map_indexes": ti_key.map_index}
            block = ti_key.xcom_pull(task_ids=plan or ti_key.task_id, key=BLOCK, **own)
        planned = block if isinstance(block, Mapping) else {}
        return page_url(
            "blocks", conn=operator.mq_conn_id, ring=planned.get("ring") or operator.ring, block=planned.get("id")
        )


def page_url(view: str, **parameters: object) -> str:
    """Return the address of a view of the Message queue page; parameters that are None are left out.

    Without `[api] base_url` it is a path, which the browser completes by the address at which it found Airflow.
    """
    query = urlencode({name: value for name, value in parameters.items() if value is not None})
    return f"{_base()}/plugin/airflow-mq#/{view}?{query}"


def task_url(ti_key: TaskInstanceKey, task_id: str) -> str:
    """Return the address of a task of the same run."""
    return f"{_base()}/dags/{quote(ti_key.dag_id)}/runs/{quote(ti_key.run_id, safe='')}/tasks/{quote(task_id)}"


def _base() -> str:
    return str(conf.get("api", "base_url", fallback="") or "").rstrip("/")
