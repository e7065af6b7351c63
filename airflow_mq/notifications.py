"""A notifier for messages that wait for a person. ::

block(..., notifiers=OverweightNotifier(to=send_to_chat))
HousekeepingOperator(..., on_success_callback=OverweightNotifier())
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from airflow.providers.common.compat.sdk import BaseNotifier

from airflow_mq.hooks import MessageQueueHook

#: How many messages are named one by one.
NAMED = 10
#: How many are counted.
COUNTED = 1_000


class OverweightNotifier(BaseNotifier):
    """Tells how many messages wait for a person, which, why, and what can be done.

    :param to: a function that takes the text; without it, it goes to the log as a warning
    :param mq_conn_id: id of a connection of type `airflow_mq` (templated)
    :param ring: name of the ring; without it the connection's (templated)
    :param at_least: from how many messages on there is something to tell
    """

    template_fields: Sequence[str] = ("mq_conn_id", "ring")

    def __init__(
        self,
        to: Callable[[str], Any] | None = None,
        *,
        mq_conn_id: str = MessageQueueHook.default_conn_name,
        ring: str | None = None,
        at_least: int = 1,
    ) -> None:
        super().__init__()
        self.to = to
        self.mq_conn_id = mq_conn_id
        self.ring = ring
        self.at_least = at_least

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
        with MessageQueueHook(self.mq_conn_id).queue(self.ring or None) as queue:
            waiting, ring = queue.overweight(limit=COUNTED), queue.ring
        if len(waiting) < max(self.at_least, 1):
            return None
        count = f"{len(waiting):,}" if len(waiting) < COUNTED else f"{COUNTED:,} or more"
        lines = [f"{count} message{'s wait' if len(waiting) != 1 else ' waits'} for a person on ring {ring!r}:"]
        for one in waiting[:NAMED]:
            weight = f", weight {one.weight} of {one.limit}" if one.weight else ""
            lines.append(f"  {ascii(str(one.address))[1:-1]}  {one.size:,} bytes, {one.reason}{weight}")
        if len(waiting) > NAMED:
            lines.append(f"  and {len(waiting) - NAMED} more: airflow-mq overweight list")
        lines.append("Execute one by ExecuteOverweightOperator, or let it go by DiscardOverweightOperator.")
        return "\n".join(lines)
