"""Sensors: wait until there is something to do, or something to decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow.providers.common.compat.sdk import BaseSensorOperator, conf

from airflow_mq.hooks import MessageQueueHook
from airflow_mq.triggers import POLL_INTERVAL, QueueReadyTrigger, SetAsideTrigger


class _RingSensor(BaseSensorOperator):
    """What the sensors have in common."""

    template_fields: Sequence[str] = ("mq_conn_id", "ring")
    ui_color = "#e8f0e4"
    _trigger: type[QueueReadyTrigger] | type[SetAsideTrigger]

    def __init__(
        self,
        *,
        mq_conn_id: str = MessageQueueHook.default_conn_name,
        ring: str | None = None,
        poll_interval: float = POLL_INTERVAL,
        deferrable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.mq_conn_id = mq_conn_id
        self.ring = ring
        self.poll_interval = poll_interval
        self.deferrable = deferrable

    def found(self) -> dict[str, Any] | None:
        """What there is; nothing where there is nothing."""
        raise NotImplementedError

    def poke(self, context: Any) -> Any:
        """Look once."""
        from airflow.sdk.bases.sensor import PokeReturnValue

        found = self.found()
        return PokeReturnValue(bool(found), found)

    def execute(self, context: Any) -> Any:
        """Wait, in the triggerer unless told otherwise."""
        deferrable = self.deferrable
        if deferrable is None:
            deferrable = conf.getboolean("operators", "default_deferrable", fallback=False)
        if not deferrable:
            return super().execute(context)
        found = self.found()
        if found:
            return found
        self.defer(
            trigger=self._trigger(self.mq_conn_id, self.ring, self.poll_interval),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )
        return None

    def execute_complete(self, context: Any, event: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What the trigger found."""
        return dict(event or {})


class QueueReadySensor(_RingSensor):
    """Wait until a block would find something to do. Returns the ring and its first ready origins.

    :param mq_conn_id: id of a connection of type `airflow_mq` (templated)
    :param ring: name of the ring; without it the connection's (templated)
    :param poll_interval: seconds between two looks of the trigger
    :param deferrable: wait in the triggerer; `[operators] default_deferrable` if left out
    """

    _trigger = QueueReadyTrigger

    def found(self) -> dict[str, Any] | None:
        """The first ready origins."""
        with MessageQueueHook(self.mq_conn_id).queue(self.ring or None) as queue:
            pulse = queue.inspect.pulse(10)
            return {"ring": queue.ring, "ready": list(pulse.ready), "due": pulse.due} if pulse else None


class SetAsideSensor(_RingSensor):
    """Wait until messages wait for a person. Returns the ring and how many wait, a thousand at most.

    Parameters are those of `QueueReadySensor`.
    """

    _trigger = SetAsideTrigger

    def found(self) -> dict[str, Any] | None:
        """How many messages wait."""
        with MessageQueueHook(self.mq_conn_id).queue(self.ring or None) as queue:
            waiting = len(queue.set_aside.list(limit=1_000))
            return {"ring": queue.ring, "waiting": waiting} if waiting else None
