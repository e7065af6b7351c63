"""Planted bugs of landing by lines, of typed messages, of traces, and of what ends while no run comes."""

from __future__ import annotations

from collections.abc import Sequence

from .planting import Mutation, bug

GUESTS: Sequence[Mutation] = (
    # Landing by lines.
    bug(
        "line that is enqueued without its key", "adapters/__init__.py",
        "return Message(payload, item.key,", "return Message(payload, None,",
    ),
    bug(
        "note of the line that was read ahead", "adapters/landing/source.py",
        "        self._of[key] = reading, reading.fetched, line.mark, is_last\n        reading.fetched = line.mark\n",
        "        mark = (reading.waiting or line).mark\n"
        "        self._of[key] = reading, reading.fetched, mark, is_last\n        reading.fetched = mark\n",
    ),
    # Typed messages.
    bug(
        "typed delivery that keeps what it sends", "engine/queue/typed.py",
        "        self.delivery.enqueue(origin, encoded(self._codec, value), priority, headers)\n",
        "        super().enqueue(origin, encoded(self._codec, value), priority, headers)\n",
    ),
    bug(
        "answers of a batch in the places of messages that do not decode", "engine/queue/typed.py",
        "        for at, answer in zip(good, answers or ()):\n", "        for at, answer in enumerate(answers or ()):\n",
    ),
    # Traces.
    bug(
        "trace carried along without room for it", "engine/rules/message.py",
        "if carried and carried.keys().isdisjoint(checked) and size + header_bytes(carried) <= most:",
        "if carried and carried.keys().isdisjoint(checked):",
    ),
    bug(
        "trace carried along in place of a message's own headers", "engine/rules/message.py",
        "return {**carried, **checked}", "return dict(carried)",
    ),
    # Gaps.
    bug(
        "run that is repeated in the block that its lease ended", "engine/queue/blocks/blocks.py",
        "if known is not None and known.row.deadline > unit.now():", "if known is not None:",
    ),
    bug(
        "message that has expired is planned with its neighbours", "engine/rules/claims.py",
        "if note.expires is not None and note.expires <= now), default=stop)", "if note.expires == 0), default=stop)",
    ),
)  # fmt: skip
