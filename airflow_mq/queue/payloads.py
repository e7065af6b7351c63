"""Payloads larger than a page: uploaded once, referred to by messages, read piece by piece."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, Protocol

from ..core.blob import Reference
from ..core.errors import BlobMissing, EmptyMessage, InvalidInput, MessageQueueError
from ..core.message import Message, check_number
from ..core.weight import Weight
from ..store import Store
from ..store.blobs import CHUNK, Upload, hold, open_blob, release
from ..store.blobs import sweep as sweep_store
from .sending.call import When
from .sending.sender import Sender
from .session import RingSession, current_delivery
from .values import Delivery, Enqueued, Peeked, moment


class Opens(Protocol):
    """A path of an object store: one of `universal_pathlib`, or Airflow's `ObjectStoragePath`."""

    def open(self, mode: str) -> Any:
        """The file, to read from."""


#: What a payload is read from: bytes, a file by its path, an open file, or an iterator of chunks.
Source = bytes | bytearray | memoryview | os.PathLike[str] | Opens | IO[bytes] | Iterable[bytes]
#: Called now and then with the bytes that were read, and how many there will be, where that is known.
Progress = Callable[[int, int | None], object]


@dataclass(frozen=True)
class StoredBlob:
    """An external payload."""

    hash: bytes
    size: int
    #: How many messages refer to it.
    references: int
    #: Until when it is kept for whoever uploaded it.
    held_until: datetime | None
    at: datetime
    #: Seconds since it was uploaded.
    age: float
    #: The file in which it lies; nothing, where it is in the database.
    path: str | None

    @property
    def reference(self) -> Reference:
        """What a message carries to refer to it."""
        return Reference.of(self.hash, self.size)


class Held:
    """A payload that was uploaded, and is kept for a while until messages refer to it."""

    def __init__(self, store: Store[Any], reference: Reference, hold: int) -> None:
        self.reference, self._store, self._hold = reference, store, hold

    @property
    def hash(self) -> bytes:
        """Its name, and that of the messages that refer to it."""
        return self.reference.hash

    @property
    def size(self) -> int:
        """How large it is."""
        return self.reference.size

    def message(
        self, key: str | None = None, weight: Weight | None = None, headers: Mapping[str, str] | None = None,
        priority: str | None = None,
    ) -> Message:  # fmt: skip
        """A message that refers to it."""
        return Message.of_blob(self.reference, key, weight, headers, priority)

    def release(self) -> None:
        """Keep it for messages only: without any, it goes at once."""
        release(self._store, self._hold)

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


