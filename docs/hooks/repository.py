"""Files of the repository that pages link to: the site contains Markdown as pages and source files as listings.

A link therefore works both in the repository and in the site.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(?<=\]\()(?!#|[a-z]+:)([^)#\s]+)(#[^)\s]*)?(?=\))")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml", ".sql": "sql"}
BELOW = "repository"


def place(path: PurePosixPath) -> str:
    """Return the path of a repository file in the site."""
    if path.parts[0] == "docs":
        return str(path.relative_to("docs"))
    shown = path if path.suffix in {".md", ".png", ".svg", ".gif"} else path.with_name(path.name + ".md")
    return str(BELOW / shown)


def linked(text: str, path: PurePosixPath) -> list[PurePosixPath]:
    """Return the repository files that a Markdown file links to."""
    found = [posixpath.normpath(path.parent / match[1]) for match in LINK.finditer(_without_code(text))]
    return [PurePosixPath(one) for one in found if (ROOT / one).is_file()]


def _without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put pages that are missing in the navigation below "More"."""
    named = set(re.findall(r"[\w/.-]+\.md", str(config.nav)))
    found = [str(path.relative_to(config.docs_dir)) for path in sorted(Path(config.docs_dir).rglob("*.md"))]
    if more := [name for name in found if name not in named]:
        config.nav = [*(config.nav or []), {"More": more}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add linked files, and the files that they link to."""
    todo = [PurePosixPath("docs") / one.src_uri for one in files.documentation_pages()]
    seen = set(todo)
    while todo:
        path = todo.pop()
        text = (ROOT / path).read_text("utf-8") if path.suffix == ".md" else ""
        for other in linked(text, path):
            if other not in seen and other.parts[0] != "docs":
                seen.add(other)
                todo.append(other)
                files.append(_generated(other, config))
    return files


def _generated(path: PurePosixPath, config: MkDocsConfig) -> File:
    source = ROOT / path
    if path.suffix in {".png", ".svg", ".gif"}:
        made = File.generated(config, place(path), content=source.read_bytes())
    elif path.suffix == ".md":
        made = File.generated(config, place(path), content=source.read_text("utf-8"))
    else:
        text = source.read_text("utf-8")
        language = LANGUAGES.get(path.suffix, "text")
        made = File.generated(config, place(path), content=f"# {path}\n\n````{language}\n{text}````\n")
    made.inclusion = InclusionLevel.NOT_IN_NAV
    return made


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links to repository files to their paths in the site."""
    here = PurePosixPath(page.file.src_uri)
    own = here.relative_to(BELOW) if here.parts[0] == BELOW else PurePosixPath("docs") / here

    def led(match: re.Match[str]) -> str:
        path = PurePosixPath(posixpath.normpath(own.parent / match[1]))
        if not (ROOT / path).is_file():
            return match[0]
        return os.path.relpath(place(path), here.parent) + (match[2] or "")

    parts = re.split(r"(^```.*?^```)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else LINK.sub(led, part) for part in parts)
