"""## Execute a set-aside message after an approval

One person triggers this DAG with the message's address; a person approves, and may change the limit of its cost.
Airflow permits everyone who may answer required actions, even the person who triggered the run. To choose who approves,
pass users as `assigned_users` to the operator. The approval is not part of the block: a run that waits days for a
person would delay every block behind it.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Param, dag, task
from processing_rules import RULES

from airflow_mq.operators.forms import refuse_unknown_params
from airflow_mq.operators.set_aside import ExecuteOverweightOperator

LIMIT = Param("10m/1GiB", type="string", title="Limit of its cost, TIME/SIZE, for example 1.5h/4GiB")
FORM = {"address": Param(type="string", title="Message, as ORIGIN:PAGE:INDEX", pattern="^.+:[0-9]+:[0-9]+(:high)?$")}


@dag(schedule=None, params=FORM, doc_md=__doc__, tags=["airflow_mq"])
def overweight_with_approval() -> None:
    @task(pre_execute=refuse_unknown_params)
    def describe(params: dict[str, str] | None = None) -> str:
        """Describe the request without the message's content, which belongs to the tenant."""
        from airflow_mq import Address
        from airflow_mq.hooks import MessageQueueHook

        address = Address.parse((params or {})["address"])
        before = Address(address.origin, address.page, address.index - 1, address.priority)
        with MessageQueueHook().queue() as queue:
            waiting = queue.set_aside.list(address.origin, after=before, limit=1)
        for one in waiting:
            if one.address == address:
                return f"{one.size:,} bytes, weighs {one.weight}; a block takes {one.limit}. Reason: {one.reason}."
        raise ValueError(f"no set-aside message at {address}: see `airflow-mq set-aside list`")

    described = describe()
    approve = ApprovalOperator(
        task_id="approve",
        subject="Execute {{ params.address }}?",
        body=described,  # type: ignore[arg-type]
        params={"limit": LIMIT},
        response_timeout=timedelta(days=7),
    )
    execute = ExecuteOverweightOperator(
        task_id="execute",
        address="{{ params.address }}",
        limit="{{ ti.xcom_pull(task_ids='approve')['params_input']['limit'] }}",
        processors=RULES,
    )
    described >> approve >> execute


overweight_with_approval()
