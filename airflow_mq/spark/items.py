"""Messages of a block on their way to a processor, one by one and in groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby, islice
from typing import TypeVar

from ..engine.queue.batches import grouped
from ..engine.queue.context import ProcessorContext
from ..engine.queue.values import Batch, Delivery, OpenPage, deliveries_of
from ..engine.rules.page import Facts, Page
from ..engine.rules.weight import ZERO, Meter

#: Messages, and bytes of payload, after which a group is full.
GROUP_MESSAGES, GROUP_BYTES = 10_000, 16 << 20
#: Facts about messages of which none are known.
NO_FACTS = Facts({}, {}, {})

#: Name of a message's book, its page and index.
Place = tuple[str, int, int]
Row = TypeVar("Row")


def place_of(message: Delivery) -> Place:
    """Return the place by which outcomes name a message."""
    return message.book, message.page, message.index


def messages_of(batches: Iterable[Batch], block: int | None = None) -> Iterator[Delivery]:
    """Yield the messages of batches, in order.

    :param block: id of the block, for batches that do not carry it
    """
    meter, context = Meter(ZERO), ProcessorContext("")
    for batch in batches:
        facts, page = batch._facts() if batch._facts else NO_FACTS, Page(batch.page)
        page.notes.update(facts.notes)
        holder = block if batch.block is None else batch.block
        yield from deliveries_of(
            OpenPage(batch.book, page, meter, None, context, facts, holder), batch.payloads, batch.first
        )


def groups_of(messages: Iterable[Delivery]) -> Iterator[list[Delivery]]:
    """Yield messages in groups of at most `GROUP_MESSAGES` and about `GROUP_BYTES`."""
    return grouped(messages, GROUP_BYTES, lambda message: len(message.payload), most=GROUP_MESSAGES)


def growing_groups_of(messages: Iterator[Delivery]) -> Iterator[list[Delivery]]:
    """Yield messages in groups as `groups_of` does, but one message at first, then two, four and so on."""
    size, groups = 1, groups_of(islice(messages, 1))
    while group := next(groups, None):
        yield group
        yield from groups
        size *= 2
        groups = groups_of(islice(messages, size))


def neighbours_of(rows: Iterable[Row], place: Callable[[Row], Place]) -> Iterator[list[Row]]:
    """Yield messages, or rows that have a place, in groups of neighbours in one page."""
    group: list[Row] = []
    after: Place | None = None
    for row in rows:
        book, page, index = place(row)
        if group and (book, page, index) != after:
            yield group
            group = []
        group.append(row)
        after = book, page, index + 1
    if group:
        yield group


def runs_of(messages: Iterable[Delivery]) -> Iterator[list[Delivery]]:
    """Yield messages in groups as `groups_of` does, each of neighbours in one page, which may have many references."""
    return chain.from_iterable(neighbours_of(group, place_of) for group in groups_of(messages))


def stretches_of(groups: Iterable[list[Delivery]], is_alone: Callable[[int], bool]) -> Iterator[list[Delivery]]:
    """Yield messages in these groups, and alone each one whose attempt is to be alone."""
    for group in groups:
        for alone, stretch in groupby(group, lambda message: is_alone(message.attempt)):
            if alone:
                yield from ([message] for message in stretch)
            else:
                yield list(stretch)


def batches_of(messages: Iterable[Delivery]) -> Iterator[Batch]:
    """Yield messages as batches of neighbours."""
    return map(batch_of, runs_of(messages))


def batch_of(group: Sequence[Delivery]) -> Batch:
    """Return neighbours in one page as a batch."""
    first, known = group[0], [(message.index, message._facts or NO_FACTS) for message in group]
    facts = Facts(
        {at: facts.notes[at] for at, facts in known if at in facts.notes},
        {at: facts.sent[at] for at, facts in known if at in facts.sent},
        {at: facts.attributes[at] for at, facts in known if at in facts.attributes},
    )
    payloads = [message.payload for message in group]
    return Batch(first.book, payloads, first.page, first.index, block=first.block, _facts=lambda: facts)
