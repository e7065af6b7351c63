"""Messages of a block on their way to a processor, one by one and in groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from ..engine.queue import Batch, Delivery
from ..engine.queue.batches import grouped
from ..engine.queue.context import ProcessorContext
from ..engine.queue.values import moment
from ..engine.rules.message import Address
from ..engine.rules.page import NO_NOTE, Facts, Note, Page
from ..engine.rules.priority import origin_of
from ..engine.rules.weight import ZERO, Meter

#: Messages, and bytes of payload, after which a group is full.
GROUP_MESSAGES, GROUP_BYTES = 10_000, 16 << 20

#: Name of a message's book, its page and index.
Place = tuple[str, int, int]
Row = TypeVar("Row", bound=tuple[Any, ...])


class Item(NamedTuple):
    """A message on its way to a processor."""

    book: str
    page: int
    at: int
    payload: bytes
    headers: Mapping[str, str]
    #: Number of this attempt, from 1.
    attempt: int = 1
    #: Time of enqueueing, in microseconds of the store's clock.
    sent: int | None = None
    #: Id of the block that claimed the message.
    block: int | None = None

    @property
    def place(self) -> Place:
        """The place by which outcomes name the message."""
        return self.book, self.page, self.at

    @property
    def address(self) -> Address:
        """The address that people see."""
        return Address(self.book, self.page, self.at)

    @property
    def origin(self) -> str:
        """The message's origin."""
        return origin_of(self.book)


class ItemDelivery(Delivery):
    """A message of a block, as a processor receives it."""

    __slots__ = ("_item",)

    def __init__(self, item: Item, context: ProcessorContext | None = None) -> None:
        super().__init__(item.book, item.payload, Page(item.page), item.at, Meter(ZERO), context=context)
        self._item = item

    @property
    def attempts(self) -> int:
        return self._item.attempt - 1

    @property
    def headers(self) -> Mapping[str, str]:
        return self._item.headers or {}

    @property
    def block(self) -> int | None:
        return self._item.block

    @property
    def sent_at(self) -> datetime | None:
        return None if self._item.sent is None else moment(self._item.sent)


def items_of(batches: Iterable[Batch], block: int | None = None) -> Iterator[Item]:
    """Yield the messages of batches, in order.

    :param block: id of the block, for batches that do not carry it
    """
    nothing = Facts({}, {}, {})
    for batch in batches:
        facts, id_ = batch._facts() if batch._facts else nothing, batch.block if batch.block is not None else block
        headers = batch.headers or ({},) * len(batch)
        for at, (payload, its_headers) in enumerate(zip(batch.payloads, headers), batch.first):
            attempt = facts.notes.get(at, NO_NOTE).attempts + 1
            yield Item(batch.book, batch.page, at, payload, its_headers, attempt, facts.sent.get(at), id_)


def groups_of(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield messages in groups of at most `GROUP_MESSAGES` and about `GROUP_BYTES`."""
    return grouped(items, GROUP_BYTES, lambda item: len(item.payload), most=GROUP_MESSAGES)


def neighbours_of(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield messages, or rows that begin with a place, in groups of neighbours in one page."""
    group: list[Row] = []
    for row in rows:
        if group and (row[:2] != group[-1][:2] or row[2] != group[-1][2] + 1):
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def stretches_of(items: Iterable[Item], is_alone: Callable[[int], bool]) -> Iterator[list[Item]]:
    """Yield messages in groups as `groups_of` does, and alone each one whose attempt is to be alone."""
    for group in groups_of(items):
        for alone, stretch in groupby(group, lambda item: is_alone(item.attempt)):
            if alone:
                yield from ([item] for item in stretch)
            else:
                yield list(stretch)


def batch_of(group: Sequence[Item]) -> Batch:
    """Return neighbours in one page as a batch."""
    book, page, first = group[0].place
    headers = {item.at: item.headers for item in group if item.headers}
    notes = {item.at: Note(attempts=item.attempt - 1) for item in group if item.attempt > 1}
    facts = Facts(notes, {item.at: item.sent for item in group if item.sent is not None}, headers)
    payloads = [item.payload for item in group]
    return Batch(book, payloads, page, first, block=group[0].block, _facts=lambda: facts)
