"""Operator that fails a run when a queue does not get its fair share."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_mq.engine.rules.characters import listed, visible
from airflow_mq.operators.base import QueueOperator, number_of, whole_of

if TYPE_CHECKING:
    from airflow.sdk import Context

BLOCKS = "a whole number of blocks"
#: Queues in the result.
MOST = 100


class CheckFairnessOperator(QueueOperator):
    """Fail if an origin waited too long or did not get its share.

    `engine.rules.fairness` defines the figures. Run it after the block, or in a DAG of its own; it writes nothing.
    Without bounds it only reports. Returns `blocks`, `jain`, `longest_wait`, `most_late`, `most_error`, `queues` (how
    many have figures), and `origins`: a mapping for each of the 100 worst of them, the longest wait first.

    :param most_wait: blocks in a row that a queue with messages may get nothing (templated)
    :param most_late: blocks by which a backlog may last longer than by fair shares (templated)
    :param most_error: distance of a share from the promised one, as a fraction: 0.05 is 5 % (templated)
    :param least_jain: smallest value of Jain's index, from 0 to 1 (templated)
    :param blocks: blocks of the ledger to look back (templated)
    """

    template_fields: Sequence[str] = (
        *QueueOperator.template_fields, "most_wait", "most_late", "most_error", "least_jain", "blocks",
    )  # fmt: skip

    def __init__(
        self,
        *,
        most_wait: int | str | None = None,
        most_late: int | str | None = None,
        most_error: float | str | None = None,
        least_jain: float | str | None = None,
        blocks: int | str = 100,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.most_wait = most_wait
        self.most_late = most_late
        self.most_error = most_error
        self.least_jain = least_jain
        self.blocks = blocks

    def execute(self, context: Context) -> dict[str, Any]:
        most_wait = whole_of(self.most_wait, "most_wait", BLOCKS)
        most_late = whole_of(self.most_late, "most_late", BLOCKS)
        most_error = number_of(self.most_error, "most_error", "a fraction, such as 0.05")
        least_jain = number_of(self.least_jain, "least_jain", "a number from 0 to 1", 1)
        with self.opened(context) as queue:
            blocks = whole_of(self.blocks, "blocks", BLOCKS)
            report = queue.inspect.fairness(100 if blocks is None else blocks)
        broken = report.broken(most_wait=most_wait, most_late=most_late, most_error=most_error, least_jain=least_jain)
        index = "no queue had more than it got" if report.jain is None else f"Jain's index is {report.jain:.3f}"
        self.log.info(
            "Over %d blocks, %s; the longest wait was %d blocks, the largest share error %.1f %%.",
            report.blocks,
            index,
            report.longest_wait,
            100 * report.most_error,
        )
        if broken:
            raise AirflowFailException(
                f"fairness is broken over {report.blocks} blocks: {listed(broken, visible, 10, '; ')}. "
                f"See `{queue.session.cli('report fairness')}`, and `{queue.session.cli('explain ORIGIN')}`"
            )
        worst = nlargest(MOST, report.origins, key=lambda one: (one.longest_wait, one.late, abs(one.error or 0)))
        return {
            "blocks": report.blocks,
            "jain": report.jain,
            "longest_wait": report.longest_wait,
            "most_late": report.most_late,
            "most_error": report.most_error,
            "queues": len(report.origins),
            "origins": [origin._asdict() for origin in worst],
        }
