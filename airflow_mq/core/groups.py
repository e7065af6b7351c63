"""How origins read as paths: `acme/orders` lies in the group `acme/`."""

from __future__ import annotations

SEPARATOR = "/"
#: The path of the group that holds everything.
ROOT = ""


def groups_of(origin: str) -> list[str]:
    """The groups that hold this origin, the outermost first: `a/b/c` lies in `a/` and in `a/b/`."""
    found, at = [], origin.find(SEPARATOR)
    while at >= 0:
        found.append(origin[: at + 1])
        at = origin.find(SEPARATOR, at + 1)
    return found


def home_of(origin: str) -> str:
    """The group right above an origin; that of `acme` is the outermost."""
    return origin[: origin.rfind(SEPARATOR) + 1]


def group_of(path: str) -> str:
    """The group right above a group."""
    return home_of(path[:-1])


def names_above(origin: str) -> list[str]:
    """The names of the groups that hold this origin, under which their shares are set."""
    return [path[:-1] for path in groups_of(origin)]


def head_of(origin: str) -> str:
    """The first part of a path."""
    return origin.partition(SEPARATOR)[0]


def is_below(origin: str, name: str) -> bool:
    """Whether an origin is of this name, or lies below it."""
    return origin == name or origin.startswith(name + SEPARATOR)
