"""Bytes of write-ahead log for a message's whole life: in, cut, out, deleted, vacuumed.

Nothing but the contender writes meanwhile: autovacuum is off, and a checkpoint is made just before,
so that each page that was there already is logged whole at its first change, for everybody alike.
A run begins as it ends: with queues that were used and are empty. The log of messages that were sent before it does not
count.

Where a checkpoint comes between in and out, as it does when messages wait for long, pages are
logged whole once more; that is measured beside it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from lab.benchmarks.contenders import BARE, OURS, Contender, Running
from lab.benchmarks.lab import Lab
from lab.benchmarks.measures.throughput import amount, empty


def life(lab: Lab, contenders: list[Contender]) -> None:
    """`life`: bytes of log of so many messages, in three parts."""
    with lab.altered(autovacuum="off"):
        for turn in range(lab.sizes.lives):
            lab.say(f"write-ahead log, round {turn + 1} of {lab.sizes.lives}")
            for contender in contenders:
                for name, count, order in _ways(lab, contender):
                    for pause in (False, True) if contender in (OURS, BARE) else (False,):
                        with lab.trying("life", contender, name):
                            _live(lab, contender, name, count, order, pause, turn)


def _live(lab: Lab, contender: Contender, name: str, count: int, order: dict[str, Any], pause: bool, turn: int) -> None:
    with lab.clone(empty(lab, contender), contender) as (uri, driver):
        if contender is OURS:
            # The half-full pages hold messages of before, more of them than the single sends that are measured.
            driver("out_all", count=0)
            lab.vacuum(uri)
        lab.checkpoint()
        images = lab.full_page_images()
        marks = [lab.log_position()]
        _send(driver, count, order)
        marks.append(lab.log_position())
        if pause:
            lab.checkpoint()
        start = lab.log_position()
        driver("out_all", count=count)
        marks.append(lab.log_position() - start + marks[-1])
        start = lab.log_position()
        lab.vacuum(uri)
        marks.append(lab.log_position() - start + marks[-1])
        images = lab.full_page_images() - images
        lab.check_gone(uri, contender)
    sent, serviced, vacuumed = (after - before for before, after in pairwise(marks))
    lab.note(
        "life",
        contender.name,
        name,
        round=turn,
        count=count,
        checkpoint_between=pause,
        bytes=marks[-1] - marks[0],
        full_page_images=images,
        sent=sent,
        serviced=serviced,
        vacuumed=vacuumed,
    )


def _send(driver: Running, count: int, order: dict[str, Any]) -> None:
    driver("single_in", count=count, clients=1) if order["call"] == 1 else driver("bulk_in", count=count, **order)


def _ways(lab: Lab, contender: Contender) -> list[tuple[str, int, dict[str, Any]]]:
    if contender in (OURS, BARE):
        return [
            ("calls of 1,000", lab.sizes.life, {"call": 1000}),
            ("calls of 10", lab.sizes.life, {"call": 10}),
            ("single sends", lab.sizes.life_single, {"call": 1}),
        ]
    return [("bulk", amount(lab, contender), {"call": contender.call})]
