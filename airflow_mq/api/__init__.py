"""The JSON API behind the page in Airflow's UI, mounted by the plugin at `/airflow-mq`.

Airflow imports the plugin in all of its processes, tasks included, but only the API server serves requests. The
application is therefore imported and built at the first request.

    access       the signed-in user and their permissions, security headers, and protection against other sites
    stores       message queue connections, opened for one request, and errors as responses
    counting     depths of all queues at once, for totals and for sorting
    runs         DAG runs that planned blocks, with their tasks, logs and Spark applications
    schemas      parts that the schemas of all routes share
    ring, queues, messages, blocks, set_aside, exports
                 the schemas and routes, by noun
"""

from __future__ import annotations

from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


class MountedLater:
    """An ASGI application that is built at its first call."""

    def __init__(self) -> None:
        self._app: ASGIApp | None = None
        self._lock = Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)

    @property
    def app(self) -> ASGIApp:
        """Return the application, and build it if necessary."""
        with self._lock:
            app = self._app
            if app is None:
                guarded = import_module("airflow_mq.api.access").Guarded
                app = self._app = guarded(import_module("airflow_mq.api.app").create_app())
            return app

    def __repr__(self) -> str:
        return "airflow_mq.api"
