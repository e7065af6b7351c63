"""Execution of a set-aside message, here and now, by a person's decision."""

from __future__ import annotations

from functools import partial

from ..rules import overweight as rules
from ..rules.claims import Scales
from ..rules.errors import InFlight, InsufficientWeight, NotFound, Refused, TemporarilyUnprocessable
from ..rules.message import Address, check_address
from ..rules.outcome import Outcome, Overweight, StackLimitReached
from ..rules.page import Page
from ..rules.weight import ZERO, Meter, Weight
from ..store.working_set import LoadOptions, StoredSet
from .attempts import Processor, deliver
from .blocks.blocks import refuse_claimed_by_hand
from .context import ProcessorContext
from .holding import RingLease
from .quota import RoomForSent
from .session import RingSession
from .values import OpenPage

_TAKEN_OVER = "the ring was taken over while the message was executed; look before you repeat"


def execute_overweight(
    session: RingSession, address: Address, processor: Processor, limit: Weight, *, for_everything: bool
) -> Weight:
    """Execute one set-aside message in this process; see `MessageQueue.execute_overweight`."""
    session.refuse_nested()
    check_address(address)
    limit = Weight.of(limit)
    if not for_everything:
        return _execute(session, address, processor, limit, keep_refusal=False)
    left = limit.minus(session.config.costs.execution)
    if left is None:
        raise InsufficientWeight(f"{limit} does not even pay {session.config.costs.execution} for keeping the books")
    try:
        return _execute(session, address, processor, left, keep_refusal=True)
    except TemporarilyUnprocessable as error:
        raise Refused(str(error)) from error
    except NotFound as error:
        raise NotFound(str(error)) from error


def _execute(
    session: RingSession, address: Address, processor: Processor, limit: Weight, *, keep_refusal: bool
) -> Weight:
    meter, cost, refusal = Meter(limit), ZERO, None
    with RingLease(session.hold, "a message executed by hand", partial(InFlight, _TAKEN_OVER)) as lease:
        locked = lease.take()
        with lease.reading() as unit:
            working_set = session.working_set(unit, locked, LoadOptions(skip_in_flight=False))
            if session.listeners:
                working_set.loader.inboxes.cut_everything()
            book, page = rules.find_set_aside(working_set, address)
            refuse_claimed_by_hand(unit, session.ring_id, [address])
            outcome = _run(session, working_set, processor, address, page, meter)
            book, page = rules.find_set_aside(working_set, address)
            if not isinstance(outcome, StackLimitReached):
                working_set.spend(working_set.buckets_of(book), meter.consumed)
            try:
                weight = Scales(working_set).weight(address.book, page, address.index)
                cost = rules.settle_execution(
                    working_set, book, page, address.index, outcome, meter.consumed, limit, session.actor, weight
                )
            except TemporarilyUnprocessable as error:
                if not (keep_refusal and working_set.changes.events):
                    raise
                # Nothing changed, but the event that gives the reason is kept.
                refusal = error
        with lease.transaction() as (unit, locked, _):
            working_set.save_in(unit, locked)
    session.committed(working_set)
    if refusal:
        raise refusal
    return meter.consumed.plus(cost)


def _run(
    session: RingSession, working_set: StoredSet, processor: Processor, address: Address, page: Page, meter: Meter
) -> Outcome:
    if not getattr(processor, "meters_itself", False):
        weight = Scales(working_set).weight(address.book, page, address.index)
        if not meter.consume(weight):
            return Overweight(weight)
    opened = OpenPage(address.book, page, meter, working_set, ProcessorContext(session.place, RoomForSent(session)))
    return deliver(processor, opened, address.index, working_set)
