"""A working set without any database, and a scene on it: small words for messages, a check at the end."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from typing import Any

from airflow_mq.engine.rules import orders
from airflow_mq.engine.rules.book import Book, QueueSettings
from airflow_mq.engine.rules.changes import Changes
from airflow_mq.engine.rules.claims import Claim, Claiming, OneByOne, Scales
from airflow_mq.engine.rules.config import RingConfig
from airflow_mq.engine.rules.deficit import DeficitRounds
from airflow_mq.engine.rules.events import Event
from airflow_mq.engine.rules.invariants import check_book
from airflow_mq.engine.rules.message import Address, Posted
from airflow_mq.engine.rules.outcome import DONE, BadFormat, Done, Outcome, Overweight, StackLimitReached, Yield
from airflow_mq.engine.rules.overweight import find_set_aside, settle_execution
from airflow_mq.engine.rules.page import Facts, Note, Page, Rows
from airflow_mq.engine.rules.service import Ladder
from airflow_mq.engine.rules.settle import Answers, ClaimSettler, Settlement
from airflow_mq.engine.rules.weight import UNLIMITED, LinearWeigher, Meter, Weight
from airflow_mq.engine.rules.working_set import WorkingSet


class MemoryLoader:
    """A loader that has nothing to fetch: all is in memory."""

    def __init__(self, working_set: WorkingSet) -> None:
        self.working_set = working_set
        self.inboxes: dict[str, list[Rows]] = {}
        self.heaps: dict[int, list[bytes]] = {}

    def more(self, *, high: bool) -> list[str]:
        return []

    def look_on(self, most: int, known: Container[str], *, high: bool) -> tuple[list[str], bool]:
        return [], True

    def load_books(self, origins: Iterable[str]) -> None:
        for origin in origins:
            self.working_set.books.setdefault(origin, Book(origin))

    def load_page(self, origin: str, index: int) -> None:
        return

    def load_payloads(self, origin: str, page: Page, stop: int | None = None) -> None:
        page.payloads = [
            self.heaps[part.row_id][at] for part in page.slices for at in range(part.start, part.start + part.items)
        ]
        page.resolved = len(page.slices)

    def facts(self, origin: str, page: Page, first: int, stop: int) -> Facts:
        return Facts({}, {}, {})

    def next_rows(self, origin: str, most: int) -> Rows | None:
        waiting = self.inboxes.get(origin)
        return waiting.pop(0) if waiting else None

    def ticket_for(self, origin: str, row_id: int) -> int | None:
        return None

    def load_groups(self) -> None:
        return

    def keep_posted(self, id_: int, posted: Posted) -> None:
        self.keep(posted.origin, Rows.of_posted(id_, posted), [posted.payload])

    def keep(self, origin: str, rows: Rows, payloads: list[bytes]) -> None:
        self.heaps[rows.row_ids[0]] = payloads
        self.inboxes.setdefault(origin, []).append(rows)

    def arrival(self, address: Address) -> tuple[int, int | None]:
        return self.working_set.now, None

    def line(self) -> list[tuple[str, int]]:
        return [(origin, self.working_set.book(origin).deficit) for origin in self.working_set.ring]

    def settings(self, name: str) -> QueueSettings:
        return self.working_set.book(name).settings


class MemorySet(WorkingSet):
    """Everything in memory; nothing is fetched and nothing is saved."""

    loader: MemoryLoader

    def __init__(self, config: RingConfig, now: int = 1_000_000) -> None:
        super().__init__(config, now, MemoryLoader, listening=True)

    def send(self, origin: str, payloads: Sequence[bytes], notes: dict[int, Note] | None = None) -> None:
        """Enqueue a call, and cut it at once."""
        rows = Rows([len(self.loader.heaps) + 1], [len(payloads)], [*map(len, payloads)], notes or {})
        self.loader.keep(origin, rows, list(payloads))
        self.pull_all(self.book(origin))


#: What the words of a message mean to its processor.
ANSWERS: dict[str, Outcome] = {
    "yield": Yield(), "bad": BadFormat(), "stack": StackLimitReached(), "failure": Done(success=False),
}  # fmt: skip
SMALL = RingConfig(
    heap_size=100, max_stale=2, order="rotation", service_weight=Weight(100, 100),
    weigher=LinearWeigher(Weight(1, 0), Weight(0, 0)),
)  # fmt: skip


class Scene:
    """A queue, a processor that remembers, and a check at the end.

    A message is a word: `weight=4` needs that much time, `yield`, `bad`, `stack` and `failure`
    are answers; anything else is done at a weight of 1.
    """

    def __init__(self, **settings: Any) -> None:
        self.working_set = MemorySet(replace(SMALL, **settings))
        #: What was tried, and what of it was done.
        self.seen: list[str] = []
        self.done: list[str] = []

    def enqueue(self, origin: str, *words: str, **notes: Any) -> None:
        self.working_set.send(
            origin, [word.encode() for word in words], dict.fromkeys(range(len(words)), Note(**notes)) if notes else {}
        )

    def set_origin(self, origin: str, **settings: Any) -> None:
        self.working_set.book(origin).settings = QueueSettings(**settings)

    def _execute(self, book: Book, page: Page, item: int, meter: Meter) -> Outcome:
        word = self.word(book.origin, page, item)
        self.seen.append(word)
        answer = ANSWERS.get(word)
        if answer is not None:
            return answer
        weight = self.weight(book.origin, page, item)
        most = book.settings.most
        if (most is not None and weight.exceeds(most)) or not meter.consume(weight):
            return Overweight(weight)
        self.done.append(word)
        return DONE

    def word(self, origin: str, page: Page, item: int) -> str:
        return self.working_set.payloads(origin, page)[item].decode()

    def weight(self, origin: str, page: Page, item: int) -> Weight:
        _, _, number = self.word(origin, page, item).partition("weight=")
        return Weight(int(number or 1), 0)

    def service(self, time: int = 100, size: int = 100) -> tuple[Weight, orders.Ledger]:
        """Service in place, one message after the other."""
        ladder = self._ladder(Meter(Weight(time, size)), OneByOne(self._execute, self))
        ledger = orders.Ledger()
        self._walk(ladder, ledger)
        self.check()
        return ladder.meter.consumed, ledger

    def plan(self, time: int = 100, size: int = 100) -> list[Claim]:
        """Plan a block on books that are put back afterwards."""
        working_set = self.working_set
        claiming = Claiming(Scales(working_set, self._weigh), merge=working_set.config.order == "deficit")
        kept = {origin: dict(book.__dict__) for origin, book in working_set.books.items()}
        pages = {
            key: (page, page.first_index, bytes(page.marks), page.remaining, page.remaining_size)
            for key, page in working_set.pages.items() if page
        }  # fmt: skip
        order = [origin for origin in self.ring()]
        self._walk(self._ladder(Meter(Weight(time, size)), claiming), orders.Ledger())
        for origin, values in kept.items():
            working_set.books[origin].__dict__.update({**values, "deficit": working_set.books[origin].deficit})
        for key, (page, first, marks, remaining, remaining_size) in pages.items():
            page.first_index, page.marks, page.remaining, page.remaining_size = (
                first,
                bytearray(marks),
                remaining,
                remaining_size,
            )
            working_set.pages[key] = page
        for origin in order:
            if origin not in working_set.ring:
                working_set.ring.knit(origin)
        working_set.changes = Changes()
        working_set.take_hooks()
        self.check()
        return [claim for claim in claiming.claims if any(run.count or run.closed for run in claim.runs)]

    def settle(self, claims: Sequence[Claim], *, silent: Sequence[str] = ()) -> Settlement:
        """Answer by the words; leave those in `silent` without an answer."""
        settler, total = ClaimSettler(self.working_set, UNLIMITED), Settlement()
        for claim in claims:
            answers = Answers()
            for run in claim.runs:
                page = self.working_set.page(claim.origin, run.page)
                for item in run.handed_out():
                    word = self.word(claim.origin, page, item) if page else ""
                    if word not in silent:
                        answers.add(run.page, item, item, ANSWERS.get(word, DONE))
            total.add(settler.settle(claim, answers))
        self.check()
        return total

    def execute(self, origin: str, page: int, index: int, time: int = 1000) -> Weight:
        limit = Weight(time, 1000)
        try:
            book, at = find_set_aside(self.working_set, Address(origin, page, index))
            meter = Meter(limit)
            outcome = self._execute(book, at, index, meter)
            cost = settle_execution(self.working_set, book, at, index, outcome, meter.consumed, limit, "me")
            return meter.consumed.plus(cost)
        finally:
            self.check()

    def _weigh(self, origin: str, payloads: Sequence[bytes]) -> list[Weight]:
        return [Weight(int(payload.partition(b"weight=")[2] or 1), 0) for payload in payloads]

    def _ladder(self, meter: Meter, attempt: Any) -> Ladder:
        return Ladder(self.working_set, meter, attempt)

    def _walk(self, ladder: Ladder, ledger: orders.Ledger) -> None:
        order = self.working_set.config.order
        if order == "rotation":
            orders.Rotation(ladder, ledger).run()
        elif order == "shuffle":
            orders.Shuffle(ladder, ledger, None, b"seed").run()
        else:
            DeficitRounds(ladder, ledger).run([o for o, b in self.working_set.books.items() if b.settings.least])

    # What it came to.

    def ring(self) -> list[str]:
        found: list[str] = []
        origin = self.working_set.ring.head()
        while origin is not None:
            found.append(origin)
            origin = self.working_set.ring.next_in_line(origin)
        return found

    def told(self) -> list[str]:
        """The events so far: name and message."""
        return [f"{event.name} {event.origin}:{event.page}:{event.index}" for event in self.events()]

    def events(self) -> list[Event]:
        return [event for run in self.working_set.changes.events for event in run.unroll()]

    def footprint(self, origin: str) -> tuple[int, int, int, int]:
        one = self.working_set.book(origin).footprint
        return one.pages, one.ready_pages, one.count, one.size

    def check(self) -> None:
        """Every invariant, after every step."""
        for origin, book in self.working_set.books.items():
            pages = {index: page for (whose, index), page in self.working_set.pages.items() if whose == origin and page}
            found = list(check_book(book, pages, origin in self.working_set.ring, self.working_set.config.heap_size))
            assert found == []
