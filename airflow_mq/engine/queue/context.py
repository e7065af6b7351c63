"""Context in which a processor is called.

The context knows the store and the ring whose messages are delivered. A send by a queue of that ring, inside the
processor, goes to the delivery: it is stored if the processed message is done. A send by any other queue is an ordinary
one. The context ends with the processor's call: its delivery is sealed, and callbacks of the service run outside of it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..rules.message import Posted
    from ..store import StoreAddress
    from .values import Delivery

#: The message whose processor runs in this context, if any.
current_delivery: ContextVar[Delivery | None] = ContextVar("airflow_mq_delivery", default=None)


class ProcessorContext:
    """The context of the processor calls of one service, execution or part of a block."""

    __slots__ = ("lock", "outer", "place", "process", "require_room_for")

    def __init__(
        self, place: str, require_room_for: Callable[[Delivery, Sequence[Posted]], None] | None = None
    ) -> None:
        #: Raises `QueueFull` if there is no room for messages of a delivery; None where the store is out of reach.
        self.require_room_for = require_room_for
        #: Name of the ring and its store, of `place_of`; empty if unknown.
        self.place = place
        #: The delivery whose processor began the service.
        self.outer = current_delivery.get()
        #: A forked child has copies of deliveries, which no service reads.
        self.process = os.getpid()
        #: Held while messages are added to a delivery.
        self.lock = threading.Lock()


def place_of(address: StoreAddress, ring: str) -> str:
    """Return a name of a ring that all queues of this ring share; it reveals nothing about the store's address."""
    return sha256(f"{address.place}\n{ring}".encode()).hexdigest()


def delivery_at(place: str) -> Delivery | None:
    """Return the delivery that takes what a queue of this ring sends; None if the send is an ordinary one."""
    delivery = current_delivery.get()
    return delivery if delivery is not None and delivery.context.place == place else None


def is_inside(place: str) -> bool:
    """Return whether a processor of this ring runs in this context, even if it services another ring meanwhile."""
    delivery = current_delivery.get()
    while delivery is not None:
        if delivery.context.place == place and not delivery.sealed:
            return True
        delivery = delivery.context.outer
    return False


@contextmanager
def outside(place: str) -> Iterator[None]:
    """Run callbacks of a ring's service outside of its deliveries: what they send is stored at once."""
    delivery = current_delivery.get()
    while delivery is not None and delivery.context.place == place:
        delivery = delivery.context.outer
    mark = current_delivery.set(delivery)
    try:
        yield
    finally:
        current_delivery.reset(mark)


# A message that a forked child sends to the parent's delivery would be lost with the child.
os.register_at_fork(after_in_child=lambda: current_delivery.set(None))
