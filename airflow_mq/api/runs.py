"""DAG runs that planned blocks, with their task instances, logs and Spark applications."""

from __future__ import annotations

import json
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import lru_cache
from urllib.parse import quote, urlsplit

from airflow.configuration import conf
from airflow.models.dag import DagModel
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from sqlalchemy import func, select, tuple_
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from airflow_mq import keys
from airflow_mq.engine.queue.inspect.servicing import IsDagPaused
from airflow_mq.engine.queue.servers import Server
from airflow_mq.engine.rules.errors import InvalidInput
from airflow_mq.installation import known_installation
from airflow_mq.operators.spark.job_listener import SPARK_JOB

from .access import SignedIn
from .schemas import Schema

log = logging.getLogger("airflow_mq.api")

#: Tasks listed per run.
MOST_TASKS = 50
#: Accepted ids and URLs of applications: an XCom is written by a task and may hold anything.
JOB_ID = re.compile(r"[\w.:-]{1,200}")
JOB_URL = re.compile(r"https?://[^\s\"'<>\\]{1,500}")

#: The id of this Airflow, once it is known.
_OWN: list[str] = []

#: DAG id and run id; with task id and map index, a task instance.
RunKey = tuple[str, str]
TaskKey = tuple[str, str, str, int]
TASK = ("dag_id", "run_id", "task_id", "map_index")


class Run(Schema):
    """A DAG run; its URL is a path on this server."""

    dag_id: str
    run_id: str
    url: str


class Job(Schema):
    """Spark application of a task's latest try, and its page in Spark's UI."""

    id: str | None
    url: str | None


class Task(Schema):
    """A task instance of a run; its URL shows the log of the latest try."""

    task_id: str
    map_index: int
    name: str
    state: str | None
    tries: int
    seconds: float | None
    url: str
    job: Job | None


def run_of(key: str | None) -> Run | None:
    """Return the DAG run in a block's key, if this Airflow planned the block."""
    run = keys.run_of(key, _own())
    return run and Run(dag_id=run.dag_id, run_id=run.run_id, url=run_url(*run))


def _own() -> str | None:
    """Return the id of this Airflow, read once it is made."""
    # Tasks report an invalid id.
    with suppress(InvalidInput):
        if not _OWN and (found := known_installation()):
            _OWN.append(found)
    return _OWN[0] if _OWN else None


def run_url(dag_id: str, run_id: str) -> str:
    """Return the path of a run's page on this server."""
    root = urlsplit(str(conf.get("api", "base_url", fallback="") or "")).path.rstrip("/")
    return f"{root}/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"


def is_dag_paused(dag_id: str) -> bool | None:
    """Return whether a DAG is paused; None if it is not in this Airflow, or its database reports an error."""
    try:
        dag = DagModel.get_current(dag_id)
    except SQLAlchemyError as error:
        log.warning("could not read whether %s is paused: %s", dag_id, getattr(error, "orig", error))
        return None
    return None if dag is None or dag.is_stale else bool(dag.is_paused)


def paused_by(user: SignedIn) -> IsDagPaused:
    """Return a function that returns whether a server's DAG is paused, if it is one whose tasks the user may see."""

    @lru_cache
    def of_dag(dag_id: str) -> bool | None:
        return is_dag_paused(dag_id) if user.may_see_tasks(dag_id) else None

    def of_server(server: Server) -> bool | None:
        return of_dag(server.dag_id) if server.dag_id is not None and server.airflow == _own() else None

    return of_server


def tasks_of(user: SignedIn, runs: Collection[RunKey]) -> dict[RunKey, list[Task]]:
    """Return the tasks of runs, for the DAGs whose tasks the user may see and which Airflow still stores."""
    wanted = _permitted(runs, user.may_see_tasks)
    found: defaultdict[RunKey, list[Task]] = defaultdict(list)
    if not wanted:
        return found
    columns = (getattr(TaskInstance, name) for name in (*TASK, "rendered_map_index", "state", "try_number", "duration"))
    run, order = (
        (TaskInstance.dag_id, TaskInstance.run_id),
        # Some databases put the tasks that have not started first.
        (TaskInstance.start_date.is_(None), TaskInstance.start_date, TaskInstance.task_id, TaskInstance.map_index),
    )
    place = func.row_number().over(partition_by=run, order_by=order).label("place")
    found_tasks = select(*columns, place).where(tuple_(*run).in_(wanted)).subquery()
    query = select(found_tasks).where(found_tasks.c.place <= MOST_TASKS).order_by(found_tasks.c.place)
    with create_session() as session:
        jobs = _jobs(session, _permitted(wanted, user.may_see_xcoms))
        for dag_id, run_id, task_id, map_index, name, state, tries, seconds, _ in session.execute(query):
            url = f"{run_url(dag_id, run_id)}/tasks/{quote(task_id, safe='')}"
            found[dag_id, run_id].append(
                Task(
                    task_id=task_id,
                    map_index=map_index,
                    name=name or task_id,
                    state=state,
                    tries=tries or 0,
                    seconds=seconds,
                    url=url if map_index < 0 else f"{url}/mapped/{map_index}",
                    job=jobs.get((dag_id, run_id, task_id, map_index)),
                )
            )
    return found


def _permitted(runs: Collection[RunKey], may_see: Callable[[str], bool]) -> list[RunKey]:
    permitted = {dag_id: may_see(dag_id) for dag_id in {dag_id for dag_id, _ in runs}}
    return [run for run in runs if permitted[run[0]]]


def _jobs(session: Session, runs: Collection[RunKey]) -> dict[TaskKey, Job | None]:
    """Return the Spark applications that tasks recorded in XCom."""
    if not runs:
        return {}
    of_runs = tuple_(XComModel.dag_id, XComModel.run_id).in_(runs)
    columns = (getattr(XComModel, name) for name in (*TASK, "value"))
    query = select(*columns).where(of_runs, XComModel.key == SPARK_JOB)
    return {(row.dag_id, row.run_id, row.task_id, row.map_index): _job(row.value) for row in session.execute(query)}


def _job(value: object) -> Job | None:
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
    return Job(id=id_, url=url) if id_ or url else None
