"""Commands: what is done to the queue within a transaction of the caller's, together with their own writes.

A command is a value. It does nothing by itself; `execute()` writes it into the transaction that the caller has
open, and it counts when they commit, or never was. Because a command is made in one place and may fail in another,
it remembers the place, and its error says so.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, Generic, TypeVar

from ...core.blob import Reference
from ...core.errors import AlreadyExecuted, InvalidInput, MessageQueueError, MessageTooLong, StoreCorrupt
from ...core.message import Message, check_headers
from ...core.outcome import DONE, Outcome, Transferred
from ...core.priority import HIGH, book_name, check_priority
from ...core.weight import Weight
from ...store import Outgoing, codec
from ...store.decoding import page_of
from ...store.guest import guest
from ...store.inbox import blob_attributes
from ...store.loans import LenderRow
from ...store.unit import Unit
from ..tokens import ReferenceToken, Tokens
from ..values import Enqueued
from .call import Terms, When, instant, packed_call
from .limits import has_bound, refuse_new_origins
from .sender import Sender

Result = TypeVar("Result")
_PACKAGE = str(Path(__file__).parents[1])


class Command(ABC, Generic[Result]):
    """Something to be done once, in a transaction of the caller's."""

    def __init__(self, commands: Commands, what: str) -> None:
        self.commands, self.what = commands, what
        #: The file and the line that made it.
        self.made_at = _caller()
        self._executed = False

    def execute(self) -> Result:
        """Do it now, within the open transaction of the connection; it counts once that is committed."""
        try:
            self._refuse_again()
            with self.commands.within() as unit:
                result = self.within(unit)
        except MessageQueueError as error:
            error.args = (f"{error} (the {self.what} that was made at {self.made_at})",)
            raise
        self._done()
        return result

    def _refuse_again(self) -> None:
        if self._executed:
            raise AlreadyExecuted(f"this {self.what} was executed before; a command is executed once, make another one")

    @abstractmethod
    def within(self, unit: Unit) -> Result:
        """Do it with this unit of work, whosever the transaction is."""

    def _done(self) -> None:
        self._executed = True

    def __repr__(self) -> str:
        return f"<{self.what} made at {self.made_at}{', executed' if self._executed else ''}>"


class TransferToken(Command[int]):
    """The completion of some messages, and what is released by it.

    Executed by itself it completes them: they are processed. Pushed to another queue, before it is executed, it
    hands them on instead: `push("publish", complete(token)).execute()`. What is handed on is not copied.
    """

    def __init__(self, commands: Commands, tokens: list[ReferenceToken]) -> None:
        super().__init__(commands, "completion")
        self.tokens = tokens
        self._pushed: Push | None = None

    def _refuse_again(self) -> None:
        super()._refuse_again()
        if self._pushed is not None:
            raise AlreadyExecuted(
                f"this completion goes with the push that was made at {self._pushed.made_at}; execute that one"
            )

    def within(self, unit: Unit) -> int:
        return self._complete(unit, DONE)

    def _complete(self, unit: Unit, outcome: Outcome) -> int:
        for token in self.tokens:
            self.commands.tokens.complete_in(unit, token, outcome)
        return len(self.tokens)


