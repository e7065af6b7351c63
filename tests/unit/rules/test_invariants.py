"""Invariants: each violation is reported, and a ring that cannot work is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_mq.engine.rules.book import Book
from airflow_mq.engine.rules.config import RingConfig
from airflow_mq.engine.rules.errors import ConfigRefused
from airflow_mq.engine.rules.invariants import check_book, check_slices
from airflow_mq.engine.rules.page import ASIDE, PROCESSED, Page, Rows
from airflow_mq.engine.rules.weight import Costs, LinearWeigher, Weight


def sound() -> tuple[Book, dict[int, Page]]:
    """A book with a page behind its window that keeps a message, and one in it."""
    pages = {2: Page(2), 3: Page(3)}
    pages[2].append(Rows([1], [2], [10, 20]), 100)
    pages[3].append(Rows([2], [2], [30, 40]), 100)
    pages[2].mark_processed(0)
    pages[2].marks[1] = ASIDE
    pages[2].first_index = 2
    return Book("acme", begin=3, end=4, count=2, message_count=3, size=90), pages


def violations(book: Book, pages: dict[int, Page], in_ring: bool = True) -> list[str]:
    return [str(one) for one in check_book(book, pages, in_ring, 100)]


def test_a_sound_book() -> None:
    assert violations(*sound()) == []


def breaks(change: Callable[[Book, dict[int, Page]], Any]) -> list[str]:
    book, pages = sound()
    change(book, pages)
    return violations(book, pages)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda book, pages: setattr(book, "end", 2), "before it begins"),
        (lambda book, pages: setattr(book, "begin", 4), "it is not ready, but in the ring"),
        (lambda book, pages: setattr(book, "count", 3), "it counts 3 pages, but 2 are stored"),
        (lambda book, pages: setattr(book, "message_count", 4), "it counts 4 messages, but 3"),
        (lambda book, pages: setattr(book, "size", 91), "it counts 91 bytes, but 90"),
        (lambda book, pages: pages.update({9: pages.pop(3)}), "lie behind its end"),
        (lambda book, pages: setattr(book, "end", 5) or setattr(book, "begin", 4), "its window holds no page"),
        (lambda book, pages: pages[2].mark_processed(1), "every message is processed"),
        (lambda book, pages: setattr(pages[3], "remaining", 1), "it counts 1 unprocessed messages, but 2"),
        (lambda book, pages: setattr(pages[3], "remaining_size", 1), "it counts 1 unprocessed bytes, but 70"),
        (lambda book, pages: setattr(pages[3], "used", 81), "it counts 81 bytes in use, which"),
        (lambda book, pages: pages[3].lengths.__setitem__(0, 300), "bytes"),
        (lambda book, pages: setattr(pages[3], "first_index", 3), "its first item is 3 of 2"),
        (lambda book, pages: setattr(pages[3], "first_index", -1), "its first item is -1 of 2"),
        (lambda book, pages: pages[3].slices.counts.pop(), "its slices and its lengths disagree"),
        (lambda book, pages: setattr(pages[3], "first_index", 1), "was never attempted"),
        (lambda book, pages: pages[3].marks.__setitem__(0, 7), "a mark that does not exist"),
    ],
)
def test_a_violation_is_reported(change: Callable[[Book, dict[int, Page]], Any], expected: str) -> None:
    assert any(expected in one for one in breaks(change)), breaks(change)


def test_a_ready_book_outside_of_the_ring_is_reported() -> None:
    assert violations(*sound(), in_ring=False) == ["book 'acme': it is ready, but not in the ring"]


def test_a_page_larger_than_a_heap_is_reported() -> None:
    book, pages = sound()
    assert any("more than the 50" in str(one) for one in check_book(book, pages, True, 50))


SLICES: list[tuple[dict[int, list[int]], set[int], str]] = [
    ({2: [30, 40]}, set(), "refers to inbox row 1, which is missing"),
    ({1: [10, 21], 2: [30, 40]}, set(), "page 2 and inbox row 1 disagree"),
    ({1: [10, 20], 2: [30, 40], 3: [5]}, set(), "inbox row 3 is in no page, and would never be cut"),
    ({1: [10, 20], 2: [30, 40]}, {2}, "inbox row 2 is in a page, and would be cut again"),
]


@pytest.mark.parametrize(("lengths", "uncut", "expected"), SLICES)
def test_pages_that_do_not_match_their_inbox_rows_are_reported(
    lengths: dict[int, list[int]], uncut: set[int], expected: str
) -> None:
    _, pages = sound()
    assert [expected in str(one) for one in check_slices("acme", pages, lengths, uncut)] == [True]


def test_pages_match_their_mail() -> None:
    _, pages = sound()
    assert list(check_slices("acme", pages, {1: [10, 20], 2: [30, 40], 3: [5]}, {3})) == []


def test_an_item_in_two_pages_is_reported() -> None:
    _, pages = sound()
    pages[4] = pages[3]
    assert "lies in two pages" in str(next(check_slices("acme", pages, {1: [10, 20], 2: [30, 40]}, set())))
    assert PROCESSED in pages[2].marks


# Configuration.


def test_the_least_service_weight_is_named() -> None:
    costs = Costs(service_queue_base=Weight(7, 3), service_page_item=Weight(3, 0))
    with pytest.raises(ConfigRefused, match="at least 10 ms · 4 B"):
        RingConfig(service_weight=Weight(9, 4), costs=costs).check()
    assert RingConfig(service_weight=Weight(10, 4), costs=costs).check().max_message_weight == Weight(0, 1)
    assert RingConfig(service_weight=None, costs=costs).check().max_message_weight is None


def test_the_least_heap_is_named() -> None:
    with pytest.raises(ConfigRefused, match="from 6 "):
        RingConfig(heap_size=5)
    assert RingConfig(heap_size=6).max_message_len == 1


def test_a_ring_that_leaves_nothing_for_a_message_is_warned_of() -> None:
    tight = RingConfig(service_weight=Weight(10, 100), costs=Costs(service_page_item=Weight(10, 0)))
    assert any("whose weight is zero" in one for one in tight.warnings())
    heavy = RingConfig(service_weight=Weight(10, 100), weigher=LinearWeigher())
    assert any("longest messages will be set aside" in one for one in heavy.warnings())
    assert RingConfig().warnings() == []


@pytest.mark.parametrize(
    "settings",
    [
        {"order": "fifo"}, {"ordered": 1}, {"max_stale": -1}, {"rounds_per_block": 0}, {"max_attempts": 0},
        {"lease": 0.5}, {"backoff": -1}, {"key_window": float("nan")}, {"keep_events": float("inf")},
        {"heap_size": True}, {"heap_size": (1 << 30) + 1}, {"service_weight": (1,)}, {"keep_ledger": "1"},
    ],
)  # fmt: skip
def test_what_a_ring_cannot_be_set_to(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        RingConfig(**settings)


def test_a_ring_is_stored_as_json() -> None:
    config = RingConfig(
        heap_size=100, order="shuffle", service_weight=Weight(5, 6), costs=Costs(reap_page=Weight(1, 2)),
        max_attempts=3, weigher=LinearWeigher(Weight(1, 2), Weight(3, 4)),
    )  # fmt: skip
    assert RingConfig.from_json(config.to_json()) == config
    for wrong in ({"colour": 1}, {"costs": {"tea": [1, 2]}}, {"costs": 3}, {"weigher": 3}):
        with pytest.raises(ConfigRefused):
            RingConfig.from_json(wrong)
