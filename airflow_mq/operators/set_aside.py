"""Operators for set-aside messages: execute one by hand, requeue them, or discard them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_mq.engine.rules.characters import shown, visible
from airflow_mq.engine.rules.errors import InvalidInput, MessageQueueError, TokenRefused
from airflow_mq.engine.rules.filters import FILTERS
from airflow_mq.engine.rules.message import Address
from airflow_mq.engine.rules.outcome import StackLimitReached, Yield
from airflow_mq.engine.rules.weight import UNLIMITED, Weight
from airflow_mq.links import BLOCK, BlockLink
from airflow_mq.operators.base import (
    QueueOperator,
    key_of,
    open_queue,
    refuse_text_of,
    release_finished,
    seconds_of,
    weight_of,
    whole_of,
)
from airflow_mq.operators.blocks.process import ProcessMessagesOperator
from airflow_mq.operators.blocks.settle import SETTLED, readable, summary_of
from airflow_mq.operators.blocks.xcoms import PlannedBlock, Summary, block_as_xcom, checked_part
from airflow_mq.processors import AnyProcessors, Part, Processors
from airflow_mq.words import many

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_mq import Block, MessageQueue
    from airflow_mq.operators.base import GivenWeight

#: Messages that stay which a log lists.
LISTED = 20
#: Part of a task that makes its own.
NO_PART = Part(name="", processors=[], part=0, parts=1, messages=0, where="")


class ExecuteOverweightOperator(ProcessMessagesOperator):
    """Execute one set-aside message within a limit of its own, by its processor, on Spark or in place.

    The message is a block of its own, which this task plans, processes and settles: a retry continues with the same
    block, and two tasks never execute the same message at once. All further parameters are those of
    `ProcessMessagesOperator`.

    :param address: address of the message, `ORIGIN:PAGE:INDEX` (templated)
    :param limit: what it may cost, `1.5h/4GiB` or `[milliseconds, bytes]`; unlimited if left out, refused if it renders
        to nothing (templated)
    :param processors: the rules that route origins to processors
    :param processor: name of the processor; the one that takes the message's origin if left out (templated)
    """

    template_fields: Sequence[str] = (*ProcessMessagesOperator.template_fields, "address", "limit", "processor")
    # This task plans its block itself.
    operator_extra_links = (BlockLink(),)  # type: ignore[assignment]

    def __init__(
        self,
        *,
        address: str,
        processors: AnyProcessors,
        limit: GivenWeight = None,
        processor: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(part=NO_PART, processors=processors, plan_task_id="", **kwargs)
        self.address = address
        self.limit = limit
        self._is_limited = limit is not None
        self.processor = processor

    def execute(self, context: Context) -> Any:
        processors, address = self._rules(), address_of(self.address)
        processor = processors.route(address.origin)
        if processor is None:
            raise AirflowFailException(f"no processor takes {address.origin!r}: add one to the rules")
        limit = weight_of(self.limit, "limit")
        if limit is None and self._is_limited:
            raise AirflowFailException("limit is empty: expected [TIME, SIZE]; without a limit leave it out")
        limit = limit or UNLIMITED
        with open_queue(self.mq_conn_id, self.ring, context) as queue:
            release_finished(queue, context["ti"], self.log)
            block = self._plan(queue, context, address, limit)
            self.part = Part(
                name=f"{processor.name} {address}"[:200],
                processors=[processor.name],
                part=0,
                parts=1,
                messages=1,
                where=processor.where,
            )
            planned = block_as_xcom(queue, block)
            try:
                self.process(context, processors, checked_part(self.part, processors), planned)
            except BaseException:
                # What was reported counts; the error of processing is the one to show.
                with suppress(MessageQueueError):
                    self._settle(queue, context, planned)
                raise
            try:
                answers = queue.blocks.reported(planned["token"]).get(address.book)
                outcome = answers.get(address.page, address.index) if answers else None
                summary = self._settle(queue, context, planned)
            except TokenRefused as error:
                raise AirflowFailException(f"the outcome of message {address} came too late: {error}") from None
        if summary["returned"] and isinstance(outcome, (Yield, StackLimitReached)):
            reason = getattr(outcome, "reason", "") or "without a reason"
            raise AirflowException(
                f"message {address} was not executed: its processor raised or yielded ({reason}); it stays set aside, "
                "and a retry executes it again"
            )
        if summary["returned"]:
            raise AirflowFailException(
                f"message {address} was not executed: its processor reported no outcome, or that it is overweight; it "
                "stays set aside"
            )
        if summary["failed"]:
            raise AirflowFailException(f"message {address} failed for good, by its processor's outcome; it is deleted")
        return summary

    def _settle(self, queue: MessageQueue, context: Context, planned: PlannedBlock) -> Summary:
        summary = summary_of(planned, queue.blocks.settle(planned["token"]))
        context["ti"].xcom_push(key=SETTLED, value=summary)
        self.log.info("%s", readable(summary))
        return summary

    def _rules(self) -> Processors:
        """Return the author's rules, or the one processor that was chosen, for any origin."""
        processors = Processors.of(self.processors)
        if not self.processor:
            return processors
        return Processors([replace(processors[self.processor], origins=("*",))])

    def _plan(self, queue: MessageQueue, context: Context, address: Address, limit: Weight) -> Block:
        key, lease = key_of(context), seconds_of(self.lease, "lease")
        block = queue.blocks.plan_overweight(address, limit, key=key, lease=lease)
        if not any(claim.run_of(address) for claim in block.claims):
            # An earlier try, which did not end it, executed another message.
            queue.blocks.release(block)
            block = queue.blocks.plan_overweight(address, limit, key=key, lease=lease)
        context["ti"].xcom_push(key=BLOCK, value=block_as_xcom(queue, block))
        if block.planned.exceeds(limit):
            queue.blocks.release(block)
            raise AirflowFailException(
                f"limit {limit} is too small for message {address}: it weighs {block.planned}; raise the limit"
            )
        return block


