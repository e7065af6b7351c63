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
from http.client import HTTPException
from pathlib import Path

CENTRAL = "https://repo.maven.apache.org/maven2"


def fetch_jar(folder: Path, path: str, checksum: str) -> Path:
    """Return a jar of a folder; fetch it unless it is there, and require its SHA-256."""
    jar = folder / path.rpartition("/")[2]
    if jar.exists() and _sum(jar.read_bytes()) == checksum:
        return jar
    data = _local(path)
    if data is None or _sum(data) != checksum:
        data = _fetched(f"{_repository()}/{path}", checksum)
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


def _fetched(address: str, checksum: str) -> bytes:
    """Fetch a file; try again if the repository fails or returns something else."""
    problem: Exception | None = None
    for attempt in range(6):
        if attempt:
            time.sleep(2**attempt)
        try:
            with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310 - a repository that was configured
                data: bytes = answer.read()
        except (OSError, HTTPException) as error:
            problem = error
            continue
        if _sum(data) == checksum:
            return data
        problem = ValueError("it has not the checksum that it should have; is the mirror sound?")
    raise RuntimeError(f"could not fetch {address}: {problem}") from problem


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
