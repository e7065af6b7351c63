"""Messages as lines of JSON."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator, Mapping

from ..engine.rules.config import RingConfig
from ..engine.rules.errors import InvalidInput, InvalidMessage
from ..engine.rules.message import Message, check_headers, check_key, check_origin, check_payload
from ..engine.rules.priority import check_priority
from ..engine.rules.weight import Weight
from .command import UsageError

_KNOWN = {"origin", "payload", "payload_base64", "key", "weight", "headers", "priority"}


class Lines:
    """Messages in lines of JSON, checked as a call checks them, which reads ahead and cannot name the line."""

    def __init__(
        self,
        lines: Iterable[bytes],
        config: RingConfig,
        origin: str | None = None,
        check_sender: Callable[[object], str] = check_origin,
    ) -> None:
        self.lines, self.config, self.origin, self.check_sender = lines, config, origin, check_sender
        self.number = 0

    def pairs(self) -> Iterator[tuple[str, bytes | Message]]:
        """Yield the origin and the message of each line; skip empty lines."""
        for line in self.lines:
            self.number += 1
            if line.strip():
                try:
                    yield self._pair(line)
                except InvalidInput as error:
                    raise self.refused(error) from None

    def refused(self, why: object) -> UsageError:
        """Return an error that names the current line."""
        return UsageError(f"line {self.number}: {why}")

    def _pair(self, line: bytes) -> tuple[str, bytes | Message]:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidMessage(f"invalid JSON ({error})") from None
        if not isinstance(value, dict):
            raise InvalidMessage("a message is a JSON object")
        unknown = sorted(set(value) - _KNOWN)
        if unknown:
            raise InvalidMessage(
                f"{', '.join(map(repr, unknown))[:80]} is unknown; there are {', '.join(sorted(_KNOWN))}"
            )
        given = self.origin if value.get("origin") is None else value["origin"]
        if not given:
            raise InvalidMessage(
                "it has no origin: expected one in the line, or one for all lines: enqueue ORIGIN --ndjson …"
            )
        origin = self.check_sender(given)
        payload = check_payload(_payload(value), self.config.max_message_len)
        if not {"key", "weight", "headers", "priority"} & set(value):
            return origin, payload
        weight = None if value.get("weight") is None else Weight.of(value["weight"])
        priority = None if value.get("priority") is None else check_priority(value["priority"])
        key = None if value.get("key") is None else check_key(_text(value, "key"))
        headers = _headers(value.get("headers"), self.config.max_headers)
        return origin, Message(payload, key, weight, headers, priority)


def _payload(value: Mapping[str, object]) -> bytes:
    if ("payload" in value) == ("payload_base64" in value):
        raise InvalidMessage("it has a payload or a payload_base64, one of the two")
    if "payload" in value:
        text = _text(value, "payload") or ""
        try:
            return text.encode("utf-8")
        except UnicodeEncodeError:
            raise InvalidMessage("its payload holds half of a character; use payload_base64 for bytes") from None
    try:
        return base64.b64decode(_text(value, "payload_base64") or "", validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidMessage(f"its payload_base64 cannot be read ({error})") from None


def _text(fields: Mapping[str, object], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidMessage(f"its {name} is text, not {type(value).__name__}; to send JSON, write it as text")
    return value


def _headers(value: object, most: int) -> dict[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise InvalidMessage("its headers are a JSON object of texts")
    return check_headers(value, most)