class Payloads:
    """External payloads: stored once outside of pages, referred to by messages."""

    def __init__(self, session: RingSession, sender: Sender) -> None:
        self.session, self.store, self._sender = session, session.store, sender

    def put(self, source: Source, *, progress: Progress | None = None) -> Held:
        """Store a payload, whatever its size, and hold it until messages refer to it.

        It is read once, in chunks, and no more than a few of them are in memory. What is there already is not
        stored again; two senders of the same payload do not wait for each other. Without a message it is kept for
        the ring's `keep_uploads`, or until the end of a `with` statement. ::

            with queue.payloads.put(Path("orders.parquet")) as blob:
                queue.enqueue_messages([("acme", blob.message()), ("birch", blob.message())])
        """
        keep = self.session.config.keep_uploads
        known = _reference_to(source)
        if known is not None:
            holding = hold(self.store, known, keep)
            if holding is not None:
                if progress:
                    progress(known.size, known.size)
                return Held(self.store, known, holding)
        total = known.size if known else None
        upload = Upload(self.store, keep, self.session.config.blob_path)
        try:
            for piece in _pieces(source):
                upload.write(piece)
                if progress:
                    progress(upload.size, total)
            return Held(self.store, *upload.finish())
        except BaseException:
            with suppress(MessageQueueError):
                upload.drop()
            raise

    def enqueue(
        self, origin: str, source: Source, *, key: str | None = None, weight: Weight | None = None,
        headers: Mapping[str, str] | None = None, not_before: When | None = None, expires: When | None = None,
        priority: str | None = None, progress: Progress | None = None,
    ) -> Enqueued:  # fmt: skip
        """Store a payload as `put` does, and enqueue one message that refers to it."""
        origin = self.session.check_sender(origin)
        blob = self.put(source, progress=progress)
        message = blob.message(key, Weight.of(weight) if weight is not None else None, headers, priority)
        try:
            told = self._sender.enqueue_messages([(origin, message)], not_before=not_before, expires=expires)
        finally:
            # A processor's message is there only when it is done: until then the upload holds the payload.
            if current_delivery.get() is None:
                blob.release()
        return Enqueued(told.count, blob.size if told.count else 0, told.repeated)

    def open(self, blob: bytes | Reference | Held | StoredBlob | Delivery | Peeked | str) -> IO[bytes]:
        """An external payload, as a file to read from: by its hash, or by the message that refers to it.

        Raises `BlobMissing` if it is not there.
        """
        return open_blob(self.store, self._reference(blob))

    def _reference(self, blob: Any) -> Reference:
        said = getattr(blob, "payload", None) or getattr(blob, "reference", None) or blob
        if isinstance(said, Reference):
            return said
        try:
            hash_ = bytes.fromhex(said) if isinstance(said, str) else said
        except ValueError:
            hash_ = b""
        if not isinstance(hash_, bytes) or len(hash_) != 32:
            raise InvalidInput("an external payload is named by its hash, 32 bytes or 64 hexadecimal digits")
        with self.store.loose() as unit:
            blob = unit.payloads.blob(hash_.hex())
        if blob is None:
            raise BlobMissing(hash_)
        return Reference.of(hash_, blob.size)

    def list(self, after: bytes = b"", limit: int = 100) -> builtins.list[StoredBlob]:
        """The external payloads of this store by their hashes, so many at a time: go on after the last one."""
        check_number(limit, "a limit")
        with self.store.loose() as unit:
            now = unit.now()
            rows = unit.payloads.summaries(after.hex(), limit, now)
        return [
            StoredBlob(bytes.fromhex(hash_), size, references, None if held is None else moment(held), moment(at),
                       (now - at) / 1_000_000, path or None)
            for hash_, size, path, at, references, held in rows
        ]  # fmt: skip

    def sweep(self) -> int:
        """Remove payloads that nobody refers to, and uploads that were given up; tell how many payloads went."""
        self.session.refuse_nested()
        return sweep_store(self.store)


@contextmanager
def _rewound(file: IO[bytes]) -> Iterator[IO[bytes]]:
    place = file.tell()
    try:
        yield file
    finally:
        file.seek(place)


def _reference_to(source: Any) -> Reference | None:
    """What the hash of a source will be, where it can be read twice: then what is there need not be stored."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        data = bytes(source) if isinstance(source, memoryview) else source
        if not data:
            raise EmptyMessage()
        return Reference.of(blake2b(data, digest_size=32).digest(), len(data))
    if isinstance(source, os.PathLike):
        with open(source, "rb") as file:
            return _hash_file(file)
    if hasattr(source, "seekable") and source.seekable():
        with _rewound(source) as file:
            return _hash_file(file)
    return None


def _hash_file(file: IO[bytes]) -> Reference:
    digest, size = blake2b(digest_size=32), 0
    while data := file.read(CHUNK):
        digest.update(data)
        size += len(data)
    if not size:
        raise EmptyMessage()
    return Reference.of(digest.digest(), size)


def _pieces(source: Any) -> Iterator[bytes | memoryview]:
    """The bytes of a source, piece by piece."""
    known = isinstance(source, (Iterable, os.PathLike)) or hasattr(source, "read") or hasattr(source, "open")
    if isinstance(source, str) or not known:
        raise InvalidInput("a payload is bytes, a file, or an iterator of chunks; a path is a pathlib.Path")
    if isinstance(source, (bytes, bytearray, memoryview)):
        view = memoryview(source).cast("B")
        yield from (view[at : at + CHUNK] for at in range(0, len(view), CHUNK))
    elif isinstance(source, os.PathLike):
        with open(Path(source), "rb") as file:
            yield from _pieces(file)
    elif hasattr(source, "read"):
        while data := _checked(source.read(CHUNK)):
            yield data
    elif hasattr(source, "open"):
        with source.open("rb") as file:
            yield from _pieces(file)
    else:
        for piece in source:
            data = memoryview(_checked(piece)).cast("B")
            yield from (data[at : at + CHUNK] for at in range(0, len(data), CHUNK))


def _checked(piece: object) -> Any:
    if not isinstance(piece, (bytes, bytearray, memoryview)):
        raise InvalidInput(f"the chunks of a payload are bytes, not {type(piece).__name__}; open files in binary mode")
    return piece
