"""Failing a run when somebody does not get what was promised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_mq.operators.base import QueueOperator, number_of

#: How many broken promises an error names.
NAMED = 10


class CheckFairnessOperator(QueueOperator):
    """Fail if fairness is broken: somebody waited too long, or did not get its share.

    What counts is told in `airflow_mq.core.fairness`. Put it behind the block, or into a DAG of its own; it writes
    nothing. With no bound it only tells. Returns the figures: `blocks`, `jain`, `longest_wait`, `most_late`,
    `most_error`, and `origins`, a mapping each.

    :param most_wait: in how many blocks in a row at most a queue that had something may get nothing (templated)
    :param most_late: by how many blocks at most a backlog may last longer than by fair shares (templated)
    :param most_error: how far a share may be from what was promised, as a part of it: 0.05 is 5 % (templated)
    :param least_jain: what Jain's index is at least, from 0 to 1 (templated)
    :param blocks: how many blocks of the ledger to look back (templated)
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

    def execute(self, context: Any) -> dict[str, Any]:
        """Look, and fail if it is broken."""
        most_wait = _count(self.most_wait, "most_wait")
        most_late = _count(self.most_late, "most_late")
        most_error = number_of(self.most_error, "most_error", "a part, say 0.05")
        least_jain = number_of(self.least_jain, "least_jain", "a number from 0 to 1")
        with self.opened(context) as queue:
            told = queue.inspect.fairness(_count(self.blocks, "blocks") or 100)
        broken = told.broken(most_wait=most_wait, most_late=most_late, most_error=most_error, least_jain=least_jain)
        index = "nobody was left wanting" if told.jain is None else f"Jain's index is {told.jain:.3f}"
        self.log.info(
            "Over %d blocks, %s; the longest wait was %d blocks, the largest share error %.1f %%.",
            told.blocks, index, told.longest_wait, 100 * told.most_error,
        )  # fmt: skip
        if broken:
            more = f"; and {len(broken) - NAMED} more" if len(broken) > NAMED else ""
            raise AirflowFailException(
                f"fairness is broken over {told.blocks} blocks: {'; '.join(broken[:NAMED])}{more}. "
                "See `airflow-mq report fairness`, and `airflow-mq explain` for one origin"
            )
        return {
            "blocks": told.blocks, "jain": told.jain, "longest_wait": told.longest_wait,
            "most_late": told.most_late, "most_error": told.most_error,
            "origins": [asdict(one) for one in told.origins],
        }  # fmt: skip


def _count(value: Any, what: str) -> int | None:
    found = number_of(value, what, "a number of blocks")
    if found is None:
        return None
    if not 0 <= found < 1 << 63 or found != int(found):
        raise AirflowFailException(f"{what} is a whole number of blocks, not {value!r}")
    return int(found)


__all__ = ["CheckFairnessOperator"]
