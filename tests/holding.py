"""Leases of a ring that another process holds, in tests."""

from __future__ import annotations

from airflow_mq.engine.queue.holding import RING_LEASE, holder_name
from airflow_mq.engine.queue.session import RingSession


def take_lease(session: RingSession, token: bytes) -> None:
    """Hold the ring as a service does, without a thread that renews the lease."""
    with session.hold.lock() as (unit, locked, _):
        until = locked.now + int(RING_LEASE * 1_000_000)
        unit.rings.take_lease(session.ring_id, token, until, holder_name("serviced", session.actor))


def drop_lease(session: RingSession, token: bytes) -> None:
    """Give the ring back; recorded ends wait for the next operation."""
    with session.store.writing() as unit:
        unit.rings.drop_lease(session.ring_id, token)


def leave_dead(session: RingSession) -> None:
    """Leave the ring as a service that died does."""
    token = b"d" * 16
    take_lease(session, token)
    with session.store.writing() as unit:
        unit.rings.drop_lease(session.ring_id, token, holder_name("serviced", session.actor))
