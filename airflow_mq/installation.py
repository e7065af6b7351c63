"""The id of this Airflow, in the keys of its blocks and messages.

Several Airflows may service one ring, with DAGs and runs of the same names. The id is an Airflow variable, so that all
workers of an Airflow have the same. The scheduler makes it when it starts, or the first task does.
"""

from __future__ import annotations

import re
import secrets

from airflow.sdk import Variable

from airflow_mq.engine.rules.characters import shown
from airflow_mq.engine.rules.errors import InvalidInput

#: The variable; a person may set it, such as by the environment (`AIRFLOW_VAR_AIRFLOW_MQ_INSTALLATION`).
VARIABLE = "airflow_mq_installation"
DESCRIPTION = "Distinguishes the blocks and messages of this Airflow in a queue; keep it as it is"
_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
#: Id of a process that belongs to no Airflow, such as a test that calls an operator.
_NO_AIRFLOW = "local"


def known_installation() -> str | None:
    """Return the id of this Airflow; None if it has none yet."""
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
    """Return the id of this Airflow, for a task; make one if there is none."""
    found = known_installation()
    if found is None:
        try:
            Variable.set(VARIABLE, new_installation(), DESCRIPTION)
        except ImportError:
            return _NO_AIRFLOW
        # Another task may have made one at the same moment.
        found = known_installation()
    return found or _NO_AIRFLOW


def new_installation() -> str:
    """Return a new id."""
    return secrets.token_hex(6)
