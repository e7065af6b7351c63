"""Commands: changes of the queue inside an open transaction of the caller, next to the caller's own writes.

A command is a value. Making it changes nothing; `execute()` writes it into the open transaction, and it takes effect
with the caller's commit. A command is often made in one place and fails in another: its error names the place where it
was made.
"""

from __future__ import annotations

import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import groupby, repeat
from pathlib import Path
from typing import Generic, TypeVar

from typing_extensions import Unpack

from ...rules.blob import Reference
from ...rules.errors import (
    AlreadyExecuted,
    Busy,
    InvalidInput,
    MessageQueueError,
    MessageTooLong,
    StoreCorrupt,
    StoreError,
)
from ...rules.message import Attributes, Message
from ...rules.outcome import DONE, Transferred
from ...rules.priority import HIGH, book_name
from ...rules.weight import Weight
from ...store import codec
from ...store.attributes import StoredAttributes, pack_attributes
from ...store.inbox import StoredBytes
from ...store.rows import LATEST, InboxRow, page_of
from ...store.unit import Unit
from ..quota import require_room
from ..session import RingSession
from ..tokens import GivenTokens, ReferenceToken, complete_in, read_tokens
from ..values import Enqueued
from .sender import Sender, SendOptions, SendTerms, refuse_new_origins, times_of

Result = TypeVar("Result")
log = logging.getLogger("airflow_mq.commands")
_PACKAGE = str(Path(__file__).parents[1])


class Command(ABC, Generic[Result]):
    """A change that is executed once, in a transaction of the caller."""

    def __init__(self, commands: Commands, kind: str) -> None:
        self.commands, self.kind = commands, kind
        #: The file and the line that made the command.
        self.made_at = _caller()
        self._executed = self._tried = False

    def execute(self) -> Result:
        """Execute the command within the open transaction of the connection; it takes effect with the commit."""
        self._tried = True
        try:
            self._refuse_again()
            with self.commands.within() as unit:
                result = self.write(unit)
        except MessageQueueError as error:
            error.args = (f"{error} (the {self.kind} that was made at {self.made_at})",)
            raise
        self._done()
        return result

    def _refuse_again(self) -> None:
        if self._executed:
            raise AlreadyExecuted(f"{self.kind} executed twice: a command is executed once; make another one")

    @abstractmethod
    def write(self, unit: Unit) -> Result:
        """Write the change with this unit of work."""

    def _done(self) -> None:
        self._executed = True

    def __del__(self) -> None:
        # A command whose construction failed has no such attribute.
        if not getattr(self, "_tried", True):
            log.warning("%s never executed: nothing was changed; it was made at %s", self.kind, self.made_at)

    def __repr__(self) -> str:
        return f"<{self.kind} made at {self.made_at}{', executed' if self._executed else ''}>"


class TransferToken(Command[int]):
    """The completion of some messages, and the messages that it releases.

    Executed by itself, it completes the messages: they are processed. Pushed to another queue before it is executed, it
    transfers them instead: `push("publish", complete(token)).execute()`. The database copies
    the payloads; none leaves it.
    """

    def __init__(self, commands: Commands, tokens: list[ReferenceToken]) -> None:
        super().__init__(commands, "completion")
        self.tokens = tokens
        self._pushed: Push | None = None

    def _refuse_again(self) -> None:
        super()._refuse_again()
        if self._pushed is not None:
            raise AlreadyExecuted(
                f"completion executed by itself: it belongs to the push that was made at {self._pushed.made_at}; "
                "execute that push"
            )

    def write(self, unit: Unit) -> int:
        for token in self.tokens:
            complete_in(unit, self.commands.session.ring_id, token, DONE)
        return len(self.tokens)


