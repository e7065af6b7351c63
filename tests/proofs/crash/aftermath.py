"""Invariants after a crash: no message is lost, none is settled twice, and no lease blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from airflow_mq import Done, MessageQueue
from airflow_mq.engine.queue.holding import RING_LEASE
from airflow_mq.engine.queue.values import Delivery
from airflow_mq.engine.rules.events import Fate
from airflow_mq.engine.rules.message import message_id

#: Fates that end a message.
FINAL = {
    Fate.PROCESSED, Fate.DECLINED, Fate.BAD_FORMAT, Fate.CORRUPT, Fate.UNSUPPORTED, Fate.STACK_LIMIT,
    Fate.DISCARDED, Fate.EXPIRED,
}  # fmt: skip


def processor(delivery: Delivery) -> Done:
    """Complete the message; if it begins with `parent`, enqueue a child in the same commit."""
    if delivery.payload.startswith(b"parent"):
        delivery.enqueue("children", child_of(delivery.payload))
    return Done()


def child_of(payload: bytes) -> bytes:
    """Return the payload that a parent enqueues."""
    return b"child of " + payload


def finish(queue: MessageQueue) -> None:
    """Recover as an operator would, and service all remaining messages."""
    # A caller that waits for a dead holder of the ring gets Busy long before the dead lease expires.
    assert queue.session.busy_timeout < RING_LEASE / 2
    for block in queue.blocks.list("planned"):
        queue.blocks.release(block)
    for paused in queue.admin.paused():
        queue.admin.resume(paused.origin)
    for _ in range(50):
        if not queue.service_queues(processor).processed:
            break
    for _ in range(50):
        asides = queue.set_aside.list(limit=1000)
        for aside in asides:
            queue.execute_overweight(aside.address, processor)
        queue.service_queues(processor)
        if not asides:
            break


def fates(queue: MessageQueue) -> Counter[bytes]:
    """Count the final fates of each message by id."""
    return Counter(event.id for event in queue.inspect.events() if event.fate in FINAL and event.id)


def assert_conserved(queue: MessageQueue, *, sent: Iterable[bytes], doubtful: Iterable[Iterable[bytes]] = ()) -> None:
    """Check that each sent message ended exactly once; for each doubtful call, all of them or none.

    A parent's child exists if and only if the parent was processed.
    """
    fate_counts = fates(queue)
    expected = {message_id(payload): payload for payload in sent}
    for call in doubtful:
        names = {message_id(payload): payload for payload in call}
        stored = [name for name in names if name in fate_counts]
        assert len(stored) in (0, len(names)), f"{len(stored)} of a call of {len(names)} messages were stored"
        if stored:
            expected.update(names)
    done = {event.id for event in queue.inspect.events(name="Processed")}
    parents = [payload for name, payload in expected.items() if payload.startswith(b"parent") and name in done]
    expected.update({message_id(child_of(payload)): child_of(payload) for payload in parents})
    lost = [payload for name, payload in expected.items() if name not in fate_counts]
    twice = [expected.get(name, name) for name, count in fate_counts.items() if count != 1]
    unknown = [name for name in fate_counts if name not in expected]
    assert not lost, f"lost: {lost}"
    assert not twice, f"settled twice: {twice}"
    assert not unknown, f"never sent: {unknown}"
    assert [entry for entry in queue.footprints(limit=1000) if entry[1].count] == []
