"""What a command is: a name, options, a function, and an example to learn from."""

from __future__ import annotations

from argparse import SUPPRESS, Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from .values import words

if TYPE_CHECKING:
    from .session import Session

OK, NO, USAGE, REFUSED, STORE, PROGRAM, INTERRUPTED = 0, 1, 2, 3, 4, 70, 130

EXIT_CODES = """\
exit codes:
  0    done
  1    the answer is no, or something is wrong with what is stored
  2    what was asked for makes no sense
  3    the queue refused; nothing was changed
  4    the store cannot be used
  70   a mistake in this program
  130  interrupted by Ctrl-C"""


class UsageError(Exception):
    """What was asked for makes no sense."""


@dataclass(frozen=True)
class Option:
    """An argument, as `add_argument` takes it."""

    flags: tuple[str, ...]
    settings: Mapping[str, Any]


def option(*flags: str, **settings: Any) -> Option:
    """Declare an argument."""
    return Option(flags, settings)


@dataclass(frozen=True)
class Command:
    """Something to do. Nothing returned, or true, is exit code 0; false is 1."""

    name: str
    help: str
    run: Callable[[Session, Namespace], bool | None]
    options: Sequence[Option] = ()
    about: str = ""
    example: str = ""
    #: The positional argument that takes words which follow an option (argparse would refuse them).
    rest: str | None = None


@dataclass(frozen=True)
class Group:
    """Commands about one thing."""

    name: str
    help: str
    commands: Sequence[Command]
    example: str = ""


Entry: TypeAlias = "Command | Group"

COMMON = (
    option(
        "--store", default=SUPPRESS, metavar="URI",
        help="sqlite:///path or postgresql://user:password@host/database; AIRFLOW_MQ_STORE where it is not given, "
        "which is the better place for a password",
    ),
    option("--conn-id", default=SUPPRESS, metavar="ID", help="take the store from this connection of Airflow instead"),
    option("--ring", type=words, default=SUPPRESS, metavar="RING", help="which ring of the store (default: default)"),
    option("--json", action="store_true", default=SUPPRESS, help="print JSON, for programs; streams one per line"),
    option("--quiet", action="store_true", default=SUPPRESS, help="print answers and errors, and nothing besides"),
)  # fmt: skip


def example_text(example: str, prefix: str = "airflow-mq ") -> str:
    """What is told below the options of a command; `$ ` stands for the program."""
    lines = "\n".join(f"  {line}" for line in example.replace("$ ", prefix).splitlines())
    return f"example:\n{lines}" if example else ""
