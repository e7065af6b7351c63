"""The recorder, and what it recorded for the README."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.store.terminal import recording

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_a_recording_and_its_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cast = tmp_path / "it.cast"
    code = "print('\\x1b[1;32mgreen <&>\\x1b[0m plain'); input(); print('second'); raise SystemExit(3)"
    monkeypatch.setattr(recording, "EVERY", 0.0)
    words = [sys.executable, "-c", code.replace("input()", "import time; time.sleep(0.2)")]

    assert recording.record(words, cast) == 3

    head, *events = map(json.loads, cast.read_text().splitlines())
    assert (head["version"], head["width"], head["height"]) == (2, recording.WIDTH, recording.HEIGHT)
    assert all(kind == "o" for _, kind, _ in events) and sorted(at for at, _, _ in events) == [
        at for at, _, _ in events
    ]
    drawn = recording.picture(cast)
    ElementTree.fromstring(drawn)  # noqa: S314 - ours
    assert "green &lt;&amp;&gt;" in drawn and "second" in drawn and recording.COLOURS["green"] in drawn


def test_the_readme_shows_a_picture_that_is_small_and_harmless() -> None:
    picture = (ROOT / "docs/images/demo.svg").read_text()
    assert len(picture) < 500_000
    ElementTree.fromstring(picture)  # noqa: S314 - ours
    assert "<script" not in picture and "http" not in picture.replace("http://www.w3.org/2000/svg", "")
    assert "password" not in picture and "All is right" in picture
    assert "docs/images/demo.svg" in (ROOT / "README.md").read_text()
