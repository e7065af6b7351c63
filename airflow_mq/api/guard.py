"""What a browser is told of every answer, and the proof that a write was meant by whoever is signed in.

Airflow's session is a cookie, which a browser sends along with whatever any page asks for. So a request that changes
something shows either a bearer token, which no foreign page has, or that our own page asked: what browsers say of
that cannot be forged by a page, and JSON under a header of ours is never sent to another host without asking it first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from fastapi import HTTPException, Request

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

#: The header by which our page says that it asks.
HEADER = "x-airflow-mq"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'self'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "SAMEORIGIN",
}


class Guarded:
    """An application, all of whose answers carry the headers above; who says nothing else is not to be stored."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        """Answer a request."""

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                known = {bytes(name).lower() for name, _ in headers}
                added = {"cache-control": "no-store", **HEADERS}
                headers += [(n.encode(), v.encode()) for n, v in added.items() if n.encode() not in known]
                message["headers"] = headers
            await send(message)

        await self.app(scope, receive, send_guarded)


def meant(request: Request) -> None:
    """Refuse what a foreign page could have a browser send."""
    headers = request.headers
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(403, "send JSON, with the header Content-Type: application/json")
    if headers.get("authorization", "").lower().startswith("bearer "):
        # It is looked at before the cookie is, so whoever has none is refused for that.
        return
    if headers.get(HEADER) != "1":
        raise HTTPException(403, "send the header X-Airflow-Mq: 1, or a bearer token")
    if not _same_origin(headers.get("sec-fetch-site"), headers.get("origin"), headers.get("host")):
        raise HTTPException(403, "this was asked by another site; use the page in Airflow, or a bearer token")


def _same_origin(site: str | None, origin: str | None, host: str | None) -> bool:
    if site is not None:
        return site == "same-origin"
    try:
        return bool(host) and origin is not None and urlsplit(origin).netloc.lower() == str(host).lower()
    except ValueError:
        return False
