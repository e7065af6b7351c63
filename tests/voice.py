"""Voice check: no prose in the repository uses a banned phrase.

Run `python -m tests.voice`. The check reads comments, docstrings and messages of Python, and the names of tests; the
TypeScript of the page; comments of SQL, shell, TOML, YAML and Makefiles; and Markdown. It prints each match with the
phrase to use instead.

`python -m tests.voice PATH` checks a file or folder.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple, TypeGuard

ROOT = Path(__file__).parents[1]

# A phrase, and what to write instead. Upper and lower case are the same.
DENIED = {
    r"who(?:so)?ever|whomever|somebody(?:'s)?|nobody(?:'s)?": "name the subject: the caller, the sender, the operator",
    r"tells?|told|telling": "return, report, record, print, show",
    r"says?|said|saying": "report, state, name, specify; 'for example'",
    r"let(?:s|ting)? go": "release, delete, discard",
    r"judg(?:e|es|ed|ing)(?: \w+){0,3} again": "requeue",
    r"g(?:ive|ives|iving|iven|ave) up (?:a|the|its|this|that) block|g(?:ive|ives|iving|iven|ave) (?:a|the|its|this|that) block up": "abandon",
    r"pass(?:es|ed|ing)? by": "skip",
    r"mend(?:s|ed|ing)?": "fix, repair",
    r"glanc(?:e|es|ed|ing)": "snapshot, summary",
    r"shel(?:f|ves)": "working set",
    r"preimages?": "external payload",
    r"kept apart": "stored outside pages",
    r"stor(?:y|ies)": "history, events",
    r"news": "inbox rows",
}
DOCSTRING_DENIED = {
    r"(?:what|who|whose|the same)\b": "begin with an imperative (functions) or a noun phrase (classes, modules)",
}

# Patterns of paths, a phrase that is permitted there, and the reason.
ALLOWED: list[tuple[str, str, str]] = [
    ("tests/voice.py", "(?s).*", "names the phrases that it looks for"),
    ("tests/unit/test_voice.py", "(?s).*", "names the phrases that it looks for"),
    ("CHANGELOG.md", r"(?s)\n## \[(?!Unreleased).*", "history: released entries stay as they were published"),
    ("*", r"pip_says|\bstory ?board", "names of other programs"),
]

# Generated from docstrings, or from measurements.
SKIPPED = ("docs/reference/*", "lab/benchmarks/report/*", "airflow_mq/page/dist/*", "*/node_modules/*")
HASHED = {".sh", ".toml", ".yaml", ".yml"}


class Prose(NamedTuple):
    """A piece of text and the line where it begins."""

    line: int
    text: str
    is_docstring: bool = False


@dataclass(frozen=True)
class Finding:
    """A banned phrase in a file."""

    path: str
    line: int
    phrase: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.phrase!r}; write: {self.instead}"


def _patterns(denied: dict[str, str]) -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(rf"\b(?:{phrase})(?![\w-])", re.IGNORECASE), instead) for phrase, instead in denied.items()]


PATTERNS = _patterns(DENIED)
BEGINNINGS = [(re.compile(phrase, re.IGNORECASE), instead) for phrase, instead in DOCSTRING_DENIED.items()]


def python_prose(source: str) -> Iterator[Prose]:
    """Yield comments, docstrings, strings with a space, and the names of tests as sentences."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Prose(token.start[0], _without_code(token.string))
    elsewhere: set[int] = set()  # strings that are read as a docstring or as a part of a template
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = _docstring(node)
            if docstring is not None:
                elsewhere.add(id(docstring))
                yield Prose(docstring.lineno, _without_code(str(docstring.value)), is_docstring=True)
            if not isinstance(node, ast.Module) and node.name.lower().startswith("test"):
                yield Prose(node.lineno, node.name.replace("_", " "))
        elif isinstance(node, ast.JoinedStr):
            elsewhere.update(id(part) for part in node.values)
            yield Prose(node.lineno, "".join(_text(part) for part in node.values))
        elif _is_sentence(node) and id(node) not in elsewhere:
            yield Prose(node.lineno, str(node.value))


