"""The figures of fairness, by hand: who was promised what of which block, and who waited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import pytest

from airflow_mq.engine.rules.book import SKIPS
from airflow_mq.engine.rules.config import BLOCK_PARTS
from airflow_mq.engine.rules.fairness import Asks, Fairness, Promise, jain, judge
from airflow_mq.engine.rules.orders import Entry
from airflow_mq.engine.rules.weight import Weight
from tests.unit.rules import plain_fairness as plain
from tests.unit.rules.plain_fairness import Round


def line(origin: str, granted: int, reason: str, messages: int | None = None) -> Entry:
    return Entry(origin, granted=Weight(granted, 0), messages=granted if messages is None else messages, reason=reason)


def a_round(wanting: str = "", **granted: int) -> Round:
    return Round(granted, frozenset(one for one, got in granted.items() if got), frozenset(wanting))


def judged(pages: Sequence[list[Entry]], ready: dict[str, Asks], promises: dict[str, Promise]) -> Fairness:
    """A unit of time is a hundredth of a block."""
    return judge(pages, lambda weight: weight.time * BLOCK_PARTS // 100, ready, promises, {}.__getitem__)


def figures(*pages: list[Entry], ready: dict[str, int] | None = None, **promises: Promise) -> Fairness:
    return judged(pages, {name: Asks(since, inf, True) for name, since in (ready or {}).items()}, promises)


def fair_shares(block: Round, promises: dict[str, Promise], *, paths: bool = False) -> dict[str, float]:
    """Return what each queue is promised in the plain way; the judge promises the same to those that are wanting."""
    told, given = plain.fair_shares(block, promises, paths=paths), sum(block.granted.values())
    page = [
        line(origin, block.granted.get(origin, 0), "limit" if origin in block.wanting else "emptied")
        for origin in sorted(block.granted.keys() | block.wanting)
    ]
    found = judge([page], lambda weight: weight.time, {}, promises, {}.__getitem__, paths=paths)
    for origin in block.wanting:
        assert (found.origin(origin).promised or 0) * given == pytest.approx(told[origin])
    return told


def test_what_a_block_left_is_promised_by_shares() -> None:
    assert fair_shares(a_round("ab", a=30, b=70), {}) == {"a": 50, "b": 50}
    assert fair_shares(a_round("ab", a=30, b=70), {"a": Promise(3)}) == {"a": 75, "b": 25}
    # Who was emptied wanted no more than it got; what it leaves is everybody else's.
    assert fair_shares(a_round("ab", a=45, b=45, c=10), {}) == {"a": 45, "b": 45, "c": 10}
    assert fair_shares(a_round("b", a=100), {}) == {"a": 50, "b": 50}
    assert fair_shares(a_round("", a=60, b=40), {}) == {"a": 60, "b": 40}


def test_least_and_most_bound_what_is_promised() -> None:
    assert fair_shares(a_round("ab", a=30, b=70), {"a": Promise(least=40)}) == {"a": 70, "b": 30}
    assert fair_shares(a_round("ab", a=30, b=70), {"a": Promise(most=20)}) == {"a": 30, "b": 70}
    assert fair_shares(a_round("ab", a=10, b=90), {"a": Promise(most=20)}) == {"a": 20, "b": 80}
    both = {"a": Promise(least=90), "b": Promise(least=90)}
    assert fair_shares(a_round("ab", a=30, b=70), both) == {"a": 50, "b": 50}
    assert fair_shares(a_round("a", b=0), {}) == {"a": 0, "b": 0}


def test_a_queue_at_its_own_most_is_promised_what_it_got() -> None:
    """Of a *most* of a quarter of a block's time and a sixteenth of its size, a queue of large messages gets less."""
    pages = [[line("large", 6, "most"), line("loud", 94, "limit")] for _ in range(20)]
    pages.append([line("large", 3, "emptied"), line("loud", 97, "limit")])
    most = {"large": Promise(most=BLOCK_PARTS // 4)}

    told = judged(pages, {"loud": Asks(0, inf, True)}, most)
    assert (told.origin("large").late, told.origin("large").error) == (0, pytest.approx(0.0))
    assert told.origin("loud").error == pytest.approx(0.0)
    stopped_by_the_block = [[replace(entry, reason="limit") for entry in page] for page in pages[:-1]] + pages[-1:]
    assert judged(stopped_by_the_block, {"loud": Asks(0, inf, True)}, most).origin("large").late > 10


def test_paths_share_at_each_level() -> None:
    names = ["one/a", "two", *(f"many/{number}" for number in range(8))]
    got = Round(dict.fromkeys(names, 9), frozenset(names), frozenset(names))
    fair = fair_shares(got, {}, paths=True)
    assert fair["one/a"] == fair["two"] == 30 and fair["many/0"] == 30 / 8
    assert fair_shares(got, {"many": Promise(2)}, paths=True)["two"] == 90 / 4
    assert fair_shares(got, {"many": Promise(most=10)}, paths=True)["two"] == (90 - 10) / 2
    assert fair_shares(got, {}) == dict.fromkeys(names, 9)
    nested = Round({"a/b/x": 9, "c": 81}, frozenset("c"), frozenset(["a/b/x", "c"]))
    assert fair_shares(nested, {"a/b": Promise(most=9)}, paths=True) == {"a/b/x": 9, "c": 81}
    assert fair_shares(nested, {"a/b": Promise(least=72)}, paths=True) == {"a/b/x": 72 + 9, "c": 9}
    # The queue that bears the name of its group is a member of it; what is set under that name is the group's.
    assert fair_shares(a_round("", **{"a": 10, "a/x": 10}), {"a": Promise(5)}, paths=True) == {"a": 10, "a/x": 10}
    both = Round({"a": 0, "a/x": 0, "b": 80}, frozenset("b"), frozenset(["a", "a/x", "b"]))
    assert fair_shares(both, {"a": Promise(3)}, paths=True) == {"a": 30, "a/x": 30, "b": 20}


def test_equal_shares() -> None:
    told = figures([line("a", 50, "limit"), line("b", 50, "spent")], [line("a", 50, "limit"), line("b", 50, "spent")])
    assert [(one.origin, one.promised, one.received, one.error) for one in told.origins] == [
        ("a", 0.5, 0.5, 0.0), ("b", 0.5, 0.5, 0.0),
    ]  # fmt: skip
    assert (told.jain, told.longest_wait, told.most_error, told.blocks) == (1.0, 0, 0.0, 2)
    assert told.origin("a").granted == pytest.approx(1.0)
    assert told.origin("nobody").received is None
    assert told.broken(most_wait=0, most_error=0.0, least_jain=1.0) == []


def test_unequal_shares() -> None:
    page = [line("a", 75, "limit"), line("b", 25, "spent")]
    told = figures(page, page)
    assert (told.origin("a").error, told.origin("b").error) == (0.5, -0.5)
    assert told.jain == pytest.approx((1.5 + 0.5) ** 2 / (2 * (1.5**2 + 0.5**2)))
    assert figures(page, page, a=Promise(3)).jain == 1.0
    assert told.broken(most_error=0.4, least_jain=0.9) == [
        "b received 25.0%, but its fair share is 50.0%: 50.0% less, beyond the bound of 40.0%",
        "a received 75.0%, but its fair share is 50.0%: 50.0% more, beyond the bound of 40.0%",
        "Jain's index is 0.800, below 0.9",
    ]


def test_nothing_to_compare() -> None:
    assert figures() == Fairness(0, [], None)
    told = figures([line("a", 10, "emptied"), line("b", 0, "paused"), line("c", 0, "yielded")])
    assert told.jain is None and told.broken(most_wait=0, most_error=0.0, least_jain=1.0) == []
    assert [(one.contended, one.error) for one in told.origins] == [(0, None)] * 3


def test_a_queue_that_is_not_mentioned_waits_if_it_was_left_wanting() -> None:
    lines = [line("b", 1, "limit"), line("a", 100, "limit"), line("a", 100, "limit"), line("b", 50, "emptied")]
    told = figures(*([one] for one in lines))
    assert told.origin("b").longest_wait == 2 and told.origin("b").waiting == 0
    # Both were wanting in the second and third block; b ended its wait, and a is taken to be gone.
    assert told.origin("b").contended == 4 and told.origin("a").contended == 2


def test_a_skipped_queue_did_not_wait() -> None:
    for reason in SKIPS:
        told = figures([line("b", 1, "limit")], [line("a", 100, "limit")], [line("b", 0, reason)])
        assert told.origin("b").longest_wait == 0 and told.origin("b").contended == 1


def test_ready_queues_wait_now() -> None:
    pages = [[line("a", 100, "limit")]] * 4
    told = figures(*pages, ready={"a": 0, "quiet": 1, "fresh": 4})
    assert (told.origin("quiet").longest_wait, told.origin("quiet").waiting) == (3, 3)
    assert (told.origin("fresh").longest_wait, told.origin("a").longest_wait) == (0, 0)
    assert told.origin("quiet").error == -1.0
    assert told.broken(most_wait=2) == ["quiet waited 3 blocks, and still waits, more than 2"]
    # A queue that was emptied, and is ready again, waits from where it is ready again on.
    told = figures([line("b", 1, "emptied")], [line("a", 1, "limit")], [line("a", 1, "limit")], ready={"b": 0})
    assert told.origin("b").waiting == 2


def test_who_was_emptied_got_all_it_asked_for() -> None:
    """It waits for nine blocks for a message that is worth as much; then nothing is owed to it."""
    few = [[line("large", 0, "spent"), *(line(f"s{n}", 10, "limit") for n in range(9))] for _ in range(9)]
    told = figures(*few, [line("large", 90, "emptied", 1), line("s0", 10, "limit")])
    large = told.origin("large")
    assert (large.longest_wait, large.contended, large.late) == (9, 10, 0)
    assert large.error == pytest.approx(0.0)
    # Before, less than a block was promised, and nothing was started: there is no figure.
    assert figures(*few).origin("large").error is None
    assert figures(*few, *few).origin("large").error == -1.0


def test_a_small_message_is_promised_what_it_asks_for() -> None:
    """One that waits for four blocks is late by four, and was never promised more than itself."""
    pages = [[line("loud", 100, "limit")] for _ in range(4)]
    told = figures(*([line("quiet", 0, "limit"), *page] for page in pages), [line("quiet", 1, "emptied")])
    assert (told.origin("quiet").longest_wait, told.origin("quiet").late) == (4, 4)
    assert told.origin("quiet").promised == told.origin("quiet").received == pytest.approx(1 / 401)
    assert told.origin("loud").promised == pytest.approx(399 / 400)
    assert told.broken(most_late=3) == ["quiet was emptied 4 blocks later than with its fair share, more than 3"]
    assert told.most_late == 4 and told.broken(most_late=4) == []


def test_half_of_what_was_promised_is_late_in_the_end() -> None:
    """While it lasts, its share is short; once it is emptied, it was late."""
    half = [[line("a", 25, "limit"), line("b", 75, "limit")] for _ in range(8)]
    lasting = figures(*half)
    assert lasting.origin("a").error == -0.5 and lasting.origin("a").late == 0
    over = figures(*half, [line("a", 25, "emptied"), line("b", 75, "limit")])
    # It asked for 225, which four and a half blocks would have given.
    assert over.origin("a").error == pytest.approx(0.0) and over.origin("a").late == 4
    assert over.origin("a").longest_wait == 0
    # What is left is known sometimes: a hundred more, and no more than that, is promised.
    bounded = judged(half, {"a": Asks(0, BLOCK_PARTS, True)}, {})
    assert bounded.origin("a").error == pytest.approx(200 / 300 - 1)


def test_jains_index() -> None:
    assert jain([]) is None
    assert jain([0.0, 0.0]) == 1.0
    assert jain([1.0] * 7) == pytest.approx(1.0)
    assert jain([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert Promise().most == inf
