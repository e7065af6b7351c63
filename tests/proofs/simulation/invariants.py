"""Invariants: what must be true of a ring after every turn, whatever the actors are in the middle of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from airflow_mq import Block, Event, Peeked
from airflow_mq.engine.queue.blocks.plan import claims_of
from airflow_mq.engine.queue.blocks.settling import EndTerms
from airflow_mq.engine.queue.session import RingSession
from airflow_mq.engine.rules.claims import Claim
from airflow_mq.engine.rules.errors import UnknownBlock
from airflow_mq.engine.rules.events import Fate
from airflow_mq.engine.rules.message import message_id
from airflow_mq.engine.rules.page import PROCESSED
from airflow_mq.engine.rules.settle import FATES
from airflow_mq.engine.store.blocks import EndRow
from airflow_mq.engine.store.working_set import StoredSet

from .actors.ending import is_spoiled
from .actors.filling import MOST_CALL, QUOTA
from .budgets import check_budgets
from .messages import ACCEPTED, FINAL, NO_HEADERS, OPEN, REFUSED, Violation
from .world import FILLED, World

#: Blocks of one message on lease have this order; they have no page in the ledger.
VIEWED = "view"


def check_all(world: World) -> None:
    """Raise `Violation` for the first invariant that does not hold."""
    check_events(world)
    look = world.look()
    check_conservation(world, *look)
    violations = world.observer.check()
    check_settings(world)
    check_quota(world)
    check_recorded(world)
    check_outside(world, look[0])
    if violations:
        raise Violation("check()", "; ".join(map(str, violations[:3])))
    check_ledger(world, *look)


def check_events(world: World) -> None:
    """Check what live blocks and events show: weight, holders, order, and that every message ends once."""
    if not world.label:
        check_lease(world)
    take_events(world, check_holds(world))
    check_budgets(world)


def check_lease(world: World) -> None:
    """Check that no process took the ring from one whose lease had not run out (I4).

    The process that takes it has read the clock before it commits; the clock may have been set back since.
    """
    (row,) = world.rows("ring_state", "lease_token, lease_until, lease_holder")
    token, until, holder = None if row[0] is None else bytes(row[0]), int(row[1]), str(row[2])
    (before, ends, owner), latest = world.lease, world.clock.latest_of_lease
    if (token, until) != (before, ends):
        world.clock.latest_of_lease = world.clock.database
    world.lease = token, until, holder
    runner = world.scheduler.last
    if before is None or token == before or ends <= latest or runner is None:
        return
    if token is None and world.scheduler.waits_for_lock(owner):
        # The holder gives the ring back by one pipeline with its COMMIT, which waited for the runner's lock.
        return
    if f" by {runner.name}," not in owner and not world.scheduler.has_ended(owner):
        raise Violation("I4 lease", f"{runner.name} took the ring from its holder ({owner}) before the lease ran out")


def check_ends(world: World, live: dict[str, int]) -> None:
    """Check that a block ends by its own token, or past its deadline, which never moves back (I4)."""
    before, world.live = world.live, live
    for token, deadline in before.items():
        if live.get(token, deadline) < deadline:
            raise Violation("I4 lease", f"a renewal moved the deadline of block {token} back")
        if token in live or token in world.asked or deadline <= world.clock.latest:
            continue
        row = world.observer.blocks.get(token)
        if row.state != "planned":
            raise Violation(
                "I4 block", f"block {row.id} was {row.state} before its deadline, and no actor asked for it"
            )


def take_events(world: World, held: dict[tuple[str, int, int], int]) -> None:
    """Take in what happened since the last turn."""
    messages, config = world.messages, world.observer.config
    for event in world.observer.inspect.events(after=world.seen):
        world.seen = event.seq
        world.met[f"event {event.name}"] += 1
        check_expected(world, event)
        check_turn_of_end(world, event)
        ordered = config.ordered and event.origin not in world.relaxed
        messages.note(event, ordered, {})
        if ordered and event.block:
            check_stop(world, event, event.block)
        sent = messages.by_id.get(event.id or b"")
        if event.wait is not None and sent is not None:
            world.met["waiting aside"] += 1
            sent.due, sent.was_aside = int(((event.at or 0.0) + event.wait.seconds) * 1_000_000) - 1, True
        if event.fate in FINAL and sent is not None and sent.due > world.clock.latest:
            raise Violation("due time", f"{sent.payload!r} ended before it was due: {event}")
        place = event.address.book, event.page, event.index
        if event.fate in FINAL and place in held and event.block != held[place]:
            raise Violation("I4 one holder", f"block {held[place]} holds a message that ended outside of it: {event}")
    note_ends(world)


def note_ends(world: World) -> None:
    """Note the ends that wait for the holder of the ring: later events of their blocks come from applying them."""
    with world.observer.store.reading() as unit:
        ends = unit.blocks.ends(world.observer.session.ring_id, failed=True)
    world.recorded.update((end.row.number, end.number) for end in ends)
    world.set_apart.update(end.number for end in ends if end.error or is_spoiled(end))
    if len(ends) > 1:
        world.met["ends that wait together"] += 1


def check_turn_of_end(world: World, event: Event) -> None:
    """Check by events that recorded ends are applied in their order, also where no turn is between two of them."""
    number = world.recorded.get(event.block or 0)
    if number is None or number in world.set_apart:
        return
    if number < world.last_applied:
        raise Violation("recorded end", f"end {number} was applied after end {world.last_applied}: {event}")
    world.last_applied = number


def check_stop(world: World, event: Event, block: int) -> None:
    """Check that a message that goes back to an ordered queue is the last of its block there: those behind go untried."""
    key = block, event.address.book
    if key in world.stopped:
        raise Violation("I5 order", f"{event}: a message before it returned in the same block")
    if event.fate is Fate.RETURNED:
        world.stopped.add(key)


def check_settings(world: World) -> None:
    """Check that each acknowledged change of a setting counts until the next one."""
    if world.settings:
        world.observer.session.reread_config()
    for name, register in world.settings.items():
        value = getattr(world.observer.config, name)
        if not register.permits(value):
            raise Violation("settings", f"{name} is {value}, and was changed to another value since")


def check_quota(world: World) -> None:
    """Check that no more is stored than the quota and, on PostgreSQL, one call of the other filler."""
    if not world.has_quota:
        return
    stored = sum(one.stored for one in world.observer.inspect.fullness([FILLED]))
    most = QUOTA if world.store == "sqlite" else QUOTA + MOST_CALL
    held = world.observer.footprint(FILLED).size
    if not held <= stored <= most:
        raise Violation("quota", f"{FILLED} stores {stored} bytes by its quota and {held} by its pages, of {most}")


def check_expected(world: World, event: Event) -> None:
    """Check that the end of a message agrees with what the workers of its block reported."""
    expected = world.expected.get(event.id or b"")
    if expected is None or event.block != expected.block:
        return
    world.met["ends that were expected"] += 1
    goes_back = event.fate in (Fate.RETURNED, Fate.ATTEMPTS_EXHAUSTED)
    is_tried = not goes_back or "not tried:" not in event.detail
    if (event.fate is Fate.PROCESSED) != expected.done and (goes_back or event.fate is Fate.PROCESSED):
        raise Violation("attempts of a part", f"{event}: {expected.why}")
    if goes_back and is_tried and not expected.begun:
        raise Violation("attempts of a part", f"{event} costs an attempt: {expected.why}")


def check_recorded(world: World) -> None:
    """Check that recorded ends are applied as they should be, and that readers show them as done."""
    queue = world.observer
    with queue.session.store.reading() as unit:
        ends = unit.blocks.ends(queue.session.ring_id, failed=True)
        progress = [
            (end.number, end.error, end.terms_json["so_far"], len(unit.blocks.claims(end.row.id))) for end in ends
        ]
    check_order_of_ends(world, ends)
    check_progress_of_ends(world, progress)
    if ends:
        world.met["recorded ends"] += 1
        check_shown_ends(world, ends)


def check_shown_ends(world: World, ends: Sequence[EndRow]) -> None:
    """Check that readers show recorded ends: what is neither requeued nor set aside is gone."""
    queue = world.observer
    if len(queue.blocks.unapplied()) != sum(bool(end.error) for end in ends):
        raise Violation("recorded end", "nothing shows that an end is set apart")
    with queue.session.store.reading() as unit:
        working_set = RingSession.fresh_working_set(queue.session, unit)
        for end in ends:
            terms, claims = EndTerms.of(end), claims_of(unit, end.row)
            if terms.first(claims):
                world.met["ends applied in part"] += 1
            for claim, verdict in zip(claims, terms.expected(claims)):
                counts = dict(zip(FATES, verdict))
                # An end that was right again and not yet tried again is still set apart.
                _check_claim(working_set, claim, None if end.error or is_spoiled(end) else counts, end.row.number)


def _check_claim(working_set: StoredSet, claim: Claim, verdict: dict[str, int] | None, block: int) -> None:
    """Check the messages of a claim as readers see them; without a verdict, all are still in flight."""
    left, decided, aside_from = 0, 0, working_set.reading.put_off_from
    for run in claim.runs:
        page = working_set.page(claim.origin, run.page)
        for item in range(run.first, run.first + run.count):
            stays_here = page is not None and page.marks[item] != PROCESSED
            left += stays_here or aside_from(claim.origin, (run.page, item)) is not None
        decided += len(run.decisions)
    count = sum(run.count for run in claim.runs)
    # A message that was executed by hand was set aside before.
    stays = count if verdict is None else verdict["returned"] + verdict["set_aside"]
    if not stays <= left <= stays + (0 if verdict is None else decided):
        raise Violation("recorded end", f"readers show {left} messages of a claim of block {block}; expected {stays}")


def check_order_of_ends(world: World, ends: Sequence[EndRow]) -> None:
    """Check that ends are applied in their order, and that none but one that was spoiled is set apart."""
    for end in ends:
        if end.error and not is_spoiled(end) and end.number not in world.set_apart:
            raise Violation("recorded end", f"the end of a block of id {end.row.id} is set apart: {end.error}")
    waiting = [end.number for end in ends if not end.error]
    world.set_apart.update(end.number for end in ends if end.error or is_spoiled(end))
    applied = [number for number in world.waiting_ends if number not in {end.number for end in ends}]
    overtaken = [
        n for n in waiting if n in world.waiting_ends and n not in world.set_apart and n < max(applied, default=0)
    ]
    if overtaken:
        raise Violation("recorded end", f"ends {applied} were applied before ends {overtaken}")
    world.waiting_ends = waiting


def check_progress_of_ends(world: World, ends: Sequence[object]) -> None:
    """Check that no process changes a free ring before recorded ends are applied; a server's block may be locked."""
    ((version, token),) = world.rows("ring_state", "version, lease_token")
    before, world.free_with_ends = world.free_with_ends, (version, ends) if token is None and ends else None
    if before is None or world.free_with_ends is None or world.store != "sqlite" or before[1] != ends:
        return
    if version > before[0] and len(world.waiting_ends) > 0:
        raise Violation("recorded end", f"a free ring went from version {before[0]} to {version} before ends {ends}")


