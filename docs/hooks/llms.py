"""`llms.txt`: a list of the pages with their first sentences, and every page as Markdown, for programs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

INTRODUCTION = (
    "Each sender has its own queue. A DAG run plans a block of messages within a limit of time and size, shared fairly "
    "by cost. Spark or the task processes the block, and each message is settled once. `airflow-mq COMMAND --help` "
    "prints the options of a command."
)

_pages: dict[str, str] = {}
_nav: list[tuple[str, str, str]] = []


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> None:
    """Remember the text of a page."""
    _pages[page.file.src_uri] = markdown


def on_nav(nav: Navigation, **_: Any) -> None:
    """Remember the order of the pages."""
    _nav[:] = [
        (page.ancestors[-1].title if page.ancestors else "Start", str(page.title or ""), page.file.src_uri)
        for page in nav.pages
    ]


def on_post_build(config: MkDocsConfig, **_: Any) -> None:
    """Write the list and the Markdown pages."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}. {INTRODUCTION}"]
    for section in dict.fromkeys(within for within, _, _ in _nav):
        lines += ["", f"## {section}", ""]
        lines += [
            f"- [{title}]({name}): {_first_sentence(_pages[name])}" for within, title, name in _nav if within == section
        ]
    site = Path(config.site_dir)
    for name, text in _pages.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text, "utf-8")
    (site / "llms.txt").write_text("\n".join([*lines, ""]), "utf-8")


def _first_sentence(markdown: str) -> str:
    for part in re.sub(r"^(```.*?^```|<!--.*?-->)", "", markdown, flags=re.MULTILINE | re.DOTALL).split("\n\n"):
        if part.strip() and not part.lstrip().startswith(("#", "|", "!", ":::", "-", "```")):
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(part.split()))
            return re.split(r"(?<=[.:?]) ", text)[0].rstrip(":")
    return ""