class Push(Command[Enqueued]):
    """Messages, or released ones, on their way to a queue."""

    def __init__(
        self, commands: Commands, target: Sender, origin: str, what: list[bytes | Message | TransferToken],
        common: Mapping[str, Any], not_before: When | None, expires: When | None, priority: str | None,
    ) -> None:  # fmt: skip
        super().__init__(commands, "push")
        self.target, self.origin, self.messages = target, target.session.check_sender(origin), what
        self.common, self.not_before, self.expires = common, not_before, expires
        self.priority = None if priority is None else target.session.permit.check_priority(check_priority(priority))
        for token in self._released():
            token._refuse_again()
            if token.commands.connection is not commands.connection:
                raise InvalidInput("a completion and the push of what it releases go over one connection")
            token._pushed = self

    def _released(self) -> list[TransferToken]:
        return [one for one in self.messages if isinstance(one, TransferToken)]

    def _refuse_again(self) -> None:
        super()._refuse_again()
        for token in self._released():
            Command._refuse_again(token)

    def within(self, unit: Unit) -> Enqueued:
        count = size = repeated = 0
        for released, group in groupby(self.messages, lambda one: isinstance(one, TransferToken)):
            some: list[Any] = list(group)
            sent = self._transfer(unit, some) if released else self._send(unit, some)
            count, size, repeated = count + sent.count, size + sent.size, repeated + sent.repeated
        return Enqueued(count, size, repeated)

    def _done(self) -> None:
        super()._done()
        for token in self._released():
            token._done()

    def _send(self, unit: Unit, messages: Iterable[Any]) -> Enqueued:
        terms = Terms(self.common["weight"], self.common["headers"], self.priority, self.not_before, self.expires)
        with packed_call(self.target.session, self.origin, messages, terms) as call:
            return call.write(unit)

    def _refuse_new_origin(self, unit: Unit, origins: Iterable[str]) -> None:
        if has_bound(self.target.session.config):
            refuse_new_origins(unit, self.target.ring_id, origins, self.target.session.remember_config)

    # Handing on.

    def _transfer(self, unit: Unit, tokens: Iterable[TransferToken]) -> Enqueued:
        if self.not_before is not None:
            raise InvalidInput("what is handed on joins its queue at once; leave not_before to messages that are sent")
        count = size = 0
        for released in tokens:
            for token in released.tokens:
                size += self._hand_on(unit, released, token)
                count += 1
        return Enqueued(count, size)

    def _hand_on(self, unit: Unit, released: TransferToken, token: ReferenceToken) -> int:
        """Complete a message here, and let an inbox row without bytes stand for it there."""
        tokens, target = released.commands.tokens, self.target
        there = self.origin if target.ring_id == tokens.ring_id else f"{target.session.ring}/{self.origin}"
        tokens.complete_in(unit, token, Transferred(there))
        lies = _Lying(unit, tokens.ring_id, token)
        if lies.size > target.session.config.max_message_len:
            raise MessageTooLong(lies.size, target.session.config.max_message_len)
        self._refuse_new_origin(unit, [self.origin])
        rank = target.session.permit.check_priority(self.priority or token.address.priority)
        if rank == HIGH:
            unit.rings.allow_high(target.ring_id)
        name = book_name(self.origin, rank)
        said = {**lies.said, **{name: value for name, value in self.common.items() if value}}
        if self.expires is not None:
            said["expires"] = instant(target.session, self.expires)
        if lies.blob is not None:
            # An external payload stays there: another message refers to it.
            attributes = codec.write_json({**blob_attributes([lies.blob]), **({"all": said} if said else {})})
            row = Outgoing(name, lies.size, 1, False, b"", attributes, bytes(lies.blob))
            target.store.send(unit, target.ring_id, [row])
            return lies.size
        attributes = codec.write_json({"all": {"loan": True, **said}})
        lender = LenderRow(*lies.lender, lies.start, lies.let_go)
        unit.loans.insert(target.ring_id, name, lies.size, attributes, lender)
        return lies.size


class _Lying:
    """Where the bytes of a message on lease lie, and what its sender said beside them."""

    def __init__(self, unit: Unit, ring: int, token: ReferenceToken) -> None:
        origin, index, item = token.address.book, token.address.page, token.address.index
        pages = unit.pages.between(ring, [(origin, index, index)], 1)
        page = page_of(pages[0])
        row_id, place = page.row_id_of(item), page.place_of(item)
        rows = unit.inbox.after(ring, [(origin, row_id - 1)], 1)
        if not rows or rows[0].id != row_id:
            raise StoreCorrupt(f"inbox row {row_id} of {origin!r} is gone, though a page refers to it")
        row = rows[0]
        lengths = codec.unpack_lengths(row.lengths, row.items, row.size)
        self.size = lengths[place]
        #: Whether no page of the lender needs its mail any more.
        self.let_go = False
        self.lender, self.start = (ring, origin, row_id), sum(lengths[:place])
        said = codec.read_json(bytes(row.attributes)) if row.attributes else {}
        own = {**said.get("all", {}), **said.get("each", {}).get(str(place), {})}
        #: What travels with a message; what it costs is another matter in another queue.
        self.said = {name: own[name] for name in ("headers", "expires") if name in own}
        #: What it refers to, if its payload is kept apart.
        self.blob: Reference | None = None
        name, _, size = said.get("blobs", {}).get(str(place), "").partition(":")
        if name:
            self.blob = Reference.of(bytes.fromhex(name), int(size))
        if own.get("loan"):
            lender = unit.loans.lender(ring, origin, row_id)
            if lender is None:
                raise StoreCorrupt(f"inbox row {row_id} of {origin!r} borrows its bytes from nobody")
            self.start, self.let_go = lender.start, lender.let_go
            self.lender = (lender.ring, lender.origin, lender.row_id)


