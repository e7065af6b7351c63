"""Source of messages from the new files of a landing place."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from operator import attrgetter
from typing import IO, TypedDict

from ...engine.rules.errors import InvalidInput, MessageQueueError
from ...engine.rules.units import check_seconds
from ...keys import key_for
from ...words import many
from .. import BATCH_BYTES, Arrived, Changed, is_unreadable, log
from .lines import INLINE, Line, Reading, changed_meanwhile, read_lines
from .names import text_of
from .place import RECEIVED, REFUSED, Found, Place

MOVE, DELETE, KEEP = AFTER = "move", "delete", "keep"
#: Folder and suffix of notes on the last stored line.
NOTE = RECEIVED, ".part"
#: An origin's turn ends after this many messages or bytes if other origins wait.
TURN, TURN_BYTES = 500, 4 << 20
#: Number of files in one listing; an origin's further files come with the next listing.
MOST_FILES = 100_000
_TOKENS = re.compile(r"(\{origin\*?\}|\*\*|\*|\?)")
_MEANS = {"{origin}": "(?P<origin>[^/]+)", "{origin*}": "(?P<origin>.+)", "**": ".*", "*": "[^/]*", "?": "[^/]"}


class NotMoved(MessageQueueError):
    """Received files could not be moved out of the landing folder and would be received again."""


class LandingOptions(TypedDict, total=False):
    """Options of a landing, see `Landing`."""

    regex: str | None
    lines: bool
    settle: float
    after: str


def origin_pattern(pattern: str | None, regex: str | None) -> re.Pattern[str]:
    """Return the regular expression that takes the origin from a path, or raise `InvalidInput`."""
    if (pattern is None) == (regex is None):
        raise InvalidInput(
            f"specify exactly one of pattern, regex; got {'none' if regex is None else 'both'}: "
            "a pattern is like {origin}/*.json"
        )
    if regex is None:
        parts = _TOKENS.split(str(pattern))
        regex = "".join(_MEANS[part] if part in _MEANS else re.escape(part) for part in parts)
        if sum(part.startswith("{origin") for part in parts) != 1:
            raise InvalidInput(f"invalid pattern {pattern!r:.200}: expected exactly one {{origin}} or {{origin*}}")
    try:
        found = re.compile(regex, re.DOTALL)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidInput(f"invalid regular expression {regex!r:.200}: {error}") from None
    if "origin" not in found.groupindex:
        raise InvalidInput(f"invalid regular expression {regex!r:.200}: expected a group origin, (?P<origin>…)")
    return found


class Landing:
    """New files of a place, as messages."""

    def __init__(
        self,
        place: Place,
        pattern: str | None = None,
        *,
        regex: str | None = None,
        lines: bool = False,
        settle: float = 2.0,
        after: str = MOVE,
    ) -> None:
        """Prepare to read a place.

        :param pattern: takes the origin from a path: `{origin}/*.json`.
        :param regex: alternative to `pattern`: a regular expression with a group `origin` that matches the whole path.
        :param lines: whether each line of a file is a message, instead of the file.
        :param settle: seconds for which a file must not have changed.
        :param after: action for a file that the queue has stored: `move` it below `.received`, `delete` it, or `keep`
            it in place and write a receipt below `.received`.
        """
        self.place, self.lines, self.after = place, lines, after
        self._pattern = origin_pattern(pattern, regex)
        if after not in AFTER:
            raise InvalidInput(f"invalid after {after!r}: expected {' or '.join(map(repr, AFTER))}")
        self.settle = check_seconds(settle, "settle")
        self._source: Generator[Arrived, None, None] | None = None
        #: File of each fetched message, the marks of the line before it and of its own, and whether it is the last.
        self._of: dict[str, tuple[Reading, str, str, bool]] = {}
        #: Mark of the last line that the queue has stored, for each file that is read by lines and not put away.
        self._begun: dict[Found, str] = {}
        #: Files that are not read again in this run: they were refused, are left for a later run, or cannot be moved.
        self._done: set[str] = set()
        #: Origins of which nothing is taken in this run, so that their files need not be opened.
        self._full: set[str] = set()
        #: Files that were read since the last complete listing.
        self._seen: set[Found] = set()
        #: Number of received files that could not be moved, and the first of them with the reason.
        self._not_moved, self._why_not = 0, ""
        #: Number of files in this listing that the pattern does not match, the first of them, and unreadable folders.
        self.unmatched, self.first_unmatched, self.unreadable = 0, "", 0

    def fetch(self, most: int) -> Sequence[Arrived]:
        """Return the next messages, or none when all files were read. The call after that lists the place again."""
        if self._source is None:
            self._done, self._full, self._source = set(), set(), self._arrivals()
        arrived: list[Arrived] = []
        size = 0
        while len(arrived) < most and size < BATCH_BYTES:
            message = next(self._source, None)
            if message is None:
                break
            arrived.append(message)
            size += message.size
        if not arrived:
            self.close()
        return arrived

    def commit(self, arrived: Sequence[Arrived]) -> None:
        """Move or delete the files that the queue has stored completely."""
        for message in arrived:
            reading, before, mark, is_last = self._of.pop(message.key)
            if before != reading.stored:
                continue  # A line before it is not stored.
            if not is_last:
                self._begun[reading.found] = reading.stored = mark
            elif reading.found.path not in self._done:
                self._put_away(reading)

    def _put_away(self, reading: Reading) -> None:
        found = reading.found
        try:
            is_away = self._out(found)
        except OSError as error:
            self._done.add(found.path)
            self._not_moved, self._why_not = self._not_moved + 1, self._why_not or f"{found.path!a}: {error}"
            log.error("%s is in the queue and cannot be moved out of the landing folder: %s", ascii(found.path), error)
            return
        self._forget(reading)
        if not is_away:
            log.warning("%s changed after it was received; its new version will be received", ascii(found.path))

    def _out(self, found: Found) -> bool:
        """Move or delete a file, or write its receipt; return false if it has another version now."""
        if self.after == DELETE:
            return self.place.drop(found)
        if self.after == MOVE:
            return self.place.move(found, RECEIVED) is not None
        self.place.note(self._receipt(found, RECEIVED), f"{text_of(found.path)}@{found.stamp}\n")
        return True

    def _forget(self, reading: Reading) -> None:
        """Note nothing of a file that is put away or has another version now, and remove the note."""
        self._begun.pop(reading.found, None)
        reading.stored = None
        with suppress(OSError):  # Without the file, a note does no harm.
            if reading.noted:
                self.place.remove(self._receipt(reading.found, *NOTE))

    def _receipt(self, found: Found, folder: str, suffix: str = "") -> str:
        """Return the path of the receipt for this version of a file, or of the note on its last stored line."""
        suffix = ".why" if folder == REFUSED else suffix
        return self.place.ours(folder, found.path, f".{found.short}{suffix}")

    def _is_known(self, found: Found) -> bool:
        """Return whether a file that is kept in place was received or refused before."""
        return any(self.place.read(self._receipt(found, folder)) for folder in (RECEIVED, REFUSED))

    def refuse(self, arrived: Arrived, why: str) -> bool:
        """Move a file below `.refused`, with a note that states the reason, at the first of its lines."""
        reading, *_ = self._of.pop(arrived.key)
        found = reading.found
        if found.path in self._done:
            return False
        self._done.add(found.path)
        try:
            note = f"{arrived.place}: {why}\n"
            if self.after == KEEP:
                self.place.note(self._receipt(found, REFUSED), note)
            elif (where := self.place.move(found, REFUSED)) is not None:
                self.place.note(f"{where}.why", note)
            self._forget(reading)
        except OSError as error:
            log.error("%s cannot be moved below %s: %s", ascii(found.path), REFUSED, error)
        return True

    def skip(self, arrived: Arrived, why: str) -> None:
        """Leave a file for a later run."""
        reading, *_ = self._of.pop(arrived.key)
        self._done.add(reading.found.path)
        self._full.add(arrived.origin)

    def close(self) -> None:
        """Note how far files were read by lines; raise `NotMoved` if received files could not be moved."""
        if self._source is not None:
            self._source.close()
        self._source = None
        begun, self._begun = self._begun, {}
        for found, mark in begun.items():
            try:
                self.place.note(self._receipt(found, *NOTE), mark)
            except OSError as error:
                # Keys know the lines for the ring's `key_window`.
                log.warning("cannot note how far %s was received: %s", ascii(found.path), error)
        count, first = self._not_moved, self._why_not
        self._not_moved, self._why_not = 0, ""
        if count:
            raise NotMoved(
                f"{many(count, 'received file')} could not be moved out of {self.place.name!r} (first: {first}): after "
                "the ring's key_window they would be received again; grant the right to rename and delete there, then "
                "retry"
            )

    def _arrivals(self) -> Generator[Arrived, None, None]:
        """Yield messages until a listing holds all files; origins take turns."""
        while True:
            listing = self._list()
            waiting = deque(deque(Reading(found, origin) for found in files) for origin, files in listing.by_origin())
            while waiting:
                files = waiting.popleft()
                yield from self._turn(files, alone=not waiting)
                if files:
                    waiting.append(files)
            if not listing.is_partial:
                self._seen = set()
                return

    def _list(self) -> Listing:
        """Return the files that were not read since the last complete listing."""
        self.unmatched, self.first_unmatched = 0, ""
        listing, still_there = Listing(), set()
        for found in self.place.files(self.settle):
            matched = self._pattern.fullmatch(found.path)
            if matched is None or matched["origin"] is None:
                self.first_unmatched = self.first_unmatched or found.path
                self.unmatched += 1
            elif found in self._seen:
                still_there.add(found)
            elif found.path not in self._done:
                listing.add(matched["origin"], found)
        self._seen, self.unreadable = still_there, self.place.unreadable
        return listing

    def _turn(self, files: deque[Reading], alone: bool) -> Iterator[Arrived]:
        """Yield an origin's messages until its turn ends; the rest stays in `files`."""
        count = size = 0
        while files and (alone or (count < TURN and size < TURN_BYTES)):
            reading = files[0]
            with closing(self._of_file(reading)) as arrivals:
                for message in arrivals:
                    count, size = count + 1, size + message.size
                    yield message
                    if not alone and (count >= TURN or size >= TURN_BYTES):
                        break
                else:
                    reading.is_done = True
            if reading.is_done:
                files.popleft()
                self._seen.add(reading.found)

    def _of_file(self, reading: Reading) -> Generator[Arrived, None, None]:
        found = reading.found
        try:
            if found.path in self._done or (self.after == KEEP and not reading.number and self._is_known(found)):
                return
            if self.lines:
                yield from self._lines(reading)
            else:
                reading.is_done = True
                data = None
                if found.size <= INLINE and reading.origin not in self._full:
                    with self.place.stretch(found) as file:
                        data = file.read()
                yield self._arrived(reading, Line(0, 0, found.size, data), is_last=True)
        except (Changed, FileNotFoundError):
            self._forget(reading)
            log.info("%s changed while it was read; it is left for the next run", ascii(found.path))
        except OSError as error:
            if not is_unreadable(error):
                raise
            key = self._key(found)
            self._of[key] = reading, reading.fetched, "", True
            # Its content is this error: a receiver leaves the file for a later run, when it may be readable.
            yield Arrived(key, reading.origin, None, found.path, content=partial(_denied, error), size=1)

    def _key(self, found: Found, *more: str) -> str:
        return key_for("landing", self.place.name, found.path + "@" + found.stamp, *more)

    def _lines(self, reading: Reading) -> Iterator[Arrived]:
        found = reading.found
        with self.place.open(found) as file, changed_meanwhile(lambda: self.place.is_same(found, file)):
            if not reading.number:
                self._resume(reading, file)
            file.seek(reading.offset)
            for line in () if reading.waiting and reading.waiting.unfit else read_lines(file, reading):
                if found.path in self._done:
                    return
                if not line.length:
                    continue
                before, reading.waiting = reading.waiting, line
                if before is not None:
                    yield self._arrived(reading, before)
                if line.unfit:
                    break
            if not self.place.is_same(found, file):
                raise Changed()
            reading.is_done = True
            yield self._arrived(reading, reading.waiting or Line(1, 0, 0, b""), is_last=True)

    def _resume(self, reading: Reading, file: IO[bytes]) -> None:
        """Go to the end of the line that an earlier run noted, unless the file has other content up to there."""
        reading.noted = self.place.read(self._receipt(reading.found, *NOTE))
        if reading.noted and any(line.mark == reading.noted for line in read_lines(file, reading)):
            reading.fetched = reading.stored = reading.noted
        else:
            reading.offset = reading.number = reading.check = 0

    def _arrived(self, reading: Reading, line: Line, *, is_last: bool = False) -> Arrived:
        """Return a line of a file as a message, or with the number 0 the whole file.

        :param is_last: the file is stored completely once this message is
        """
        found = reading.found
        number = [str(line.number)] if line.number else []
        key = self._key(found, *number)
        self._of[key] = reading, reading.fetched, line.mark, is_last
        reading.fetched = line.mark
        content = None if line.data is not None else partial(self.place.stretch, found, line.start, line.length)
        headers = {"path": text_of(found.path), **({"line": number[0]} if number else {})}
        return Arrived(
            key, reading.origin, line.data, ":".join((found.path, *number)), headers, content, line.length, line.unfit,
            replaceable=True,
        )  # fmt: skip


def _denied(error: OSError) -> IO[bytes]:
    raise error


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
