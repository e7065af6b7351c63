"""## Requeue or discard set-aside messages

After you raise a limit, trigger this DAG with *requeue*: messages that fit now return to their queues. *Discard*
deletes the chosen messages, and events record the reason and the actor. Empty fields are ignored. To requeue all
messages, check *All*; to discard, set at least one field. List the connections that it may use in `CONNECTIONS`.
"""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG, Param, task

from airflow_mq.engine.rules.judging import REASONS
from airflow_mq.operators.forms import refuse_unknown_params
from airflow_mq.operators.set_aside import DiscardSetAsideOperator, RequeueSetAsideOperator

#: The right to trigger this DAG is the right to decide about these connections, and about no other.
CONNECTIONS = ["airflow_mq_default"]
FORM = {
    "decision": Param("requeue", type="string", enum=["requeue", "discard"], title="Decision"),
    "why": Param(type="string", minLength=1, title="Why", description="Recorded with the event of each message."),
    "origin": Param("", type="string", title="Origin", description="Only messages of this origin."),
    "reason": Param(
        "",
        type="string",
        enum=["", *REASONS],
        title="Reason",
        description="As `airflow-mq set-aside list` prints it.",
    ),
    "older_than": Param(
        None, type=["null", "integer"], minimum=0, title="Older than", description="Seconds since the message was sent."
    ),
    "all": Param(False, type="boolean", title="All", description="Requeue all messages, if no other field is set."),
    "connection": Param(
        CONNECTIONS[0],
        type="string",
        enum=CONNECTIONS,
        title="Connection",
        description="One of those that this DAG's file permits.",
    ),
    "ring": Param("", type="string", title="Ring", description="If empty, the connection's own."),
}
MEANT = {
    "mq_conn_id": "{{ params.connection }}",
    "ring": "{{ params.ring }}",
    "why": "{{ params.why }}",
    "origin": "{{ params.origin }}",
    "reason": "{{ params.reason }}",
    "older_than": "{{ '' if params.older_than is none else params.older_than }}",
    # A field that is left empty is left out; `decide` refuses a form that chooses nothing.
    "all": True,
}

with DAG("set_aside_by_hand", schedule=None, params=FORM, doc_md=__doc__, tags=["airflow_mq"]):

    @task.branch(pre_execute=refuse_unknown_params)
    def decide(params: Any = None) -> str:
        """Return the task of the decision."""
        chosen = [params["origin"], params["reason"], params["older_than"] is not None]
        if not any(chosen) and not (params["all"] and params["decision"] == "requeue"):
            raise AirflowFailException("the form chooses no messages: set a field. Nothing was changed")
        return str(params["decision"])

    decide() >> [
        RequeueSetAsideOperator(task_id="requeue", **MEANT),
        DiscardSetAsideOperator(task_id="discard", **MEANT),
    ]
