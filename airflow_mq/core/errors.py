"""Everything this package raises on purpose.

The tree::

    MessageQueueError
    ├── InvalidInput (ValueError)      what was asked for makes no sense
    │   ├── InvalidMessage
    │   │   ├── EmptyMessage
    │   │   └── MessageTooLong
    │   ├── InvalidOrigin
    │   ├── InvalidWeight
    │   ├── InvalidOutcome
    │   ├── ConnectionUnfit
    │   └── ConfigRefused
    ├── Refused                        the contract says no; nothing was changed
    │   ├── RecursiveDisallowed
    │   ├── QueuePaused
    │   ├── NotFound
    │   │   ├── NoPage
    │   │   ├── NoMessage
    │   │   └── Queued
    │   ├── AlreadyProcessed
    │   ├── InsufficientWeight
    │   ├── TemporarilyUnprocessable
    │   ├── NotReapable
    │   ├── Busy
    │   ├── InFlight
    │   ├── KeyConflict
    │   ├── UnknownRing
    │   ├── RingExists
    │   ├── NotPermitted
    │   ├── TooManyOrigins
    │   ├── UnknownBlock
    │   ├── BlobMissing
    │   ├── UploadGivenUp
    │   ├── AlreadyExecuted
    │   └── TokenRefused
    ├── ProcessorError                 raised by processors, with a text that may be kept
    └── StoreError                     the place where the queue is kept
        ├── AddressRefused
        ├── NetworkFileSystem
        ├── SchemaMissing
        │   └── StoreMissing
        ├── SchemaTooOld
        ├── SchemaTooNew
        ├── StoreUnreachable
        ├── StoreReplaced
        ├── StoreBusy
        ├── StoreFull
        ├── StoreReadOnly
        ├── StoreCorrupt
        └── CommitInDoubt

A message always names the facts and what to do next. The default text of an error
is the first line of its docstring.
"""

from __future__ import annotations


class MessageQueueError(Exception):
    """Something went wrong in the message queue."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").partition("\n")[0])


class InvalidInput(MessageQueueError, ValueError):
    """What was asked for makes no sense."""


class InvalidMessage(InvalidInput):
    """A message that no queue takes."""


class EmptyMessage(InvalidMessage):
    """A message has at least one byte; put the absence of content into the content."""


class MessageTooLong(InvalidMessage):
    """A message is longer than a page of its ring can hold."""

    def __init__(self, length: int, most: int) -> None:
        super().__init__(
            f"a message of {length:,} bytes is longer than the {most:,} bytes that a page of this "
            "ring holds; enlarge the ring's heap_size, or keep it apart: enqueue_blob, `airflow-mq enqueue --blob`"
        )
        self.length, self.most = length, most


class InvalidOrigin(InvalidInput):
    """An origin is text of 1 to 255 bytes of UTF-8 without control characters."""


class InvalidWeight(InvalidInput):
    """A weight is two whole numbers, time and size, each from 0 to 2**64 - 1."""


class InvalidOutcome(InvalidInput):
    """A processor's answer is not an outcome that can be stored. The text never quotes a message."""


class ConnectionUnfit(InvalidInput):
    """A command cannot be executed on this connection."""


class ConfigRefused(InvalidInput):
    """A ring cannot be configured like this."""


class Refused(MessageQueueError):
    """The queue says no, and nothing was changed."""


class RecursiveDisallowed(Refused):
    """A processor may enqueue, and nothing else; do this outside of it."""


class QueuePaused(Refused):
    """The queue is paused; resume it first."""


class NotFound(Refused):
    """There is no message that could be executed at this address."""


class NoPage(NotFound):
    """There is no such page; it was never opened, or is gone."""


class NoMessage(NotFound):
    """There is no message with this index in the page."""


class Queued(NotFound):
    """The message is still queued; it will be tried in its turn."""


class AlreadyProcessed(Refused):
    """The message was already processed."""


class InsufficientWeight(Refused):
    """The weight limit does not pay for this message; give it more."""


class TemporarilyUnprocessable(Refused):
    """The processor cannot take this message now; try again later."""


class NotReapable(Refused):
    """The page still holds messages that the queue has to keep."""


class Busy(Refused):
    """Somebody else services this ring; try again when they are done."""


class InFlight(Busy):
    """A block that has not settled yet holds messages of this queue."""


class KeyConflict(Refused):
    """This idempotency key was used for another message of the same origin."""


class UnknownRing(Refused):
    """There is no ring of this name in the store."""


class RingExists(Refused):
    """There is a ring of this name already."""


class NotPermitted(Refused):
    """The connection does not permit to send like this; nothing was sent.

    `safe` is the part of the text that does not quote what was sent.
    """

    def __init__(self, message: str | None = None, safe: str = "") -> None:
        super().__init__(message)
        self.safe = safe


class TooManyOrigins(Refused):
    """The ring takes no further origins now; nothing was sent."""


class UnknownBlock(Refused):
    """There is no such block in this ring."""


class BlobMissing(Refused):
    """The payload that a message refers to is not there; upload it again, or restore it from a backup."""

    def __init__(self, hash_: bytes) -> None:
        super().__init__(
            f"there is no payload {hash_.hex()} in this store: it was never uploaded, or nobody referred to it "
            "any more; upload it again"
        )
        self.hash = hash_

    def __reduce__(self) -> tuple[type[BlobMissing], tuple[bytes]]:
        return type(self), (self.hash,)


class UploadGivenUp(Refused):
    """The upload was idle for longer than the ring's keep_uploads, and is gone; begin it again."""


class AlreadyExecuted(Refused):
    """A command is executed once; make another one."""


class TokenRefused(Refused):
    """The block is not the caller's any more: it was settled or released."""


class ProcessorError(MessageQueueError):
    """The processor failed on this message; it will be tried again.

    For processors to raise, or to derive errors from: the text is stored with the event and shown, so it must not
    quote the message. Of any other exception that a processor raises, only the type is kept.
    """


class StoreError(MessageQueueError):
    """The store cannot be used as asked."""


class AddressRefused(StoreError, ValueError):
    """This is not an address of a store."""


class NetworkFileSystem(StoreError):
    """SQLite loses data on network file systems; use a local disk, or PostgreSQL."""


class SchemaMissing(StoreError):
    """The store has no schema yet; run `airflow-mq store upgrade`."""


class StoreMissing(SchemaMissing):
    """The file of the SQLite store does not exist; correct its path, or make a store by `airflow-mq store upgrade`."""


class SchemaTooOld(StoreError):
    """The store's schema is older than this version expects; run `airflow-mq store upgrade`."""


class SchemaTooNew(StoreError):
    """The store's schema is newer than this version knows; upgrade airflow-mq here."""


class StoreUnreachable(StoreError):
    """The store does not answer; nothing was changed."""


class StoreReplaced(StoreError):
    """The SQLite file is not the one that was opened; put the right file there, then open the queue anew."""


class StoreBusy(StoreError):
    """The database stayed locked for longer than the busy timeout; nothing was changed."""


class StoreFull(StoreError):
    """The disk of the store is full; nothing was changed; make room, then try again."""


class StoreReadOnly(StoreError):
    """The store cannot be written by this user."""


class StoreCorrupt(StoreError):
    """What is stored cannot be read back; run `airflow-mq check`."""


class CommitInDoubt(StoreError):
    """The connection was lost while committing, which may or may not have happened; repeat the call with its key.

    Without an idempotency key look before you repeat the call.
    """
