"""Actors: what each step of a script does. An action is a function of the module of its kind."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from random import Random

from ..scheduler import Process
from ..world import World

Action = Callable[[World, Process, Random], object]
KINDS = (
    "aside", "blocks", "ending", "filling", "folders", "gaps", "holding", "keeping", "letters", "lining", "parts",
    "reading", "relays", "senders", "services", "tracing", "tuning", "uploading",
)  # fmt: skip

#: Actions by name.
ACTIONS: dict[str, Action] = {
    name: action
    for module in (import_module(f".{kind}", __name__) for kind in KINDS)
    for name, action in vars(module).items()
    if callable(action) and getattr(action, "__module__", "") == module.__name__ and not name.startswith("_")
}
