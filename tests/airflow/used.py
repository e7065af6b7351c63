"""The ways in which the tasks of a DAG get their arguments: each class of the provider is tested in all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

#: What an author writes for an argument.
WAYS = {"template", "XCom", "empty XCom", "mapped"}


class Usage:
    """The ways of the tasks of a DAG, by the names of their classes."""

    def __init__(self, dag: Any) -> None:
        from airflow.sdk.definitions.xcom_arg import XComArg

        self.ways: dict[str, set[str]] = {}
        self._sources: dict[str, set[str]] = {}
        for task in dag.tasks:
            is_mapped = hasattr(task, "partial_kwargs")
            name = (task.operator_class if is_mapped else type(task)).__name__
            written = SimpleNamespace(**task.partial_kwargs) if is_mapped else task
            values = [getattr(written, field, None) for field in task.template_fields]
            found = self.ways.setdefault(name, set())
            found |= {"mapped"} if is_mapped else set()
            found |= {"template"} if any("{{" in text for text in _texts(values)) else set()
            sources = {source.task_id for source, _ in XComArg.iter_xcom_references(values)}
            self._sources.setdefault(name, set()).update(sources)

    def after(self, run: Any) -> dict[str, set[str]]:
        """Return all ways; an XCom is empty or not once its task has run."""
        ti = run.get_task_instances()[0]
        for name, sources in self._sources.items():
            for source in sources:
                self.ways[name].add("XCom" if ti.xcom_pull(task_ids=source) else "empty XCom")
        return self.ways


def _texts(values: Iterable[Any]) -> Iterator[str]:
    """Yield the texts in what an author wrote."""
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            yield from _texts(value.values())
        elif isinstance(value, (list, tuple)):
            yield from _texts(value)
        else:
            with suppress(AttributeError):
                yield value.path


def missing(ways: Mapping[str, set[str]], names: Iterable[str]) -> dict[str, set[str]]:
    """Return the ways in which classes were not used."""
    return {name: absent for name in names if (absent := WAYS - ways.get(name, set()))}
