"""The JSON API behind the page in Airflow's UI, mounted by the plugin at `/airflow-mq`.

Airflow imports the plugin in all of its processes, tasks included, and only the API server answers requests. So the
application is built when the first one comes, and nothing of it is imported before.

    access       who asks, and what they may do: Airflow's own authentication and auth manager
    guard        what a browser is told of every answer, and the proof that a write was meant
    stores       connections of our type, opened for one request, and errors as answers
    counting     depths of all queues at once, for totals and for sorting
    answers      what each route answers: the description that is checked against every answer
    tasks        the tasks behind a block: their logs, and their Spark jobs
    overview, queues, blocks, deciding, exports
                 the routes, by what is looked at
"""

from __future__ import annotations

from importlib import import_module
from threading import Lock
from typing import Any


class MountedLater:
    """The application, as an ASGI callable that is built when it is first called."""

    def __init__(self) -> None:
        self._app: Any = None
        self._lock = Lock()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        await self.app(scope, receive, send)

    @property
    def app(self) -> Any:
        """The application behind it."""
        with self._lock:
            if self._app is None:
                self._app = import_module("airflow_mq.api.app").guarded_app()
            return self._app

    def __repr__(self) -> str:
        return "airflow_mq.api"
