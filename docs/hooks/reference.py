"""Reference pages that are readable where the repository is browsed: generated Markdown below each directive.

`make reference` writes it into the pages, between a comment that holds a directive of mkdocstrings and `<!-- end -->`.
The site has the directives instead, and a test holds the pages to the code.
"""

from __future__ import annotations

import re
import runpy
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
import yaml

HOOKS = Path(__file__).parent
ROOT = HOOKS.parents[1]
PAGES = HOOKS.parent / "reference"
COMMANDS = PAGES / "commands.md"
PART = re.compile(r"<!--\n(::: [^\n]+\n(?: +[^\n]*\n)*)-->\n.*?<!-- end -->\n", re.DOTALL)
#: A new directive, with nothing below it yet.
BARE = re.compile(r"(?<!<!--\n)^(::: [^\n]+\n(?: +[^\n]*\n)*)", re.MULTILINE)
NOTE = "<!-- `make reference` writes this page. -->\n"
#: Longer signatures have a line for each parameter.
WIDTH = 100


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the generated text by its directives."""
    return PART.sub(lambda part: part[1], markdown)


def pages() -> dict[Path, str]:
    """Return the reference pages as they should be."""
    package = griffe.load(
        "airflow_mq", search_paths=[ROOT], allow_inspection=False,
        extensions=griffe.load_extensions(str(HOOKS / "docstrings.py")),
    )  # fmt: skip
    found = {COMMANDS: NOTE + runpy.run_path(str(HOOKS / "commands.py"))["page"]()}
    for path in sorted(PAGES.glob("*.md")):
        text = BARE.sub(r"<!--\n\1-->\n<!-- end -->\n", path.read_text("utf-8"))
        if PART.search(text):
            found[path] = PART.sub(lambda part: f"<!--\n{part[1]}-->\n{told(package, part[1])}<!-- end -->\n", text)
    return found


def told(package: Any, directive: str) -> str:
    """Return the generated text of a directive as Markdown."""
    first, _, rest = directive.partition("\n")
    options = (yaml.safe_load(textwrap.dedent(rest)) or {}).get("options", {}) if rest.strip() else {}
    name = first.removeprefix("::: ").strip()
    found = package[name.removeprefix("airflow_mq.")] if name != "airflow_mq" else package
    return "\n" + "\n\n".join(_object(found, options)) + "\n\n"


def _object(obj: Any, options: dict[str, Any]) -> Iterator[str]:
    root = options.get("show_root_heading", True)
    if root:
        yield f"### `{obj.name}`"
        yield _signature(obj)
    yield from _docstring(obj)
    level = 4 if root else 3
    for member in _members(obj, options):
        yield f"{'#' * level} `{obj.name + '.' if root else ''}{member.name}`"
        yield _signature(member)
        yield from _docstring(member)
        if member.is_class:
            for inner in _members(member, options):
                yield f"{'#' * (level + 1)} `{member.name}.{inner.name}`"
                yield _signature(inner)
                yield from _docstring(inner)


def _members(obj: Any, options: dict[str, Any]) -> list[Any]:
    wanted = options.get("members", True)
    if wanted is False or not (obj.is_class or obj.is_module):
        return []
    every = obj.all_members if options.get("inherited_members") else obj.members
    # An imported name is documented in its own module.
    public = [
        (name, one) for name, one in every.items() if not (name.startswith("_") or (obj.is_module and one.is_alias))
    ]
    if isinstance(wanted, list):
        return [one for name, one in public if name in wanted]
    shown = [
        member
        for _, member in public
        if not member.is_module and (member.docstring or options.get("show_if_no_docstring"))
    ]
    return sorted(shown, key=lambda one: (str(one.filepath), one.lineno or 0))


def _signature(obj: Any) -> str:
    if obj.is_module:
        return f"Module `{obj.path}`."
    if obj.is_attribute or getattr(obj, "labels", set()) & {"property"}:
        given = f": {obj.annotation}" if obj.annotation else ""
        value = f" = {obj.value}" if obj.is_attribute and obj.value is not None else ""
        text = f"{obj.name}{given}{value}"
        return _fenced(text if len(text) <= 4 * WIDTH else f"{obj.name}{given}")
    parameters = [
        _parameter(one, at, obj.parameters) for at, one in enumerate(obj.parameters) if one.name not in ("self", "cls")
    ]
    parameters = [text for some in parameters for text in some]
    returned = f" -> {obj.returns}" if obj.is_function and obj.returns else ""
    head = f"{'class ' if obj.is_class else ''}{obj.name}"
    line = f"{head}({', '.join(parameters)}){returned}"
    if len(line) > WIDTH:
        line = "\n".join([f"{head}(", *(f"    {one}," for one in parameters), f"){returned}"])
    return _fenced(line)


def _parameter(one: Any, at: int, parameters: Any) -> list[str]:
    kind, before = griffe.ParameterKind, [its.kind for its in parameters][:at]
    star = {kind.var_positional: "*", kind.var_keyword: "**"}.get(one.kind, "")
    given = f": {one.annotation}" if one.annotation else ""
    default = f" = {one.default}" if one.default is not None and not star else ""
    bare = one.kind is kind.keyword_only and not {kind.keyword_only, kind.var_positional} & set(before)
    return [*(["*"] if bare else []), f"{star}{one.name}{given}{default}"]


def _fenced(text: str) -> str:
    return f"```text\n{text}\n```"


def _docstring(obj: Any) -> Iterator[str]:
    if obj.docstring is None:
        return
    for section in obj.docstring.parse("sphinx", warnings=False):
        if section.kind is griffe.DocstringSectionKind.text:
            yield section.value.strip()
        elif section.kind in (griffe.DocstringSectionKind.parameters, griffe.DocstringSectionKind.attributes):
            yield "\n".join(f"- `{one.name}`: {_folded(one.description)}" for one in section.value)
        elif section.kind is griffe.DocstringSectionKind.raises:
            yield "\n".join(f"- raises `{one.annotation}`: {_folded(one.description)}" for one in section.value)
        elif section.kind is griffe.DocstringSectionKind.returns:
            yield "\n".join(f"- returns: {_folded(one.description)}" for one in section.value)


def _folded(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    stale = {path: text for path, text in pages().items() if path.read_text("utf-8") != text}
    if "--check" in sys.argv[1:]:
        sys.exit(f"run `make reference`: {', '.join(path.name for path in stale)} differ from the code" if stale else 0)
    for path, text in stale.items():
        path.write_text(text, "utf-8")
    sys.stdout.write(f"wrote {len(stale)} of the reference pages; the others were current\n")
