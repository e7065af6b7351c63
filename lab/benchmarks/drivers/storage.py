"""Three ways to store waiting messages: one value for all, a row for each, and pages.

The first two are the least that can be called a queue: one connection, one queue, no record of what became of a
message. Pages are this queue through its public interface, over several origins.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any

import psycopg

from airflow_mq import MessageQueue, Weight, batch_processor
from lab.benchmarks.drivers.accounting import Account, count_statements, grown, name_of, names_of
from lab.benchmarks.drivers.common import Driver, origin_of, serve
from lab.benchmarks.drivers.ours import RING, Ours

ORIGINS = 10
#: One message in so many is large.
RARE = 1000
LARGE = 16 * 1024
LENGTH = 4
#: Blocks before the first measured one.
WARM = 3


def payloads(count: int, seed: int) -> list[bytes]:
    """Return payloads of 64 to 256 bytes, 128 on average, and now and then a large one."""
    noise = random.Random(seed)
    return [noise.randbytes(_size(noise)) for _ in range(count)]


def _size(noise: random.Random) -> int:
    return LARGE if noise.randrange(RARE) == 0 else round(noise.triangular(64, 256, 64))


class OneValue:
    """All waiting messages in one value, read and written whole by each block."""

    def __init__(self, dsn: str) -> None:
        self.connection = psycopg.connect(dsn)
        self.connection.execute("CREATE TABLE one (id int PRIMARY KEY, value bytea STORAGE EXTERNAL NOT NULL)")
        self.connection.execute("INSERT INTO one VALUES (1, '')")
        self.connection.commit()

    def block(self, sent: Sequence[bytes], count: int) -> int:
        with self.connection.cursor(binary=True) as cursor:
            row: Any = cursor.execute("SELECT value FROM one WHERE id = 1 FOR UPDATE", prepare=True).fetchone()
            value = row[0] + b"".join(len(each).to_bytes(LENGTH, "big") + each for each in sent)
            end = taken = 0
            for _ in range(count):
                size = int.from_bytes(value[end : end + LENGTH], "big")
                end += LENGTH + size
                taken += size
            cursor.execute("UPDATE one SET value = %b WHERE id = 1", (value[end:],), prepare=True)
        self.connection.commit()
        return taken


class RowEach:
    """A row for each message: COPY in, fetched in order, deleted by their keys."""

    def __init__(self, dsn: str) -> None:
        self.connection = psycopg.connect(dsn)
        self.connection.execute(
            "CREATE TABLE each (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload bytea STORAGE EXTERNAL)"
        )
        self.connection.commit()

    def block(self, sent: Sequence[bytes], count: int) -> int:
        with self.connection.cursor(binary=True) as cursor:
            with cursor.copy("COPY each (payload) FROM STDIN (FORMAT BINARY)") as copy:
                copy.set_types(("bytea",))
                for payload in sent:
                    copy.write_row((payload,))
            self.connection.commit()
            choose = "SELECT id, payload FROM each ORDER BY id LIMIT %b FOR UPDATE SKIP LOCKED"
            rows = cursor.execute(choose, (count,), prepare=True).fetchall()
            cursor.execute("DELETE FROM each WHERE id = ANY(%b)", ([row[0] for row in rows],), prepare=True)
        self.connection.commit()
        return sum(len(row[1]) for row in rows)


class Pages:
    """This queue, over several origins; in place, or by blocks that are planned, reported and settled."""

    def __init__(self, dsn: str, by_blocks: bool = False) -> None:
        self._by_blocks = by_blocks
        self._taken = 0
        driver = Ours()
        driver.setup()
        self.queue: MessageQueue = driver.queue
        assert self.queue.ring == RING
        self.connection = self.queue.store.lent().connection
        self._processor = batch_processor(self._take)

    def _take(self, batch: Any) -> None:
        self._taken += sum(map(len, batch.payloads))

    def block(self, sent: Sequence[bytes], count: int) -> int:
        self._taken = 0
        if sent:
            self.queue.enqueue_messages((origin_of(n % ORIGINS), payload) for n, payload in enumerate(sent))
        limit = Weight(count, 1 << 40)
        if count and self._by_blocks:
            block = self.queue.blocks.plan(limit=limit)
            self.queue.blocks.report(block, map(self._answer, block.batches()))
            self.queue.blocks.settle(block)
        elif count:
            self.queue.service_queues(self._processor, limit)
        return self._taken

    def _answer(self, batch: Any) -> Any:
        self._take(batch)
        return batch.answer()


WAYS: dict[str, Any] = {
    "one value": OneValue,
    "row per message": RowEach,
    "pages, in place": Pages,
    "pages, by blocks": lambda dsn: Pages(dsn, by_blocks=True),
}


class Storage(Driver):
    def setup(self) -> None:
        count_statements(self.dsn)

    def blocks(self, way: str, sent: int, taken: int, waiting: int, rounds: int) -> dict[str, Any]:
        """Measure blocks that begin with as many messages waiting; return one account for each."""
        self.way = WAYS[way](self.dsn)
        self.account = Account(self.dsn, self.way.connection)
        source = iter(payloads(waiting + (rounds + WARM) * max(sent, taken), 6129))
        for _ in range(waiting // sent):
            self.way.block(list(islice(source, sent)), 0)
        found: list[dict[str, Any]] = []
        statements: Counter[str] = Counter()
        for turn in range(WARM + rounds):
            if turn == WARM:
                self._watch_statements()
            told, parts = self._block(list(islice(source, sent)), taken)
            if turn >= WARM:
                found.append(told)
                for name, counter in parts.items():
                    statements.update({f"{name}|{key}": value for key, value in counter.items()})
            # Outside of the account, back to as many waiting.
            for _ in range(max(taken - sent, 0) // sent):
                self.way.block(list(islice(source, sent)), 0)
            if sent > taken:
                self.way.block([], sent - taken)
        return {"blocks": found, "statements": self._by_statement(statements, rounds)}

    def _watch_statements(self) -> None:
        if isinstance(self.way, Pages):
            self.account.by_name.clear()
            self.way.queue.store.probe = self.account.at

    def _block(self, sent: list[bytes], count: int) -> tuple[dict[str, Any], dict[str, Counter[str]]]:
        account = self.account
        before, wire, log = account.statements(), account.wire(), account.log()
        account.at("")
        charged = {name: list(pair) for name, pair in account.by_name.items()}
        server, client, start = account.server_cpu(), time.process_time(), time.perf_counter()
        taken = self.way.block(sent, count)
        seconds, client = time.perf_counter() - start, time.process_time() - client
        account.at("")
        server, log, after = account.server_cpu() - server, account.log() - log, account.statements()
        written, read = (now - then for now, then in zip(account.wire(), wire, strict=True))
        parts = grown(before, after)
        total = sum(parts.values(), Counter())
        told = {
            "payload": sum(map(len, sent)) + taken, "read": read, "written": written, "wal": log,
            **{f"buffers_{key}": total[key] for key in ("hit", "read", "dirtied")},
            "seconds": seconds, "client_cpu": client, "server_cpu": server,
        }  # fmt: skip
        return told, self._named(parts, charged)

    def _named(
        self, parts: dict[str, Counter[str]], charged: dict[str, list[int]]
    ) -> dict[str, Counter[str]]:  # fmt: skip
        """Return the counters by the names of statements, with the bytes that the probe charged to them."""
        names = names_of(self.way.queue.store, self.account.by_name) if isinstance(self.way, Pages) else {}
        found: dict[str, Counter[str]] = {}
        for query, counter in parts.items():
            found.setdefault(name_of(query, names), Counter()).update(counter)
        for name, (written, read) in self.account.by_name.items():
            old = charged.get(name, [0, 0])
            if name:
                found.setdefault(name, Counter()).update(bytes_in=written - old[0], bytes_out=read - old[1])
        return found

    @staticmethod
    def _by_statement(statements: Counter[str], rounds: int) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = {}
        for name, value in statements.items():
            statement, _, key = name.rpartition("|")
            found.setdefault(statement, {})[key] = round(float(value) / rounds, 3)
        return found


if __name__ == "__main__":
    serve(Storage())
