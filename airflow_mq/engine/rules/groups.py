"""Groups of origins that are paths: `acme/orders` is a member of the group `acme/`."""

from __future__ import annotations

from .priority import MARK, origin_of

SEPARATOR = "/"
#: What comes right after a separator: the names of all origins below a group come before its name with this.
PAST_SEPARATOR = "0"
#: Path of the outermost group, which holds all origins.
ROOT = ""


def groups_of(origin: str) -> list[str]:
    """Return the groups that hold an origin, the outermost first: `a/b/c` lies in `a/` and in `a/b/`."""
    found, at = [], origin.find(SEPARATOR)
    while at >= 0:
        found.append(origin[: at + 1])
        at = origin.find(SEPARATOR, at + 1)
    return found


def home_of(origin: str) -> str:
    """Return the innermost group of an origin; for `acme` that is the root."""
    return origin[: origin.rfind(SEPARATOR) + 1]


def group_of(path: str) -> str:
    """Return the group directly above a group."""
    return home_of(path[:-1])


def names_above(origin: str) -> list[str]:
    """Return the names of the groups that hold an origin. Shares are set under these names."""
    return [path[:-1] for path in groups_of(origin)]


def paths_of(name: str, has_paths: bool) -> list[str]:
    """Return the names under which settings apply to a book: that of its origin and, with paths, those above it."""
    origin = origin_of(name)
    return [*names_above(origin), origin] if has_paths else [origin]


def head_of(origin: str) -> str:
    """Return the first part of a path."""
    return origin.partition(SEPARATOR)[0]


def ranges_of(name: str) -> list[tuple[str, str]]:
    """Return ranges of the names of an origin and of all below it; each ends before its second bound."""
    return [(name, name + MARK), (name + SEPARATOR, name + PAST_SEPARATOR)]


def is_below(origin: str, name: str) -> bool:
    """Return whether an origin has this name or lies below it."""
    return origin == name or origin.startswith(name + SEPARATOR)
