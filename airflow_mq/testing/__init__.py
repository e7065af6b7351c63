"""Helpers for tests of code that uses the queue: temporary stores, a scripted processor, and assertions.

::

    from airflow_mq.testing import RecordingProcessor, assert_sound, scratch_queue

    def test_heavy_orders_wait_for_a_person():
        with scratch_queue(service_weight=(10, 10)) as queue:
            queue.enqueue_message("acme", b"w=20,20")
            queue.service_queues(RecordingProcessor())
            assert [one.reason for one in queue.set_aside.list()] == ["overweight"]
            assert_sound(queue)
"""

from __future__ import annotations

from .processor import RecordingProcessor, Script
from .scratch import assert_ring, assert_sound, scratch_queue, scratch_store

__all__ = ["RecordingProcessor", "Script", "assert_ring", "assert_sound", "scratch_queue", "scratch_store"]
