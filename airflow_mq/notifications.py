"""Notifiers for set-aside messages, queues that wait too long, exhausted budgets, and headers of bills. ::

block(..., notifiers=SetAsideNotifier(to=send_to_chat))
HousekeepingOperator(..., on_success_callback=[SetAsideNotifier(), StarvingNotifier(oldest=3600)])
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseNotifier

from airflow_mq.engine.rules.characters import visible
from airflow_mq.engine.rules.message import check_number
from airflow_mq.engine.rules.units import check_seconds
from airflow_mq.engine.store.pipelined import within
from airflow_mq.hooks import MessageQueueHook
from airflow_mq.words import span, when

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_mq import MessageQueue
    from airflow_mq.engine.queue.inspect.queues import BudgetState, QueueState
    from airflow_mq.engine.queue.values import SetAside

#: Seconds after which a read of the store is abandoned.
READ_SECONDS = 60.0
#: Messages or queues that a text lists.
LISTED = 10
#: Messages that are counted.
COUNTED = 1_000


class QueueNotifier(BaseNotifier):
    """Base of the notifiers: read a ring, and send a text if there is a reason.

    :param to: a function that takes the text; without it, the text is logged as a warning
    :param mq_conn_id: id of a connection of type `airflow_mq`; if left out, that of the block that notifies, or
        `airflow_mq_default` (templated)
    :param ring: name of the ring; if left out, the connection's, or without `mq_conn_id` that of the block (templated)
    """

    template_fields: Sequence[str] = ("mq_conn_id", "ring")

    def __init__(
        self,
        to: Callable[[str], object] | None = None,
        *,
        mq_conn_id: str | None = None,
        ring: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.to = to
        self.mq_conn_id = mq_conn_id
        self.ring = ring

    def notify(self, context: Context) -> None:
        """Read the ring, and send the text."""
        block = {} if self.mq_conn_id else context.get("airflow_mq", {})
        text = self.text(block.get("mq_conn_id"), block.get("ring"))
        if text is None:
            return
        if self.to is None:
            self.log.warning("%s", text)
        else:
            self.to(text)

    async def async_notify(self, context: Context) -> None:
        await asyncio.to_thread(self.notify, context)

    def text(self, mq_conn_id: str | None = None, ring: str | None = None) -> str | None:
        """Return the text to send, or None; the arguments take the place of what the notifier does not name."""
        hook = MessageQueueHook(self.mq_conn_id or mq_conn_id or MessageQueueHook.default_conn_name)
        with within(READ_SECONDS), hook.queue(self.ring or ring or None) as queue:
            return self.text_of(queue)

    def text_of(self, queue: MessageQueue) -> str | None:
        """Return the text to send about this ring, or None."""
        raise NotImplementedError


class SetAsideNotifier(QueueNotifier):
    """Notify of set-aside messages: how many, which, why, and what to do.

    :param at_least: smallest number of messages to notify of
    """

    def __init__(self, to: Callable[[str], object] | None = None, *, at_least: int = 1, **kwargs: Any) -> None:
        super().__init__(to, **kwargs)
        self.at_least = check_number(at_least, "at_least")

    def text_of(self, queue: MessageQueue) -> str | None:
        if queue.set_aside.count(self.at_least) < self.at_least:
            return None
        waiting, ring = queue.set_aside.list(limit=COUNTED), queue.ring
        count = f"{len(waiting):,}" if len(waiting) < COUNTED else f"{COUNTED:,} or more"
        return _listing(
            f"{count} set-aside message{'s' if len(waiting) != 1 else ''} on ring {ring!r}:",
            map(_aside, waiting),
            queue.session.cli("set-aside list"),
            "Execute one with ExecuteOverweightOperator, or discard it with DiscardSetAsideOperator.",
        )


class StarvingNotifier(QueueNotifier):
    """Notify of queues that wait too long: which, how long, and what to do.

    Without a bound, `most_late=1` applies: no backlog lasts longer than fair shares and one block allow.

    :param oldest: time that the oldest message of a queue may wait: seconds, or text such as `1h`
    :param most_wait: blocks in a row that a queue with messages may get nothing
    :param most_late: blocks by which a backlog may last longer than by fair shares
    :param blocks: blocks of the ledger to look back
    """

    def __init__(
        self,
        to: Callable[[str], object] | None = None,
        *,
        oldest: float | str | None = None,
        most_wait: int | None = None,
        most_late: int | None = None,
        blocks: int = 100,
        **kwargs: Any,
    ) -> None:
        super().__init__(to, **kwargs)
        for name, number in (("most_wait", most_wait), ("most_late", most_late), ("blocks", blocks)):
            if number is not None:
                check_number(number, name)
        if not blocks:
            raise ValueError("invalid blocks 0: expected 1 or more")
        self.oldest = None if oldest is None else check_seconds(oldest, "oldest", bare=True)
        self.most_wait = most_wait
        self.most_late = 1 if oldest is None and most_wait is None and most_late is None else most_late
        self.blocks = blocks

    def text_of(self, queue: MessageQueue) -> str | None:
        found = [*map(_waiting, self._old(queue)), *self._unfair(queue)]
        return _listing(
            f"Queues of ring {queue.ring!r} wait too long:",
            found,
            queue.session.cli("report fairness"),
            f"See why with `{queue.session.cli('explain ORIGIN')}`; a larger share, a least or larger blocks help.",
        )

    def _old(self, queue: MessageQueue) -> list[QueueState]:
        if self.oldest is None:
            return []
        states = queue.inspect.backlog(oldest=COUNTED).oldest
        return [state for state in states if state.age is not None and state.age > self.oldest]

    def _unfair(self, queue: MessageQueue) -> list[str]:
        if self.most_wait is None and self.most_late is None:
            return []
        report = queue.inspect.fairness(self.blocks)
        return [visible(line) for line in report.broken(most_wait=self.most_wait, most_late=self.most_late)]


class BudgetNotifier(QueueNotifier):
    """Notify of exhausted budgets: whose, what is left, and when it covers the message that waits.

    :param within: only budgets that were exhausted within this time, such as `1h`, for one text for each exhaustion:
        the interval of the DAG that notifies. Without it, all that are exhausted
    """

    def __init__(
        self, to: Callable[[str], object] | None = None, *, within: float | str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(to, **kwargs)
        self.within = None if within is None else timedelta(seconds=check_seconds(within, "within", bare=True))

    def text_of(self, queue: MessageQueue) -> str | None:
        found = queue.inspect.budgets(exhausted=True)
        if self.within is not None:
            # A balance is refilled to the store's present time.
            found = [one for one in found if one.exhausted_at and one.exhausted_at > one.refilled_to - self.within]
        return _listing(
            f"Budgets of ring {queue.ring!r} are used up:",
            map(_exhausted, found),
            "",
            f"See why with `{queue.session.cli('explain ORIGIN')}`; only time, or a larger rate or burst, helps.",
        )


class DayClosedNotifier(QueueNotifier):
    """Publish the headers of closed days: tenants that keep them can prove their bills by `airflow-mq verify`.

    :param days: number of latest days; more than one repeats headers, so that a missed run loses none
    """

    def __init__(self, to: Callable[[str], object] | None = None, *, days: int = 7, **kwargs: Any) -> None:
        super().__init__(to, **kwargs)
        if days < 1:
            raise ValueError(f"invalid days {days}: expected 1 or more")
        self.days = days

    def text_of(self, queue: MessageQueue) -> str | None:
        found = queue.inspect.bill_headers()[-self.days :]
        lines = [f"  {one.day}  {one.hash.hex()}" for one in found]
        return "\n".join([f"Headers of the bills of ring {queue.ring!r}:", *lines]) if lines else None


def _listing(heading: str, found: Iterable[str], rest: str, advice: str) -> str | None:
    """Return a text that lists the first lines found, and what helps; None without a line.

    :param rest: the command that lists all, if any
    """
    lines = list(found)
    more = [f"and {len(lines) - LISTED:,} more{rest and ': '}{rest}"] if len(lines) > LISTED else []
    listed = [f"  {line}" for line in (*lines[:LISTED], *more)]
    return "\n".join([heading, *listed, advice]) if lines else None


def _aside(message: SetAside) -> str:
    weight = f", weight {message.weight} of {message.limit}" if message.weight else ""
    return f"{visible(str(message.address))}  {message.size:,} bytes, {message.reason}{weight}"


def _exhausted(budget: BudgetState) -> str:
    since = "" if budget.exhausted_at is None else f", exhausted at {when(budget.exhausted_at)}"
    until = "" if budget.wakes_at is None else f", its queues wait until {when(budget.wakes_at)}"
    return f"{visible(budget.path)}: {budget} is left{since}{until}"


def _waiting(depth: QueueState) -> str:
    count = depth.messages - depth.set_aside
    return f"{visible(depth.name)}: the oldest of its {count:,} messages waits for {span(depth.age or 0)}"
