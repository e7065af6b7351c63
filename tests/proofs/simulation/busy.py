"""Busy rings: queues that always have messages, in blocks that reach a part of them, beside queues that come and go.

No busy queue starves: it waits a bounded number of calls, however much the others send. If only busy queues send and all
blocks are alike, queues of one level get the same weight.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from math import ceil
from random import Random

from airflow_mq import Message, MessageQueue, RingConfig, Weight
from airflow_mq.engine.rules.groups import head_of

from .messages import Violation
from .world import Stores

#: Weight of a block, number of calls, and queues of each level that come and go.
FULL, CALLS, RARE = 1_000, 48, 3
#: A queue: its origin and its priority.
Name = tuple[str, str]


def draw_config(random: Random) -> RingConfig:
    """Return the settings of a ring."""
    order = random.choice(("deficit",) * 4 + ("rotation", "shuffle"))
    return RingConfig(
        service_weight=Weight(FULL * random.choice((1, 1, 3, 600)), 1 << 30),
        order=order,
        paths=order == "deficit" and random.random() < 0.5,
        rounds_per_block=random.choice((256, 256, 4)),
        max_block_queues=random.choice((1, 2, 3, 4, 5, 4_096)),
    )


class Busy:
    """One ring with busy queues, and what each of them got."""

    def __init__(self, queue: MessageQueue, random: Random) -> None:
        self.queue, self.random, self.config = queue, random, queue.config
        #: Whether only busy queues send, and all blocks are alike.
        self.steady = random.random() < 0.5
        self.way = random.choice(("service", "block", "both"))
        self.levels: Sequence[str] = random.choice((("regular",), ("regular",), ("high",), ("high", "regular")))
        #: Weights of the messages of each busy queue; the heaviest of all.
        self.weights: dict[Name, tuple[int, ...]] = {}
        self._draw_queues()
        self.heaviest = max(map(max, self.weights.values()))
        #: Weights of the messages that wait in each queue.
        self.left = defaultdict[Name, list[int]](list)
        #: Weight that each busy queue got; calls since it got some; and the largest number of ready queues of a level.
        self.given, self.waited, self.ready = Counter[Name](), Counter[Name](), 0

    def _draw_queues(self) -> None:
        random = self.random
        # Two levels divide capacity, also that which nothing fits: then a level waits long for a message of more than half.
        heaviest = random.choice((100, 330, FULL) if len(self.levels) == 2 else (100, 330, 600, FULL))
        alike = random.random() < 0.6 or (len(self.levels) == 2 and heaviest == FULL)
        groups = random.choice((0, 0, 2, 3))
        for level in self.levels:
            for at in range(random.randint(2, 6)):
                group = f"g{at % groups}/" if groups else ""
                weights = (heaviest,) if alike else tuple(random.randint(heaviest // 5, heaviest) for _ in range(3))
                self.weights[f"{group}busy{at}", level] = weights

    def run(self) -> None:
        """Run calls, and send again what each one took."""
        for _ in range(CALLS):
            for name, weights in self.weights.items():
                while sum(self.left[name]) <= 2 * FULL:
                    self._send(name, [self.random.choice(weights) for _ in range(2 * FULL // max(weights))])
            if not self.steady:
                self._send_rarely()
            self.ready = max(self.ready, *map(self._rivals, self.levels))
            self._call()
        if self.steady:
            self._check_shares()
        if violations := self.queue.check():
            raise Violation("check()", "; ".join(map(str, violations[:3])))

    def _rivals(self, level: str) -> int:
        """Return among how many queues a level is divided for the queue with the smallest part, if paths count."""
        origins = [origin for (origin, its), left in self.left.items() if left and its == level]
        groups = Counter(head_of(origin) for origin in origins)
        return max(len(origins), len(groups) * max(groups.values())) if self.config.paths else len(origins)

    def _send(self, name: Name, weights: Sequence[int]) -> None:
        origin, priority = name
        messages = [Message(b"%d" % weight, weight=Weight(weight, 1), priority=priority) for weight in weights]
        self.queue.enqueue_messages(origin, messages)
        self.left[name] += weights

    def _send_rarely(self) -> None:
        """Send to some of the other queues: also messages that only some blocks carry."""
        random = self.random
        heaviest = min((self.config.service_weight or Weight(FULL, 0))[0], 2 * FULL)
        for _ in range(random.choice((0, 1, 3))):
            name = f"g{random.randrange(2)}/rare{random.randrange(RARE)}", random.choice(self.levels)
            most = random.choice((20, 500, FULL, heaviest))
            self._send(name, [random.randint(1, most) for _ in range(random.choice((1, 1, 5)))])

    def _call(self) -> None:
        random = self.random
        limit = Weight(FULL if self.steady else random.choice((FULL, FULL, 2 * FULL)), 1 << 30)
        way = random.choice(("service", "block")) if self.way == "both" else self.way
        took = self._service(limit) if way == "service" else self._plan(limit)
        if not took:
            raise Violation("I6 progress", "a call takes nothing, though messages fit")
        served = Counter[Name]()
        for name, weight in took:
            assert self.left[name].pop(0) == weight
            served[name] += weight
        for name in self.weights:
            self.given[name] += served[name]
            self.waited[name] = 0 if served[name] else self.waited[name] + 1
            if self.waited[name] > self._most_waiting():
                raise Violation(
                    "I11 starvation", f"{name} waits for {self.waited[name]} calls of {way}: {self._told()}"
                )

    def _service(self, limit: Weight) -> list[tuple[Name, int]]:
        seen: list[tuple[Name, int]] = []
        self.queue.service_queues(
            lambda delivery: seen.append(((delivery.origin, delivery.priority), int(delivery.payload))), limit,
            seed=self.random.randbytes(8),
        )  # fmt: skip
        return seen

    def _plan(self, limit: Weight) -> list[tuple[Name, int]]:
        blocks = self.queue.blocks
        block = blocks.plan(limit=limit, seed=self.random.randbytes(8))
        batches = list(block.batches())
        took = [((batch.origin, batch.priority), int(payload)) for batch in batches for payload in batch.payloads]
        if len({name for name, _ in took}) > self.config.max_block_queues:
            raise Violation("bounded work", f"a block takes messages of more queues than it may: {self._told()}")
        blocks.report(block, [batch.answer() for batch in batches])
        blocks.settle(block)
        return took

    @property
    def _quantum(self) -> int:
        return (self.config.service_weight or Weight(FULL, 0))[0] // self.config.rounds_per_block

    def _most_waiting(self) -> int:
        """Return how many calls a busy queue may wait: each other queue of its level has a turn of the same length."""
        levels = len(self.levels)
        if self.config.order == "shuffle":
            # By chance: once in a million.
            return 14 * self.ready * levels
        part = FULL // min(self.config.max_block_queues, self.ready)
        turn = max(self.heaviest if self.steady else FULL, part)
        if self.config.order == "deficit":
            turn = max(turn, self._quantum)
        return levels * ceil(self.ready * turn / (FULL * 0.7)) + 4

    def _check_shares(self) -> None:
        """Check that queues of the same group got the same weight, as far as a block divides it."""
        config = self.config
        is_whole = config.order == "deficit" and config.max_block_queues >= len(self.weights)
        is_alike = config.order != "shuffle" and all(len(weights) == 1 for weights in self.weights.values())
        if not (is_whole or is_alike):
            return
        most = max(FULL, self._quantum if config.order == "deficit" else 0) + self.heaviest
        for members in self._members():
            if max(members) - min(members) > most:
                raise Violation("I12 shares", f"{sorted(members)} differ by more than {most}: {self._told()}")

    def _members(self) -> Iterator[Sequence[int]]:
        """Yield the weights that the members of each level or group got."""
        for level in self.levels:
            given = {origin: weight for (origin, its), weight in self.given.items() if its == level}
            if not (self.config.paths and level == "regular"):
                yield [*given.values()]
                continue
            groups = defaultdict[str, list[int]](list)
            for origin, weight in given.items():
                groups[head_of(origin) if "/" in origin else ""].append(weight)
            yield from groups.values()
            if "" not in groups:
                yield [*map(sum, groups.values())]

    def _told(self) -> str:
        config = self.config
        return (
            f"{dict(self.given)} of {self.weights}, {'steady' if self.steady else 'lively'}, {self.way}, {config.order}, "
            f"paths {config.paths}, {config.max_block_queues} queues, {config.rounds_per_block} rounds, "
            f"{config.service_weight}"
        )


def run_busy(seed: int, stores: Stores, store: str = "sqlite") -> BaseException | None:
    """Run a seed; return the violated invariant."""
    random = Random(f"busy {seed}")
    uri, ring = stores.fresh(store)
    with MessageQueue(uri) as maker:
        maker.admin.create_ring(ring, draw_config(random))
    with MessageQueue(uri, ring, actor="busy") as queue:
        try:
            Busy(queue, random).run()
        except Violation as violation:
            return violation
    return None
