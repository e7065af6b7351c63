"""Scenario files, and the errors for invalid ones."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from airflow_mq import RingConfig, Weight
from airflow_mq.core.book import Standing
from airflow_mq.core.errors import InvalidInput
from airflow_mq.simulating import Arrival, Policy, Scenario, draw, read_scenario, simulate

BY_HAND: dict[str, Any] = {
    "name": "two", "blocks": 6, "seed": 3, "order": "rotation", "limit": [10, 1000],
    "ring": {"heap_size": 500},
    "origin": [
        {"name": "loud", "burst": {"count": 20, "first": 2, "every": 3}, "size": 5, "weight": [1, 5], "share": 2},
        {"name": "tenant", "count": 2, "rate": 1, "steady": True, "least": [1, 1], "most": [5, 9], "ordered": False},
    ],
    "policy": [{"order": "deficit"}, {"name": "wide", "limit": [20, 2000], "shares": {"loud": 1},
                                      "ring": {"rounds_per_block": 8}}],
}  # fmt: skip


def read(tmp_path: Path, said: Any, name: str = "s.json") -> Scenario:
    file = tmp_path / name
    file.write_text(said if isinstance(said, str) else json.dumps(said))
    return read_scenario(file)


def test_by_hand(tmp_path: Path) -> None:
    told = read(tmp_path, BY_HAND)
    assert (told.name, told.blocks, told.seed) == ("two", 6, 3)
    assert told.ring == RingConfig(order="rotation", service_weight=Weight(10, 1000), heap_size=500)
    assert [one for one in told.arrivals if one.origin == "loud"] == [
        Arrival(2, "loud", 20, 5, Weight(1, 5)), Arrival(5, "loud", 20, 5, Weight(1, 5)),
    ]  # fmt: skip
    assert [one.block for one in told.arrivals if one.origin == "tenant-2"] == [1, 2, 3, 4, 5, 6]
    tenant = Standing(1, Weight(1, 1), Weight(5, 9), False)
    assert told.standings == {"loud": Standing(2), "tenant-1": tenant, "tenant-2": tenant}
    assert told.policies == [
        Policy("deficit", "deficit"),
        Policy("wide", None, Weight(20, 2000), {"loud": 1}, {"rounds_per_block": 8}),
    ]
    assert [one.policy.name for one in simulate(told)] == ["deficit", "wide"]
    assert simulate(told)[1].limit == Weight(20, 2000)


def test_toml(tmp_path: Path) -> None:
    pytest.importorskip("tomllib")
    text = 'blocks = 3\nlimit = [5, 5]\n[[origin]]\nname = "a"\nrate = 1\nsteady = true\nsize = [1, 2]\nweight = [[1, 1], [2, 2]]\n'
    told = read(tmp_path, text, "mine.toml")
    assert told.name == "mine" and told.messages == 3 and all(one.size in (1, 2) for one in told.arrivals)
    assert all(one.weight in (Weight(1, 1), Weight(2, 2)) for one in told.arrivals)
    with pytest.raises(InvalidInput, match="invalid TOML"):
        read(tmp_path, "blocks =", "mine.toml")


def test_lines(tmp_path: Path) -> None:
    told = read(tmp_path, '{"block": 2, "origin": "a"}\n\n{"block": 1, "origin": "b", "weight": [1, 2]}\n', "s.jsonl")
    assert told.arrivals == [Arrival(2, "a"), Arrival(1, "b", weight=Weight(1, 2))]
    assert (told.blocks, told.ring) == (2, RingConfig())


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ([], "expected a table"),
        ({"odd": 1}, "unknown name in a scenario odd"),
        ({"blocks": 0}, "invalid blocks .*: expected a whole number"),
        ({"blocks": True}, "invalid blocks .*: expected a whole number"),
        ({"origin": {}}, "a list of tables"),
        ({"origin": [{}]}, "missing name of an origin"),
        ({"origin": [{"name": "a", "rate": "x"}]}, "invalid rate .x.: expected a number"),
        ({"origin": [{"name": "a", "rate": -1}]}, "invalid rate"),
        ({"origin": [{"name": "a", "count": 1 << 30}]}, "invalid count .*: expected a whole number"),
        ({"origin": [{"name": "a", "burst": {"odd": 1}}]}, "unknown name in a burst odd"),
        ({"origin": [{"name": "a", "weight": [1]}]}, "pair"),
        ({"origin": [{"name": "a", "ordered": 1}]}, "invalid ordered 1: expected true or false"),
        ({"origin": [{"name": "a", "priority": "odd"}]}, "invalid priority"),
        ({"origin": [{"name": "a", "size": "x"}]}, "invalid size .*: expected a whole number"),
        ({"limit": [1]}, "weight"),
        ({"ring": {"odd": 1}}, "unknown setting"),
        ({"policy": [{"order": 3}]}, "invalid order 3: expected text"),
        ({"policy": [{"shares": {"a": 0}}]}, "invalid share .*: expected a whole number"),
        ({"origin": [{"name": "a", "burst": {"count": 1 << 40}}], "blocks": 2}, "at most"),
        ("{", "invalid JSON"),
    ],
)
def test_what_makes_no_sense(tmp_path: Path, said: Any, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        read(tmp_path, said)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x", "line 1: invalid JSON"),
        ('{"block": 1}', "line 1: incomplete arrival"),
        ('{"scenario": 2}', "version of a scenario 2"),
        ('{"scenario": 1, "odd": 1}', "unknown name in .* odd"),
        ('{"scenario": 1}\n{"block": 0, "origin": "a"}', "line 2: invalid block"),
        ('{"block": 1, "origin": "a", "weight": 5}', "line 1"),
        ('{"block": 1, "origin": 5}', "line 1"),
        ('{"block": 1, "origin": "a", "count": "many"}', "line 1"),
    ],
)
def test_lines_that_make_no_sense(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        read(tmp_path, text, "s.jsonl")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot read scenario"):
        read_scenario(tmp_path / "no.toml")


def test_the_picture_escapes_every_name() -> None:
    """Whatever origins, scenarios and policies are called, it is one well-formed picture without a script."""
    evil = '<script>alert("1")</script>&'
    arrivals = [Arrival(1, evil, 9), Arrival(1, "ordinary", 30), *(Arrival(2, f"o{n}") for n in range(20))]
    scenario = Scenario(arrivals, 400, RingConfig(service_weight=Weight(4, 1 << 20)), name=f"{evil}\x1b\x00")
    picture = draw(scenario, simulate(scenario, [Policy(f"{evil}'x", "deficit"), Policy("b", "rotation")]))
    root = ElementTree.fromstring(picture)  # noqa: S314 - our own
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    kinds = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert kinds == {"svg", "rect", "text", "path"}
    assert evil in "".join(root.itertext())
    assert "href" not in picture and len(picture) < 400_000
    assert draw(Scenario([], 1), simulate(Scenario([], 1)))
