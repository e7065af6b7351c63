"""What Airflow loads in all of its processes: a listener that lets go of blocks nobody will settle, and the page.

A run that fails, or that somebody marks as finished, leaves its block to its deadline. Where Airflow tells of
it, the block is released at once, by a thread of its own, so that neither the scheduler nor the API server
waits. Where it does not (a run that was deleted), the next plan finds out. Nothing else of this package is
imported before there is something to do; the page is built by the API server, for its first visitor.
"""

from __future__ import annotations

import logging
import sys
from typing import Any
from urllib.parse import urlsplit

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin
from pluggy import HookimplMarker

from airflow_mq.api import MountedLater

hookimpl = HookimplMarker("airflow")
log = logging.getLogger("airflow_mq.plugin")

#: What a run says of itself that ended by its own tasks, all of them done.
ENDED_WELL = "success"


@hookimpl
def on_dag_run_failed(dag_run: Any, msg: str) -> None:
    """Release what a failed run holds."""
    release_of(dag_run)


@hookimpl
def on_dag_run_success(dag_run: Any, msg: str) -> None:
    """Release what a run holds that somebody marked as successful."""
    if msg != ENDED_WELL:
        release_of(dag_run)


def release_of(dag_run: Any) -> None:
    """Release the blocks of a run, in the background."""
    rings = rings_of(getattr(dag_run, "dag", None))
    if rings:
        from threading import Thread

        arguments = (dag_run.dag_id, dag_run.run_id, rings)
        Thread(target=release, args=arguments, name="airflow-mq-release", daemon=True).start()


def rings_of(dag: Any) -> set[tuple[str, str | None]]:
    """The connections and rings on which the tasks of a DAG plan blocks."""
    found: set[tuple[str, str | None]] = set()
    for task in getattr(dag, "task_dict", {}).values():
        conn_id, ring = getattr(task, "mq_conn_id", None), getattr(task, "ring", None)
        # A template says nothing before it is rendered; the next plan takes care of that one.
        if isinstance(conn_id, str) and hasattr(task, "lease") and "{{" not in f"{conn_id}{ring or ''}":
            found.add((conn_id, ring or None))
    return found


def release(dag_id: str, run_id: str, rings: set[tuple[str, str | None]]) -> int:
    """Release the blocks that a run holds; tell how many there were."""
    from airflow_mq.core.errors import MessageQueueError
    from airflow_mq.hooks import MessageQueueHook

    released = 0
    for conn_id, ring in rings:
        try:
            with MessageQueueHook(conn_id).queue(ring) as queue:
                queue.session.actor = f"{dag_id} (its run is over)"
                for block in queue.blocks.list("planned", limit=1_000):
                    if (block.key or "").startswith(f"{dag_id}/{run_id}/"):
                        queue.blocks.release(block)
                        released += 1
                        log.info("Released block %d: the run %s of %s is over.", block.id, run_id, dag_id)
        except MessageQueueError as error:
            log.warning(
                "A block of %s could not be released (%s); it is when its lease is over.", dag_id, type(error).__name__
            )
        except Exception as error:
            # A connection that is gone, say. What is told must hold no secret.
            log.warning("A queue of %s cannot be opened (%s).", dag_id, type(error).__name__)
    return released


#: Where the files of the page are. Airflow 3.1 loads nothing by a path without a slash in front, so the prefix behind
#: which Airflow may be is said, too.
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
    listeners = [sys.modules[__name__]]  # noqa: RUF012 - as every plugin has it
    react_apps = [PAGE]  # noqa: RUF012
    fastapi_apps = [{"name": "airflow_mq", "url_prefix": "/airflow-mq", "app": MountedLater()}]  # noqa: RUF012
