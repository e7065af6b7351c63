"""The pictures of the documentation: current, readable and in both colour schemes."""

from __future__ import annotations

import re
from functools import cache
from xml.etree import ElementTree

import pytest

from docs.pictures import FOLDER, PICTURES
from docs.pictures.canvas import COLOURS, WIDTH

SVG = "{http://www.w3.org/2000/svg}"


@cache
def drawn(name: str) -> str:
    return PICTURES[name]()


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_current(name: str) -> None:
    assert (FOLDER / name).read_text("utf-8") == drawn(name), "run `make pictures`"


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_has_both_schemes_and_a_description(name: str) -> None:
    root = ElementTree.fromstring(drawn(name))  # noqa: S314 - our own
    style = root.findtext(f"{SVG}style") or ""
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    for colour, (in_light, in_dark) in COLOURS.items():
        assert f".{colour} {{ fill: {in_light} }}" in light
        assert f".{colour} {{ fill: {in_dark} }}" in dark
    assert root.findtext(f"{SVG}title") and root.findtext(f"{SVG}desc")


@pytest.mark.parametrize("name", PICTURES)
def test_no_text_is_small_or_leaves_the_card(name: str) -> None:
    root = ElementTree.fromstring(drawn(name))  # noqa: S314 - our own
    style = root.findtext(f"{SVG}style") or ""
    assert all(float(size) >= 14 for size in re.findall(r"font-size: ([\d.]+)px", style))
    for text in root.iter(f"{SVG}text"):
        # Wide letters: 0.59 of the font size on the average.
        length = len(text.text or "") * (8.55 if "small" in text.attrib["class"] else 9.4) * 0.92
        left = float(text.attrib["x"]) - {"start": 0, "middle": length / 2, "end": length}[text.attrib["text-anchor"]]
        assert left >= 4 and left + length <= WIDTH + 4, text.text
