"""## Requeue or discard set-aside messages

After a limit was raised, trigger this DAG with *requeue*: messages that fit now go back to their queues. With *discard*
the chosen messages are deleted, and events keep the reason and the actor. Leave a field empty to ignore it; to discard,
set at least one.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param, task

from airflow_mq.core.judging import REASONS
from airflow_mq.operators.forms import refuse_unknown_params
from airflow_mq.operators.set_aside import DiscardSetAsideOperator, RequeueSetAsideOperator

FORM = {
    "decision": Param("requeue", type="string", enum=["requeue", "discard"], title="Decision"),
    "why": Param(type="string", minLength=1, title="Why", description="Kept with the event of each message."),
    "origin": Param("", type="string", title="Origin", description="Only what this origin sent."),
    "reason": Param(
        "",
        type="string",
        enum=["", *REASONS],
        title="Reason",
        description="As `airflow-mq set-aside list` prints it.",
    ),
    "older_than": Param(
        None, type=["null", "integer"], minimum=0, title="Older than", description="In seconds since it was sent."
    ),
    "connection": Param(
        "airflow_mq_default", type="string", title="Connection", description="Of the type Message queue."
    ),
    "ring": Param("", type="string", title="Ring", description="Empty: the connection's own."),
}
MEANT = {
    "mq_conn_id": "{{ params.connection }}",
    "ring": "{{ params.ring }}",
    "why": "{{ params.why }}",
    "origin": "{{ params.origin }}",
    "reason": "{{ params.reason }}",
    "older_than": "{{ '' if params.older_than is none else params.older_than }}",
}

with DAG("set_aside_by_hand", schedule=None, params=FORM, doc_md=__doc__, tags=["airflow_mq"]):

    @task.branch(pre_execute=refuse_unknown_params)
    def decide(params: dict[str, str] | None = None) -> str:
        """Return the task of the decision."""
        return "discard" if (params or {})["decision"] == "discard" else "requeue"

    decide() >> [
        RequeueSetAsideOperator(task_id="requeue", **MEANT),
        DiscardSetAsideOperator(task_id="discard", **MEANT),
    ]
