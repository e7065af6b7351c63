"""Operators that keep queues in order: pause, resume, reap a page, and regular housekeeping."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_mq.engine.rules.characters import quoted
from airflow_mq.observe import metrics
from airflow_mq.operators.base import QueueOperator, refuse_text_of, release_finished, seconds_of, whole_of

if TYPE_CHECKING:
    from airflow.sdk import Context


class PauseQueueOperator(QueueOperator):
    """Pause origins: blocks skip their queues, and sending to them goes on.

    A block in flight is not stopped. Returns the origins.

    :param origins: one origin or several; none if it is empty (templated)
    :param reason: shown to people who wonder why (templated)
    :param until: end of the pause: a time with its zone, a time span, or seconds from now; refused if it renders to
        nothing (templated)
    :param below: in a ring with paths, pause all origins below them as well, also those that come later
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
        self._has_end = until is not None
        self.below = below

    def execute(self, context: Context) -> list[str]:
        until, origins = _until(self.until), _several(self.origins)
        if until is None and self._has_end:
            raise AirflowFailException(
                "until is empty: expected a time, a time span, or seconds; for a pause without an end leave it out"
            )
        with self.opened(context) as queue:
            for origin in origins:
                queue.admin.pause(origin, str(self.reason or ""), until, below=self.below)
        paused = ", ".join(map(quoted, origins)) or "nothing: origins is empty"
        self.log.info("Paused %s%s.", paused, " and all below" if origins and self.below else "")
        return origins


class ResumeQueueOperator(QueueOperator):
    """Resume origins, and everything that was paused with them below. Returns those that were paused or in a backoff.

    :param origins: one origin or several; none if it is empty (templated)
    """

    template_fields: Sequence[str] = (*QueueOperator.template_fields, "origins")

    def __init__(self, *, origins: str | Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.origins = origins

    def execute(self, context: Context) -> list[str]:
        with self.opened(context) as queue:
            resumed = [origin for origin in _several(self.origins) if queue.admin.resume(origin)]
        self.log.info("Resumed %s.", ", ".join(map(quoted, resumed)) or "nothing: nothing was paused or in a backoff")
        return resumed


class ReapPageOperator(QueueOperator):
    """Delete an old page of an origin with the messages that it still holds; an event records the loss.

    :param origin: origin of the page (templated)
    :param page: number of the page (templated)
    :param why: reason, stored with the event (templated)
    :param priority: priority of the page's messages, `regular` or `high` (templated)
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

    def execute(self, context: Context) -> None:
        page = whole_of(self.page, "page")
        if page is None:
            raise AirflowFailException(f"invalid page {self.page!r}: expected a whole number")
        with self.opened(context) as queue:
            queue.reap_page(self.origin, page, str(self.why or ""), priority=self.priority)
        self.log.info("Reaped page %d of %s.", page, quoted(self.origin))


class HousekeepingOperator(QueueOperator):
    """Release dead blocks and delete what has expired, for a DAG that runs from time to time.

    Releases the blocks whose DAG runs have ended or whose lease ran out. Deletes events, keys, ledgers and blocks older
    than the ring keeps them. Returns the counts, and emits the metrics of waiting messages. Set-aside messages stay,
    unless the ring's policies `set_aside_expires` and `discard_unreadable` apply.

    :param cull: delete stale pages as well, once there are more of them than the ring keeps; their set-aside messages
        are lost, with an event for each
    :param check: check everything that is stored, and fail on an integrity problem
    """

    def __init__(self, *, cull: bool = False, check: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cull = cull
        self.check = check

    def execute(self, context: Context) -> dict[str, int]:
        with self.opened(context) as queue:
            finished = release_finished(queue, context["ti"], self.log)
            dead = queue.admin.housekeep()
            counts = {
                "finished_blocks": finished,
                "expired_messages": queue.set_aside.expired,
                "dead_blocks": dead,
                "culled_pages": queue.set_aside.cull() if self.cull else 0,
            }
            metrics.watched(queue)
            violations = queue.check() if self.check else []
        shown = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())
        self.log.info("Housekeeping: %s.", shown)
        if violations:
            raise AirflowFailException(
                f"{len(violations)} integrity problems; the first: {violations[0]}. "
                f"List them with `{queue.session.cli('check')}`"
            )
        return counts


def _several(given: str | Sequence[str] | None) -> list[str]:
    """Return the origins that an author named; none for empty text or an empty XCom."""
    refuse_text_of(given, "origins")
    if given is None or given == "":
        return []
    return list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]


def _until(given: datetime | timedelta | float | str | None) -> datetime | timedelta | float | None:
    if not isinstance(given, str):
        return given
    if "-" not in given:
        return seconds_of(given, "until")
    try:
        return datetime.fromisoformat(given.strip().replace("Z", "+00:00"))
    except ValueError:
        raise AirflowFailException(
            f"invalid until {given!r:.80}: expected a time, such as 2026-12-24T18:00:00Z, or seconds"
        ) from None
