"""Workload of a client process: a loop of steps with a store, a folder and a journal."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import time
from pathlib import Path
from typing import ClassVar

import psutil
import psycopg

from airflow_mq import Done, MessageQueue, Outcome, Yield
from airflow_mq.engine.rules.errors import MessageQueueError

from .journal import Journal
from .letters import CHILDREN, read_letter

BUSY_TIMEOUT = 3.0


class Desk:
    """A client's place: its store, the folder that it shares with the others, and its journal."""

    def __init__(self, uri: str, folder: Path, number: int, journal: Journal, owner: int) -> None:
        self.uri, self.folder, self.number, self.journal = uri, folder, number, journal
        self.tokens = folder / "tokens"
        self.draw = random.Random(os.getpid())
        #: The process of the run, which may be killed.
        self._owner = owner

    @property
    def is_open(self) -> bool:
        return not (self.folder / "stop").exists() and psutil.pid_exists(self._owner)

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
            self._queue = MessageQueue(self.desk.uri, busy_timeout=BUSY_TIMEOUT)
        return self._queue

    def run(self) -> None:
        while self.desk.is_open:
            began = time.monotonic()
            try:
                is_done = self.step()
            except (MessageQueueError, psycopg.Error, sqlite3.Error, OSError) as error:
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
