"""Hypothesis strategies: settings, weights, limits and outcomes."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from airflow_mq import (
    BadFormat,
    Corrupt,
    Costs,
    Done,
    LinearWeigher,
    Overweight,
    RingConfig,
    StackLimitReached,
    Unsupported,
    Weight,
    Yield,
)

ORIGINS = ("0", "1", "2", "3")
origins = st.sampled_from(ORIGINS)
#: Origins that are paused and swept; a few, so that other rules apply, too.
troubled = st.sampled_from(ORIGINS[2:])
weights = st.tuples(st.integers(0, 6), st.integers(0, 6))
declarations = weights | st.sampled_from([(9, 2), (13, 1), (40, 40)])
limits = st.sampled_from([(3, 3), (6, 8), (12, 12), (25, 40), (200, 200)])
parts = st.integers(0, 2)
#: Limits of a ring for one message, in bytes and as a fraction of a block; mostly none.
sizes = st.sampled_from([None, None, None, 12, 40])
fractions = st.sampled_from([None, None, 0.25, 0.25, 0.6])


@st.composite
def costs(draw: Any) -> Costs:
    if draw(st.booleans()):
        return Costs()
    names = ("bump_service_head", "service_queue_base", "service_page_base_completion", "service_page_item",
             "ready_ring_unknit", "execute_overweight_page_updated", "execute_overweight_page_removed",
             "set_service_head")  # fmt: skip
    return Costs(**{name: Weight(draw(st.integers(0, 1)), draw(st.integers(0, 1))) for name in names})


configs = st.builds(
    RingConfig,
    heap_size=st.sampled_from([48, 64, 150]),
    max_stale=st.integers(0, 2),
    costs=costs(),
    service_weight=st.sampled_from([Weight(12, 12), Weight(12, 12), Weight(30, 20), None]),
    order=st.sampled_from(["rotation", "rotation", "deficit", "deficit", "shuffle"]),
    rounds_per_block=st.sampled_from([1, 3, 8]),
    ordered=st.booleans(),
    max_attempts=st.sampled_from([None, None, 1, 2]),
    backoff=st.sampled_from([0.0, 0.0, 0.0, 8.0]),
    max_message_size=sizes,
    most_of_limit=fractions,
    lease=st.just(60.0),
    key_window=st.just(100.0),
    weigher=st.sampled_from([LinearWeigher(Weight(1, 1), Weight(0, 0)), LinearWeigher(Weight(1, 0), Weight(0, 100))]),
)
#: Settings of an origin.
standings = st.fixed_dictionaries({
    "share": st.none() | st.integers(1, 4), "most": st.none() | st.just((5, 6)), "least": st.none() | st.just((4, 4)),
    "ordered": st.none() | st.booleans(),
})  # fmt: skip
outcomes = st.one_of(
    st.builds(Done, success=st.booleans()),
    st.just(Done()),
    st.just(Done()),
    st.builds(Done, used=st.builds(Weight, st.integers(0, 9), st.integers(0, 9))),
    st.sampled_from([BadFormat(), Corrupt(), Unsupported(), StackLimitReached(), Yield("later")]),
    st.builds(lambda w: Overweight(Weight(*w)), st.sampled_from([(1, 1), (5, 2), (11, 11), (50, 50)])),
)
