"""A payload of any size goes through bounded memory. `AIRFLOW_MQ_BLOB_MIB=1024` makes it a gibibyte."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from tests.queue.conftest import Maker

MIB = 1 << 20
SIZE = int(os.environ.get("AIRFLOW_MQ_BLOB_MIB", "256"))


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
def test_a_large_payload_goes_in_and_out_through_bounded_memory(make_queue: Maker) -> None:
    queue = make_queue(order="rotation")
    block = random.Random(1).randbytes(MIB)

    def chunks() -> Iterator[bytes]:
        for number in range(SIZE):
            yield number.to_bytes(4, "big") + block[4:]

    # What the driver and the allocator need for a first chunk is not what is looked at.
    queue.payloads.enqueue("warm", block * 8)
    queue.service_queues(lambda delivery: None)
    before, most = _resident(), 0

    def look(*_: object) -> None:
        nonlocal most
        most = max(most, _resident() - before)

    queue.payloads.enqueue("acme", chunks(), progress=look)
    (blob,) = queue.payloads.list()
    with queue.payloads.open(blob) as file:
        while file.read(MIB):
            look()
    queue.service_queues(lambda delivery: look())
    assert queue.payloads.list() == [] and blob.size == SIZE * MIB
    assert most < 64 * MIB, f"{most / MIB:.1f} MiB"
