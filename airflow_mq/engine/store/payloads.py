"""Repository of external payloads: blobs, their uploads and uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .primitives import Repository, columns
from .rows import LATEST


class BlobRow(NamedTuple):
    """A blob, with its uses."""

    hash: str
    size: int
    #: The file, if it has one.
    path: str
    at: int
    #: Messages that refer to it, and the end of its longest hold.
    references: int
    held_until: int | None
    #: Uses of both kinds, ended ones included.
    uses: int
    #: Bytes in chunks, where they were counted.
    stored: int


class Payloads(Repository):
    """External payloads of the store. A hash is hexadecimal text here."""

    __slots__ = ()

    # Uploads.

    def begin_upload(self, id_: int, until: int, path: str) -> None:
        """Begin an upload into a file, or into chunks if the path is empty."""
        self.unit.run("insert_upload", id=id_, until=until, path=path)

    def renew_upload(self, id_: int, until: int, now: int) -> bool:
        """Extend an upload; return whether it has not expired."""
        return bool(self.unit.run("set_upload", id=id_, until=until, since=now + 1, last=LATEST))

    def insert_chunks(self, upload: int, first: int, chunks: Sequence[bytes]) -> None:
        """Write chunks of an upload, numbered from `first`."""
        self.unit.run("insert_chunk", columns(("seq", "data"), enumerate(chunks, first)), upload=upload)

    def end_upload(self, id_: int, *, kept: bool) -> None:
        """End an upload: it became a blob (`kept`) or is abandoned."""
        self.unit.run("set_upload", id=id_, until=None if kept else 0, since=-LATEST, last=2 * LATEST - 1)

    def past_uploads(self, now: int, most: int = LATEST) -> list[tuple[int, str, int]]:
        """Return abandoned and expired uploads, with the file of those in files, and how often it was not deleted.

        That number is below 0 for an upload that nothing has abandoned.

        :param most: the most uploads; a limit excludes those whose file was not deleted before
        """
        rows = self.unit.rows("past_uploads", since=0 if most < LATEST else -LATEST, now=now, limit=most)
        return [(upload, path, -until) for upload, path, until in rows]

    def abandon(self, id_: int, failures: int, now: int) -> bool:
        """Abandon an expired upload, with how often its file was not deleted; return whether it has expired."""
        return bool(self.unit.run("set_upload", id=id_, until=-failures, since=-LATEST, last=now))

    def delete_chunks(self, upload: int, limit: int) -> int:
        """Delete some chunks of an abandoned upload; return how many."""
        return self.unit.run("delete_chunks", upload=upload, limit=limit)

    def delete_upload(self, id_: int, now: int) -> None:
        """Delete an abandoned upload without chunks."""
        self.unit.run("delete_upload", id=id_, now=now)

    # Blobs.

    def insert(self, hash_: str, size: int, upload: int, now: int, *, lost: int | None = None) -> bool:
        """Turn an upload into the blob of its hash; return whether there was none, or one with a lost upload."""
        return bool(self.unit.run("insert_blob", hash=hash_, size=size, upload=upload, now=now, lost=lost))

    def blob(self, hash_: str) -> tuple[int, int, str] | None:
        """Return the size of a blob, its upload, and its file if it has one."""
        rows = self.unit.rows("blob", hash=hash_)
        return rows[0] if rows else None

    def chunk(self, upload: int, seq: int) -> bytes | None:
        rows = self.unit.rows("chunk", upload=upload, seq=seq)
        return bytes(rows[0][0]) if rows else None

    def blobs(self, now: int, after: str = "", limit: int = LATEST, *, counted: bool = False) -> list[BlobRow]:
        """Return blobs in order of hashes, after a hash.

        :param counted: count the bytes of their chunks
        """
        rows = self.unit.rows("blobs", after=after, limit=limit, now=now, counted=counted)
        return [BlobRow(*row) for row in rows]

    # Uses.

    def hold(self, id_: int, hash_: str, until: int) -> bool:
        """Keep a blob until a time; return whether it exists."""
        return bool(self.unit.run("hold_blob", id=id_, hash=hash_, until=until))

    def shared(self, hashes: Sequence[str]) -> set[str]:
        """Return which of these blobs exist; they stay until the transaction ends."""
        return {hash_ for (hash_,) in self.unit.rows("share_blobs", {"hash": hashes})}

    def release(self, places: Sequence[tuple[int, int]]) -> None:
        """End the uses of blobs by deleted messages: inbox row, and place in it. A hold is a row, and has place 0."""
        self.unit.put("release_blobs", columns(("inbox_row", "place"), places))

    def uses(self) -> dict[tuple[int, int], tuple[str, int | None, bool]]:
        """Return every use by inbox row and place: the hash, the end of a hold, and whether the row exists."""
        return {(row_id, place): (*use,) for row_id, place, *use in self.unit.rows("all_uses")}

    def locked(self, now: int, limit: int) -> list[str]:
        """Lock and return blobs with a use that has ended, and that no transaction is about to use."""
        return [hash_ for (hash_,) in self.unit.rows("lock_blobs", now=now, limit=limit)]

    def delete_unused(self, hashes: Sequence[str], now: int) -> list[int]:
        """Delete the ended uses of locked blobs, and the blobs that have none left; return their uploads."""
        self.unit.run("delete_past_uses", {"hash": hashes}, now=now)
        return [upload for (upload,) in self.unit.rows("delete_unused_blobs", {"hash": hashes})]
