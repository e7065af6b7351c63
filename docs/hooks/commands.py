"""Reference of the command line, generated from the declarations of its parser."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from functools import partial

from airflow_mq.cli.arguments import COMMON
from airflow_mq.cli.command import EXIT_CODES, Command, Entry, Option
from airflow_mq.cli.parser import TREE

INTRODUCTION = """\
# Commands

Run `airflow-mq COMMAND`, `python -m airflow_mq COMMAND` or, with Airflow installed, `airflow mq COMMAND`.
`airflow-mq COMMAND --help` prints the same text. This page is generated from the declarations of the program.
"""


def page() -> str:
    """Return the page in Markdown."""
    parts = [INTRODUCTION, _index(TREE), "## Options of every command\n", _table(COMMON), _exit_codes()]
    for entry in TREE:
        parts += _told(entry, "airflow-mq", 2)
    return "\n".join(parts)


def _index(entries: Sequence[Entry]) -> str:
    rows = [f"| [`{one.name}`](#airflow-mq-{one.name}) | {_cell(one.help)} |" for one in entries]
    return "\n".join(["| | |", "| --- | --- |", *rows, ""])


def _told(entry: Entry, before: str, level: int) -> Iterable[str]:
    name = f"{before} {entry.name}"
    yield f"{'#' * level} {name}\n"
    if isinstance(entry, Command):
        about = f"\n\n{entry.about}" if entry.about else ""
        yield f"{entry.help[0].upper()}{entry.help[1:]}.{about}\n"
        yield f"```text\n{_usage(entry, name)}\n```\n"
        yield _table(entry.options)
    else:
        yield f"{entry.help[0].upper()}{entry.help[1:]}.\n"
    if entry.example:
        yield f"```console\n{entry.example.replace('$ ', '$ airflow-mq ')}\n```\n"
    if not isinstance(entry, Command):
        for one in entry.commands:
            yield from _told(one, name, level + 1)


def _usage(command: Command, name: str) -> str:
    # The same in every terminal.
    parser = argparse.ArgumentParser(
        prog=name, add_help=False, formatter_class=partial(argparse.HelpFormatter, width=100)
    )
    for one in command.options:
        parser.add_argument(*one.flags, **one.settings)
    return parser.format_usage().removeprefix("usage: ").strip().replace("\n       ", "\n")


def _table(options: Sequence[Option]) -> str:
    shown = [one for one in options if one.settings.get("help") is not argparse.SUPPRESS]
    if not shown:
        return ""
    return "\n".join(["| option | |", "| --- | --- |", *map(_row, shown), ""])


def _row(one: Option) -> str:
    settings = one.settings
    value = settings.get("metavar") or (one.flags[-1].lstrip("-").upper().replace("-", "_"))
    if choices := settings.get("choices"):
        value = f"{{{','.join(map(str, choices))}}}"  # as `--help` has it; a bar would end the cell
    if not one.flags[0].startswith("-"):
        names = [str(value)]
    else:
        names = [flag if "action" in settings else f"{flag} {value}" for flag in one.flags]
    told = str(settings.get("help", "")).replace("%%", "%").replace("%(default)s", str(settings.get("default")))
    return f"| {', '.join(map(_code, names))} | {_cell(told)} |"


def _code(text: str) -> str:
    # Within backticks neither an entity nor an escaped bar is read as what it means.
    return f"<code>{_cell(text)}</code>" if "|" in text else f"`{text}`"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "&#124;").replace("<", "&lt;")


def _exit_codes() -> str:
    rows = [line.strip().partition(" ") for line in EXIT_CODES.splitlines()[1:]]
    return "\n".join(
        ["## Exit codes\n", "| | |", "| --- | --- |", *(f"| {code} | {told.strip()} |" for code, _, told in rows), ""]
    )