class Push(Command[Enqueued]):
    """New or transferred messages on their way to a queue."""

    def __init__(
        self,
        commands: Commands,
        ring: str | None,
        origin: str,
        messages: list[bytes | Message | TransferToken],
        terms: SendTerms,
    ) -> None:
        self.messages = messages
        released = self._released()
        if len(set(released)) < len(released):
            raise InvalidInput("duplicate completion: each is pushed once; remove the duplicate")
        for token in released:
            token._refuse_again()
            if token.commands.connection is not commands.connection:
                raise InvalidInput("push and completion over two connections: expected one connection for both")
        self.target = commands.session.of_ring(ring)
        self.target.refresh_config()
        self.origin, self.terms = self.target.check_sender(origin), terms.checked(self.target)
        super().__init__(commands, "push")
        for token in released:
            token._pushed = self

    def _released(self) -> list[TransferToken]:
        return [message for message in self.messages if isinstance(message, TransferToken)]

    def _refuse_again(self) -> None:
        super()._refuse_again()
        for token in self._released():
            Command._refuse_again(token)

    def write(self, unit: Unit) -> Enqueued:
        count = size = repeated = 0
        for _, group in groupby(self.messages, lambda message: isinstance(message, TransferToken)):
            parts = list(group)
            released = [part for part in parts if isinstance(part, TransferToken)]
            messages = [part for part in parts if not isinstance(part, TransferToken)]
            sent = self._transfer(unit, released) if released else self._send(unit, messages)
            count, size, repeated = count + sent.count, size + sent.size, repeated + sent.repeated
        return Enqueued(count, size, repeated)

    def _done(self) -> None:
        super()._done()
        for token in self._released():
            token._done()

    def _send(self, unit: Unit, messages: Iterable[bytes | Message]) -> Enqueued:
        sender = Sender(self.target)
        with closing(sender.pack(zip(repeat(self.origin), messages), self.terms, unit)) as call:
            if call.first_high:
                self._allow_high(unit)
                call.first_high = False
            return sender.write(unit, call)

    def _allow_high(self, unit: Unit) -> None:
        """Record that the ring receives high messages: in a short transaction, where the store can have two at a time.

        In the caller's transaction, it would lock the settings of the ring until the commit.
        """
        target = self.target
        is_callers = self.commands.connection is not self.commands.session.store
        if is_callers and not target.config.high and not unit.draws_ids:
            with suppress(Busy, StoreError):
                with target.store.writing(patience=0.0) as own:
                    own.rings.allow_high(target.ring_id)
                target.reread_config()
        if not target.config.high:
            unit.rings.allow_high(target.ring_id)

    def _transfer(self, unit: Unit, released: Iterable[TransferToken]) -> Enqueued:
        if self.terms.not_before is not None:
            raise InvalidInput(
                f"not_before ({self.terms.not_before}) with transferred messages: they join their queue at once; "
                "use not_before only for new messages"
            )
        sizes = [self._transfer_one(unit, each.commands.session, token) for each in released for token in each.tokens]
        return Enqueued(len(sizes), sum(sizes))

    def _transfer_one(self, unit: Unit, source: RingSession, token: ReferenceToken) -> int:
        """Complete a message in its queue, and write an inbox row with a copy of its bytes; return its size."""
        target = self.target
        goal = self.origin if target.ring_id == source.ring_id else f"{target.ring}/{self.origin}"
        complete_in(unit, source.ring_id, token, Transferred(goal))
        message = _Leased(unit, source.ring_id, token)
        if message.size > target.config.max_message_len:
            raise MessageTooLong(message.size, target.config.max_message_len)
        refuse_new_origins(target, unit, [self.origin])
        rank = target.permit.check_priority(self.terms.priority or token.address.priority)
        name = book_name(self.origin, rank)
        own = Attributes.given_by(self.terms).checked(target.config.max_headers)
        kept = message.attributes if self.terms.headers is None else message.attributes._replace(headers={})
        attributes = own._replace(expires=times_of(target, self.terms, unit)[1]).over(kept)
        if target.room_until([name], unit) < LATEST:
            require_room(target, unit, {name: message.size + attributes.beside})
        if rank == HIGH:
            self._allow_high(unit)
        if message.blob is None:
            unit.inbox.insert_copy(target.ring_id, name, pack_attributes(attributes), message.bytes)
        else:
            # The external payload stays in its place: another message refers to it.
            data = pack_attributes(attributes, [message.blob])
            row = InboxRow(name, 0, message.size, 1, False, b"", data, bytes(message.blob))
            target.store.send(unit, target.ring_id, [row])
        return message.size if message.blob is None else message.blob.size


