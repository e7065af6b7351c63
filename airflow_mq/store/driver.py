"""What both drivers share: values as they take them, and their errors by our names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..core.errors import InvalidInput, MessageQueueError


@contextmanager
def translating(theirs: type[Exception], named: Callable[[Any], MessageQueueError]) -> Iterator[None]:
    """Errors of a driver, by our names; never with the address in them."""
    try:
        yield
    except MessageQueueError:
        raise
    except theirs as error:
        raise named(error) from error
    except (OverflowError, UnicodeEncodeError) as error:
        raise InvalidInput(f"a value of this call cannot be stored: {error}") from None


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values, with what is structured as JSON."""
    return {
        name: json.dumps(value, separators=(",", ":")) if isinstance(value, (dict, list)) else value
        for name, value in values.items()
    }
