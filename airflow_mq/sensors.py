"""Sensors that wait for ready queues, or for set-aside messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowSkipException, BaseSensorOperator, PokeReturnValue, conf

from airflow_mq.engine.rules.errors import MessageQueueError, StoreError
from airflow_mq.hooks import MessageQueueHook
from airflow_mq.triggers import LASTING, POLL_INTERVAL, QueueReadyTrigger, SetAsideTrigger, read_ring

if TYPE_CHECKING:
    from airflow.sdk import Context


class _RingSensor(BaseSensorOperator):
    """Base of the sensors.

    :param mq_conn_id: id of a connection of type `airflow_mq` (templated)
    :param ring: name of the ring; the connection's if left out (templated)
    :param poke_interval: seconds between two checks, also of the trigger: 5, or 60 with `mode="reschedule"`, because
        Airflow may fail a task that it starts again within seconds
    :param deferrable: wait in the triggerer; `[operators] default_deferrable` if left out
    """

    template_fields: Sequence[str] = ("mq_conn_id", "ring")
    ui_color = "#e8f0e4"
    _trigger: type[QueueReadyTrigger] | type[SetAsideTrigger]
    #: What it waits for, as a log names it.
    _awaits: str

    def __init__(
        self,
        *,
        mq_conn_id: str = MessageQueueHook.default_conn_name,
        ring: str | None = None,
        poke_interval: timedelta | float | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=POLL_INTERVAL if poke_interval is None else poke_interval, **kwargs)
        if poke_interval is None and self.reschedule:
            self.poke_interval = 60.0
        self.mq_conn_id = mq_conn_id
        self.ring = ring
        self.deferrable = deferrable
        self._is_logged = False

    def found(self) -> dict[str, object] | None:
        """Return the event of the sensor's trigger, or None."""
        with MessageQueueHook(self.mq_conn_id).queue(self.ring) as queue:
            if not self._is_logged:
                awaited = self._awaits.format(explain=queue.session.cli("explain ORIGIN"))
                self.log.info("Waiting for %s, in ring %r of %s.", awaited, queue.ring, queue.store.address.safe)
                self._is_logged = True
            return self._trigger(self.mq_conn_id, self.ring).news(read_ring(queue))

    def poke(self, context: Context) -> PokeReturnValue:
        found = self.found()
        return PokeReturnValue(bool(found), found)

    def execute(self, context: Context) -> object:
        if not self.deferrable:
            return super().execute(context)
        try:
            found = self.found()
        except Exception as error:
            is_passing = isinstance(error, StoreError) and not isinstance(error, LASTING)
            if not (self.silent_fail or is_passing):
                self._fail(error)
            self.log.exception("The ring could not be read; the trigger tries again.")
            found = None
        if found:
            return found
        self.defer(
            # As a sensor that pokes, it then waits in spite of errors that last.
            trigger=self._trigger(self.mq_conn_id, self.ring, self.poke_interval, give_up=not self.silent_fail),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )
        return None

    def execute_complete(self, context: Context, event: Mapping[str, object] | None = None) -> dict[str, object]:
        told = dict(event or {})
        if "error" in told:
            self._fail(MessageQueueError(str(told["error"])))
        return told

    def _fail(self, error: Exception) -> NoReturn:
        """End the task as a sensor that pokes does: with `never_fail` it is skipped."""
        if self.never_fail:
            raise AirflowSkipException(f"never_fail is set: {error}") from error
        raise error


class QueueReadySensor(_RingSensor):
    """Wait until a block would find something to do. Returns the ring and its first ready origins."""

    _trigger = QueueReadyTrigger
    _awaits = "messages of queues that are not paused and have budget left (reasons: `{explain}`)"


class SetAsideSensor(_RingSensor):
    """Wait for set-aside messages. Returns the ring and their number, at most 1,000."""

    _trigger = SetAsideTrigger
    _awaits = "a message that is set aside"
