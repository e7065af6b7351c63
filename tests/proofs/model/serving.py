"""Rules that service in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from airflow_mq import (
    Done,
    Overweight,
    Weight,
    Yield,
    batch_processor,
)
from airflow_mq.testing import RecordingProcessor, Script

from .drawn import limits, origins
from .ground import Ground
from .ladder import InPlace, Meter, answered, apply, barred_in_place
from .plain import WAITING, Book, Event, Item, Page, Pair, exceeds
from .settling import send
from .sides import Side


class NotingProcessor(RecordingProcessor):
    """A processor that also records the place of each message, and its remaining limit."""

    def __init__(self, yielding: frozenset[str]) -> None:
        super().__init__()
        self.yielding = set(yielding)
        self.notes: list[tuple[str, int, int, Pair]] = []

    def __call__(self, delivery: Any) -> Any:
        self.notes.append((delivery.origin, delivery.page, delivery.index, tuple(delivery.meter.left)))
        return super().__call__(delivery)


class Serving(Ground):
    """Rules that call processors in this process, one by one or in batches."""

    @precondition(lambda self: self.plain.ring)
    @rule(limit=st.none() | limits, yielding=st.frozensets(origins, max_size=1) | st.just(frozenset()),
          slices=st.sampled_from([1, 2, 1000]))  # fmt: skip
    def service(self, limit: Pair | None, yielding: frozenset[str], slices: int) -> None:
        config = self.plain.config
        self.happened()
        if config.service_weight is None and limit is None:
            limit = (12, 12)
        given: Pair = limit or tuple(config.service_weight)  # type: ignore[arg-type]
        meter = Meter(given)
        notes: list[Any] = []

        def real(side: Side) -> tuple[Any, ...]:
            processor = NotingProcessor(yielding)
            result = side.queue.service_queues(
                processor,
                Weight(*given),
                slice_messages=slices,
                seed=b"shuffled",
            )
            notes[:] = processor.notes
            return tuple(result.weight), processor.seen, processor.notes

        if config.order == "rotation":
            walk = InPlace(self.plain, meter)
            walk.yielding = yielding
            weight, seen, _ = self.sides.do(real)
            walk.run()
            assert seen == walk.tried
            assert weight == meter.used
        else:
            weight, seen, _ = self.sides.do(real)
            assert not exceeds(weight, given)
            # Follow one by one: the messages that a delivery sends are in a book when the next one is tried.
            self.follow(given, (
                (origin, page, at, *answered(self.item(origin, page, at), Meter(left), yielding))
                for origin, page, at, left in notes
            ))  # fmt: skip

    def item(self, origin: str, page: int, at: int) -> Item:
        items = self.plain.book(origin).pages[page].items
        assert at < len(items)
        return items[at]

    def follow(self, limit: Pair, tried: Any) -> None:
        """Apply the tried messages, each the next of its queue, and drop expired ones on the way."""
        plain, stored = self.plain, self.sides.do(Side.state)

        def was_left(book: Book, page: Page) -> bool:
            """Return whether the window moved past a fully tried page, because that step was paid."""
            if page.first < len(page.items) or not page.left:
                return False
            stored_page = stored[book.origin]["pages"].get(page.index)
            return stored_page is None or len(stored_page[1]) == len(page.items)

        plain.was_left, events = was_left, self.new_events_in_order()
        for origin, page, at, answer, sent in tried:
            book = plain.book(origin)
            assert not plain.is_skipped(book, in_place=True), "a skipped queue was serviced"
            if sent:
                # The sent messages go into pages that earlier steps left or filled.
                for other in plain.books:
                    earlier = events[: events.index(Event("Processed", origin, page, at))]
                    self.drop_on_the_way(other, None, limit, earlier)
            self.close_done((origin, page))
            self.drop_on_the_way(origin, (page, at), limit, events)
            waiting = [(p, i) for p, i, item in book.window() if item.state == WAITING]
            assert waiting[0] == (page, at), "tried out of order"
            apply(plain, book.pages[page], at, book.pages[page].items[at], answer, sent, limit)
        for book in plain.books.values():
            self.drop_on_the_way(book.origin, None, limit, events)
        plain.was_left = lambda book, page: False
        self.adopt_windows()

    def close_done(self, but: tuple[str, int]) -> None:
        """Remove a processed page when its queue has been serviced, or the next page is started."""
        for origin, book in self.plain.books.items():
            for index in [index for index, page in book.pages.items() if not page.left and (origin, index) != but]:
                self.plain.close_page(book, index)

    def drop_on_the_way(
        self, origin: str, before: tuple[int, int] | None, limit: Pair, events: Sequence[Event]
    ) -> None:
        """Drop the expired and barred messages whose events were recorded."""
        plain = self.plain
        for page, at, item in plain.book(origin).window():
            if before is not None and (page, at) >= before:
                return
            if item.state != WAITING:
                continue
            expired = item.expires is not None and item.expires <= self.clock.now
            barred = barred_in_place(plain, item, limit)
            name = "Expired" if expired else "SetAside"
            if not (expired or barred) or (before is None and Event(name, origin, page, at) not in events):
                return
            if expired:
                plain.gone(name, page, at, item)
            else:
                plain.aside(name, page, at, item, barred, plain.weight(item))

    def adopt_windows(self) -> None:
        """Adopt the stored windows, which depend on paid steps; all messages before them must be tried."""
        books = self.sides.do(Side.state)
        for origin, book in self.plain.books.items():
            for index in [index for index, page in book.pages.items() if not page.left]:
                del book.pages[index]
            if origin in books:
                book.begin = self.checked_begin(book, books[origin]["begin"])
            self.plain.unknit_if_empty(book)
        order = self.sides.do(lambda side: side.queue.inspect.ring_order(100))
        assert sorted(order) == sorted(self.plain.ring)
        self.plain.ring = order

    def checked_begin(self, book: Any, begin: int) -> int:
        assert book.begin <= begin <= book.end
        for index in range(book.begin, begin):
            page = book.pages.get(index)
            assert page is None or all(item.state != WAITING for item in page.items), (
                f"the window of {book.origin} moved past {index} of {page.items}, with {self.new_events()}"
            )
        return begin

    @precondition(lambda self: self.plain.ring)
    @rule(limit=limits, seed=st.integers(0, 3))
    def service_batches(self, limit: Pair, seed: int) -> None:
        """Service with a batch processor that answers for all messages at once, or for each."""
        self.happened()
        batches: list[Any] = []

        def real(side: Side) -> tuple[Any, ...]:
            batches.clear()
            # Messages would carry traces, and none of them has one.
            side.queue.session.traces = seed % 2 == 1

            def process(batch: Any) -> Any:
                answers = None if seed == 0 else [self.batch_answer(payload, seed) for payload in batch.payloads]
                batches.append((batch.origin, batch.page, batch.first, list(batch.payloads), answers))
                return answers

            result = side.queue.service_queues(batch_processor(process), Weight(*limit), seed=b"shuffled")
            return tuple(result.weight), list(batches)

        weight, _ = self.sides.do(real)
        assert not exceeds(weight, limit)
        plain, meter = self.plain, Meter(limit)
        for origin, first_page, first, payloads, answers in batches:
            book = plain.book(origin)
            assert not plain.is_skipped(book, in_place=True) or book.wake_at > self.clock.now
            self.drop_decided(origin, (first_page, first), limit)
            page, stopped = book.pages[first_page], False
            waiting = [(p, i) for p, i, item in book.window() if item.state == WAITING]
            assert waiting[: len(payloads)] == [(first_page, first + i) for i in range(len(payloads))]
            assert [page.items[first + i].payload for i in range(len(payloads))] == payloads
            for at, outcome in enumerate(answers or [Done()] * len(payloads), start=first):
                item = page.items[at]
                assert meter.pay(plain.weight(item)), "the processed messages exceed the limit"
                plain.charge(item, planned=plain.weight(item))
                if isinstance(outcome, Yield):
                    if not stopped or plain.puts_off(origin):
                        plain.charge_attempt(item, plain.weight(item), finished=False)
                        stopped = plain.gives_back(page.index, at, item) or stopped
                elif isinstance(outcome, Overweight):
                    reasons = plain.reasons(origin, tuple(outcome.weight), limit)
                    if reasons and not stopped:
                        plain.aside("SetAside", page.index, at, item, reasons, tuple(outcome.weight))
                    else:
                        stopped = True
                else:
                    plain.charge_attempt(item, plain.weight(item), finished=True)
                    plain.gone("Processed" if isinstance(outcome, Done) else "ProcessingFailed", page.index, at, item)
                    send(plain, outcome)
        for book in plain.books.values():
            self.drop_decided(book.origin, None, limit)
        self.adopt_windows()

    def batch_answer(self, payload: bytes, seed: int) -> Any:
        script = Script.read(payload)
        if seed == 3 and sum(payload) % 2:
            return Yield("later")
        if isinstance(script.answer, Overweight) and seed == 1:
            return Done()
        return script.answer or Done(script.success)

    def drop_decided(self, origin: str, before: tuple[int, int] | None, limit: Pair) -> None:
        """Decide expired messages, and those that never fit, on the way."""
        plain, events = self.plain, self.new_events()
        for page, at, item in plain.book(origin).window():
            if before is not None and (page, at) >= before:
                return
            if item.state != WAITING:
                continue
            if Event("Expired", origin, page, at) in events:
                assert item.expires is not None and item.expires <= self.clock.now
                plain.gone("Expired", page, at, item)
            elif Event("SetAside", origin, page, at) in events:
                reasons = plain.reasons_now(item, plain.weight(item), limit, fits=False)
                assert reasons
                plain.aside("SetAside", page, at, item, reasons, plain.weight(item))
            else:
                return
