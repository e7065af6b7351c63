"""Object store in memory with versions, in place of S3."""

from __future__ import annotations

from typing import Any

from fsspec import AbstractFileSystem

from airflow_mq.adapters.versions import Versions, version_tag


class MemoryVersions(Versions):
    """Objects of the in-memory file system of `fsspec`, copied and deleted by version."""

    def __init__(self, files: AbstractFileSystem) -> None:
        self.fs: Any = files

    def copy(self, path: str, version: str, to: str) -> bool:
        file = self._file(path, version)
        if file is not None:
            self.fs.pipe_file(to, file.getvalue())
        return file is not None

    def delete(self, path: str, version: str) -> bool:
        file = self._file(path, version)
        if file is None:
            return False
        taken = self.fs.store.pop(path, None)
        if taken is not None and taken is not file:
            self.fs.store.setdefault(path, taken)
        return taken is file

    def _file(self, path: str, version: str) -> Any:
        file = self.fs.store.get(path)
        is_same = file is not None and version_tag({"created": file.created, "size": file.size}) == version
        return file if is_same else None
