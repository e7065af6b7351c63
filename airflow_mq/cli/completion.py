"""Completion of command lines by a shell, and the script that switches it on.

The shell calls this program, which returns the possible words: commands, options, and from the named store the rings,
origins, blocks and set-aside messages. An error completes nothing.
"""

from __future__ import annotations

from argparse import Action, ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence

from ..engine.rules.errors import MessageQueueError
from .command import PROGRAM_NAME, UsageError, command, option
from .session import Session

SHELLS = ("bash", "zsh", "fish")
#: The largest number of names that are offered.
_MOST = 100


def add_completers(parser: ArgumentParser) -> None:
    """Complete arguments that name something stored from the store."""
    for action in parser._actions:
        inner = action.choices
        if isinstance(inner, dict):
            for one in inner.values():
                add_completers(one)
        else:
            add_completer(action)


def add_completer(action: Action, conn_id: str | None = None) -> None:
    """Complete an argument by its metavar, if that names something stored.

    :param conn_id: the connection to use where none is named.
    """
    find = _FINDERS.get(str(action.metavar))
    if find is None:
        return

    def complete(prefix: str, parsed_args: Namespace, **more: object) -> Sequence[str] | Mapping[str, str]:
        if conn_id is not None:
            parsed_args.default_conn_id = conn_id
        try:
            return find(Session(parsed_args), prefix)
        except (MessageQueueError, UsageError):
            return []

    # argcomplete reads this attribute.
    vars(action)["completer"] = complete


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
    from ..engine.rules.config import RingConfig

    return [f"{name}=" for name in RingConfig().to_json()]


_FINDERS: dict[str, Callable[[Session, str], Sequence[str] | Mapping[str, str]]] = {
    "RING": _rings,
    "ORIGIN": _origins,
    "ORIGIN[:PAGE:INDEX[:high]]": _origins,
    "ADDRESS": _set_aside,
    "ID|ADDRESS": _set_aside,
    "BLOCK": _blocks,
    "NAME=VALUE": _settings,
}


@command(option("shell", "the shell", choices=SHELLS), example="$ completion bash")
def completion(session: Session, args: Namespace) -> None:
    """Print the script with which a shell completes commands, options, rings, origins and addresses.

    bash: eval "$(airflow-mq completion bash)" in ~/.bashrc. zsh: the same in ~/.zshrc, after compinit. fish: airflow-mq
    completion fish | source, in ~/.config/fish/config.fish. Airflow's own completion completes `airflow mq`.
    """
    from argcomplete.shell_integration import shellcode

    script = shellcode([PROGRAM_NAME], shell=args.shell)
    if session.out.as_json:
        session.out.value({"shell": args.shell, "script": script})
    else:
        for line in script.splitlines():
            # Printed as it is: a tab is part of the script.
            print(line)
