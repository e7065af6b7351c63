"""Invariants: what must be true of a ring after every turn, whatever the actors are in the middle of."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_mq import Block
from airflow_mq.core.claims import Verdict
from airflow_mq.core.errors import UnknownBlock
from airflow_mq.core.message import message_id

from .fleet import Fleet, check_homes
from .messages import ACCEPTED, FINAL, OPEN, REFUSED, Violation
from .world import World

#: Blocks of one message on lease have this order; they have no page in the ledger.
VIEWED = "view"


def check_all(fleet: Fleet) -> None:
    """Raise `Violation` for the first invariant that does not hold."""
    for world in fleet.rings:
        check_events(world)
    check_conservation(fleet)
    if fleet.is_sharded:
        check_homes(fleet)
    for world in fleet.rings:
        violations = world.observer.check()
        if violations:
            raise Violation("check()", "; ".join(map(str, violations[:3])))


def check_events(world: World) -> None:
    """Check what live blocks and events show: weight, holders, order, and that every message ends once."""
    check_lease(world)
    take_events(world, check_holds(world))


def check_lease(world: World) -> None:
    """Check that no process took the ring from one whose lease had not run out (I4).

    The process that takes it has read the clock before it commits; the clock may have been set back since.
    """
    (row,) = world.rows("state", "lease_token, lease_until, lease_holder")
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
    """Check that a block ends by its own token, or past its deadline (I4)."""
    before, world.live = world.live, live
    for token, deadline in before.items():
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
        ordered = config.ordered and event.origin not in world.relaxed
        messages.note(event, ordered, {})
        sent = messages.by_id.get(event.id or b"")
        if event.fate in FINAL and sent is not None and sent.due.get(world.name, 0) > world.clock.latest:
            raise Violation("due time", f"{sent.payload!r} ended before it was due: {event}")
        place = event.address.book, event.page, event.index
        if event.fate in FINAL and place in held and event.block != held[place]:
            raise Violation("I4 one holder", f"block {held[place]} holds a message that ended outside of it: {event}")


def live_blocks(world: World) -> Iterator[Block]:
    """Yield the blocks that hold messages now."""
    for row in world.observer.blocks.list("planned", limit=1_000):
        if row.deadline.timestamp() * 1_000_000 > world.clock.database:
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


def check_conservation(fleet: Fleet) -> None:
    """Check that every accepted message is in one place, or has ended once (I1)."""
    messages = fleet.messages
    stored, times, delayed = fleet.look()
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
    outside = {message_id(payload) for payload in _whole(fleet, delayed)}
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
        # A message that was transferred begins anew in its new queue.
        stays = peeked.address.origin == messages.by_id[name].origin
        if stays and peeked.state != "set aside" and peeked.attempts != messages.tries[name]:
            _check_tries(fleet, name, peeked.attempts)


def _check_tries(fleet: Fleet, name: bytes, attempts: int) -> None:
    sent, tries = fleet.messages.by_id[name], fleet.messages.tries[name]
    if attempts < tries and name not in fleet.messages.displaced:
        raise Violation("I1 attempts", f"{sent.payload!r} counts {attempts} attempts, its events {tries}")


def _whole(fleet: Fleet, payloads: set[bytes]) -> Iterator[bytes]:
    """Yield payloads as they were sent: what was read from a heap has no padding."""
    by_head = {one.payload.rstrip(b"."): one.payload for one in fleet.messages.by_id.values()}
    for payload in payloads:
        yield by_head.get(payload, payload)


def check_ledger(fleet: Fleet) -> None:
    """Check that ledger, blocks and events agree about what was granted and what is left (I10)."""
    there = 0
    for world in fleet.rings:
        _check_pages(world)
        there += _check_footprints(world)
    alive = sum(
        1 for name, one in fleet.messages.by_id.items()
        if one.state != REFUSED and not fleet.messages.finals[name] and (one.state != OPEN)
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
            expired = sum(one.verdict is Verdict.EXPIRED for run in runs for one in run.decisions.values())
            messages = sum(entry.messages for entry in page.entries)
            if messages != block.messages + expired:
                raise Violation(
                    "I10 ledger", f"block {block.id}: {block.messages} + {expired} messages, ledger {messages}"
                )
        granted = [sum(entry.granted[part] for entry in page.entries) for part in (0, 1)]
        if tuple(granted) != tuple(block.planned):
            raise Violation("I10 ledger", f"block {block.id} plans {block.planned}, its ledger {granted}")


def _check_footprints(world: World) -> int:
    """Check that footprints count what is there; return the number of messages, reported and delayed ones included."""
    counted = sum(footprint.count for _, footprint in world.observer.footprints(limit=100))
    stored, _, delayed = world.look()
    waiting = len({*stored} - {one for one in stored if stored[one].state == "reported"})
    if counted != waiting:
        raise Violation("I10 ledger", f"footprints count {counted} messages, {waiting} are there")
    return len(stored) + len(delayed)
