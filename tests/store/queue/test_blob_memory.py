"""Memory use of external payloads; `AIRFLOW_MQ_BLOB_MIB=1024` tests a gibibyte."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from tests.store.queue.conftest import Maker

MIB = 1 << 20
SIZE = int(os.environ.get("AIRFLOW_MQ_BLOB_MIB", "256"))


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
def test_large_payload_needs_bounded_memory(make_queue: Maker) -> None:
    queue = make_queue(order="rotation")
    block = random.Random(1).randbytes(MIB)

    def chunks() -> Iterator[bytes]:
        for number in range(SIZE):
            yield number.to_bytes(4, "big") + block[4:]

    # Exclude the memory that the driver and the allocator need for a first chunk.
    queue.payloads.enqueue("warm", block * 8)
    queue.service_queues(lambda delivery: None)
    before, peak = _resident(), 0

    def measure(*_: object) -> None:
        nonlocal peak
        peak = max(peak, _resident() - before)

    queue.payloads.enqueue("acme", chunks(), progress=measure)
    (blob,) = queue.payloads.list()
    with queue.payloads.open(blob) as file:
        while file.read(MIB):
            measure()
    queue.service_queues(lambda delivery: measure())
    assert queue.payloads.list() == [] and blob.size == SIZE * MIB
    assert peak < 64 * MIB, f"{peak / MIB:.1f} MiB"
