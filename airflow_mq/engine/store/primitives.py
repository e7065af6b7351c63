"""Primitives of a transaction, the base of repositories, and the common parts of both drivers."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from ..rules.errors import InvalidInput, MessageQueueError, StoreCorrupt

NO_STATE = "the state of the ring is missing in the store; restore the store from a backup"


class Primitives(ABC):
    """The ways to run a named statement. A request is a row of parameters; columns hold those of many requests."""

    #: Whether an INSERT takes ids that were drawn before; other databases draw them in the statement.
    draws_ids: ClassVar[bool]

    @abstractmethod
    def rows(self, statement: str, **values: object) -> list[Any]:
        """Run a statement and return its rows."""

    @abstractmethod
    def run(self, statement: str, **values: object) -> int:
        """Run a statement and return the number of rows it wrote."""

    @abstractmethod
    def rows_for(self, statement: str, columns: Mapping[str, Sequence[object]], **values: object) -> list[Any]:
        """Run a statement for many requests and return all rows."""

    @abstractmethod
    def run_for(self, statement: str, columns: Mapping[str, Sequence[object]], **values: object) -> int:
        """Run a statement for many requests and return the number of rows it wrote."""

    def soon(self, statement: str, **values: object) -> Callable[[], list[Any]]:
        """Request a statement, and return the way to its rows. A store with pipelines runs it with the next one."""
        rows = self.rows(statement, **values)
        return lambda: rows

    def soon_for(
        self, statement: str, columns: Mapping[str, Sequence[object]], **values: object
    ) -> Callable[[], list[Any]]:
        """Request a statement for many requests in the same way."""
        rows = self.rows_for(statement, columns, **values)
        return lambda: rows

    def run_soon_for(
        self, statement: str, columns: Mapping[str, Sequence[object]], **values: object
    ) -> Callable[[], int]:
        """Request a statement that writes for many requests, and return the way to the number of rows it wrote."""
        count = self.run_for(statement, columns, **values)
        return lambda: count

    def put(self, statement: str, **values: object) -> None:
        """Run a statement that returns nothing; a store with pipelines runs it with the next one or the commit."""
        self.run(statement, **values)

    def put_for(self, statement: str, columns: Mapping[str, Sequence[object]], **values: object) -> None:
        """Run such a statement for many requests."""
        self.run_for(statement, columns, **values)

    @abstractmethod
    def fresh_ids(self, count: int) -> list[int]:
        """Draw ids above all ids drawn before."""

    @abstractmethod
    def now(self) -> int:
        """Return the database's clock, in microseconds."""

    def reads_reports(self) -> bool:
        """Return whether this user may read reports, which contain payloads that processors sent."""
        return True

    def only(self, statement: str, **values: object) -> Any:
        """Return the one row that a statement finds for each ring."""
        rows = self.rows(statement, **values)
        if not rows:
            raise StoreCorrupt(NO_STATE)
        return rows[0]


#: Parameters of many requests, a row for each.
Requests = Sequence[Sequence[object]]


class Repository:
    """The statements of one noun, as typed methods."""

    __slots__ = ("unit",)

    def __init__(self, unit: Primitives) -> None:
        self.unit = unit

    def _read(self, statement: str, names: Sequence[str], requests: Requests, **values: object) -> list[Any]:
        """Return the rows for many requests."""
        return self.unit.rows_for(statement, _columns(names, requests), **values) if requests else []

    def _read_soon(
        self, statement: str, names: Sequence[str], requests: Requests, **values: object
    ) -> Callable[[], list[Any]]:
        """Request the rows for many requests."""
        return self.unit.soon_for(statement, _columns(names, requests), **values) if requests else list

    def _write(self, statement: str, names: Sequence[str], requests: Requests, **values: object) -> int:
        """Run a statement for many requests and return the number of rows it wrote."""
        return self.unit.run_for(statement, _columns(names, requests), **values) if requests else 0

    def _write_soon(
        self, statement: str, names: Sequence[str], requests: Requests, **values: object
    ) -> Callable[[], int]:
        """Request a statement for many requests, and return the way to the number of rows it wrote."""
        return self.unit.run_soon_for(statement, _columns(names, requests), **values) if requests else int

    def _put(self, statement: str, names: Sequence[str], requests: Requests, **values: object) -> None:
        """Run a statement that returns nothing for many requests, at the latest with the commit."""
        if requests:
            self.unit.put_for(statement, _columns(names, requests), **values)


def listed(text: str | None) -> list[str]:
    """Return the names of a list that a statement made: names contain no control characters."""
    return text.split("\n") if text else []


def _columns(names: Sequence[str], requests: Requests) -> dict[str, list[object]]:
    return dict(zip(names, map(list, zip(*requests))))


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
