"""Every route of the page's API, asked for in a way that makes sense, and who may."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import quote

from tests.airflow.page.conftest import SCRIPT

R = "/api/v1/stores/mq_page/rings/full"
T = "/api/v1/stores/{conn_id}/rings/{ring}"
ADDRESS = "nobody:0:0"

READ, PEEK, WRITE, TRIGGER = "read", "peek", "write", "trigger"
MAY = {
    "admin": {READ, PEEK, WRITE, TRIGGER},
    "op": {READ, PEEK, WRITE, TRIGGER},
    "user": {READ, TRIGGER},
    "viewer": {READ},
}


class Route(NamedTuple):
    """A route: how it is declared, how it is asked for, what that takes, and what the answer is then."""

    method: str
    template: str
    path: str
    takes: str | tuple[str, ...]
    json: Any = None
    status: int = 200

    @property
    def rights(self) -> set[str]:
        """All that it takes."""
        return {self.takes} if isinstance(self.takes, str) else set(self.takes)


ROUTES = [
    Route("GET", "/api/v1/me", "/api/v1/me?conn_id=mq_page", READ),
    Route("GET", "/api/v1/stores", "/api/v1/stores", READ),
    Route("GET", "/api/v1/openapi.json", "/api/v1/openapi.json", READ),
    Route("GET", f"{T}/overview", f"{R}/overview", READ),
    Route("GET", f"{T}/fairness", f"{R}/fairness", READ),
    Route("GET", f"{T}/queues", f"{R}/queues?sort=messages", READ),
    Route("GET", f"{T}/paused", f"{R}/paused", READ),
    Route("GET", f"{T}/queue", f"{R}/queue?origin={quote(SCRIPT)}", READ),
    Route("GET", f"{T}/settings", f"{R}/settings?origin=loud/orders", READ),
    Route("GET", f"{T}/messages", f"{R}/messages?origin={quote(SCRIPT)}", PEEK),
    Route("GET", f"{T}/blocks", f"{R}/blocks", READ),
    Route("GET", f"{T}/events", f"{R}/events?limit=1000", READ),
    Route("GET", f"{T}/set-aside", f"{R}/set-aside", READ),
    Route("GET", f"{T}/usage", f"{R}/usage?by=path&per=month", READ),
    Route("GET", f"{T}/bills/headers", f"{R}/bills/headers", READ),
    Route("GET", f"{T}/export/usage.csv", f"{R}/export/usage.csv", READ),
    Route("GET", f"{T}/export/queues.csv", f"{R}/export/queues.csv", READ),
    Route("GET", f"{T}/export/set-aside.csv", f"{R}/export/set-aside.csv", READ),
    Route("GET", f"{T}/export/events.csv", f"{R}/export/events.csv", READ),
    Route("POST", f"{T}/dry-run", f"{R}/dry-run", READ, {"blocks": 2}),
    Route("POST", f"{T}/set-aside/execute", f"{R}/set-aside/execute", (WRITE, TRIGGER), {"address": ADDRESS}, 404),
    Route("POST", f"{T}/set-aside/requeue", f"{R}/set-aside/requeue", WRITE, {"addresses": [ADDRESS]}),
    Route("POST", f"{T}/set-aside/discard", f"{R}/set-aside/discard", WRITE, {"addresses": [ADDRESS], "why": "old"}),
    Route("POST", f"{T}/pause", f"{R}/pause", WRITE, {"origin": "matrix"}),
    Route("POST", f"{T}/resume", f"{R}/resume", WRITE, {"origin": "matrix"}),
    Route("POST", f"{T}/settings", f"{R}/settings", WRITE, {"origin": "matrix", "share": 2}),
    Route("POST", f"{T}/check", f"{R}/check", WRITE, {}),
]
#: The same bytes for everybody who has the wheel, and the way to the login.
OPEN = {"/static/{path:path}", "/"}