class _DecisionOperator(QueueOperator):
    """Base of the operators that decide about set-aside messages: those of addresses, of filters, or all.

    :param addresses: `ORIGIN:PAGE:INDEX`, or a list of them: all or none (templated)
    :param why: reason, stored with the event of each message (templated)
    :param origin: instead of addresses, all messages of this origin (templated)
    :param reason: all that were set aside for this reason, such as `size` (templated)
    :param block: all that this block set aside (templated)
    :param arrived: all that were sent before this block and after the one before it (templated)
    :param older_than: all that were sent longer ago: a time span, or seconds (templated)
    :param error: all that were tried too often and whose last error begins like this, such as `KeyError` (templated)
    :param all: leave out filters that are empty, instead of choosing nothing; at least one must remain
    """

    template_fields: Sequence[str] = (*QueueOperator.template_fields, "addresses", "why", *FILTERS)

    def __init__(
        self, *, addresses: str | Sequence[str] | None = None, why: str = "", origin: str | None = None,
        reason: str | None = None, block: int | str | None = None, arrived: int | str | None = None,
        older_than: timedelta | float | str | None = None, error: str | None = None, all: bool = False,
        **kwargs: Any,
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
        self.all = all
        self._by_addresses = addresses is not None
        #: Filters that the author set: a template or an XCom of them may turn out to be empty.
        self._filters = [name for name in FILTERS if getattr(self, name) is not None]
        self._check_choice()

    def _check_choice(self) -> None:
        others = [*self._filters, *(["all"] if self.all else [])]
        if self._by_addresses and others:
            raise AirflowFailException(f"addresses exclude {', '.join(others)}: set one of them. Nothing was changed")
        if not self._by_addresses and not others:
            raise AirflowFailException(
                f"{type(self).__name__} chooses no messages: set addresses, a filter ({', '.join(FILTERS)}), or "
                "all=True. Nothing was changed"
            )

    def chosen(self) -> list[Address] | dict[str, Any]:
        """Return the addresses, or the filters. What is empty chooses nothing: an empty list."""
        if self._by_addresses:
            given = [self.addresses] if isinstance(self.addresses, str) else self.addresses or []
            return [address_of(address) for address in given if str(address).strip()]
        filters = {name: self._filter(name) for name in self._filters}
        empty = [name for name, value in filters.items() if value is None]
        if empty and not self.all:
            self.log.warning("No message is chosen: %s is empty. To ignore an empty filter, set all=True.", empty[0])
            return []
        return {name: value for name, value in filters.items() if value is not None}

    def _filter(self, name: str) -> Any:
        """Return the value of a filter; None if a template rendered it to nothing."""
        value, (kind, _) = getattr(self, name), FILTERS[name]
        if kind == "N":
            return whole_of(value, name, "the number of a block")
        if kind == "AGE":
            return seconds_of(value, name)
        refuse_text_of(value, name)
        return None if value == "" else value


class DiscardSetAsideOperator(_DecisionOperator):
    """Discard set-aside messages; events record the reason and the actor. Returns how many.

    Choose them by addresses or by filters. An empty list, an empty XCom, and a filter whose template renders to nothing
    choose no message.
    """

    def _check_choice(self) -> None:
        super()._check_choice()
        if not self._by_addresses and not self._filters:
            raise AirflowFailException(
                f"all=True chooses no messages to discard: set a filter ({', '.join(FILTERS)}). Nothing was changed"
            )
        if self.why == "":
            raise AirflowFailException("why is missing: expected a reason; it is all that a discarded message leaves")

    def execute(self, context: Context) -> int:
        chosen, why = self.chosen(), str(self.why or "")
        with self.opened(context) as queue:
            if isinstance(chosen, dict):
                count = queue.set_aside.discard_all(why, **chosen)
            else:
                count = queue.set_aside.discard(chosen, why)
        self.log.info("Discarded %s%s", many(count, "message"), f": {why}" if why else "")
        return count


class RequeueSetAsideOperator(_DecisionOperator):
    """Requeue the set-aside messages that fit the ring's limits now.

    They join their queues behind everything sent so far, and keep their age. Choose them by addresses, by filters, or
    by `all=True`. An empty list, an empty XCom, and a filter whose template renders to nothing choose no message.
    Returns the counts `moved` and `stayed`.

    :param all: leave out filters that are empty, instead of choosing nothing; without filters, all messages but those
        that were swept
    :param limit: of the next blocks, `10m/1GiB` or `[milliseconds, bytes]`, if blocks judge by their own (templated)
    :param weigh: ask the ring's weigher again, instead of using the weight for which they were set aside
    :param forget_attempts: reset the count of attempts, as `error` does: messages tried too often go back as well
    """

    template_fields: Sequence[str] = (*_DecisionOperator.template_fields, "limit")

    def __init__(
        self, *, limit: GivenWeight = None, weigh: bool = False, forget_attempts: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.limit = limit
        self.weigh = weigh
        self.forget_attempts = forget_attempts

    def execute(self, context: Context) -> dict[str, int]:
        chosen = self.chosen()
        limit, why = weight_of(self.limit, "limit"), str(self.why or "")
        options: dict[str, Any] = {"limit": limit, "weigh": self.weigh, "forget_attempts": self.forget_attempts}
        with self.opened(context) as queue:
            if isinstance(chosen, dict):
                result = queue.set_aside.requeue_all(why, **options, **chosen)
            else:
                result = queue.set_aside.requeue(chosen, why, **options)
        for message in result.stayed[:LISTED]:
            self.log.info("%s stays: %s", visible(str(message.address)), visible(message.why))
        for sentence in result.exclusions():
            self.log.info("%s", sentence)
        self.log.info("Requeued %s; %d stay set aside.", many(len(result.moved), "message"), len(result.stayed))
        return {"moved": len(result.moved), "stayed": len(result.stayed)}


def address_of(text: str) -> Address:
    """Return the address that a person wrote."""
    try:
        return Address.parse(shown(text, 1_000).strip())
    except InvalidInput as error:
        raise AirflowFailException(str(error)) from None
