"""Rendezvous hashing: each origin has one owner, by weight, and a new shard takes origins only for itself."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mq.core.errors import ConfigRefused, StoreCorrupt
from airflow_mq.sharding import Layout
from airflow_mq.sharding.layout import check_shards, owner_of

ORIGINS = [f"tenant {number}" for number in range(4_000)]
WEIGHTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 5), min_size=1).filter(lambda w: any(w.values()))


def test_owners_are_the_same_for_ever() -> None:
    """A change of the hash would move every origin of every sharded queue."""
    assert [owner_of(f"o{number}", {"a": 1, "b": 2, "c": 1}) for number in range(10)] == list("bbbcabbbab")


def test_origins_are_divided_by_weight() -> None:
    counts = Counter(owner_of(origin, {"a": 1, "b": 2, "c": 5, "d": 0}) for origin in ORIGINS)
    assert counts["d"] == 0
    for name, share in {"a": 1 / 8, "b": 2 / 8, "c": 5 / 8}.items():
        assert abs(counts[name] / len(ORIGINS) - share) < 0.03


@given(WEIGHTS, st.sampled_from("abcdef"), st.integers(1, 5))
def test_more_weight_moves_origins_to_that_shard_only(shards: dict[str, int], name: str, more: int) -> None:
    grown = {**shards, name: shards.get(name, 0) + more}
    for origin in ORIGINS[:100]:
        assert owner_of(origin, grown) in (owner_of(origin, shards), name)


@given(WEIGHTS, st.lists(WEIGHTS, max_size=3))
def test_a_layout_is_stored_and_read(shards: dict[str, int], former: list[dict[str, int]]) -> None:
    layout = Layout(3, check_shards(shards), tuple(map(check_shards, former)))
    assert Layout.from_json(layout.to_json()) == layout


def test_former_owners_are_all_but_the_owner() -> None:
    layout = Layout(3, {"c": 1}, ({"a": 1}, {"b": 1}, {"c": 1}, {"a": 1}))
    assert layout.former_owners("acme") == ["a", "b"]


@pytest.mark.parametrize("shards", [{}, {"a": 0}, {"a": -1}, {"a": 65}, {"a": True}, {"": 1}, {"a b": 1}, {"a\n": 1}])
def test_invalid_shards_are_refused(shards: dict[str, int]) -> None:
    with pytest.raises(ConfigRefused):
        check_shards(shards)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1, "shards": {"a": "x"}, "former": []}'])
def test_a_damaged_layout_is_reported(text: str) -> None:
    with pytest.raises((StoreCorrupt, ConfigRefused)):
        Layout.from_json(text)
