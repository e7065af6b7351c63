"""What people decide about messages that no block can take: execute them by hand, or let them go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_mq.core.characters import visible
from airflow_mq.core.errors import InvalidInput
from airflow_mq.core.message import Address
from airflow_mq.core.weight import UNLIMITED, Weight
from airflow_mq.links import BLOCK
from airflow_mq.operators.base import QueueOperator, key_of, number_of, open_queue, release_finished, weight_of
from airflow_mq.operators.blocks.process import ProcessMessagesOperator
from airflow_mq.operators.blocks.settle import SETTLED, readable, summary_of
from airflow_mq.operators.blocks.xcoms import checked_part, processors_of, told
from airflow_mq.processors import Part, Processors
from airflow_mq.words import many

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
                summary = summary_of(said, queue.blocks.settle(block))
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
        block = queue.blocks.plan_overweight(address, limit, key=key_of(context), lease=number_of(self.lease, "lease"))
        context["ti"].xcom_push(key=BLOCK, value=told(queue, block))
        if block.planned.exceeds(limit):
            queue.blocks.release(block)
            raise AirflowFailException(f"message {address} weighs {block.planned}, and the limit is {limit}; raise it")
        return block


#: The part of a task that makes its own.
NO_PART = Part(name="", processors=[], part=0, parts=1, messages=0, where="")


class _DecidingOperator(QueueOperator):
    """What decides about set-aside messages: some by their addresses, or all that are meant."""

    template_fields: Sequence[str] = (
        *QueueOperator.template_fields, "addresses", "why", "origin", "reason", "block", "arrived", "older_than",
        "error",
    )  # fmt: skip

    def __init__(
        self, *, addresses: str | Sequence[str] = (), why: str = "", origin: str | None = None,
        reason: str | None = None, block: int | str | None = None, arrived: int | str | None = None,
        older_than: timedelta | float | str | None = None, error: str | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.addresses = addresses
        self.why = why
        self.origin = origin
        self.reason = reason
        self.block = block
        self.arrived = arrived
        self.older_than = older_than
        self.error = error

    def chosen(self) -> tuple[list[Address], dict[str, Any]]:
        """The addresses, or the filters: what a template left empty was not said."""
        given = [self.addresses] if isinstance(self.addresses, str) else list(self.addresses)
        addresses = [address_of(one) for one in given if str(one).strip()]
        old = self.older_than
        age = old if old is None or isinstance(old, timedelta) else number_of(old, "older_than")
        said = {
            "origin": self.origin or None, "reason": self.reason or None, "block": _whole(self.block, "block"),
            "arrived": _whole(self.arrived, "arrived"), "older_than": age,
            "error": self.error or None,
        }  # fmt: skip
        wanted = {name: value for name, value in said.items() if value is not None}
        if addresses and wanted:
            raise AirflowFailException(f"say addresses or {', '.join(wanted)}, not both. Nothing was done")
        return addresses, wanted


class DiscardSetAsideOperator(_DecidingOperator):
    """Let set-aside messages go, with a reason that is recorded beside who decided.

    :param addresses: `ORIGIN:PAGE:INDEX`, or a list of them: all or none (templated)
    :param why: the reason, which is all that is left of them (templated)
    :param origin: instead of addresses, all of this origin (templated)
    :param reason: all that were set aside for this, say `size`; see `MessageQueue.set_aside.list` (templated)
    :param block: all that this block set aside (templated)
    :param arrived: all that were sent before this block and after the one before it (templated)
    :param older_than: all that were sent longer ago: a time span, or seconds (templated)
    :param error: all that were tried too often and whose last error begins like this, say `KeyError` (templated)
    """

    def execute(self, context: Any) -> int:
        """Discard them; tell how many there were."""
        addresses, wanted = self.chosen()
        with self.opened(context) as queue:
            if wanted:
                count = queue.set_aside.discard_all(str(self.why), **wanted)
            else:
                count = queue.set_aside.discard(addresses, str(self.why))
        self.log.info("Discarded %s: %s", many(count, "message"), self.why)
        return count


class RequeueSetAsideOperator(_DecidingOperator):
    """Judge set-aside messages by what the ring allows now; those that fit go back into their queues.

    They go on behind everything that was sent, as old as they are. Without addresses and filters, all are judged but
    what was swept. Returns how many went back and how many stay.

    :param addresses: `ORIGIN:PAGE:INDEX`, or a list of them: all or none (templated)
    :param why: the reason, kept with the event (templated)
    :param limit: what a block may cost, `[time, size]`, in a ring without a service weight (templated)
    :param weigh: ask the ring's weigher anew, instead of believing the weight they were set aside for
    :param forget_attempts: count attempts from zero again, as `error` does: what was tried too often goes back, too

    The filters are those of `DiscardSetAsideOperator`.
    """

    template_fields: Sequence[str] = (*_DecidingOperator.template_fields, "limit")

    def __init__(self, *, limit: Any = None, weigh: bool = False, forget_attempts: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.limit = limit
        self.weigh = weigh
        self.forget_attempts = forget_attempts

    def execute(self, context: Any) -> dict[str, int]:
        """Judge them."""
        addresses, wanted = self.chosen()
        limit, why = weight_of(self.limit, "limit"), str(self.why)
        how: dict[str, Any] = {"limit": limit, "weigh": self.weigh, "forget_attempts": self.forget_attempts}
        with self.opened(context) as queue:
            if addresses:
                result = queue.set_aside.requeue(addresses, why, **how)
            else:
                result = queue.set_aside.requeue_all(why, **how, **wanted)
        for one in result.stayed[:20]:
            self.log.info("%s stays: %s", visible(str(one.address)), visible(one.why))
        self.log.info("Back into their queues: %s; %d stay.", many(len(result.moved), "message"), len(result.stayed))
        return {"moved": len(result.moved), "stayed": len(result.stayed)}


def _whole(given: int | str | None, what: str) -> int | None:
    """A number of a block as an author wrote it, perhaps in a template."""
    if given is None or given == "":
        return None
    try:
        return int(given)
    except ValueError:
        raise AirflowFailException(f"{what} is the number of a block, not {given!r}") from None


def address_of(given: str) -> Address:
    """An address as a person wrote it."""
    try:
        return Address.parse(str(given).strip())
    except InvalidInput as error:
        raise AirflowFailException(str(error)) from None