def check_outside(world: World, stored: dict[bytes, Peeked]) -> None:
    """Check that no message that waits for its time lies in its queue, too (I1).

    One that was handed on to another queue may wait aside there before its former block is settled.
    """
    outside = world.delayed(due_after=world.clock.database)
    for payload, one in stored.items() if outside else ():
        if one.state != "reported" and payload.rstrip(b".") in outside:
            raise Violation("I1 conservation", f"{payload!r} lies in its queue, and outside of it")


def live_blocks(world: World) -> Iterator[Block]:
    """Yield the blocks that hold messages now."""
    for row in world.observer.blocks.list("planned", limit=1_000):
        # A completed lease has no deadline: the block shows the time of its plan, which may come after a clock set back.
        if row.deadline > row.planned_at and row.deadline.timestamp() * 1_000_000 > world.clock.database:
            try:
                yield world.observer.blocks.get(row.token)
            except UnknownBlock:
                continue


def check_holds(world: World) -> dict[tuple[str, int, int], int]:
    """Check that no message is in two live blocks (I4), and that each block keeps its limit (I3)."""
    held: dict[tuple[str, int, int], int] = {}
    blocks = list(live_blocks(world))
    check_ends(world, {one.token: int(one.deadline.timestamp() * 1_000_000) for one in blocks})
    for block in blocks:
        if block.planned.plus(block.overhead).exceeds(block.limit):
            raise Violation(
                "I3 weight", f"block {block.id} plans {block.planned} and {block.overhead} of {block.limit}"
            )
        for claim in block.claims:
            for run in claim.runs:
                for item in run.handed_out():
                    place = claim.origin, run.page, item
                    if place in held:
                        raise Violation("I4 one holder", f"blocks {held[place]} and {block.id} hold {place}")
                    held[place] = block.id
    return held


