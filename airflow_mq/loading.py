"""What `module:name` says: a function, a codec, a type. Named by people and DAGs, never by what is stored."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def load_named(name: str) -> Any:
    """Import what has this name; whatever goes wrong there is raised as it is, for the caller to tell."""
    module, _, path = name.partition(":")
    found: Any = import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found
