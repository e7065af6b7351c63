"""Processors: routing, parts of a block, files, and invalid values."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_mq import Processor, Processors
from airflow_mq.engine.rules.errors import InvalidInput
from airflow_mq.processors import part_of

ORDERS = Processor("orders", "shop.orders:process", origins=("*/orders",), split=4)
MAIL = Processor("mail", "shop.mail:send", origins=("*/mail", "post"), where="in place")
REST = Processor("rest", "shop:rest", spark={"driver_memory": "2g"})
ALL = Processors([ORDERS, MAIL, REST], unrouted="refuse")


def test_first_matching_processor_takes_an_origin() -> None:
    taken = {origin: ALL.route(origin) for origin in ("a/orders", "a/b/orders", "post", "POST", "a\n/mail", "x")}

    assert taken == {
        "a/orders": ORDERS, "a/b/orders": ORDERS, "post": MAIL, "POST": REST, "a\n/mail": MAIL, "x": REST,
    }  # fmt: skip
    assert Processors([ORDERS]).unrouted_of(["a/orders", "b"]) == ["b"]


def test_patterns_match_literally() -> None:
    odd = Processors([Processor("odd", "m:f", origins=["--conf *", "{{ a }}", "[ab]c", "x?"])])

    assert all(odd.route(origin) for origin in ("--conf spark.master=x", "{{ a }}", "ac", "xy"))
    assert not any(odd.route(origin) for origin in ("--conf", "{{a}}", "cc", "x"))


def test_origins_are_in_exactly_one_part() -> None:
    counts = {f"tenant-{n}/orders": 1000 for n in range(40)} | {"post": 3, "x": 10}

    parts = ALL.parts(counts, share_below=100)

    assert [part["name"] for part in parts[:4]] == [f"orders {n}/4" for n in range(1, 5)]
    assert sum(part["messages"] for part in parts) == 40_013
    taken = [origin for part in parts for mine in ALL.mine(part, counts).values() for origin in mine]
    assert sorted(taken) == sorted(counts)
    assert json.loads(json.dumps(parts)) == parts


def test_number_of_parts_is_independent_of_origins() -> None:
    wide = Processors([Processor(f"p{n}", "m:f", origins=(f"{n}-*",), split=3) for n in range(5)])

    parts = wide.parts({f"{n}-{k}": 50 for n in range(5) for k in range(2000)}, share_below=10)

    assert len(parts) == 15


def test_processors_with_equal_settings_share_a_job() -> None:
    some = [Processor(f"p{n}", "m:f", origins=(f"{n}",)) for n in range(5)]
    other = Processor("big", "m:f", origins=("big",), spark={"driver_memory": "8g"})
    here = Processor("here", "m:f", origins=("here",), where="in place")
    counts = {**{str(n): 30 for n in range(5)}, "big": 5, "here": 1}

    parts = Processors([*some, other, here]).parts(counts, share_below=130)

    assert [(part["name"], part["messages"], part["where"]) for part in parts] == [
        ("p0 + p1 + p2 and 1 more", 120, "spark"), ("p4", 30, "spark"), ("big", 5, "spark"), ("here", 1, "in place"),
    ]  # fmt: skip
    assert Processors(some).parts({"0": 1, "1": 1}, share_below=0) != []


def test_empty_work_has_no_parts() -> None:
    assert ALL.parts({}) == []
    assert ALL.parts({"a/orders": 0}) == []
    assert Processors([ORDERS]).parts({"unrouted": 7}) == []


def test_origin_always_belongs_to_the_same_part() -> None:
    assert [part_of(origin, 7) for origin in ("a", "acme/orders", "日本", "\udc80")] == [4, 3, 0, 5]


def test_processors_round_trip_as_json(tmp_path: Path) -> None:
    assert Processors.from_json(ALL.to_json()) == ALL
    routes = Processors.from_json(ALL.routes_json())
    assert "driver_memory" not in ALL.routes_json()
    assert [routes.route(origin).name for origin in ("a/orders", "post", "x")] == ["orders", "mail", "rest"]  # type: ignore[union-attr]

    (tmp_path / "p.json").write_text(ALL.to_json())
    assert Processors.from_file(tmp_path / "p.json") == ALL


TOML = """
unrouted = "refuse"

[[processors]]
name = "orders"
function = "shop.orders:process"
origins = ["*/orders"]
split = 4
"""


def test_toml_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(TOML)

    if sys.version_info < (3, 11):
        with pytest.raises(InvalidInput, match=r"write the processors as \.json"):
            Processors.from_file(tmp_path / "p.toml")
    else:
        assert Processors.from_file(tmp_path / "p.toml") == Processors([ORDERS], unrouted="refuse")


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"name": "Orders!"}, "a-z, 0-9"),
        ({"name": ""}, "1 to 40"),
        ({"function": "shop.orders"}, "module:function"),
        ({"function": "os:system('x')"}, "module:function"),
        ({"origins": []}, "patterns"),
        ({"origins": [7]}, "1 to 255"),
        ({"shape": "row"}, "'message' or 'arrow' or 'dataframe'"),
        ({"where": "yarn"}, "'spark' or 'in place'"),
        ({"where": "in place", "shape": "dataframe"}, "requires Spark"),
        ({"where": "in place", "spark": {"conf": {}}}, "cannot have spark arguments; remove them"),
        ({"split": 0}, "from 1 to"),
        ({"split": True}, "from 1 to"),
        ({"spark": {"application": "x.py"}}, "cannot set application"),
        ({"spark": ["conf"]}, "by name"),
        ({"colour": "red"}, "unknown field of a processor colour"),
    ],
)
def test_invalid_processor_is_rejected(fields: dict[str, Any], error: str) -> None:
    with pytest.raises(InvalidInput, match=error):
        Processor.from_plain({"name": "orders", "function": "m:f", **fields})


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[", "invalid JSON"),
        ("[]", "a list called processors"),
        ('{"processors": []}', "at least one"),
        ('{"processors": [{"name": "a"}]}', "no function"),
        ('{"processors": [3]}', "an object with name"),
        ('{"processors": [{"name": "a", "function": "m:f"}], "more": 1}', "unknown field more"),
        (
            '{"processors": [{"name": "a", "function": "m:f"}, {"name": "a", "function": "m:g"}]}',
            "duplicate name of processors a",
        ),
        ('{"processors": [{"name": "a", "function": "m:f"}], "unrouted": "lose"}', "'pause' or 'refuse'"),
    ],
)
def test_invalid_processors_are_rejected(text: str, error: str) -> None:
    with pytest.raises(InvalidInput, match=error):
        Processors.from_json(text)


def test_unreadable_files_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("processors: []")
    (tmp_path / "p.json").write_text("{")
    for name, error in (
        ("p.yaml", r"\.toml or \.json"),
        ("p.json", "p.json: .*invalid JSON"),
        ("none.json", "none.json"),
    ):
        with pytest.raises(InvalidInput, match=error):
            Processors.from_file(tmp_path / name)


def test_import_loads_neither_airflow_nor_spark_nor_a_database() -> None:
    code = (
        "import dataclasses, json, typing, sys, time; before = set(sys.modules); begun = time.process_time();"
        "import airflow_mq.processors; took = time.process_time() - begun;"
        "print(took, *sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    runs = [subprocess.check_output([sys.executable, "-c", code], text=True).split() for _ in range(5)]

    assert min(float(took) for took, *_ in runs) < 0.06
    assert not {"airflow", "pyspark", "psycopg", "sqlite3", "pyarrow"} & set(runs[0])
