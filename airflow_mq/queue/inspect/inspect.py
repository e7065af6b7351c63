"""Inspection of a ring: reads that change nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...core.book import Standing
from ...core.events import Event
from ...core.fairness import Fairness
from ...core.message import Address
from ...core.priority import REGULAR
from ...core.weight import Weight
from ..blocks import measures
from ..blocks.block import Block
from ..blocks.blocks import Blocks
from ..servers import Server
from ..session import RingSession
from ..values import LedgerBlock, Peeked, Pulse
from .backlog import Backlog, Backlogs, Depth
from .explain import AHEAD, Explanation, Explanations
from .fairness import FairnessReads
from .forecast import ForecastBlock, Forecasts
from .headers import BlockHeaders, MessageHeaders
from .history import Histories, History
from .page import Received, RingState, States
from .reading import Reader
from .summaries import LATELY, PageState, QueueState
from .survey import Survey, Surveys


class Inspect:
    """Reads of a ring that change nothing."""

    def __init__(self, session: RingSession, blocks: Blocks) -> None:
        self._explanations = Explanations(session)
        self._forecasts = Forecasts(session)
        self._reader = Reader(session)
        self._histories = Histories(session)
        self._block_headers = BlockHeaders(session, blocks)
        self._fairness = FairnessReads(session)
        self._backlogs = Backlogs(session)
        self._surveys = Surveys(session)
        self._states = States(session)

    def explain(
        self, origin: str, *, limit: Weight | None = None, seed: bytes | None = None, ahead: int = AHEAD,
        priority: str | None = None, below: bool = False,
    ) -> Explanation:  # fmt: skip
        """Why the first message of a queue waits, in which of the next blocks it runs, and what would change that.

        :param below: of all queues of this name and below it, as paths go, the one whose turn comes first.
        :param limit: what blocks may cost; the ring's service weight where it is not said.
        :param seed: of a ring that shuffles, the seed of the next blocks.
        :param ahead: how many blocks to look ahead.
        :param priority: of the messages of this priority; of a high one if any waits, where it is not said.
        """
        return self._explanations.explain(origin, limit=limit, seed=seed, ahead=ahead, priority=priority, below=below)

    def explain_message(
        self, address: Address, *, limit: Weight | None = None, seed: bytes | None = None, ahead: int = AHEAD
    ) -> Explanation:
        """The same for one message, by its address."""
        return self._explanations.explain_message(address, limit=limit, seed=seed, ahead=ahead)

    def stuck(self, most: int = 100) -> list[Explanation]:
        """Explain the ready queues that no block of any server can service.

        :param most: look at so many queues in the ring's order, and at those that the ledger recorded as stuck lately.
        """
        return self._explanations.stuck(most)

    def dry_run(
        self, limit: Weight | None = None, *, shares: Mapping[str, int] | None = None, order: str | None = None,
        seed: bytes | None = None, **changes: Any,
    ) -> ForecastBlock:  # fmt: skip
        """What the next block would take, queue by queue.

        :param limit: what the block may cost; without it, the limit of the DAG or program that planned the latest
            block (`ForecastBlock.server`), and of a ring that nothing serviced yet, its service weight.
        :param shares: shares of some origins, instead of theirs.
        :param order: `deficit`, `rotation` or `shuffle`, instead of the ring's.
        :param seed: a ring that shuffles is served in the order of this seed; without it, nobody can know.
        :param changes: other settings of the ring, instead of its own.
        """
        return self._forecasts.dry_run(limit, shares=shares, order=order, seed=seed, **changes)

    def forecast(
        self, blocks: int = 10, *, limit: Weight | None = None, shares: Mapping[str, int] | None = None,
        order: str | None = None, seed: bytes | None = None, **changes: Any,
    ) -> list[ForecastBlock]:  # fmt: skip
        """The next blocks, if nothing changes and every message is done; fewer, if nothing is left before.

        The rest is as in `dry_run`; a seed counts for each of the blocks.
        """
        return self._forecasts.forecast(blocks, limit=limit, shares=shares, order=order, seed=seed, **changes)

    def ring_order(self, limit: int = 100, priority: str = REGULAR) -> list[str]:
        """The origins with ready books of this priority, from the head on."""
        return self._reader.ring_order(limit, priority)

    def shuffled_order(self, seed: bytes, limit: int = 100, priority: str = REGULAR) -> list[str]:
        """The same in the order of a block that shuffles with this seed, as the ring stands now."""
        return self._reader.shuffled_order(seed, limit, priority)

    def pulse(self, most: int = 1) -> Pulse:
        """What there is to do, cheaply, for those who look again and again."""
        return self._reader.pulse(most)

    def peek(
        self, origin: str, *, page: int | None = None, limit: int = 20, priority: str | None = None
    ) -> list[Peeked]:
        """Look at the first unprocessed messages of an origin, high ones first, or of one of its pages.

        :param priority: only of this priority.
        """
        return self._reader.peek(origin, page=page, limit=limit, priority=priority)

    def events(
        self, *, origin: str | None = None, name: str | None = None, block: int | None = None,
        id: bytes | None = None, after: int = 0, limit: int | None = None, follow: bool = False,
    ) -> Iterator[Event]:  # fmt: skip
        """What became of messages, in order; with `follow`, without end.

        :param after: go on behind the `seq` of an event seen before.
        """
        return self._reader.events(
            origin=origin, name=name, block=block, id=id, after=after, limit=limit, follow=follow
        )

    def ledger(self, *, block: int | None = None, limit: int = 100) -> list[LedgerBlock]:
        """What blocks offered and granted, queue by queue, the latest first."""
        return self._reader.ledger(block=block, limit=limit)

    def servers(self) -> list[Server]:
        """Return the DAGs and programs that serviced the ring lately, with the limits of their latest blocks."""
        return self._reader.servers()

    def fits(self, processor: str | None = None) -> list[measures.Fit]:
        """What measured use says about weights, per processor and origin."""
        return self._reader.fits(processor)

    def history(self, message: Address | bytes, *, origin: str | None = None) -> History:
        """What happened to a message, in order, also when it is gone: for as long as the ring keeps events.

        When it was sent, every block that planned it, how often and why it went back, by which limit it was set
        aside, who decided what about it and why, and how it ended. When it was sent is known exactly while it is
        stored, and of one that was ever set aside; of others that are gone, only before which block.

        :param message: its address, at any time of its life; or its name, the 32 bytes of its `id`. By name, all
            messages with the same bytes are told of together, and one of which nothing was told yet is looked for
            among all that wait: say its origin where that is much.
        """
        return self._histories.history(message, origin=origin)

    def headers(
        self, block: str | Block, most: int, of_interest: Callable[[Mapping[str, str]], bool] = bool
    ) -> list[MessageHeaders]:
        """What the first messages of a block carry that carry anything of interest; so many of them at most."""
        return self._block_headers.headers(block, most, of_interest)

    def fairness(self, blocks: int = 100, *, most: int | None = None) -> Fairness:
        """What each origin was promised and got of the latest blocks of the ledger, and how long it waited.

        The definitions are in `airflow_mq.core.fairness`. Shares, leasts and mosts count as they are set
        now. What waits at this moment is looked at, too: so a queue is missed by no check while it waits,
        though a ledger has no line for a queue that a block did not come to.

        :param blocks: how many blocks to look back.
        :param most: look at no more than so many of those that wait, from the head on. What is said of the others
            is what the ledger says.
        """
        return self._fairness.fairness(blocks, most=most)

    def backlog(self, deepest: int = 0) -> Backlog:
        """How much waits in the ring, since when, and what it will cost.

        :param deepest: tell of so many queues one by one, those with the most messages.
        """
        return self._backlogs.backlog(deepest)

    def oldest(self, limit: int = 10) -> list[Depth]:
        """The queues whose first message was sent longest ago."""
        return self._backlogs.oldest(limit)

    def survey(self, into: Survey | None = None) -> Survey:
        """Count what all queues hold.

        :param into: filled on the way, for whoever looks on from another thread.
        """
        return self._surveys.survey(into)

    def ring_version(self) -> tuple[int, int]:
        """What changes whenever anything is sent or settled: while it is the same, so is a survey."""
        return self._surveys.ring_version()

    def queues(
        self,
        prefix: str = "",
        after: str = "",
        limit: int = 50,
        *,
        among: Sequence[tuple[str, str]] | None = None,
        exact: bool = False,
        lately: float = LATELY,
    ) -> list[QueueState]:
        """Return the states of queues by name; an origin may have two queues. Empty queues are left out.

        :param prefix: the beginning of the origins' names.
        :param after: the last origin of the page before.
        :param limit: how many origins.
        :param among: instead, these queues: pairs of an origin and a priority.
        :param exact: count all messages, and read when the first one was sent; otherwise the reading is bounded, and
            `QueueState.more` marks a queue of which not all was counted.
        :param lately: seconds within which messages count as new.
        """
        return self._states.queues(prefix, after, limit, among=among, exact=exact, lately=lately)

    def ring(self, most: int = 60) -> RingState:
        """The ring from its head on: at most so many queues."""
        return self._states.ring(most)

    def pages(self, origin: str, priority: str = REGULAR, limit: int = 100) -> list[PageState]:
        """The first stored pages of a queue, those behind the window first; what no page holds yet is not told."""
        return self._states.pages(origin, priority, limit)

    def origin_settings(self, origin: str) -> Standing:
        """How an origin is served, with the ring's defaults where nothing is set for it."""
        return self._states.origin_settings(origin)

    def latest_events(
        self, before: int | None = None, limit: int = 100, *, origin: str | None = None, name: str | None = None
    ) -> tuple[list[Event], int | None]:
        """What became of messages, the latest first, and where to go on: before this `seq`; nothing at the end.

        :param name: only those of this name, as far as they are found among some thousand rows: there may be more
            of them where it says so, though none was found.
        """
        return self._states.latest_events(before, limit, origin=origin, name=name)

    def has_many_newcomers(self, most: int = 500) -> bool:
        """Whether more queues than that have mail which no block has looked at: to meet them all takes long."""
        return self._states.has_many_newcomers(most)

    def latest_ledger_block(self) -> int | None:
        """The block of the latest page of the ledger: while it is the same, so are the shares."""
        return self._states.latest_ledger_block()

    def shares(self, blocks: int = 20) -> tuple[int | None, Mapping[tuple[str, str], Received]]:
        """What the ledger says of the latest blocks: the latest one, and what each queue got of all, and was promised.

        Of those that a block came to; `fairness` looks at those that wait, too.
        """
        return self._states.shares(blocks)

    def max_message_weight(self) -> Weight | None:
        """What a full block leaves for a message; nothing, where each call says its own limit."""
        return self._states.max_message_weight()
