"""External payloads: uploaded once, referred to by messages, and read piece by piece."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from io import BytesIO
from typing import IO, Any, Protocol, TypeAlias

from typing_extensions import Unpack

from ..rules.blob import Reference
from ..rules.errors import BlobMissing, EmptyMessage, InvalidInput, MessageQueueError
from ..rules.message import Message, check_number
from ..store.blobs import CHUNK, Upload, hold, open_blob, release
from ..store.blobs import sweep as sweep_store
from ..store.rows import LATEST
from .context import delivery_at
from .sending.sender import Sender, SendOptions, SendTerms
from .session import RingSession
from .values import Delivery, Enqueued, Peeked, moment


class Opens(Protocol):
    """A path of an object store: one of `universal_pathlib`, or Airflow's `ObjectStoragePath`."""

    def open(self, mode: str) -> IO[bytes]:
        """Open the file for reading."""


#: Sources of a payload: bytes, a file by its path, an open file, or an iterator of chunks.
Source: TypeAlias = "bytes | bytearray | memoryview | os.PathLike[str] | Opens | IO[bytes] | Iterable[bytes]"
#: Called from time to time with the number of bytes that were read, and the total number if it is known.
Progress = Callable[[int, int | None], object]


@dataclass(frozen=True)
class StoredBlob:
    """An external payload."""

    hash: bytes
    size: int
    #: Number of messages that refer to it.
    references: int
    #: End of the hold of its uploader.
    held_until: datetime | None
    at: datetime
    #: Seconds since the upload.
    age: float
    #: Its file; None for a payload in the database.
    path: str | None

    @property
    def reference(self) -> Reference:
        """The reference that a message carries."""
        return Reference.of(self.hash, self.size)


class Held:
    """An uploaded payload, held for a while until messages refer to it."""

    def __init__(self, session: RingSession, reference: Reference, hold: int) -> None:
        #: The payload of a message that refers to it; its hash, which is the id of such messages; and its bytes.
        self.reference, self.hash, self.size = reference, reference.hash, reference.size
        self._session, self._hold = session, hold

    def release(self) -> None:
        """End the hold: a payload without messages is deleted at once.

        In a processor, the hold ends by itself: the messages that it sends are stored after its own message is done.
        """
        if delivery_at(self._session.place) is None:
            release(self._session.store, self._hold)

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


