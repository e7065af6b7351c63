"""Options of `spark-submit` that a processor may set: its `spark={…}`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import signature
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_mq.engine.rules.errors import InvalidInput
from airflow_mq.processors import Processor

#: Arguments of the provider's hook that a processor cannot set: they name the job or the connection.
_OF_THE_JOB = ("conn_id", "application_args", "java_class", "yarn_rm_auth")
#: The options that a processor may set, as `SparkSubmitOperator` names them.
OPTIONS = tuple(name for name in signature(SparkSubmitHook).parameters if name not in _OF_THE_JOB)
#: Options that add to the task's, key by key, instead of replacing them.
ADDED = ("conf", "env_vars")


def spark_options(processor: Processor, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the Spark options of a processor. Raises `InvalidInput` for any that is not one of `OPTIONS`.

    :param given: the options after templates are rendered; the processor's own if left out
    """
    options = processor.spark if given is None else given
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise InvalidInput(
            f"unknown Spark option {unknown[0]!r} of processor {processor.name!r}: expected one of {', '.join(OPTIONS)}"
        )
    return dict(options)


def check_spark_options(processors: Iterable[Processor]) -> None:
    """Raise `InvalidInput` if a processor sets an unknown Spark option."""
    for processor in processors:
        spark_options(processor)


def merged(arguments: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a task's hook with a processor's options in place."""
    result = {**arguments, **options}
    for name in ADDED:
        if name in options:
            result[name] = {**(arguments.get(name) or {}), **options[name]}
    return result
