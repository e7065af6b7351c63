"""Primitives of a transaction, the base of repositories, and the common parts of both drivers."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeAlias

from ..rules.errors import InvalidInput, MessageQueueError, StoreCorrupt

NO_STATE = "the state of the ring is missing in the store; restore the store from a backup"


#: Parameters of many requests: a list of values by name.
Columns: TypeAlias = "Mapping[str, Sequence[object]]"


class Primitives(ABC):
    """The ways to run a named statement. A request is a row of parameters; columns hold those of many requests."""

    #: Whether an INSERT takes ids that were drawn before; other databases draw them in the statement.
    draws_ids: ClassVar[bool]

    @abstractmethod
    def soon(self, statement: str, columns: Columns | None = None, /, **values: object) -> Callable[[], list[Any]]:
        """Request a statement that reads, and return the way to its rows.

        A store with pipelines runs it with the next one.

        :param columns: parameters of many requests; the rows of all are returned. Without a request nothing runs.
        """

    @abstractmethod
    def put(self, statement: str, columns: Columns | None = None, /, **values: object) -> Callable[[], int]:
        """Request a statement that writes, and return the way to the number of rows it wrote.

        A store with pipelines runs it with the next one or the commit.

        :param columns: parameters of many requests. Without a request nothing runs.
        """

    def rows(self, statement: str, columns: Columns | None = None, /, **values: object) -> list[Any]:
        """Run a statement that reads, and return its rows."""
        return self.soon(statement, columns, **values)()

    def run(self, statement: str, columns: Columns | None = None, /, **values: object) -> int:
        """Run a statement that writes, and return the number of rows it wrote."""
        return self.put(statement, columns, **values)()

    @abstractmethod
    def fresh_ids(self, count: int) -> list[int]:
        """Draw ids above all ids drawn before."""

    def now(self) -> int:
        """Return the database's clock, in microseconds."""
        return int(self.rows("now")[0][0])

    def reads_reports(self) -> bool:
        """Return whether this user may read reports, which contain payloads that processors sent."""
        return True

    def only(self, statement: str, **values: object) -> Any:
        """Return the one row that a statement finds for each ring."""
        rows = self.rows(statement, **values)
        if not rows:
            raise StoreCorrupt(NO_STATE)
        return rows[0]


class Repository:
    """The statements of one noun, as typed methods."""

    __slots__ = ("unit",)

    def __init__(self, unit: Primitives) -> None:
        self.unit = unit


def columns(names: Sequence[str], requests: Iterable[Sequence[object]]) -> Columns:
    """Return the parameters of many requests by name."""
    return dict(zip(names, map(list, zip(*requests))))


def names_in(text: str | None) -> list[str]:
    """Return the names of a list that a statement made: names contain no control characters."""
    return text.split("\n") if text else []


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


def as_json(value: object) -> str:
    """Return a value as the databases store it; text is JSON already."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
