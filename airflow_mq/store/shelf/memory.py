"""All that a shelf remembers until it is saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...core.book import Standing
from ...core.config import RingConfig
from ...core.message import Address
from ...core.shelf import Shelf
from ..books import LineRow
from ..rejoining import Said
from ..rows import Arrival, StateRow
from ..unit import Unit
from .inbox import Inbox
from .known import Coming, Origin, PageBase
from .tickets import LEAST_REGULAR, LEAST_TICKET, POSTED

#: How many ready books one look at the ring brings, and for how many the walk fetches ahead.
RING_SLICE = 128


class Memory(Shelf):
    """What was fetched, what stood there before, and what is to be written."""

    def __init__(
        self, unit: Unit, ring_id: int, config: RingConfig, state: StateRow, *,
        now: int, horizon: int, listening: bool = False, passes_in_flight: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(config, now, listening=listening)
        self.unit = unit
        self.ring_id = ring_id
        self.state = state
        #: Mail with a smaller id is known to everybody: none will appear any more.
        self.horizon = horizon
        #: Whether an origin of which anything is in flight is passed by, though it is not ordered.
        self.passes_in_flight = passes_in_flight
        self.ticket_cursor = max(state.ticket_floor, LEAST_REGULAR) - 1
        self.high_cursor = LEAST_TICKET
        self.high_done = not config.high
        self.look_cursor = state.look_floor
        #: Mail below this was there before the first look. The horizon moves on with each save; what a sender commits
        #: late has a smaller id then, and the looks are behind it: only whoever comes next finds it.
        self.look_horizon = horizon
        self.rest_done = False
        #: The smallest ticket of the ready books that this walk skips, and did not load.
        self.least_skipped: int | None = None
        #: Who comes next, of regular books and of high ones.
        self.coming, self.coming_high = Coming(), Coming()
        self.tickets: dict[str, int] = {}
        self.origins: dict[str, Origin] = {}
        self.inboxes: dict[str, Inbox] = {}
        self.page_base: dict[tuple[str, int], PageBase] = {}
        self.page_look: dict[str, int] = {}
        self.posted: dict[int, tuple[str, bytes]] = {}
        self.posted_to: dict[str, list[int]] = {}
        self.next_posted = POSTED
        #: What is known of these beside their bytes: of those that were there before, and of those with headers.
        self.posted_said: dict[int, Said] = {}
        self.arrived: dict[Address, Arrival] = {}
        self.payload_cache: dict[tuple[str, int], list[bytes]] = {}
        self.header_cache: dict[tuple[str, int], tuple[range, Mapping[int, Mapping[str, str]]]] = {}
        self.sent_cache: dict[tuple[str, int], tuple[int, Mapping[int, int]]] = {}
        #: Bytes of messages that were fetched since the last save.
        self.fetched = 0
        #: Whether pages are fetched with their messages.
        self.wants_payloads = False
        #: Whether somebody else holds the ring: then its books are theirs, but for those in flight.
        self.beside = False
        #: Whether this only looks: then mail that is due counts, though it has not joined yet.
        self.looking = False
        #: What is left to do in the same transaction once everything is written.
        self.after_save: list[Callable[[], object]] = []
        #: Of a ring with paths: ready books by their tickets, how groups stood when they were loaded, what is
        #: set under names, and which groups are paused.
        self.whole_line: list[LineRow] | None = None
        self.known_branches: dict[str, int] | None = None
        self.standings: dict[str, Standing] = {}
        self._paused_groups: frozenset[str] | None = None
        #: The block on whose behalf this happens.
        self.block: int | None = None
        #: Whether mail went that referred to payloads kept apart: some of these may be nobody's now.
        self.let_go_blobs = False
