"""Quotas: the bytes that a queue, or a group of queues, may store.

What is stored is the sum of three: the pages of the books, which the holder of the ring keeps; the inbox rows that lie
in no page; and the delayed rows. Headers count with each message in a page, and in rows as they are stored. A sender
adds them up within its own transaction and writes to no shared row. So a call that is checked while another one is not
committed does not count it.

- **Few checks.** Senders draw an id for each page's worth that they store. If a check finds room for so many pages, a
  sender needs no other check until so many ids were drawn. The statement that writes its rows compares the last id.
- **Checks that read few rows.** A sender that reads many inbox rows writes their sums, one for each `STEP` of them
  (`Store.add_up`). Later checks subtract two sums, and read only the rows before the first and after the last of them.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

from ..rules.errors import QueueFull
from ..rules.groups import paths_of
from ..rules.message import Posted
from ..store.rows import LATEST, Fullness, InboxRow
from ..store.unit import Unit
from .session import RingSession
from .values import Delivery

#: Inbox rows of one sum, and the ids that a sender draws or sees drawn without another check.
STEP, MOST_UNCHECKED = 64, 8_192
#: Seconds after which a delivery that sends is checked again.
AGAIN = 1.0


def send_within_quotas(
    session: RingSession, unit: Unit, rows: Iterable[InboxRow], sizes: Mapping[str, int], due: int | None = None,
    *, at_once: bool
) -> bool:  # fmt: skip
    """Write the rows of a call if the quotas of their books, if any, have room, or raise `QueueFull`.

    Return whether a check read many inbox rows, whose sums are due.

    :param sizes: bytes that the call sends to each book
    :param at_once: each statement is a transaction of its own, or nothing else writes meanwhile; no row exceeds a page
    """
    store, ring, until = session.store, session.ring_id, session.room_until(sizes, unit)
    if until == LATEST:
        store.send(unit, ring, rows, due)
        return False
    if at_once:
        rows = list(rows)
        if until > len(rows) and store.send(unit, ring, rows, due, until=until - len(rows)):
            return False
    # Ids that are drawn after this one count, also those of rows that the check sees.
    last = unit.rings.latest_id()
    found = require_room(session, unit, sizes)
    store.send(unit, ring, rows, due)
    if at_once:
        room = min((one.quota - one.stored for one in found), default=0)
        # Senders that check at different times find what the others added up.
        most = MOST_UNCHECKED - int.from_bytes(secrets.token_bytes(2), "big") % (MOST_UNCHECKED // 2)
        until = last + min(room // session.config.heap_size, most)
        session.room |= {name: until for name in sizes if session.room.get(name, LATEST) < LATEST}
    return _is_long(found)


def require_room(
    session: RingSession, unit: Unit, sizes: Mapping[str, int], unsaved: Mapping[str, int] | None = None
) -> list[Fullness]:
    """Raise `QueueFull` if a queue or a group has no room for a call; return how full those with a quota are.

    :param sizes: bytes that the call sends to each book
    :param unsaved: bytes by path that count as stored, although they are saved later
    """
    found = session.store.fullness(unit, session.ring_id, sizes, has_paths=session.config.paths)
    found = [one._replace(stored=one.stored + unsaved.get(one.path, 0)) for one in found] if unsaved else found
    if _is_long(found):
        session.store.add_up(unit, session.ring_id, sizes, STEP)
    fullest = max(found, key=lambda one: one.lacks, default=None)
    if fullest is not None and fullest.lacks:
        raise QueueFull(_text(fullest), fullest.lacks)
    if unsaved is None and (pages := sum(sizes.values()) // session.config.heap_size):
        # A row with long headers is larger than a page.
        unit.fresh_ids(pages)
    return found


class RoomForSent:
    """Refuses messages that the processors of a service send if a queue or a group has no room for them.

    A message counts with those that its delivery sent before, and with those of earlier ones that are not saved. Their
    bytes are added up once, and the store is read again only for another delivery or book, for more bytes than the last
    check found room for, or after `AGAIN` seconds.
    """

    def __init__(self, session: RingSession, unsaved: Callable[[], dict[int, Posted]] = dict) -> None:
        """:param unsaved: returns what earlier deliveries sent since the last commit, in order."""
        self.session, self._unsaved = session, unsaved
        #: What it returned, how many of them are added up, and their bytes by path.
        self._posted, self._added, self._before = dict[int, Posted](), 0, Counter[str]()
        #: Processors may send from several threads.
        self._lock = threading.Lock()
        #: A delivery, and the bytes of its first messages for each book.
        self._delivery: Delivery | None = None
        self._count, self._sizes = 0, dict[str, int]()
        #: The books of the last check, their room without this delivery, and until when it counts.
        self._checked, self._room, self._until = set[str](), 0, 0.0

    def __call__(self, delivery: Delivery, entries: Sequence[Posted]) -> None:
        """Raise `QueueFull` if there is no room for these messages of a delivery."""
        self.session.refresh_config()
        if not self.session.has_quotas:
            return
        with self._lock:
            if delivery is not self._delivery or len(delivery.sent) < self._count:
                self._delivery, self._count, self._sizes, self._checked = delivery, 0, {}, set()
            for posted in islice(delivery.sent, self._count, None):
                self._add(self._sizes, posted)
                self._count += 1
            sizes = dict(self._sizes)
            for posted in entries:
                self._add(sizes, posted)
            is_known = sizes.keys() <= self._checked and time.monotonic() < self._until
            if (is_known and sum(sizes.values()) <= self._room) or self.session.room_until(sizes) == LATEST:
                return
            self._add_up_unsaved()
            with self.session.store.loose() as unit:
                found = require_room(self.session, unit, sizes, self._before)
            self._room = min((one.quota - one.stored for one in found), default=0)
            self._checked, self._until = set(sizes), time.monotonic() + AGAIN

    def _add_up_unsaved(self) -> None:
        posted = self._unsaved()
        if posted is not self._posted:
            self._posted, self._added, self._before = posted, 0, Counter()
        for one in islice(reversed(posted.values()), len(posted) - self._added):
            for path in paths_of(one.origin, self.session.config.paths):
                self._before[path] += len(one.payload) + one.attributes.beside
        self._added = len(posted)

    @staticmethod
    def _add(sizes: dict[str, int], posted: Posted) -> None:
        sizes[posted.origin] = sizes.get(posted.origin, 0) + len(posted.payload) + posted.attributes.beside


def _is_long(found: Iterable[Fullness]) -> bool:
    return any(one.uncut > 2 * STEP for one in found)


def _text(full: Fullness) -> str:
    if full.coming > full.quota:
        return (
            f"call of {full.coming:,} bytes too large for the quota of {full.path!r}: expected at most {full.quota:,} "
            "bytes; send fewer messages in one call, or raise the quota"
        )
    return (
        f"queue {full.path!r} is full: it stores {full.stored:,} bytes of {full.quota:,}, and {full.lacks:,} must "
        f"drain before this call of {full.coming:,}; nothing of it was stored; send it again later, or raise the quota"
    )
