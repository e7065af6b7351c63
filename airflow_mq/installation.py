"""The id of this Airflow, in the keys of its blocks and messages.

Several Airflows may service one ring, with DAGs and runs of the same names. The id is an Airflow variable, so that all
workers of an Airflow have the same. The scheduler makes it when it starts, or in `airflow dags test` the first task.
"""

from __future__ import annotations

import logging
import re
import secrets

from airflow.providers.common.compat.sdk import AirflowException
from airflow.sdk import Variable

from airflow_mq.engine.rules.characters import shown
from airflow_mq.engine.rules.errors import InvalidInput

log = logging.getLogger("airflow_mq.installation")

#: The variable; a person may set it, such as by the environment (`AIRFLOW_VAR_AIRFLOW_MQ_INSTALLATION`).
VARIABLE = "airflow_mq_installation"
DESCRIPTION = "Distinguishes the blocks and messages of this Airflow in a queue; keep it as it is"
_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
#: Id of a process that belongs to no Airflow, such as a test that calls an operator.
_NO_AIRFLOW = "local"


def known_installation() -> str | None:
    """Return the id of this Airflow; None if it has none yet, or if the variable could not be read."""
    found = Variable.get(VARIABLE, default=None)
    if found is None:
        return None
    if not _ID.fullmatch(str(found)):
        raise InvalidInput(
            f"invalid Airflow variable {VARIABLE} {shown(found, 80, repr)}: expected 1 to 40 letters, digits, _ and -; "
            "correct the variable"
        )
    return str(found)


def installation() -> str:
    """Return the id of this Airflow, for a task."""
    from airflow.sdk.execution_time import task_runner

    found = known_installation()
    if found is None and hasattr(task_runner, "SUPERVISOR_COMMS"):
        make_installation()
        found = known_installation()
        if found is None:
            raise AirflowException(
                f"cannot read the Airflow variable {VARIABLE}: retry; if it does not exist, restart Airflow's "
                f"scheduler, which makes it, or run `airflow variables set {VARIABLE} NAME`"
            )
    return found or _NO_AIRFLOW


def make_installation() -> None:
    """Make the id of this Airflow, if there is none and this process, unlike a worker's, has Airflow's database.

    Airflow reports a read that failed as "not found", and its API replaces a variable that exists. An INSERT does not.
    """
    try:
        from airflow.models.variable import Variable as Row
        from airflow.utils.session import create_session

        if known_installation() is None:
            # In `airflow dags test`, the session of the thread is that of the test.
            with create_session(scoped=False) as session:
                session.add(Row(VARIABLE, secrets.token_hex(6), DESCRIPTION))
    except Exception as error:
        log.info("No id of this Airflow was made (%s).", type(error).__name__)
