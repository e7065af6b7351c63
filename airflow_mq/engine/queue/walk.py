"""Parts that all ways of servicing share: the walks in a ring's order, their ledger page, and a warning."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable

from ...words import many
from ..rules.characters import listed, quoted
from ..rules.levels import orders_of, service_levels
from ..rules.orders import Entry, Ledger, record_stops
from ..rules.priority import origin_of, priority_of, queue_name
from ..rules.service import Ladder
from ..store import codec
from ..store.rows import BlockRow
from ..store.unit import Unit
from ..store.working_set import MEET_IN_ALL, StoredSet
from .holding import meets_apart
from .session import RingSession

log = logging.getLogger("airflow_mq.service")


def meet_newcomers(session: RingSession) -> None:
    """Before an operation reads the whole ring, let new queues enter it in bounded transactions."""
    while meets_apart(session.config):
        with session.store.loose() as unit:
            if len(session.rows_not_looked_at(unit, MEET_IN_ALL + 1)) <= MEET_IN_ALL:
                return
        with session.hold.transaction() as (_, working_set):
            more = working_set.loader.ring.meet_newcomers()
        session.store.rest()
        if not more:
            return


class Walks:
    """The walks of one operation: further ones follow while the operation took nothing and ready queues are left.

    Each walk looks at others, with a working set of its own: a ring may have more queues than fit in memory.
    """

    def __init__(self, ledger: Ledger, seed: bytes | None) -> None:
        self.ledger, self.seed = ledger, seed
        #: Whether a further walk is to follow.
        self.goes_on = False
        self._count = 0

    def walk(self, ladder: Ladder, working_set: StoredSet, took: Callable[[], bool]) -> None:
        """Walk once more.

        :param took: returns whether the operation took a message
        """
        ladder.looks_only = self.goes_on
        if self._count == 1:
            working_set.loader.ring.look_anew()
        self._count += 1
        self.seed = walk_ring(ladder, self.ledger, self.seed, working_set)
        self.goes_on = ladder.is_cut_short and not took()


def walk_ring(ladder: Ladder, ledger: Ledger, seed: bytes | None, working_set: StoredSet) -> bytes | None:
    """Service in a ring's order; return the seed of a shuffled order."""
    order = working_set.config.order
    seed = (seed or secrets.token_bytes(16)) if order == "shuffle" else None
    levels = orders_of(ladder, ledger, seed)
    if ladder.looks_only:
        for level in levels:
            level.look_further()
        record_stops(ladder, ledger)
        return seed
    guaranteed: list[str] = []
    if order == "deficit":
        names = working_set.reading.guaranteed()
        guaranteed = [name for name in names if working_set.takes(name) or working_set.config.paths]
        working_set.loader.load_books(guaranteed)
        if not working_set.config.paths and not any(ladder.visit_cost):
            # A visit that costs nothing changes nothing for a skipped queue but its place.
            working_set.keeps_places = True
    service_levels(levels, guaranteed)
    record_stops(ladder, ledger)
    for reason, names in working_set.skipped.items():
        # A visited queue moved to the end of the ring, where the walk met it again.
        ledger.skipped[reason] = [name for name in names if name not in ledger.entries]
    for reason, groups in working_set.halted.items():
        ledger.halted[reason] = sorted(groups)
    return seed


def _needs(entry: Entry) -> str:
    return f"{entry.needs} for {quoted(queue_name(origin_of(entry.origin), priority_of(entry.origin)))}"


def warn_of_stuck(ring: str, server: str, ledger: Ledger, ladder: Ladder) -> None:
    """Log which queues wait behind a first message that is heavier than the whole block."""
    stuck = [entry for entry in ledger.entries.values() if entry.needs is not None]
    # A block of nothing, as `measure-costs` plans many, is no limit to raise.
    if not stuck or not any(ladder.meter.limit):
        return
    log.warning(
        "a limit of %s cannot service %s of ring %r: a block of it carries a message of up to %s, and the first "
        "message needs %s; raise the limit of %s, or set such messages aside (set_aside_above=block)",
        ladder.meter.limit, many(len(stuck), "queue"), ring, ladder.room, listed(stuck, _needs), server,
    )  # fmt: skip


def write_ledger(unit: Unit, ring: int, ledger: Ledger, now: int, block: BlockRow | None = None) -> None:
    """Store the offered and granted weights; a round without a ready queue leaves no page.

    :param block: the planned block; without one a round of service, which is numbered as a block is.
    """
    if ledger.entries or any(ledger.skipped.values()):
        data = codec.pack_ledger(list(ledger.entries.values()), ledger.head, ledger.skipped, ledger.halted)
        if block is None:
            unit.ledger.insert_round(ring, data, now)
        else:
            unit.ledger.insert(ring, block.number, block.id, data, now)
