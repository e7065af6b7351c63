"""Execution of a command: result on standard output, errors in one line on standard error, exit code."""

from __future__ import annotations

import logging
import os
import select
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from io import TextIOWrapper
from urllib.parse import quote

from .. import failures
from ..engine.rules.errors import InvalidInput, MessageQueueError, StoreError
from .command import INTERRUPTED, NO, OK, PROGRAM, REFUSED, STORE, USAGE, UsageError
from .completion import add_completers
from .output import error_line, shown, without_passwords
from .parser import make_parser, parse_line
from .session import VARIABLE, Session


def run_line(argv: Sequence[str] | None = None) -> int:
    """Run a command line; return the exit code."""
    if argv is None and "_ARGCOMPLETE" in os.environ:  # set by a shell that completes a line
        _complete()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        args = parse_line(words)
    except UsageError as error:
        args = Namespace(run=partial(_refuse, error), json="--json" in words)
    except SystemExit as done:  # argparse has printed the help that was asked for
        return int(done.code or 0)
    return run(args)


def _refuse(error: UsageError, *_: object) -> None:
    raise error


def _complete() -> None:
    """Answer a shell that completes a line, and exit."""
    import argcomplete

    parser = make_parser()
    add_completers(parser)
    argcomplete.autocomplete(parser, always_complete_options=False)


def run(args: Namespace) -> int:
    """Run a command with parsed arguments; return the exit code."""
    # Closed streams are None.
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # A terminal that knows few characters gets the others escaped.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    session = Session(args)
    as_json = session.out.as_json
    try:
        with _log_in_lines(as_json, getattr(args, "traceback", False)):
            answer = args.run(session, args)
            sys.stdout.flush()
        return NO if answer is False else OK
    except OSError as error:
        # The reader has closed the pipe, as in `airflow-mq message events | head`, or the output's disk is full.
        is_closed = isinstance(error, BrokenPipeError) and _is_stdout_broken()
        with suppress(Exception):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK if is_closed else _report(error, session)
    except KeyboardInterrupt:
        error_line("interrupted; what was committed before stays", "Interrupted", INTERRUPTED, as_json=as_json)
        return INTERRUPTED
    except Exception as error:
        return _report(error, session)


def _is_stdout_broken() -> bool:
    """Return whether no process reads standard output any more."""
    output = select.poll()
    with suppress(OSError, ValueError):  # Not every stream is a file.
        output.register(sys.stdout.fileno(), 0)
    return bool(output.poll(0))


def _report(error: Exception, session: Session) -> int:
    code = code_of(error)
    text = _unexpected(error) if code == PROGRAM else str(error)
    if code == STORE and session.where:
        text = f"{text} ({session.where})"
    error_line(text, type(error).__name__, code, as_json=session.out.as_json)
    return code


def code_of(error: Exception) -> int:
    """The exit code for an error."""
    if isinstance(error, StoreError):
        return STORE
    if isinstance(error, (UsageError, InvalidInput)):
        return USAGE
    return REFUSED if isinstance(error, MessageQueueError) else PROGRAM


def _unexpected(error: Exception) -> str:
    secrets = _secrets()
    text = f"{type(error).__name__}: {error}"
    for secret in secrets:
        text = text.replace(secret, "***")
    return f"unexpected error: {text}" + "; please report it" * (not isinstance(error, OSError))


def _secrets() -> list[str]:
    """Return passwords that an error of another library could repeat, quoted and unquoted."""
    from ..engine.store import parse

    found = []
    for word in [os.environ.get(VARIABLE, ""), *sys.argv[1:]]:
        with suppress(MessageQueueError):
            password = parse(word.removeprefix("--store=")).password
            if password:
                found += [password, quote(password, safe="")]
    return found


class _Lines(logging.Formatter):
    """Formats a record in one line, with the name of its exception; the traceback only on request."""

    def __init__(self, as_json: bool, traceback: bool) -> None:
        super().__init__()
        self.as_json, self.traceback = as_json, traceback

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {_raised(record.exc_info[1])}"
        text = without_passwords(text)
        if self.as_json:
            import json

            return json.dumps({"warning": text})
        line = f"{record.levelname.lower()}: {shown(text)}"
        if self.traceback and record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def _raised(error: BaseException) -> str:
    if isinstance(error, failures.TextWithheld):
        return error.reason if error.is_whole else f"{error.reason}; its text may quote the message: see --traceback"
    return f"{type(error).__name__}: {error}"


@contextmanager
def _log_in_lines(as_json: bool, traceback: bool) -> Iterator[None]:
    log, handler = logging.getLogger("airflow_mq"), logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(_Lines(as_json, traceback))
    before = log.propagate
    log.addHandler(handler)
    log.propagate = False
    try:
        with failures.allowing_texts(traceback):
            yield
    finally:
        log.removeHandler(handler)
        log.propagate = before
