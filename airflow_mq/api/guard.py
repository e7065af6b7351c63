"""Security headers of every response, and the protection of writes against other sites.

Airflow's session is a cookie, which a browser sends with the requests of any page. A request that changes something
therefore needs either a bearer token, which no foreign page has, or proof that our own page sent it: the browser's
`Sec-Fetch-Site` and `Origin`, which a page cannot forge, and JSON under a header of ours, which a browser sends to
another host only after a preflight.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from fastapi import HTTPException, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Header that our page sends with each write.
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
    """An application whose responses carry `HEADERS`, and `no-store` if they set no other cache control."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                known = {bytes(name).lower() for name, _ in headers}
                added = {"cache-control": "no-store", **HEADERS}
                headers += [(n.encode(), v.encode()) for n, v in added.items() if n.encode() not in known]
                message["headers"] = headers
            await send(message)

        await self.app(scope, receive, send_guarded)


def same_site_only(request: Request) -> None:
    """Reject a write that a page of another site could have caused."""
    headers = request.headers
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(403, "invalid content type: send JSON with the header Content-Type: application/json")
    if headers.get("authorization", "").lower().startswith("bearer "):
        # Authentication reads the token before the cookie, so an invalid token is rejected there.
        return
    if headers.get(HEADER) != "1":
        raise HTTPException(403, "missing header: send X-Airflow-Mq: 1, or a bearer token")
    if not _same_origin(headers.get("sec-fetch-site"), headers.get("origin"), headers.get("host")):
        raise HTTPException(403, "request from another site: use the page in Airflow, or a bearer token")


def _same_origin(site: str | None, origin: str | None, host: str | None) -> bool:
    if site is not None:
        return site == "same-origin"
    try:
        return bool(host) and origin is not None and urlsplit(origin).netloc.lower() == str(host).lower()
    except ValueError:
        return False
