"""Model of a sharded queue: shards are added, drained, removed and down, changes are interrupted, senders lag behind.

Two senders keep their own routers, so each sends with an outdated layout until a fence stops it. The model holds what
each origin sent. After every step: what was processed of an origin is a beginning of what it sent, in order and once.
A send fails only if a shard that its origin concerns is down or has not completed the change. At the end, all is
processed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from airflow_mq import Block, MessageQueue, Report, ShardedQueue, Weight
from airflow_mq.core.errors import (
    ConfigRefused,
    LayoutChanged,
    LayoutMissing,
    ShardsFailed,
    ShardUnavailable,
    StoreUnreachable,
)
from airflow_mq.sharding import Layout, members
from airflow_mq.store import open_store
from tests.memory import in_memory
from tests.postgres_server import Server
from tests.templates import Templates

#: Examples on SQLite; a third of them on PostgreSQL.
EXAMPLES = int(os.environ.get("MQ_MODEL_EXAMPLES", 12))
NAMES = "abcd"
ORIGINS = st.sampled_from([f"o{number}" for number in range(4)])
SHARDS = st.sampled_from(NAMES)
SENDERS = st.integers(0, 1)
WEIGHTS = st.fixed_dictionaries(
    {}, optional={name: st.integers(0, 2) for name in NAMES}
).filter(lambda weights: any(weights.values()))  # fmt: skip


class Sharded(RuleBasedStateMachine):
    """One sharded queue, two senders, and a person who changes it."""

    uris: dict[str, str]

    def __init__(self) -> None:
        super().__init__()
        self.down: set[str] = set()
        #: Adoptions until a change is interrupted.
        self.left: int | None = None
        self.sent: dict[str, list[int]] = defaultdict(list)
        self.done: dict[str, list[int]] = defaultdict(list)
        self.keys: dict[tuple[str, str], int] = {}
        self.blocks: list[tuple[str, Block]] = []
        self.number = 0
        self.make_stores()
        self.senders = [self.opened() for _ in range(2)]
        self.person = self.opened()

    def make_stores(self) -> None:
        raise NotImplementedError

    def opened(self) -> ShardedQueue:
        stores: dict[str, Any] = {}
        for name, uri in self.uris.items():
            stores[name] = open_store(uri, 5.0)
            stores[name].probe = self.probe_of(name)
        return ShardedQueue(stores, busy_timeout=0.03)

    def probe_of(self, name: str) -> Any:
        def probe(statement: str) -> None:
            if name in self.down:
                raise StoreUnreachable()
            if statement == "adopt_layout" and self.left is not None:
                self.left -= 1
                if self.left < 0:
                    raise StoreUnreachable()

        return probe

    def stored(self) -> dict[str, Layout]:
        """Return the layout of each shard, also of those that are down."""
        down, self.down = self.down, set()
        try:
            found = self.person.each(_layout).all()
        finally:
            self.down = down
        return {name: layout for name, layout in found.items() if layout is not None}

    def may_fail(self, origins: set[str]) -> set[str]:
        """Return the origins whose sends may fail now."""
        layouts = self.stored()
        newest = max(layouts.values(), key=lambda layout: layout.version, default=None)
        if newest is None:
            return origins
        bad = {name for name in NAMES if name in self.down or name not in layouts or layouts[name] != newest}
        return {origin for origin in origins if bad & {newest.owner(origin), *newest.former_owners(origin)}}

    @initialize(weights=WEIGHTS)
    def start(self, weights: dict[str, int]) -> None:
        self.person.apply(weights)

    # Sending.

    @rule(sender=SENDERS, origin=ORIGINS)
    def send(self, sender: int, origin: str) -> None:
        self.number += 1
        try:
            self.senders[sender].enqueue_message(origin, b"%d" % self.number)
        except (ShardUnavailable, LayoutChanged, ShardsFailed):
            assert self.may_fail({origin})
        else:
            self.sent[origin].append(self.number)

    @rule(sender=SENDERS, origins=st.lists(ORIGINS, min_size=2, max_size=12))
    def send_many(self, sender: int, origins: list[str]) -> None:
        pairs = []
        for origin in origins:
            self.number += 1
            pairs.append((origin, b"%d" % self.number))
        unsent: list[Any] = []
        try:
            self.senders[sender].enqueue_messages(pairs)
        except ShardsFailed as error:
            unsent = error.unsent or pairs
        except (ShardUnavailable, LayoutChanged):
            unsent = pairs
        failed = {origin for origin, _ in unsent}
        # A part of a shard is sent whole or not at all, with the origins that share it.
        assert not failed or self.may_fail(failed)
        for origin, payload in pairs:
            if origin not in failed:
                self.sent[origin].append(int(payload))

    @rule(sender=SENDERS, key=st.sampled_from("xy"))
    def send_with_key(self, sender: int, key: str) -> None:
        """Send the same message again and again: it counts once in every layout."""
        self.number += 1
        known = self.keys.get(("keyed", key))
        try:
            sent = self.senders[sender].enqueue_message("keyed", b"%d" % (known or self.number), key=key)
        except (ShardUnavailable, LayoutChanged, ShardsFailed):
            return
        assert sent.count == (known is None)
        if known is None:
            self.keys["keyed", key] = self.number
            self.sent["keyed"].append(self.number)

    # Servicing.

    @rule(shard=SHARDS, most=st.integers(1, 8))
    def service(self, shard: str, most: int) -> None:
        if shard not in self.down:
            self.person.shard(shard).service_queues(self.process, Weight(most, 1 << 30))

    def process(self, delivery: Any) -> None:
        self.done[delivery.origin].append(int(delivery.payload))

    @rule(shard=SHARDS, most=st.integers(1, 8))
    def plan(self, shard: str, most: int) -> None:
        if shard not in self.down:
            self.blocks.append((shard, self.person.shard(shard).blocks.plan(None, Weight(most, 1 << 30))))

    @precondition(lambda self: self.blocks)
    @rule(gives_up=st.booleans())
    def settle(self, gives_up: bool) -> None:
        shard, block = self.blocks[0]
        if shard in self.down:
            return
        del self.blocks[0]
        queue = self.person.shard(shard)
        if gives_up:
            queue.blocks.release(block)
            return
        for batch in queue.blocks.batches(block.claims):
            last = batch.first + len(batch.payloads) - 1
            queue.blocks.report(block, [Report(batch.origin, batch.page, batch.first, last)])
            self.done[batch.origin] += map(int, batch.payloads)
        queue.blocks.settle(block)

    # Shards.

    @rule(weights=WEIGHTS)
    def change(self, weights: dict[str, int]) -> None:
        try:
            self.person.apply({**dict.fromkeys(self.names(), 0), **weights})
        except (ShardsFailed, ShardUnavailable):
            assert self.down
        layouts = self.stored()
        newest = max(layouts.values(), key=lambda layout: layout.version)
        assert self.down or all(layouts[name] == newest for name in newest.shards)

    @rule(weights=WEIGHTS, after=st.integers(0, 3))
    def interrupted_change(self, weights: dict[str, int], after: int) -> None:
        self.left = after
        try:
            self.person.apply({**dict.fromkeys(self.names(), 0), **weights})
        except (ShardsFailed, ShardUnavailable):
            pass
        finally:
            self.left = None

    @rule(shard=SHARDS)
    def remove(self, shard: str) -> None:
        layouts = self.stored()
        newest = max(layouts.values(), key=lambda layout: layout.version)
        rest = {name: weight for name, weight in newest.shards.items() if name != shard}
        if any(rest.values()):
            # Refused for want of weight 0 or of emptiness, or because a shard is down.
            with suppress(ConfigRefused, ShardsFailed, ShardUnavailable):
                self.person.apply(rest)

    def names(self) -> set[str]:
        return set().union(*(layout.shards for layout in self.stored().values()))

    @rule(shard=SHARDS)
    def stop(self, shard: str) -> None:
        self.down.add(shard)

    @rule(shard=SHARDS)
    def start_again(self, shard: str) -> None:
        self.down.discard(shard)

    @rule()
    def drain(self) -> None:
        drained = self.person.drain()
        assert set(drained.missing) == self.down

    @invariant()
    def each_origin_in_order_and_once(self) -> None:
        for origin, numbers in self.done.items():
            assert numbers == self.sent[origin][: len(numbers)], origin

    @invariant()
    def each_origin_in_one_shard(self) -> None:
        homes: dict[str, str] = {}
        for shard in sorted(set(NAMES) - self.down):
            for origin, footprint in self.person.shard(shard).footprints():
                if footprint.count:
                    assert homes.setdefault(origin, shard) == shard, origin

    def teardown(self) -> None:
        try:
            self.down.clear()
            while self.blocks:
                self.settle(gives_up=False)
            self.finish()
        finally:
            for queue in (*self.senders, self.person):
                queue.close()

    def finish(self) -> None:
        try:
            self.person.apply(self.person.layout().shards)
        except LayoutMissing:
            return
        self.person.service_queues(self.process).all()
        assert self.done == {origin: numbers for origin, numbers in self.sent.items() if numbers}
        drained = self.person.drain()
        # Only keys keep an origin.
        assert sum(drained.pinned.values()) <= bool(self.keys)
        assert not any(self.person.check().values())


def _layout(queue: MessageQueue) -> Layout | None:
    with queue.store.loose() as unit:
        row = unit.shards.adopted(queue.session.ring_id)
    return None if row is None else Layout.from_json(row.layout)


@pytest.fixture(autouse=True)
def _no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "REST", 0.0)


@pytest.mark.slow
def test_nothing_is_lost_doubled_or_overtaken_on_sqlite(templates: Templates) -> None:
    class OnSqlite(Sharded):
        def make_stores(self) -> None:
            self.folder = tempfile.TemporaryDirectory(prefix="mq_shards_", dir=in_memory())
            self.uris = {}
            for name in NAMES:
                path = Path(self.folder.name) / f"{name}.db"
                shutil.copy(templates.sqlite(), path)
                self.uris[name] = f"sqlite:///{path}"

        def teardown(self) -> None:
            super().teardown()
            self.folder.cleanup()

    run_state_machine_as_test(OnSqlite, settings=settings(max_examples=EXAMPLES, stateful_step_count=30))


@pytest.mark.slow
@pytest.mark.postgres
def test_nothing_is_lost_doubled_or_overtaken_on_postgres(postgres_server: Server, templates: Templates) -> None:
    template = templates.postgres(postgres_server)

    class OnPostgres(Sharded):
        def make_stores(self) -> None:
            self.uris = {name: postgres_server.create_database(template) for name in NAMES}

        def teardown(self) -> None:
            super().teardown()
            for uri in self.uris.values():
                postgres_server.drop_database(uri)

    run_state_machine_as_test(OnPostgres, settings=settings(max_examples=max(EXAMPLES // 3, 1), stateful_step_count=30))