def _is_sentence(node: ast.AST) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip()


def _docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> ast.Constant | None:
    first = node.body[0] if node.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return first.value
    return None


def _text(part: ast.expr) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else "{}"


def _without_code(text: str) -> str:
    """Blank out code between backticks; keep the lines."""
    return re.sub(r"`+[^`\n]+`+", "`…`", text)


def sql_prose(source: str) -> Iterator[Prose]:
    """Yield the comments of SQL."""
    for number, line in enumerate(source.splitlines(), 1):
        if "--" in line:
            yield Prose(number, _without_code(line.partition("--")[2]))


def hashed_prose(source: str) -> Iterator[Prose]:
    """Yield the comments that begin with a hash mark."""
    for number, line in enumerate(source.splitlines(), 1):
        if found := re.search(r"(?:^|\s)#(.*)", line):
            yield Prose(number, _without_code(found[1]))


def whole(source: str) -> Iterator[Prose]:
    """Yield the file as one text, without the code between backticks."""
    yield Prose(1, _without_code(source))


def prose(path: str, source: str) -> Iterator[Prose]:
    """Yield the prose of a file."""
    suffix, name = Path(path).suffix, Path(path).name
    if suffix == ".py":
        yield from python_prose(source)
    elif suffix == ".sql":
        yield from sql_prose(source)
    elif suffix == ".md" or (suffix in {".ts", ".tsx"} and path.startswith("airflow_mq/page/src/")):
        yield from whole(source)
    elif suffix in HASHED or name in {"Makefile", "Dockerfile"}:
        yield from hashed_prose(source)


def findings(path: str, source: str) -> list[Finding]:
    """Return the banned phrases of a file, in the order of lines."""
    allowed = [re.compile(phrase) for glob, phrase, _reason in ALLOWED if fnmatch(path, glob)]
    found = set()
    for part in prose(path, source):
        text = part.text
        for pattern in allowed:
            text = pattern.sub(lambda match: "\n" * match[0].count("\n"), text)
        if part.is_docstring:
            for pattern, instead in BEGINNINGS:
                if match := pattern.match(text.lstrip()):
                    found.add(Finding(path, part.line, match[0] + " …", instead))
        for pattern, instead in PATTERNS:
            for match in pattern.finditer(text):
                line = part.line + text.count("\n", 0, match.start())
                found.add(Finding(path, line, match[0], instead))
    return sorted(found, key=lambda finding: (finding.line, finding.phrase))


def sources() -> list[str]:
    """Return the files of the repository that the check reads: committed ones and new ones."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return sorted(
        path for path in set(listed) if (ROOT / path).is_file() and not any(fnmatch(path, glob) for glob in SKIPPED)
    )


def _is_read(path: str) -> bool:
    suffixes = {".py", ".sql", ".md", ".ts", ".tsx", *HASHED}
    return Path(path).suffix in suffixes or Path(path).name in {"Makefile", "Dockerfile"}


def check(chosen: list[str]) -> int:
    """Print the matches of the chosen files and folders, or of all; return the exit status."""
    prefixes = [str(Path(path).resolve().relative_to(ROOT)) for path in chosen]
    read = [path for path in sources() if _is_read(path) and (not prefixes or _is_below(path, prefixes))]
    wrong = [finding for path in read for finding in findings(path, (ROOT / path).read_text("utf-8"))]
    for finding in wrong:
        print(finding)
    print(f"voice: {len(wrong)} banned phrases in {len(read)} files")
    return 1 if wrong else 0


def _is_below(path: str, prefixes: list[str]) -> bool:
    return any(prefix in (".", path) or path.startswith(f"{prefix}/") for prefix in prefixes)


def main(arguments: list[str] | None = None) -> int:
    """Parse the arguments and run the check."""
    parser = argparse.ArgumentParser(prog="python -m tests.voice", description="Check the prose of the repository")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="check these files or folders only")
    return check(parser.parse_args(arguments).paths)


if __name__ == "__main__":
    sys.exit(main())
