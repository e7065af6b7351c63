"""`ring`: how rings are made and set."""

from __future__ import annotations

import json
from pathlib import Path

from tests.store.cli.conftest import Terminal


def test_the_first_ring_is_there(mq: Terminal) -> None:
    assert mq("ring", "list").out == "default\n"
    shown = mq.json("ring", "show")

    assert shown["ring"] == "default"
    assert shown["config"]["order"] == "deficit"
    assert shown["warnings"] == []


def test_a_ring_is_made_with_its_settings(mq: Terminal) -> None:
    mq("ring", "create", "night", "--order", "rotation", "--service-weight", "1,000/5000", "--no-ordered",
       "--set", "max_attempts=3", "--set", 'costs={"service_page_item": [1, 0]}')  # fmt: skip
    config = mq.json("ring", "show", "night")["config"]

    assert (config["order"], config["service_weight"], config["ordered"]) == ("rotation", [1000, 5000], False)
    assert (config["max_attempts"], config["costs"]) == (3, {"service_page_item": [1, 0]})
    assert mq.json("ring", "list") == ["default", "night"]
    assert mq.json("--ring", "night", "ring", "show")["ring"] == "night"


def test_a_ring_is_changed_by_the_named_settings(mq: Terminal) -> None:
    changed = mq.json("ring", "change", "--lease", "60", "--set", 'weigher={"base": [7, 0], "per_byte": [0, 1000]}')

    assert changed["config"]["lease"] == 60
    assert changed["config"]["weigher"]["base"] == [7, 0]
    assert changed["config"]["heap_size"] == 65536
    assert mq.json("ring", "show") == changed


def test_a_ring_without_a_tariff_has_no_limit_of_it(mq: Terminal) -> None:
    assert "tariff                 none\n" in mq("ring", "show").out


def test_what_was_shown_can_make_another(mq: Terminal, tmp_path: Path) -> None:
    mq("ring", "change", "--backoff", "5")
    path = tmp_path / "ring.json"
    path.write_text(mq("ring", "show", "--json").out)

    mq("ring", "create", "copy", "--file", str(path))

    assert mq.json("ring", "show", "copy")["config"] == json.loads(path.read_text())["config"]


def test_what_cannot_be_is_refused_with_the_reason(mq: Terminal) -> None:
    assert "heap_size cannot shrink" in mq("ring", "change", "--set", "heap_size=1000", code=2).err
    assert mq.json("ring", "change", "--set", "max_origins=9")["config"]["max_origins"] == 9
    assert mq.json("ring", "change", "--set", "max_origins=none")["config"]["max_origins"] is None
    assert "unknown setting 'colour'" in mq("ring", "change", "--set", "colour=blue", code=2).err
    assert "no setting: expected" in mq("ring", "change", code=2).err
    assert "to create it, run `airflow-mq ring create nope`" in mq("ring", "show", "nope", code=3).err
    # No ring could have this name.
    assert "create" not in mq("ring", "show", "no such", code=3).err
    assert "already" in mq("ring", "create", "default", code=3).err
    assert "TIME/SIZE" in mq("ring", "create", "x", "--service-weight", "12", code=2).err
    assert "cannot be read" in mq("ring", "create", "x", "--file", "/nowhere.json", code=2).err
    for words in (("show", ""), ("change", "", "--max-attempts", "1")):
        assert "the name of the ring is empty" in mq("ring", *words, code=2).err
    assert mq.json("ring", "show")["config"]["max_attempts"] != 1


def test_what_will_hardly_be_wanted_is_warned_of(mq: Terminal) -> None:
    said = mq("ring", "create", "tight", "--service-weight", "10/100")

    assert said.err.startswith("warning: ")
    assert mq.json("ring", "show", "tight")["warnings"]
