"""Exceptions that this package raises on purpose.

An error text names the problem, the expected value and what to do next. The default text of an error is the first line
of its docstring, or its name if Python runs without docstrings.
"""

from __future__ import annotations


class MessageQueueError(Exception):
    """The message queue failed."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or type(self).__name__).partition("\n")[0])


class InvalidInput(MessageQueueError, ValueError):
    """The arguments are invalid; nothing was changed."""


class InvalidMessage(InvalidInput):
    """The message is invalid; nothing was stored."""


class EmptyMessage(InvalidMessage):
    """invalid message of 0 bytes: expected at least 1 byte; encode the absence of content"""


class MessageTooLong(InvalidMessage):
    """A message is longer than a page of its ring can hold."""

    def __init__(self, length: int, most: int) -> None:
        super().__init__(
            f"message too long ({length:,} bytes): a page of this ring holds at most {most:,} bytes; "
            "raise the ring's heap_size, or store it as an external payload (`airflow-mq enqueue --blob`)"
        )
        self.length, self.most = length, most


class InvalidOrigin(InvalidInput):
    """Invalid origin: expected text of 1 to 255 bytes of UTF-8 without control characters."""


class InvalidWeight(InvalidInput):
    """Invalid weight: expected two whole numbers, time and size, each from 0 to 2**64 - 1."""


class InvalidOutcome(InvalidInput):
    """A processor's answer is not an outcome that can be stored. The text never quotes a message."""


class ConnectionUnfit(InvalidInput):
    """A command cannot be executed on this connection."""


class ConfigRefused(InvalidInput):
    """The configuration of a ring is invalid; nothing was changed."""


class Refused(MessageQueueError):
    """The queue refused the operation; nothing was changed."""


class RecursiveDisallowed(Refused):
    """A processor may only enqueue; perform other operations outside of it."""


class DeliverySealed(Refused):
    """Delivery sealed: its processor has answered; send before it returns, or send outside of it with a queue."""


class QueuePaused(Refused):
    """The queue is paused; resume it first."""


class NotFound(Refused):
    """There is no message that can be executed at this address."""


class NoPage(NotFound):
    """The page does not exist: it was never opened, or was removed."""


class NoMessage(NotFound):
    """The page has no message with this index."""


class Queued(NotFound):
    """The message is still queued; it will be tried in its turn."""


class AlreadyProcessed(Refused):
    """The message was already processed."""


class InsufficientWeight(Refused):
    """The weight limit does not pay for this message; raise the limit."""


class TemporarilyUnprocessable(Refused):
    """The processor cannot take this message now; try again later."""


class NotReapable(Refused):
    """The page still holds messages that the queue has to keep."""


class Busy(Refused):
    """Another process services this ring; retry when it is done."""


class InFlight(Busy):
    """A block that has not settled yet holds messages of this queue."""


class KeyConflict(Refused):
    """This idempotency key was used for another message of the same origin."""


class UnknownRing(Refused):
    """Unknown ring: the store has no ring of this name."""


class RingExists(Refused):
    """The store already has a ring of this name."""


class NotPermitted(Refused):
    """The connection does not permit this origin or priority; nothing was sent.

    `safe` is the part of the text that does not quote what was sent.
    """

    def __init__(self, message: str | None = None, safe: str = "") -> None:
        super().__init__(message)
        self.safe = safe


class TooManyOrigins(Refused):
    """The ring accepts no further origins now; nothing was sent."""


class QueueFull(Refused):
    """The queue has no room for this call below its quota; nothing was sent. `lacks` bytes must drain before it has."""

    def __init__(self, message: str | None = None, lacks: int = 0) -> None:
        super().__init__(message)
        self.lacks = lacks


class UnknownBlock(Refused):
    """Unknown block: the ring has no block of this id."""


class BlobMissing(Refused):
    """An external payload is missing; upload it again, or restore it from a backup."""

    def __init__(self, hash_: bytes, store: object = None) -> None:
        super().__init__(
            f"missing external payload {hash_.hex()}: never uploaded, or deleted because no message referred to it; "
            "upload it again"
        )
        self.hash = hash_
        #: Address of the store that lacks some of its bytes, if these were read.
        self.store = store

    def __reduce__(self) -> tuple[type[BlobMissing], tuple[bytes]]:
        return type(self), (self.hash,)


class UploadGivenUp(Refused):
    """The upload was idle for longer than the ring's keep_uploads and was deleted; begin it again."""


class AlreadyExecuted(Refused):
    """A command can be executed once; make another one."""


class TokenRefused(Refused):
    """The block was settled or released; its token is not valid any more."""


class ProcessorError(MessageQueueError):
    """The processor failed on this message; it will be tried again.

    A base class for errors that processors raise. Its text is stored with the event and shown to people, so it must not
    quote the message. Of any other exception of a processor only the type is stored.
    """


class StoreError(MessageQueueError):
    """The store cannot perform the operation."""


class AddressRefused(StoreError, ValueError):
    """The address of the store is invalid."""


class NetworkFileSystem(StoreError):
    """SQLite loses data on network file systems; use a local disk, or PostgreSQL."""


class SchemaMissing(StoreError):
    """The store has no schema yet; run `airflow-mq store upgrade`."""


class StoreMissing(SchemaMissing):
    """The file of the SQLite store does not exist; correct its path, or create it: `airflow-mq store upgrade`."""


class SchemaTooOld(StoreError):
    """The store's schema is older than this version requires; run `airflow-mq store upgrade`."""


class SchemaTooNew(StoreError):
    """The store's schema is newer than this version supports; upgrade airflow-mq here."""


class StoreUnreachable(StoreError):
    """The store does not answer; nothing was changed."""


class LoginRefused(StoreUnreachable):
    """The PostgreSQL server does not let this user in; correct the connection, or the rules of the server."""


class StoreReplaced(StoreError):
    """The SQLite file was replaced since it was opened; restore the right file, then open the queue again."""


class StoreForked(StoreError):
    """Process forked within a transaction on its SQLite file: start it by spawn, or fork it outside of one."""


class StoreBusy(StoreError):
    """The database stayed locked for longer than the busy timeout; nothing was changed."""


class StoreFull(StoreError):
    """The disk of the store is full; nothing was changed; free some space, then retry."""


class StoreReadOnly(StoreError):
    """This user cannot write to the store."""


class StoreCorrupt(StoreError):
    """The stored data cannot be read; run `airflow-mq check`."""


class CommitInDoubt(StoreError):
    """The connection was lost during a commit, whose result is unknown; repeat the call with its key.

    Without an idempotency key, check whether it was committed before you repeat the call.
    """
