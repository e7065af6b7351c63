"""Plan a block, and say how it is cut into parts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_mq import tracing
from airflow_mq.core.characters import quoted
from airflow_mq.core.errors import Busy
from airflow_mq.links import BLOCK, BlockLink
from airflow_mq.operators import telemetry
from airflow_mq.operators.base import QueueOperator, key_of, number_of, release_finished, server_name, weight_of
from airflow_mq.operators.blocks.xcoms import processors_of, told
from airflow_mq.processors import Part, Processors
from airflow_mq.words import many

if TYPE_CHECKING:
    from airflow_mq import Block, MessageQueue

#: How often a plan is begun anew because what it claimed had no processor.
PLANS = 3
#: Why a plan pauses an origin, and for how many seconds: each plan renews its pauses, and ends those of a rule that
#: is gone. A pause of a DAG that is gone ends by itself.
UNROUTED_PAUSE = "no processor takes this origin"
PAUSED_FOR = 86_400


class PlanBlockOperator(QueueOperator):
    """Plan a block: claim what fits a weight, and say how it is cut into parts.

    Returns a list of parts to map `ProcessMessagesOperator` over; nothing to do gives an empty list, and the
    mapped task is skipped. The XCom `block` says which block it is. One plan at a time per ring, whoever asks:
    a plan waits for its turn, and then takes what is not in flight.

    :param processors: who takes which origin (`Processors`, or what its `to_json` wrote)
    :param limit: what the block may cost, `[time, size]`; without it the ring's service weight (templated)
    :param lease: seconds until anybody may release the block unless it is renewed; the ring's if left out (templated)
    :param share_below: processors with fewer messages than this share a Spark job
    :param patience: seconds to wait for somebody else who services the ring; then there is nothing to do this time
    """

    template_fields: Sequence[str] = (*QueueOperator.template_fields, "limit", "lease")
    operator_extra_links = (BlockLink(),)

    def __init__(
        self,
        *,
        processors: Processors | str,
        limit: Any = None,
        lease: Any = None,
        share_below: int = 10_000,
        patience: float = 60.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.processors = processors
        self.limit = limit
        self.lease = lease
        self.share_below = share_below
        self.patience = patience
        self.server: str | None = None

    def execute(self, context: Any) -> list[Part]:
        """Plan, and return the parts."""
        processors, ti, began = processors_of(self.processors), context["ti"], tracing.now()
        with self.opened(context) as queue:
            release_finished(queue, ti, self.log)
            self._end_pauses(queue, processors, f"{ti.dag_id}.{ti.task_id}")
            self.server = server_name(context)
            block = self._plan(queue, processors, key_of(context))
            trace = {} if block is None else telemetry.planned(queue, block, began)
            ti.xcom_push(key=BLOCK, value=None if block is None else told(queue, block, trace))
            if block is None:
                self.log.info("Somebody else services the ring %r; there is nothing to do this time.", queue.ring)
                return []
            return self._parts(queue, processors, block)

    def _plan(self, queue: MessageQueue, processors: Processors, key: str) -> Block | None:
        block: Block | None = None
        for _ in range(PLANS):
            block = self._plan_patiently(queue, processors, key)
            nobody = processors.unrouted_of(block.origins) if block else []
            if block is None or not nobody:
                return block
            self._treat_unrouted(queue, processors, block, nobody)
            if len(nobody) < len(block.origins):
                # The others are served; what nobody takes goes back when the block settles.
                return block
            queue.blocks.release(block)
        return block and self._plan_patiently(queue, processors, key)

    def _plan_patiently(self, queue: MessageQueue, processors: Processors, key: str) -> Block | None:
        origins = processors.patterns if processors.unrouted == "skip" else None
        limit, lease = weight_of(self.limit, "limit"), number_of(self.lease, "lease")
        give_up = time.monotonic() + self.patience
        while True:
            try:
                return queue.blocks.plan(
                    key, limit, lease=lease, server=self.server, origins=origins, reports_begin=True
                )
            except Busy as error:
                if time.monotonic() > give_up:
                    return None
                self.log.info("%s", error)

    def _treat_unrouted(self, queue: MessageQueue, processors: Processors, block: Block, nobody: Sequence[str]) -> None:
        shown = ", ".join(map(quoted, nobody[:10])) + (f" and {len(nobody) - 10} more" if len(nobody) > 10 else "")
        if processors.unrouted == "refuse":
            queue.blocks.release(block)
            raise AirflowFailException(
                f"no processor takes {shown}; the block was released. Add a processor for them, or let "
                "Processors(unrouted='skip') leave such queues to other DAGs"
            )
        for origin in nobody:
            queue.admin.pause(origin, UNROUTED_PAUSE, timedelta(seconds=PAUSED_FOR))
        self.log.warning(
            "Paused %s: no processor takes them. The pauses end when one does, or when this DAG does not renew them.",
            shown,
        )

    def _end_pauses(self, queue: MessageQueue, processors: Processors, ours: str) -> None:
        """End the pauses of a rule that is gone, and renew those of the rule that this DAG still has."""
        for one in queue.admin.paused():
            if one.reason != UNROUTED_PAUSE:
                continue
            whose = one.who.rpartition(" by ")[2]
            if processors.route(one.origin) or (whose == ours and processors.unrouted != "pause"):
                queue.admin.resume(one.origin)
                self.log.info("Resumed %s, which %s paused because no processor took it.", quoted(one.origin), whose)
            elif whose == ours:
                queue.admin.pause(one.origin, UNROUTED_PAUSE, timedelta(seconds=PAUSED_FOR))

    def _parts(self, queue: MessageQueue, processors: Processors, block: Block) -> list[Part]:
        counts: dict[str, int] = {}
        for claim in block.claims:
            counts[claim.whose] = counts.get(claim.whose, 0) + claim.messages
        parts = processors.parts(counts, self.share_below)
        self.log.info(
            "Block %d of ring %r holds %s of %s, planned at %s of %s, until %s.",
            block.id, queue.ring, many(block.messages, "message"), many(len(counts), "queue"),
            block.planned.plus(block.overhead), block.limit, f"{block.deadline:%H:%M:%S} UTC",
        )  # fmt: skip
        for part in parts:
            self.log.info("  %-30s %8d messages, %s", part["name"], part["messages"], part["where"])
        return parts
