"""Processors, named on the command line as `module:function`; never read from the store."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

from ..loading import load_named
from .command import UsageError
from .session import Session


def load(name: str) -> object:
    """Import a processor."""
    module_name, _, path = name.partition(":")
    if not (module_name and path):
        raise UsageError(f"invalid processor {name!r}: expected MODULE:FUNCTION, for example orders:process")
    if os.getcwd() not in sys.path and "" not in sys.path:
        # Last, so that no file of this folder hides an installed module.
        sys.path.append(os.getcwd())
    try:
        return load_named(name)
    except Exception as error:
        raise UsageError(f"the processor {name} cannot be loaded: {type(error).__name__}: {error}") from None


def load_callable(name: str) -> Callable[..., Any]:
    """Import a processor that takes single messages or whole batches."""
    found = load(name)
    if not callable(found):
        raise UsageError(f"invalid processor {name}: expected a callable, got {type(found).__name__}")
    return found


@contextmanager
def stdout_kept_clean(session: Session) -> Iterator[None]:
    """Send what processors print to standard error, if the result is JSON."""
    if session.out.as_json:
        with redirect_stdout(sys.stderr):
            yield
    else:
        yield
