"""Traces of a real Airflow: from a task that sends, through a block, to what became of the message."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.airflow.receivers import attributes_of
from tests.live.conftest import World

RING = "traced"
PATIENCE = 60.0


def test_a_trace_leads_from_the_sender_to_the_outcome(worlds: dict[str, World]) -> None:
    world = worlds["sqlite"]
    world.make_ring(RING)
    assert world.run_block("send", RING) == "success"
    assert world.run_block("in_place", RING) == "success"

    spans = received(world)

    sent, plan, settle = (only(spans, f"{what} {RING}") for what in ("send", "plan", "settle"))
    outcome = next(one for one in spans[f"process {RING}"] if "airflow_mq.outcome" in attributes_of(one))
    part = next(one for one in spans[f"process {RING}"] if "airflow_mq.part" in attributes_of(one))
    assert attributes_of(outcome)["airflow_mq.outcome"] == "done"
    # In the message's own trace, which is the sender's, and linked to the block.
    assert (outcome.trace_id, outcome.parent_span_id) == (sent.trace_id, sent.span_id)
    assert [link.span_id for link in outcome.links] == [plan.span_id]
    assert [link.span_id for link in plan.links] == [sent.span_id]
    assert plan.trace_id == part.trace_id == settle.trace_id


def only(spans: dict[str, list[Any]], name: str) -> Any:
    (one,) = spans[name]
    return one


def received(world: World) -> dict[str, list[Any]]:
    """The spans of the ring by their names, once all are there: each task sends its own, and they overtake each other."""
    give_up = time.monotonic() + PATIENCE
    while time.monotonic() < give_up:
        spans: dict[str, list[Any]] = {}
        for span in world.collector.spans():
            spans.setdefault(span.name, []).append(span)
        counts = [len(spans.get(f"{what} {RING}", ())) for what in ("send", "plan", "process", "settle")]
        if counts == [1, 1, 2, 1]:
            return spans
        time.sleep(0.5)
    pytest.fail(f"spans that arrived: {sorted(span.name for span in world.collector.spans())}")
