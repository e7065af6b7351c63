"""Sensors that wait for ready queues, or for set-aside messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow.providers.common.compat.sdk import BaseSensorOperator, conf

from airflow_mq.hooks import MessageQueueHook
from airflow_mq.triggers import POLL_INTERVAL, QueueReadyTrigger, SetAsideTrigger


class _RingSensor(BaseSensorOperator):
    """Base of the sensors."""

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
        """Return what the sensor waits for, or None."""
        raise NotImplementedError

    def poke(self, context: Any) -> Any:
        """Check once."""
        from airflow.sdk.bases.sensor import PokeReturnValue

        found = self.found()
        return PokeReturnValue(bool(found), found)

    def execute(self, context: Any) -> Any:
        """Wait in the triggerer if the sensor is deferrable, else in the worker."""
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
        """Return the trigger's event."""
        return dict(event or {})


class QueueReadySensor(_RingSensor):
    """Wait until a block would find something to do. Returns the ring and its first ready origins.

    :param mq_conn_id: id of a connection of type `airflow_mq` (templated)
    :param ring: name of the ring; the connection's if left out (templated)
    :param poll_interval: seconds between two checks of the trigger
    :param deferrable: wait in the triggerer; `[operators] default_deferrable` if left out
    """

    _trigger = QueueReadyTrigger

    def found(self) -> dict[str, Any] | None:
        """Return the first ready origins, or None."""
        with MessageQueueHook(self.mq_conn_id).queue(self.ring or None) as queue:
            pulse = queue.inspect.pulse(10)
            return {"ring": queue.ring, "ready": list(pulse.ready), "due": pulse.due} if pulse else None


class SetAsideSensor(_RingSensor):
    """Wait for set-aside messages. Returns the ring and their number, at most 1,000.

    :param mq_conn_id: id of a connection of type `airflow_mq` (templated)
    :param ring: name of the ring; the connection's if left out (templated)
    :param poll_interval: seconds between two checks of the trigger
    :param deferrable: wait in the triggerer; `[operators] default_deferrable` if left out
    """

    _trigger = SetAsideTrigger

    def found(self) -> dict[str, Any] | None:
        """Return the number of set-aside messages, or None."""
        with MessageQueueHook(self.mq_conn_id).queue(self.ring or None) as queue:
            waiting = len(queue.set_aside.list(limit=1_000))
            return {"ring": queue.ring, "waiting": waiting} if waiting else None
