"""Planted bugs of forecasts and quotes: what the next block takes, what arrives meanwhile, and whom messages delay."""

from __future__ import annotations

from collections.abc import Sequence

from .planting import Mutation, bug

QUOTE, QUOTES_TESTS = "engine/queue/inspect/quote.py", "tests/store/queue/test_quotes.py::"

QUOTES: Sequence[Mutation] = (
    bug(
        "dry run that services what is in flight", "engine/queue/inspect/forecast.py",
        "working_set = self.working_set(planning=True)\n        given", "working_set = self.working_set()\n        given",
    ),
    bug(
        "quote without further arrivals", QUOTE,
        "        future.overlay.arrive(rows)\n", "        future.overlay.arrive([])\n",
        test=f"{QUOTES_TESTS}test_added_waits_come_true[sqlite-a heavy tenant]",
    ),
    bug(
        "quote by a declaration below the prediction", QUOTE,
        "predicted.at_least(Weight.of(declared))", "Weight.of(declared)",
        test=f"{QUOTES_TESTS}test_messages_of_their_own_lengths_and_weights[sqlite]",
    ),
    bug(
        "added wait of the last message of each block", QUOTE,
        "            place = bisect_left(sums, before + 1)\n", "            place = bisect_left(sums, taken)\n",
        test=f"{QUOTES_TESTS}test_added_waits_come_true[sqlite-random weights]",
    ),
)  # fmt: skip
