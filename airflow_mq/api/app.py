"""The application: routes that need a signed-in user, and the static files of the built page."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.core_api.security import get_user
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy.exc import SQLAlchemyError

from airflow_mq import __version__
from airflow_mq.settings import number

from . import blocks, exports, messages, queues, ring, set_aside, settings, usage
from .access import Reader
from .runs import is_dag_paused
from .schemas import REFUSALS, Schema
from .stores import Store, connection_ids, described, is_listed

log = logging.getLogger("airflow_mq.api")

BUILT = Path(__file__).parent.parent / "page" / "dist"
#: Content types of the built page; no other file is served.
KINDS = {".html": "text/html; charset=utf-8", ".js": "text/javascript", ".svg": "image/svg+xml"}
NOT_BUILT = "the page is not built in this checkout: run `make page`, or install the wheel, which contains it"


class Permissions(Schema):
    """Permissions of the signed-in user."""

    read: bool
    peek: bool
    write: bool
    trigger: bool


class ExecuteDag(Schema):
    """The DAG that executes a set-aside message; null for `paused` if it is not in this Airflow."""

    dag_id: str
    exists: bool
    paused: bool | None


class Me(Schema):
    """The signed-in user, the DAG that executes set-aside messages, and the refresh interval of the page."""

    user: str
    can: Permissions
    execute_dag: ExecuteDag
    refresh_seconds: int


def create_app() -> FastAPI:
    app = FastAPI(title="airflow_mq", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    api = APIRouter(prefix="/api/v1", responses=REFUSALS)
    api.add_api_route("/me", me, methods=["GET"])
    api.add_api_route("/stores", stores, methods=["GET"])
    for noun in (ring, queues, settings, messages, blocks, set_aside, usage, exports):
        api.include_router(noun.router, prefix="/stores/{conn_id}/rings/{ring}")
    app.include_router(api)
    app.add_api_route("/api/v1/openapi.json", openapi, methods=["GET"], include_in_schema=False)
    app.add_api_route("/static/{path:path}", static, methods=["GET", "HEAD"], include_in_schema=False)
    app.add_api_route("/", index, methods=["GET", "HEAD"], include_in_schema=False)
    app.add_exception_handler(RequestValidationError, _not_understood)
    app.add_exception_handler(Exception, _went_wrong)
    return app


def me(user: Reader, conn_id: str | None = None) -> Me:
    """Return the signed-in user's name and permissions; those on messages and queues are per store."""
    known = conn_id if conn_id is not None and user.may_see(conn_id) and is_listed(conn_id) else None
    can = Permissions(
        read=True,
        peek=known is not None and user.may_peek(known),
        write=known is not None and user.may_write(known),
        trigger=user.may_trigger(set_aside.overweight_dag()),
    )
    dag_id = set_aside.overweight_dag()
    paused = is_dag_paused(dag_id)
    dag = ExecuteDag(dag_id=dag_id, exists=paused is not None, paused=paused)
    return Me(user=user.name, can=can, execute_dag=dag, refresh_seconds=max(number("page_refresh_seconds", 5), 1))


def stores(user: Reader) -> list[Store]:
    """Return the message queue connections with the rings of their stores.

    A store that does not answer delays no other. If connections belong to teams, the response contains those of the
    user's teams and those of no team.
    """
    names = [name for name in connection_ids() if user.may_see(name)]
    with ThreadPoolExecutor(min(len(names), 8) or 1) as pool:
        return list(pool.map(described, names))


def openapi(request: Request, user: Reader) -> JSONResponse:
    app = request.app
    return JSONResponse(get_openapi(title=app.title, version=app.version, routes=app.routes))


def response_schemas(app: FastAPI) -> dict[str, object]:
    """Return a description of the response schemas alone: it is the same under every version of FastAPI."""
    components = get_openapi(title=app.title, version="v1", routes=app.routes)["components"]["schemas"]
    ours = {name: components[name] for name in sorted(_names(Schema) & set(components))}
    return {
        "openapi": "3.1.0",
        "info": {"title": app.title, "version": "v1"},
        "paths": {},
        "components": {"schemas": ours},
    }


def _names(schema: type[Schema]) -> set[str]:
    return {schema.__name__}.union(*map(_names, schema.__subclasses__()))


async def index(
    request: Request, bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]
) -> Response:
    """Serve the standalone page, or redirect to the login."""
    try:
        await get_user(request, None, bearer)
    except HTTPException:
        return RedirectResponse(get_auth_manager().get_url_login(next_url=str(request.url)), 307)
    return await static("index.html")


async def static(path: str) -> Response:
    """Serve a file of the built page; it contains no data, so it needs no login."""
    # A requested path is never opened.
    there = (file for file in BUILT.rglob("*") if file.suffix in KINDS and file.is_file() and not file.is_symlink())
    found = next((file for file in there if file.relative_to(BUILT).as_posix() == path), None)
    if found is None:
        raise HTTPException(404, "no such file" if BUILT.is_dir() else NOT_BUILT)
    return FileResponse(found, media_type=KINDS[found.suffix], headers={"cache-control": "no-cache"})


async def _not_understood(request: Request, error: Exception) -> JSONResponse:
    """Respond to an invalid request: the first error, and all errors of named parts."""
    assert isinstance(error, RequestValidationError)
    # Our own errors have their texts; those of others do not repeat the content.
    found = [
        (".".join(map(str, one["loc"][1:])), str(one["ctx"]["error"] if one["type"] == "value_error" else one["msg"]))
        for one in error.errors()
    ]
    where, text = found[0]
    fields = {where: text for where, text in found if where}
    return JSONResponse({"detail": f"{where}: {text}" if where else text, "fields": fields}, 422)


async def _went_wrong(request: Request, error: Exception) -> JSONResponse:
    """Respond to an internal error; the details go to the log."""
    log.error("A request to %s failed.", request.url.path, exc_info=error)
    if isinstance(error, SQLAlchemyError):
        return JSONResponse({"detail": "Airflow's database reported an error: try again"}, 503)
    return JSONResponse({"detail": "internal error: see the API server's log"}, 500)