def check_conservation(world: World, stored: dict[bytes, Peeked], times: Counter[bytes], delayed: set[bytes]) -> None:
    """Check that every accepted message is in one place, or has ended once (I1)."""
    messages = world.messages
    for payload, count in times.items():
        if count > 1:
            raise Violation("I1 conservation", f"{payload!r} lies in {count} places")
    ids = {}
    for payload, peeked in stored.items():
        if peeked.state == "set aside":
            name = next((one.id for one in (messages.by_id.get(message_id(payload)),) if one), None)
            if name:
                messages.displaced.add(name)
        ids[message_id(payload)] = peeked
    outside = {message_id(payload) for payload in _whole(world, delayed)}
    messages.end_lost({*ids, *outside})
    for name, sent in messages.by_id.items():
        there, gone = name in ids or name in outside, bool(messages.finals[name])
        reported = name in ids and ids[name].state == "reported"
        if sent.state == ACCEPTED and not there and not gone:
            raise Violation(
                "I1 conservation", f"{sent.payload!r} of {sent.origin!r} is lost ({messages.last.get(name)})"
            )
        if there and gone and not reported:
            raise Violation("I1 conservation", f"{sent.payload!r} ended and is still there: {messages.last.get(name)}")
        if sent.state == REFUSED and (there or gone):
            raise Violation("I1 conservation", f"{sent.payload!r} is stored, though its call was refused")
    for name, peeked in ids.items():
        if name not in messages.by_id:
            raise Violation("I1 conservation", f"{peeked.payload!r} is stored, and no actor sent it")
        if peeked.headers not in messages.headers.get(name, NO_HEADERS):
            raise Violation("headers", f"{peeked.payload!r} of {peeked.address.origin!r} has {peeked.headers}")
        # A message that was transferred begins anew in its new queue.
        stays = peeked.address.origin == messages.by_id[name].origin
        if stays and peeked.state != "set aside" and peeked.attempts != messages.tries[name]:
            _check_tries(world, name, peeked.attempts)


