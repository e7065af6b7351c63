"""Check of charges against the events, the ledger and the blocks of the same time."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import takewhile

from .....bills import canonical
from ....rules.charging import DAY, NO_CHARGE, Charge, add_charges
from ....rules.config import RingConfig
from ....rules.events import NOT_TRIED, WRONG, Fate
from ....rules.invariants import Violation
from ....rules.orders import Entry
from ....rules.priority import book_name, told
from ....rules.settle import NO_ROOM
from ....rules.weight import ZERO, Weight, total_weight
from ....store.bills import BillDay
from ....store.charges import Sums
from ....store.rows import LATEST, PLANNED, BlockRow
from ....store.unit import Unit
from ...bills import entries_of
from ...servers import ledger_pages
from ...session import kept_charges
from ..events import ROWS, runs_of

#: Fates of messages that an outcome finished, of set-aside ones, and of other attempts.
FINISHED = {Fate.PROCESSED, Fate.DECLINED, Fate.TRANSFERRED, *WRONG.values()}
ASIDE = {Fate.SET_ASIDE, Fate.ATTEMPTS_EXHAUSTED}
#: The beginnings of the reasons of messages that returned without an attempt that counts.
NO_ATTEMPT = (NOT_TRIED, NO_ROOM)
#: A save of a block, or of a service in place: the number of the block, and the time.
Save = tuple[int | None, int]


def check_charges(unit: Unit, ring: int, config: RingConfig, now: int) -> Iterator[Violation]:
    """Check that each block was charged what it planned, and each save what its events report."""
    kept = now - int(kept_charges(config) * 1_000_000)
    charged: defaultdict[Save, Charge] = defaultdict(lambda: NO_CHARGE)
    planned: defaultdict[tuple[int, str], Weight] = defaultdict(lambda: ZERO)
    days: dict[int, Sums] = {}
    first, rolled_up = LATEST, unit.charges.rolled_up(ring)
    for row in unit.charges.each(ring):
        first = min(first, row.at)
        if row.id <= rolled_up:
            add_charges(days.setdefault(row.at // DAY, {}), row.sums)
        for (book, *_), charge in row.charges.items():
            charged[row.block, row.at] = charged[row.block, row.at].plus(charge)
            if row.block is not None:
                planned[row.block, book] = planned[row.block, book].plus(charge.planned)
    since = max(kept + 1, first)
    yield from _check_days(unit, ring, days, since)
    yield from _check_bills(unit, ring, config, since)
    yield from _check_blocks(unit, ring, planned, since)
    yield from _check_events(unit, ring, charged, max(since, now - int(config.keep_events * 1_000_000) + 1))


def _check_days(unit: Unit, ring: int, days: Mapping[int, Sums], since: int) -> Iterator[Violation]:
    """Check the sums of days against their rows, of days from which none was deleted."""
    sums = dict(unit.charges.days(ring, 0, LATEST // DAY))
    for day in sorted({*sums, *days}):
        found, rows = sums.get(day, {}), days.get(day, {})
        # Rows of the first day may have been deleted under an earlier setting.
        is_part = day == since // DAY and all(_covers(found.get(key, NO_CHARGE), rows[key]) for key in rows)
        if day >= since // DAY and found != rows and not is_part:
            yield Violation(f"usage of day {day}", "its sums are not those of its charges")


def _check_bills(unit: Unit, ring: int, config: RingConfig, since: int) -> Iterator[Violation]:
    """Check the chain of closed days, and their leaves against the charges of days from which none was deleted."""
    before: BillDay | None = None
    for closed in unit.bills.days(ring):
        where = f"bills of {closed.header.day}"
        if before is not None and (closed.before, closed.day) != (before.header.hash, before.day + 1):
            yield Violation(where, "its header does not follow the one of the day before")
        leaves = sound = billed = 0
        for leaf in unit.bills.leaves_of(ring, closed.day):
            is_sound = leaf.leads_to(closed.header)
            leaves, sound = leaves + 1, sound + is_sound
            billed += _digest(json.loads(leaf.data)["entries"]) if is_sound and closed.day > since // DAY else 0
        if not leaves == sound == closed.leaves:
            yield Violation(where, "its leaves are not those of its root")
        elif closed.day > since // DAY:
            rows = takewhile(lambda row: row.id <= closed.last, unit.charges.each(ring, before.last if before else 0))  # noqa: B023 (read at once)
            if billed != sum(_digest(entries) for _, entries in entries_of(rows, config.paths)):
                yield Violation(where, "they are not its charges")
        before = closed


def _digest(entries: Iterable[object]) -> int:
    """Return a sum of hashes. Tenants may have been others under an earlier setting of `paths`, so no order counts."""
    return sum(int.from_bytes(sha256(canonical(entry)).digest(), "big") for entry in entries)


def _covers(charge: Charge, other: Charge) -> bool:
    return not (other.planned.exceeds(charge.planned) or other.charged.exceeds(charge.charged)) and all(
        map(int.__ge__, charge[2:], other[2:])
    )


def _check_blocks(unit: Unit, ring: int, planned: Mapping[tuple[int, str], Weight], since: int) -> Iterator[Violation]:
    """Check the planned weights of blocks whose ends are applied, also against their pages of the ledger."""
    pending, before = {end.row.id for end in unit.blocks.ends(ring, failed=True)}, LATEST
    by_block: defaultdict[int, dict[str, Weight]] = defaultdict(dict)
    for (number, book), weight in planned.items():
        by_block[number][book] = weight
    while rows := unit.blocks.latest(ring, before=before, limit=ROWS):
        before = rows[-1].number
        pages = {page.block: page.entries for page in ledger_pages(unit, ring, ROWS, before, rows[0].number)}
        for row in rows:
            if row.state != PLANNED and row.id not in pending and (row.ended_at or 0) >= since:
                yield from _check_block(row, by_block[row.number], pages.get(row.number))


def _check_block(row: BlockRow, paid: Mapping[str, Weight], entries: Sequence[Entry] | None) -> Iterator[Violation]:
    where, details, total = f"block {row.number}", row.details_json, total_weight([*paid.values()])
    if total != details["planned"]:
        yield Violation(where, f"its queues were charged {total} as planned, and it planned {details['planned']}")
    if entries is None:
        return
    granted = {book_name(entry.origin, entry.priority): entry.granted for entry in entries}
    for book in {*paid, *granted}:
        planned, most = paid.get(book, ZERO), granted.get(book, ZERO)
        # Without costs of servicing, a visit grants nothing but the weight of messages.
        if planned.exceeds(most) or (details["overhead"] == ZERO and planned != most):
            yield Violation(where, f"{told(book)} was charged {planned} as planned, and its ledger grants {most}")


def _check_events(unit: Unit, ring: int, charged: Mapping[Save, Charge], since: int) -> Iterator[Violation]:
    """Check the counts of saves since a time against their events."""
    events: defaultdict[Save, Counter[Fate]] = defaultdict(Counter)
    untried: Counter[Save] = Counter()
    after, first = 0, LATEST
    while rows := unit.events.after(ring, after, ROWS):
        after = rows[-1].id
        for row in rows:
            first = min(first, row.at)
            for run in runs_of(row):
                events[row.block, row.at][run.fate] += len(run.ids)
                if run.fate is Fate.RETURNED and run.detail.startswith(NO_ATTEMPT):
                    untried[row.block, row.at] += len(run.ids)
    for save in sorted({*charged, *events}, key=lambda save: (save[1], save[0] or 0)):
        if save[1] >= max(since, first):
            yield from _check_save(save, charged.get(save, NO_CHARGE), events[save], untried[save])


def _check_save(save: Save, charge: Charge, events: Mapping[Fate, int], untried: int) -> Iterator[Violation]:
    block, at = save
    where = f"charges at {at}" if block is None else f"charges of block {block} at {at}"
    finished, aside = _count(events, FINISHED), _count(events, ASIDE)
    # An execution by hand that reached the stack limit leaves an event, and finishes nothing.
    least = finished - events.get(Fate.STACK_LIMIT, 0)
    if not least <= charge.messages <= finished:
        yield Violation(where, f"they count {charge.messages} messages, and the events {finished}")
    if charge.set_aside != aside:
        yield Violation(where, f"they count {charge.set_aside} set-aside messages, and the events {aside}")
    # A processor may give the reason of a message that was not tried.
    most = _count(events, {*FINISHED, Fate.ATTEMPTS_EXHAUSTED, Fate.RETURNED})
    least = most - untried - events.get(Fate.STACK_LIMIT, 0)
    if not least <= charge.attempts <= most:
        yield Violation(where, f"they count {charge.attempts} attempts, and the events {least} to {most}")


def _count(events: Mapping[Fate, int], fates: Iterable[Fate]) -> int:
    return sum(events.get(fate, 0) for fate in fates)
