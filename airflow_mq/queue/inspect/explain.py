"""Why does it wait, when will it run, and what would change that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from ...core.blob import Reference
from ...core.book import Book
from ...core.claims import ClaimRun, Decision, Scales, Verdict
from ...core.config import DAY
from ...core.events import NOT_TRIED, Event, Fate
from ...core.groups import is_below, names_above
from ...core.judging import ATTEMPTS, FRACTION, MOST, OVERWEIGHT, SIZE, SWEPT, bounds_of, in_words
from ...core.message import Address, check_address, check_number, check_origin
from ...core.page import ASIDE, PROCESSED, WAITING, Page
from ...core.priority import REGULAR, book_name, books_of, check_priority, origin_of, priority_of
from ...core.service import overweight_limit
from ...core.weight import LARGEST, ZERO, Weight, max_message_weight
from ...store import blobs, codec
from ...store.rows import PLANNED, BlockRow, standing_of
from ...store.unit import Unit
from ...words import many, when
from ..ledger import ledger_pages
from ..servers import Server, servers_of
from ..session import RingSession
from ..values import moment
from .forecast import Conditions, ForecastBlock, Foresight
from .page import States
from .reading import Reader, in_flight, page_at

#: How many blocks an explanation looks ahead.
AHEAD = 100
#: How many pages of the ledger are searched for queues that wait behind a message heavier than the block.
LEDGER_PAGES = 20
#: How many of a queue's last events are looked through for what became of a message.
LOOKED_AT = 1_000


@dataclass(frozen=True)
class Explanation:
    """Why a message waits, or the first one of a queue."""

    origin: str
    #: The message; of a queue, the first one that waits.
    address: Address | None
    #: In a word: `next` (it does not wait for long), `turn`, `limit`, `spent`, `behind`, `overweight`, `expired`,
    #: `paused`, `in flight`, `reported`, `backoff`, `not due`, `set aside`, `gone`, `empty`, `nowhere`, `chance`,
    #: `stuck` (its queue waits behind a message that is heavier than any block that services it), or `unserved` (no DAG
    #: or program that services the ring takes this origin).
    reason: str
    #: The same in a sentence.
    sentence: str
    #: In which of the next blocks it is tried if nothing changes, from 1; none where that is never, or nobody knows.
    block: int | None = None
    #: What would change that.
    remedies: Sequence[str] = ()
    #: How many attempts failed so far.
    attempts: int = 0
    #: Why the latest of them failed, or what kept the message from its processor.
    last_error: str = ""


@dataclass(frozen=True)
class _Held:
    """What a live block holds of a queue."""

    block: BlockRow
    runs: Sequence[ClaimRun]

    def run_of(self, address: Address) -> ClaimRun | None:
        found = (run for run in self.runs if run.page == address.page)
        return next((run for run in found if run.first <= address.index < run.first + run.count), None)


class Explanations:
    """Reasons for which messages wait."""

    def __init__(self, session: RingSession) -> None:
        self.session, self.store, self.ring_id = session, session.store, session.ring_id
        self._reader, self._states = Reader(session), States(session)

    def explain(
        self, origin: str, *, limit: Weight | None = None, seed: bytes | None = None, ahead: int = AHEAD,
        priority: str | None = None, below: bool = False,
    ) -> Explanation:  # fmt: skip
        """See `Inspect.explain`."""
        check_origin(origin)
        check_number(ahead, "a number of blocks")
        return self._with_last_error(self._explained(origin, limit, seed, ahead, priority, below))

    def _explained(
        self, origin: str, limit: Weight | None, seed: bytes | None, ahead: int, priority: str | None, below: bool
    ) -> Explanation:
        with self.store.reading() as unit:
            if below:
                future = Foresight(self.session, unit, Conditions(limit, seed=seed))
                name = self._first_below(future, origin, ahead)
                origin, priority = origin_of(name), priority_of(name)
            name = book_name(origin, check_priority(priority or REGULAR))
            if priority is None and self.session.remember_config(unit.rings.named(self.session.ring).config).high:
                high, found = (_Asked(self.session, unit, one, limit, seed, ahead).queue() for one in books_of(origin))
                # Of a high one that waits; one in flight or set aside does not hide the regular ones that wait.
                return high if high.address or (found.reason == "empty" and high.reason != "empty") else found
            return _Asked(self.session, unit, name, limit, seed, ahead).queue()

    def stuck(self, most: int = 100) -> list[Explanation]:
        """See `Inspect.stuck`."""
        with self.store.reading() as unit:
            if not servers_of(unit, self.ring_id):
                return []
            working_set = self.session.fresh_working_set(unit)
            rings = [working_set.high, working_set.ring] if working_set.config.high else [working_set.ring]
            lines = [
                one for page in ledger_pages(unit, self.ring_id, LEDGER_PAGES) for one in page.entries if one.needs
            ]
            names = [book_name(one.origin, one.priority) for one in lines[:most]]
            names += [name for ring in rings for name in islice(ring, most)][:most]
            found = (_Asked(self.session, unit, name, None, None, 0).stuck() for name in dict.fromkeys(names))
            return [one for one in found if one is not None]

    def _first_below(self, future: Foresight, name: str, ahead: int) -> str:
        """The book of this group that a block takes something of first; else the first that is ready."""
        working_set = future.working_set()
        rings = [working_set.high, working_set.ring] if working_set.config.high else [working_set.ring]
        ready = [one for ring in rings for one in ring if is_below(origin_of(one), name)]
        if not ready:
            return name
        claims = (claim for block in future.blocks(ahead) for claim in block.claims if claim.messages)
        return next((one.origin for one in claims if is_below(origin_of(one.origin), name)), ready[0])

    def explain_message(
        self, address: Address, *, limit: Weight | None = None, seed: bytes | None = None, ahead: int = AHEAD
    ) -> Explanation:
        """See `Inspect.explain_message`."""
        check_address(address)
        check_number(ahead, "a number of blocks")
        with self.store.reading() as unit:
            found = _Asked(self.session, unit, address.book, limit, seed, ahead).message(address)
        return self._with_fate(found) if found.reason == "gone" else self._with_last_error(found)

    def _with_last_error(self, found: Explanation) -> Explanation:
        """Add how often a message was tried, and why it went back the last time."""
        event = None if found.address is None else self._last_return(found.address)
        if found.address is None or not (found.attempts or event):
            return found
        error = " ".join(event.last_error.split()) if event is not None else ""
        tried = [f"it was tried {many(found.attempts, 'time')} without success"] if found.attempts else []
        if event is not None and error.startswith(NOT_TRIED):
            block = "" if event.block is None else f" in block {event.block}"
            tried.append(f"it was {error.replace(NOT_TRIED, f'not tried{block}:', 1)}")
        elif error:
            tried.append(f"the last error: {error}")
        sentence = "; ".join([found.sentence.removesuffix("."), *tried])
        return replace(found, sentence=f"{sentence}.", last_error=error)

    def _last_return(self, address: Address) -> Event | None:
        """The latest of the last events of its queue that says why a message went back, or was tried too often."""
        events, _ = self._states.latest_events(limit=LOOKED_AT, origin=address.origin)
        return next((event for event in events if _says_why(event, address)), None)

    def _with_fate(self, found: Explanation) -> Explanation:
        """What is gone may have left an event."""
        address, fate = found.address, None
        for event in self._reader.events(origin=found.origin):
            if event.address == address:
                fate = event
        if fate is None:
            return found
        block = "" if fate.block is None else f" in block {fate.block}"
        more = f" to {fate.detail}" if fate.fate is Fate.TRANSFERRED else ""
        if fate.moved_to is not None:
            page, index = fate.moved_to
            more = f"; it goes on at {replace(fate.address, page=page, index=index)}"
        return replace(found, sentence=f"{address} is gone: {fate.name}{block}{more}.")


class _Asked:
    """A question about one queue, or one of its messages."""

    def __init__(
        self, session: RingSession, unit: Unit, origin: str, limit: Weight | None, seed: bytes | None, ahead: int
    ) -> None:
        self.session, self.real, self.name, self.ahead = session, unit, origin, ahead
        #: The DAG or program whose blocks service this queue, where the caller names no limit.
        self.server: Server | None = None
        #: Whose queue it is, as it is told.
        self.origin = origin_of(origin)
        self.known = (
            seed is not None or session.remember_config(unit.rings.named(session.ring).config).order != "shuffle"
        )
        self.conditions = Conditions(limit, seed=seed if self.known else b"nobody knows")
        #: All servers of the ring, and those that take this origin.
        self.all_servers = servers_of(unit, session.ring_id) if limit is None else []
        self.servers = [one for one in self.all_servers if one.takes(self.origin)]
        if self.servers:
            self.server = self.servers[0]
            self.conditions = self.conditions.of(self.server)
        self.future = Foresight(session, unit, self.conditions)
        self.overlay = self.future.overlay
        self.working_set = self.future.working_set()
        self.book: Book = self.working_set.book(self.name)
        self.held = list(self._held([self.name]))
        self.taken = {
            (run.page, item)
            for one in self.held for run in one.runs for item in range(run.first, run.first + run.count)
        }  # fmt: skip

    # What is asked.

    def queue(self) -> Explanation:
        """Why the first message waits."""
        return self._with_attempts(self._of_first())

    def message(self, address: Address) -> Explanation:
        """Why this message waits."""
        return self._with_attempts(self._of_message(address))

    def _with_attempts(self, found: Explanation) -> Explanation:
        page = None if found.address is None else self.working_set.page(self.name, found.address.page)
        if page is None or found.address is None or found.address.index >= len(page.lengths):
            return found
        return replace(found, attempts=page.note(found.address.index).attempts)

    def _of_first(self) -> Explanation:
        address = self._first_waiting()
        if address is None:
            return self._nothing_waits()
        return self._waits(address, f"the first message of {self.origin}, {address},")

    def stuck(self) -> Explanation | None:
        """Explain that no server takes the queue, or carries its first message; nothing, if one does."""
        address = None if self.book.skipped else self._first_waiting()
        subject = f"the first message of {self.origin}, {address},"
        return None if address is None else self._unserved(address, subject) or self._stuck(address, subject)

    def _of_message(self, address: Address) -> Explanation:
        for held in self.held:
            run = held.run_of(address)
            if run is not None:
                return self._is_held(address, held, run.decisions.get(address.index))
        page = page_at(self.working_set, address)
        if page is None or address.index >= len(page.lengths):
            return self._is_not_there(address)
        mark = page.marks[address.index]
        if mark == PROCESSED:
            return Explanation(self.origin, address, "gone", f"{address} is gone: it was processed, or dropped.")
        if mark == ASIDE or address.page < self.book.begin:
            return self._is_set_aside(address)
        return self._waits(address, str(address))

    # What may stand in its way.

    def _nothing_waits(self) -> Explanation:
        if self.held:
            sentence = f"all that waits of {self.origin} is in flight, in {self._holders()}."
            return self._of_queue("in flight", sentence, _UNHOLD)
        count, due = self.real.inbox.delayed_of(self.session.ring_id, self.name, self.overlay.now)
        if due is not None:
            sentence = f"{_messages(count, f' of {self.origin}')} not due before {when(moment(due))}."
            return self._of_queue("not due", sentence, "nothing but time: whoever sent it said when")
        if self.book.message_count:
            return self._of_queue(
                "set aside", f"all that is left of {self.origin} is set aside ({self.book.message_count:,}), "
                "and waits for a person.", f"airflow-mq set-aside list --origin {self.origin}",
            )  # fmt: skip
        return self._of_queue("empty", f"{self.origin} has no messages.")

    def _of_queue(self, reason: str, sentence: str, *remedies: str) -> Explanation:
        return Explanation(self.origin, None, reason, sentence, None, remedies)

    def _is_held(self, address: Address, held: _Held, decision: Decision | None) -> Explanation:
        if decision is not None:
            # It goes to no processor: what becomes of it was decided when the block was planned.
            if decision.verdict is Verdict.EXPIRED:
                sentence = f"nobody wants {address} any more: it is dropped when {_named(held.block)}, is settled."
            else:
                why = in_words(decision.reason, decision.weight, decision.limit, self._extent(address))
                sentence = f"{address} is set aside when {_named(held.block)}, is settled: {why}."
            return Explanation(self.origin, address, "in flight", sentence, None, (_UNHOLD,))
        if (address.page, address.index) in in_flight(self.real, self.session.ring_id, self.name)[1]:
            sentence = f"{address} was answered for in block {held.block.number}, and goes when that is settled."
            return Explanation(self.origin, address, "reported", sentence, None, (_UNHOLD,))
        doing = "is being executed by hand" if held.block.by_hand else "is being processed"
        sentence = f"{address} {doing} in {_named(held.block)}."
        return Explanation(self.origin, address, "in flight", sentence, None, (_UNHOLD,))

    def _is_not_there(self, address: Address) -> Explanation:
        if address.page < self.book.end and self.working_set.page(self.name, address.page) is None:
            return Explanation(self.origin, address, "gone", f"{address} is gone: it was processed, or dropped.")
        later = self.real.inbox.delayed_of(self.session.ring_id, self.name, self.overlay.now)[0]
        more = f"; {_messages(later)} not due yet, and have no address" if later else ""
        return Explanation(self.origin, address, "nowhere", f"no message was ever at {address}{more}.")

    def _is_set_aside(self, address: Address) -> Explanation:
        rows = self.real.set_aside.of_pages(self.session.ring_id, [(self.name, address.page)])
        row = next((row for row in rows if row.item == address.index), None)
        behind = row is None and address.page < self.book.begin
        reason = row.reason if row is not None else SWEPT if behind else ATTEMPTS
        weight = codec.unpack_weight(row.weight) if row is not None else None
        limit = codec.unpack_weight(row.weight_limit) if row is not None else None
        why = in_words(reason, weight, limit, self._extent(address))
        raised = (
            (f"a higher limit, then airflow-mq set-aside requeue {address} --why …",)
            if row is not None and reason in _LIMITS
            else ()
        )
        return Explanation(
            self.origin, address, "set aside", f"{address} is set aside: {why}; it waits for a person.", None,
            (f"airflow-mq set-aside execute {address} --processor module:function", *raised,
             f"airflow-mq set-aside discard {address} --why …"),
        )  # fmt: skip

    def _waits(self, address: Address, subject: str) -> Explanation:
        if self.book.skipped:
            reason, sentence, *remedies = self._skipped()
            return Explanation(self.origin, address, reason, sentence, None, remedies)
        hindered = self._unserved(address, subject) or self._stuck(address, subject)
        if hindered is not None:
            return hindered
        if not self.known:
            return Explanation(
                self.origin, address, "chance",
                f"{subject} waits for its turn, which is drawn anew for each block, as this ring shuffles.", None,
                ("say the seed of the next blocks to know",),
            )  # fmt: skip
        first: ForecastBlock | None = None
        for block in self.future.blocks(self.ahead):
            first = first or block
            verdict = block.verdict(address)
            if verdict is not None:
                return self._is_taken(address, subject, first, block, verdict)
        reason, why = self._reason(address, first)
        sentence = f"{subject} is not tried in the next {self.ahead:,} blocks: {why}."
        return Explanation(self.origin, address, reason, sentence, None, self._remedies(address, reason, self.ahead))

    def _unserved(self, address: Address, subject: str) -> Explanation | None:
        """Explain that no server of the ring takes this origin; nothing, if one does, or if none is known."""
        if self.servers or not self.all_servers:
            return None
        named = "; ".join(f"{one.name} takes {one.patterns}" for one in self.all_servers[:_NAMED])
        more = f"; and {len(self.all_servers) - _NAMED:,} more" if len(self.all_servers) > _NAMED else ""
        return Explanation(
            self.origin, address, "unserved",
            f"{subject} waits for a processor: no DAG or program that services this ring takes {self.origin} "
            f"({named}{more}).", None,
            (f"a processor whose origins match {self.origin}, in one of these DAGs or in another",),
        )  # fmt: skip

    def _stuck(self, address: Address, subject: str) -> Explanation | None:
        """Explain that the first message of this queue is heavier than the blocks that service it; nothing, if not."""
        first, config, limit = self._first_waiting(), self.future.config, self.future.limit
        weight = self._weight(first) if first is not None else None
        room = max_message_weight(limit, config.costs) or ZERO
        if first is None or weight is None or not weight.exceeds(room):
            return None
        bounds = bounds_of(config, overweight_limit(self.working_set, limit)).of(self.book.standing.most)
        if bounds.exceeded(weight, self._extent(first)) or self._another_carries(weight):
            return None
        whose = f"blocks of {self.server.name}" if self.server is not None else "such blocks"
        what = f"needs {weight}" if first == address else f"waits behind {first}, which needs {weight}"
        least = limit.at_least(weight.plus(config.costs.overhead))
        return Explanation(
            self.origin, address, "stuck",
            f"{subject} {what}, more than the {room} that {whose} can carry: it stays where it is.", None,
            (f"a limit of at least {least} for these blocks",
             "setting it aside: airflow-mq ring change --set set_aside_above=block"),
        )  # fmt: skip

    def _another_carries(self, weight: Weight) -> bool:
        """Look ahead with the blocks of another server, if one of them can carry a message of this weight."""
        for server in self.servers:
            room = server.room_in(self.future.config)
            if room is None or not weight.exceeds(room):
                self.server, self.conditions = server, self.conditions.of(server)
                self.future = Foresight(self.session, self.real, self.conditions)
                return True
        return False

    def _skipped(self) -> Sequence[str]:
        if self.book.skipped == "paused":
            rows = self.real.origins.paused(self.session.ring_id, self.overlay.now)
            names = {self.origin, *(names_above(self.origin) if self.future.config.paths else ())}
            whose, why, actor, _, until, below = next(
                row for row in rows if row.origin == self.origin or (row.origin in names and row.below)
            )
            ends = "" if until is None else f" until {when(moment(until))}"
            what = f"{whose}, with all below it," if below else whose
            sentence = f"{what} is paused{ends} by {actor}{': ' if why else ''}{why}."
            return "paused", sentence, f"airflow-mq queue resume {whose}"
        if self.book.skipped == "in flight":
            sentence = f"{self.origin} is ordered, and messages before it are in flight, in {self._holders()}."
            return "in flight", sentence, _UNHOLD
        wake_at = self.working_set.stored[self.name].row.wake_at
        sentence = f"a message of {self.origin} went back; its queue is tried again from {when(moment(wake_at))} on."
        return "backoff", sentence, "a shorter backoff of the ring, for what goes back from then on"

    # In which block, and why not before.

    def _is_taken(
        self, address: Address, subject: str, first: ForecastBlock, block: ForecastBlock, verdict: str
    ) -> Explanation:
        whose = f" of {self._server_and_age(self.server)}" if self.server is not None and self.server.is_dag else ""
        when = f"the next block{whose}" if block.number == 1 else f"block {block.number}{whose} from now"
        if verdict == "expired":
            sentence = f"nobody wants {address} any more: {when} drops it."
            again = "that it is sent again, to expire later"
            return Explanation(self.origin, address, "expired", sentence, block.number, (again,))
        if verdict == "set aside":
            return self._is_too_much(address, subject, when, block)
        if block.number == 1:
            sentence = f"{subject} runs in {when}{self._lacks(address)}."
            return Explanation(self.origin, address, "next", sentence, 1)
        reason, why = self._reason(address, first)
        sentence = f"{subject} runs in {when}: {why}{self._lacks(address)}."
        return Explanation(
            self.origin, address, reason, sentence, block.number, self._remedies(address, reason, block.number - 1)
        )

    def _server_and_age(self, server: Server) -> str:
        """Name a server; with the time of its latest block, where that is long ago: it may be gone."""
        age = (moment(self.overlay.now) - server.at).total_seconds()
        return f"{server.name} (which planned its last block at {when(server.at)})" if age > DAY else server.name

    def _lacks(self, address: Address) -> str:
        """Whether a payload that is kept apart is there by then: without it, who reads it finds nothing."""
        page = self.working_set.page(self.name, address.page)
        if page is None or not page.note(address.index).blob:
            return ""
        working_set = self.session.fresh_working_set(self.real)
        page = page_at(working_set, address)
        reference = working_set.payloads(self.name, page)[address.index] if page is not None else None
        if not isinstance(reference, Reference) or blobs.is_there(self.session.store, self.real, reference):
            return ""
        return f"; its payload {reference.hash.hex()} is not there, so it is dropped then as Unsupported"

    def _is_too_much(self, address: Address, subject: str, when: str, block: ForecastBlock) -> Explanation:
        """It will be set aside: by which limit, and which setting would change that."""
        decision = block.decision(address)
        assert decision is not None
        reason, weight, size = decision.reason, decision.weight, self._extent(address)
        why = in_words(reason, weight, decision.limit, size).removeprefix("it ")
        # What a block may cost beside the message: as much as now.
        wider = Weight(*(now + max(part - most, 0) for now, part, most in zip(block.limit, weight, decision.limit)))
        remedy = {
            MOST: f"a most that allows {weight}: airflow-mq queue set {self.origin} --most …",
            FRACTION: f"a most_of_limit that allows {weight}: airflow-mq ring change --set most_of_limit=…",
            SIZE: f"a max_message_size of {size}: airflow-mq ring change --set max_message_size={size}",
        }.get(
            reason,
            f"a limit that leaves {weight} for a message: "
            f"airflow-mq ring change --service-weight {wider[0]}/{wider[1]}",
        )
        sentence = f"{subject} {why}: {when} sets it aside."
        return Explanation(self.origin, address, "overweight", sentence, block.number, (remedy,))

    def _extent(self, address: Address) -> int:
        page = self.working_set.page(self.name, address.page)
        return page.extent(address.index) if page is not None else 0

    def _reason(self, address: Address, first: ForecastBlock | None) -> tuple[str, str]:
        behind = self._behind(address)
        if behind:
            return "behind", f"{behind:,} of its own queue come before it"
        weight, reason = self._weight(address), first.queue(self.origin, priority_of(self.name)).reason if first else ""
        if reason == "spent" and self.future.config.paths:
            return "spent", "it, or a group that holds it, had its share or its most of the blocks before"
        if reason == "spent":
            return "spent", f"it weighs {weight}, for which its queue has not saved enough yet"
        if reason == "limit" and first and not _is_full(first, weight):
            return "limit", f"it weighs {weight}, more than others leave of the blocks before"
        return "turn", "the blocks before are full when its turn would come"

    def _remedies(self, address: Address, reason: str, most: int) -> list[str]:
        """What brings it forward: found by trying."""
        limit, found = self.future.limit, []
        for times in _WIDER:
            wider = Weight(min(times * limit[0], LARGEST), min(times * limit[1], LARGEST))
            sooner = self._first_block(address, replace(self.conditions, limit=wider), most)
            if sooner:
                found.append(f"with a limit of {wider}, it runs in block {sooner} from now")
                break
        # A share counts where it is visited, and the turn comes when it comes.
        if self.future.config.order == "deficit" and reason != "turn":
            share = min(2 * self.book.standing.share, 1 << 20)
            sooner = self._first_block(address, replace(self.conditions, shares={self.origin: share}), most)
            if sooner:
                found.append(f"with a share of {share}, it runs in block {sooner} from now")
        if self.future.config.order == "deficit":
            found += self._wider_most(address, most)
        else:
            changes = {**self.conditions.changes, "order": "deficit"}
            sooner = self._first_block(address, replace(self.conditions, changes=changes), most)
            if sooner:
                found.append(f"in the order deficit, it runs in block {sooner} from now")
        return found or [_ONLY_MORE]

    def _wider_most(self, address: Address, most: int) -> Iterator[str]:
        """What a block may give to the origin, or to a group that holds it, if twice as much brings it forward."""
        names = [self.origin, *(names_above(self.origin) if self.future.config.paths else ())]
        for name, said in self.real.origins.settings(self.session.ring_id, names):
            now = standing_of(said).most
            if now is None:
                continue
            wider = Weight(*(min(2 * part, LARGEST) for part in now))
            sooner = self._first_block(address, replace(self.conditions, mosts={name: wider}), most)
            if sooner:
                yield f"with a most of {wider} for {name}, it runs in block {sooner} from now"

    def _first_block(self, address: Address, conditions: Conditions, most: int) -> int | None:
        blocks = Foresight(self.session, self.real, conditions).blocks(most)
        return next((block.number for block in blocks if block.verdict(address) == "processed"), None)

    # What lies there.

    def _held(self, names: Sequence[str]) -> Iterator[_Held]:
        """The live blocks that hold something of these books."""
        if not self.overlay.claims_of(names):
            return
        for block in self.real.blocks.latest(self.session.ring_id, PLANNED):
            for origin, data in self.real.blocks.claims(block.id) if block.deadline > self.overlay.now else ():
                if origin in names:
                    yield _Held(block, codec.unpack_claim(origin, bytes(data)).runs)

    def _holders(self) -> str:
        held = self._held(books_of(self.origin))
        return " and ".join(dict.fromkeys(_named(one.block) for one in held if not one.block.by_hand))

    def _first_waiting(self) -> Address | None:
        index = self.book.begin
        while index < self.book.end or self.working_set.pull(self.book):
            page = self.working_set.page(self.name, index)
            for item in self._waiting(page) if page is not None else ():
                return Address(self.name, index, item)
            if index < self.book.end - 1 or not self.working_set.pull(self.book):
                index += 1
        return None

    def _waiting(self, page: Page) -> Iterator[int]:
        for item, mark in enumerate(page.marks):
            if mark == WAITING and (page.index, item) not in self.taken:
                yield item

    def _behind(self, address: Address) -> int:
        """How many messages of its own queue come before it."""
        count = 0
        for index in range(self.book.begin, address.page + 1):
            page = self.working_set.page(self.name, index)
            if page is not None:
                count += sum(1 for item in self._waiting(page) if index < address.page or item < address.index)
        return count

    def _weight(self, address: Address) -> Weight | None:
        page = self.working_set.page(self.name, address.page)
        return None if page is None else Scales(self.working_set).weight(self.name, page, address.index)


def _says_why(event: Event, address: Address) -> bool:
    """Whether an event says why a message went back; of those behind it, only where none was tried."""
    if event.fate not in (Fate.WENT_BACK, Fate.ATTEMPTS_EXHAUSTED):
        return False
    if event.address == address:
        return True
    up_to = event.untried_up_to
    here, there = (address.page, address.index), (event.page, event.index)
    same = event.priority == address.priority and event.why.startswith(NOT_TRIED)
    return same and up_to is not None and there < here <= up_to


def _is_full(block: ForecastBlock, weight: Weight | None) -> bool:
    """Whether nothing at all is left in a block of what a message needs."""
    left = [block.limit[part] - block.planned[part] - block.overhead[part] for part in (0, 1)]
    return weight is not None and any(weight[part] and not left[part] for part in (0, 1))


#: Why a message is set aside that a higher limit would let go on.
_LIMITS = (OVERWEIGHT, MOST, FRACTION, SIZE)
#: By how much a limit is widened to see whether that helps.
_WIDER = (2, 8, 64)
_ONLY_MORE = "blocks more often: no wider limit or most, larger share or other order that was tried brings it forward"
#: How many servers an explanation names.
_NAMED = 4
_UNHOLD = "that block settled or, if nobody works for it, released: airflow-mq block list --state planned"


def _named(block: BlockRow) -> str:
    return f"block {block.number}, which lives until {when(moment(block.deadline))}"


def _messages(count: int, whose: str = "") -> str:
    return f"{count:,} messages{whose} are" if count != 1 else f"1 message{whose} is"
