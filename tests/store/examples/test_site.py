"""The documentation as a site: it builds strictly, every link leads somewhere, and nothing is fetched from elsewhere."""

from __future__ import annotations

import posixpath
import re
import subprocess
import sys
import unicodedata
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[3]
MARKDOWN = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "docker" / "README.md"])
#: What a browser fetches by itself when it shows a page.
FETCHED = {
    ("img", "src"),
    ("script", "src"),
    ("iframe", "src"),
    ("source", "src"),
    ("video", "src"),
    ("object", "data"),
}
FETCHED_RELATIONS = {
    "stylesheet",
    "icon",
    "preload",
    "prefetch",
    "preconnect",
    "dns-prefetch",
    "modulepreload",
    "manifest",
}


class Page(HTMLParser):
    """The links and anchors of a page, and what it fetches."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := given.get(name))}
        relations = set((given.get("rel") or "").split())
        for name, value in attrs:
            if not value:
                continue
            if (tag, name) in FETCHED or (tag == "link" and name == "href" and relations & FETCHED_RELATIONS):
                self.fetched.append(value)
            if name == "href":
                self.links.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    # In a process of its own, without Airflow in sight: the reference is read from the sources, never imported.
    code = (
        "import sys; sys.modules['airflow'] = None; from mkdocs.__main__ import cli;"
        f"cli(['build', '--strict', '--quiet', '--site-dir', {str(folder)!r}])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, env=_environment(), check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}


@pytest.mark.slow
def test_every_link_and_anchor_of_the_site_leads_somewhere(site: Path) -> None:
    pages = {path: Page(path.read_text("utf-8")) for path in site.rglob("*.html")}
    assert len(pages) > 40
    wrong = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                wrong += [] if _looks_right(link) else [f"{path.name}: {link}"]
                continue
            if path.name == "404.html":  # its links are from the root of wherever the site will be
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or (parts.fragment and target in pages and not _has(pages[target], parts.fragment)):
                wrong.append(f"{path.relative_to(site)}: {link}")
    assert not wrong, "\n".join(sorted(set(wrong)))


def _has(page: Page, fragment: str) -> bool:
    return unquote(fragment) in page.anchors or fragment.startswith("__")


def _looks_right(link: str) -> bool:
    parts = urlsplit(link)
    return parts.scheme == "mailto" or (
        parts.scheme == "https" and re.fullmatch(r"[\w.-]+\.\w+", parts.netloc) is not None
    )


def test_a_browser_fetches_nothing_from_elsewhere(site: Path) -> None:
    elsewhere = [
        f"{path.name}: {address}"
        for path in site.rglob("*.html")
        for address in Page(path.read_text("utf-8")).fetched
        if urlsplit(address).netloc or urlsplit(address).scheme not in ("", "data")
    ]
    styles = [
        f"{path.name}: {address}"
        for path in site.rglob("*.css")
        for address in re.findall(r"(?:url\(|@import )[\"']?(https?:[^\"')]+|//[^\"')]+)", path.read_text("utf-8"))
    ]
    assert elsewhere + styles == []


def test_programs_find_a_list_of_the_pages_and_their_sources(site: Path) -> None:
    told = (site / "llms.txt").read_text("utf-8")
    links = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): (.+)$", told, re.MULTILINE)
    assert told.startswith("# airflow_mq\n\n> ") and len(links) > 30
    assert all((site / name).is_file() for name, _ in links)
    for once in (re.findall(r"^## .+$", told, re.MULTILINE), [name for name, _ in links]):
        assert len(once) == len(set(once))
    assert not [name for name, about in links if len(about) < 10], "a page begins with a sentence about its content"


def test_every_page_is_in_the_navigation(site: Path) -> None:
    listed = set(re.findall(r"\]\(([^)]+)\)", (site / "llms.txt").read_text("utf-8")))
    assert {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")} <= listed


def test_the_reference_has_what_people_use(site: Path) -> None:
    python = Page((site / "reference" / "python.html").read_text("utf-8")).anchors
    airflow = Page((site / "reference" / "airflow.html").read_text("utf-8")).anchors
    commands = Page((site / "reference" / "commands.html").read_text("utf-8")).anchors
    settings = (site / "reference" / "settings.html").read_text("utf-8")
    assert {"airflow_mq.engine.queue.MessageQueue.enqueue_message", "airflow_mq.engine.rules.outcome.Done"} <= python
    assert {"airflow_mq.block.block", "airflow_mq.operators.blocks.SettleBlockOperator"} <= airflow
    assert {"airflow-mq-store-upgrade", "airflow-mq-set-aside-execute"} <= commands
    assert "Bytes that a page may hold" in settings, "comments above attributes are documented"


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere_where_the_repository_is_browsed(path: Path) -> None:
    text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", text)):
        if re.match(r"[a-z]+:", link):
            assert _looks_right(link), link
            continue
        name, _, fragment = link.partition("#")
        target = posixpath.normpath(path.parent.relative_to(ROOT) / unquote(name)) if name else path.relative_to(ROOT)
        assert (ROOT / target).exists(), f"{link} leads nowhere"
        if fragment and str(target).endswith(".md"):
            assert fragment in _anchors((ROOT / target).read_text("utf-8")), f"{link}: no such heading"


def test_every_page_is_linked_from_another() -> None:
    linked = {
        posixpath.normpath(path.parent / unquote(name))
        for path in MARKDOWN
        for name in re.findall(r"\]\(([^)\s#]+)", path.read_text("utf-8"))
        if posixpath.normpath(path.parent / unquote(name)) != str(path)
    }
    assert [str(path) for path in (ROOT / "docs").rglob("*.md") if str(path) not in linked] == []


def _anchors(text: str) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.MULTILINE):
        words = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        kept = "".join(one for one in words if one in " -_" or unicodedata.category(one)[0] in "LN")
        found.add(kept.replace(" ", "-"))
    return found