class _Leased:
    """A message on lease: the place of its bytes, and the attributes that it takes along."""

    def __init__(self, unit: Unit, ring: int, token: ReferenceToken) -> None:
        origin, index, item = token.address.book, token.address.page, token.address.index
        page = page_of(unit.pages.between(ring, [(origin, index, index)], 1)[0])
        row_id, place = page.place_of(item)
        rows = unit.inbox.after(ring, [(origin, row_id - 1)], 1)
        row = InboxRow(*rows[0]) if rows else None
        if row is None or row.id != row_id:
            raise StoreCorrupt(f"inbox row {row_id} of {origin!r} is missing, but a page refers to it")
        lengths = codec.unpack_lengths(row.lengths, row.items, row.size)
        self.size = lengths[place]
        stored = StoredAttributes(bytes(row.attributes) or b"{}")
        self.attributes, blob = stored.of(place).moving, stored.blob(place)
        #: Its external payload.
        self.blob = Reference.of(bytes.fromhex(blob[0]), blob[1]) if blob else None
        self.bytes = StoredBytes(ring, origin, row_id, sum(lengths[:place]), self.size)


class Commands:
    """Commands for one connection of the caller to the database of the queue.

    ::

        with psycopg.connect(...) as connection:
            commands = queue.commands(connection)
            connection.execute("INSERT INTO orders ...")
            commands.push("orders", b"order 17").execute()

    A command neither commits nor rolls back, and leaves no setting behind. It has a savepoint: after a failed command
    the transaction goes on. The whole transaction is lost only if the connection is lost, if a serializable transaction
    must be repeated, or if SQLite rolls back by itself (a full or failing disk).
    """

    def __init__(self, session: RingSession, connection: object) -> None:
        self.session, self.connection = session, connection
        self._known = False

    @contextmanager
    def within(self) -> Iterator[Unit]:
        """Yield a unit of work in the caller's transaction, or in one of its own if the connection is the store."""
        self.session.refuse_nested()
        if self.connection is self.session.store:
            with self.session.store.writing() as unit:
                yield unit
            return
        from ...store.guest import guest

        with guest(self.session.store, self.connection, known=self._known) as unit:
            yield unit
        self._known = True

    def push(
        self,
        origin: str,
        *messages: bytes | Message | TransferToken,
        ring: str | None = None,
        **options: Unpack[SendOptions],
    ) -> Push:
        """Enqueue messages, and messages that completions release, in this order.

        The options are those of `enqueue_messages`. A transferred message keeps its own headers, expiry and priority
        unless an option replaces them, and it cannot be delayed (`not_before`).

        :param origin: the origin whose queue takes the messages.
        :param messages: bytes, a `Message`, or a result of `complete` that is not executed.
        :param ring: another ring of the same store.
        """
        for message in messages:
            if isinstance(message, TransferToken):
                # A refused push has an error of its own; its completions are not logged as never executed.
                message._tried = True
        for message in messages:
            if not isinstance(message, (bytes, bytearray, memoryview, Message, TransferToken)):
                raise InvalidInput(
                    f"invalid message ({type(message).__name__}): expected bytes, a Message, or a result of complete()"
                )
        if not messages:
            raise InvalidInput("messages are missing: expected push(origin, message, ...)")
        return Push(self, ring, origin, list(messages), SendTerms.of(options))

    def complete(self, tokens: GivenTokens) -> TransferToken:
        """Complete the messages of these tokens, or push the result to another queue instead."""
        return TransferToken(self, read_tokens(self.session, tokens))

    def transfer(self, tokens: GivenTokens, to: str, *, ring: str | None = None, weight: Weight | None = None) -> Push:
        """Transfer messages to another queue: `push(to, complete(tokens))`.

        :param to: the origin whose queue takes the messages.
        :param ring: another ring of the same store.
        :param weight: the cost of each message there, if the sender knows it.
        """
        return self.push(to, self.complete(tokens), ring=ring, weight=weight)


def _caller() -> str:
    """Return the first line up the stack that is outside of this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
