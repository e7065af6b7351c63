"""Declarations of commands: name, options, function and example."""

from __future__ import annotations

import inspect
import re
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from .session import Session

PROGRAM_NAME = "airflow-mq"
OK, NO, USAGE, REFUSED, STORE, PROGRAM, INTERRUPTED = 0, 1, 2, 3, 4, 70, 130

EXIT_CODES = """\
exit codes:
  0    done
  1    negative result, integrity problem in the store, or a person is needed
  2    invalid command line
  3    rejected by the queue; nothing was changed
  4    store unavailable
  70   defect in this program
  130  interrupted by Ctrl-C"""


class UsageError(Exception):
    """An invalid command line."""


@dataclass(frozen=True)
class Option:
    """An argument, as `add_argument` takes it."""

    flags: tuple[str, ...]
    settings: Mapping[str, Any]


def option(name: str, help: str, type: Callable[[str], object] | None = None, **settings: object) -> Option:
    """Declare an argument.

    :param name: its flags or its attribute, then the placeholder of its value: `--limit N`, `origin ORIGIN`.
        A flag without a placeholder and without choices is a switch.
    """
    words = name.split(" ")
    flags = [word for word in words if word.startswith("-")] or words[:1]
    placeholder = " ".join(words[len(flags) :])
    if placeholder:
        settings["metavar"] = placeholder
    elif name.startswith("-") and not {"choices", "action"} & settings.keys():
        settings["action"] = "store_true"
    if type is not None:
        settings["type"] = type
    return Option(tuple(flags), {**settings, "help": help})


Run: TypeAlias = "Callable[[Session, Namespace], bool | None]"


@dataclass(frozen=True)
class Command:
    """A command. Its function returns false for exit code 1."""

    name: str
    help: str
    run: Run
    options: Sequence[Option] = ()
    about: str = ""
    example: str = ""
    #: The positional argument that takes words which follow an option (argparse would refuse them).
    rest: str | None = None


@dataclass(frozen=True)
class Group:
    """The commands of one noun."""

    name: str
    help: str
    commands: Sequence[Command]
    example: str = ""


Entry: TypeAlias = "Command | Group"


def command(*options: Option, name: str = "", example: str = "", rest: str | None = None) -> Callable[[Run], Command]:
    """Declare a function as a command; the first line of its docstring is the help, the rest the description.

    :param name: the command's name, if it is not the function's.
    :param example: command lines, each beginning with `$ ` for the program's name.
    """

    def declare(run: Run) -> Command:
        summary, _, about = inspect.cleandoc(run.__doc__ or run.__name__).partition("\n\n")
        text = " ".join(summary.split()).removesuffix(".")
        about = re.sub(r"(?<!\n)\n(?!\n)", " ", about)
        return Command(
            name or run.__name__.replace("_", "-"), text[0].lower() + text[1:], run, options, about, example, rest
        )

    return declare


#: The last line of each command's help.
SEE_COMMON = f"options of every command: {PROGRAM_NAME} --help"


def example_text(example: str, prefix: str = "airflow-mq ") -> str:
    """Return the example below the options of a command."""
    lines = "\n".join(f"  {line}" for line in example.replace("$ ", prefix).splitlines())
    return f"example:\n{lines}" if example else ""
