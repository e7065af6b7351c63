"""Task instances of the runs that planned blocks, with their logs and Spark applications."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import quote

from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from sqlalchemy import select, tuple_

from airflow_mq.operators.spark.job_listener import SPARK_JOB

from . import schemas, views
from .access import SignedIn

#: Tasks listed per run.
MOST_TASKS = 50
#: Accepted ids and URLs of applications: an XCom is written by a task and may hold anything.
JOB_ID = re.compile(r"[\w.:-]{1,200}")
JOB_URL = re.compile(r"https?://[^\s\"'<>\\]{1,500}")

#: DAG id and run id.
RunKey = tuple[str, str]


def tasks_of(user: SignedIn, runs: Collection[RunKey]) -> dict[RunKey, list[schemas.Task]]:
    """Return the tasks of runs, for the DAGs whose tasks the user may see and which Airflow still stores."""
    wanted = _permitted(runs, user.may_see_tasks)
    if not wanted:
        return {}
    columns = (
        TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id, TaskInstance.map_index, TaskInstance.state,
        TaskInstance.rendered_map_index, TaskInstance.try_number, TaskInstance.duration,
    )  # fmt: skip
    asked = (
        select(*columns)
        .where(tuple_(TaskInstance.dag_id, TaskInstance.run_id).in_(wanted))
        .order_by(TaskInstance.start_date, TaskInstance.task_id, TaskInstance.map_index)
        .limit(MOST_TASKS * len(wanted))
    )
    found: dict[RunKey, list[schemas.Task]] = {}
    with create_session() as session:
        jobs = _jobs(session, _permitted(wanted, user.may_see_xcoms))
        for dag_id, run_id, task_id, map_index, state, name, tries, seconds in session.execute(asked):
            its = found.setdefault((dag_id, run_id), [])
            if len(its) < MOST_TASKS:
                its.append(schemas.Task(
                    task_id=task_id, map_index=map_index, name=name or task_id, state=state, tries=tries or 0,
                    seconds=seconds, url=_url(dag_id, run_id, task_id, map_index),
                    job=jobs.get((dag_id, run_id, task_id, map_index)),
                ))  # fmt: skip
    return found


def _permitted(runs: Collection[RunKey], may: Any) -> list[RunKey]:
    """Return the runs of the DAGs for which `may` returns true."""
    permitted = {dag_id: may(dag_id) for dag_id in {dag_id for dag_id, _ in runs}}
    return [run for run in runs if permitted[run[0]]]


def _jobs(session: Any, runs: Collection[RunKey]) -> Mapping[tuple[str, str, str, int], schemas.Job]:
    """Return the Spark applications that tasks recorded in XCom."""
    if not runs:
        return {}
    asked = select(
        XComModel.dag_id, XComModel.run_id, XComModel.task_id, XComModel.map_index, XComModel.value
    ).where(tuple_(XComModel.dag_id, XComModel.run_id).in_(runs), XComModel.key == SPARK_JOB)  # fmt: skip
    jobs = {(*task,): _job(value) for *task, value in session.execute(asked)}
    return {task: job for task, job in jobs.items() if job is not None}


def _job(value: Any) -> schemas.Job | None:
    """Return the Spark application in an XCom; an invalid id or URL is dropped."""
    if isinstance(value, str):
        # Airflow before 3.2 stores text. It is read as plain JSON, which cannot name a class.
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    if not isinstance(value, dict):
        return None
    id_, url = (
        text if isinstance(text := value.get(name), str) and pattern.fullmatch(text) else None
        for name, pattern in (("id", JOB_ID), ("url", JOB_URL))
    )
    return schemas.Job(id=id_, url=url) if id_ or url else None


def _url(dag_id: str, run_id: str, task_id: str, map_index: int) -> str:
    """Return the path of a task's log in Airflow's UI."""
    url = f"{views.run_url(dag_id, run_id)}/tasks/{quote(task_id, safe='')}"
    return url if map_index < 0 else f"{url}/mapped/{map_index}"
