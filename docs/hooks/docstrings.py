"""Griffe extension for docstrings: `::` before a block, `#:` above an attribute, and parameters of base classes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import griffe

BLOCK = re.compile(r"(?P<before>[^\n]*)::\n\n(?P<code>(?:(?: {4}[^\n]*)?\n?)+)")
#: A parameter, and a sentence about parameters that are described elsewhere.
PARAMETER = re.compile(r"^:param (\w+):.*(?:\n {4}.*)*", re.MULTILINE)
ELSEWHERE = re.compile(r"\bparameters\s+(?:are\s+those\s+)?of\s+`", re.IGNORECASE)


class Docstrings(griffe.Extension):
    """Conversion of literal blocks to fences, and of comments above attributes to docstrings."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is None and obj.is_attribute and (told := _comment_above(obj)):
            obj.docstring = griffe.Docstring(told, parent=obj)
        if obj.docstring:
            obj.docstring.value = BLOCK.sub(_fenced, obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Add the parameters that a class takes from its bases, and that its docstring does not describe."""
        for one in _classes(pkg):
            init = one.members.get("__init__")
            takes_more = init is None or any(each.kind is griffe.ParameterKind.var_keyword for each in init.parameters)
            if one.docstring is None or not takes_more or ELSEWHERE.search(one.docstring.value):
                continue
            known = {found[1] for found in PARAMETER.finditer(one.docstring.value)}
            more: dict[str, str] = {}
            for base in one.mro():
                found_in = PARAMETER.finditer(base.docstring.value) if base.docstring else ()
                more = {**{found[1]: found[0] for found in found_in if found[1] not in known}, **more}
            if more:
                texts = [one.docstring.value.rstrip(), *([] if known else [""]), *more.values()]
                one.docstring.value = "\n".join(texts)


def _classes(module: griffe.Module) -> Iterator[griffe.Class]:
    for member in module.members.values():
        if member.is_alias:
            continue
        if member.is_module:
            yield from _classes(member)
        elif member.is_class:
            yield member


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
