"""Operator that settles a block: give each message its outcome, and return a summary of the block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException, Asset, AssetAlias

from airflow_mq.engine.queue.inspect.reasons import ERRORS
from airflow_mq.engine.rules.errors import TokenRefused, UnknownBlock
from airflow_mq.engine.rules.weight import UNLIMITED, Weight
from airflow_mq.links import BLOCK, BlockLink, PlanLink
from airflow_mq.observe.task import Settling
from airflow_mq.operators.base import RETURNED, QueueOperator, key_of, server_name, whole_of
from airflow_mq.operators.blocks.xcoms import PlannedBlock, Summary, block_as_xcom, exchange_at, refuse_unknown_tasks
from airflow_mq.processors import AnyProcessors, Processors
from airflow_mq.words import many, outcomes, weight

if TYPE_CHECKING:
    from airflow.sdk import Context, ObjectStoragePath

    from airflow_mq import MessageQueue, Serviced

#: A function or a notifier that receives a context.
Notifier: TypeAlias = "Callable[[Context], object]"
#: XCom with the summary of the settled block.
SETTLED = "settled"
#: Extra of an emitted asset: how many runs have called for each other in a row.
ROUND = "airflow_mq_round"


class SettleBlockOperator(QueueOperator):
    """Settle a block: give each message its outcome, whatever the states of the jobs.

    Runs after any states of the jobs (`all_done`). It is skipped if the plan was, as in a group that was branched over.
    Messages without a reported outcome go back to their queues. The task fails if a job failed, although its block is
    settled. Returns the summary of the block, also stored as the XCom `settled`.

    :param plan_task_id: the task that planned the block, which this one has to follow directly as well (templated)
    :param process_task_id: the mapped task that processed it (templated)
    :param outlet: an asset to emit while a block of the same limit and processors would take messages, so that a DAG
        scheduled on it runs again; never after a plan that gave up waiting, a block that finished no message, or a
        failed part
    :param rounds: runs in a row that `outlet` starts at most, the first one included; any number if left out
        (templated)
    :param notifiers: called when the block set messages aside, with `airflow_mq` in their context
    :param exchange: the path by which messages and outcomes travelled; folders of ended blocks there are
        deleted (templated)
    :param processors: the rules of the plan, by which `outlet` knows whether the next block finds messages
    """

    template_fields: Sequence[str] = (
        *QueueOperator.template_fields, "exchange", "plan_task_id", "process_task_id", "rounds",
    )  # fmt: skip
    operator_extra_links = (BlockLink(), PlanLink())

    def __init__(
        self,
        *,
        plan_task_id: str = "plan",
        process_task_id: str = "process",
        outlet: Asset | None = None,
        rounds: int | str | None = None,
        notifiers: Notifier | Sequence[Notifier] = (),
        exchange: str | ObjectStoragePath | None = None,
        processors: AnyProcessors | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("trigger_rule", "all_done")
        # An alias, because Airflow emits a plain outlet even if nothing is ready.
        alias = None if outlet is None else AssetAlias(f"airflow_mq ready: {outlet.name}"[:1500])
        if alias is not None:
            kwargs["outlets"] = [*(kwargs.get("outlets") or ()), alias]
        super().__init__(**kwargs)
        self._alias = alias
        self.plan_task_id = plan_task_id
        self.process_task_id = process_task_id
        self.outlet = outlet
        self.rounds = rounds
        self.exchange = exchange
        self.processors = processors
        self.notifiers = [notifiers] if callable(notifiers) else list(notifiers)

    def execute(self, context: Context) -> Summary | None:
        refuse_unknown_tasks(context, plan_task_id=self.plan_task_id, process_task_id=self.process_task_id)
        states = task_states(context, [self.plan_task_id, self.process_task_id])
        if states.get(self.plan_task_id) == "skipped":
            raise AirflowSkipException(f"{self.plan_task_id} was skipped: there is no block to settle")
        failed = sorted(task for task, state in states.items() if state in ("failed", "upstream_failed"))
        planned = context["ti"].xcom_pull(task_ids=self.plan_task_id, key=BLOCK)
        with self.opened(context, planned["ring"] if planned else None) as queue:
            try:
                summary = self._settle(queue, context, planned)
            finally:
                if self.exchange:
                    self._sweep_folders(queue, self.exchange)
            if summary is not None and self.outlet is not None and self._finds_more(queue, context, summary):
                if failed:
                    self.log.warning(
                        "Did not emit %s, although the next block finds messages: a part failed, so this task fails, "
                        "and Airflow drops its events. The schedule starts the next run.",
                        self.outlet.name,
                    )
                else:
                    self._call_next(context, self.outlet)
        context["ti"].xcom_push(key=SETTLED, value=summary)
        if summary and summary["set_aside"]:
            self._notify(context, summary)
        if failed:
            names = part_names(context, self.plan_task_id, self.process_task_id)
            shown = [f"{names[task]} ({task})" if task in names else task for task in failed[:10]]
            settled = "The block is settled: messages without an outcome are back in their queues, for a later block"
            raise AirflowFailException(
                f"{', '.join(shown)} failed. {settled if summary else 'There is no block to settle'}. "
                "See the logs of the failed tasks"
            )
        return summary

    def _settle(self, queue: MessageQueue, context: Context, planned: PlannedBlock | None) -> Summary | None:
        summary: Summary | None = None
        refusal: Exception | None = None
        if planned and planned["token"]:
            try:
                summary = self._settle_block(queue, planned, planned.get("trace"))
            except TokenRefused as error:
                summary = self._summary_of_released(queue, planned)
                refusal = None if summary else error
            except UnknownBlock as error:
                refusal = error
        while block := queue.blocks.live(key_of(context, self.plan_task_id)):
            # The plan was cleared, or its XCom was lost: no task processes such a block.
            more = self._settle_block(queue, block_as_xcom(queue, block))
            summary = summary or more
        if refusal is not None:
            raise AirflowFailException(
                f"{refusal}. Messages without an outcome are back in their queues, for a later block"
            ) from None
        if summary is None:
            self.log.info("There is no block to settle.")
        return summary

    def _summary_of_released(self, queue: MessageQueue, planned: PlannedBlock) -> Summary | None:
        """Return the summary of a released block if all its outcomes were reported, else None.

        A release settles the reported outcomes, so this block is complete, and the task need not fail.
        """
        # The block has ended: releasing it again only returns its result.
        result = queue.blocks.release(str(planned["token"]))
        if result.returned:
            return None
        summary = summary_of(planned, result)
        self.log.warning(
            "Block %d was released before this task ran, by a person or because its lease ran out. Every outcome was "
            "reported before and is settled. If its lease ran out and this happens often, give blocks a longer one.",
            summary["block"],
        )
        self.log.info("%s", readable(summary))
        return summary

    def _settle_block(
        self, queue: MessageQueue, planned: PlannedBlock, trace: Mapping[str, str] | None = None
    ) -> Summary:
        observed = Settling(self.observe(queue), str(planned["token"]), trace)
        result = queue.blocks.settle(planned["token"])
        summary = summary_of(planned, result)
        self.log.info("%s", readable(summary))
        if result.returned:
            self.log.warning(RETURNED, many(result.returned, "message"), queue.session.cli(ERRORS))
        observed.settled(result, summary)
        return summary

    def _finds_more(self, queue: MessageQueue, context: Context, summary: Summary) -> bool:
        """Return whether the next block of these rules and this limit would take messages.

        After a block that finished none of its messages, the next one would repeat it.
        """
        if summary["messages"] and not summary["moved"]:
            return False
        patterns = None if self.processors is None else Processors.of(self.processors).patterns
        server = server_name(context, self.plan_task_id)
        return queue.inspect.finds_work(Weight(*summary["limit"]), patterns, server)

    def _call_next(self, context: Context, outlet: Asset) -> None:
        """Emit the asset with the number of this round, unless it is the last one."""
        events = chain.from_iterable(context["triggering_asset_events"].values())
        before = [event.extra.get(ROUND) for event in events]
        number = 1 + max((count for count in before if type(count) is int), default=0)
        most = whole_of(self.rounds, "rounds", "a number of runs")
        if most is not None and number >= most:
            self.log.info("Messages wait after %s: the schedule starts the next one.", many(number, "round"))
            return
        context["outlet_events"][self._alias].add(outlet, extra={ROUND: number})
        self.log.info("Emitted %s: the next block finds messages.", outlet.name)

    def _sweep_folders(self, queue: MessageQueue, path: str | ObjectStoragePath) -> None:
        """Delete the folders of this block and of earlier ones that ended without a task that settled them."""
        from airflow_mq.spark.exchange import sweep

        try:
            sweep(queue, exchange_at(path))
        except Exception as error:
            self.log.warning("Could not delete folders of ended blocks below %s (%s).", path, type(error).__name__)

    def _notify(self, context: Context, summary: Summary) -> None:
        for notifier in self.notifiers:
            try:
                notifier({**context, "airflow_mq": {**summary, "mq_conn_id": self.mq_conn_id}})
            except Exception:
                self.log.exception("A notifier failed; the block is settled nevertheless.")


def task_states(context: Context, task_ids: Iterable[str]) -> dict[str, str]:
    """Return the states of other tasks of this run, with one entry for each mapped task."""
    ti = context["ti"]
    known = ti.get_task_states(dag_id=ti.dag_id, task_ids=list(task_ids), run_ids=[ti.run_id])
    return {task: str(state) for task, state in (known.get(ti.run_id) or {}).items()}


def part_names(context: Context, plan_task_id: str, process_task_id: str) -> dict[str, str]:
    """Return the names of a block's parts, as Airflow renders them, by the keys under which it lists their states."""
    parts = context["ti"].xcom_pull(task_ids=plan_task_id)
    parts = parts if isinstance(parts, list) else []
    return {
        f"{process_task_id}_{index}": str(part["name"])[:200]
        for index, part in enumerate(parts)
        if isinstance(part, Mapping) and part.get("name")
    }


def summary_of(planned: PlannedBlock, result: Serviced) -> Summary:
    return Summary(
        block=planned["id"],
        ring=planned["ring"],
        messages=planned["messages"],
        limit=list(planned["limit"]),
        planned=list(planned["planned"]),
        used=list(result.weight),
        origins=result.origins,
        processed=result.processed,
        failed=result.failed,
        set_aside=result.set_aside,
        returned=result.returned,
        expired=result.expired,
        moved=result.moved,
    )


def readable(summary: Summary) -> str:
    """Return the summary of a settled block as text."""
    used, limit = Weight(*summary["used"]), Weight(*summary["limit"])
    of_limit = "" if limit == UNLIMITED else f" of {weight(limit)} ({100 * used.part_of(limit):.0f} %)"
    return (
        f"Block {summary['block']} of ring {summary['ring']!r} is settled: {outcomes(summary)}; "
        f"planned {many(summary['messages'], 'message')} of {many(summary['origins'], 'queue')}; "
        f"weight {weight(used)}{of_limit}."
    )
