"""The state machine: all operations on a ring, in any order, compared with the plain model."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant

from airflow_mq import (
    RingConfig,
    Weight,
)
from airflow_mq.engine.rules.config import BLOCK_PARTS
from airflow_mq.engine.rules.orders import parts_of

from .drawn import ORIGINS, configs, limits, origins, standings, troubled
from .ending import Ending
from .judging import Judging
from .plain import GONE, Plain
from .refusing import Refusing
from .sending import Sending
from .serving import Serving
from .settling import Held
from .sides import Sides

_names = itertools.count(1)


class QueueMachine(Sending, Serving, Ending, Judging, Refusing):
    """Rules for everything; the invariants hold after each."""

    #: Settings that every ring of this machine has; the others are drawn.
    fixed: ClassVar[dict[str, Any]] = {}

    @initialize(config=configs, listen=st.booleans(), data=st.data())
    def begin(self, config: RingConfig, listen: bool, data: st.DataObject) -> None:
        self.serial = itertools.count(1)
        config = config.changed(**self.fixed)
        self.sides = Sides(self.uris, f"ring-{next(_names)}", config, listen)
        self.plain = Plain(config, lambda: self.clock.now)
        self.held: list[Held] = []
        self.keyed: list[tuple[str, str, bytes]] = []
        self.widest = 0
        for origin in sorted(data.draw(st.sets(origins, max_size=2), "origins with settings of their own")):
            self.set_origin_at(origin, **data.draw(standings))
        for _ in range(data.draw(st.integers(0, 3), "calls before the first step")):
            self.send(data)

    def interleave(self, data: st.DataObject) -> None:
        """At least one other thing happens between a plan and its settling."""
        name = data.draw(st.sampled_from([
            "send", "pause", "sweep", "reap", "execute", "force", "change", "plan", "release", "set",
        ]), "meanwhile")  # fmt: skip
        draw = data.draw
        if name == "send":
            self.send(data)
        elif name == "pause":
            self.pause(draw(troubled), draw(st.sampled_from([None, 10.0])))
        elif name == "sweep":
            self.sweep(draw(troubled))
        elif name == "reap":
            self.reap(draw(origins), draw(st.integers(0, 6)))
        elif name == "execute":
            self.execute(data)
        elif name == "force":
            self.force_head(draw(origins), None)
        elif name == "change":
            self.change(data)
        elif name == "set":
            self.set_origin_at(draw(origins), **draw(standings))
        elif name == "plan":
            self.plan_one(draw(st.none() | limits), None, False, None)
        elif others := [block for block in self.held if block.state == "planned"][:-1]:
            self.end_one(draw(st.sampled_from(others)), True)

    # What is always true.

    @invariant()
    def stores_agree_with_the_model(self) -> None:
        if not hasattr(self, "plain"):
            return
        plain, expected = self.plain, self.plain.state()
        ids, reasons = Counter(item.id for item in plain.all), plain.reasons_aside()
        for side in self.sides.all:
            queue = side.queue
            assert queue.check() == []
            state = side.state()
            assert state == expected
            assert queue.inspect.ring_order(100) == plain.ring
            assert [tuple(vars(queue.footprint(origin)).values()) for origin in ORIGINS] == [
                plain.footprint(origin) for origin in ORIGINS
            ]
            aside = queue.set_aside.list()
            assert (
                sorted(
                    (message_aside.address.origin, message_aside.address.page, message_aside.address.index)
                    for message_aside in aside
                )
                == plain.set_aside()
            )
            for message_aside in aside:
                limits = reasons[message_aside.address.origin, message_aside.address.page, message_aside.address.index]
                limit = (
                    message_aside.most_bytes
                    if message_aside.reason == "size"
                    else message_aside.limit and tuple(message_aside.limit)
                )
                assert message_aside.reason in limits and limits[message_aside.reason] == limit, (
                    f"{message_aside} is set aside, for {limits}"
                )
                self.met[f"set aside: {message_aside.reason}"] += 1
            for origin in ORIGINS:
                peeked = [
                    (p.address.page, p.address.index, p.payload, p.state, p.attempts)
                    for p in queue.inspect.peek(origin, limit=100)
                ]
                assert peeked == plain.looks(origin)
            new_events = side.fresh_events()
            events, expected_events = Counter(event for event, _ in new_events), Counter(plain.events)
            assert events == expected_events, (
                f"too many: {events - expected_events}, too few: {expected_events - events}"
            )
            self.met.update(event.name for event, _ in new_events)
            assert {id_ for _, id_ in new_events if id_} <= set(ids)
        plain.events.clear()
        self.met["waiting aside"] += plain.waited
        plain.waited = 0

    @invariant()
    def charges_are_those_of_the_model(self) -> None:
        if hasattr(self, "plain"):
            for side in self.sides.all:
                assert side.charged() == self.plain.charged()

    @invariant()
    def nothing_is_lost_and_nothing_ends_twice(self) -> None:
        if not hasattr(self, "plain"):
            return
        stored = [item for book in self.plain.books.values() for page in book.pages.values() for item in page.items]
        delayed = [item for _, _, items in self.plain.delayed for item in items]
        assert len({id(item) for item in stored + delayed}) == len(stored) + len(delayed)
        kept = {id(item) for item in stored + delayed if item.state != GONE}
        for item in self.plain.all:
            assert item.finals == (0 if id(item) in kept else 1), item

    @invariant()
    def deficits_are_bounded(self) -> None:
        """By what is earned at once, and the largest message (weights that were remembered included)."""
        if not hasattr(self, "plain"):
            return
        config = self.plain.config
        part = parts_of(config.service_weight or Weight(3, 3))
        heaviest = max((part(Weight(*self.plain.weight(item))) for item in self.plain.all), default=0)
        heaviest = max(heaviest, part(Weight(6, 6)))
        self.widest = max(self.widest, BLOCK_PARTS // config.rounds_per_block * 4 + heaviest)
        for side in self.sides.all:
            for origin, deficit in side.deficits(ORIGINS).items():
                assert deficit <= self.widest, f"the deficit of {origin} is {deficit / self.widest:.2f} of its bound"


class PatientMachine(QueueMachine):
    """Rings whose messages wait aside after an attempt without an outcome."""

    fixed: ClassVar[dict[str, Any]] = {"ordered": False, "backoff": 8.0, "max_attempts": None}
