"""The signed-in user and their permissions, by Airflow's own authentication and auth manager.

read      needs access to plugins
peek      needs the custom view `airflow_mq_messages`, and read access to the connection
write     needs edit access to the connection
trigger   needs the permission to trigger the DAG; executing a message needs write, too

If connections belong to teams, a store does not exist for users outside its team.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

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
from fastapi import Depends, HTTPException, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

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
        details = DagDetails(id=dag_id, **_team("dag", dag_id))
        return bool(
            get_auth_manager().is_authorized_dag(method=method, access_entity=entity, details=details, user=self.user)
        )

    def _may_use(self, conn_id: str, method: Literal["GET", "PUT"]) -> bool:
        details = ConnectionDetails(conn_id=conn_id, **_team("connection", conn_id))
        return bool(get_auth_manager().is_authorized_connection(method=method, details=details, user=self.user))


def _team(kind: str, name: str) -> dict[str, str | None]:
    """Return the team of a DAG or connection as a keyword argument, if this Airflow has teams."""
    if kind == "dag":
        from airflow.models.dag import DagModel as Model
    else:
        from airflow.models.connection import Connection as Model
    find = getattr(Model, "get_team_name", None)
    return {} if find is None else {"team_name": find(name)}


def team_of(conn_id: str) -> str | None:
    """Return the team that owns a connection, or None: it has none, or this Airflow has no teams."""
    if not conf.getboolean("core", "multi_team", fallback=False):
        return None
    return _team("connection", conn_id).get("team_name")


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
