"""Completion: what a shell asks while somebody types, and the script that makes it ask.

The shell calls the program itself, which answers what could stand there: commands, options, and of the store that is
named rings, origins, blocks and set-aside messages. What goes wrong meanwhile is no answer, and nothing else.
"""

from __future__ import annotations

import os
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any

from .command import Command, option
from .session import Session

SHELLS = ("bash", "zsh", "fish")
#: Set by the shell that asks.
ASKED = "_ARGCOMPLETE"
#: So many names are offered at once.
_MOST = 100

Completer = Callable[..., Any]


def answer() -> None:
    """Answer the shell that asks, if one does; does not return then."""
    if ASKED not in os.environ:
        return
    import argcomplete

    from .parser import make_parser

    parser = make_parser()
    add_completers(parser)
    argcomplete.autocomplete(parser, always_complete_options=False)


def add_completers(parser: ArgumentParser) -> None:
    """Let arguments that name something stored be completed with what there is."""
    for action in parser._actions:
        inner = action.choices
        if isinstance(inner, dict):
            for one in inner.values():
                add_completers(one)
        else:
            completer = completer_of(action)
            if completer is not None:
                action.completer = completer  # type: ignore[attr-defined]


def completer_of(action: Action, conn_id: str | None = None) -> Completer | None:
    """What completes an argument, by how it is called in its help.

    :param conn_id: the connection that is used where none is named.
    """
    find = _FINDERS.get(str(action.metavar))
    if find is None or (action.metavar == "TOKEN" and action.nargs is not None):
        return None

    def complete(prefix: str, parsed_args: Namespace, **more: Any) -> Any:
        from airflow_mq.core.errors import MessageQueueError

        from .command import UsageError

        if conn_id is not None:
            parsed_args.default_conn_id = conn_id
        try:
            return find(Session(parsed_args), prefix)
        except (MessageQueueError, UsageError):
            return []

    return complete


def _rings(session: Session, prefix: str) -> list[str]:
    with session.any_ring() as queue:
        return queue.admin.rings()


def _origins(session: Session, prefix: str) -> list[str]:
    with session.queue() as queue:
        return list(dict.fromkeys(one.origin for one in queue.inspect.queues(prefix, limit=_MOST)))


def _set_aside(session: Session, prefix: str) -> dict[str, str]:
    origin = prefix.partition(":")[0]
    with session.queue() as queue:
        found = queue.set_aside.list(origin, limit=_MOST) if ":" in prefix else queue.set_aside.list(limit=_MOST)
    return {str(one.address): f"{one.reason}, {one.size:,} bytes" for one in found}


def _blocks(session: Session, prefix: str) -> dict[str, str]:
    with session.queue() as queue:
        return {
            one.token: f"block {one.id}, {one.state}, {one.messages:,} messages"
            for one in (queue.blocks.list("planned", limit=_MOST) or queue.blocks.list(limit=20))
        }


def _settings(session: Session, prefix: str) -> list[str]:
    from ..core.config import RingConfig

    return [f"{name}=" for name in RingConfig().to_json()]


_FINDERS: dict[str, Callable[[Session, str], Any]] = {
    "RING": _rings, "ORIGIN": _origins, "ORIGIN[:PAGE:INDEX[:high]]": _origins, "ADDRESS": _set_aside,
    "ID|ADDRESS": _set_aside, "TOKEN": _blocks, "NAME=VALUE": _settings,
}  # fmt: skip


def completion(session: Session, args: Namespace) -> None:
    """Print what a shell runs to complete this program's commands."""
    from argcomplete.shell_integration import shellcode

    from .parser import PROGRAM_NAME

    script = shellcode([PROGRAM_NAME], shell=args.shell)
    if session.out.as_json:
        session.out.value({"shell": args.shell, "script": script})
    else:
        for line in script.splitlines():
            # As it is: a tab means something to a shell.
            print(line)


COMPLETION = Command(
    "completion", "what a shell runs to complete commands, options, rings, origins and addresses", completion,
    (option("shell", choices=SHELLS, help="which shell"),),
    about="bash: eval \"$(airflow-mq completion bash)\" in ~/.bashrc. zsh: the same in ~/.zshrc, after compinit. "
    "fish: airflow-mq completion fish | source, in ~/.config/fish/config.fish. `airflow mq` is completed by Airflow's "
    "own completion.",
    example="$ completion bash",
)  # fmt: skip
