"""Processors for the command line to call."""

from __future__ import annotations

import os
import signal
import sys

from airflow_mq import BadFormat, Batch, Delivery, Overweight, Weight, Yield

NOT_A_FUNCTION = 17


def done(delivery: Delivery) -> None:
    print("processing", delivery.payload.decode())


def ended_meanwhile(delivery: Delivery) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def not_now(delivery: Delivery) -> Yield:
    return Yield("later")


def wrong(delivery: Delivery) -> BadFormat:
    return BadFormat()


def raises(delivery: Delivery) -> None:
    raise ValueError("no such customer\x1b[31m")


def exits(delivery: Delivery) -> None:
    sys.exit(3)


def too_heavy(delivery: Delivery) -> Overweight:
    return Overweight(Weight(1 << 60, 0))


def interrupted(delivery: Delivery) -> None:
    raise KeyboardInterrupt


def whole_batch(batch: Batch) -> None:
    print("batch of", len(batch))


async def waits(payload: bytes, origin: str) -> None:
    """Process nothing unless it is awaited."""
