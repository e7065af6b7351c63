"""Scripts: what a run consists of, and how one is drawn from a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

#: Faults, and how often each is drawn.
FAULTS: Mapping[str, int] = {
    "error": 5,  # the statement fails, and was not run
    "busy": 2,  # the statement fails, because another transaction has a lock
    "cut": 4,  # the connection is lost before the statement
    "lost": 5,  # the statement is run, and the connection is lost before the answer
    "gone": 4,  # the process ends before the statement
    "gone after": 4,  # the process ends after the statement
    "slow": 3,  # the statement takes seconds to minutes
    "jump": 3,  # the database's clock moves by an hour, forward or back
    "dst": 1,  # the local time of all clients moves by an hour
    "skew": 2,  # the client's clock is wrong by five minutes
}
#: Actors by name, with the actions of each and how often each is drawn.
CASTS: Mapping[str, Mapping[str, int]] = {
    "sender": {
        "send": 5, "send_many": 4, "send_pairs": 3, "send_keyed": 3, "send_again": 5, "send_delayed": 2,
        "send_expiring": 2, "send_heavy": 2, "send_overweight": 3, "send_high": 2, "send_parents": 2,
        "send_in_transaction": 4, "send_inline": 1,
    },
    "planner": {"plan": 6, "plan_keyed": 2, "plan_weighing": 2, "report": 3, "settle": 3},
    "reporter": {"report": 5, "renew": 1, "report_some": 3},
    "settler": {"settle": 5, "release": 1, "release_dead": 2, "settle_completed": 1},
    "service": {"serve": 3, "work": 2, "serve_batches": 2, "serve_metering": 2},
    "executor": {"execute": 4, "execute_as_block": 3, "requeue": 3, "discard": 2, "requeue_all": 1},
    "holder": {
        "take": 4, "take_several": 4, "forward": 6, "complete": 5, "complete_in_transaction": 2, "give_back": 1,
        "transfer": 2, "renew_token": 1,
    },
    "keeper": {
        "housekeep": 4, "sweep": 1, "cull": 1, "pause": 1, "resume": 2, "force_head": 1, "set_origin": 1, "grow": 1,
    },
    "reaper": {"reap": 4},
    "upgrader": {"upgrade": 1},
    "landing": {"drop_files": 3, "receive": 4},
}  # fmt: skip
#: How many of each take part.
NUMBERS: Mapping[str, Sequence[int]] = {
    "sender": (2, 3), "planner": (1, 2), "reporter": (0, 1), "settler": (1,), "service": (0, 1, 2), "executor": (1, 2),
    "holder": (0, 1, 2), "keeper": (1,), "reaper": (0, 1), "upgrader": (0, 1), "landing": (0, 1),
}  # fmt: skip
#: Steps of an actor, compared with those of others.
BUSYNESS: Mapping[str, float] = {
    "sender": 3, "planner": 3, "settler": 2, "holder": 2, "executor": 1.7, "upgrader": 0.2, "reaper": 1, "landing": 1,
}  # fmt: skip
STEPS = 54
#: Guests: further actors of some runs, with the actions of each.
GUESTS: Mapping[str, Mapping[str, int]] = {
    "relay": {"relay": 5, "relay_and_serve": 3, "serve_calling_back": 5},
    "tuner": {"tune": 4, "enlarge": 2},
    "worker": {"repeat_part": 4, "die_of_a_message": 4, "plan_twice": 2, "end_beside_a_service": 3},
    "ender": {"serve_beside_ends": 5, "hold_beside_ends": 4, "spoil_end": 1, "mend_ends": 1},
    "filler": {"fill": 5, "fill_many": 5, "fill_later": 1},
    "uploader": {
        "upload": 5,
        "serve_uploading": 3,
        "report_uploading": 5,
        "complete_uploading": 2,
        "sweep_uploads": 1,
    },
    "reader": {"look_around": 6, "foresee": 3, "check_beside": 2},
    "liner": {"drop_lines": 1, "receive_lines": 4},
    "typist": {"send_letters": 1, "serve_letters": 2, "serve_letters_together": 2, "report_letters": 2},
    "tracer": {"send_traced": 2, "serve_traced": 3, "report_traced": 3},
    "sleeper": {"skip_runs": 3, "oversleep": 2},
}
#: The fraction of runs with each kind of guest, and its steps there, unless they are long.
GUEST_RUNS, GUEST_STEPS = 0.2, 8
LONG_STEPS: Mapping[str, int] = {"liner": 4, "typist": 4, "tracer": 4, "sleeper": 2}
PRELUDE = (
    ("sender-1", "send_overweight"), ("sender-2", "send_overweight"), ("sender-1", "send_many"),
    ("planner-1", "plan"), ("planner-1", "report"), ("planner-1", "settle"),
)  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """A fault at a statement of a step: its number, or the first commit."""

    kind: str
    at: int | str

    def __repr__(self) -> str:
        return f"Fault({self.kind!r}, {self.at!r})"


@dataclass(frozen=True)
class Step:
    """One action of one actor."""

    actor: str
    action: str
    seed: int
    #: Seconds that pass before it.
    wait: float = 0.0
    #: Statements before which it pauses, with the number of turns that others get meanwhile.
    cuts: Mapping[int, int] = field(default_factory=dict)
    fault: Fault | None = None

    def __repr__(self) -> str:
        parts = [repr(self.actor), repr(self.action), repr(self.seed)]
        if self.wait:
            parts.append(f"wait={self.wait!r}")
        if self.cuts:
            parts.append(f"cuts={dict(self.cuts)!r}")
        if self.fault:
            parts.append(f"fault={self.fault!r}")
        return f"Step({', '.join(parts)})"


@dataclass(frozen=True)
class Script:
    """A run: the settings of its ring, drawn from `setup`, and steps in the order in which they begin."""

    setup: int
    steps: Sequence[Step]

    @property
    def plain(self) -> Script:
        """Its steps one after the other, without faults."""
        return replace(self, steps=[Step(one.actor, one.action, one.seed, one.wait) for one in self.steps])

    def as_test(self, name: str, failure: str, store: str) -> str:
        """Return the text of a module with a test that runs this script."""
        lines = "\n".join(f"        {step!r}," for step in self.steps)
        fixture = "sqlite_stores" if store == "sqlite" else "both_stores"
        return (
            f'"""{failure.partition(chr(10))[0][:100]}"""\n\n'
            "from tests.proofs.simulation.run import assert_survives\n"
            "from tests.proofs.simulation.script import Fault, Script, Step  # noqa: F401\n\n"
            f"SCRIPT = Script(\n    {self.setup},\n    [\n{lines}\n    ],\n)  # fmt: skip\n\n\n"
            f'def test_{name}({fixture}) -> None:\n    assert_survives(SCRIPT, {fixture}, "{store}")\n'
        )


def draw(seed: int) -> Script:
    """Return the script of a seed."""
    random = Random(f"script {seed}")
    cast = [
        f"{kind}-{number}"
        for kind, numbers in NUMBERS.items() for number in range(1, random.choice(numbers) + 1)
    ]  # fmt: skip
    busyness = {name: BUSYNESS.get(name.partition("-")[0], 1) for name in cast}
    if random.random() < 0.25:
        # In some runs, holders take most messages.
        busyness |= {"holder-1": 12, "holder-2": 8}
    # Some runs have many faults, some have none; some are cut at nearly every step.
    faulty, cutting = random.choice((0.0, 0.05, 0.15, 0.3)), random.choice((0.1, 0.4, 0.7))
    # Most runs begin with messages that a block sets aside.
    with_prelude = random.random() < 0.8
    begin = [Step(*step, random.getrandbits(32)) for step in PRELUDE] if with_prelude else []
    drawn: list[Step] = []
    while len(drawn) < STEPS:
        drawn.append(_draw_step(random, random.choices([*busyness], [*busyness.values()])[0], faulty, cutting))
    # In some runs the clocks of some machines are wrong from the start.
    wrong = set(cast[:: random.choice((2, 3))]) if random.random() < 0.3 else set()
    for place, step in enumerate(drawn):
        if step.actor in wrong:
            drawn[place] = replace(step, fault=Fault("skew", 0))
            wrong.discard(step.actor)
    _add_guests(Random(f"guests {seed}"), drawn, faulty, cutting)
    return Script(seed, [*begin, *drawn])


def _add_guests(random: Random, drawn: list[Step], faulty: float, cutting: float) -> None:
    """Let guests take part in some runs. A random source of its own leaves the other steps as they are."""
    for kind in GUESTS:
        if random.random() < GUEST_RUNS:
            names = [f"{kind}-{number}" for number in (1, 2)]
            for _ in range(LONG_STEPS.get(kind, GUEST_STEPS)):
                step = _draw_step(random, random.choice(names), faulty, cutting)
                drawn.insert(random.randrange(len(drawn) + 1), step)


def rings_beside(script: Script) -> Sequence[str]:
    """Return the labels of rings beside the ring of a run, if its processors use some: one of them in another store."""
    return ("ring", "store") if any(step.actor.startswith("relay") for step in script.steps) else ()


def _draw_step(random: Random, actor: str, faulty: float, cutting: float) -> Step:
    kind = actor.partition("-")[0]
    actions = GUESTS[kind] if kind in GUESTS else CASTS[kind]
    action = random.choices(list(actions), list(actions.values()))[0]
    wait = random.choice((0.0, 0.0, 0.5, 3.0, 20.0, 70.0, 600.0))
    cuts: dict[int, int] = {}
    if random.random() < cutting:
        for _ in range(random.choice((1, 1, 2, 3))):
            cuts[_place(random)] = random.choice((1, 1, 2, 3, 5, 8))
    fault = None
    if random.random() < faulty:
        kind = random.choices(list(FAULTS), list(FAULTS.values()))[0]
        fault = Fault(kind, "commit" if random.random() < 0.35 else _place(random))
    return Step(actor, action, random.getrandbits(32), wait, dict(sorted(cuts.items())), fault)


def _place(random: Random) -> int:
    """Return the number of a statement; most actions have few."""
    return random.randrange(random.choice((3, 6, 12, 25, 50)))
