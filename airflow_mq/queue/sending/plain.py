"""Plain calls: bytes in a list, at most a page's worth for each origin, packed without a look at single messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...core.config import HEADER_SIZE
from ...store import Outgoing, codec

#: Bytes of a call that are held in memory, while the rest waits in a file; messages that are measured together.
HELD, STRETCH = 8 << 20, 4096


def plain_rows(
    origin: str | Iterable[tuple[str, Any]],
    messages: Iterable[Any] | None,
    check_sender: Callable[[object], str],
    heap_size: int,
) -> list[Outgoing] | None:
    """Return the rows of a plain call; `None` for another call, of which nothing was consumed.

    :param origin: one origin that is checked already, or pairs of origin and message.
    """
    given: Any = messages if isinstance(origin, str) else origin
    if type(given) not in (list, tuple) or not 0 < len(given) <= STRETCH:
        return None
    if isinstance(origin, str):
        if set(map(type, given)) != {bytes}:
            return None
        found = {origin: given}
    else:
        if {type(message) for _, message in origin} != {bytes}:
            return None
        found = by_origin(origin)
    rows, left = [], HELD
    for name, payloads in found.items():
        count = len(payloads)
        lengths = list(map(len, payloads)) if count > 1 else [len(payloads[0])]
        size = sum(lengths) if count > 1 else lengths[0]
        left -= size
        if not all(lengths) or size + HEADER_SIZE * count > heap_size or left < 0:
            return None
        name = name if isinstance(origin, str) else check_sender(name)
        if count == 1:
            rows.append(Outgoing(name, size, 1, False, b"", b"", payloads[0]))
        else:
            rows.append(Outgoing(name, size, count, False, codec.pack_lengths(lengths), b"", b"".join(payloads)))
    return rows


def by_origin(pairs: Iterable[tuple[str, Any]]) -> dict[str, list[bytes]]:
    """Return the plain messages of each origin in order; origins come in the order of their first message."""
    found: dict[str, list[bytes]] = {}
    for origin, payload in pairs:
        try:
            found[origin].append(payload)
        except KeyError:
            found[origin] = [payload]
    return found
