"""The signed-in user and their permissions, security headers, and the protection of writes against other sites.

Airflow's own authentication and auth manager decide:

read      needs access to plugins
peek      needs the custom view `airflow_mq_messages`, and read access to the connection
write     needs edit access to the connection
trigger   needs the permission to trigger the DAG; executing a message needs write, too

If connections belong to teams, a store does not exist for users outside its team.

Airflow's session is a cookie, which a browser sends with the requests of any page. A request that changes something
therefore needs either a bearer token, which no foreign page has, or proof that our own page sent it: the browser's
`Sec-Fetch-Site` and `Origin`, which a page cannot forge, and JSON under a header of ours, which a browser sends to
another host only after a preflight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal
from urllib.parse import urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import (
    AccessView,
    ConnectionDetails,
    DagAccessEntity,
    DagDetails,
)
from airflow.api_fastapi.core_api.security import get_user, resolve_user_from_token
from airflow.configuration import conf
from airflow.models import Connection
from airflow.models.dag import DagModel
from fastapi import Depends, HTTPException, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Custom view in the auth manager that grants reading messages.
MESSAGES = "airflow_mq_messages"
NO_CONNECTION = "unknown connection: no connection of type Message queue has this id; create one in Airflow's UI"


@dataclass(frozen=True)
class SignedIn:
    """A signed-in user with their permissions."""

    user: BaseUser

    @property
    def name(self) -> str:
        """Return the actor recorded with decisions."""
        return str(self.user.get_name())

    def may_read(self) -> bool:
        """Return whether the user may read queues and blocks."""
        return bool(get_auth_manager().is_authorized_view(access_view=AccessView.PLUGINS, user=self.user))

    def may_see(self, conn_id: str) -> bool:
        """Return whether the store exists for the user: connections of a team exist for its members only."""
        team = team_of(conn_id)
        if team is None:
            return True
        from airflow.api_fastapi.auth.managers.models.resource_details import TeamDetails

        details = TeamDetails(name=team)
        return bool(get_auth_manager().is_authorized_team(method="GET", details=details, user=self.user))

    def may_peek(self, conn_id: str) -> bool:
        """Return whether the user may read messages of this store."""
        manager = get_auth_manager()
        return bool(
            manager.is_authorized_custom_view(method="GET", resource_name=MESSAGES, user=self.user)
        ) and self._may_use(conn_id, "GET")

    def may_write(self, conn_id: str) -> bool:
        """Return whether the user may change this store."""
        return self._may_use(conn_id, "PUT")

    def may_trigger(self, dag_id: str) -> bool:
        """Return whether the user may trigger this DAG."""
        return self._may_with_dag(dag_id, "POST", DagAccessEntity.RUN)

    def may_see_tasks(self, dag_id: str) -> bool:
        """Return whether the user may see the task instances of this DAG."""
        return self._may_with_dag(dag_id, "GET", DagAccessEntity.TASK_INSTANCE)

    def may_see_xcoms(self, dag_id: str) -> bool:
        """Return whether the user may see the XComs of this DAG."""
        return self._may_with_dag(dag_id, "GET", DagAccessEntity.XCOM)

    def _may_with_dag(self, dag_id: str, method: Literal["GET", "POST"], entity: DagAccessEntity) -> bool:
        details = DagDetails(id=dag_id, **_team(DagModel, dag_id))
        return bool(
            get_auth_manager().is_authorized_dag(method=method, access_entity=entity, details=details, user=self.user)
        )

    def _may_use(self, conn_id: str, method: Literal["GET", "PUT"]) -> bool:
        details = ConnectionDetails(conn_id=conn_id, **_team(Connection, conn_id))
        return bool(get_auth_manager().is_authorized_connection(method=method, details=details, user=self.user))


def _team(model: type[DagModel | Connection], name: str) -> dict[str, str | None]:
    """Return the team of a DAG or connection as a keyword argument, if this Airflow has teams."""
    find = getattr(model, "get_team_name", None)
    return {} if find is None else {"team_name": find(name)}


def team_of(conn_id: str) -> str | None:
    """Return the team that owns a connection, or None: it has none, or this Airflow has no teams."""
    if not conf.getboolean("core", "multi_team", fallback=False):
        return None
    return _team(Connection, conn_id).get("team_name")


async def signed_in(
    user: Annotated[BaseUser, Depends(get_user)],
    bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))],
) -> BaseUser:
    """Return the user of the bearer token if there is one: Airflow before 3.3 prefers the cookie."""
    return user if bearer is None else await resolve_user_from_token(bearer.credentials)


def asking(request: Request, user: Annotated[BaseUser, Depends(signed_in)]) -> SignedIn:
    """Return the signed-in user, who may read this store, or raise 403 or 404."""
    signed_in_user = SignedIn(user)
    if not signed_in_user.may_read():
        raise HTTPException(403, "missing permission: access to plugins; ask an administrator of Airflow")
    conn_id = request.path_params.get("conn_id")
    if conn_id is not None and not signed_in_user.may_see(conn_id):
        raise HTTPException(404, NO_CONNECTION)
    return signed_in_user


Reader = Annotated[SignedIn, Depends(asking)]


def _peeker(conn_id: str, user: Reader) -> SignedIn:
    if not user.may_peek(conn_id):
        raise HTTPException(
            403, f"missing permission: reading messages of {conn_id} needs read access to its connection"
        )
    return user


def _writer(conn_id: str, user: Reader) -> SignedIn:
    if not user.may_write(conn_id):
        raise HTTPException(403, f"missing permission: changing {conn_id} needs edit access to its connection")
    return user


Peeker = Annotated[SignedIn, Depends(_peeker)]
Writer = Annotated[SignedIn, Depends(_writer)]


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

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in {"cache-control": "no-store", **HEADERS}.items():
                    headers.setdefault(name, value)
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
