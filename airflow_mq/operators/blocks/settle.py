"""Settle a block, whatever became of its jobs, and say what it came to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, Asset, AssetAlias

from airflow_mq import lineage
from airflow_mq.core.characters import visible
from airflow_mq.core.errors import TokenRefused, UnknownBlock
from airflow_mq.core.weight import Weight
from airflow_mq.links import BLOCK, BlockLink, PlanLink
from airflow_mq.operators import telemetry
from airflow_mq.operators.base import QueueOperator, key_of
from airflow_mq.operators.blocks.xcoms import processors_of, told
from airflow_mq.words import many

if TYPE_CHECKING:
    from airflow_mq import MessageQueue, Serviced
    from airflow_mq.processors import Processors

#: The XCom in which settling leaves what a block came to.
SETTLED = "settled"
#: How many live blocks are looked over for one of this run's.
LOOKED_AT = 1_000


class SettleBlockOperator(QueueOperator):
    """Settle a block: give each message its outcome, whatever became of the jobs, and say how it went.

    Runs always (`all_done`). What nobody reported on goes back to its queue. The run turns red when a job
    failed, although its block is settled. The XCom `settled` says what the block came to.

    :param plan_task_id: the task that planned the block
    :param process_task_id: the mapped task that processed it
    :param outlet: an asset to emit again while anything is ready, so that a DAG scheduled by it goes on
    :param notifiers: called when the block set messages aside for a person, with `airflow_mq` in their context
    :param exchange: the path by which messages and outcomes travelled; the block's folder there is removed (templated)
    :param processors: who took which origin: what they measured is kept under their names, for `ring fit-weigher`
    """

    template_fields: Sequence[str] = (*QueueOperator.template_fields, "exchange")
    operator_extra_links = (BlockLink(), PlanLink())

    def __init__(
        self,
        *,
        plan_task_id: str = "plan",
        process_task_id: str = "process",
        outlet: Asset | None = None,
        notifiers: Any = (),
        exchange: str | None = None,
        processors: Processors | str | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("trigger_rule", "all_done")
        # By way of an alias, because a plain outlet is emitted whatever happened.
        alias = None if outlet is None else AssetAlias(f"airflow_mq ready: {outlet.name}"[:1500])
        if alias is not None:
            kwargs["outlets"] = [*(kwargs.get("outlets") or ()), alias]
        super().__init__(**kwargs)
        self._alias = alias
        self.plan_task_id = plan_task_id
        self.process_task_id = process_task_id
        self.outlet = outlet
        self.exchange = exchange
        self.processors = processors
        self.notifiers = [notifiers] if callable(notifiers) else list(notifiers)
        self._touched: lineage.Touched | None = None
        self._summary: Mapping[str, Any] | None = None

    def execute(self, context: Any) -> dict[str, Any] | None:
        """Settle; fail if a job failed."""
        states = task_states(context, [self.plan_task_id, self.process_task_id])
        said = context["ti"].xcom_pull(task_ids=self.plan_task_id, key=BLOCK)
        with self.opened(context, said["ring"] if said else None) as queue:
            summary = self._summary = self._settle(queue, context, said)
            if self.exchange and said:
                self._clear_folder(queue, str(said["token"]), self.exchange)
            self._emit_again(queue, context, summary)
        context["ti"].xcom_push(key=SETTLED, value=summary)
        if summary and summary["set_aside"]:
            self._notify(context, summary)
        failed = sorted(task for task, state in states.items() if state in ("failed", "upstream_failed"))
        if failed:
            names = part_names(context, self.plan_task_id, self.process_task_id)
            shown = [f"{names[task]} ({task})" if task in names else task for task in failed[:10]]
            raise AirflowFailException(
                f"{', '.join(shown)} failed. {'The block is settled' if summary else 'There was no block'}; "
                "what was not reported is back in its queues, and a later block takes it"
            )
        return summary

    def get_openlineage_facets_on_complete(self, ti: Any) -> Any:
        """The queues of the block, and what it came to."""
        return lineage.taken(self._touched, self._summary)

    def _settle(self, queue: MessageQueue, context: Any, said: Mapping[str, Any] | None) -> dict[str, Any] | None:
        token = said["token"] if said else None
        summary: dict[str, Any] | None = None
        refusal: Exception | None = None
        if said and token:
            try:
                summary = self._settle_one(queue, said, said.get("trace"))
            except TokenRefused as error:
                summary = self._released_whole(queue, said)
                refusal = None if summary else error
            except UnknownBlock as error:
                refusal = error
        for block in queue.blocks.list("planned", limit=LOOKED_AT):
            # A plan that was cleared afterwards, or whose answer was lost: nobody processes it.
            if block.key == key_of(context, self.plan_task_id):
                more = self._settle_one(queue, told(queue, block))
                summary = summary or more
        if refusal is not None:
            raise AirflowFailException(f"{refusal}. What was not reported is back in its queues") from None
        if summary is None:
            self.log.info("There is no block to settle.")
        return summary

    def _released_whole(self, queue: MessageQueue, said: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what a block came to that was released past its lease, if nothing of it went back.

        Releasing settles what was reported, so after a pause nothing is lost or repeated.
        """
        # The block has ended: releasing it again only returns what it came to.
        result = queue.blocks.release(str(said["token"]))
        if result.went_back:
            return None
        summary = summary_of(said, result)
        self.log.warning(
            "Block %d was released before this task ran: its lease ran out. Every message was reported before and is "
            "settled. Give blocks a longer lease if this happens often.", summary["block"],
        )  # fmt: skip
        self.log.info("%s", readable(summary))
        return summary

    def _settle_one(
        self, queue: MessageQueue, said: Mapping[str, Any], trace: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        watched = telemetry.Settling(queue, str(said["token"]), trace)
        self._touched = self._touched or telemetry.taken(queue, str(said["token"]))
        summary = summary_of(said, queue.blocks.settle(said["token"], processor_of=self._processor_of()))
        self.log.info("%s", readable(summary))
        watched.told(summary)
        return summary

    def _processor_of(self) -> Callable[[str], str] | None:
        if self.processors is None:
            return None
        route = processors_of(self.processors).route
        return lambda origin: getattr(route(origin), "name", "")

    def _emit_again(self, queue: MessageQueue, context: Any, summary: Mapping[str, Any] | None) -> None:
        """Emit the outlet while anything is ready; not after a block in which nothing moved, or it would spin."""
        if self.outlet is None or (summary and summary["messages"] and not summary["moved"]):
            return
        pulse = queue.inspect.pulse()
        if pulse:
            context["outlet_events"][self._alias].add(self.outlet)
            ready = visible(str(list(pulse.ready))) if pulse.ready else None
            self.log.info("There is more to do, for %s: %s is emitted.", ready or "later", self.outlet.name)

    def _clear_folder(self, queue: MessageQueue, token: str, path: str) -> None:
        from airflow_mq.spark.exchange import clear

        try:
            clear(queue, token, path)
        except Exception as error:
            self.log.warning("The block's folder below %s could not be removed (%s).", path, type(error).__name__)

    def _notify(self, context: Any, summary: Mapping[str, Any]) -> None:
        for notifier in self.notifiers:
            try:
                notifier({**context, "airflow_mq": dict(summary)})
            except Exception:
                self.log.exception("A notifier failed; the block is settled all the same.")


def task_states(context: Any, task_ids: Iterable[str]) -> dict[str, str]:
    """The states of other tasks of this run, mapped ones each."""
    ti = context["ti"]
    known = ti.get_task_states(dag_id=ti.dag_id, task_ids=list(task_ids), run_ids=[ti.run_id])
    return {task: str(state) for task, state in (known.get(ti.run_id) or {}).items()}


def part_names(context: Any, plan_task_id: str, process_task_id: str) -> dict[str, str]:
    """Return the names of a block's parts, as Airflow renders them, by the keys under which it lists their states."""
    parts = context["ti"].xcom_pull(task_ids=plan_task_id)
    parts = parts if isinstance(parts, list) else []
    return {
        f"{process_task_id}_{index}": str(part["name"])[:200]
        for index, part in enumerate(parts)
        if isinstance(part, Mapping) and part.get("name")
    }


def summary_of(said: Mapping[str, Any], result: Serviced) -> dict[str, Any]:
    """What a block came to, plain."""
    moved = result.processed + result.failed + result.set_aside + result.expired
    return {
        "block": said["id"], "ring": said["ring"], "messages": said["messages"], "limit": list(said["limit"]),
        "planned": list(said["planned"]), "used": list(result.weight), "origins": result.origins,
        "processed": result.processed, "failed": result.failed, "set_aside": result.set_aside,
        "went_back": result.went_back, "expired": result.expired, "moved": moved,
    }  # fmt: skip


def readable(summary: Mapping[str, Any]) -> str:
    """What a block came to, for people."""
    share = 100 * Weight(*summary["used"]).part_of(Weight(*summary["limit"]))
    used, limit = ("/".join(f"{part:,}" for part in summary[name]) for name in ("used", "limit"))
    counts = ", ".join(
        f"{summary[name]:,} {words}"
        for name, words in (
            ("processed", "processed"), ("failed", "failed for good"), ("set_aside", "set aside for a person"),
            ("went_back", "went back"), ("expired", "expired"),
        )
        if summary[name]
    )  # fmt: skip
    return (
        f"Block {summary['block']} of ring {summary['ring']!r} is settled: {counts or 'nothing'} of "
        f"{many(summary['messages'], 'message')} of {many(summary['origins'], 'queue')}; "
        f"weight {used} of {limit} ({share:.0f} %)."
    )
