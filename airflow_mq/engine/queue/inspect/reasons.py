"""Reasons for which a message waits: for each case its facts, a sentence, and the changes that would help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...rules.book import BACKOFF, BUDGET, IN_FLIGHT, PAUSED
from ...rules.judging import FRACTION, MOST, OVERWEIGHT, SIZE
from ...rules.message import Address


class Remedy(str):
    """A change that would help, as one text, and apart: what it is, and the command that makes it, if there is one."""

    text: str
    command: str

    def __new__(cls, text: str, command: str = "") -> Remedy:
        remedy = super().__new__(cls, ": ".join(filter(None, (text, command))))
        remedy.text, remedy.command = text, command
        return remedy


@dataclass(frozen=True)
class Explanation:
    """The reason for which a message, or the first one of a queue, waits."""

    origin: str
    #: The message; of a queue, the first one that waits.
    address: Address | None
    #: `next` (the next block takes it), `turn`, `limit`, `spent`, `behind`, `overweight`, `expired`, `paused`,
    #: `in flight`, `reported`, `backoff`, `budget`, `not due`, `set aside`, `gone`, `empty`, `nowhere`, `chance`, `new`
    #: (a ring with paths has many new queues), `stuck` (its queue waits behind a message that is heavier than any block
    #: that services it), or `unserved` (no DAG or program that services the ring takes this origin).
    reason: str
    #: The reason as a sentence.
    sentence: str
    #: Number of the next block that tries it if nothing changes, from 1; None if none does, or if that is unknown.
    block: int | None = None
    #: Changes that would help.
    remedies: Sequence[Remedy] = ()
    #: Number of failed attempts.
    attempts: int = 0
    #: Error of the latest attempt, or the reason for which no processor got the message.
    last_error: str = ""


#: Reasons for which a message waits for a block.
WAITS_FOR_A_BLOCK = (
    "next",
    "turn",
    "limit",
    "spent",
    "behind",
    "overweight",
    "expired",
    "chance",
    "backoff",
    "budget",
    "new",
)
ONLY_MORE = "blocks more often: no wider limit or most, larger share or other order that was tried brings it forward"
#: The command that lists errors of attempts.
ERRORS = "message events --name Returned --latest --limit 20"
_SETTLE = ("that block settled or, if no process works on it, released", "block list --state planned")
_RETRY = [
    ("if the cause is fixed", "queue resume", "{origin}"),
    ("time; after its next failure, the present backoff of the ring applies", "ring show"),
]
_TIME = "time, if its sender set this one; if it is the backoff of a failed attempt"
_ASIDE = "{address} is set aside: {why}; it waits for a person."
_EXECUTE = ("", "set-aside execute", "{address}", "--processor module:function")
_REQUEUE = ("a higher limit, then", "set-aside requeue", "{address}", "--why …")
_DISCARD = ("", "set-aside discard", "{address}", "--why …")
_PROCESSOR = ("a processor whose origins match {origin}, in one of these DAGs or in another",)
_SETTING_ASIDE = ("setting it aside", "ring change --set set_aside_above=block")
_HEAVY = "{subject} {why}: {when} sets it aside."
_BUDGET = ("nothing but time, or a larger rate or burst", "queue set", "{name}", "…")

#: Texts of each case: the reason, a sentence, and what would help: a text, and the arguments of `RingSession.cli`.
#: Braces hold the names of facts.
CASES: dict[str, tuple[str, str, Sequence[Sequence[str]]]] = {
    # A block holds it.
    "all in flight": ("in flight", "all that waits of {origin} is in flight, in {holders}.", [_SETTLE]),
    "to be dropped": ("in flight", "{address} has expired: it is dropped when {held_by}, is settled.", [_SETTLE]),
    "to be set aside": ("in flight", "{address} is set aside when {held_by}, is settled: {why}.", [_SETTLE]),
    "processed": ("in flight", "{address} is being processed in {held_by}.", [_SETTLE]),
    "executed": ("in flight", "{address} is being executed by hand in {held_by}.", [_SETTLE]),
    "reported": ("reported", "{address} was answered for in block {number}, and goes when that is settled.", [_SETTLE]),
    # No block takes it.
    "not due": ("not due", "{messages} not due before {due}.", [(_TIME, "queue resume", "{origin}")]),
    "empty": ("empty", "{origin} has no messages.", []),
    "all set aside": (
        "set aside", "all that is left of {origin} is set aside ({count:,}), and waits for a person.",
        [("", "set-aside list --origin=", "{origin}")],
    ),
    "set aside": ("set aside", _ASIDE, [_EXECUTE, _DISCARD]),
    "set aside by a limit": ("set aside", _ASIDE, [_EXECUTE, _REQUEUE, _DISCARD]),
    "waits aside": (
        "backoff", "{address} returned and waits aside until {due}: then it joins its queue again, behind all others, "
        "at a new address.", _RETRY,
    ),
    "gone": ("gone", "{address} is gone: it was processed, or dropped.", []),
    "nowhere": ("nowhere", "no message was ever at {address}{later}.", []),
    # Its queue is skipped, for a reason of this name.
    PAUSED: ("paused", "{what} is paused{ends} by {actor}{why}.", [("", "queue resume", "{name}")]),
    IN_FLIGHT: ("in flight", "{origin} is ordered, and messages before it are in flight, in {holders}.", [_SETTLE]),
    BACKOFF: ("backoff", "a message of {origin} returned; its queue is tried again from {wake_at} on.", _RETRY),
    BUDGET: ("budget", "the budget of {whose} is used up ({budget}); {origin} waits until {wake_at}.", [_BUDGET]),
    "budget spent": (
        "budget", "{subject} waits for time to pass: the budget of {whose} is used up by messages before it.", [_BUDGET]
    ),
    # No server can take it.
    "unserved": (
        "unserved", "{subject} waits for a processor: no DAG or program that services this ring takes {origin} "
        "({servers}).", [_PROCESSOR],
    ),
    "stuck": (
        "stuck", "{subject} {needs} {weight}, more than {carried} can carry: it stays where it is.",
        [("a limit of at least {least} for these blocks",), _SETTING_ASIDE],
    ),
    # A block takes it, sooner or later.
    "chance": (
        "chance", "{subject} waits for its turn, which is drawn anew for each block, as this ring shuffles.",
        [("specify the seed of the next blocks to get an answer",)],
    ),
    "unlimited": (
        "turn", "{subject} waits for its turn; this ring has no service weight, so each block sets its own limit, and "
        "there is no forecast.",
        [("specify the limit of the next blocks to get an answer",)],
    ),
    "new": (
        "new", "{subject} waits for its turn; many queues of this ring are new, and the next block gives them turns.",
        [],
    ),
    "next": ("next", "{subject} runs in {when}{lacks}.", []),
    "expired": ("expired", "{address} has expired: {when} drops it.", [("that it is sent again, to expire later",)]),
    OVERWEIGHT: (
        "overweight", _HEAVY, [("a limit that leaves {weight} for a message", "ring change --service-weight {wider}")]
    ),
    MOST: ("overweight", _HEAVY, [("a most that allows {weight}", "queue set", "{origin}", "--most …")]),
    FRACTION: ("overweight", _HEAVY, [("a most_of_limit that allows {weight}", "ring change --set most_of_limit=…")]),
    SIZE: ("overweight", _HEAVY, [("a max_message_size of {size}", "ring change --set max_message_size={size}")]),
    # No earlier block takes it; forecasts find what would help.
    "behind": ("behind", "{behind:,} of its own queue come before it", []),
    "group spent": ("spent", "it, or a group that holds it, had its share or its most of the blocks before", []),
    "most spent": ("spent", "its queue had its most of the blocks before", []),
    "spent": ("spent", "it weighs {weight}, for which its queue has not saved enough yet", []),
    "limit": ("limit", "it weighs {weight}, more than others leave of the blocks before", []),
    "turn": ("turn", "the blocks before are full when its turn would come", []),
}  # fmt: skip
