"""A rule for what is refused to senders: nothing of it is stored, and nothing else changes."""

from __future__ import annotations

from hypothesis.stateful import rule

from airflow_mq.engine.rules.patterns import Permit

from .drawn import origins
from .ground import Ground
from .sides import Side


class Refusing(Ground):
    """Senders who are confined."""

    @rule(origin=origins)
    def send_as_somebody_else(self, origin: str) -> None:
        def real(side: Side) -> None:
            side.queue.session.check_sender, before = (
                Permit("nobody|nobody/*").check_origin,
                side.queue.session.check_sender,
            )
            try:
                side.queue.enqueue_messages([("nobody/else", b"1"), (origin, b"2")])
            finally:
                side.queue.session.check_sender = before

        assert self.sides.do(real) == "NotPermitted"
