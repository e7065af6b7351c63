"""Pauses of origins: schemas and routes. Each decision records its actor."""

from __future__ import annotations

from datetime import datetime

from fastapi import APIRouter, Depends
from pydantic import AwareDatetime

from .access import Reader, Writer
from .guard import same_site_only
from .schemas import Body, Origin, Reason, Schema
from .stores import opened

router = APIRouter(prefix="/stores/{conn_id}/rings/{ring}")


class Pause(Schema):
    """A paused origin, with the reason and the end of its pause."""

    origin: str
    reason: str
    actor: str | None
    since: datetime | None
    until: datetime | None
    below: bool


class Pauses(Schema):
    """Paused origins by name, and their total number."""

    rows: list[Pause]
    total: int


class PauseChange(Schema):
    """Confirmation of a decision about an origin: whether it is paused now, and was before."""

    origin: str
    paused: bool
    was_paused: bool


class ResumeRequest(Body):
    """Request to resume an origin."""

    origin: Origin


class PauseRequest(ResumeRequest):
    """Request to pause an origin."""

    reason: Reason = ""
    until: AwareDatetime | None = None
    below: bool = False


@router.get("/paused")
def paused(conn_id: str, ring: str, user: Reader) -> Pauses:
    """Return paused origins, with and without waiting messages."""
    with opened(conn_id, ring) as queue:
        found = sorted(queue.admin.paused(), key=lambda pause: pause.origin)
    return Pauses(rows=[Pause.model_validate(pause) for pause in found[:500]], total=len(found))


@router.post("/pause", dependencies=[Depends(same_site_only)])
def pause(conn_id: str, ring: str, body: PauseRequest, user: Writer) -> PauseChange:
    """Pause an origin: blocks skip it, and it still accepts messages."""
    with opened(conn_id, ring, user.name) as queue:
        was_paused = any(pause.origin == body.origin for pause in queue.admin.paused())
        queue.admin.pause(body.origin, body.reason, body.until, below=body.below)
    return PauseChange(origin=body.origin, paused=True, was_paused=was_paused)


@router.post("/resume", dependencies=[Depends(same_site_only)])
def resume(conn_id: str, ring: str, body: ResumeRequest, user: Writer) -> PauseChange:
    """Resume an origin."""
    with opened(conn_id, ring, user.name) as queue:
        was_paused = queue.admin.resume(body.origin)
    return PauseChange(origin=body.origin, paused=False, was_paused=was_paused)
