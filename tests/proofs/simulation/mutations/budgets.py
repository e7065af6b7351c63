"""Planted bugs of budgets over time: each is a line of the rules of buckets."""

from __future__ import annotations

from .planting import bug

BUDGETS = (
    bug(
        "plan that charges no budget", "engine/rules/service.py",
        "            self.working_set.spend(self.buckets, weight)\n", "            pass\n",
        runs="budgets",
    ),
    bug(
        "budget saved up beyond its burst", "engine/rules/budget.py",
        "self.left[at] = min(self.left[at] + part.rate * elapsed, part.burst)",
        "self.left[at] = self.left[at] + part.rate * elapsed",
        runs="budgets",
    ),
    bug(
        "end that pays a budget all back", "engine/rules/working_set.py",
        "bucket.refund(charge.planned, charge.charged)", "bucket.refund(charge.planned)",
        runs="budgets",
    ),
    bug(
        "end that pays a budget nothing back", "engine/rules/working_set.py",
        "bucket.refund(charge.planned, charge.charged)", "bucket.refund(charge.charged, charge.charged)",
        runs="budgets",
    ),
    bug(
        "slice that charges what it has not tried", "engine/queue/attempts.py",
        "            bucket.refund(total)\n        died = self.service.begin(book, page, at)\n"
        "        ladder.working_set.spend(ladder.buckets, total)",
        "            pass\n        died = self.service.begin(book, page, at)",
        runs="budgets",
    ),
    bug(
        "clock that is set back fills a budget twice", "engine/rules/budget.py",
        "        self.refilled_to += elapsed\n", "        self.refilled_to = now\n",
        test="tests/unit/rules/test_budget.py::test_charge_of_any_window_is_bounded",
    ),
    bug(
        "queue that wakes before its budget covers it", "engine/rules/budget.py",
        "waits.append(-((left - min(needed * GRAINS, part.burst)) // part.rate))",
        "waits.append(-(left // part.rate))",
        test="tests/unit/rules/test_budget.py::test_wake_time_is_the_first_moment_that_covers",
    ),
    bug(
        "changed budget that does not wake its queues", "engine/store/sql/origin.sql",
        "CASE WHEN k.terms = excluded.terms THEN excluded.wake_at ELSE -1 END", "excluded.wake_at",
        test="tests/store/queue/test_budgets.py::"
        "test_a_changed_setting_wins_over_a_balance_that_was_read_before[sqlite]",
    ),
    bug(
        "settings changed while the ring is held that leave a queue asleep", "engine/store/sql/origin.sql",
        "THEN excluded.wake_at ELSE -1 END", "THEN excluded.wake_at ELSE 0 END",
        test="tests/store/queue/test_asleep.py::test_settings_that_change_while_the_ring_is_held_wake_the_queue[sqlite]",
    ),
    bug(
        "budget paid back that leaves the other queue of an origin asleep", "engine/store/working_set/buckets.py",
        "return [name for path in sorted(changed) for name in books_of(path)]", "return []",
        test="tests/store/queue/test_asleep.py::test_a_budget_that_is_paid_back_wakes_both_queues_of_an_origin[sqlite-high]",
    ),
    bug(
        "queue that wakes only at the end of a walk", "engine/store/working_set/ring.py",
        "            self.working_set.circle(name).queue_up(name)\n", "            pass\n",
        test="tests/store/queue/test_asleep.py::test_a_queue_that_wakes_in_a_busy_ring_gets_its_turn[sqlite-False]",
    ),
)  # fmt: skip
