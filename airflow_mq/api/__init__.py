"""The JSON API behind the page in Airflow's UI, mounted by the plugin at `/airflow-mq`.

Airflow imports the plugin in all of its processes, tasks included, but only the API server serves requests. The
application is therefore imported and built at the first request.

    access       the signed-in user and their permissions, by Airflow's own authentication and auth manager
    guard        security headers of every response, and the protection of writes against other sites
    stores       message queue connections, opened for one request, and errors as responses
    counting     depths of all queues at once, for totals and for sorting
    schemas      response schemas, described in openapi.json, from which the page's types are made
    views        value types of the queue as response schemas
    previews     previews of payloads
    tasks        task instances behind a block, with their logs and Spark applications
    overview, queues, blocks, decisions, exports
                 the routes, by subject
"""

from __future__ import annotations

from importlib import import_module
from threading import Lock
from typing import Any


class MountedLater:
    """An ASGI application that is built at its first call."""

    def __init__(self) -> None:
        self._app: Any = None
        self._lock = Lock()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve a request."""
        await self.app(scope, receive, send)

    @property
    def app(self) -> Any:
        """Return the application, and build it if necessary."""
        with self._lock:
            if self._app is None:
                self._app = import_module("airflow_mq.api.app").guarded_app()
            return self._app

    def __repr__(self) -> str:
        return "airflow_mq.api"
