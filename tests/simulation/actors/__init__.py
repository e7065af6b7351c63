"""Actors: what each step of a script does. An action is a function of the module of its kind."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from ..scheduler import Process
from . import aside, blocks, folders, holding, keeping, senders, services, shards

#: It works on a `World`, or, in the modules of senders and shards, on a `Fleet`.
Action = Callable[[Any, Process, Random], object]

#: Actions by name.
ACTIONS: dict[str, Action] = {
    name: action
    for module in (aside, blocks, folders, holding, keeping, senders, services, shards)
    for name, action in vars(module).items()
    if callable(action) and getattr(action, "__module__", "") == module.__name__ and not name.startswith("_")
}
