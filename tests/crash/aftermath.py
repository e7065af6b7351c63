"""What must be true after a crash: nothing is lost, nothing is settled twice, nobody waits for the dead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from airflow_mq import Done, MessageQueue
from airflow_mq.core.events import Fate
from airflow_mq.core.message import message_id
from airflow_mq.queue.session import SERVICE_LEASE
from airflow_mq.queue.values import Delivery

#: How a message can leave for good.
FINAL = {
    Fate.PROCESSED, Fate.DECLINED, Fate.BAD_FORMAT, Fate.CORRUPT, Fate.UNSUPPORTED, Fate.STACK_LIMIT,
    Fate.DISCARDED, Fate.EXPIRED,
}  # fmt: skip


def processor(delivery: Delivery) -> Done:
    """Done; and a message that begins with `parent` sends one more, in the same commit."""
    if delivery.payload.startswith(b"parent"):
        delivery.enqueue("children", child_of(delivery.payload))
    return Done()


def child_of(payload: bytes) -> bytes:
    """What a parent sends."""
    return b"child of " + payload


def finish(queue: MessageQueue) -> None:
    """Recover, as an operator would, and service everything that is left."""
    # Who waited for a dead holder of the ring would be told Busy, long before the lease of the dead runs out.
    assert queue.session.busy_timeout < SERVICE_LEASE / 2
    for block in queue.blocks.list("planned"):
        queue.blocks.release(block)
    for paused in queue.admin.paused():
        queue.admin.resume(paused.origin)
    for _ in range(50):
        if not queue.service_queues(processor).processed:
            break
    for _ in range(50):
        left = queue.set_aside.list(limit=1000)
        for one in left:
            queue.execute_overweight(one.address, processor)
        queue.service_queues(processor)
        if not left:
            break


def fates(queue: MessageQueue) -> Counter[bytes]:
    """How often each message left for good, by its id."""
    return Counter(event.id for event in queue.inspect.events() if event.fate in FINAL and event.id)


def assert_conserved(queue: MessageQueue, *, sent: Iterable[bytes], perhaps: Iterable[Iterable[bytes]] = ()) -> None:
    """Each message that was sent left exactly once; of each doubtful call, all did or none.

    What a parent sent is there if the parent was processed, and only then.
    """
    found = fates(queue)
    expected = {message_id(payload): payload for payload in sent}
    for call in perhaps:
        names = {message_id(payload): payload for payload in call}
        there = [name for name in names if name in found]
        assert len(there) in (0, len(names)), f"{len(there)} of a call of {len(names)} messages were stored"
        if there:
            expected.update(names)
    done = {event.id for event in queue.inspect.events(name="Processed")}
    parents = [payload for name, payload in expected.items() if payload.startswith(b"parent") and name in done]
    expected.update({message_id(child_of(payload)): child_of(payload) for payload in parents})
    lost = [payload for name, payload in expected.items() if name not in found]
    twice = [expected.get(name, name) for name, count in found.items() if count != 1]
    unknown = [name for name in found if name not in expected]
    assert not lost, f"lost: {lost}"
    assert not twice, f"settled twice: {twice}"
    assert not unknown, f"nobody sent: {unknown}"
    assert [entry for entry in queue.footprints(limit=1000) if entry[1].count] == []
