"""A mixed load at a fixed rate: half of the messages in single sends, half in bulk calls, and one consumer.

A driver gives a `Side` that makes messages with their time of sending, sends them and consumes them.
Senders are processes of their own. A sender that falls behind catches up for a moment, then skips
what it missed, so the rate in is what the queue accepts. The consumer works in rounds.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from ctypes import c_int64
from dataclasses import dataclass
from typing import Any

#: Seconds from one round of a consumer to the next, and from one look at the clock of a sender to the next.
ROUND = 0.1
BEAT = 0.02
#: A sender catches up with so many seconds.
BEHIND = 0.5
SINGLE_CLIENTS = 4
#: Messages in a bulk call, and origins of it.
CALL = 100
SPREAD = 10

Send = Callable[[Sequence[Any]], None]


@dataclass(frozen=True)
class Side:
    """How a driver takes part. Times are nanoseconds of the monotonic clock."""

    #: A message of the n-th origin with its time.
    message: Callable[[int, int], Any]
    connect_single: Callable[[], Send]
    connect_bulk: Callable[[], Send]
    #: Process and acknowledge what waits; return the times of the messages.
    connect_consumer: Callable[[], Callable[[], Sequence[int]]]
    #: Housekeeping that the documentation leaves to a process beside, in a loop of its own.
    keep: Callable[[], None] | None = None


def run(side: Side, seconds: float, rate: int, every: float) -> dict[str, Any]:
    """Run the load; return, for each interval, messages in and out and latencies in milliseconds."""
    context = multiprocessing.get_context("fork")
    sent = context.Array(c_int64, SINGLE_CLIENTS + 1, lock=False)
    start = time.monotonic() + 1
    half = rate / 2
    works: dict[str, tuple[Any, ...]] = {
        f"single sends {number}": (_single, side, sent, number, half / SINGLE_CLIENTS, start, seconds)
        for number in range(SINGLE_CLIENTS)
    }
    works["bulk calls"] = (_bulk, side, sent, SINGLE_CLIENTS, half, start, seconds)
    if side.keep:
        works["housekeeping"] = (_kept, side.keep)
    processes = [context.Process(target=_in_child, name=name, args=work, daemon=True) for name, work in works.items()]
    for process in processes:
        process.start()
    try:
        windows = []
        for window in _consume(side.connect_consumer(), sent, start, seconds, every):
            _check(processes)
            windows.append(window)
        return {"windows": windows}
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _check(processes: Sequence[Any]) -> None:
    """Raise an error if a process ended with one: the load would go on without its part."""
    for process in processes:
        if process.exitcode:
            raise RuntimeError(f"the process of {process.name} ended with exit code {process.exitcode}")


def _consume(
    consume: Callable[[], Sequence[int]], sent: Any, start: float, seconds: float, every: float
) -> Iterator[dict[str, float]]:
    latencies, before, cpu, at = array("d"), 0, time.process_time(), 0.0
    time.sleep(max(0.0, start - time.monotonic()))
    while at < seconds - every / 2:
        begun = time.monotonic()
        stamps = consume()
        now = time.monotonic_ns()
        latencies.extend([(now - stamp) / 1e6 for stamp in stamps])
        if (passed := time.monotonic() - start) >= at + every:
            total, spent = sum(sent), time.process_time()
            yield {
                "at": passed,
                "seconds": passed - at,
                "in": total - before,
                "cpu": spent - cpu,
                **_ranks(latencies),
            }
            latencies, before, cpu, at = array("d"), total, spent, passed
        time.sleep(max(0.0, begun + ROUND - time.monotonic()))


def _ranks(latencies: array[float]) -> dict[str, float]:
    ranked = sorted(latencies)
    told: dict[str, float] = {"out": len(ranked)}
    for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999)):
        told[name] = ranked[int(len(ranked) * share)] if ranked else 0.0
    return told


def _in_child(work: Callable[..., None], *arguments: Any) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        work(*arguments)
    os._exit(0)


def _single(side: Side, sent: Any, number: int, rate: float, start: float, seconds: float) -> None:
    send = side.connect_single()
    origin = number

    def some(count: int) -> None:
        nonlocal origin
        for _ in range(count):
            send([side.message(origin, time.monotonic_ns())])
            origin += SINGLE_CLIENTS
            sent[number] += 1

    _paced(some, rate, 1, start, seconds)


def _bulk(side: Side, sent: Any, number: int, rate: float, start: float, seconds: float) -> None:
    send = side.connect_bulk()
    first = 0

    def some(count: int) -> None:
        nonlocal first
        for _ in range(count // CALL):
            now = time.monotonic_ns()
            send([side.message(first + place * SPREAD // CALL, now) for place in range(CALL)])
            first += SPREAD
            sent[number] += CALL

    _paced(some, rate, CALL, start, seconds)


def _paced(send: Callable[[int], None], rate: float, least: int, start: float, seconds: float) -> None:
    """Send so many messages a second, at least `least` at a time."""
    time.sleep(max(0.0, start - time.monotonic()))
    done = 0
    while (passed := time.monotonic() - start) < seconds:
        done = max(done, int((passed - BEHIND) * rate))
        if count := (int(passed * rate) - done) // least * least:
            send(count)
            done += count
        else:
            time.sleep(BEAT)


def _kept(keep: Callable[[], None]) -> None:
    keep()
