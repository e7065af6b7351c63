"""Check of a ring: its order, books, pages, groups and claims."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from ....rules.claims import Claim
from ....rules.config import BLOCK_PARTS
from ....rules.groups import paths_of
from ....rules.invariants import Violation, check_asides, check_book, check_groups, check_slices
from ....rules.message import Address
from ....rules.priority import is_high, origin_of, told
from ....store import codec
from ....store.rows import ASLEEP, LATEST, PLANNED, InboxRow
from ....store.unit import Unit
from ....store.working_set import Source, StoredSet
from ...blocks.settling import EndTerms
from ...session import RingSession
from ..order import all_origins
from .charges import check_charges
from .inboxes import check_inbox
from .payloads import check_blobs, confirm_missing


def check_ring(session: RingSession, progress: Callable[[int, int], object] | None = None) -> list[Violation]:
    """See `MessageQueue.check`."""
    missing: dict[str, str] = {}
    sizes: Counter[str] = Counter()
    with session.snapshot(stored=True) as (unit, working_set):
        names = list(all_origins(unit, session.ring_id))
        bounds = unit.rings.state(session.ring_id).look_floor, unit.rings.latest_id()
        found = list(_check_rows(unit, session.ring_id))
        found += _check_state(unit, working_set.reading)
        for done, name in enumerate(names):
            if progress is not None and done % 50 == 0:
                progress(done, len(names))
            found += _check_origin(session, unit, name, bounds, sizes)
        found += _check_quotas(session, unit, sizes)
        found += _check_groups(working_set, names)
        found += _check_claims(unit, session.ring_id)
        found += check_charges(unit, session.ring_id, session.config, unit.now())
        found += check_blobs(session, unit, missing)
    found += confirm_missing(session, missing)
    return found


def _check_rows(unit: Unit, ring: int) -> Iterator[Violation]:
    """Check that each book and the state of the ring have one row: on PostgreSQL, their keys alone do not ensure it."""
    for origin, rows in unit.books.second_rows(ring):
        where = "ring" if origin is None else f"book {told(origin)}"
        what = "its state has" if origin is None else "it has"
        yield Violation(where, f"{what} {rows} rows: expected one; only one of them is read")


def _check_state(unit: Unit, source: Source) -> Iterator[Violation]:
    state = unit.rings.state(source.ring_id)
    for first in source.ready_books(-LATEST, 1, unit.now(), high=False):
        if first.ticket is None or first.ticket >= state.ticket_floor:
            continue
        yield Violation(
            "ring",
            f"the smallest ticket is {first.ticket}, below the floor of {state.ticket_floor}; "
            "its queue would never be serviced",
        )
    if not 0 <= state.debt <= BLOCK_PARTS:
        yield Violation("ring", f"high messages owe {state.debt} parts of a block: expected 0 to {BLOCK_PARTS}")


def _check_origin(
    session: RingSession, unit: Unit, origin: str, bounds: tuple[int, int], sizes: Counter[str]
) -> list[Violation]:
    """Check a book; count the bytes that it stores, without delayed ones."""
    working_set = session.stored_working_set(unit)
    book, known = working_set.book(origin), working_set.stored[origin]
    pages = dict(working_set.loader.pages.read_all(origin))
    found = list(check_book(book, pages, known.ticket is not None, session.config.heap_size))
    if is_high(origin) and not session.config.high:
        found.append(Violation(f"book {told(origin)}", "the ring has high=False; this queue would never be serviced"))
    inbox_rows = [InboxRow(*row) for row in unit.inbox.after(session.ring_id, [(origin, -1)], LATEST)]
    lengths = {row.id: codec.unpack_lengths(bytes(row.lengths), row.items, row.size) for row in inbox_rows}
    uncut = {row.id for row in inbox_rows if not known.cut.has(row.id)}
    sizes[origin] += book.size + sum(row.stored for row in inbox_rows if row.id in uncut)
    found += check_inbox(origin, known, uncut, *bounds)
    found += _check_wake(unit, working_set, origin)
    if session.config.paths and book.deficit > 0 and not is_high(origin):
        found.append(Violation(f"book {origin!r}", f"its deficit is {book.deficit}, but paths=True allows none"))
    rows = unit.set_aside.after(session.ring_id, Address(origin, 0, -1), origin)
    found += check_asides(origin, pages, {(row.page, row.item) for row in rows})
    return found + list(check_slices(origin, pages, lengths, uncut))


def _check_quotas(session: RingSession, unit: Unit, sizes: Counter[str]) -> Iterator[Violation]:
    """Check that what quotas count, from sums of inbox rows, is what their queues store."""
    for _, row in unit.inbox.delayed(session.ring_id, -LATEST, 0, LATEST):
        sizes[row.origin] += row.stored
    paths, limited = session.config.paths, dict.fromkeys(sorted(unit.origins.quotas(session.ring_id)), 0)
    for state in session.store.fullness(unit, session.ring_id, limited, has_paths=paths) if limited else ():
        stored = sum(size for name, size in sizes.items() if state.path in paths_of(name, paths))
        if state.stored != stored:
            yield Violation(f"quota of {state.path!r}", f"it counts {state.stored:,} bytes: expected {stored:,}")


def _check_wake(unit: Unit, working_set: StoredSet, name: str) -> Iterator[Violation]:
    """Check that a book which waits for its budget comes back when the bucket of its origin lets it."""
    until = (working_set.stored[name].ticket or 0) - ASLEEP
    if until > working_set.now:
        wake_at = next((row.wake_at for row in unit.origins.buckets(working_set.ring_id, [origin_of(name)])), 0)
        if 0 <= wake_at < until:
            yield Violation(
                f"book {told(name)}", f"it waits until {until} for a budget that lets it start at {wake_at}"
            )


def _check_groups(working_set: StoredSet, origins: Sequence[str]) -> Iterator[Violation]:
    working_set.loader.load_groups()
    if working_set.groups and not working_set.config.paths:
        yield Violation("ring", "it stores groups of origins, but paths=False")
    yield from check_groups(working_set.groups.values(), working_set.owed, [one for one in origins if not is_high(one)])


def _check_claims(unit: Unit, ring: int) -> Iterator[Violation]:
    held: dict[tuple[str, int, int], int] = {}
    claims: dict[int, list[Claim]] = defaultdict(list)
    for row in unit.blocks.in_flight(ring):
        origin, block, claim = row.origin, row.block, row.claim
        if row.state != PLANNED and not row.is_ending:
            yield Violation(f"claim on {told(origin)}", f"block {block} holds it, but has ended")
        claims[block].append(claim)
        for page, item in claim.places():
            other = held.setdefault((origin, page, item), block)
            if other != block:
                yield Violation(f"message {Address(origin, page, item)}", f"blocks {other} and {block} both hold it")
    yield from _check_ends(unit, ring, claims)


def _check_ends(unit: Unit, ring: int, claims: Mapping[int, Sequence[Claim]]) -> Iterator[Violation]:
    """Check that recorded ends are counted, and that each gives each message of its block one verdict."""
    ends = unit.blocks.ends(ring, failed=True)
    counted, pending = unit.rings.state(ring).ends, sum(not end.error for end in ends)
    if counted != pending:
        yield Violation("ring", f"it counts {counted} recorded ends of blocks, but {pending} are stored")
    for end in ends:
        block, terms = end.row.id, EndTerms.of(end)
        held = claims.get(block, ())
        if end.row.state == PLANNED:
            yield Violation(f"block {block}", "its end is recorded, but the block has not ended")
        if len(held) > len(terms.verdicts):
            yield Violation(f"block {block}", f"its end knows {len(terms.verdicts)} claims, and {len(held)} are left")
            continue
        for claim, verdict in zip(held, terms.expected(held)):
            messages = sum(run.count for run in claim.runs)
            # In an ordered queue, a decision behind a message that returned is not carried out.
            if not claim.messages <= sum(verdict) <= messages or min(verdict) < 0:
                yield Violation(
                    f"block {block}",
                    f"its end gives {sum(verdict)} messages of {told(claim.origin)} a verdict, and it holds {messages}",
                )
