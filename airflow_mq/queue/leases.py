"""Taking messages one at a time: a view that never blocks, and tokens that lease what it gives."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from ..core.claims import Claim, Claiming, Scales
from ..core.errors import TokenRefused, UnknownBlock
from ..core.message import check_origin, check_seconds
from ..core.outcome import DONE, Outcome, check_outcome
from ..core.page import Page
from ..core.priority import books_of
from ..core.service import Ladder, overweight_limit
from ..core.weight import UNLIMITED, ZERO, Meter, Weight
from ..store.rows import PLANNED, BlockRow
from ..store.unit import Unit
from ..store.working_set import StoredSet
from .blocks.blocks import Blocks
from .blocks.plan import VIEWED, claim_rows, new_block
from .blocks.settlement import BlockSettler, refusal
from .inspect.reading import Footprints
from .sending.commands import Commands
from .sending.sender import Sender
from .session import RingSession
from .tokens import ReferenceToken, Tokens, address_of, only_address
from .values import Enqueued, moment

#: Footprints that are added up at once.
_SOME = 1000


class View:
    """What can be taken from a queue right now, one message at a time. Nothing here ever waits.

    ::

        view = queue.leases.view("acme")
        while token := view.try_next():
            handle(token.fetch())
            token.complete()

    Over one origin messages come first in, first out. Over the ring each ready origin gives one in turn. High
    messages come before regular ones.
    Paused origins give nothing, and an ordered one gives its next message only when the one before is
    completed or given back. A view has no budget: a message that no block could pay is given like any other.
    """

    def __init__(self, leases: Leases, origin: str | None, lease: float | None) -> None:
        self._leases = leases
        self.origin = None if origin is None else check_origin(origin)
        self._lease = None if lease is None else check_seconds(lease, "a lease")

    def try_next(self) -> ReferenceToken | None:
        """The next message, leased to whoever holds the token; nothing, where there is none at the moment."""
        session = self._leases.session
        session.refuse_nested()
        self._leases.settle_completed()
        with session.try_transaction(skip_in_flight=False, planning=True) as held:
            if held is None:
                return None
            unit, working_set = held
            claim = self._next_claim(working_set)
            return None if claim is None else self._write(unit, working_set, claim)

    def pop(self) -> ReferenceToken | None:
        """The same, by the name that a queue store has for it."""
        return self.try_next()

    def __len__(self) -> int:
        """How many messages are not processed yet, those on lease included."""
        return self._leases.count(self.origin)

    def __bool__(self) -> bool:
        """A view is a view, also of nothing."""
        return True

    def __iter__(self) -> Iterator[ReferenceToken]:
        """Tokens for as long as there is a next one."""
        while token := self.try_next():
            yield token

    def _next_claim(self, working_set: StoredSet) -> Claim | None:
        limit = working_set.config.service_weight or UNLIMITED
        claiming = Claiming(Scales(working_set), merge=False)
        ladder = Ladder(working_set, Meter(UNLIMITED), overweight_limit(working_set, limit), claiming)
        ladder.credit = _One()
        for name in self._books(working_set):
            ladder.service_queue(name)
            claim = claiming.claims.pop() if claiming.claims else None
            if claim is not None and claim.messages:
                if self.origin is None:
                    _move_to_the_end(working_set, name)
                claim.runs = [run for run in claim.runs if run.count or run.closed]
                return claim
        return None

    def _books(self, working_set: StoredSet) -> Iterator[str]:
        """Those that may give something, in turn: high ones first."""
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
                # The walk goes on from here, also when the book has left the ring by then.
                following = ring.next_in_line(name)
                if not working_set.book(name).skipped:
                    yield name

    def _write(self, unit: Unit, working_set: StoredSet, claim: Claim) -> ReferenceToken:
        session = self._leases.session
        lease = working_set.config.lease if self._lease is None else self._lease
        row = new_block(unit, session.ring_id, None, lease, working_set.now, by_hand=False, details={
            "limit": claim.planned, "planned": claim.planned, "overhead": ZERO, "messages": 1, "order": VIEWED,
            "by": session.actor,
        })  # fmt: skip
        unit.blocks.insert(session.ring_id, row, claim_rows([claim]))
        return self._leases.token_of(row, claim)


class _One:
    """The credit of a visit that may take one message."""

    def __init__(self) -> None:
        self.left = 1

    def covering(self, weights: Sequence[Weight]) -> int:
        return self.left

    def spend(self, weight: Weight) -> None:
        self.left = 0

    def refund(self, weight: Weight) -> None:
        self.left = 1


def _move_to_the_end(working_set: StoredSet, name: str) -> None:
    ring = working_set.circle(name)
    if name in ring:
        ring.bump(name)
    else:
        # It gave its last message, and left the ring of this plan; it stays ready until that is settled.
        ring.knit(name)


class Leases:
    """Messages taken one at a time: each is leased to the holder of its token."""

    def __init__(
        self,
        session: RingSession,
        settler: BlockSettler,
        blocks: Blocks,
        footprints: Footprints,
        sender: Sender,
        tokens: Tokens,
    ) -> None:
        self.session, self.store, self.ring_id = session, session.store, session.ring_id
        self._settler, self._blocks, self._footprints, self._sender = settler, blocks, footprints, sender
        self._tokens = tokens

    def view(self, origin: str | None = None, *, lease: float | None = None) -> View:
        """What can be taken right now, of one origin or of the ring; its `try_next()` never waits.

        :param lease: seconds for which a message is leased to whoever takes it; the ring's, where it is not said.
        """
        return View(self, origin, lease)

    def next(self) -> ReferenceToken | None:
        """The next message of the ring, on lease; nothing, where there is none at the moment. Never waits."""
        return self.view().try_next()

    def count(self, origin: str | None) -> int:
        """Return how many messages of an origin, or of the ring, are not processed yet, those on lease included."""
        if origin is not None:
            return self._footprints.footprint(origin).count
        total, after = 0, ""
        while some := self._footprints.footprints(after=after, limit=_SOME):
            total += sum(footprint.count for _, footprint in some)
            after = some[-1][0]
        return total

    def settle_completed(self) -> None:
        """Settle completed messages, as far as that goes without waiting."""
        self._settler.settle_completed()

    def token(self, token: str | ReferenceToken) -> ReferenceToken:
        """Return a token that came from another process, as `str(token)` wrote it: now it can be used."""
        return replace(self._tokens.read(token), _leases=self)

    def fetch(self, token: str | ReferenceToken) -> bytes:
        """The message that a token leases."""
        mine = self.token(token)
        with self.session.snapshot() as (unit, working_set):
            page = self._leased_page(unit, working_set, mine, "fetch a message by")
            return working_set.loader.payloads.one(mine.address.book, page, mine.address.index)

    def fetch_headers(self, token: str | ReferenceToken) -> Mapping[str, str]:
        """What the sender said beside the message that a token leases."""
        mine = self.token(token)
        with self.session.snapshot() as (unit, working_set):
            page = self._leased_page(unit, working_set, mine, "look at a message by")
            index = mine.address.index
            return dict(working_set.loader.headers(mine.address.book, page, index, index + 1).get(index, {}))

    def give_back(self, token: str | ReferenceToken) -> None:
        """Let the message that a token leases go back to its place."""
        mine = self.token(token)
        with self.store.reading() as unit:
            self._live(unit, mine, "give back")
        self._blocks.release(mine.secret)

    def renew(self, token: str | ReferenceToken, lease: float | None = None) -> datetime:
        """Lease a message for longer, and return until when."""
        return self._blocks.renew(self.token(token).secret, lease)

    def complete(self, tokens: str | ReferenceToken | Iterable[str | ReferenceToken], outcome: Outcome = DONE) -> int:
        """Say that the messages of tokens are treated, all or none, in a transaction of its own; tell how many."""
        self.session.refuse_nested()
        mine = self.list(tokens)
        checked = check_outcome(
            outcome, self.session.config.max_message_len, most_headers=self.session.config.max_headers
        )
        with self.store.writing() as unit:
            for token in mine:
                self.complete_in(unit, token, checked)
        for token in mine:
            # What nobody has the time to settle now is settled by whoever plans, views or housekeeps next.
            self._settler.end_at_once(bytes.fromhex(token.secret), sweeping=True)
        return len(mine)

    def list(self, given: str | ReferenceToken | Iterable[str | ReferenceToken]) -> builtins.list[ReferenceToken]:
        """Return one or many tokens, read by this queue."""
        return [replace(token, _leases=self) for token in self._tokens.read_all(given)]

    def transfer(
        self, tokens: str | ReferenceToken | Iterable[str | ReferenceToken], to: str, *, ring: str | None = None,
        weight: Weight | None = None,
    ) -> Enqueued:  # fmt: skip
        """Hand messages on to another queue, all or none, in a transaction of its own. See `Commands.transfer`."""
        self.session.refuse_nested()
        push = Commands(self._sender, self._tokens, None).transfer(tokens, to, ring=ring, weight=weight)
        with self.store.writing() as unit:
            done = push.within(unit)
        self.settle_completed()
        return done

    def complete_in(self, unit: Unit, token: ReferenceToken, outcome: Outcome) -> None:
        """Report on the message of a token within a transaction, and let no process report after that."""
        self._tokens.complete_in(unit, token, outcome)

    def _live(self, unit: Unit, token: ReferenceToken, what: str) -> None:
        secret = bytes.fromhex(token.secret)
        row = unit.blocks.by_token(self.ring_id, secret)
        if row is None:
            raise UnknownBlock("there is no such token in this ring")
        if row.state != PLANNED or row.deadline <= unit.now():
            raise refusal(unit, self.ring_id, secret, what)
        if only_address(unit, row) != token.address:
            raise TokenRefused(f"this token is not that of message {token.address}; take it as it was given")

    def _leased_page(self, unit: Unit, working_set: StoredSet, token: ReferenceToken, what: str) -> Page:
        self._live(unit, token, what)
        page = working_set.page(token.address.book, token.address.page)
        assert page is not None, "what is claimed is stored"
        return page

    def token_of(self, row: BlockRow, claim: Claim) -> ReferenceToken:
        """Return the token of a block that holds one message."""
        address = address_of([claim])
        assert address is not None
        return ReferenceToken(self.session.ring, bytes(row.token).hex(), address, moment(row.deadline), self)
