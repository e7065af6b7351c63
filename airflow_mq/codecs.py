"""Codecs: what a queue's bytes mean, on both ends.

A codec turns a value into bytes and back. `bytes_codec`, `text_codec` and `json_codec` are here, and
`model_codec(Order)` makes one of a Pydantic model, or of anything else that Pydantic validates. A codec of your own
is any object with two functions; that bytes are none of its, it says by raising a `ValueError`. ::

    class OrderCodec:
        def encode(self, value: Order) -> bytes: ...
        def decode(self, data: bytes) -> Order: ...

Bytes that do not decode are *bad format*: wrong for good, answered for by the queue, and no processor sees them. A
codec that knows better raises `Undecodable` with another such outcome; its text is logged, so it must not quote the
bytes, and of any other `ValueError` the log has the type. Whatever else it raises is a try that failed, as
if the processor had raised it: the message goes back. No codec here runs what it reads: there is no pickle.
"""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from .core.errors import InvalidInput, InvalidMessage
from .core.outcome import BadFormat, Corrupt, Outcome, StackLimitReached, Unsupported
from .loading import load_named

T = TypeVar("T")


@runtime_checkable
class Codec(Protocol[T]):
    """What bytes mean."""

    def encode(self, value: T) -> bytes:
        """The bytes of a value."""

    def decode(self, data: bytes) -> T:
        """The value of bytes; raises `ValueError` if they have none."""


class Undecodable(ValueError):
    """These bytes have no value, and this is what becomes of the message. The text is logged: it quotes no bytes."""

    def __init__(self, why: str, outcome: Outcome | None = None) -> None:
        super().__init__(why)
        self.outcome: Outcome = BadFormat() if outcome is None else outcome
        if not isinstance(self.outcome, (BadFormat, Corrupt, Unsupported, StackLimitReached)):
            raise InvalidInput(f"what cannot be decoded is wrong for good, and not {type(outcome).__name__}")


class _Bytes:
    """Bytes as they are."""

    def encode(self, value: bytes) -> bytes:
        return value

    def decode(self, data: bytes) -> bytes:
        return bytes(data)


class _Text:
    """Text in UTF-8."""

    def encode(self, value: str) -> bytes:
        return value.encode()

    def decode(self, data: bytes) -> str:
        return bytes(data).decode()


class _Json:
    """JSON in UTF-8, without what only Python reads (NaN, Infinity)."""

    def encode(self, value: Any) -> bytes:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()

    def decode(self, data: bytes) -> Any:
        try:
            return json.loads(bytes(data).decode(), parse_constant=_no_number)
        except RecursionError:
            raise Undecodable("the JSON is nested too deep") from None


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


class _Model(Generic[T]):
    """JSON of what Pydantic validates."""

    def __init__(self, kind: type[T]) -> None:
        self.kind = kind
        try:
            pydantic: Any = import_module("pydantic")
        except ImportError as error:
            raise InvalidInput(f"a codec for {kind!r} needs Pydantic 2: pip install pydantic ({error})") from None
        self._adapter, self._invalid = pydantic.TypeAdapter(kind), pydantic.ValidationError

    def encode(self, value: T) -> bytes:
        checked = self._adapter.validate_python(value, strict=False)
        data: bytes = self._adapter.dump_json(checked, by_alias=True)
        return data

    def decode(self, data: bytes) -> T:
        try:
            value: T = self._adapter.validate_json(bytes(data))
        except self._invalid as error:
            raise Undecodable(self._told(error)) from None
        return value

    def _told(self, error: Any) -> str:
        """What is wrong, without what was sent: that is nobody's business who reads a log."""
        found = error.errors(include_input=False, include_url=False, include_context=False)
        fields = getattr(self.kind, "model_fields", {})
        told = [f"{at}: {one['type']}" if (at := (*one["loc"], "")[0]) in fields else one["type"] for one in found[:5]]
        return f"no {getattr(self.kind, '__name__', 'value')}: {', '.join(told)}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _Model, (self.kind,)


bytes_codec: Codec[bytes] = _Bytes()
text_codec: Codec[str] = _Text()
json_codec: Codec[Any] = _Json()


def model_codec(kind: type[T]) -> Codec[T]:
    """A codec for a Pydantic model, a dataclass, a TypedDict, or whatever else Pydantic validates, as JSON."""
    return _Model(kind)


def codec_of(what: Any) -> Codec[Any]:
    """A codec as it is, or the one for a type: bytes, text, or one that Pydantic knows."""
    known: dict[Any, Codec[Any]] = {bytes: bytes_codec, str: text_codec}
    if isinstance(what, type):
        return known.get(what) or model_codec(what)
    if isinstance(what, Codec):
        return what
    raise InvalidInput(f"a codec has encode and decode, or is a type; {type(what).__name__} is neither")


def encoded(codec: Codec[T], value: T) -> bytes:
    """The bytes of a value, or the reason why it has none."""
    try:
        data: object = codec.encode(value)
    except (ValueError, TypeError) as error:
        raise InvalidMessage(f"this {type(value).__name__} cannot be encoded: {error}") from error
    if not isinstance(data, bytes):
        raise InvalidMessage(f"a codec makes bytes, not {type(data).__name__}")
    return data


def undecodable(error: ValueError) -> Outcome:
    """What becomes of a message that does not decode."""
    return error.outcome if isinstance(error, Undecodable) else BadFormat()


def load_codec(name: str) -> Codec[Any]:
    """The codec, or the type, that `module:name` is."""
    try:
        found = load_named(name)
    except Exception as error:
        raise InvalidInput(f"the codec {name} cannot be loaded ({type(error).__name__}: {error})") from error
    return codec_of(found)
