"""External payloads: upload, reading, and removal of unused ones.

Each upload writes a few chunks per short transaction, so that senders of the same payload never wait for each other.
The first complete upload becomes the blob of its hash; the others are deleted. Triggers keep the uses of a blob in
step with the messages that refer to it (see the migration). The sweep finds unused blobs by their ended uses, and
abandoned bytes by their upload.
"""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from typing import IO, Any

from ..rules.blob import MOST_BLOB_BYTES, Reference
from ..rules.errors import (
    BlobMissing,
    ConfigRefused,
    EmptyMessage,
    InvalidMessage,
    MessageQueueError,
    Refused,
    StoreCorrupt,
    StoreError,
    StoreUnreachable,
    UploadGivenUp,
)
from . import codec
from .blob_files import ROOTS, BlobFile, fresh_name, is_below, named_roots
from .store import AnyStore
from .unit import Unit

log = logging.getLogger("airflow_mq.payloads")

#: Bytes of a chunk, and how many of them one transaction writes.
CHUNK = 1 << 20
TOGETHER = 4
#: Blobs per transaction of the sweep, and chunks that it deletes.
SWEPT, REMOVED = 100, 64


class Upload:
    """An external payload that is being uploaded.

    :param keep: seconds until it expires, counted from the last piece, until a message refers to it
    :param folder: folder of its file; without one its bytes are stored in the database
    """

    def __init__(self, store: AnyStore, keep: float, folder: str | None) -> None:
        self.store, self.keep = store, int(keep * 1_000_000)
        self.size = 0
        self._path = fresh_name(folder) if folder else ""
        roots = named_roots()
        if folder and roots is not None and not is_below(self._path, roots):
            raise ConfigRefused(
                f"blob_path of the ring ({folder!r}) is not among the folders that {ROOTS} names: payload files are "
                "written nowhere else; change blob_path, or add it there"
            )
        self._file = BlobFile(self._path, store.filesystem_of) if folder else None
        self._digest = blake2b(digest_size=32)
        self._id: int | None = None
        self._seq = 0
        self._held = bytearray()
        #: Size and time at the last renewal.
        self._touched, self._at = 0, time.monotonic()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes, and write full chunks."""
        self.size += len(data)
        if self.size > MOST_BLOB_BYTES:
            raise InvalidMessage(
                f"a payload has at most {MOST_BLOB_BYTES:,} bytes; send it in parts, or a reference of your own"
            )
        self._digest.update(data)
        self._held += data
        while len(self._held) >= CHUNK * TOGETHER:
            self._write(self._next_chunks())

    def finish(self) -> tuple[Reference, int]:
        """Complete the blob; return its reference, and the hold that keeps it until a message refers to it."""
        if not self.size:
            raise EmptyMessage()
        rest = self._next_chunks()
        if self._file is not None:
            self._write(rest)
            with self.store.writing() as unit:
                self._touch(unit)
            self._file.finish()
            rest = []
        reference = Reference.of(self._digest.digest(), self.size)
        name = reference.hash.hex()
        with self.store.loose() as unit:
            blob, folder = unit.payloads.blob(name), self._path.rpartition("/")[0]
            lost = blob[1] if blob and not is_there(self.store, unit, reference, folder) else None
        with self.store.writing() as unit:
            id_, now = self._touch(unit)
            self._insert(unit, id_, rest)
            hold, payloads = unit.fresh_ids(1)[0], unit.payloads
            won = payloads.insert(name, self.size, id_, now, lost=lost)
            if won and lost is not None:
                payloads.end_upload(lost, kept=False)
            # A sweep may delete the earlier blob of this hash after it prevented the insert.
            while not payloads.hold(hold, name, now + self.keep):
                won = payloads.insert(name, self.size, id_, now)
            payloads.end_upload(id_, kept=won)
        if not won:
            remove_upload(self.store, id_, self._path)
        return reference, hold

    def drop(self) -> None:
        """Abandon the upload."""
        if self._file is not None:
            self._file.drop()
        if self._id is not None:
            with self.store.writing() as unit:
                blob = unit.payloads.blob(self._digest.hexdigest())
                if blob is not None and blob[1] == self._id:
                    # A commit in doubt took effect: these are the bytes of a stored payload.
                    return
                unit.payloads.end_upload(self._id, kept=False)
            remove_upload(self.store, self._id, self._path)

    def _next_chunks(self) -> list[bytes]:
        """Take the chunks of one transaction from the bytes that are not written yet."""
        with memoryview(self._held)[: CHUNK * TOGETHER] as view:
            chunks = [bytes(view[at : at + CHUNK]) for at in range(0, len(view), CHUNK)]
        del self._held[: CHUNK * TOGETHER]
        return chunks

    def _write(self, chunks: list[bytes]) -> None:
        if self._file is None:
            with self.store.writing() as unit:
                self._insert(unit, self._touch(unit)[0], chunks)
            return
        is_late = time.monotonic() - self._at > self.keep / 3e6
        if self._id is None or is_late or self.size - self._touched > CHUNK * REMOVED:
            # The row is written before the file, so that the sweep knows of every file.
            with self.store.writing() as unit:
                fresh, self._touched, self._at = self._id is None, self.size, time.monotonic()
                self._touch(unit)
            if fresh:
                try:
                    self._file.begin()
                except StoreUnreachable:
                    # There is no file to delete.
                    self._path = ""
                    raise
        for chunk in chunks:
            self._file.write(chunk)

    def _insert(self, unit: Unit, id_: int, chunks: list[bytes]) -> None:
        unit.payloads.insert_chunks(id_, self._seq, chunks)
        self._seq += len(chunks)

    def _touch(self, unit: Unit) -> tuple[int, int]:
        """Begin or extend the upload; return its id and the time."""
        now = unit.now()
        if self._id is None:
            self._id = unit.fresh_ids(1)[0]
            unit.payloads.begin_upload(self._id, now + self.keep, self._path)
        elif not unit.payloads.renew_upload(self._id, now + self.keep, now):
            raise UploadGivenUp()
        return self._id, now


def hold(store: AnyStore, reference: Reference, keep: float, folder: str | None) -> int | None:
    """Hold an existing blob; return the hold, or `None` if there is no such blob, or its bytes are gone.

    :param folder: folder into which the blob would be uploaded
    """
    with store.loose() as unit:
        if not is_there(store, unit, reference, folder or ""):
            return None
    with store.writing() as unit:
        id_, until = unit.fresh_ids(1)[0], unit.now() + int(keep * 1_000_000)
        return id_ if unit.payloads.hold(id_, reference.hash.hex(), until) else None


def release(store: AnyStore, hold: int) -> None:
    """End a hold, and sweep unused blobs. A hold that cannot be ended now ends by itself."""
    with suppress(StoreError, Refused):
        with store.writing() as unit:
            unit.payloads.release([(hold, 0)])
        sweep(store)


# -- reading --


class BlobReader(io.RawIOBase):
    """A file of an external payload; reading it from the first byte to the last verifies its hash."""

    def __init__(self, store: AnyStore, reference: Reference) -> None:
        super().__init__()
        self.store, self.reference = store, reference
        self._stored: BlobFile | None = None
        self._file: IO[bytes] | None = None
        self._place = 0
        self._chunk: tuple[int, bytes] = (-1, b"")
        self._digest = blake2b(digest_size=32)
        self._hashed = 0
        with store.loose() as unit:
            blob = unit.payloads.blob(reference.hash.hex())
            if blob is None or blob[0] != reference.size:
                raise BlobMissing(reference.hash)
            _, self._upload, path = blob
            self._stored = stored_file(store, unit, path) if path else None
        try:
            self._file = self._stored.open() if self._stored else None
        except FileNotFoundError:
            raise BlobMissing(reference.hash) from None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to another position."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self.reference.size}[whence]
        if start + offset < 0:
            raise ValueError("a payload has no bytes before its first")
        self._place = start + offset
        return self._place

    def readinto(self, buffer: Any) -> int:
        """Read at most the rest of a chunk."""
        seq, at = divmod(self._place, CHUNK)
        if self._place >= self.reference.size:
            return 0
        if self._chunk[0] != seq:
            self._chunk = seq, self._checked(seq, self._read(seq))
        piece = memoryview(self._chunk[1])[at : at + len(buffer)]
        buffer[: len(piece)] = piece
        self._place += len(piece)
        return len(piece)

    def close(self) -> None:
        """Close the underlying file."""
        if not self.closed and self._file is not None:
            self._file.close()
        super().close()

    def _read(self, seq: int) -> bytes:
        """Return a chunk, as it is stored."""
        if self._stored is not None and self._file is not None:
            with self._stored.reached():
                self._file.seek(seq * CHUNK)
                return self._file.read(CHUNK)
        with self.store.loose() as unit:
            chunk = unit.payloads.chunk(self._upload, seq)
        if chunk is None:
            raise BlobMissing(self.reference.hash, self.store.address)
        return chunk

    def _checked(self, seq: int, data: bytes) -> bytes:
        name, size = self.reference.hash.hex(), self.reference.size
        if len(data) != min(CHUNK, size - seq * CHUNK):
            raise StoreCorrupt(f"chunk {seq} of the payload {name} has {len(data):,} bytes; restore it from a backup")
        if seq == self._hashed:
            self._digest.update(data)
            self._hashed += 1
            if self._hashed * CHUNK >= size and self._digest.digest() != self.reference.hash:
                raise StoreCorrupt(f"the payload {name} is not what was stored; restore it from a backup")
        return data


def open_blob(store: AnyStore, reference: Reference) -> IO[bytes]:
    """Open an external payload for reading; raise `BlobMissing` if it does not exist."""
    return io.BufferedReader(BlobReader(store, reference), CHUNK)


def is_there(store: AnyStore, unit: Unit, reference: Reference, folder: str | None = None) -> bool:
    """Return whether a payload and its first piece exist; also `True` if its file cannot be checked now.

    :param folder: folder of new payloads, for a sender, who would replace the payload: a file that was cut counts as
        missing, and one in another folder that cannot be reached
    """
    blob = unit.payloads.blob(reference.hash.hex())
    if blob is None or blob[0] != reference.size:
        return False
    _, upload, path = blob
    if not path:
        return unit.payloads.chunk(upload, 0) is not None
    try:
        size = stored_file(store, unit, path).size()
        return size is not None and (folder is None or size == reference.size)
    except StoreUnreachable:
        # A sender must not replace a copy that others read, but another folder may never come back.
        return folder is None or is_below(path, [folder])
    except MessageQueueError:
        return True


def stored_file(store: AnyStore, unit: Unit, path: str) -> BlobFile:
    """Return the file that the store names for a payload; raise `StoreCorrupt` if this process must not use it.

    A user with write access to the payload tables could name any file there to have it read or deleted.
    """
    roots = named_roots()
    if roots is None:
        roots = frozenset(path for ring in unit.rings.all() for path in _paths_of(ring.config))
    if not is_below(path, roots):
        raise StoreCorrupt(
            f"a payload names the file {path[:200]!r}: expected 32 hexadecimal digits and '.blob' in one of the "
            f"folders {', '.join(sorted(roots)) or '(none)'}; nothing was read or removed. If the folder is right, add "
            f"it to blob_path of a ring, or to {ROOTS} where that is set"
        )
    return BlobFile(path, store.filesystem_of)


def _paths_of(config: Any) -> Iterator[str]:
    """Yield the folders that the settings of a ring name."""
    plain = codec.read_json(config)
    yield from (path for path in (plain.get("blob_path"), *plain.get("earlier_blob_paths", ())) if path)


# -- removing --


def sweep(store: AnyStore, most: int = SWEPT) -> int:
    """Delete unused blobs and abandoned uploads; return the number of deleted blobs.

    Each step is a short transaction that waits for no other, except that of a sender that completes a late upload; a
    blob that a transaction is about to use stays. After a file that cannot be deleted, the other files of its folder
    stay for housekeeping.

    :param most: abandoned uploads to delete: a sender does not wait for those of all others
    """
    deleted = 0
    while (count := _delete_unused(store)) is not None:
        deleted += count
    with store.loose() as unit:
        past = unit.payloads.past_uploads(unit.now(), most)
    counts: dict[int, int] = {}
    failed: set[str] = set()
    # In this order, a single file that cannot be deleted is not the first of its folder again.
    for upload, path, failures in sorted(past, key=lambda row: row[2]):
        if failures < 0:
            # Its sender may have completed it meanwhile, or be about to commit that.
            with store.writing() as unit:
                if not unit.payloads.abandon(upload, 0, unit.now()):
                    continue
        folder, count = path.rpartition("/")[0], max(failures, 1)
        if folder not in failed:
            # An upload that names a foreign file stays: the check reports it.
            with suppress(StoreCorrupt):
                if remove_upload(store, upload, path):
                    continue
            failed.add(folder)
            count += 1
        if count != failures:
            counts[upload] = count
    if counts:
        with store.writing() as unit:
            for upload, count in sorted(counts.items()):
                unit.payloads.abandon(upload, count, unit.now())
    return deleted


def _delete_unused(store: AnyStore) -> int | None:
    """Delete some unused blobs; return their number, or `None` if there are no more that can be deleted now."""
    with store.loose() as unit:
        # A look without a transaction waits for no other writer, and mostly finds none.
        if not unit.payloads.locked(unit.now(), SWEPT):
            return None
    with store.writing() as unit:
        locked = unit.payloads.locked(unit.now(), SWEPT)
        # Read uses only after locking the blobs, so that new uses count.
        uploads = unit.payloads.delete_unused(locked, unit.now())
        for upload in uploads:
            unit.payloads.end_upload(upload, kept=False)
    return len(uploads) if locked else None


def remove_upload(store: AnyStore, upload: int, path: str) -> bool:
    """Delete the bytes of an abandoned upload in small transactions, then the upload; return whether it is deleted.

    An upload whose file cannot be deleted stays for a later sweep: the folder of one ring concerns no other ring.
    """
    if path:
        with store.loose() as unit:
            file = stored_file(store, unit, path)
        try:
            file.remove()
        except Exception as error:  # Each file system has its own errors.
            log.warning("could not delete %s (%s); a later sweep tries again", path, type(error).__name__)
            return False
    more = not path
    while more:
        with store.writing() as unit:
            more = unit.payloads.delete_chunks(upload, REMOVED) == REMOVED
    with store.writing() as unit:
        unit.payloads.delete_upload(upload, unit.now())
    return True
