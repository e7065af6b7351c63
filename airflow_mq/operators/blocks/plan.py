"""Planning: claim a block and divide it into parts."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_mq.engine.rules.characters import listed, quoted
from airflow_mq.engine.rules.errors import Busy
from airflow_mq.links import BLOCK, BlockLink
from airflow_mq.observe.task import TaskObserver
from airflow_mq.operators.base import (
    QueueOperator,
    key_of,
    release_finished,
    seconds_of,
    server_name,
    weight_of,
    whole_of,
)
from airflow_mq.operators.blocks.xcoms import block_as_xcom
from airflow_mq.processors import AnyProcessors, Part, Processors
from airflow_mq.words import many

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_mq import Block, MessageQueue
    from airflow_mq.operators.base import GivenWeight

#: Defaults of a plan: processors with fewer messages share a job, and seconds to wait for the ring.
SHARE_BELOW, PATIENCE = 10_000, 60.0
#: Plans that a task makes while its claims hold nothing but origins without a processor.
PLANS = 3
#: Reason of the pause of an origin without a processor, with the task that paused it. Each plan renews its pauses for
#: a day, and resumes those whose rule has changed; a pause of a DAG that is deleted expires.
UNROUTED_PAUSE = "no processor of {} takes this origin"
_UNROUTED = re.compile(UNROUTED_PAUSE.format("(?P<owner>.+)"))


class PlanBlockOperator(QueueOperator):
    """Plan a block: claim the messages that fit a weight, and divide them into parts.

    Returns a list of parts to map `ProcessMessagesOperator` over; if nothing is ready, the list is empty and Airflow
    skips the mapped task. The XCom `block` identifies the block. One task plans a ring at a time: another one waits for
    its turn, and then claims messages that are not in flight.

    :param processors: the rules that route origins to processors: `Processors`, one or several of `Processor`, their
        JSON text, or a file that `Processors.from_file` reads
    :param limit: `10m/1GiB` or `[milliseconds, bytes]`; the ring's service weight if left out (templated)
    :param lease: seconds after which the block may be released unless it is renewed; the ring's if left out (templated)
    :param share_below: processors with fewer messages than this share a Spark job (templated)
    :param patience: seconds to wait while another task services the ring; after that, the plan is empty (templated)
    """

    template_fields: Sequence[str] = (*QueueOperator.template_fields, "limit", "lease", "share_below", "patience")
    operator_extra_links = (BlockLink(),)

    def __init__(
        self,
        *,
        processors: AnyProcessors,
        limit: GivenWeight = None,
        lease: float | str | None = None,
        share_below: int | str = SHARE_BELOW,
        patience: float | str = PATIENCE,
        **kwargs: Any,
    ) -> None:
        # The other tasks need its XComs, also if `default_args` switch off those of all tasks.
        super().__init__(**{**kwargs, "do_xcom_push": True})
        self.processors = processors
        self.limit = limit
        self.lease = lease
        self.share_below = share_below
        self.patience = patience
        self.server: str | None = None

    def execute(self, context: Context) -> list[Part]:
        processors, ti = Processors.of(self.processors), context["ti"]
        with self.opened(context) as queue:
            observer = TaskObserver(queue)
            release_finished(queue, ti, self.log)
            self.server = server_name(context)
            self._update_pauses(queue, processors)
            block = self._plan(queue, processors, key_of(context))
            trace = {} if block is None else observer.planned(block)
            ti.xcom_push(key=BLOCK, value=None if block is None else block_as_xcom(queue, block, trace))
            if block is None:
                self.log.info("Another task services ring %r: the plan is empty this time.", queue.ring)
                return []
            return self._parts(queue, processors, block)

    def _plan(self, queue: MessageQueue, processors: Processors, key: str) -> Block | None:
        for again in itertools.count(1):
            block = self._plan_patiently(queue, processors, key)
            unrouted = processors.unrouted_of(block.origins) if block else []
            if block is None or not unrouted:
                return block
            self._treat_unrouted(queue, processors, block, unrouted)
            if len(unrouted) < len(block.origins) or again == PLANS:
                # The others are processed; messages of unrouted origins go back when the block settles.
                break
            queue.blocks.release(block)
        return block

    def _plan_patiently(self, queue: MessageQueue, processors: Processors, key: str) -> Block | None:
        origins = processors.patterns if processors.unrouted == "skip" else None
        limit, lease = weight_of(self.limit, "limit"), seconds_of(self.lease, "lease")
        patience = seconds_of(self.patience, "patience")
        deadline = time.monotonic() + (PATIENCE if patience is None else patience)
        while True:
            try:
                return queue.blocks.plan(
                    key, limit, lease=lease, server=self.server, origins=origins, reports_begin=True,
                    processor_of=lambda origin: getattr(processors.route(origin), "name", ""),
                )  # fmt: skip
            except Busy as error:
                if time.monotonic() > deadline:
                    return None
                self.log.info("%s", error)

    def _treat_unrouted(
        self, queue: MessageQueue, processors: Processors, block: Block, unrouted: Sequence[str]
    ) -> None:
        shown = listed(unrouted, quoted, 10)
        if processors.unrouted == "refuse":
            queue.blocks.release(block)
            raise AirflowFailException(
                f"no processor takes {shown}; the block was released. Add a processor for them, or let "
                "Processors(unrouted='skip') leave such queues to other DAGs"
            )
        if processors.unrouted == "skip":
            # The rules changed after the first try of this task, which planned the block.
            return
        for origin in unrouted:
            self._pause(queue, origin)
        self.log.warning(
            "Paused %s: no processor takes them. A plan resumes them when one does; otherwise the pauses expire when "
            "this DAG does not renew them.",
            shown,
        )

    def _pause(self, queue: MessageQueue, origin: str) -> None:
        queue.admin.pause(origin, UNROUTED_PAUSE.format(self.server), timedelta(days=1))

    def _update_pauses(self, queue: MessageQueue, processors: Processors) -> None:
        """Resume origins that are routed now, and renew the pauses of this task's other origins."""
        for pause in queue.admin.paused():
            made = _UNROUTED.fullmatch(pause.reason)
            if made is None:
                continue
            is_own = made["owner"] == self.server
            if processors.route(pause.origin) or (is_own and processors.unrouted != "pause"):
                queue.admin.resume(pause.origin)
                self.log.info("Resumed %s: it was paused because %s.", quoted(pause.origin), pause.reason)
            elif is_own:
                self._pause(queue, pause.origin)

    def _parts(self, queue: MessageQueue, processors: Processors, block: Block) -> list[Part]:
        counts: dict[str, int] = {}
        for claim in block.claims:
            counts[claim.whose] = counts.get(claim.whose, 0) + claim.messages
        share_below = whole_of(self.share_below, "share_below", "a number of messages")
        parts = processors.parts(counts, SHARE_BELOW if share_below is None else share_below)
        self.log.info(
            "Block %d of ring %r holds %s of %s, planned at %s of %s, until %s.",
            block.id, queue.ring, many(block.messages, "message"), many(len(counts), "queue"),
            block.planned.plus(block.overhead), block.limit, f"{block.deadline:%H:%M:%S} UTC",
        )  # fmt: skip
        for part in parts:
            self.log.info("  %-30s %8d messages, %s", part["name"], part["messages"], part["where"])
        return parts
