"""Operator that enqueues the rows of a query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, BaseHook

from airflow_mq.keys import key_for
from airflow_mq.operators.enqueue.base import EnqueueOperator, Sourced

if TYPE_CHECKING:
    from jinja2 import Environment

#: Rows that are fetched together.
FETCHED = 1_000


class EnqueueSqlOperator(EnqueueOperator):
    """Enqueue each row of a query as a message, all of them or none. ::

        EnqueueSqlOperator(task_id="rows", sql="SELECT tenant, body FROM outbox ORDER BY id",
                           sql_conn_id="shop", origin_column="tenant", payload_column="body")

    :param sql: a query, or a file `*.sql` of it (templated)
    :param sql_conn_id: id of the query's connection, whose hook is a `DbApiHook` (templated)
    :param parameters: values of the query's placeholders, in the style of the driver (`%s`, `:name`, `?`): a value from
        an XCom or a param belongs here, where it is no SQL (templated)
    :param hook_params: further arguments of the connection's hook, such as `{"schema": "shop"}` (templated)
    :param origin_column: the column that names the origin
    :param payload_column: the column that is the payload, without NULLs; the whole row as JSON if left out
    :param key_column: a column whose value is the row's idempotency key: unique among the messages of its origin,
        and different when the row's content changes (`SELECT 'order-' || id || '@' || updated_at AS key, …`)
    :param origin: origin of all messages, or a function of the row as a mapping (templated, if it is text)
    :param key_scope: `ring`: a row's key is accepted once, whichever run sends it; `run`: once in each run
    """

    template_fields: Sequence[str] = (
        *EnqueueOperator.template_fields, "sql", "sql_conn_id", "parameters", "hook_params",
    )  # fmt: skip
    template_fields_renderers = {"sql": "sql"}  # noqa: RUF012 - as Airflow's operators declare it

    def __init__(
        self,
        *,
        sql: str,
        sql_conn_id: str,
        parameters: Mapping[str, Any] | Sequence[Any] | None = None,
        hook_params: Mapping[str, Any] | None = None,
        origin_column: str | None = None,
        payload_column: str | None = None,
        key_column: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.sql = sql
        self.sql_conn_id = sql_conn_id
        self.parameters = parameters
        self.hook_params = hook_params
        self.origin_column = origin_column
        self.payload_column = payload_column
        self.key_column = key_column

    def before_rendering(self, jinja_env: Environment, seen_oids: set[int]) -> None:
        # Airflow's `template_ext` would take each field that ends like a file for one, also an origin.
        if isinstance(self.sql, str) and self.sql.endswith(".sql") and id(self.sql) not in seen_oids:
            assert jinja_env.loader is not None
            self.sql = jinja_env.loader.get_source(jinja_env, self.sql)[0]

    def source(self) -> Iterator[Sourced]:
        connection = BaseHook.get_connection(self.sql_conn_id)
        hook = connection.get_hook(hook_params=dict(self.hook_params)) if self.hook_params else connection.get_hook()
        if isinstance(self.parameters, str):
            raise AirflowFailException("invalid parameters (text): expected a list or a mapping of values")
        for row in rows_of(hook, str(self.sql), self.parameters):
            own, key = _text_in(row, self.origin_column), _text_in(row, self.key_column)
            payload = _column(row, self.payload_column) if self.payload_column else row
            if payload is None:
                raise AirflowFailException(f"NULL in column {self.payload_column!r}: leave rows without a payload out")
            yield Sourced(self.origin_of(row, own), payload, None if key is None else key_for(key))


def _column(row: Mapping[str, Any], name: str | None) -> Any:
    if name is None:
        return None
    if name not in row:
        raise AirflowFailException(f"the query has no column {name!r}: it has {', '.join(row)}")
    return row[name]


def _text_in(row: Mapping[str, Any], name: str | None) -> str | None:
    """Return a value as text; that of binary data may be another one in each run."""
    value = _column(row, name)
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise AirflowFailException(f"binary data in column {name!r}: convert it to text in the query")
    return None if value is None else str(value)


def rows_of(
    hook: Any, sql: str, parameters: Mapping[str, Any] | Sequence[Any] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a query as mappings, fetched `FETCHED` at a time."""
    if not hasattr(hook, "get_cursor"):
        raise AirflowFailException(
            f"{type(hook).__name__} is no hook of a database: sql_conn_id names a connection of another kind"
        )
    with closing(hook.get_conn()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(*((sql,) if parameters is None else (sql, parameters)))
        names = [column[0] for column in cursor.description or ()]
        if several := sorted({name for name in names if names.count(name) > 1}):
            raise AirflowFailException(f"several columns of the query are named {several[0]!r}: give them aliases")
        while rows := cursor.fetchmany(FETCHED):
            for row in rows:
                yield dict(zip(names, row))
