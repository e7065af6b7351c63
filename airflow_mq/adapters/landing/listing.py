"""Listing of a landing place: a bounded number of files by origin."""

from __future__ import annotations

from operator import attrgetter

from .place import Found

#: Number of files in one listing; an origin's further files come with the next listing.
MOST_FILES = 100_000


class Listing:
    """The files of a place by origin: of each the first by name, together at most `MOST_FILES`."""

    def __init__(self) -> None:
        self._files: dict[str, list[Found]] = {}
        #: The first path of an origin that this listing does not hold.
        self._until: dict[str, str] = {}
        self._count = 0
        self.is_partial = False

    def add(self, origin: str, found: Found) -> None:
        """Add a file, unless files of its origin were removed before it or there is no room."""
        until = self._until.get(origin)
        full = origin not in self._files and len(self._files) >= MOST_FILES
        if full or (until is not None and found.path >= until):
            self.is_partial = True
            return
        self._files.setdefault(origin, []).append(found)
        self._count += 1
        if self._count > MOST_FILES:
            self._trim()

    def _trim(self) -> None:
        """Remove the last files of the origins that have the most; each keeps at least one."""
        most = max(1, MOST_FILES // (2 * len(self._files)))
        for origin, files in self._files.items():
            if len(files) > most:
                files.sort(key=attrgetter("path"))
                self._until[origin] = files[most].path
                self._count -= len(files) - most
                del files[most:]
                self.is_partial = True

    def by_origin(self) -> list[tuple[str, list[Found]]]:
        """Return the origins by name, with their files by name."""
        return [(origin, sorted(self._files[origin], key=attrgetter("path"))) for origin in sorted(self._files)]
