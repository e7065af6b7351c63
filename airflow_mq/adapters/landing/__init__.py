"""Landing adapter: enqueue each new file of a folder, or of a prefix of an object store, once.

    receive(queue, LandingFolder("/data/landing", "{origin}/*.json"))
    receive(queue, LandingPrefix(fsspec.filesystem("s3"), "bucket/landing", "{origin*}/*.csv", lines=True))

The pattern matches the path below the folder and takes the origin from it: `{origin}` is one part of the path,
`{origin*}` one or more. `*` and `?` match within a part, `**` matches anything. A regular expression with a group
`origin` can be given instead.

A file is a message, or each of its lines is one. It is received once: its key is its path, its modification time (or
the tag that an object store gives it) and its size. When the queue has stored it, it is moved below `.received`,
deleted, or kept in place with a receipt below `.received`. A file that can never be a message is moved below
`.refused`, with a note beside it that states the reason. Such an error concerns that file only: the run goes on with
the others. A file that cannot be read now, for lack of permission or because of an error of the file itself, stays in
place for a later run, and so do later files of its origin.

A run that ends within a file that is read by lines, because of a full queue or `most`, notes the last stored line below
`.received`. The next run continues after that line, even after the ring's `key_window`.

Origins take turns, so that many files of one do not delay the single file of another. Within an origin, files are
received in the order of their names. Folders more than 128 deep and paths of more than 4,096 bytes are left alone.

Files whose names begin with `.` or `_`, or end in `.tmp`, `.part` or similar, are left alone. So are files that changed
within the last seconds (`settle`). A sender writes a file best under such a name and renames it afterwards. Nothing
outside of the folder is read or written: links are not followed, and no name leads out of it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from typing_extensions import Unpack

from ..versions import Versions, protocols_of, versions_of
from .folder import LocalPlace
from .place import Found, Place
from .prefix import ObjectPlace
from .source import KEEP, MOVE, Landing, LandingOptions, NotMoved, origin_pattern

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

__all__ = [
    "Found",
    "Landing",
    "LandingFolder",
    "LandingOptions",
    "LandingPrefix",
    "NotMoved",
    "Place",
    "origin_pattern",
]


class LandingFolder(Landing):
    """New files of a folder of this machine, as messages."""

    def __init__(
        self, folder: str | os.PathLike[str], pattern: str | None = None, **options: Unpack[LandingOptions]
    ) -> None:
        super().__init__(LocalPlace(folder), pattern, **options)


class LandingPrefix(Landing):
    """New files below a prefix of an object store, as messages.

    Senders may write an object again at any time, so the store must delete the version that was received and no other.
    `move` and `delete` are refused for a store that cannot do that.
    """

    def __init__(
        self,
        files: AbstractFileSystem,
        prefix: str,
        pattern: str | None = None,
        *,
        versions: Versions | None = None,
        **options: Unpack[LandingOptions],
    ) -> None:
        # A local folder given by an address is still a folder, with links that lead out of it.
        local = "file" in protocols_of(files)
        place = LocalPlace(files._strip_protocol(prefix)) if local else ObjectPlace(files, prefix, versions)
        super().__init__(place, pattern, **options)
        if isinstance(place, ObjectPlace) and options.get("after", MOVE) != KEEP and versions is None:
            place.versions = versions_of(files, place.prefix)
