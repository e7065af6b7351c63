"""Operator that enqueues messages of the author, or of an XCom."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_mq.operators.enqueue.base import EnqueueOperator, Sourced

#: Fields that a message may have as a mapping.
FIELDS = ("origin", "payload", "key", "weight", "headers", "priority")


class EnqueueMessagesOperator(EnqueueOperator):
    """Enqueue messages, all of them or none. ::

        EnqueueMessagesOperator(task_id="one", origin="acme", messages=["an order of {{ ds }}"])
        EnqueueMessagesOperator(task_id="xcom", origin="acme", messages=extract.output)

    :param messages: payloads (text, bytes, or anything that becomes JSON), or mappings with `payload` and optionally
        `origin`, `key`, `weight`, `headers` and `priority` (templated, unless it is an XCom)
    :param origin: origin of all messages, or a function of the message (templated, if it is text)
    :param key_scope: `ring`: a message's own key is accepted once, whichever run sends it; `run`: once in each run
    :param idempotent: give messages keys; without keys a send is faster, and a retry may send twice
    :param weight: predicted cost of each message, `[time, size]` (templated)
    :param headers: headers of each message (templated)
    :param not_before: seconds until the messages join their queues (templated)
    :param expires: seconds until the messages expire (templated)
    :param priority: `high` messages are serviced before `regular` ones (templated)
    :param of_team: put the team of the DAG (of Airflow's multi-team) before each origin: `orders` becomes `team/orders`
    """

    template_fields: Sequence[str] = (*EnqueueOperator.template_fields, "messages")

    def __init__(self, *, messages: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.messages = messages

    def source(self) -> Iterator[Sourced]:
        given = self.messages
        several = [given] if isinstance(given, (str, bytes, Mapping)) else given
        if not isinstance(several, Iterable):
            raise AirflowFailException(f"invalid messages (of type {type(given).__name__}): expected a list, or one")
        for place, message in enumerate(several):
            fields = message if isinstance(message, Mapping) and "payload" in message else {}
            if unknown := [str(name) for name in fields if name not in FIELDS]:
                raise AirflowFailException(
                    f"unknown field {', '.join(unknown)[:80]} of a message: expected {', '.join(FIELDS)}"
                )
            origin = self.origin_of(message, fields.get("origin"))
            yield Sourced(str(place), origin, fields["payload"] if fields else message, fields=fields)
