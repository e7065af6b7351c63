"""Keeping queues in order: pausing, resuming, reaping, and what is to be done from time to time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_mq import metrics
from airflow_mq.core.characters import quoted
from airflow_mq.operators.base import QueueOperator, number_of, release_finished

if TYPE_CHECKING:
    pass


class PauseQueueOperator(QueueOperator):
    """Let servicing pass origins by. Sending to them goes on, and a block in flight is not stopped.

    :param origins: one origin or several (templated)
    :param reason: why, for whoever wonders (templated)
    :param until: when it ends by itself: a time with its zone, a time span, or seconds from now (templated)
    :param below: of a ring with paths, with all below them, also what comes later
    """

    template_fields: Sequence[str] = (*QueueOperator.template_fields, "origins", "reason", "until")

    def __init__(
        self,
        *,
        origins: str | Sequence[str],
        reason: str = "",
        until: datetime | timedelta | float | str | None = None,
        below: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.origins = origins
        self.reason = reason
        self.until = until
        self.below = below

    def execute(self, context: Any) -> list[str]:
        """Pause them."""
        until = _until(self.until)
        with self.opened(context) as queue:
            for origin in (found := _several(self.origins)):
                queue.admin.pause(origin, self.reason, until, below=self.below)
        self.log.info("Paused %s%s.", ", ".join(map(quoted, found)), " and all below" if self.below else "")
        return found


class ResumeQueueOperator(QueueOperator):
    """Service origins again, and with them what was paused below them. Returns those that were paused.

    :param origins: one origin or several (templated)
    """

    template_fields: Sequence[str] = (*QueueOperator.template_fields, "origins")

    def __init__(self, *, origins: str | Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.origins = origins

    def execute(self, context: Any) -> list[str]:
        """Resume them."""
        with self.opened(context) as queue:
            found = [origin for origin in _several(self.origins) if queue.admin.resume(origin)]
        self.log.info("Resumed %s.", ", ".join(map(quoted, found)) or "nothing: nothing was paused")
        return found


class ReapPageOperator(QueueOperator):
    """Remove an old page of an origin, with the messages it still holds: they are lost, and the event says so.

    :param origin: whose page (templated)
    :param page: its number (templated)
    :param why: the reason, recorded (templated)
    :param priority: of which messages the page is, `regular` or `high` (templated)
    """

    template_fields: Sequence[str] = (*QueueOperator.template_fields, "origin", "page", "why", "priority")

    def __init__(
        self, *, origin: str, page: int | str, why: str = "", priority: str = "regular", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.priority = priority
        self.origin = origin
        self.page = page
        self.why = why

    def execute(self, context: Any) -> None:
        """Reap it."""
        try:
            page = int(self.page)
        except (TypeError, ValueError, OverflowError):
            raise AirflowFailException(f"a page is a whole number, not {self.page!r}") from None
        with self.opened(context) as queue:
            queue.reap_page(self.origin, page, self.why, priority=self.priority)
        self.log.info("Reaped page %d of %s.", page, quoted(self.origin))


class HousekeepingOperator(QueueOperator):
    """What is to be done from time to time: end dead blocks, let go of what is kept no longer.

    Releases the blocks whose DAG runs are over or whose lease ran out, and expires events, keys, ledgers and
    blocks beyond the time that the ring keeps them. Returns what it did, and tells metrics how much waits.

    What is set aside stays, unless the ring's policies say otherwise: `set_aside_expires`, `discard_unreadable`.

    :param cull: remove stale pages, too, as soon as there are more of them than the ring wants to keep; the
        messages that wait on them for a person are lost, and an event for each says so
    :param check: look over everything that is stored, and fail if anything is not as it should be
    """

    def __init__(self, *, cull: bool = False, check: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cull = cull
        self.check = check

    def execute(self, context: Any) -> dict[str, int]:
        """Do it."""
        with self.opened(context) as queue:
            done = {
                "finished_blocks": release_finished(queue, context["ti"], self.log),
                "expired_messages": queue.set_aside.expire(),
                "dead_blocks": queue.admin.housekeep(),
                "culled_pages": queue.set_aside.cull() if self.cull else 0,
            }
            metrics.watched(queue)
            violations = queue.check() if self.check else []
        self.log.info(
            "Housekeeping: %s.", ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in done.items())
        )
        if violations:
            raise AirflowFailException(
                f"{len(violations)} violations; the first: {violations[0]}. See them with `airflow-mq check`"
            )
        return done


def _several(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _until(given: datetime | timedelta | float | str | None) -> datetime | timedelta | float | None:
    if not isinstance(given, str):
        return given
    try:
        return (
            datetime.fromisoformat(given.strip().replace("Z", "+00:00")) if "-" in given else number_of(given, "until")
        )
    except ValueError:
        raise AirflowFailException(f"until is a time, say 2026-12-24T18:00:00Z, or seconds, not {given!r}") from None


__all__ = ["HousekeepingOperator", "PauseQueueOperator", "ReapPageOperator", "ResumeQueueOperator"]
