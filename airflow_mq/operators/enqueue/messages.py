"""Operator that enqueues messages of the author, or of an XCom."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_mq.operators.base import refuse_text_of
from airflow_mq.operators.enqueue.base import EnqueueOperator, Sourced, as_bytes
from airflow_mq.words import many

if TYPE_CHECKING:
    from jinja2 import Environment

#: Fields that a message may have as a mapping.
FIELDS = ("origin", "payload", "key", "weight", "headers", "priority")
#: Types of a single message that is not in a list.
ONE = (str, bytes, Mapping)


class EnqueueMessagesOperator(EnqueueOperator):
    """Enqueue messages, all of them or none. ::

        EnqueueMessagesOperator(task_id="one", origin="acme", messages=["an order of {{ ds }}"])
        EnqueueMessagesOperator(task_id="xcom", origin="acme", messages=extract.output)

    :param messages: payloads (text, bytes, or anything that becomes JSON), or mappings with `payload` and optionally
        `origin`, `key`, `weight`, `headers` and `priority` (templated, unless it is an XCom)
    """

    template_fields: Sequence[str] = (*EnqueueOperator.template_fields, "messages")
    #: Whether the author wrote one expression of a template, as text.
    _is_expression = False

    def __init__(self, *, messages: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.messages = messages

    def before_rendering(self, jinja_env: Environment, seen_oids: set[int]) -> None:
        if isinstance(self.messages, str) and id(self.messages) not in seen_oids:
            text = self.messages.strip()
            self._is_expression = text.startswith("{{") and text.endswith("}}") and text.count("{{") == 1

    def after_rendering(self) -> None:
        # Airflow stores what it rendered.
        self.messages = Unshown(self.messages)

    def source(self) -> Iterator[Sourced]:
        given = self.messages.messages if isinstance(self.messages, Unshown) else self.messages
        if self._is_expression:
            refuse_text_of(given, "messages")
        for message in _several(given):
            fields = _fields(message)
            if unknown := [str(name) for name in fields if name not in FIELDS]:
                raise AirflowFailException(
                    f"unknown field {', '.join(unknown)[:80]} of a message: expected {', '.join(FIELDS)}"
                )
            origin = self.origin_of(message, fields.get("origin"))
            yield Sourced(origin, _payload(message), fields=fields)


class Unshown:
    """Rendered messages; as text they are a summary, which is all that Airflow stores and shows of them."""

    def __init__(self, messages: Any) -> None:
        self.messages = messages

    def __str__(self) -> str:
        given = self.messages
        if isinstance(given, (list, tuple, *ONE)):
            several = _several(given)
            size = sum(len(as_bytes(_payload(message))) for message in several)
            return f"{many(len(several), 'message')} of {size:,} bytes"
        # To measure a sequence of XComs would be to fetch each of them.
        return many(len(given), "message") if isinstance(given, Sized) else f"messages (of type {type(given).__name__})"

    __repr__ = __str__


def _several(given: Any) -> Any:
    """Return messages as an author gave them: several, or one."""
    several = [given] if isinstance(given, ONE) else given
    if not isinstance(several, Iterable):
        raise AirflowFailException(
            f"invalid messages (of type {type(given).__name__}): expected a list, or one message; a task "
            "with nothing to send returns []"
        )
    return several


def _fields(message: Any) -> Mapping[str, Any]:
    """Return the fields of a message that is a mapping with a payload; empty if the message is the payload."""
    return message if isinstance(message, Mapping) and "payload" in message else {}


def _payload(message: Any) -> Any:
    return _fields(message).get("payload", message)
