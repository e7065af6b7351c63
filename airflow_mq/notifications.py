"""Notifiers: for messages that wait for a person, and for queues that wait too long. ::

block(..., notifiers=SetAsideNotifier(to=send_to_chat))
HousekeepingOperator(..., on_success_callback=[SetAsideNotifier(), StarvingNotifier(oldest=3600)])
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseNotifier

from airflow_mq.hooks import MessageQueueHook
from airflow_mq.store.bounded import within

if TYPE_CHECKING:
    from airflow_mq import MessageQueue
    from airflow_mq.queue import Depth

#: Seconds after which a look at a store that does not answer is given up.
LOOK_SECONDS = 60.0
#: How many messages are named one by one.
NAMED = 10
#: How many are counted.
COUNTED = 1_000


class QueueNotifier(BaseNotifier):
    """What the notifiers have in common: they look at a ring, and tell if there is something to tell.

    :param to: a function that takes the text; without it, it goes to the log as a warning
    :param mq_conn_id: id of a connection of type `airflow_mq` (templated)
    :param ring: name of the ring; without it the connection's (templated)
    """

    template_fields: Sequence[str] = ("mq_conn_id", "ring")

    def __init__(
        self,
        to: Callable[[str], Any] | None = None,
        *,
        mq_conn_id: str = MessageQueueHook.default_conn_name,
        ring: str | None = None,
    ) -> None:
        super().__init__()
        self.to = to
        self.mq_conn_id = mq_conn_id
        self.ring = ring

    def notify(self, context: Any) -> None:
        """Look, and tell."""
        text = self.text()
        if text is None:
            return
        if self.to is None:
            self.log.warning("%s", text)
        else:
            self.to(text)

    async def async_notify(self, context: Any) -> None:
        """The same from an event loop, which it does not hold up."""
        await asyncio.to_thread(self.notify, context)

    def text(self) -> str | None:
        """What there is to tell, in words; nothing if there is nothing."""
        with within(LOOK_SECONDS), MessageQueueHook(self.mq_conn_id).queue(self.ring or None) as queue:
            return self.told(queue)

    def told(self, queue: MessageQueue) -> str | None:
        """What there is to tell of this ring."""
        raise NotImplementedError


class SetAsideNotifier(QueueNotifier):
    """Tells how many messages wait for a person, which, why, and what can be done.

    Parameters are those of `QueueNotifier`, and:

    :param at_least: from how many messages on there is something to tell
    """

    def __init__(self, to: Callable[[str], Any] | None = None, *, at_least: int = 1, **kwargs: Any) -> None:
        super().__init__(to, **kwargs)
        self.at_least = at_least

    def told(self, queue: MessageQueue) -> str | None:
        """Who waits for a person."""
        waiting, ring = queue.set_aside.list(limit=COUNTED), queue.ring
        if len(waiting) < max(self.at_least, 1):
            return None
        count = f"{len(waiting):,}" if len(waiting) < COUNTED else f"{COUNTED:,} or more"
        lines = [f"{count} message{'s wait' if len(waiting) != 1 else ' waits'} for a person on ring {ring!r}:"]
        for one in waiting[:NAMED]:
            weight = f", weight {one.weight} of {one.limit}" if one.weight else ""
            lines.append(f"  {ascii(str(one.address))[1:-1]}  {one.size:,} bytes, {one.reason}{weight}")
        if len(waiting) > NAMED:
            lines.append(f"  and {len(waiting) - NAMED} more: airflow-mq set-aside list")
        lines.append("Execute one by ExecuteOverweightOperator, or let it go by DiscardSetAsideOperator.")
        return "\n".join(lines)


class StarvingNotifier(QueueNotifier):
    """Tells which queues wait for longer than they should, for how long, and what can be done.

    With no bound said, it is `most_late=1`: no backlog lasts longer than fair shares and one block allow.
    Parameters are those of `QueueNotifier`, and:

    :param oldest: seconds for which the oldest message of a queue may wait
    :param most_wait: in how many blocks in a row at most a queue that had something may get nothing
    :param most_late: by how many blocks at most a backlog may last longer than by fair shares
    :param blocks: how many blocks of the ledger to look back
    """

    def __init__(
        self,
        to: Callable[[str], Any] | None = None,
        *,
        oldest: float | None = None,
        most_wait: int | None = None,
        most_late: int | None = None,
        blocks: int = 100,
        **kwargs: Any,
    ) -> None:
        super().__init__(to, **kwargs)
        self.oldest = oldest
        self.most_wait = most_wait
        self.most_late = 1 if oldest is None and most_wait is None and most_late is None else most_late
        self.blocks = blocks

    def told(self, queue: MessageQueue) -> str | None:
        """Who starves."""
        found = [
            *(f"{_shown(one.name)}: the oldest of its {one.messages:,} messages waits for {_lasting(one.age or 0)}"
              for one in self._old(queue)),
            *self._unfair(queue),
        ]  # fmt: skip
        if not found:
            return None
        lines = [
            f"Queues of ring {queue.ring!r} wait for longer than they should:",
            *(f"  {it}" for it in found[:NAMED]),
        ]
        if len(found) > NAMED:
            lines.append(f"  and {len(found) - NAMED:,} more: airflow-mq report fairness")
        lines.append("See why by `airflow-mq explain ORIGIN`; a larger share, a least, or larger blocks help.")
        return "\n".join(lines)

    def _old(self, queue: MessageQueue) -> list[Depth]:
        if self.oldest is None:
            return []
        return [one for one in queue.inspect.oldest(COUNTED) if one.age is not None and one.age > self.oldest]

    def _unfair(self, queue: MessageQueue) -> list[str]:
        if self.most_wait is None and self.most_late is None:
            return []
        told = queue.inspect.fairness(self.blocks)
        return [_shown(it) for it in told.broken(most_wait=self.most_wait, most_late=self.most_late)]


def _shown(text: str) -> str:
    """Text with an origin in it, which anybody may have named, as one plain line."""
    return ascii(text)[1:-1]


def _lasting(seconds: float) -> str:
    for name, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {name}"
    return f"{seconds:.1f} seconds"
