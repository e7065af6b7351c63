"""Origins that a person may have meant by one that has no messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..engine.rules.errors import NotFound
from ..engine.rules.nearest import nearest

if TYPE_CHECKING:
    from ..engine.queue import MessageQueue


def meant(queue: MessageQueue, name: str | None) -> str:
    """Return the end of a sentence about an origin without messages: its delayed ones, a near origin, or nothing.

    The first one below it comes first, then those that begin with the same character: there may be many more origins.
    """
    if name and not queue.footprint(name).count and (found := queue.inspect.explain(name)).reason == "not due":
        return f"; {found.sentence.removesuffix('.')}"
    for prefix in (name, name[:1], "") if name else ():
        known = [origin for origin, held in queue.footprints(prefix, limit=1_000) if held.count]
        close = next((one for one in known if one.startswith(f"{name}/")), None) or nearest(str(name), known)
        if close is not None:
            return question(close if close != name else None)
    return ""


def question(near: str | None) -> str:
    """Return the end of a sentence that asks for a near name; nothing without one."""
    return f"; did you mean {near}?" if near else ""


@contextmanager
def naming_near(queue: MessageQueue, origins: Iterable[str]) -> Iterator[None]:
    """Name a near origin in the error of a message or a page that does not exist."""
    try:
        yield
    except NotFound as error:
        found = (meant(queue, origin) for origin in origins)
        error.args = (f"{error}{next(filter(None, found), '')}",)
        raise
