"""Who asks, and what they may do: by Airflow's own authentication, and whichever auth manager it has.

read      whoever may see plugins
peek      who may read messages: the custom view `airflow_mq_messages`, and the connection itself
write     who may edit the connection
trigger   who may start runs of the DAG; to execute a message takes write, too

Where connections belong to teams, whoever is not of its team knows nothing of a store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from airflow.api_fastapi.app import get_auth_manager
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

#: The view by which an auth manager says who may read messages.
MESSAGES = "airflow_mq_messages"
NO_CONNECTION = "there is no connection of this id and of the type Message queue; make one in Airflow's UI"


@dataclass(frozen=True)
class Asking:
    """Whoever asks, and what the auth manager says of them."""

    user: Any

    @property
    def name(self) -> str:
        """What is written down with what they decide."""
        return str(self.user.get_name())

    def may_read(self) -> bool:
        """Whether they may look at all."""
        return bool(get_auth_manager().is_authorized_view(access_view=AccessView.PLUGINS, user=self.user))

    def may_see(self, conn_id: str) -> bool:
        """Whether they may know of this store: where connections belong to teams, members only."""
        team = team_of(conn_id)
        if team is None:
            return True
        from airflow.api_fastapi.auth.managers.models.resource_details import TeamDetails

        details = TeamDetails(name=team)
        return bool(get_auth_manager().is_authorized_team(method="GET", details=details, user=self.user))

    def may_peek(self, conn_id: str) -> bool:
        """Whether they may read messages of this store."""
        manager = get_auth_manager()
        return bool(
            manager.is_authorized_custom_view(method="GET", resource_name=MESSAGES, user=self.user)
        ) and self._may_use(conn_id, "GET")

    def may_write(self, conn_id: str) -> bool:
        """Whether they may decide about what is in this store."""
        return self._may_use(conn_id, "PUT")

    def may_trigger(self, dag_id: str) -> bool:
        """Whether they may start runs of this DAG."""
        return self._may_with_dag(dag_id, "POST", DagAccessEntity.RUN)

    def may_see_tasks(self, dag_id: str) -> bool:
        """Whether they may see how the tasks of this DAG fared."""
        return self._may_with_dag(dag_id, "GET", DagAccessEntity.TASK_INSTANCE)

    def may_see_xcoms(self, dag_id: str) -> bool:
        """Whether they may see what the tasks of this DAG left behind."""
        return self._may_with_dag(dag_id, "GET", DagAccessEntity.XCOM)

    def _may_with_dag(self, dag_id: str, method: Any, entity: DagAccessEntity) -> bool:
        details = DagDetails(id=dag_id, **_team("dag", dag_id))
        return bool(
            get_auth_manager().is_authorized_dag(method=method, access_entity=entity, details=details, user=self.user)
        )

    def _may_use(self, conn_id: str, method: Any) -> bool:
        details = ConnectionDetails(conn_id=conn_id, **_team("connection", conn_id))
        return bool(get_auth_manager().is_authorized_connection(method=method, details=details, user=self.user))


def _team(kind: str, name: str) -> dict[str, Any]:
    """The team that something belongs to, where this Airflow knows teams."""
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
    user: Annotated[Any, Depends(get_user)],
    bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))],
) -> Any:
    """Whoever shows a bearer token is who that says, and nobody else; Airflow before 3.3 lets the cookie win."""
    return user if bearer is None else await resolve_user_from_token(bearer.credentials)


def asking(request: Request, user: Annotated[Any, Depends(signed_in)]) -> Asking:
    """A signed-in user who may look. A store of another team does not exist for them."""
    found = Asking(user)
    if not found.may_read():
        raise HTTPException(403, "you may not see plugins here; ask whoever administers Airflow")
    conn_id = request.path_params.get("conn_id")
    if conn_id is not None and not found.may_see(conn_id):
        raise HTTPException(404, NO_CONNECTION)
    return found


Reader = Annotated[Asking, Depends(asking)]


def _peeker(conn_id: str, who: Reader) -> Asking:
    if not who.may_peek(conn_id):
        raise HTTPException(403, f"you may not read messages of {conn_id}: that takes reading its connection")
    return who


def _writer(conn_id: str, who: Reader) -> Asking:
    if not who.may_write(conn_id):
        raise HTTPException(403, f"you may not change what is in {conn_id}: that takes editing its connection")
    return who


Peeker = Annotated[Asking, Depends(_peeker)]
Writer = Annotated[Asking, Depends(_writer)]
