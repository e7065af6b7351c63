"""Settings of an origin as schemas and routes: texts as in `queue set`, by the same rules."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import Field, ValidationInfo, field_validator

from airflow_mq.engine.queue import MessageQueue
from airflow_mq.engine.queue.admin import read_setting
from airflow_mq.engine.rules.budget import BURSTS, amount_text

from .access import Reader, Writer, same_site_only
from .queues import ResumeRequest
from .schemas import Schema
from .stores import opened

router = APIRouter()

Typed = Annotated[str, Field(max_length=100)]


class SettingTexts(Schema):
    """Settings of an origin as they are typed; null for one that is not set."""

    share: int
    least: str | None
    most: str | None
    rate: str | None
    rate_bytes: str | None
    burst: str | None
    burst_bytes: str | None
    quota: str | None


class SettingsRequest(ResumeRequest):
    """Request to change settings of an origin: null unsets one, and omitted ones stay."""

    share: int | None = None
    least: Typed | None = None
    most: Typed | None = None
    rate: Typed | None = None
    rate_bytes: Typed | None = None
    burst: Typed | None = None
    burst_bytes: Typed | None = None
    quota: Typed | None = None

    @field_validator(*SettingTexts.model_fields)
    @classmethod
    def _check(cls, value: object, info: ValidationInfo) -> object:
        """Read a setting, so that the error of each belongs to its field."""
        if value is not None:
            read_setting(str(info.field_name), value)
        return value


@router.get("/settings")
def settings(conn_id: str, ring: str, origin: str, user: Reader) -> SettingTexts:
    """Return the settings of an origin, also of one without messages."""
    with opened(conn_id, ring) as queue:
        return _texts(queue, origin)


@router.post("/settings", dependencies=[Depends(same_site_only)])
def change_settings(conn_id: str, ring: str, body: SettingsRequest, user: Writer) -> SettingTexts:
    """Change settings of an origin, from the next block on, and return all of them."""
    given: dict[str, Any] = body.model_dump(exclude={"origin"}, exclude_unset=True)
    with opened(conn_id, ring, user.name) as queue:
        queue.admin.set_origin(body.origin, **given, unset=[name for name, value in given.items() if value is None])
        return _texts(queue, body.origin)


def _texts(queue: MessageQueue, origin: str) -> SettingTexts:
    found = queue.inspect.origin_settings(origin)
    texts = {name: weight and weight.typed for name, weight in (("least", found.least), ("most", found.most))}
    for name, part in {**BURSTS, "quota": 1}.items():
        amount = getattr(found, name)
        texts[name] = None if amount is None else amount_text(part, amount)
    rates = {"rate": found.rate and str(found.rate), "rate_bytes": found.rate_bytes and str(found.rate_bytes)}
    return SettingTexts.of(found, **texts, **rates)
