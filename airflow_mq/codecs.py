"""Codecs: conversions between values and the bytes of messages.

A codec turns a value into bytes and back. `bytes_codec`, `text_codec` and `json_codec` are here, and
`model_codec(Order)` makes one of a Pydantic model, or of any type that Pydantic validates. Any object with these two
methods is a codec; `decode` raises a `ValueError` for bytes that it cannot decode. ::

    class OrderCodec:
        def encode(self, value: Order) -> bytes: ...
        def decode(self, data: bytes) -> Order: ...

Bytes that do not decode are *bad format*: permanently wrong, settled by the queue, and never passed to a processor. A
codec raises `Undecodable` for another permanent outcome. Its text is logged, so it must not quote the bytes; of any
other `ValueError` only the type is logged. Any other exception is a failed attempt, as if the processor had raised it:
the message goes back. No codec here executes what it reads: there is no pickle.
"""

from __future__ import annotations

import json
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, get_origin, runtime_checkable

from .engine.rules.errors import InvalidInput, InvalidMessage
from .engine.rules.outcome import BadFormat, Corrupt, Outcome, StackLimitReached, Unsupported
from .loading import load_named

if TYPE_CHECKING:
    from pydantic import ValidationError

T = TypeVar("T")


@runtime_checkable
class Codec(Protocol[T]):
    """Conversion between values of a type and bytes."""

    def encode(self, value: T) -> bytes:
        """Return the bytes of a value."""

    def decode(self, data: bytes) -> T:
        """Return the value of bytes; raise `ValueError` if they have none."""


class Undecodable(ValueError):
    """Bytes without a value, with the outcome of their message. The text is logged, so it must not quote the bytes."""

    def __init__(self, why: str, outcome: Outcome | None = None) -> None:
        super().__init__(why)
        self.outcome: Outcome = BadFormat() if outcome is None else outcome
        if not isinstance(self.outcome, (BadFormat, Corrupt, Unsupported, StackLimitReached)):
            raise InvalidInput(
                f"invalid outcome of Undecodable ({type(outcome).__name__}): expected a permanent failure, like "
                "BadFormat"
            )


class _Bytes:
    """Codec of bytes, unchanged."""

    def encode(self, value: bytes) -> bytes:
        return value

    def decode(self, data: bytes) -> bytes:
        return bytes(data)


class _Text:
    """Codec of UTF-8 text."""

    def encode(self, value: str) -> bytes:
        return value.encode()

    def decode(self, data: bytes) -> str:
        return bytes(data).decode()


class _Json:
    """Codec of JSON in UTF-8, without Python's extensions (NaN, Infinity)."""

    def encode(self, value: object) -> bytes:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()

    def decode(self, data: bytes) -> Any:
        try:
            return json.loads(bytes(data).decode(), parse_constant=_reject_constant)
        except RecursionError:
            raise Undecodable("the JSON is nested too deeply") from None


def _reject_constant(name: str) -> object:
    raise ValueError(f"invalid number {name}: not part of JSON")


class _Model(Generic[T]):
    """Codec of JSON that Pydantic validates."""

    def __init__(self, kind: type[T]) -> None:
        self.kind = kind
        try:
            pydantic: Any = import_module("pydantic")
        except ImportError as error:
            raise InvalidInput(
                f"missing Pydantic 2 for the codec of {kind!r} ({error}): pip install pydantic"
            ) from None
        self._adapter, self._invalid = pydantic.TypeAdapter(kind), pydantic.ValidationError

    def encode(self, value: T) -> bytes:
        checked = self._adapter.validate_python(value, strict=False)
        data = bytes(self._adapter.dump_json(checked, by_alias=True))
        if b"null" in data:
            # NaN and infinity become null, which a number is not.
            self.decode(data)
        return data

    def decode(self, data: bytes) -> T:
        try:
            value: T = self._adapter.validate_json(bytes(data))
        except self._invalid as error:
            raise Undecodable(self._problem(error)) from None
        return value

    def _problem(self, error: ValidationError) -> str:
        """Return the failed fields and rules, without the data: logs have other readers than messages."""
        found = error.errors(include_input=False, include_url=False, include_context=False)
        fields = getattr(self.kind, "model_fields", {})
        problems = [
            f"{field}: {detail['type']}" if (field := (*detail["loc"], "")[0]) in fields else detail["type"]
            for detail in found[:5]
        ]
        return f"no {getattr(self.kind, '__name__', 'value')}: {', '.join(problems)}"

    def __reduce__(self) -> tuple[object, ...]:
        return _Model, (self.kind,)


bytes_codec: Codec[bytes] = _Bytes()
text_codec: Codec[str] = _Text()
json_codec: Codec[Any] = _Json()


def model_codec(kind: type[T]) -> Codec[T]:
    """Return a JSON codec for a Pydantic model, a dataclass, a TypedDict or another type that Pydantic validates."""
    return _Model(kind)


def codec_of(what: Any) -> Codec[Any]:
    """Return a codec as it is, or the one for a type: bytes, text, or one that Pydantic validates."""
    known: dict[type, Codec[Any]] = {bytes: bytes_codec, str: text_codec}
    if isinstance(what, type) and hasattr(what, "encode") and hasattr(what, "decode"):
        raise InvalidInput(f"invalid codec: {what.__name__} is a class; expected an object, {what.__name__}()")
    if isinstance(what, type) or get_origin(what) is not None:
        return known.get(what) or model_codec(what)
    if isinstance(what, Codec):
        return what
    raise InvalidInput(f"invalid codec ({type(what).__name__}): expected an object with encode and decode, or a type")


def encoded(codec: Codec[T], value: T) -> bytes:
    """Return the bytes of a value, or raise `InvalidMessage`."""
    try:
        data: object = codec.encode(value)
    except (ValueError, TypeError) as error:
        raise InvalidMessage(f"cannot encode {type(value).__name__}: {error}") from error
    if not isinstance(data, bytes):
        raise InvalidMessage(f"invalid result of the codec ({type(data).__name__}): expected bytes")
    return data


def undecodable(error: ValueError) -> Outcome:
    """Return the outcome recorded for a message that cannot be decoded."""
    return error.outcome if isinstance(error, Undecodable) else BadFormat()


def load_codec(name: str) -> Codec[Any]:
    """Return the codec named `module:name`, or the one for the type of that name."""
    try:
        loaded = load_named(name)
    except Exception as error:
        raise InvalidInput(f"cannot load codec {name} ({type(error).__name__}: {error})") from error
    return codec_of(loaded)
