"""Single sends, one transaction each: ours and one other take a short turn after the other, many times."""

from __future__ import annotations

from contextlib import ExitStack

from lab.benchmarks.contenders import OURS, Contender
from lab.benchmarks.lab import Lab
from lab.benchmarks.measures.throughput import empty
from lab.benchmarks.sizes import Sizes

CLIENTS = (1, 8, 32)


def single(lab: Lab, contenders: list[Contender]) -> None:
    """`single_in`: seconds for a turn of single sends by 1, 8 and 32 clients; `beside` names the other contender."""
    for other in contenders:
        if other is not OURS:
            _take_turns(lab, [one for one in contenders if one in (OURS, other)], other.name)


def turn_of(sizes: Sizes, clients: int) -> int:
    """Return the messages of a turn: many clients send for as long as few."""
    return sizes.turn * max(1, clients // 8)


def named(clients: int) -> str:
    return f"{clients} client{'s' if clients > 1 else ''}"


def _take_turns(lab: Lab, contenders: list[Contender], beside: str) -> None:
    with ExitStack() as stack:
        drivers = [
            (contender, stack.enter_context(lab.clone(empty(lab, contender), contender))[1]) for contender in contenders
        ]
        for clients in CLIENTS:
            name = named(clients)
            lab.say(f"single in, {name}: {', '.join(contender.name for contender in contenders)}")
            lab.checkpoint()
            count = turn_of(lab.sizes, clients)
            # The first turn connects and warms up; it does not count.
            for turn in range(-1, lab.sizes.turns):
                for contender, driver in drivers if turn % 2 else drivers[::-1]:
                    with lab.trying("single_in", contender, name), lab.server_time() as used:
                        told = driver("single_in", count=count, clients=clients)
                    if turn >= 0:
                        lab.note(
                            "single_in",
                            contender.name,
                            name,
                            round=turn,
                            clients=clients,
                            beside=beside,
                            **told,
                            **used,
                        )
