"""Options of `spark-submit` that a processor may set: its `spark={…}`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, cast

from airflow_mq.engine.rules.errors import InvalidInput
from airflow_mq.processors import Processor


class SparkOptions(TypedDict, total=False):
    """The options that a processor may set, named and typed as `SparkSubmitOperator` has them."""

    conf: Mapping[str, object]
    env_vars: Mapping[str, object]
    name: str
    files: str
    py_files: str
    archives: str
    jars: str
    packages: str
    exclude_packages: str
    repositories: str
    driver_class_path: str
    driver_memory: str
    executor_memory: str
    executor_cores: int
    total_executor_cores: int
    num_executors: int
    deploy_mode: str
    spark_binary: str
    properties_file: str
    yarn_queue: str
    keytab: str
    principal: str
    proxy_user: str
    use_krb5ccache: bool
    post_submit_commands: list[str]
    status_poll_interval: int
    track_driver_via_k8s_api: bool
    yarn_track_via_rm_api: bool
    verbose: bool


#: Options that add to the task's, key by key, instead of replacing them.
ADDED = ("conf", "env_vars")


def spark_options(processor: Processor, given: Mapping[str, object] | None = None) -> SparkOptions:
    """Return the Spark options of a processor. Raises `InvalidInput` for any that is not a `SparkOptions`.

    :param given: the options after templates are rendered; the processor's own if left out
    """
    options = processor.spark if given is None else given
    unknown = sorted(set(options) - set(SparkOptions.__annotations__))
    if unknown:
        raise InvalidInput(
            f"unknown Spark option {unknown[0]!r} of processor {processor.name!r}: expected one of "
            f"{', '.join(SparkOptions.__annotations__)}"
        )
    return cast("SparkOptions", dict(options))


def check_spark_options(processors: Iterable[Processor]) -> None:
    """Raise `InvalidInput` if a processor sets an unknown Spark option."""
    for processor in processors:
        spark_options(processor)


def merged(arguments: Mapping[str, Any], options: SparkOptions) -> dict[str, Any]:
    """Return the arguments of a task's hook with a processor's options in place."""
    result = {**arguments, **options}
    for name in ADDED:
        if name in options:
            result[name] = {**(arguments.get(name) or {}), **options[name]}  # type: ignore[literal-required]
    return result
