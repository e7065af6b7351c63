"""Loading by name: a function, a codec or a type named `module:name` by a person or a DAG, never by stored data."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from .engine.rules.nearest import nearest


def load_named(name: str) -> object:
    """Import the object of this name; an error keeps its type and suggests the nearest existing name."""
    module, _, path = name.partition(":")
    loaded: object = _module(module)
    for part in path.split("."):
        loaded = _attribute(loaded, part)
    return loaded


def _module(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        near = _near_module(name, error.name or "")
        if not near:
            raise
        raise ModuleNotFoundError(f"{error}; did you mean {near!r}?", name=error.name) from error


def _near_module(name: str, missing: str) -> str | None:
    """Return the module beside the missing one that has the nearest name."""
    if not f"{name}.".startswith(f"{missing}."):
        # The module exists, and imports another one that is missing.
        return None
    parent, _, last = missing.rpartition(".")
    places = getattr(import_module(parent), "__path__", ()) if parent else None
    near = _nearest(last, {found.name for found in iter_modules(places)})
    return f"{parent}.{near}" if parent and near else near


def _attribute(holder: object, name: str) -> object:
    try:
        return getattr(holder, name)
    except AttributeError as error:
        held = getattr(holder, "__dict__", {})
        near = _nearest(name, {key for key, value in held.items() if not isinstance(value, ModuleType)})
        if not near:
            raise
        raise AttributeError(f"{error}; did you mean {near!r}?", name=name, obj=holder) from error


def _nearest(name: str, names: set[str]) -> str | None:
    return nearest(name, sorted(known for known in names if not known.startswith("_")))