def _check_tries(world: World, name: bytes, attempts: int) -> None:
    sent, tries = world.messages.by_id[name], world.messages.tries[name]
    if attempts < tries and name not in world.messages.displaced:
        raise Violation("I1 attempts", f"{sent.payload!r} counts {attempts} attempts, its events {tries}")


def _whole(world: World, payloads: set[bytes]) -> Iterator[bytes]:
    """Yield payloads as they were sent: what was read from a heap has no padding."""
    by_head = {one.payload.rstrip(b"."): one.payload for one in world.messages.by_id.values()}
    for payload in payloads:
        yield by_head.get(payload, payload)


def check_ledger(world: World, stored: dict[bytes, Peeked], times: Counter[bytes], delayed: set[bytes]) -> None:
    """Check that ledger, blocks and events agree about what was granted and what is left (I10)."""
    _check_pages(world)
    counted = sum(footprint.count for _, footprint in world.observer.footprints(limit=100))
    if counted != len(times):
        raise Violation("I10 ledger", f"footprints count {counted} messages, {len(times)} are there")
    there = len(stored) + len(delayed)
    alive = sum(
        1 for name, one in world.messages.by_id.items()
        if one.state != REFUSED and not world.messages.finals[name] and (one.state != OPEN)
    )  # fmt: skip
    if alive > there:
        raise Violation("I10 ledger", f"events leave {alive} messages, {there} are there")


def _check_pages(world: World) -> None:
    """Check that the ledger has what blocks plan and hold."""
    queue, pages = world.observer, {page.block: page for page in world.observer.inspect.ledger(limit=1_000)}
    for block in queue.blocks.list(limit=1_000):
        page = pages.get(block.id)
        if page is None:
            continue
        if block.state == "planned":
            runs = [run for claim in queue.blocks.get(block.token).claims for run in claim.runs]
            expired = sum(one.exceeded is None for run in runs for one in run.decisions.values())
            messages = sum(entry.messages for entry in page.entries)
            if messages != block.messages + expired:
                raise Violation(
                    "I10 ledger", f"block {block.id}: {block.messages} + {expired} messages, ledger {messages}"
                )
        granted = [sum(entry.granted[part] for entry in page.entries) for part in (0, 1)]
        if tuple(granted) != tuple(block.planned):
            raise Violation("I10 ledger", f"block {block.id} plans {block.planned}, its ledger {granted}")
