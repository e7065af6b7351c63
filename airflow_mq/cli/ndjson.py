"""Messages as lines of JSON."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator
from typing import Any

from ..core.errors import InvalidInput, InvalidMessage
from ..core.message import Message, check_origin
from ..core.priority import check_priority
from ..core.weight import Weight
from .command import UsageError

_KNOWN = {"origin", "payload", "payload_base64", "key", "weight", "headers", "priority"}


class Lines:
    """Reads messages one by one, and knows which line is at fault when one is refused."""

    def __init__(self, lines: Iterable[bytes], origin: str | None = None) -> None:
        self.lines, self.origin, self.number = lines, origin, 0

    def pairs(self) -> Iterator[tuple[str, bytes | Message]]:
        """The origin and the message of each line; empty lines are passed over."""
        for line in self.lines:
            self.number += 1
            if line.strip():
                yield self._pair(line)

    def named(self, error: InvalidInput) -> UsageError:
        """The same error, with its line."""
        return UsageError(f"line {self.number}: {error}; nothing was enqueued")

    def _pair(self, line: bytes) -> tuple[str, bytes | Message]:
        try:
            said = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidMessage(f"this is no JSON ({error})") from None
        if not isinstance(said, dict):
            raise InvalidMessage("a message is a JSON object")
        unknown = sorted(set(said) - _KNOWN)
        if unknown:
            raise InvalidMessage(f"{', '.join(map(repr, unknown))} is unknown; there are {', '.join(sorted(_KNOWN))}")
        origin = check_origin(said.get("origin", self.origin) or _none())
        payload = _payload(said)
        if not {"key", "weight", "headers", "priority"} & set(said):
            return origin, payload
        weight = None if said.get("weight") is None else Weight.of(said["weight"])
        priority = None if said.get("priority") is None else check_priority(said["priority"])
        return origin, Message(payload, _text(said, "key"), weight, _headers(said.get("headers")), priority)


def _none() -> str:
    raise InvalidMessage("it has no origin; write one into the line, or say it for all: enqueue ORIGIN --ndjson …")


def _payload(said: dict[str, Any]) -> bytes:
    if ("payload" in said) == ("payload_base64" in said):
        raise InvalidMessage("it has a payload or a payload_base64, one of the two")
    if "payload" in said:
        text = _text(said, "payload") or ""
        try:
            return text.encode("utf-8")
        except UnicodeEncodeError:
            raise InvalidMessage("its payload holds half of a character; use payload_base64 for bytes") from None
    try:
        return base64.b64decode(_text(said, "payload_base64") or "", validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidMessage(f"its payload_base64 cannot be read ({error})") from None


def _text(said: dict[str, Any], name: str) -> str | None:
    value = said.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidMessage(f"its {name} is text, not {type(value).__name__}; to send JSON, write it as text")
    return value


def _headers(value: Any) -> dict[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise InvalidMessage("its headers are a JSON object of texts")
    return value
