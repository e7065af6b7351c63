"""Attributes as an inbox row stores them: JSON, with the external payloads to which its messages refer.

Attributes under `all` are those of all messages of the row, unless a message has its own under `each`, by its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from ..rules.blob import Reference
from ..rules.message import Attributes
from ..rules.page import Note
from . import codec


class StoredAttributes:
    """The attributes of the messages of an inbox row, which are read when they are asked for."""

    def __init__(self, stored: bytes) -> None:
        self._stored = stored

    @cached_property
    def _plain(self) -> Any:
        return codec.read_json(self._stored)

    @cached_property
    def _common(self) -> Attributes:
        return Attributes.of(self._plain.get("all", {}))

    @property
    def blobs(self) -> dict[str, str]:
        """External payloads, as text, by place."""
        blobs: dict[str, str] = self._plain.get("blobs", {})
        return blobs

    def of(self, place: int) -> Attributes:
        """Return the attributes of one message."""
        own = self._plain.get("each", {}).get(str(place))
        return Attributes.of({**self._plain.get("all", {}), **own}) if own else self._common

    def blob(self, place: int) -> tuple[str, int] | None:
        """Return the hash and the size of the external payload of one message, if it has one."""
        name, _, size = self.blobs.get(str(place), "").partition(":")
        return (name, int(size)) if name else None


def pack_attributes(
    common: Attributes, payloads: Sequence[bytes] = (), each: Mapping[int, Attributes] | None = None, **more: object
) -> bytes:
    """Pack the attributes of the messages of an inbox row, and their external payloads; mostly nothing.

    :param common: attributes of messages without their own.
    :param each: own attributes of messages, by place.
    :param more: what else is stored of all messages, unless it is None.
    """
    plain: dict[str, Any] = {}
    for place, payload in enumerate(payloads):
        if isinstance(payload, Reference):
            # The tables count the uses of external payloads by this.
            plain.setdefault("blobs", {})[str(place)] = f"{payload.hash.hex()}:{payload.size}"
    shared = common.plain()
    for name, value in more.items():
        if value is not None:
            shared[name] = value
    if shared:
        plain["all"] = shared
    if each:
        plain["each"] = {str(place): own.plain() for place, own in each.items()}
    return codec.write_json(plain) if plain else b""


def was_mark(place: tuple[int, int]) -> bytes:
    """Return the part of the attributes of a row that names the place which its message left to wait aside."""
    return codec.write_json({"was": place})[1:-1]


@codec.reading("the attributes of a message")
def was_of(attributes: bytes) -> tuple[int, int] | None:
    """Return from where the message of a row waited aside; None if it did not."""
    was = codec.read_json(attributes).get("all", {}).get("was") if attributes else None
    return None if was is None else (int(was[0]), int(was[1]))


@codec.reading("the attributes of a message")
def notes_of(attributes: bytes, items: int) -> dict[int, Note]:
    """Return the attributes of single messages that planning needs."""
    stored, notes = StoredAttributes(attributes), dict[int, Note]()
    for place in range(items):
        blob = stored.blob(place)
        note = Note.of(stored.of(place), blob[1] if blob else None)
        if any(note):
            notes[place] = note
    return notes
