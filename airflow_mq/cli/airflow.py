"""The commands as `airflow mq …`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence

from airflow.cli.cli_config import ActionCommand, Arg, GroupCommand

from .arguments import COMMON, HIDDEN
from .command import Command, Entry, Group, example_text
from .completion import add_completer
from .parser import TREE
from .session import DEFAULT_CONN_ID


class _Completed(Arg):
    """An argument that Airflow's completion completes."""

    def add_to_parser(self, parser: ArgumentParser) -> None:
        add_completer(parser.add_argument(*self.flags, **self.kwargs), DEFAULT_CONN_ID)


def get_cli_commands() -> list[GroupCommand]:
    """Return the commands that Airflow adds to its own."""
    return [
        GroupCommand(
            name="mq",
            help="Look into and work with message queues",
            description="The commands of airflow-mq. Without --store and --conn-id, and with nothing in "
            f"AIRFLOW_MQ_STORE, the connection {DEFAULT_CONN_ID} is used.\n\nOptions of every command: "
            + "; ".join(f"{one.flags[0]}: {one.settings['help']}" for one in COMMON),
            subcommands=[_drawn(entry) for entry in TREE],
        )
    ]


def _drawn(entry: Entry) -> ActionCommand | GroupCommand:
    about = entry.help[0].upper() + entry.help[1:]
    epilog = example_text(entry.example, "airflow mq ")
    if isinstance(entry, Group):
        return GroupCommand(entry.name, about, [_drawn(one) for one in entry.commands], None, epilog)
    description = f"{about}.\n\n{entry.about}" if entry.about else f"{about}."
    args = [_Completed(one.flags, **one.settings) for one in (*entry.options, *HIDDEN)]
    return ActionCommand(entry.name, about, _forward(entry), args, description, epilog)


def _forward(command: Command) -> Callable[[Namespace], None]:
    def call(args: Namespace, _: Sequence[str] = ()) -> None:
        from .program import run

        args.run, args.default_conn_id = command.run, DEFAULT_CONN_ID
        code = run(args)
        if code:
            sys.exit(code)

    call.__name__ = f"mq_{command.name}"
    return call
