"""Crowds: rings of many more queues than a walk comes to, in which progress is an invariant of each block.

Most queues begin with a message that the block, or what is left of it, does not carry. A light message is sent to a
quiet queue among them. Each block tries a message if any fits it, the light one waits for a round of looks at most, and
no transaction loads the whole ring.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby
from random import Random
from typing import Any
from unittest import mock

from airflow_mq import MessageQueue, RingConfig, Weight
from airflow_mq.engine.rules import orders, service
from airflow_mq.engine.store.working_set import StoredSet

from .messages import Violation
from .world import Stores

LIGHT = Weight(1, 1)
#: What a walk may do in vain, smaller than in the package: then a few hundred queues are many. No other bound changes.
SMALL: Mapping[str, int] = {
    "rules.service.IN_VAIN": 80, "rules.orders.MOST_LOOKS": 100, "rules.deficit.MOST_LOOKS": 100,
    "rules.paths.MOST_LOOKS": 100, "rules.levels.MOST_LOOKS": 100,
}  # fmt: skip
#: Books that a walk loads ahead.
AHEAD = 3 * 128
LIGHTS, MOST_BLOCKS = 3, 12


def draw_config(random: Random) -> RingConfig:
    """Return the settings of a ring."""
    order = random.choice(("deficit",) * 6 + ("rotation", "shuffle"))
    return RingConfig(
        service_weight=Weight(600_000, 1 << 30),
        order=order,
        paths=order == "deficit" and random.random() < 0.4,
        high=random.random() < 0.3,
        max_block_queues=random.choice((2, 20, 4_096, 4_096)),
    )


class Crowd:
    """One ring of many queues, and what is left in it."""

    def __init__(self, queue: MessageQueue, random: Random) -> None:
        self.queue, self.random, self.config = queue, random, queue.config
        self.count, self.groups = random.choice((170, 260)), random.choice((1, 1, 7, 1_000))
        #: Weight of the first message of each queue, by origin and priority; and their messages.
        self.left: dict[tuple[str, str], list[int]] = {}
        #: Origins of each server. Two servers take turns in some rings.
        self.servers: Sequence[str | None] = random.choice(((None,), (None,), ("a*", "b*")))
        #: Books that the transactions of a block loaded.
        self.loaded: list[StoredSet] = []
        self.blocks = 0

    def fill(self) -> None:
        """Send to all queues; pause some."""
        random = self.random
        shapes = random.choice(((2_000,), (600,), (600,), (600, 900, 2_000, 5_000)))
        lights = random.sample(range(self.count), LIGHTS)
        for at in range(self.count):
            weights = [random.choice(shapes)] * random.choice((1, 3))
            if at in lights:
                weights = [LIGHT[0]]
            self.left[f"{'ab'[at % 2]}{at % self.groups}/o{at}", self._priority()] = weights
        # Queues stand in the ring in this order.
        for (priority, weight), some in groupby(self.left.items(), lambda item: (item[0][1], item[1][0])):
            pairs = [(origin, b"x") for (origin, _), weights in some for _ in weights]
            self.queue.enqueue_messages(pairs, weight=Weight(weight, 1), priority=priority)
        for origin, priority in random.sample([*self.left], random.choice((0, 5))):
            self.queue.admin.pause(origin)
            del self.left[origin, priority]

    def _priority(self) -> str:
        return "high" if self.config.high and self.random.random() < 0.5 else "regular"

    def run(self) -> None:
        """Run blocks until light messages in the middle of the ring are processed, then new ones."""
        self.fill()
        self._wait_for({key for key, weights in self.left.items() if weights == [LIGHT[0]]})
        for number in range(LIGHTS):
            side, priority = self.random.choice("ab"), self._priority()
            origin = f"{side}{self.random.randrange(self.groups)}/light{number}"
            self.queue.enqueue_message(origin, b"x", weight=LIGHT, priority=priority)
            self.left[origin, priority] = [LIGHT[0]]
            self._wait_for({(origin, priority)})
        if violations := self.queue.check():
            raise Violation("check()", "; ".join(map(str, violations[:3])))

    def _wait_for(self, lights: set[tuple[str, str]]) -> None:
        waited = Counter[tuple[str, str]]()
        limit = Weight(self.random.choice((700, 1_000, 3_000)), 1 << 30)
        for number in range(MOST_BLOCKS):
            if not lights & self.left.keys():
                return
            server = self.servers[number % len(self.servers)]
            used, queues = self._block(limit, server)
            # A block without a rest for them does not count, nor one of as many queues as a block may have.
            if used.plus(LIGHT).exceeds(limit) or queues >= self.config.max_block_queues // 2:
                continue
            waited.update(key for key in lights & self.left.keys() if server is None or server[0] == key[0][0])
            if waited and max(waited.values()) > self._bound():
                raise Violation("I6 progress", f"{waited.most_common(1)} waits in blocks with a rest; {self.config}")

    def _bound(self) -> int:
        if len(self.servers) > 1:
            # They share the place of the last look: a queue may have to wait for its own turn.
            return self.count + LIGHTS
        if self.config.order == "deficit":
            return self.count // orders.LOOK_PAST + 3
        return 1 if self.count + LIGHTS <= service.IN_VAIN else self.count + LIGHTS

    def _block(self, limit: Weight, server: str | None) -> tuple[Weight, int]:
        """Run a block; return its weight, and the number of its queues."""
        self.blocks += 1
        fits = [
            key
            for key, (first, *_) in self.left.items()
            if first <= limit[0] and (not server or key[0][0] == server[0])
        ]
        self.loaded.clear()
        took = self._service(limit, server) if self.random.random() < 0.3 else self._plan(limit, server)
        self._check_work()
        if fits and not took:
            raise Violation("I6 progress", f"a block takes nothing, though {fits[0]} fits in {self.queue.config}")
        used = sum(self._take(*key) for key in took)
        return Weight(used, len(took)), len(set(took))

    def _take(self, origin: str, priority: str) -> int:
        left = self.left[origin, priority]
        weight = left.pop(0)
        if not left:
            del self.left[origin, priority]
        return weight

    def _service(self, limit: Weight, server: str | None) -> list[tuple[str, str]]:
        seen: list[tuple[str, str]] = []
        self.queue.service_queues(
            lambda delivery: seen.append((delivery.origin, delivery.priority)), limit,
            origins=server and [server], seed=self.random.randbytes(8),
        )  # fmt: skip
        return seen

    def _plan(self, limit: Weight, server: str | None) -> list[tuple[str, str]]:
        blocks = self.queue.blocks
        weigher: Any = None
        if self.random.random() < 0.2:
            weigher = lambda origin, payloads: [Weight(1, 1)] * len(payloads)  # noqa: E731 (each has a weight of its own)
        block = blocks.plan(
            limit=limit, origins=server and [server], weigher=weigher, seed=self.random.randbytes(8), server=server
        )
        took = [(claim.whose, claim.priority) for claim in block.claims for _ in range(claim.messages)]
        blocks.report(block, [batch.answer() for batch in block.batches()])
        blocks.settle(block)
        return took

    def _check_work(self) -> None:
        """Check that no transaction loads more than a bounded number of books; a shuffle reads the whole ring."""
        most = self.config.max_block_queues + service.IN_VAIN + orders.MOST_LOOKS + 2 * orders.LOOK_PAST + AHEAD
        if max((len(one.books) for one in self.loaded), default=0) > most:
            raise Violation("bounded work", f"a transaction loads more than {most} of {self.count} books")


@contextmanager
def _small(loaded: list[StoredSet]) -> Iterator[None]:
    """Use small bounds, and record all working sets."""
    begin = StoredSet.__init__

    def recorded(self: StoredSet, *given: Any, **modes: Any) -> None:
        begin(self, *given, **modes)
        loaded.append(self)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(StoredSet, "__init__", recorded))
        for name, value in SMALL.items():
            stack.enter_context(mock.patch(f"airflow_mq.engine.{name}", value))
        yield


def run_crowd(seed: int, stores: Stores, store: str = "sqlite") -> BaseException | None:
    """Run a seed; return the violated invariant."""
    random = Random(f"crowd {seed}")
    uri, ring = stores.fresh(store)
    with MessageQueue(uri) as maker:
        maker.admin.create_ring(ring, draw_config(random))
    with MessageQueue(uri, ring, actor="crowd") as queue:
        crowd = Crowd(queue, random)
        with _small(crowd.loaded):
            try:
                crowd.run()
            except Violation as violation:
                return violation
    return None
