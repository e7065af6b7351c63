"""Figures of fairness are made without Python's collector of cycles, and leave it as it was."""

from __future__ import annotations

import gc
import os

import pytest

from airflow_mq.engine.queue.inspect.fairness import without_collector


def test_the_collector_goes_on_after_an_error() -> None:
    assert gc.isenabled()
    with pytest.raises(ValueError, match="damaged"), without_collector():
        assert not gc.isenabled()
        raise ValueError("damaged")
    assert gc.isenabled()


def test_the_collector_goes_on_in_a_child_that_is_forked_meanwhile() -> None:
    with without_collector():
        pid = os.fork()
        if pid == 0:
            os._exit(not gc.isenabled())
        assert os.waitpid(pid, 0)[1] == 0
        assert not gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with without_collector():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