class Payloads:
    """External payloads: stored once outside of pages, referred to by messages."""

    def __init__(self, session: RingSession, sender: Sender) -> None:
        self.session, self.store, self._sender = session, session.store, sender

    def put(self, source: Source, *, progress: Progress | None = None) -> Held:
        """Store a payload of any size, and hold it until messages refer to it.

        The source is read in chunks; one that can be read twice is hashed first, because a stored payload is not stored
        again. Two senders of the same payload do not wait for each other. A payload without a message is kept for the
        ring's `keep_uploads`, or until the end of a `with` statement. ::

            with queue.payloads.put(Path("orders.parquet")) as blob:
                queue.enqueue_messages([("acme", blob.reference), ("birch", blob.reference)])
        """
        self.session.refresh_config()
        keep, folder = self.session.config.keep_uploads, self.session.config.blob_path
        known = _reference_to(source)
        if known is not None:
            holding = hold(self.store, known, keep, folder)
            if holding is not None:
                if progress:
                    progress(known.size, known.size)
                return Held(self.session, known, holding)
        total = known.size if known else None
        upload = Upload(self.store, keep, folder)
        try:
            for piece in _pieces(source):
                upload.write(piece)
                if progress:
                    progress(upload.size, total)
            return Held(self.session, *upload.finish())
        except BaseException:
            with suppress(MessageQueueError):
                upload.drop()
            raise

    def enqueue(
        self,
        origin: str,
        source: Source,
        *,
        key: str | None = None,
        progress: Progress | None = None,
        **options: Unpack[SendOptions],
    ) -> Enqueued:
        """Store a payload as `put` does, and enqueue one message that refers to it.

        The options are those of `enqueue_messages`.
        """
        origin, terms = self.session.check_sender(origin), SendTerms.of(options).checked(self.session)
        with self.put(source, progress=progress) as blob:
            return self._sender.enqueue_messages([(origin, Message(blob.reference, key))], None, terms)

    def open(self, blob: bytes | Reference | Held | StoredBlob | Delivery | Peeked | str) -> IO[bytes]:
        """Return a payload as a file: that of a message, in a page or external, or an external one by its hash.

        :raises BlobMissing: if it is not stored.
        """
        given = getattr(blob, "payload", None) or getattr(blob, "reference", None)
        if given and not isinstance(given, Reference):
            return BytesIO(given)
        return open_blob(self.store, given or self._reference(blob))

    def _reference(self, given: object) -> Reference:
        if isinstance(given, Reference):
            return given
        try:
            hash_ = bytes.fromhex(given) if isinstance(given, str) else given
        except ValueError:
            hash_ = b""
        if not isinstance(hash_, bytes) or len(hash_) != 32:
            raise InvalidInput("invalid hash of an external payload: expected 32 bytes or 64 hexadecimal digits")
        with self.store.loose() as unit:
            stored = unit.payloads.blob(hash_.hex())
        if stored is None:
            raise BlobMissing(hash_)
        size, _, _ = stored
        return Reference.of(hash_, size)

    def list(self, after: bytes = b"", limit: int = 100) -> builtins.list[StoredBlob]:
        """Return the external payloads of the store by hash, `limit` at a time; continue after the last one."""
        check_number(limit, "a limit")
        with self.store.loose() as unit:
            now = unit.now()
            rows = unit.payloads.blobs(now, after.hex(), limit)
        return [
            StoredBlob(
                hash=bytes.fromhex(hash_),
                size=size,
                references=references,
                held_until=None if held is None else moment(held),
                at=moment(at),
                age=(now - at) / 1_000_000,
                path=path or None,
            )
            for hash_, size, path, at, references, held, _, _ in rows
        ]

    def sweep(self) -> int:
        """Delete payloads without messages and abandoned uploads; return the number of deleted payloads."""
        self.session.refuse_nested()
        return sweep_store(self.store, LATEST)


def _reference_to(source: Any) -> Reference | None:
    """Return the reference to a source that can be read twice: a stored payload need not be uploaded."""
    is_file = hasattr(source, "seekable") and source.seekable()
    if not is_file and not isinstance(source, (bytes, bytearray, memoryview, os.PathLike)):
        return None
    if isinstance(source, os.PathLike) and not os.path.isfile(str(source)):
        return None
    place = source.tell() if is_file else 0
    digest, size = blake2b(digest_size=32), 0
    try:
        for piece in _pieces(source):
            digest.update(piece)
            size += len(piece)
    finally:
        if is_file:
            source.seek(place)
    if not size:
        raise EmptyMessage()
    return Reference.of(digest.digest(), size)


def _pieces(source: object) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a source, piece by piece."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        view = memoryview(source).cast("B")
        yield from (view[at : at + CHUNK] for at in range(0, len(view), CHUNK))
    elif hasattr(source, "read"):
        while data := _checked(source.read(CHUNK)):
            yield data
    elif hasattr(source, "open"):
        # Some paths of object storage are also paths of the operating system.
        with source.open("rb") as file:
            yield from _pieces(file)
    elif isinstance(source, os.PathLike):
        with open(source, "rb") as file:
            yield from _pieces(file)
    elif isinstance(source, Iterable) and not isinstance(source, str):
        for piece in source:
            data = memoryview(_checked(piece)).cast("B")
            yield from (data[at : at + CHUNK] for at in range(0, len(data), CHUNK))
    else:
        raise InvalidInput(
            f"invalid payload ({type(source).__name__}): expected bytes, a file, a path, or an iterator of chunks"
        )


def _checked(piece: object) -> bytes | memoryview:
    if not isinstance(piece, (bytes, bytearray, memoryview)):
        raise InvalidInput(f"invalid chunk ({type(piece).__name__}): expected bytes; open files in binary mode")
    return memoryview(piece) if isinstance(piece, bytearray) else piece
