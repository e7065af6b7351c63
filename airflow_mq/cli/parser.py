"""All commands, and their parsers."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn

from ..engine.rules.nearest import nearest, suggestion
from .admin import ADMIN
from .arguments import COMMON, HIDDEN
from .block import BLOCK, explain
from .command import (
    EXIT_CODES,
    PROGRAM_NAME,
    SEE_COMMON,
    USAGE,
    Command,
    Entry,
    Group,
    Option,
    UsageError,
    example_text,
)
from .completion import completion
from .dev import demo, dev
from .doctor import check, doctor
from .enqueue import enqueue
from .message import MESSAGE
from .near import question
from .output import without_passwords
from .payload import PAYLOAD
from .queue import QUEUE
from .quote import quote
from .report import REPORT
from .ring import RING
from .service import service
from .session import Session
from .set_aside import SET_ASIDE
from .status import status
from .store import STORE
from .top import top
from .verify import verify

ABOUT = """\
A fair, durable, weight-bounded message queue in your own database.

A first look:
  export AIRFLOW_MQ_STORE=sqlite:///queue.db
  airflow-mq store upgrade
  airflow-mq enqueue acme "an order" "another order"
  airflow-mq status
  airflow-mq service --processor builtins:print"""

TREE: tuple[Entry, ...] = (
    status,
    enqueue,
    service,
    top,
    explain,
    quote,
    check,
    doctor,
    verify,
    demo,
    dev,
    QUEUE,
    MESSAGE,
    SET_ASIDE,
    BLOCK,
    PAYLOAD,
    RING,
    REPORT,
    STORE,
    ADMIN,
    completion,
)


class _Layout(argparse.RawDescriptionHelpFormatter):
    """Wraps prose at the terminal's width, but no indented line."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = super()._fill_text(text, width, indent).splitlines()
        return "\n".join(line if line.startswith(" ") else textwrap.fill(line, width) for line in lines)


class Parser(argparse.ArgumentParser):
    """A parser that raises errors instead of printing usage, without passwords."""

    def __init__(self, prog: str | None = None, *, description: str = "", epilog: str = "", **more: Any) -> None:
        super().__init__(prog, None, description, epilog, formatter_class=_Layout, allow_abbrev=False, **more)

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            raise argparse.ArgumentError(
                None, f"there is no command {value!r}; {_meant(str(value), list(action.choices))}"
            )
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(
                action, f"unknown {value!r}; {suggestion(str(value), map(str, action.choices))}"
            )

    def error(self, message: str) -> NoReturn:
        """Raise an error."""
        raise UsageError(without_passwords(f"{message} (see `{self.prog} --help`)"))


def _meant(word: str, choices: list[str]) -> str:
    """Return the command that a person may have meant. At the top it may be one of a group."""
    groups = [entry for entry in TREE if isinstance(entry, Group) and entry.name in choices]
    inner = [f"{group.name} {word}" for group in groups for command in group.commands if command.name == word]
    return f"did you mean {' or '.join(inner)}?" if inner else suggestion(word, choices)


def make_parser() -> Parser:
    """The parser of the whole command line."""
    parser = Parser(prog=PROGRAM_NAME, description=ABOUT, epilog=EXIT_CODES)
    parser.add_argument("--version", action="store_true", help="print the version of this program")
    _add_options(parser, COMMON)
    _add_entries(parser, TREE)
    return parser


def parse_line(words: Sequence[str]) -> argparse.Namespace:
    """Read a command line."""
    parser = make_parser()
    if not words:
        parser.print_help()
        parser.exit(USAGE)
    args, unread = parser.parse_known_args(words)
    command: Command | None = getattr(args, "command", None)
    if args.version:
        args.run = _print_version
        return args
    parser = getattr(args, "parser", parser)
    if command is not None and command.rest:
        unread = _late_words(parser, args, command, unread)
    if unread:
        parser.error(f"unknown: {' '.join(unread)}{_near_option(command, unread)}")
    if command is None:
        inner = getattr(args, "group", parser)
        raise UsageError(f"no command: expected one of those that `{inner.prog} --help` lists")
    return args


def _late_words(parser: Parser, args: argparse.Namespace, command: Command, unread: list[str]) -> list[str]:
    """Take words that follow an option: argparse takes those before the first option for all there are."""
    if any(word.startswith("-") and word != "-" for word in unread):
        return unread
    (declared,) = [one for one in command.options if one.flags == (command.rest,)]
    read = declared.settings.get("type", str)
    try:
        getattr(args, str(command.rest)).extend([read(word) for word in unread])
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    return []


def _near_option(command: Command | None, unread: list[str]) -> str:
    """Return a question for the option that a person may have meant by one that the command does not have."""
    options = [*(command.options if command is not None else ()), *COMMON]
    names = [flag[2:] for one in options for flag in one.flags if flag.startswith("--")]
    words = [word[2:].partition("=")[0] for word in unread if word.startswith("--")]
    near = next(filter(None, (nearest(word, names) for word in words)), None)
    return question(near and f"--{near}")


def _add_entries(parser: argparse.ArgumentParser, entries: Sequence[Entry]) -> None:
    subparsers = parser.add_subparsers(metavar="COMMAND", title="commands")
    for entry in entries:
        epilog = f"{example_text(entry.example)}\n\n{SEE_COMMON}".strip()
        about = entry.help[0].upper() + entry.help[1:] + "."
        if isinstance(entry, Group):
            inner = subparsers.add_parser(entry.name, help=entry.help, description=about, epilog=epilog)
            inner.set_defaults(group=inner)
            _add_entries(inner, entry.commands)
        else:
            about += f"\n\n{entry.about}" if entry.about else ""
            inner = subparsers.add_parser(entry.name, help=entry.help, description=about, epilog=epilog)
            _add_options(inner, [*entry.options, *HIDDEN])
            inner.set_defaults(run=entry.run, command=entry, parser=inner)


def _add_options(parser: argparse.ArgumentParser, options: Sequence[Option]) -> None:
    for one in options:
        parser.add_argument(*one.flags, **one.settings)


def _print_version(session: Session, args: argparse.Namespace) -> None:
    from .. import __version__

    session.out.value({"version": __version__})
    session.out.line(f"{PROGRAM_NAME} {__version__}")
