"""Single sends, one transaction each: everyone takes a short turn after the other, many times."""

from __future__ import annotations

from contextlib import ExitStack

from tests.benchmarks.contenders import BARE, OURS, Contender
from tests.benchmarks.lab import Lab
from tests.benchmarks.measures.throughput import empty

CLIENTS = (1, 8)


def single(lab: Lab, contenders: list[Contender]) -> None:
    """`single_in`: seconds for a turn of single sends by one client and by eight."""
    ours = [contender for contender in contenders if contender in (OURS, BARE)]
    peers = [contender for contender in contenders if contender not in ours]
    for group, turns in ((ours, lab.sizes.turns), (peers, max(2, lab.sizes.turns // 5))):
        if group:
            _take_turns(lab, group, turns)


def _take_turns(lab: Lab, contenders: list[Contender], turns: int) -> None:
    with ExitStack() as stack:
        drivers = [
            (contender, stack.enter_context(lab.clone(empty(lab, contender), contender))[1]) for contender in contenders
        ]
        for clients in CLIENTS:
            name = f"{clients} client{'s' if clients > 1 else ''}"
            lab.say(f"single in, {name}: {', '.join(contender.name for contender in contenders)}")
            lab.checkpoint()
            # The first turn connects and warms up; it does not count.
            for turn in range(-1, turns):
                for contender, driver in drivers if turn % 2 else drivers[::-1]:
                    with lab.trying("single_in", contender, name):
                        told = driver("single_in", count=lab.sizes.turn, clients=clients)
                        if turn >= 0:
                            lab.note("single_in", contender.name, name, round=turn, clients=clients, **told)
