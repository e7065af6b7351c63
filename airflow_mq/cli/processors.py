"""Processors, as the person at the terminal names them: `module:function`. Never from the store."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

from ..loading import load_named
from .command import UsageError, option
from .session import Session

PROCESSOR = option(
    "--processor", required=True, metavar="MODULE:FUNCTION",
    help="what to call for each message, say orders:process; found as Python finds modules, and in this folder",
)  # fmt: skip
TRACEBACK = option(
    "--traceback",
    action="store_true",
    help="print the traceback and the text of what a processor raises; the text may quote the message",
)


def load(name: str) -> Any:
    """Import a processor."""
    module_name, _, path = name.partition(":")
    if not (module_name and path):
        raise UsageError(f"a processor reads MODULE:FUNCTION, say orders:process, not {name!r}")
    if os.getcwd() not in sys.path and "" not in sys.path:
        # Behind all others: nothing in this folder can take the place of an installed module.
        sys.path.append(os.getcwd())
    try:
        return load_named(name)
    except Exception as error:
        raise UsageError(f"the processor {name} cannot be loaded: {type(error).__name__}: {error}") from None


def load_callable(name: str) -> Any:
    """Import a processor that takes single messages."""
    found = load(name)
    if not callable(found):
        raise UsageError(f"the processor {name} is a {type(found).__name__}, and cannot be called")
    return found


@contextmanager
def stdout_kept_clean(session: Session) -> Iterator[None]:
    """Where the answer is JSON, what processors print goes to stderr."""
    if session.out.as_json:
        with redirect_stdout(sys.stderr):
            yield
    else:
        yield
