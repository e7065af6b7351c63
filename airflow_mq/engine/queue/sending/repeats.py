"""Chunks of a sender that may send its rows again, in any order: each row is enqueued once.

A row is known by a digest of its content. The transaction that enqueues a chunk also stores the digests of its rows,
under the next number of the sender's name: one key for thousands of rows. A sender that repeats its work reads these
digests first. Two attempts that run side by side claim the same numbers: one of them reads the other's chunk instead,
and leaves its rows out. Equal rows are counted: as many are enqueued as one attempt has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

from ...rules.message import Message, check_key, read_number
from ...rules.priority import MARK
from ...store.unit import Unit
from ..values import Enqueued
from .sender import NO_TERMS, Sender, SendTerms, key_window

#: Bytes of a row's digest.
DIGEST = 16


class SentRow(NamedTuple):
    """A row: its digest, or `None` if its message has a key of its own; its origin and its message."""

    digest: bytes | None
    origin: str
    message: bytes | Message


class RepeatedSender:
    """Sends the rows of one name, of which any may have been enqueued before."""

    def __init__(self, sender: Sender, name: str, terms: SendTerms = NO_TERMS) -> None:
        self.sender, self.terms = sender, terms.checked(sender.session)
        # The keys of chunks have no origin: they never meet those of messages.
        self._prefix = f"{MARK}{check_key(name)}/"
        self._next = 0
        #: Rows that were enqueued before and that this attempt has not met yet.
        self._known: Counter[bytes] = Counter()
        self._read_chunks()

    def send(self, rows: Sequence[SentRow]) -> Enqueued:
        """Enqueue the rows that were not enqueued before, in one transaction. The call may be repeated."""
        while True:
            fresh, met = self._unknown(rows)
            if not fresh:
                self._forget(met)
                return Enqueued(0, 0, len(rows))
            digests = b"".join(row.digest for row in fresh if row.digest is not None)
            session = self.sender.session
            session.refresh_config()
            call = self.sender.pack([(row.origin, row.message) for row in fresh], self.terms)
            call.is_chunk = bool(digests)
            with closing(call), session.store.writing() as unit:
                is_taken = call.is_chunk and not self._claim(unit, digests)
                sent = Enqueued(0, 0) if is_taken else self.sender.write(unit, call)
            if is_taken:
                # Another attempt has enqueued a chunk under this number, or this one before an answer was lost.
                self._read_chunks()
                continue
            self.sender.committed(call)
            self._next += call.is_chunk
            self._forget(met)
            return replace(sent, repeated=sent.repeated + len(rows) - len(fresh))

    def _unknown(self, rows: Sequence[SentRow]) -> tuple[Sequence[SentRow], Counter[bytes]]:
        met: Counter[bytes] = Counter()
        if not self._known:
            return rows, met
        fresh = []
        for row in rows:
            if row.digest is not None and met[row.digest] < self._known[row.digest]:
                met[row.digest] += 1
            else:
                fresh.append(row)
        return fresh, met

    def _forget(self, met: Counter[bytes]) -> None:
        """Subtract rows that were met, and no other: there may be millions."""
        self._known.subtract(met)
        for digest in met:
            if not self._known[digest]:
                del self._known[digest]

    def _claim(self, unit: Unit, digests: bytes) -> bool:
        """Store the digests of a chunk under the next number; return whether it was free."""
        session = self.sender.session
        now, window = key_window(session, unit)
        return unit.keys.claim(session.ring_id, self._key(self._next), "", digests, now, window)

    def _read_chunks(self) -> None:
        """Read the digests of the chunks from the next number on, within the window of keys."""
        session = self.sender.session
        with self.sender.store.reading() as unit:
            now, window = key_window(session, unit)
            since = now - window
            last = self._prefix + "~"
            for key, digests in unit.keys.used(session.ring_id, "", self._key(self._next), last, since):
                number = read_number(key.removeprefix(self._prefix))
                if number is None:
                    # A longer name, which begins with this one.
                    continue
                self._known.update(digests[at : at + DIGEST] for at in range(0, len(digests), DIGEST))
                self._next = number + 1

    def _key(self, number: int) -> str:
        return f"{self._prefix}{number:010}"
