"""Names of files in a landing place: hidden ones, texts, digests and shortened names."""

from __future__ import annotations

import hashlib
import re

#: Limits in bytes of a file's name, and of an object's.
LONGEST_NAME, LONGEST_KEY = 255, 1_024
_HIDDEN = (".", "_")
_UNFINISHED = (".tmp", ".temp", ".part", ".partial", ".crdownload", ".filepart", ".inprogress", ".lock", "~")


def is_left_alone(name: str) -> bool:
    """Return whether a file or folder of this name is hidden, unfinished, or the file system's own."""
    return name.startswith(_HIDDEN) or name == "lost+found" or name.lower().endswith(_UNFINISHED)


def text_of(path: str) -> str:
    """Return a path as valid text; bytes that are not UTF-8 are escaped."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def bytes_of(text: str) -> int:
    """Return the length of a path or name in bytes."""
    return len(text.encode("utf-8", "surrogateescape"))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def shortened(name: str, suffix: str, most: int) -> str:
    """Return a name with a suffix in at most this many bytes; a name that is too long is cut and gets its hash."""
    if bytes_of(name + suffix) <= most:
        return name + suffix
    suffix = f"~{digest(name)}{suffix}"
    end = ".why" if name.endswith(".why") else ""
    cut = name.encode("utf-8", "surrogateescape")[: most - bytes_of(suffix + end)].decode("utf-8", "surrogateescape")
    # A character that was cut through is not text any more.
    return re.sub("[\udc80-\udcff]{1,3}$", "", cut) + suffix + end
