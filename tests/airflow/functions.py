"""Functions of the processors in these tests."""

from __future__ import annotations

from typing import Any

from airflow_mq import BadFormat, Done, Overweight, Weight, Yield

#: Processed messages in order: payload and origin.
SEEN: list[tuple[bytes, str]] = []


def process(payload: bytes, origin: str) -> Any:
    """Record the message, and answer by its payload.

    `yield`, `bad`, `raise` and `heavy` give that outcome, `next` enqueues a message, and `used` reports a weight.
    """
    SEEN.append((payload, origin))
    if payload.startswith(b"raise"):
        raise ValueError("no such order")
    answers = {
        b"yield": Yield("later"), b"bad": BadFormat(), b"heavy": Overweight(Weight(10**12, 0)),
        b"used": Done(used=Weight(7, 4)), b"next": Done(enqueue=[("stage-2", b"sent on")]),
    }  # fmt: skip
    return answers.get(payload)


def quote(payload: bytes, origin: str) -> None:
    """Fail with an error that quotes the payload."""
    int(payload)
