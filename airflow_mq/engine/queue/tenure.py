"""Tenure: the lease of a ring that a worker keeps from one service to the next.

To take a lease and to drop it are transactions that each message would wait for. So a worker keeps it while messages
come. Who finds the ring in use leaves a mark in the ring's state. The tenure reads it before and after each service,
and gives the lease back; for a while, each service then takes and drops the lease itself, as a single call does.
"""

from __future__ import annotations

import time

from ..store.inbox import PulseRow
from ..store.rows import Locked
from ..store.unit import Unit
from ..store.working_set import FEW_ROWS, Source, expect_walk
from .session import RingSession, extend_lease, meets_apart

#: Seconds after the last mark of another process for which no lease is kept.
SHARED = 1.0


class Tenure:
    """One worker's hold on a ring across services."""

    def __init__(self, session: RingSession) -> None:
        self.session = session
        #: The ring as it was last read; None if no lease is kept.
        self.ring: Locked | None = None
        self.token = b""
        #: What the next service reads first, requested with the pulse; None if the look for newcomers was too short.
        self._ahead: Source | None = None
        self._shared_until = 0.0

    def has_messages(self) -> bool:
        """Return whether inbox rows wait or delayed ones are due; give back a lease that another process needs."""
        self._ahead = None
        with self.session.store.loose() as unit:
            if self.ring is None:
                newest, _, due = unit.inbox.pulse(self.session.ring_id)
                now = unit.now() if due is not None else 0
            else:
                self.ring, (newest, _, due) = self._look_ahead(unit, self.ring)
                now = self.ring.now
        is_due = due is not None and due <= now
        if self.ring is not None and (is_due or not self._may_keep(self.ring)):
            # Due rows join their queues when the ring is locked.
            self.close()
        return bool(newest) or is_due

    def _look_ahead(self, unit: Unit, ring: Locked) -> tuple[Locked, PulseRow]:
        """Return the leased ring as it is now, and its pulse; request what the next service reads first with them."""
        ring_id, below = self.session.ring_id, ring.state.look_floor + FEW_ROWS
        leased, pulse = unit.leased(ring_id), unit.inbox.pulse_soon(ring_id)
        # These reads come after the pulse, so they show the messages that it shows.
        ahead = Source(self.session.store, unit, ring_id)
        expect_walk(ahead, ring.state, ring.now, self.session.config, below)
        found = pulse()
        self._ahead = ahead if found.newest < below else None
        return leased(), found

    def take_ahead(self) -> Source | None:
        """Return what was requested for this service, which is out of date for the next one."""
        ahead, self._ahead = self._ahead, None
        return ahead

    def keep(self, unit: Unit, ring: Locked, token: bytes, *, needed: bool) -> bool:
        """Keep the lease of a service at its end, in its transaction; return whether.

        :param needed: this worker itself needs the ring before the next service.
        """
        self.token, self.ring = token, ring
        if needed or not self._may_keep(ring):
            self.ring = None
            return False
        extend_lease(unit, self.session.ring_id, ring)
        return True

    def close(self) -> None:
        """Give the lease back."""
        self._ahead = None
        if self.ring is not None:
            self.ring = None
            self.session.release_lease(self.token)
            self.session.apply_soon()

    def _may_keep(self, ring: Locked) -> bool:
        state, config = ring.state, self.session.remember_config(ring.config)
        if state.lease_wanted:
            self._shared_until = time.monotonic() + SHARED
        return (
            state.lease_token == self.token
            and not state.ends
            and time.monotonic() >= self._shared_until
            and not self.session.listeners
            and not meets_apart(config)
        )
