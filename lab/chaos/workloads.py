"""Workloads of client processes: services in place, planners, settlers, holders of leases and housekeeping."""

from __future__ import annotations

import contextlib
import os
import time
from threading import Event, Thread

from airflow_mq import Batch, Delivery, Done, MessageQueue, Outcome, Weight, batch_processor
from airflow_mq.engine.rules.errors import MessageQueueError, TokenRefused, UnknownBlock

from .letters import ARCHIVE, CHILDREN, MOVED, PUBLISHED, read_letter
from .senders import ParentSender, Sender, Storm
from .spark_senders import SparkSender
from .workload import BUSY_TIMEOUT, Desk, Workload

#: Limit of each block and of each call that services in place.
LIMIT = Weight(60, 1 << 24)
BLOCK_LEASE = 4.0
MESSAGE_LEASE = 3.0
#: Planned blocks that wait for a settler.
MOST_BLOCKS = 4
#: Attempts of a settler at one block.
MOST_TRIES = 40


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
        self.journal.write("settled", block=block.id)


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


class Mover(Workload):
    """Transfers leased messages to another origin or ring, or lets their leases expire; services the other ring."""

    progress = "transfer"
    pause = 0.3

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._archive: MessageQueue | None = None

    def step(self) -> bool:
        self.action = "transfer"
        view = self.queue.leases.view(lease=MESSAGE_LEASE)
        tokens = [token for _ in range(self.draw.randint(1, 3)) if (token := view.try_next()) is not None]
        moved = [token for token in tokens if token.address.origin not in MOVED]
        for token in tokens:
            if token not in moved:
                token.give_back()
        way = self.draw.random()
        if moved and way < 0.6:
            self.queue.leases.transfer(moved, PUBLISHED)
        elif moved and way < 0.95:
            self.queue.leases.transfer(moved, ARCHIVE, ring=ARCHIVE)
        if self.draw.random() < 0.2:
            self._service_archive()
        return True

    def _service_archive(self) -> None:
        self.action = "service the archive"
        if self._archive is None:
            self._archive = MessageQueue(self.desk.uri, ARCHIVE, busy_timeout=BUSY_TIMEOUT)
        self._archive.service_queues(lambda delivery: self.process(delivery.payload), LIMIT)


class Follower(Workload):
    """A worker that services the ring whenever it has messages, as `airflow-mq service --follow` does."""

    progress = "follow"

    def step(self) -> bool:
        self.action = "follow"
        queue, stop = self.queue, Event()
        Thread(target=self._watch, args=(stop,), daemon=True).start()
        try:
            queue.service_forever(self._answer, LIMIT, stop=stop)
        except MessageQueueError as error:
            # A failover must not end a worker.
            self.journal.write("violation", text=f"the worker ended: {error!r}")
            raise
        finally:
            stop.set()
        return False

    def _watch(self, stop: Event) -> None:
        while self.desk.is_open and not stop.is_set():
            time.sleep(0.2)
        stop.set()

    def _answer(self, delivery: Delivery) -> Outcome:
        self.journal.write("progress", of=self.progress)
        return self.process(delivery.payload)


class Housekeeper(Workload):
    """Housekeeping beside the others: expired rows, overdue blocks, checks and views."""

    progress = "housekeeping"
    pause = 0.5

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
    "parent_sender": ParentSender,
    "storm": Storm,
    "spark_sender": SparkSender,
    "service": Service,
    "planner": Planner,
    "settler": Settler,
    "holder": Holder,
    "mover": Mover,
    "follower": Follower,
    "housekeeper": Housekeeper,
}
