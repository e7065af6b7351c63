"""Pages cut over inbox rows, and the circle of ready queues."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from airflow_mq.engine.rules.book import Book
from airflow_mq.engine.rules.config import HEADER_SIZE
from airflow_mq.engine.rules.message import Footprint
from airflow_mq.engine.rules.overweight import watermark
from airflow_mq.engine.rules.page import ASIDE, PROCESSED, Note, Page, Rows, Slices
from airflow_mq.engine.rules.ring import Ring
from airflow_mq.testing.conformance import _page


def cut(calls: list[list[int]], heap: int) -> list[Page]:
    """Pages as enqueuing opens them."""
    pages: list[Page] = []
    for number, lengths in enumerate(calls):
        append(pages, Rows([number], [len(lengths)], lengths), heap)
    return pages


def append(pages: list[Page], rows: Rows, heap: int) -> None:
    """Cut rows into the last page, and into pages behind it."""
    while rows.lengths:
        rest = pages[-1].append(rows, heap) if pages else rows
        if rest is rows:
            pages.append(Page(len(pages)))
        rows = rest


@given(st.lists(st.lists(st.integers(1, 45), min_size=1, max_size=8), min_size=1, max_size=8), st.integers(50, 120))
def test_pages_are_filled_one_after_the_other(calls: list[list[int]], heap: int) -> None:
    pages = cut(calls, heap)
    expected: list[list[int]] = []
    room = 0
    for length in (length for lengths in calls for length in lengths):
        if length + HEADER_SIZE > room:
            expected.append([])
            room = heap
        expected[-1].append(length)
        room -= length + HEADER_SIZE
    assert [page.lengths for page in pages] == expected
    for page in pages:
        assert page.used == sum(page.lengths) + HEADER_SIZE * len(page.lengths) <= heap
        assert (page.remaining, page.remaining_size) == (len(page.lengths), sum(page.lengths))
        assert sum(page.slices.counts) == len(page.lengths)
        assert [
            calls[part.row_id][at] for part in page.slices for at in range(part.start, part.start + part.items)
        ] == page.lengths


CALLS_OF_SINGLES = st.lists(st.lists(st.integers(1, 45), min_size=1, max_size=1), min_size=1, max_size=30)
CALLS_OF_MANY = st.lists(st.lists(st.integers(1, 45), min_size=1, max_size=9), min_size=1, max_size=30)


@given(CALLS_OF_SINGLES | CALLS_OF_MANY, st.integers(50, 120), st.integers(1, 20))
def test_rows_are_cut_together_as_one_by_one(calls: list[list[int]], heap: int, most: int) -> None:
    one_by_one: list[Page] = []
    together: list[Page] = []
    every_third = range(0, sum(map(len, calls)), 3)
    first = 0
    for number, lengths in enumerate(calls):
        notes = {at - first: Note(attempts=at, beside=1) for at in every_third if first <= at < first + len(lengths)}
        append(one_by_one, Rows([number], [len(lengths)], lengths, notes), heap)
        first += len(lengths)
    lengths = [length for call in calls for length in call]
    left = Rows(
        list(range(len(calls))),
        list(map(len, calls)),
        lengths,
        {at: Note(attempts=at, beside=1) for at in every_third},
    )
    assert left.size == sum(lengths) + len(every_third)
    while left.row_ids:
        taken, left = left.divide(most)
        assert sum(taken.counts) == len(taken.lengths) == most or not left.row_ids
        append(together, taken, heap)
    for page, other in zip(one_by_one, together, strict=True):
        for name in ("lengths", "marks", "notes", "remaining", "remaining_size", "used"):
            assert getattr(page, name) == getattr(other, name)
        # A row that was divided twice within a page lies there in two slices.
        assert list(page.slices.places()) == list(other.slices.places())


def test_notes_move_to_where_their_message_lies() -> None:
    pages: list[Page] = []
    append(pages, Rows([7], [4], [10, 10, 10, 10], {1: Note(attempts=1), 3: Note(attempts=3)}), 45)
    assert [page.notes for page in pages] == [{1: Note(attempts=1)}, {0: Note(attempts=3)}]
    assert pages[1].slices == Slices([7], [3], [1])
    assert pages[1].note(0).attempts == 3 and pages[0].note(0) == Note()


def test_offsets_count_headers() -> None:
    page = cut([[10, 20, 30]], 100)[0]
    facts = _page(page)
    assert (facts["first"], facts["last"]) == (0, 40)
    page.mark_processed(0)
    page.advance()
    assert (page.first_index, _page(page)["first"]) == (1, 15)


def test_what_is_left_of_a_page() -> None:
    page = cut([[10, 20, 30]], 100)[0]
    assert page.mark_processed(0) == 10
    page.marks[1] = ASIDE
    page.advance()
    assert (page.first_index, page.remaining, page.remaining_size) == (2, 2, 50)
    assert (page.set_aside(0), page.set_aside(1)) == (1, 2)
    assert not page.is_complete and not page.is_attempted
    page.mark_processed(2)
    page.advance()
    assert page.is_attempted and not page.is_complete
    page.mark_processed(1)
    assert page.is_complete and set(page.marks) == {PROCESSED}


def test_a_book_has_a_footprint() -> None:
    book = Book("acme", begin=3, end=5, count=4, message_count=9, size=90)
    assert (book.is_ready, book.stale, book.footprint) == (True, 2, Footprint(4, 2, 9, 90))
    book.begin = 5
    assert (book.is_ready, book.stale, book.footprint.ready_pages) == (False, 4, 0)


def test_the_more_stale_pages_the_shorter_the_history() -> None:
    def mark(stale: int, begin: int = 100, max_stale: int = 4) -> int:
        return watermark(Book("acme", begin=begin, end=begin, count=stale), max_stale)

    assert [mark(stale) for stale in (0, 4)] == [0, 0]
    assert [mark(stale) for stale in (5, 6, 8, 20)] == [100 - 16, 100 - 8, 100 - 4, 100 - 4]
    assert mark(5, begin=10) == 0
    assert mark(1, max_stale=0) == 100


# The ring.


def ring_of(*stretches: str) -> tuple[Ring, list[str]]:
    """A ring that loads so many origins at a time, a letter each; and which stretches were loaded."""
    waiting, loaded = list(stretches), []

    def more() -> list[str]:
        if not waiting:
            return []
        loaded.append(waiting[0])
        return list(waiting.pop(0))

    return Ring(more), loaded


def walk(ring: Ring) -> str:
    found, origin = "", ring.head()
    while origin is not None:
        found += origin
        origin = ring.next_in_line(origin)
    return found


def test_a_ring_loads_as_the_walk_goes() -> None:
    ring, loaded = ring_of("ab", "cd")
    assert (ring.head(), loaded) == ("a", ["ab"])
    assert (ring.successor("a"), loaded) == ("b", ["ab"])
    assert (ring.successor("b"), loaded) == ("c", ["ab", "cd"])
    assert ring.successor("d") == "a"


def test_an_empty_ring() -> None:
    ring, _ = ring_of()
    assert ring.head() is None
    ring.knit("a")
    assert (ring.head(), ring.successor("a")) == ("a", "a")


def test_knit_is_just_before_the_head() -> None:
    ring, loaded = ring_of("ab", "cd")
    ring.knit("x")
    assert loaded == []
    assert walk(ring) == "abcdx"


def test_bumping_moves_the_turn_on() -> None:
    ring, _ = ring_of("abc")
    ring.bump(ring.head() or "")
    assert (walk(ring), list(ring.moved)) == ("bca", ["a"])


def test_unknitting_the_head_makes_its_successor_the_head() -> None:
    ring, _ = ring_of("abc")
    assert ring.head() == "a"
    ring.unknit("a")
    assert (walk(ring), ring.unknitted) == ("bc", {"a"})
    ring.knit("a")
    assert (walk(ring), ring.unknitted) == ("bca", set())


def test_favoured_ones_come_first() -> None:
    ring, _ = ring_of("abcd")
    walk(ring)
    ring.favour(["d", "b"])
    assert (walk(ring), ring.favoured) == ("dbac", ["d", "b"])


def test_one_met_early_keeps_its_place() -> None:
    ring, _ = ring_of("ab", "cd")
    ring.meet("c")
    assert "c" in ring and ring.successor("c") == "a"
    assert walk(ring) == "abcd"


def test_one_met_early_that_left_does_not_come_back() -> None:
    ring, _ = ring_of("ab", "cd")
    ring.meet("c")
    ring.unknit("c")
    assert walk(ring) == "abd"


def test_upcoming_are_those_that_are_loaded() -> None:
    ring, loaded = ring_of("abc", "de")
    ring.head()
    assert (list(ring.upcoming("a", 9)), loaded) == (["b", "c"], ["abc"])
    walk(ring)
    assert list(ring.upcoming("d", 3)) == ["e", "a", "b"]


@given(st.data())
def test_a_ring_is_a_list(data: st.DataObject) -> None:
    ring, _ = ring_of("abc")
    model = list(walk(ring))
    acts: dict[str, Callable[[str], None]] = {"knit": ring.knit, "unknit": ring.unknit, "bump": ring.bump}
    for _ in range(data.draw(st.integers(0, 12))):
        act = data.draw(st.sampled_from(sorted(acts)))
        choices = model if act != "knit" else sorted(set("abcdef") - set(model))
        if not choices:
            continue
        one = data.draw(st.sampled_from(choices))
        acts[act](one)
        if act != "knit":
            model.remove(one)
        if act != "unknit":
            model.append(one)
        assert "".join(model) == walk(ring)
        for at, origin in enumerate(model):
            assert ring.successor(origin) == model[(at + 1) % len(model)]
