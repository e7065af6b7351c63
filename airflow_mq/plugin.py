"""Airflow plugin: a listener that releases the blocks of ended runs, and the page.

A run may end before its block is settled: it fails, a person marks it or its settling task as finished, or clears its
plan alone. If Airflow reports the end, the listener releases the block at once, in a thread of its own, so that neither
the scheduler nor the API server waits. Otherwise (for a run that was deleted) the next plan releases it. Airflow loads
this module in all of its processes, so it imports the rest of the package when it is needed; the API server builds the
page for the first visitor.
"""

from __future__ import annotations

import logging
import sys
from threading import Thread
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin
from pluggy import HookimplMarker

from airflow_mq.api import MountedLater

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun

hookimpl = HookimplMarker("airflow")
log = logging.getLogger("airflow_mq.plugin")


@hookimpl
def on_starting(component: object) -> None:
    """Make the id of this Airflow when its scheduler or another job of it starts, before any task needs it."""
    # A worker's task has no database.
    if type(component).__name__ == "Job":
        from airflow_mq.installation import make_installation

        make_installation()


@hookimpl
def on_dag_run_failed(dag_run: DagRun, msg: str) -> None:
    """Release the blocks of a failed run."""
    release_of(dag_run)


@hookimpl
def on_dag_run_success(dag_run: DagRun, msg: str) -> None:
    """Release the blocks that a successful run left open."""
    release_of(dag_run)


def release_of(dag_run: DagRun) -> None:
    """Release the blocks of a run, in the background."""
    rings = rings_of(getattr(dag_run, "dag", None))
    if rings:
        arguments = (dag_run.dag_id, dag_run.run_id, rings)
        Thread(target=release, args=arguments, name="airflow-mq-release", daemon=True).start()


def rings_of(dag: object) -> set[tuple[str, str | None]]:
    """Return the connections and rings on which the tasks of a DAG plan blocks."""
    found: set[tuple[str, str | None]] = set()
    for task in getattr(dag, "task_dict", {}).values():
        conn_id, ring = getattr(task, "mq_conn_id", None), getattr(task, "ring", None)
        # A template has no value before it is rendered; the next plan releases such a block.
        if isinstance(conn_id, str) and hasattr(task, "lease") and "{{" not in f"{conn_id}{ring or ''}":
            found.add((conn_id, ring or None))
    return found


def release(dag_id: str, run_id: str, rings: set[tuple[str, str | None]]) -> int:
    """Release the blocks of a run and return how many there were."""
    from airflow_mq.engine.rules.errors import MessageQueueError
    from airflow_mq.hooks import MessageQueueHook
    from airflow_mq.installation import known_installation
    from airflow_mq.keys import run_of

    released = 0
    for conn_id, ring in rings:
        try:
            with MessageQueueHook(conn_id).queue(ring) as queue:
                queue.session.actor = f"{dag_id} (its run has ended)"
                # Without an id, this Airflow has planned no block.
                own = known_installation()
                for block in queue.blocks.each("planned") if own else ():
                    if run_of(block.key, own) == (dag_id, run_id):
                        queue.blocks.release(block)
                        released += 1
                        log.info("Released block %d: the run %s of %s has ended.", block.id, run_id, dag_id)
        except MessageQueueError as error:
            log.warning(
                "Could not release open blocks of %s (%s); they end with their leases.", dag_id, type(error).__name__
            )
        except Exception as error:
            # For example a connection that was deleted. The log must hold no secret.
            log.warning("A queue of %s cannot be opened (%s).", dag_id, type(error).__name__)
    return released


#: Path of the page's files, with the prefix of Airflow's base URL: Airflow 3.1 requires an absolute path.
STATIC = f"{urlsplit(conf.get('api', 'base_url', fallback='') or '').path.rstrip('/')}/airflow-mq/static"
#: The page in the UI's menu.
PAGE = {
    "name": "Message queue",
    "bundle_url": f"{STATIC}/page.js",
    "icon": f"{STATIC}/icon.svg",
    "icon_dark_mode": f"{STATIC}/icon-dark.svg",
    "destination": "nav",
    "category": "browse",
    "url_route": "airflow-mq",
}


class AirflowMqPlugin(AirflowPlugin):
    """The listener and the page, registered."""

    name = "airflow_mq"
    listeners = [sys.modules[__name__]]  # noqa: RUF012 - as Airflow's plugins declare it
    react_apps = [PAGE]  # noqa: RUF012
    fastapi_apps = [{"name": "airflow_mq", "url_prefix": "/airflow-mq", "app": MountedLater()}]  # noqa: RUF012
