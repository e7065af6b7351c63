"""## Execute a set-aside message

`airflow-mq set-aside list` prints each message with its address and weight. Trigger this DAG with the address and the
limit of its cost. The run fails for a key that the form does not have. List the connections that it may use in
`CONNECTIONS`.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param
from processing_rules import RULES

from airflow_mq.operators.forms import refuse_unknown_params
from airflow_mq.operators.set_aside import ExecuteOverweightOperator

#: The right to trigger this DAG is the right to decide about these connections, and about no other.
CONNECTIONS = ["airflow_mq_default"]
FORM = {
    "address": Param(
        type="string",
        title="Message",
        description="ORIGIN:PAGE:INDEX, as `airflow-mq set-aside list` prints it.",
        pattern="^.+:[0-9]+:[0-9]+(:high)?$",
    ),
    "limit": Param(
        "10m/1GiB",
        type="string",
        title="Limit",
        description="Maximum cost, TIME/SIZE: for example 90s/512MiB or 1.5h/4GiB.",
        pattern="^[0-9][0-9.]* ?[a-z]*/[0-9][0-9.]* ?[a-zA-Z]*$",
    ),
    "processor": Param(
        "",
        type="string",
        enum=["", *(one.name for one in RULES)],
        title="Processor",
        description="If empty, the one whose patterns match the origin.",
    ),
    "connection": Param(
        CONNECTIONS[0],
        type="string",
        enum=CONNECTIONS,
        title="Connection",
        description="One of those that this DAG's file permits.",
    ),
    "ring": Param("", type="string", title="Ring", description="If empty, the connection's own."),
}

with DAG("overweight_by_hand", schedule=None, params=FORM, doc_md=__doc__, tags=["airflow_mq"]):
    ExecuteOverweightOperator(
        task_id="execute",
        pre_execute=refuse_unknown_params,
        mq_conn_id="{{ params.connection }}",
        ring="{{ params.ring }}",
        address="{{ params.address }}",
        limit="{{ params.limit }}",
        processors=RULES,
        processor="{{ params.processor }}",
    )
