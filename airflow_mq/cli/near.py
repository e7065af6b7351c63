"""Origins that a person may have meant by one that has no messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..engine.rules.errors import NotFound
from ..engine.rules.message import check_origin
from ..engine.rules.nearest import nearest
from ..engine.rules.priority import PRIORITIES

if TYPE_CHECKING:
    from ..engine.queue import MessageQueue


def meant(queue: MessageQueue, name: str | None) -> str:
    """Return the end of a sentence about an origin: its delayed messages, a near origin, or nothing if it has messages.

    The first one below it comes first, then those that begin with the same character: there may be many more origins.
    """
    if not name or queue.inspect.queues(among=[(check_origin(name), priority) for priority in PRIORITIES]):
        return ""
    if (found := queue.inspect.explain(name)).reason == "not due":
        return f"; {found.sentence.removesuffix('.')}"
    for prefix in (name, name[:1], ""):
        known = [state.origin for state in queue.inspect.queues(prefix, limit=1_000)]
        close = next((one for one in known if one.startswith(f"{name}/")), None) or nearest(name, known)
        if close is not None:
            return question(close)
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
