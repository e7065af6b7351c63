"""Senders: plain and keyed messages, many at once, in the caller's transaction, and in opposite orders."""

from __future__ import annotations

import os
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from threading import Timer
from typing import Any, ClassVar, cast

import psycopg

from airflow_mq import Message
from airflow_mq.engine.rules.errors import CommitInDoubt, MessageQueueError
from airflow_mq.engine.store import parse
from airflow_mq.engine.store.pipelined import GRACE

from .letters import KEYLESS, PARENTS, STORM, Call, Letter
from .workload import Desk, Workload

#: Name of the senders' own connections, which have only the timeouts that the server and libpq give them.
CALLER = "caller"


class Sender(Workload):
    """A sender that repeats an unacknowledged call by its keys, and abandons one in doubt that has none."""

    progress = "send"
    pause = 0.06
    #: The number of the first sender of this kind.
    first: ClassVar[int] = 0
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
            with self._deadline():
                getattr(self, f"_send_{call.way}")(call)
        except CommitInDoubt:
            self._doubt(call)
            raise
        except (psycopg.Error, sqlite3.Error):
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
        call = self._compose(self._next)
        self._next += 1
        self.journal.write("intent", **asdict(call))
        return call

    def _compose(self, number: int) -> Call:
        sender, way = self.first + self.desk.number, self.draw.choice(self.ways)
        origin = f"sender-{sender}/{number % 3}" if self.draw.random() < 0.8 else "shared"
        parts = self.draw.randint(2, 6) if way in ("many", "sql_many") else 1
        return Call(sender, number, way, origin, parts)

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
            parameters = {**parse(self.desk.uri).conninfo(), "application_name": CALLER}
            # A pool may give each transaction another session, which knows no prepared statement.
            self._connection = psycopg.connect(
                autocommit=True, prepare_threshold=None, **cast("dict[str, Any]", parameters)
            )
        return self._connection

    @contextmanager
    def _deadline(self) -> Iterator[None]:
        """Give up the own connection if a call takes longer than a call of the package would."""
        timer = Timer(parse(self.desk.uri).statement_timeout + GRACE, self._hang_up)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _hang_up(self) -> None:
        if self._connection is not None and not self._connection.closed:
            with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self._connection.fileno())) as own:
                own.shutdown(socket.SHUT_RDWR)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class ParentSender(Sender):
    """A sender of parents only: each has a child that its processor enqueues."""

    first = PARENTS
    ways = ("parent",)


class Storm(Sender):
    """One of two bulk senders that send the same messages to the same origins, one of them in the opposite order.

    Both wait for the keys that the other one has inserted. The database ends one of them, which repeats its call.
    """

    pause = 0.02
    ways = ("pairs", "push", "sql_pairs")
    parts = 12

    def _compose(self, number: int) -> Call:
        return Call(STORM, number, self.ways[number % len(self.ways)], "storm", self.parts)

    def _letters(self, call: Call) -> list[tuple[str, Letter]]:
        letters = [(f"storm/{letter.part}", letter) for letter in call.letters]
        return letters[::-1] if self.desk.number % 2 else letters

    def _send_pairs(self, call: Call) -> None:
        letters = self._letters(call)
        self.queue.enqueue_messages([(origin, Message(letter.payload, key=letter.key)) for origin, letter in letters])

    def _send_push(self, call: Call) -> None:
        connection = self._connected()
        with connection.transaction():
            for origin, letter in self._letters(call):
                self.queue.commands(connection).push(origin, Message(letter.payload, key=letter.key)).execute()

    def _send_sql_pairs(self, call: Call) -> None:
        origins, letters = zip(*self._letters(call), strict=True)
        self._connected().execute(
            "SELECT airflow_mq.send_many('default', %s, %s, keys => %s)",
            (list(origins), [letter.payload for letter in letters], [letter.key for letter in letters]),
        )
