"""Parts that all ways of servicing share: the walk in a ring's order, its ledger page, the renewal of the lease."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ...ticker import Ticker
from ...words import many
from ..rules import orders
from ..rules.characters import quoted
from ..rules.deficit import DeficitRounds
from ..rules.levels import service_levels
from ..rules.orders import Ledger
from ..rules.paths import PathRounds
from ..rules.priority import origin_of, priority_of, queue_name
from ..rules.ring import Ring
from ..rules.service import Ladder
from ..store import codec
from ..store.rows import BlockRow
from ..store.unit import Unit
from ..store.working_set import StoredSet
from .session import SERVICE_LEASE, RingSession

log = logging.getLogger("airflow_mq.service")

#: How many queues a warning names.
NAMED = 5


def walk_ring(ladder: Ladder, ledger: Ledger, order: str, seed: bytes | None, working_set: StoredSet) -> bytes | None:
    """Service in a ring's order; return the seed of a shuffled order."""
    seed = (seed or secrets.token_bytes(16)) if order == "shuffle" else None
    if ladder.looks_only:
        for ring in (working_set.high, working_set.ring) if working_set.config.high else (working_set.ring,):
            _look_further(ladder, ledger, order, ring)
        return seed
    guaranteed: list[str] = []
    if not working_set.config.paths:
        working_set.loader.ring.expect_walk()
    if order == "deficit":
        names = working_set.loader.source.guaranteed()
        guaranteed = [name for name in names if working_set.takes(name) or working_set.config.paths]
        working_set.loader.load_books(guaranteed)
        if not working_set.config.paths and not any(ladder.visit_cost):
            # A visit that costs nothing changes nothing for a skipped queue but its place.
            working_set.loader.ring.keep_skipped()
    if working_set.config.high:
        service_levels(ladder, ledger, order, seed, guaranteed)
    elif seed is not None:
        orders.shuffle(ladder, ledger, seed)
    elif order == "rotation":
        orders.rotation(ladder, ledger)
    else:
        rounds = PathRounds if working_set.config.paths else DeficitRounds
        rounds(ladder, ledger).run(guaranteed)
    orders.record_stuck(ladder, ledger)
    for reason, names in working_set.loader.ring.skipped().items():
        # A visited queue moved to the end of the ring, where the walk met it again.
        ledger.skipped[reason] = [name for name in names if name not in ledger.entries]
    return seed


def _look_further(ladder: Ladder, ledger: Ledger, order: str, ring: Ring) -> None:
    """Service queues of one level to which earlier walks of this call did not come."""
    if order != "deficit":
        orders.look_further(ladder, ledger, ring)
    elif ladder.working_set.config.paths and ring is ladder.working_set.ring:
        PathRounds(ladder, ledger).run()
    else:
        DeficitRounds(ladder, ledger, ring).run()


def warn_of_stuck(ring: str, server: str, ledger: Ledger, ladder: Ladder) -> None:
    """Log which queues wait behind a first message that is heavier than the whole block."""
    stuck = ledger.stuck
    if not stuck:
        return
    names = [quoted(queue_name(origin_of(one.origin), priority_of(one.origin))) for one in stuck[:NAMED]]
    needs = [f"{one.needs} for {name}" for one, name in zip(stuck, names)]
    if len(stuck) > NAMED:
        needs.append(f"{len(stuck) - NAMED:,} more")
    log.warning(
        "a limit of %s cannot service %s of ring %r: a block of it carries a message of up to %s, and the first "
        "message needs %s; raise the limit of %s, or set such messages aside (set_aside_above=block)",
        ladder.meter.limit, many(len(stuck), "queue"), ring, ladder.room, ", ".join(needs), server,
    )  # fmt: skip


def write_ledger(unit: Unit, ring: int, ledger: Ledger, now: int, block: BlockRow | None = None) -> None:
    """Store the offered and granted weights; a round without a ready queue leaves no page.

    :param block: the planned block; without one a round of service, which is numbered as a block is.
    """
    if ledger.entries or any(ledger.skipped.values()):
        data = codec.pack_ledger(list(ledger.entries.values()), ledger.head, ledger.skipped)
        if block is None:
            unit.ledger.insert_round(ring, data, now)
        else:
            unit.ledger.insert(ring, block.number, block.id, data, now)


class Renewals:
    """A thread that renews the lease of a ring while one is held."""

    def __init__(self, session: RingSession) -> None:
        self.session = session
        self._token: bytes | None = None
        self._ticker = Ticker(self._renew, SERVICE_LEASE / 3, "airflow_mq lease")

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the thread run, for all leases that this thread holds meanwhile: to start one takes a millisecond."""
        with self._ticker:
            mark = _renewals.set(self)
            try:
                yield
            finally:
                _renewals.reset(mark)

    @contextmanager
    def of(self, token: bytes) -> Iterator[None]:
        """Renew this lease."""
        self._token = token
        try:
            yield
        finally:
            self._token = None

    def _renew(self) -> float:
        if (token := self._token) is not None:
            try:
                with self.session.store.loose() as unit:
                    until = unit.now() + int(SERVICE_LEASE * 1_000_000)
                    unit.rings.renew_lease(self.session.ring_id, token, until)
            except Exception:
                log.exception("the hold on ring %r could not be renewed; trying again", self.session.ring)
        return SERVICE_LEASE / 3


#: The thread that renews the leases of a worker.
_renewals: ContextVar[Renewals | None] = ContextVar("airflow_mq_renewals", default=None)


@contextmanager
def renewing(session: RingSession, token: bytes) -> Iterator[None]:
    """Let a thread renew the lease of the ring: the worker's, or one of its own."""
    renewals = _renewals.get()
    if renewals is not None and renewals.session is session:
        with renewals.of(token):
            yield
        return
    renewals = Renewals(session)
    with renewals.running(), renewals.of(token):
        yield
