"""`simulate`: policies side by side, from a file or from what arrived."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from airflow_mq import MessageQueue, Weight
from airflow_mq.cli import main
from tests.cli.conftest import Terminal

SCENARIO = {
    "blocks": 8, "limit": [16, 100000], "ring": {"rounds_per_block": 16},
    "origin": [
        {"name": "loud", "burst": {"count": 64}, "weight": [1, 0]},
        {"name": "louder", "burst": {"count": 64}, "weight": [1, 0]},
        {"name": "quiet", "burst": {"count": 1}, "weight": [1, 0]},
    ],
}  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> str:
    place = tmp_path / "two.json"
    place.write_text(json.dumps(SCENARIO))
    return str(place)


def run(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    """A scenario of a file needs no store."""
    assert main(("report", "simulate", *words)) == code
    out, err = capsys.readouterr()
    return out, err


def test_policies_side_by_side(capsys: pytest.CaptureFixture[str], file: str, tmp_path: Path) -> None:
    svg = tmp_path / "out.svg"
    out, _ = run(capsys, file, "--order", "deficit", "--order", "rotation", "--svg", str(svg))
    lines = out.splitlines()
    assert lines[0] == "two: 129 messages of 3 origins over 8 blocks"
    assert [line.split()[:5] for line in lines[2:4]] == [
        ["deficit", "deficit", "16/100,000", "128", "1"], ["rotation", "rotation", "16/100,000", "128", "1"],
    ]  # fmt: skip
    assert lines[-2].split()[:2] == ["quiet", "1"] and lines[-1] == f"written: {svg}"
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")  # noqa: S314 - our own
    told = json.loads(run(capsys, file, "--order", "deficit", "--order", "rotation", "--json")[0])
    assert [one["fairness"]["longest_wait"] for one in told["policies"]] == [0, 2]
    assert told["policies"][1]["blocks"][0] == {"block": 1, "messages": 16, "planned": {"time": 16, "size": 0}}


def test_policies_in_words(capsys: pytest.CaptureFixture[str], file: str) -> None:
    words = ["--policy", "wide limit=32/100000", "--policy", "'loud first' share.loud=3 rounds_per_block=8",
             "--policy", "order=rotation", "--blocks", "4", "--seed", "9", "--json"]  # fmt: skip
    told = json.loads(run(capsys, file, *words)[0])
    assert (told["blocks"], told["seed"]) == (4, 9)
    assert [one["policy"] for one in told["policies"]] == ["wide", "loud first", "order=rotation"]
    assert [one["left"] for one in told["policies"]] == [1, 65, 65]
    assert told["policies"][2]["order"] == "rotation"
    limited = json.loads(run(capsys, file, "--limit", "200/100000", "--json")[0])
    assert limited["policies"][0]["left"] == 0
    for wrong in (
        ["--policy", "x 'y"],
        ["--policy", "x share.a=0"],
        ["--policy", "x limit=3"],
        ["--policy", "x odd=1"],
    ):
        assert "error: " in run(capsys, file, *wrong, code=2)[1]


def test_what_is_missing(capsys: pytest.CaptureFixture[str], file: str, tmp_path: Path) -> None:
    assert "specify a scenario's file" in run(capsys, code=2)[1]
    assert "specify a scenario's file" in run(capsys, file, "--recorded", "9", code=2)[1]
    assert "cannot read scenario" in run(capsys, str(tmp_path / "no.toml"), code=2)[1]
    quiet = tmp_path / "quiet.toml"
    quiet.write_text("blocks = 3")
    assert "no origin sends anything" in run(capsys, str(quiet), code=2)[1]
    quiet.write_text("blocks = 3\nlimit = [0, 0]\n[[origin]]\nname = 'a'\nburst = {count = 1}")
    assert "1 messages of 1 origins" in run(capsys, str(quiet))[0]
    twice = ("--policy", "x order=deficit", "--policy", "x order=rotation")
    assert "duplicate name of policies 'x'" in run(capsys, file, *twice, code=2)[1]
    assert "cannot be written" in run(capsys, file, "--svg", str(tmp_path / "no" / "a.svg"), code=2)[1]


def test_what_was_recorded(mq: Terminal, queue: MessageQueue, tmp_path: Path) -> None:
    assert "nothing arrived" in mq("report", "simulate", "--recorded", "9").out
    queue.admin.change_ring(service_weight=Weight(10, 1 << 20))
    for number in range(40):
        queue.enqueue_messages(f"o{number:02}", [b"x"] * 2)
    block = queue.blocks.plan()
    queue.blocks.report(block, [batch.answer() for batch in block.batches()])
    queue.blocks.settle(block)
    saved = str(tmp_path / "saved.jsonl")
    lines = mq("report", "simulate", "--recorded", "100", "--blocks", "9", "--save", saved).out.splitlines()
    assert lines[0] == "default: 80 messages of 40 origins over 9 blocks"
    assert lines[-2:] == ["these waited longest; --all lists all 40", f"written: {saved}"]
    told = mq.json("report", "simulate", "--recorded", "1", "--blocks", "9")
    assert mq.json("report", "simulate", saved) == told
    assert told["policies"][0]["done"] == 80
    assert len(mq("report", "simulate", saved, "--all").out.splitlines()) == 45
