"""Common parts of both drivers: translation of errors and of structured values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..core.errors import InvalidInput, MessageQueueError


@contextmanager
def translating(theirs: type[Exception], named: Callable[[Any], MessageQueueError]) -> Iterator[None]:
    """Raise errors of a driver as errors of this package, never with the address in them."""
    try:
        yield
    except MessageQueueError:
        raise
    except theirs as error:
        raise named(error) from error
    except (OverflowError, UnicodeEncodeError) as error:
        raise InvalidInput(f"a value of this call cannot be stored: {error}") from None


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values, with lists and dictionaries as JSON."""
    return {
        name: json.dumps(value, separators=(",", ":")) if isinstance(value, (dict, list)) else value
        for name, value in values.items()
    }
