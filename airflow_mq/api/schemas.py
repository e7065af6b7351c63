"""Parts that the API's schemas share; the module of each noun declares the schemas of its routes.

FastAPI validates every response against a `Schema` and describes it in `openapi.json`, of which `npm run types` makes
the page's `types.ts`. Most schemas are read from the attributes of the queue's own value types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, WithJsonSchema

from airflow_mq.engine.rules import message as rules

if TYPE_CHECKING:
    from typing_extensions import Self

#: The largest number of a page, and of a message in it, in a request.
MOST_PAGE = 1 << 40


def _parsed(text: object) -> rules.Address:
    if not isinstance(text, str):
        raise ValueError("expected text: ORIGIN:PAGE:INDEX, or ORIGIN:PAGE:INDEX:high")
    address = rules.Address.parse(text)
    if max(address.page, address.index) > MOST_PAGE:
        raise ValueError(f"page or index too large: expected at most {MOST_PAGE}")
    return address


Priority = Literal["regular", "high"]
#: A value as text: the address of a message, "acme:0:3" or "acme:0:3:high", or a number beyond those of JavaScript.
Text = Annotated[str, BeforeValidator(str)]
#: The id of a message in hexadecimal digits, if it is known.
Hex = Annotated[str | None, BeforeValidator(lambda id_: id_.hex() if id_ else None)]
AddressAsked = Annotated[rules.Address, PlainValidator(_parsed), WithJsonSchema({"type": "string"})]
#: An origin, and the reason of a decision, in a request.
Origin = Annotated[str, Field(min_length=1, max_length=255)]
Reason = Annotated[str, Field(max_length=2_000)]


class Schema(BaseModel):
    """A response: a closed object whose names are all described."""

    model_config = ConfigDict(extra="forbid", from_attributes=True, json_schema_serialization_defaults_required=True)

    @classmethod
    def of(cls, source: object, **fields: object) -> Self:
        """Return a response with these fields; it reads all others from the attributes of `source`."""
        others = {name: getattr(source, name) for name in cls.model_fields if name not in fields}
        return cls.model_validate({**others, **fields})


class Body(BaseModel):
    """A request: names that are not described are an error."""

    model_config = ConfigDict(extra="forbid")


class Refusal(Schema):
    """The reason for an error status, and what to do; of an invalid request, the reason for each named part."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    detail: str
    fields: dict[str, str] = {}


class Remedy(Schema):
    """A change that would help, and the command that makes it; one of them may be empty."""

    text: str
    command: str


class Weight(Schema):
    """Milliseconds and bytes."""

    time: int
    size: int


#: Responses of any route, beside its own.
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Refusal, "description": description}
    for status, description in {
        401: "You are not signed in",
        403: "You do not have this permission",
        404: "Not found, or no longer there",
        409: "In use, or decided by another request",
        422: "Invalid request",
        503: "The store does not answer, has another schema version, or would take too long; or Airflow's database "
        "failed",
    }.items()
}
