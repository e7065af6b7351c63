"""Workloads of client processes: senders, services in place, planners, settlers, lease holders and housekeeping."""

from __future__ import annotations

import contextlib
import os
import random
import time
from dataclasses import asdict
from pathlib import Path
from typing import ClassVar

import psycopg

from airflow_mq import Batch, Delivery, Done, Message, MessageQueue, Outcome, Weight, Yield, batch_processor
from airflow_mq.core.errors import CommitInDoubt, MessageQueueError, TokenRefused, UnknownBlock

from .journal import Journal
from .letters import CHILDREN, KEYLESS, Call, Letter, read_letter

#: Limit of each block and of each call that services in place.
LIMIT = Weight(60, 1 << 24)
BLOCK_LEASE = 6.0
MESSAGE_LEASE = 4.0
#: Planned blocks that wait for a settler.
MOST_BLOCKS = 4
#: Attempts of a settler at one block.
MOST_TRIES = 40


class Desk:
    """A client's place: its store, the folder that it shares with the others, and its journal."""

    def __init__(self, uri: str, folder: Path, number: int, journal: Journal) -> None:
        self.uri, self.folder, self.number, self.journal = uri, folder, number, journal
        self.tokens = folder / "tokens"
        self.draw = random.Random(os.getpid())
        self._parent = os.getppid()

    @property
    def is_open(self) -> bool:
        return not (self.folder / "stop").exists() and os.getppid() == self._parent

    @property
    def may_send(self) -> bool:
        return not (self.folder / "quiet").exists()


class Workload:
    """A loop of steps; a step that fails is recorded and repeated after a short wait."""

    #: Kind of progress, by which the verdict measures recovery.
    progress: ClassVar[str]
    pause: ClassVar[float] = 0.1

    def __init__(self, desk: Desk) -> None:
        self.desk, self.journal, self.draw = desk, desk.journal, desk.draw
        self.action = "open"
        self._queue: MessageQueue | None = None

    @property
    def queue(self) -> MessageQueue:
        if self._queue is None:
            self._queue = MessageQueue(self.desk.uri, busy_timeout=5.0)
        return self._queue

    def run(self) -> None:
        while self.desk.is_open:
            began = time.monotonic()
            try:
                is_done = self.step()
            except (MessageQueueError, psycopg.Error, OSError) as error:
                self.journal.error(self.action, error)
                time.sleep(0.2)
                continue
            if is_done:
                self.journal.write("progress", of=self.progress, seconds=round(time.monotonic() - began, 4))
            time.sleep(self.draw.expovariate(1 / self.pause))
        with contextlib.suppress(MessageQueueError):
            if self._queue is not None:
                self._queue.close()

    def step(self) -> bool:
        """Do one piece of work; return whether it counts as progress."""
        raise NotImplementedError

    def process(self, payload: bytes) -> Outcome:
        """Return the outcome of a message: now and then it is yielded; a parent enqueues its child."""
        if self.draw.random() < 0.02:
            return Yield("not now")
        letter = read_letter(payload)
        if letter is not None and letter.is_parent:
            return Done(enqueue=[(CHILDREN, letter.child)])
        return Done()


