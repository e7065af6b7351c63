"""Jars for tests, fetched once into the user's cache.

They come from Maven Central, from `MAVEN_REPOSITORY`, or from the mirror in Maven's own settings. Those in Maven's local
repository are copied from there.
"""

from __future__ import annotations

import hashlib
import os
import time
import urllib.request
import uuid
import xml.etree.ElementTree as ElementTree
from contextlib import suppress
from pathlib import Path

CENTRAL = "https://repo.maven.apache.org/maven2"


def fetch_jar(folder: Path, path: str, checksum: str) -> Path:
    """Return a jar of a folder; fetch it unless it is there, and require its SHA-256."""
    jar = folder / path.rpartition("/")[2]
    if jar.exists() and _sum(jar.read_bytes()) == checksum:
        return jar
    data = _local(path) or _fetched(f"{_repository()}/{path}")
    if _sum(data) != checksum:
        raise RuntimeError(f"{path} has not the checksum that it should have; is the mirror sound?")
    # Written beside it and put in its place at once: other processes fetch at the same time.
    beside = jar.with_suffix(f".{os.getpid()}-{uuid.uuid4().hex}")
    beside.write_bytes(data)
    os.replace(beside, jar)
    return jar


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _local(path: str) -> bytes | None:
    with suppress(OSError):
        return (Path.home() / ".m2" / "repository" / path).read_bytes()
    return None


def _fetched(address: str) -> bytes:
    for attempt in range(4):
        try:
            with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310 - a repository that was configured
                data: bytes = answer.read()
                return data
        except OSError:
            if attempt == 3:
                raise
            time.sleep(2**attempt)
    raise AssertionError


def _repository() -> str:
    return (os.environ.get("MAVEN_REPOSITORY") or _mirror() or CENTRAL).rstrip("/")


def _mirror() -> str | None:
    with suppress(OSError, ElementTree.ParseError):
        for mirror in ElementTree.parse(Path.home() / ".m2" / "settings.xml").iter():  # noqa: S314 - the user's own
            if mirror.tag.rpartition("}")[2] == "mirror":
                said = {child.tag.rpartition("}")[2]: (child.text or "").strip() for child in mirror}
                if {"*", "central", "external:*"} & set(said.get("mirrorOf", "").split(",")) and said.get("url"):
                    return said["url"]
    return None
