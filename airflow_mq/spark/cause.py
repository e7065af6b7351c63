"""The cause of a failed Spark job, read from its output or from the text of an exception of Spark's."""

from __future__ import annotations

import re

from .. import failures
from ..engine.rules import errors

#: The longest cause that is kept.
LONGEST = 1_000
#: The first line of an exception, of Java or of Python. Log lines begin with a time, and code is indented.
_ERROR = re.compile(
    r"""(?:Caused\ by:\ |Exception\ in\ thread\ "[^"]*"\ |:\ )?
    (?P<error>(?:[A-Za-z_][\w$]*\.)+[A-Z][\w$]*(?::\ .*)?|[A-Z]\w*(?:Error|Exception|Exit)(?::\ .*)?
    |(?:Error|Invalid\ (?:initial|maximum)\ heap\ size|Unrecognized\ (?:VM\ )?option):?\ .+)$""",
    re.VERBOSE,
)
_PACKAGES = re.compile(r"^(?:[A-Za-z_][\w$]*\.)+(?=[A-Z])")
#: The last lines of a JVM that did not start, behind the line with the cause.
_NO_JVM = ("Error: Could not create the Java Virtual Machine", "Error: A fatal exception has occurred")
#: Line before a Python traceback in Spark's output; the traceback's last line names the error.
_TRACEBACK = "Traceback (most recent call last):"
#: The first error in a Python worker: the frames of its traceback are indented.
_IN_WORKER = re.compile(
    rf"^{re.escape(_TRACEBACK)}\n(?: .*\n)+(?P<module>(?:\w+\.)*)(?P<error>(?P<name>\w+)(?:: .*)?)$", re.MULTILINE
)
_WORKER_DIED = "Python worker exited unexpectedly"


def error_of(line: str) -> str | None:
    """Return the error that a line names, without the packages of its class."""
    match = _ERROR.match(line.rstrip())
    if match is None or match["error"].endswith(_TRACEBACK) or match["error"].startswith(_NO_JVM):
        return None
    return _PACKAGES.sub("", match["error"])[:LONGEST]


def cause_of(error: BaseException) -> str:
    """Return the cause of an error that a driver caught, in one line."""
    text = str(error)
    # The last error that its lines name is the root of a chain of causes.
    lines = reversed(text.splitlines()) if "\n" in text else ()
    return next(filter(None, map(error_of, lines)), None) or f"{type(error).__name__}: {text}"[:LONGEST]


def reason_of_worker(error: BaseException) -> str:
    """Return the error of a Python worker, which is in the text of Spark's: its type, and its text if that is safe."""
    text = str(error)
    match = _IN_WORKER.search(text)
    if match is None:
        return "a Python worker died" if _WORKER_DIED in text else failures.reason_of(error)
    kind = getattr(errors, match["name"], None) if match["module"] == f"{errors.__name__}." else None
    is_safe = kind is not None and issubclass(kind, (*failures.SAFE, errors.StoreError))
    return match["error"][:LONGEST] if is_safe else match["name"]
