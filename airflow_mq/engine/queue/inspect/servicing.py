"""Whether a ring is serviced: the latest plans and services, and the time since which one is overdue."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain, pairwise
from shlex import quote
from statistics import median
from typing import Literal, NamedTuple

from ....words import many, span, when
from ...rules.book import BUDGET, SKIPS
from ...rules.characters import LISTED
from ...rules.config import DAY, RingConfig
from ...rules.groups import paths_of
from ...rules.judging import MOST
from ...rules.priority import book_name
from ...store import codec
from ...store.rows import PLANNED, BlockRow, settings_of
from ...store.unit import Unit
from ..blocks.block import VIEWED
from ..servers import Server, ledger_pages, server_of, servers_of
from ..values import Paused, moment
from .queues import QueueState
from .reasons import Remedy

#: Returns whether the DAG of a server is paused; None if that is unknown.
IsDagPaused = Callable[[Server], bool | None]
#: States of a queue: it waits for nothing but its turn, for a person or a time, for a block in progress, for one that
#: does not come, or for one that takes its origin and carries its first message.
State = Literal["turn", "paused", "failed", "budget", "set aside", "in flight", "overdue", "unserved", "stuck"]
#: Latest plans whose intervals count, and servers whose latest pages of the ledger do.
_PLANS, _PAGES = 50, 4
#: A plan is overdue after this multiple of the usual interval, but not within the first seconds: tasks start late.
_PATIENCE, _LEAST_PATIENCE = 1.5, 60.0
#: Seconds after which a plan is overdue if there is no interval yet.
_UNKNOWN_INTERVAL = 600.0
_NEVER = "No block has ever serviced this ring."
_FORGOTTEN = "No block has serviced this ring within its kept history."
_NO_SERVER = Remedy("a DAG with block(), or a worker", "airflow-mq service --help")


def unknown_pause(server: Server) -> bool | None:
    """Return None: only Airflow knows which DAGs are paused."""
    return None


@dataclass(frozen=True)
class Overdue:
    """A plan or a service that should have come."""

    sentence: str
    remedy: Remedy
    #: Whether nothing has serviced the ring yet, but its message is so young that someone may still be setting it up.
    is_new: bool = False
    #: The sentence as a few words, for a column.
    brief: str = ""


class Wait(NamedTuple):
    """State of a queue, and the reason in a few words."""

    state: State
    why: str


@dataclass(frozen=True)
class Servicing:
    """The latest plans and services of a ring, of any origin."""

    now: datetime
    config: RingConfig = field(repr=False)
    #: Whether any block or service was ever counted.
    ever: bool
    #: The DAGs and programs that service the ring, each with its latest block.
    servers: Sequence[Server]
    #: The latest plans and services, latest first.
    plans: Sequence[Server]
    #: The servers of the blocks in progress.
    live: Sequence[Server]
    #: The service in place that holds the ring, and until when; None without one.
    holder: str | None
    held_until: datetime | None
    #: By the names of their books, the queues that stopped at their *most* in the latest block that serviced them.
    at_most: Mapping[str, int] = field(repr=False)
    #: The origins of which programs lease messages by tokens, without blocks; None for a program that takes any.
    viewed: Collection[str | None] = ()
    is_dag_paused: IsDagPaused = field(default=unknown_pause, repr=False, compare=False)

    @classmethod
    def read(
        cls, unit: Unit, ring: int, now: int, config: RingConfig, is_dag_paused: IsDagPaused = unknown_pause
    ) -> Servicing:
        """Read the servicing of a ring.

        :param is_dag_paused: returns whether the DAG of a server is paused; None if that is unknown
        """
        rows = [row for row in unit.blocks.latest(ring, PLANNED) if row.deadline > now]
        state, servers = unit.rings.state(ring), servers_of(unit, ring)
        return cls(
            now=moment(now),
            config=config,
            ever=state.blocks > 0,
            servers=servers,
            plans=_latest_plans(unit, ring),
            live=[server for server in map(_planner, rows) if server is not None],
            viewed={one.get("of") for one in (row.details_json for row in rows) if one.get("order") == VIEWED},
            holder=(state.lease_holder or "an unknown process") if state.lease_until else None,
            held_until=moment(state.lease_until) if state.lease_until else None,
            at_most=_at_most(unit, ring, servers, config.paths),
            is_dag_paused=is_dag_paused,
        )

    @property
    def is_held(self) -> bool:
        """Whether a service in place holds the ring now; one that died holds it until its lease is over."""
        return self.held_until is not None and self.held_until > self.now

    def overdue(self, origin: str, sent: datetime | None) -> Overdue | None:
        """Return the plan or service that a waiting message should have met by now; None if none is overdue.

        A message waits from its sending, or from the last plan that may have left it out.

        :param sent: time at which the message was sent; None if that is unknown
        """
        takers = [server for server in self.servers if server.takes(origin)]
        if not takers:
            # The servers of other origins are named by the reason `unserved`.
            is_taken = self.servers or self.is_held or not {None, origin}.isdisjoint(self.viewed)
            return None if is_taken else self._never(sent)
        latest = max(takers, key=lambda server: server.at)
        awake = [server for server in takers if not self._has_paused_dag(server)]
        if latest not in awake and not any(self._age(server) < self._patience(server) for server in awake):
            return self._since(origin, latest)
        if self.is_held or any(server.takes(origin) for server in self.live):
            return None
        age = self._age(latest)
        waited = age if sent is None else min(age, (self.now - sent).total_seconds())
        longest = _PATIENCE * max(self._intervals(latest), default=0.0)
        if waited < self._patience(latest) and age < max(DAY, longest):
            return None
        return self._since(origin, latest)

    def of_queues(self, states: Iterable[QueueState]) -> list[Overdue]:
        """Return what is overdue for the ready ones of these queues, each once."""
        ready = (state for state in states if state.ready and not state.skipped)
        found = (self.overdue(state.origin, state.oldest) for state in ready)
        by_sentence: dict[str, Overdue] = {}
        for overdue in found:
            if overdue is not None and (overdue.sentence not in by_sentence or not overdue.is_new):
                by_sentence[overdue.sentence] = overdue
        return list(by_sentence.values())

    def wait_of(self, state: QueueState, pause: Paused | None) -> Wait:
        """Return why a queue waits, whose origin may have a pause; `Inspect.explain` names the message."""
        brief = SKIPS.get(state.skipped, "")
        if state.paused:
            reason = f": {pause.reason}" if pause is not None and pause.reason else ""
            return Wait("paused", f"{brief}{reason}" if pause is not None else f"{brief} together with its group")
        if state.skipped == BUDGET and state.wakes_at is not None:
            return Wait("budget", f"{brief} until {when(state.wakes_at)}")
        if state.wakes_at is not None:
            return Wait("failed", f"{brief}; next attempt after {when(state.wakes_at)}, or when resumed")
        if not state.ready and state.set_aside:
            return Wait("set aside", "All messages are set aside")
        if brief or not state.ready:
            return Wait("in flight", brief if state.ready else "All messages are in flight")
        takers = [(server.room_in(self.config), server.title) for server in self.servers if server.takes(state.origin)]
        if self.servers and not takers:
            return Wait("unserved", "No DAG that services this ring takes this origin")
        if takers and state.needs and all(room is not None and state.needs.exceeds(room) for room, _ in takers):
            named = "".join(f"; blocks of {title} carry up to {room}" for room, title in takers[:LISTED])
            more = f"; those of {len(takers) - LISTED:,} more carry less than it" if len(takers) > LISTED else ""
            return Wait("stuck", f"Its first message needs {state.needs}{named}{more}")
        overdue = self.overdue(state.origin, state.oldest)
        if overdue is not None:
            return Wait("overdue", overdue.brief)
        if state.attempts:
            return Wait("turn", f"Its first message was tried {many(state.attempts, 'time')} without success")
        block = self.at_most.get(book_name(state.origin, state.priority))
        whose = "Its most, or that of its group," if self.config.paths else "Its most"
        return Wait("turn", "Waiting for its turn" if block is None else f"{whose} was used up in block {block}")

    def usual_interval(self, server: Server) -> float | None:
        """Return the usual seconds between the runs of a server; None until it has two, or a program four.

        A person may have run a program two or three times in a row.
        """
        intervals = self._intervals(server)
        return median(intervals) if len(intervals) >= (1 if server.is_dag else 3) else None

    def expected(self) -> datetime | None:
        """Return when the next plan is due by the usual intervals: a past time if it is late, None if unknown."""
        awake = (server for server in self.servers if not self._has_paused_dag(server))
        intervals = ((server, self.usual_interval(server)) for server in awake)
        times = [server.at + timedelta(seconds=interval) for server, interval in intervals if interval is not None]
        return min((time for time in times if time > self.now), default=max(times, default=None))

    def _never(self, sent: datetime | None) -> Overdue:
        is_new = sent is not None and (self.now - sent).total_seconds() < _UNKNOWN_INTERVAL
        sentence = _FORGOTTEN if self.ever else _NEVER
        return Overdue(sentence, _NO_SERVER, is_new and not self.ever, sentence.removesuffix("."))

    def _age(self, server: Server) -> float:
        return (self.now - server.at).total_seconds()

    def _intervals(self, server: Server) -> list[float]:
        """Return the seconds between the latest plans of a server."""
        times = [plan.at for plan in self.plans if plan.name == server.name]
        gaps = [(later - earlier).total_seconds() for later, earlier in pairwise(times)]
        # Plans of one run are close together; the interval between runs is longer.
        return [gap for gap in gaps if gap > 1.0]

    def _patience(self, server: Server) -> float:
        interval = self.usual_interval(server)
        return _UNKNOWN_INTERVAL if interval is None else max(_PATIENCE * interval, _LEAST_PATIENCE)

    def _has_paused_dag(self, server: Server) -> bool:
        return server.dag_id is not None and self.is_dag_paused(server) is True

    def _since(self, origin: str, latest: Server) -> Overdue:
        """Return that no plan or service came since the latest one, with what to look at."""
        interval = self.usual_interval(latest)
        usual = "" if interval is None else f"; usually every {span(interval)}"
        since = f"since {when(latest.at)} ({span(self._age(latest))}{usual})"
        whose = "" if all(server.takes(origin) for server in self.servers) else f" that takes {origin}"
        brief = f"No block for {span(self._age(latest))}{usual}"
        dag = latest.dag_id
        if dag is None:
            sentence = f"Nothing{whose} has serviced this ring {since}. Is the program of {latest.title} running?"
            return Overdue(sentence, _NO_SERVER, brief=brief)
        state = self.is_dag_paused(latest)
        look = {
            True: f"DAG {dag} is paused.",
            False: f"DAG {dag} is not paused: look at its latest runs.",
            None: f"Is DAG {dag} paused?",
        }[state]
        fix = Remedy(f"the runs of DAG {dag}") if state is False else Remedy("", f"airflow dags unpause {quote(dag)}")
        brief = look.removesuffix(".") if state else brief
        return Overdue(f"No block{whose} has been planned {since}. {look}", fix, brief=brief)


def _at_most(unit: Unit, ring: int, servers: Iterable[Server], paths: bool) -> dict[str, int]:
    """Return the queues that stopped at a *most* in the latest blocks of servers, with the block, while one is set."""
    blocks = sorted(server.block for server in servers)[-_PAGES:]
    pages = [page for block in blocks for page in ledger_pages(unit, ring, 1, block, block)]
    lines = ((page.block, line) for page in pages for line in page.entries)
    latest = {book_name(line.origin, line.priority): (block, line.reason) for block, line in lines}
    found = {name: block for name, (block, reason) in latest.items() if reason == MOST}
    above = {name: paths_of(name, paths) for name in found}
    settings = unit.origins.settings(ring, list(dict.fromkeys(chain.from_iterable(above.values()))))
    mosts = {origin for origin, stored in settings if settings_of(stored).most is not None}
    return {name: block for name, block in found.items() if not mosts.isdisjoint(above[name])}


def _latest_plans(unit: Unit, ring: int) -> list[Server]:
    """Return the latest plans and services of a ring, latest first: of blocks also those that found nothing."""
    found: dict[int, Server] = {}
    for block, at, data, _ in unit.ledger.heads(ring, _PLANS):
        record = codec.unpack_ledger_head(bytes(data)).get("server")
        if record is not None:
            found[block] = server_of(record, block, at)
    for row in unit.blocks.latest(ring, limit=_PLANS):
        planner = _planner(row)
        if planner is not None:
            found[row.number] = planner
    return [found[number] for number in sorted(found, reverse=True)]


def _planner(row: BlockRow) -> Server | None:
    """Return the server that planned a block; None of a message executed by hand."""
    record = row.details_json.get("server")
    return None if record is None else server_of(record, row.number, row.planned_at)