class Sender(Workload):
    """A sender that repeats an unacknowledged call by its keys, and abandons one in doubt that has none."""

    progress = "send"
    pause = 0.06
    ways: ClassVar[tuple[str, ...]] = ("key", "plain", "many", "parent", "key", "transaction", "sql", "sql_many")

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._connection: psycopg.Connection | None = None
        self._next, self._open = self._resume()

    def _resume(self) -> tuple[int, Call | None]:
        number, unfinished = 0, None
        for entry in self.journal.entries():
            if entry.kind == "intent":
                unfinished = Call.of(entry)
                number = unfinished.number + 1
            elif entry.kind in ("accepted", "doubt"):
                unfinished = None
        if unfinished is not None and unfinished.way in KEYLESS:
            self.journal.write("doubt", **asdict(unfinished))
            unfinished = None
        return number, unfinished

    def step(self) -> bool:
        if not self.desk.may_send:
            return False
        call = self._open or self._draw_call()
        self._open = call
        self.action = f"send {call.way}"
        try:
            getattr(self, f"_send_{call.way}")(call)
        except CommitInDoubt:
            self._doubt(call)
            raise
        except psycopg.Error:
            self._disconnect()
            if call.way in KEYLESS:
                self._doubt(call)
            raise
        except MessageQueueError:
            self._disconnect()
            # In the caller's transaction, the caller's commit decides.
            if call.way == "transaction":
                self._doubt(call)
            raise
        self.journal.write("accepted", **asdict(call))
        self._open = None
        return True

    def _doubt(self, call: Call) -> None:
        if call.way in KEYLESS:
            self.journal.write("doubt", **asdict(call))
            self._open = None

    def _draw_call(self) -> Call:
        number, sender = self._next, self.desk.number
        self._next += 1
        way = self.draw.choice(self.ways)
        origin = f"sender-{sender}/{number % 3}" if self.draw.random() < 0.8 else "shared"
        parts = self.draw.randint(2, 6) if way in ("many", "sql_many") else 1
        call = Call(sender, number, way, origin, parts)
        self.journal.write("intent", **asdict(call))
        return call

    def _send_plain(self, call: Call) -> None:
        self.queue.enqueue_message(call.origin, call.letters[0].payload)

    def _send_key(self, call: Call) -> None:
        letter = call.letters[0]
        self.queue.enqueue_message(call.origin, letter.payload, key=letter.key)

    _send_parent = _send_key

    def _send_many(self, call: Call) -> None:
        self.queue.enqueue_messages(call.origin, [Message(letter.payload, key=letter.key) for letter in call.letters])

    def _send_transaction(self, call: Call) -> None:
        connection = self._connected()
        with connection.transaction():
            connection.execute("INSERT INTO orders VALUES (%s, %s)", (call.sender, call.number))
            self.queue.commands(connection).push(call.origin, call.letters[0].payload).execute()

    def _send_sql(self, call: Call) -> None:
        letter = call.letters[0]
        self._connected().execute(
            "SELECT airflow_mq.send('default', %s, %s, key => %s)", (call.origin, letter.payload, letter.key)
        )

    def _send_sql_many(self, call: Call) -> None:
        letters: list[Letter] = call.letters
        self._connected().execute(
            "SELECT airflow_mq.send_many('default', %s, %s, keys => %s)",
            ([call.origin] * len(letters), [letter.payload for letter in letters], [letter.key for letter in letters]),
        )

    def _connected(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            # A pool may give each transaction another session, which knows no prepared statement.
            self._connection = psycopg.connect(
                self.desk.uri, autocommit=True, connect_timeout=5, prepare_threshold=None
            )
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Service(Workload):
    """A service in place, by messages or by batches."""

    progress = "service"

    def step(self) -> bool:
        self.action = "service"
        by_batch = self.draw.random() < 0.5
        processor = batch_processor(self._answers) if by_batch else self._answer
        serviced = self.queue.service_queues(processor, LIMIT, slice_messages=20, slice_seconds=0.3)
        self.journal.write("serviced", count=serviced.processed, over=serviced.weight.exceeds(LIMIT))
        return True

    def _answer(self, delivery: Delivery) -> Outcome:
        if self.draw.random() < 0.01:
            raise RuntimeError("an error of the processor")
        return self.process(delivery.payload)

    def _answers(self, batch: Batch) -> list[Outcome]:
        return [self.process(payload) for payload in batch.payloads]


class Planner(Workload):
    """A planner that repeats a failed call by its key and hands tokens to the settlers."""

    progress = "plan"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._number = 0

    def step(self) -> bool:
        self.action = "plan"
        if len(list(self.desk.tokens.iterdir())) > MOST_BLOCKS:
            return False
        block = self.queue.blocks.plan(key=f"{os.getpid()}-{self._number}", limit=LIMIT, lease=BLOCK_LEASE)
        self._number += 1
        self.journal.write("planned", block=block.id, count=block.messages, over=block.planned.exceeds(LIMIT))
        draft = self.desk.folder / f"draft-{os.getpid()}"
        draft.write_text(block.token)
        draft.rename(self.desk.tokens / f"{block.id:09d}-{block.token[:8]}")
        return True


class Settler(Workload):
    """Processes planned blocks, reports by batch, and settles; now and then repeats a call or releases a block."""

    progress = "settle"

    def step(self) -> bool:
        self.action = "settle"
        paths = sorted(self.desk.tokens.iterdir())
        if not paths:
            return False
        path = self.draw.choice(paths)
        with contextlib.suppress(FileNotFoundError):
            self._settle(path.read_text())
            path.unlink()
            return True
        return False

    def _settle(self, token: str) -> None:
        for _ in range(MOST_TRIES):
            if not self.desk.is_open:
                return
            try:
                self._settle_once(token)
                return
            except (TokenRefused, UnknownBlock) as error:
                self.journal.error(self.action, error)
                return
            except MessageQueueError as error:
                self.journal.error(self.action, error)
                time.sleep(0.2)

    def _settle_once(self, token: str) -> None:
        blocks = self.queue.blocks
        block = blocks.get(token)
        if block.state != "planned":
            return
        for batch in block.batches():
            reports = batch.answers([self.process(payload) for payload in batch.payloads])
            for _ in range(2 if self.draw.random() < 0.05 else 1):
                blocks.report(token, reports)
        if self.draw.random() < 0.3:
            blocks.renew(token, BLOCK_LEASE)
        end = blocks.release if self.draw.random() < 0.07 else blocks.settle
        for _ in range(2 if self.draw.random() < 0.1 else 1):
            end(token)


class Holder(Workload):
    """A holder of single messages: completes, gives back, renews, or lets its lease expire."""

    progress = "lease"

    def step(self) -> bool:
        self.action = "lease"
        token = self.queue.leases.view(lease=MESSAGE_LEASE).try_next()
        if token is None:
            return True
        token = self.queue.leases.token(str(token))
        payload = token.fetch()
        way = self.draw.random()
        if way < 0.04:
            token.give_back()
        elif way > 0.07:
            if way > 0.9:
                token.renew(MESSAGE_LEASE)
            letter = read_letter(payload)
            is_parent = letter is not None and letter.is_parent
            token.complete(Done(enqueue=[(CHILDREN, letter.child)]) if letter and is_parent else Done())
        return True


class Housekeeper(Workload):
    """Housekeeping beside the others: expired rows, overdue blocks, checks and views."""

    progress = "housekeeping"
    pause = 1.0

    def step(self) -> bool:
        self.action = "housekeep"
        self.queue.admin.housekeep()
        self.action = "check"
        for violation in self.queue.check():
            self.journal.write("violation", text=str(violation)[:300])
        self.action = "footprints"
        self.queue.footprints(limit=1_000)
        return True


ROLES: dict[str, type[Workload]] = {
    "sender": Sender,
    "service": Service,
    "planner": Planner,
    "settler": Settler,
    "holder": Holder,
    "housekeeper": Housekeeper,
}
