"""Assertions about a queue: a failing one names what was found, also where pytest rewrites no assertions."""

from __future__ import annotations

import pytest

from airflow_mq.testing import assert_ring, scratch_queue


def test_an_unexpected_ring_is_named() -> None:
    with scratch_queue() as queue:
        queue.enqueue_messages([("acme", b"1"), ("birch", b"2")])
        assert_ring(queue, ["acme", "birch"])
        with pytest.raises(AssertionError, match=r"begins with \['acme', 'birch'\], not \['acme'\]"):
            assert_ring(queue, ["acme"])
