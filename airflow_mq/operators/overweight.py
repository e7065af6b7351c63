"""What people decide about messages that no block can take: execute them by hand, or let them go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_mq.core.errors import InvalidInput
from airflow_mq.core.message import Address
from airflow_mq.core.weight import UNLIMITED, Weight
from airflow_mq.operators.base import QueueOperator, key_of, number_of, open_queue, release_finished, weight_of
from airflow_mq.operators.blocks import (
    BLOCK,
    SETTLED,
    ProcessMessagesOperator,
    checked_part,
    processors_of,
    readable,
    summary_of,
    told,
)
from airflow_mq.processors import Part, Processors

if TYPE_CHECKING:
    from airflow_mq import Block, MessageQueue


class ExecuteOverweightOperator(ProcessMessagesOperator):
    """Execute one set-aside message within a limit of its own, by its processor, on Spark or in place.

    The message is a block by itself, planned, processed and settled by this task: a retry goes on with the
    same block, and two tasks never execute the same message at once.

    :param address: which message, as `ORIGIN:PAGE:INDEX` (templated)
    :param limit: what it may cost, `[time, size]`; anything if left out (templated)
    :param processors: who takes which origin
    :param processor: the name of the one that executes it; without it the one that takes its origin (templated)

    Everything else is as `ProcessMessagesOperator` has it.
    """

    template_fields: Sequence[str] = (*ProcessMessagesOperator.template_fields, "address", "limit", "processor")

    def __init__(
        self, *, address: str, processors: Processors | str, limit: Any = None, processor: str = "", **kwargs: Any
    ) -> None:
        super().__init__(part=NO_PART, processors=processors, **kwargs)
        self.address = address
        self.limit = limit
        self.processor = processor

    def execute(self, context: Any) -> Any:
        """Execute the message; fail if it went back to waiting, or is wrong for good."""
        processors, address = self._rules(), address_of(self.address)
        processor = processors.route(address.origin)
        if processor is None:
            raise AirflowFailException(f"no processor takes {address.origin!r}; add one to the rules")
        limit = weight_of(self.limit, "limit") or UNLIMITED
        with open_queue(self.mq_conn_id, self.ring, context) as queue:
            release_finished(queue, context["ti"], self.log)
            block = self._plan(queue, context, address, limit)
            self.part = Part(
                name=f"{processor.name} {address}"[:200], processors=[processor.name], part=0, parts=1, messages=1,
                where=processor.where,
            )  # fmt: skip
            said = told(queue, block)
            try:
                self.process(context, processors, checked_part(self.part, processors), said)
            finally:
                summary = summary_of(said, queue.settle_block(block))
                context["ti"].xcom_push(key=SETTLED, value=summary)
                self.log.info("%s", readable(summary))
        if summary["went_back"]:
            raise AirflowFailException(
                f"message {address} was not executed: its processor said not now, or used more than {limit}; it waits "
                "where it was"
            )
        if summary["failed"]:
            raise AirflowFailException(f"message {address} is wrong for good, said its processor; it is gone")
        return summary

    def _rules(self) -> Processors:
        """The author's rules, or the one processor that somebody chose, for whatever origin."""
        processors = processors_of(self.processors)
        if not self.processor:
            return processors
        return Processors([replace(processors[self.processor], origins=("*",))])

    def _plan(self, queue: MessageQueue, context: Any, address: Address, limit: Weight) -> Block:
        block = queue.plan_overweight(address, limit, key=key_of(context), lease=number_of(self.lease, "lease"))
        context["ti"].xcom_push(key=BLOCK, value=told(queue, block))
        if block.planned.exceeds(limit):
            queue.release_block(block)
            raise AirflowFailException(f"message {address} weighs {block.planned}, and the limit is {limit}; raise it")
        return block


#: The part of a task that makes its own.
NO_PART = Part(name="", processors=[], part=0, parts=1, messages=0, where="")


class DiscardOverweightOperator(QueueOperator):
    """Let set-aside messages go, with a reason that is recorded beside who decided.

    :param addresses: `ORIGIN:PAGE:INDEX`, or a list of them (templated)
    :param why: the reason, which is all that is left of them (templated)
    """

    template_fields: Sequence[str] = (*QueueOperator.template_fields, "addresses", "why")

    def __init__(self, *, addresses: str | Sequence[str], why: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.addresses = addresses
        self.why = why

    def execute(self, context: Any) -> int:
        """Discard them, all or none; tell how many there were."""
        given = [self.addresses] if isinstance(self.addresses, str) else list(self.addresses)
        with self.opened(context) as queue:
            count = queue.discard_overweight([address_of(one) for one in given], str(self.why))
        self.log.info("Discarded %d messages: %s", count, self.why)
        return count


def address_of(given: str) -> Address:
    """An address as a person wrote it."""
    try:
        return Address.parse(str(given).strip())
    except InvalidInput as error:
        raise AirflowFailException(str(error)) from None
