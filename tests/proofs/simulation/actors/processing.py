"""Processing: what processors answer."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from airflow_mq import BadFormat, Delivery, Done, Outcome, Overweight, Unsupported, Weight, Yield
from airflow_mq.engine.rules.outcome import DONE

from ..messages import child_of, is_odd, is_parent


def done(payload: bytes) -> Outcome:
    """Return the answer for a message that was processed; a parent sends one more. Plain ones are recorded together."""
    if is_odd(payload):
        return BadFormat()
    return Done(enqueue=[("children", child_of(payload))]) if is_parent(payload) else DONE


def answers(random: Random, payloads: Sequence[bytes]) -> list[Outcome]:
    """Return the answers for neighbours: those behind one that is not done are not tried."""
    found: list[Outcome] = []
    for payload in payloads:
        is_behind = bool(found) and isinstance(found[-1], (Yield, Overweight))
        found.append(Yield("behind another") if is_behind else answer(random, payload))
    return found


def answered(random: Random, delivery: Delivery) -> Outcome:
    """Return the answer for a message; two workers of one block answer alike, so that it is no matter which comes first."""
    source = random if delivery.block is None else Random(f"{delivery.block} {delivery.payload!r}")
    return answer(source, delivery.payload)


def answer(random: Random, payload: bytes) -> Outcome:
    """Return the answer of a processor that has bad days."""
    draw = random.random()
    if draw < 0.75:
        return done(payload)
    if draw < 0.85:
        return Yield("not now")
    if draw < 0.9:
        return BadFormat()
    if draw < 0.93:
        return Unsupported()
    if draw < 0.97:
        return Overweight(Weight(random.choice((5, 500)), 10))
    if is_parent(payload) or is_odd(payload):
        return done(payload)
    # Some processors measure in nanoseconds.
    return Done(success=False, used=Weight(10**13, 30) if draw > 0.985 else Weight(30, 30))