class Commands:
    """Makes commands for one connection of the caller's, over which they write to the queue's own database.

    ::

        with psycopg.connect(...) as connection:
            commands = queue.commands(connection)
            connection.execute("INSERT INTO orders ...")
            commands.push("orders", b"order 17").execute()

    It neither commits nor rolls back, and leaves nothing set. When a command fails, its error says where it was made,
    and the transaction goes on without it: each command stands in a savepoint. Only where the connection is lost, where
    a serializable transaction has to be repeated, and where SQLite rolls back by itself (a full or failing disk) is the
    whole transaction gone.
    """

    def __init__(self, sender: Sender, tokens: Tokens, connection: Any) -> None:
        self.sender, self.tokens, self.connection = sender, tokens, connection
        self._known = False

    @contextmanager
    def within(self) -> Iterator[Unit]:
        """A piece of work in the caller's transaction."""
        self.sender.session.refuse_nested()
        with guest(self.sender.store, self.connection, known=self._known) as unit:
            yield unit
        self._known = True

    def push(
        self, origin: str, *messages: bytes | Message | TransferToken, ring: str | None = None,
        weight: Weight | None = None, headers: Mapping[str, str] | None = None, not_before: When | None = None,
        expires: When | None = None, priority: str | None = None,
    ) -> Push:  # fmt: skip
        """Enqueue messages, and what completions release, in this order.

        :param origin: the queue they go to.
        :param messages: bytes, a `Message`, or what `complete` returned and nobody has executed.
        :param ring: another ring of the same store.
        :param weight: what each will cost, where that is known.
        :param headers: text that travels beside each; what is handed on keeps its own, where none are said.
        :param not_before: when they join their queue; not for what is handed on.
        :param expires: when nobody wants them any more.
        :param priority: `high` or `regular`; what is handed on keeps its own, where none is said.
        """
        for one in messages:
            if not isinstance(one, (bytes, bytearray, memoryview, Message, TransferToken)):
                raise InvalidInput(f"what is pushed is bytes, a Message or a completion, not {type(one).__name__}")
        if not messages:
            raise InvalidInput("say what to push: push(origin, message)")
        target = self._target(ring)
        common = {
            "weight": Weight.of(weight) if weight is not None else None,
            "headers": check_headers(headers, target.session.config.max_headers) if headers else None,
        }
        return Push(self, target, origin, list(messages), common, not_before, expires, priority)

    def complete(self, tokens: str | ReferenceToken | Iterable[str | ReferenceToken]) -> TransferToken:
        """Say that the messages of these tokens are treated. What this returns can be pushed on instead."""
        return TransferToken(self, self.tokens.read_all(tokens))

    def transfer(
        self, tokens: str | ReferenceToken | Iterable[str | ReferenceToken], to: str, *, ring: str | None = None,
        weight: Weight | None = None,
    ) -> Push:  # fmt: skip
        """Hand messages on to another queue: `push(to, complete(tokens))`.

        :param to: the origin whose queue takes them.
        :param ring: another ring of the same store.
        :param weight: what each will cost there, where that is known.
        """
        return self.push(to, self.complete(tokens), ring=ring, weight=weight)

    def _target(self, ring: str | None) -> Sender:
        session = self.sender.session
        other = session.of_ring(ring)
        return self.sender if other is session else Sender(other)


def _caller() -> str:
    """The first line up the stack that is not of this package's own making."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
