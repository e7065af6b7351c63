"""Checks of the form of a DAG that people trigger by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context


def refuse_unknown_params(context: Context) -> None:
    """Fail if a run was given a param that its DAG does not have: Airflow accepts it, and no task would read it.

    For `pre_execute` of a DAG's first task.
    """
    known = sorted(context["dag"].params)
    unknown = sorted(set(context["dag_run"].conf or {}) - set(known))
    if unknown:
        shown = ", ".join(repr(name)[:60] for name in unknown[:5])
        raise AirflowFailException(f"unknown param {shown}: this DAG has {', '.join(known)}. Nothing was changed")
