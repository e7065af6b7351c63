"""A target: a reader of foreign bytes, the errors that it documents, and the property that it keeps."""

from __future__ import annotations

import resource
import signal
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from types import FrameType
from typing import TypeVar

T = TypeVar("T")

#: Longest input in bytes.
LONGEST = 4_096
#: Longest text of an error, and longest stretch of the input that it may quote.
LONGEST_ERROR, LONGEST_QUOTE = 1_200, 300
#: Bounds of one case: seconds of processor time, and bytes that Python allocates.
SECONDS, MEMORY = 2.0, 64 << 20


class Refused(Exception):
    """A reader raised an error that it documents."""


class TooSlow(AssertionError):
    """A case took longer than its bound."""


class TooLarge(AssertionError):
    """A case allocated more than its bound."""


@dataclass(frozen=True)
class Target:
    """A reader, and the check of one input."""

    name: str
    #: Names of the modules whose branches are counted.
    modules: tuple[str, ...]
    #: Errors that the reader may raise, in words.
    errors: str
    #: What holds for each input, in words.
    holds: str
    check: Callable[[bytes], None]
    #: Inputs to begin with.
    seeds: tuple[bytes, ...] = ()
    #: Whether the modules import Airflow or Spark.
    needs_airflow: bool = False

    def load(self) -> None:
        """Import the modules, and what their first calls import: the time that takes is not that of an input."""
        for name in self.modules:
            import_module(name)
        for data in self.seeds:
            with suppress(Exception):
                self.check(data)

    def run(self, data: bytes) -> None:
        """Check one input within the bound of time; raise the error of a violated property."""
        try:
            with _in_time():
                self.check(data)
        except Refused as refused:
            check_error(str(refused), data)


def attempt(read: Callable[[], T], *documented: type[Exception]) -> T:
    """Return the value that a reader returns; raise `Refused` for a documented error."""
    try:
        return read()
    except documented as error:
        raise Refused(str(error)) from error


def check_error(text: str, data: bytes) -> None:
    """Raise `AssertionError` if the text of an error is long or repeats a long part of the input."""
    assert text.strip(), "an error without a text"
    assert len(text) <= LONGEST_ERROR, f"an error of {len(text):,} characters: {text[:80]}…"
    given, step = data.decode("utf-8", "surrogateescape"), LONGEST_QUOTE // 2
    stretches = (given[at : at + step] for at in range(0, len(given) - step + 1, step))
    assert not any(stretch in text for stretch in stretches), "an error repeats a long part of its input"


@contextmanager
def _in_time() -> Iterator[None]:
    """Raise `TooSlow` after `SECONDS` of processor time, as soon as Python code runs again."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow(f"a case took more than {SECONDS:g} seconds")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@contextmanager
def in_memory() -> Iterator[None]:
    """Raise `TooLarge` if Python allocated more than `MEMORY` bytes at once."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    if peak > MEMORY:
        raise TooLarge(f"a case allocated {peak:,} bytes")


def limit_memory(more: int = 16 * MEMORY) -> None:
    """Let this process raise `MemoryError` when it needs so much more memory than it has mapped now."""
    with open("/proc/self/statm") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + more, resource.RLIM_INFINITY))
