"""Leases: a view that returns one message at a time and never waits, and the tokens that lease these messages."""

from __future__ import annotations

from collections.abc import Iterator

from ..rules.claims import Claim, Claiming, Scales
from ..rules.errors import Busy
from ..rules.message import check_origin
from ..rules.outcome import DONE, Outcome
from ..rules.paths import Turn
from ..rules.priority import books_of
from ..rules.service import Ladder
from ..rules.units import check_seconds
from ..rules.weight import UNLIMITED, ZERO, Meter, Weight
from ..store.rows import AT_ONCE
from ..store.working_set import StoredSet
from .blocks.block import VIEWED
from .blocks.plan import new_block
from .inspect.queues import footprint, footprints
from .sending.commands import Commands
from .session import RingSession
from .tokens import GivenTokens, ReferenceToken, address_of, end_all, read_tokens
from .values import Enqueued, moment


class View:
    """Next messages of an origin or of the ring, one at a time. No method waits.

    ::

        view = queue.leases.view("acme")
        while token := view.try_next():
            handle(token.fetch())
            token.complete()

    Messages of one origin come first in, first out. Of a ring, each ready origin gives one message in turn. High
    messages come before regular ones. Paused origins give no message. An ordered origin gives its next message when the
    one before is completed or given back. A view has no budget: it also gives messages that are heavier than any block.
    """

    def __init__(self, session: RingSession, origin: str | None, lease: float | None) -> None:
        self._session = session
        self.origin = None if origin is None else check_origin(origin)
        self._lease = None if lease is None else check_seconds(lease, "lease")

    def try_next(self) -> ReferenceToken | None:
        """Lease the next message; return None if there is none at the moment."""
        session, details = self._session, {"order": VIEWED, "of": self.origin}
        session.refuse_nested()
        while True:
            session.settler.release_dead(wait=False)
            token, decided = None, None
            try:
                with session.hold.transaction(wait=False, planning=True) as (unit, working_set):
                    now, (claim, decisions) = working_set.now, self._next_claim(working_set)
                    if decisions:
                        # A block that is past its deadline: settling it carries the decisions out.
                        decided = new_block(session, unit, None, 0.0, now, decisions, ZERO, ZERO, details)
                    if claim is not None:
                        row = new_block(session, unit, None, self._lease, now, [claim], claim.planned, ZERO, details)
                        address = address_of([claim])
                        assert address is not None
                        secret = bytes(row.token).hex()
                        token = ReferenceToken(session.ring, secret, address, moment(row.deadline), session)
            except Busy:
                return None
            if token is not None and decided is not None:
                # Messages that expired are not in flight until a later call.
                session.settler.release_soon([bytes(decided.token)], sweeps=False)
            if token is not None or decided is None:
                return token

    #: The name that queue stores use for `try_next`.
    pop = try_next

    def __len__(self) -> int:
        """Return the number of unprocessed messages, leased ones included."""
        return Leases(self._session).count(self.origin)

    def __bool__(self) -> bool:
        """Return true: an empty view is a valid object, too."""
        return True

    def __iter__(self) -> Iterator[ReferenceToken]:
        """Yield tokens as long as there is a next message."""
        while token := self.try_next():
            yield token

    def _next_claim(self, working_set: StoredSet) -> tuple[Claim | None, list[Claim]]:
        """Claim the next message; return the claims of queues of which only decisions were made, too."""
        limit = working_set.config.service_weight or UNLIMITED
        claiming = Claiming(Scales(working_set), merge=False)
        ladder = Ladder(working_set, Meter(UNLIMITED), claiming, limit)
        # The credit covers one message of any weight.
        ladder.credit = Turn(1, lambda _: 1, ())
        decided: list[Claim] = []
        for name in self._books(working_set):
            ladder.service_queue(name)
            claim = claiming.claims.pop() if claiming.claims else None
            if claim is None:
                continue
            claim.runs = [run for run in claim.runs if run.count or run.closed]
            if claim.messages:
                ring = working_set.circle(name)
                if self.origin is None and name in ring:
                    ring.bump(name)
                elif self.origin is None:
                    # The book left the ring of this plan with its last message; it stays ready until that is settled.
                    ring.knit(name)
                return claim, decided
            if any(run.decisions for run in claim.runs):
                decided.append(claim)
        return None, decided

    def _books(self, working_set: StoredSet) -> Iterator[str]:
        """Yield the books that may have a next message, in turn; high ones come first."""
        if self.origin is not None:
            for mine in books_of(self.origin) if working_set.config.high else (self.origin,):
                book = working_set.book(mine)
                if not book.skipped and (book.is_ready or working_set.pull(book)):
                    working_set.circle(mine).meet(mine)
                    yield mine
            return
        for ring in (working_set.high, working_set.ring) if working_set.config.high else (working_set.ring,):
            following = ring.head()
            while following is not None:
                name = following
                # The walk continues here even if the book leaves the ring meanwhile.
                following = ring.next_in_line(name)
                if not working_set.book(name).skipped:
                    yield name


class Leases:
    """Messages taken one at a time: each is leased to the holder of its token."""

    def __init__(self, session: RingSession) -> None:
        self.session = session

    def view(self, origin: str | None = None, *, lease: float | None = None) -> View:
        """Return a view of one origin, or of the ring; its `try_next()` never waits.

        :param lease: seconds for which each message is leased; by default, the ring's.
        """
        return View(self.session, origin, lease)

    def next(self) -> ReferenceToken | None:
        """Lease the next message of the ring; return None if there is none at the moment. Never waits."""
        return self.view().try_next()

    def count(self, origin: str | None) -> int:
        """Return the number of unprocessed messages of an origin, or of the ring, leased ones included."""
        if origin is not None:
            return footprint(self.session, origin).count
        total, after = 0, ""
        while some := footprints(self.session, after=after, limit=AT_ONCE):
            total += sum(held.count for _, held in some)
            after = some[-1][0]
        return total

    def token(self, token: str | ReferenceToken) -> ReferenceToken:
        """Return a token that another process wrote as `str(token)`, ready for use."""
        return read_tokens(self.session, token)[0]

    def complete(self, tokens: GivenTokens, outcome: Outcome = DONE) -> int:
        """Complete the messages of tokens, all or none, in a transaction of its own; return their number."""
        mine = read_tokens(self.session, tokens)
        end_all(self.session, mine, outcome)
        return len(mine)

    def give_back(self, tokens: GivenTokens) -> int:
        """Return messages to their places, all or none; each counts as an attempt. Return their number."""
        mine = read_tokens(self.session, tokens)
        end_all(self.session, mine, None)
        return len(mine)

    def transfer(
        self, tokens: GivenTokens, to: str, *, ring: str | None = None, weight: Weight | None = None
    ) -> Enqueued:
        """Transfer messages to another queue, all or none, in a transaction of its own. See `Commands.transfer`."""
        mine = read_tokens(self.session, tokens)
        done = Commands(self.session, self.session.store).transfer(mine, to, ring=ring, weight=weight).execute()
        self.session.settler.release_soon(bytes.fromhex(token.secret) for token in mine)
        return done
