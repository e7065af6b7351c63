"""Griffe extension for this project's docstrings: `::` before a block, and `#:` above an attribute."""

from __future__ import annotations

import re
from typing import Any

import griffe

BLOCK = re.compile(r"(?P<before>[^\n]*)::\n\n(?P<code>(?:(?: {4}[^\n]*)?\n?)+)")


class Docstrings(griffe.Extension):
    """Conversion of literal blocks to fences, and of comments above attributes to docstrings."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is None and obj.is_attribute and (told := _comment_above(obj)):
            obj.docstring = griffe.Docstring(told, parent=obj)
        if obj.docstring:
            obj.docstring.value = BLOCK.sub(_fenced, obj.docstring.value)


def _comment_above(obj: griffe.Object) -> str:
    lines = obj.module.source.splitlines() if obj.module.filepath else []
    told: list[str] = []
    for line in reversed(lines[: (obj.lineno or 1) - 1]):
        if not line.strip().startswith("#:"):
            break
        told.insert(0, line.strip().removeprefix("#:").strip())
    return " ".join(told)


def _fenced(match: re.Match[str]) -> str:
    lines = [line.removeprefix("    ") for line in match["code"].rstrip().splitlines()]
    said = match["before"].rstrip()
    before = f"{said}{'' if said.endswith('.') else ':'}\n\n" if said.strip() else ""
    return "\n".join([f"{before}```python", *lines, "```", "", ""])
