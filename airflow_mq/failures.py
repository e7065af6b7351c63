"""Failures of processors: which texts may be stored, shown and logged.

The text of an exception often quotes what the processor was given: `int(payload)` puts the payload into it. So an
event keeps the type of the exception, and a log its type and traceback. The text is kept only

* of a `ProcessorError`, whose author vouches for it, as with `Yield(reason)`;
* of an error of this package that never quotes a message (`SAFE`);
* in the log of the process that called the processor, if `AIRFLOW_MQ_LOG_ERROR_TEXTS=1` allows it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from .engine.rules.errors import (
    BlobMissing,
    DeliverySealed,
    EmptyMessage,
    InvalidOutcome,
    MessageTooLong,
    NotPermitted,
    ProcessorError,
    RecursiveDisallowed,
)

#: Environment variable: `1` allows logs to show the texts of errors.
VARIABLE = "AIRFLOW_MQ_LOG_ERROR_TEXTS"
#: Errors whose texts never quote a message.
SAFE = (ProcessorError, InvalidOutcome, EmptyMessage, MessageTooLong, RecursiveDisallowed, DeliverySealed, BlobMissing)

_allowed: ContextVar[bool] = ContextVar("log_error_texts", default=False)


class TextWithheld(Exception):
    """Stands in a log for an exception whose text may quote a message."""

    def __init__(self, error: BaseException) -> None:
        self.reason = reason_of(error)
        self.is_whole = isinstance(error, SAFE)
        super().__init__(self.reason if self.is_whole else f"{self.reason}; to log its text, set {VARIABLE}=1")


def texts_allowed() -> bool:
    """Return whether logs may show the texts of errors."""
    return _allowed.get() or os.environ.get(VARIABLE, "").strip().lower() in ("1", "true", "yes", "on")


@contextmanager
def allowing_texts(allowed: bool = True) -> Iterator[None]:
    """Allow logs to show the texts of errors while this is open."""
    mark = _allowed.set(allowed or _allowed.get())
    try:
        yield
    finally:
        _allowed.reset(mark)


def reason_of(error: BaseException) -> str:
    """Return the reason that an event keeps: the error's type, and its text if that is safe."""
    name = type(error).__name__
    text = error.safe if isinstance(error, NotPermitted) else str(error) if isinstance(error, SAFE) else ""
    return f"{name}: {text}" if text else name


def loggable(error: BaseException, allowed: bool | None = None) -> BaseException:
    """Return an exception for `exc_info`: the error, or a stand-in with its traceback and without its text.

    :param allowed: whether the text may be shown; without it, what `texts_allowed` returns.
    """
    if texts_allowed() if allowed is None else allowed:
        return error
    # The stand-in has neither cause nor context: their texts are withheld, too.
    return TextWithheld(error).with_traceback(error.__traceback__)
