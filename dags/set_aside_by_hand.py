"""## Judge again, or discard, what is set aside

After a limit was raised, trigger this DAG with *judge again*: what fits by now goes back into its queue. With *discard*
what is meant goes for good, and its events keep the reason and who gave it. Leave a field empty where it does not
matter; to discard, say at least one.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param, task

from airflow_mq.core.judging import REASONS
from airflow_mq.operators.forms import refuse_unknown_params
from airflow_mq.operators.set_aside import DiscardSetAsideOperator, RequeueSetAsideOperator

FORM = {
    "decision": Param("judge again", type="string", enum=["judge again", "discard"], title="Decision"),
    "why": Param(type="string", minLength=1, title="Why", description="Kept with the event of each message."),
    "origin": Param("", type="string", title="Origin", description="Only what this origin sent."),
    "reason": Param(
        "",
        type="string",
        enum=["", *REASONS],
        title="Set aside for",
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
        """Which of the two."""
        return "discard" if (params or {})["decision"] == "discard" else "judge_again"

    decide() >> [
        RequeueSetAsideOperator(task_id="judge_again", **MEANT),
        DiscardSetAsideOperator(task_id="discard", **MEANT),
    ]
