"""Enqueuing from a DAG: messages as they are written, of an XCom, files, or the rows of a query."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from airflow.providers.common.compat.sdk import AirflowFailException, BaseHook

from airflow_mq import lineage
from airflow_mq.adapters import key_for
from airflow_mq.adapters.versions import version_tag
from airflow_mq.core.blob import Reference
from airflow_mq.core.errors import KeyConflict, NotPermitted
from airflow_mq.core.groups import SEPARATOR
from airflow_mq.core.message import Message
from airflow_mq.core.priority import REGULAR
from airflow_mq.operators import telemetry
from airflow_mq.operators.base import MOST_KEY, QueueOperator, number_of, weight_of
from airflow_mq.words import many

if TYPE_CHECKING:
    from airflow_mq.core.weight import Weight
    from airflow_mq.queue import MessageQueue

#: Rows that are fetched together.
FETCHED = 1_000
_WILD = re.compile(r"[*?\[]")
_FIELDS = ("origin", "payload", "key", "weight", "headers", "priority")

OriginOf = Callable[[Any], str]
#: For how long a message's own key holds: for every sender to the ring, or for one task of one run.
SCOPES = RING, RUN = "ring", "run"


class _Place(NamedTuple):
    """Where a message came from, for its key."""

    #: Names it among the messages of this task in this run.
    text: str
    #: Names it whoever sends it, and whenever.
    own: str | None = None


#: Where a message came from; its origin; and what it is.
Source = Iterator[tuple[_Place, str, Any]]


class EnqueueMessagesOperator(QueueOperator):
    """Enqueue messages, all of them or none, from exactly one source. ::

        EnqueueMessagesOperator(task_id="one", origin="acme", messages=["an order of {{ ds }}"])
        EnqueueMessagesOperator(task_id="xcom", origin="acme", messages=extract.output)
        EnqueueMessagesOperator(task_id="files", files="/data/{{ ds }}/*/*.csv",
                                origin_pattern=r"/(?P<origin>[^/]+)/[^/]+$")
        EnqueueMessagesOperator(task_id="rows", sql="SELECT tenant, body FROM outbox ORDER BY id",
                                sql_conn_id="shop", origin_column="tenant", payload_column="body")

    A retry, or a run that is cleared, enqueues nothing twice within the ring's `key_window`: each message has an
    idempotency key. A key of the message's own holds for the whole ring, so a later run that finds the same message
    does not send it again: the `key` of a mapping, the value of `key_column`, and for a file its path with its version
    (size and time of change, or the object store's tag). Messages without one get a key of the DAG, the run, the task
    and their place in the source. `key_scope="run"` makes every key one of the run: then each run sends everything.
    Templates are rendered in what the author wrote; what comes out of XComs, files and rows arrives as it is.

    Returns `{"count": …, "size": …, "repeated": …}`.

    :param messages: payloads (text, bytes, or anything that becomes JSON), or mappings with `payload` and, if
        they like, `origin`, `key`, `weight`, `headers` and `priority` (templated, unless it is an XCom)
    :param files: a path with wildcards, or the address of an object store with wildcards, by a connection
        (`s3://aws@bucket/in/*.csv`, or an `ObjectStoragePath`); each file that matches is a message, stored apart if
        it is larger than a page (templated)
    :param sql: a query; each row is a message (templated)
    :param sql_conn_id: connection of the query, whose hook is a `DbApiHook` (templated)
    :param origin: the origin of all, or a function of the message, of the file's path, or of the row (as a
        mapping) (templated, if it is text)
    :param origin_pattern: a regular expression with a group `origin`, searched for in a file's path (templated)
    :param payload: `content`, or `path` where the processor reads the file itself
    :param origin_column: the column that names the origin
    :param payload_column: the column that is the payload; without it, the whole row as JSON
    :param key_column: a column whose value is the row's idempotency key: unique among the messages of the ring, and
        another one when the row's content changes (`SELECT 'order-' || id || '@' || updated_at AS key, …`)
    :param key_scope: `ring`: a message's own key is accepted once, whichever run sends it; `run`: once in each run
    :param idempotent: give keys; without them a send is quicker, and a retry may send twice
    :param weight: what each message will cost, `[time, size]` (templated)
    :param headers: text that travels beside each (templated)
    :param not_before: seconds until the messages join their queues (templated)
    :param expires: seconds until nobody wants them any more (templated)
    :param priority: `high` is serviced before all that is `regular` (templated)
    :param of_team: put the team of the DAG (of Airflow's multi-team) before each origin: `orders` becomes `team/orders`
    """

    template_fields: Sequence[str] = (
        *QueueOperator.template_fields, "messages", "files", "sql", "sql_conn_id", "origin", "origin_pattern",
        "weight", "headers", "not_before", "expires", "priority",
    )  # fmt: skip
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers = {"sql": "sql"}  # noqa: RUF012 - as every operator has it

    def __init__(
        self,
        *,
        messages: Any = None,
        files: Any = None,
        sql: str | None = None,
        sql_conn_id: str | None = None,
        origin: str | OriginOf | None = None,
        origin_pattern: str | None = None,
        payload: str = "content",
        origin_column: str | None = None,
        payload_column: str | None = None,
        key_column: str | None = None,
        key_scope: str = RING,
        idempotent: bool = True,
        weight: Any = None,
        headers: Mapping[str, str] | None = None,
        not_before: Any = None,
        expires: Any = None,
        priority: str = REGULAR,
        of_team: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.messages = messages
        self.files = files
        self.sql = sql
        self.sql_conn_id = sql_conn_id
        self.origin = origin
        self.origin_pattern = origin_pattern
        self.payload = payload
        self.origin_column = origin_column
        self.payload_column = payload_column
        self.key_column = key_column
        self.key_scope = key_scope
        self.idempotent = idempotent
        self.weight = weight
        self.headers = headers
        self.not_before = not_before
        self.expires = expires
        self.priority = priority
        self.of_team = of_team
        self._touched: lineage.Touched | None = None

    def execute(self, context: Any) -> dict[str, int]:
        """Enqueue everything that the source has."""
        if self.key_scope not in SCOPES:
            raise AirflowFailException(
                f"invalid key_scope {self.key_scope!r}: expected {' or '.join(map(repr, SCOPES))}"
            )
        base = key_base(context)
        above = team_of(context) + SEPARATOR if self.of_team else ""
        with self.opened(context) as queue, telemetry.sending(queue), ExitStack() as held:
            addressed = self._addressed(self._apart(self._source(), queue, held), base, above)
            self._touched = lineage.touched(queue)
            try:
                sent = queue.enqueue_messages(
                    addressed if self._touched is None else self._touched.each(addressed),
                    weight=weight_of(self.weight, "weight"),
                    headers=self.headers or None,
                    not_before=number_of(self.not_before, "not_before"),
                    expires=number_of(self.expires, "expires"),
                    priority=self.priority,
                )
            except KeyConflict as error:
                raise AirflowFailException(
                    f"{error}. The source gave something else than when this task enqueued before: order the query, or "
                    "name what identifies a message (key, key_column). A key of a message's own has to change with its "
                    "content: add a version or a time of change to it, or set key_scope='run'"
                ) from None
            except NotPermitted as error:
                # Tried again, it would be refused again.
                raise AirflowFailException(str(error)) from None
        self.log.info(
            "Enqueued %s of %d bytes on ring %r; %d were enqueued before.",
            many(sent.count, "message"), sent.size, queue.ring, sent.repeated,
        )  # fmt: skip
        return {"count": sent.count, "size": sent.size, "repeated": sent.repeated}

    def get_openlineage_facets_on_start(self) -> Any:
        """The ring, and the queue if there is only one."""
        origin = self.origin if isinstance(self.origin, str) and not self.of_team else None
        return telemetry.begun(self.mq_conn_id, self.ring, origin=origin)

    def get_openlineage_facets_on_complete(self, ti: Any) -> Any:
        """The queues that were sent to."""
        return lineage.written(self._touched)

    def _source(self) -> Source:
        given = [name for name in ("messages", "files", "sql") if getattr(self, name) is not None]
        if len(given) != 1:
            raise AirflowFailException(f"say one of messages, files or sql; {' and '.join(given) or 'none'} is said")
        return {"messages": self._of_messages, "files": self._of_files, "sql": self._of_rows}[given[0]]()

    def _apart(self, source: Source, queue: MessageQueue, held: ExitStack) -> Source:
        """Files that no page holds are kept apart; until the messages are there, the uploads are held."""
        for place, origin, said in source:
            if isinstance(said, _File):
                with said.open() as file:
                    large = said.size > queue.config.max_message_len
                    said = held.enter_context(queue.payloads.put(file)).reference if large else file.read()
            yield place, origin, said

    def _key(self, base: str, place: _Place, said: Any) -> Any:
        """The idempotency key of a message that says its own, or none."""
        own = said or (place.own if self.idempotent else None)
        if own and self.key_scope == RING:
            return own
        if own:
            return message_key(base, f"key {own}")
        return message_key(base, place.text) if self.idempotent else None

    def _addressed(self, source: Source, base: str, above: str) -> Iterator[tuple[str, bytes | Message]]:
        for place, origin, said in source:
            fields = said if isinstance(said, _Said) else _Said({"payload": said})
            payload = as_bytes(fields.get("payload"))
            key = self._key(base, place, fields.get("key"))
            headers, weight = fields.get("headers"), self._weight(fields.get("weight"))
            priority = fields.get("priority")
            if key is None and headers is None and weight is None and priority is None:
                yield above + origin, payload
            else:
                yield above + origin, Message(payload, key, weight, headers, priority)

    @staticmethod
    def _weight(given: Any) -> Weight | None:
        return None if given is None else weight_of(given, "weight of a message")

    def _origin_of(self, what: Any, own: str | None) -> str:
        if own is not None:
            return own
        found = self.origin(what) if callable(self.origin) else self.origin
        if not isinstance(found, str):
            raise AirflowFailException(f"a message has no origin; say origin, or let each say its own, not {found!r}")
        return found

    def _of_messages(self) -> Source:
        given = self.messages
        several = [given] if isinstance(given, (str, bytes, Mapping)) else given
        if not isinstance(several, Iterable):
            raise AirflowFailException(f"messages are a list, or one, not {type(given).__name__}")
        for place, one in enumerate(several):
            said = _Said(one) if isinstance(one, Mapping) and "payload" in one else None
            if said is not None and (unknown := [str(name) for name in said if name not in _FIELDS]):
                raise AirflowFailException(f"a message has {', '.join(_FIELDS)}, and no {', '.join(unknown)[:80]}")
            yield _Place(str(place)), self._origin_of(one, said.get("origin") if said else None), said or one

    def _of_files(self) -> Source:
        pattern = re.compile(self.origin_pattern) if self.origin_pattern else None
        for path, file in matching(str(self.files)):
            found = pattern.search(path) if pattern else None
            if pattern and not found:
                raise AirflowFailException(f"origin_pattern does not match {path!r}")
            origin = self._origin_of(path, found["origin"] if found else None)
            place = _Place(path, key_for("file", f"{path}@{file.version}"))
            yield place, origin, path.encode() if self.payload == "path" else file

    def _of_rows(self) -> Source:
        if not self.sql_conn_id:
            raise AirflowFailException("a query needs a connection: say sql_conn_id")
        for place, row in enumerate(rows_of(BaseHook.get_connection(self.sql_conn_id).get_hook(), str(self.sql))):
            own = self._column(row, self.origin_column)
            payload = self._column(row, self.payload_column) if self.payload_column else row
            key = self._column(row, self.key_column)
            yield (
                _Place(str(place), None if key is None else key_for(str(key))),
                self._origin_of(row, None if own is None else str(own)),
                payload,
            )

    @staticmethod
    def _column(row: Mapping[str, Any], name: str | None) -> Any:
        if name is None:
            return None
        if name not in row:
            raise AirflowFailException(f"the query has no column {name!r}; it has {', '.join(row)}")
        return row[name]


class _File(NamedTuple):
    """A file, and how to read it."""

    size: int
    open: Callable[[], IO[bytes]]
    #: Changes when the file does.
    version: str


class _Said(dict[str, Any]):
    """A message that says something of itself."""


def as_bytes(given: Any) -> bytes:
    """A payload: bytes as they are, text in UTF-8, anything else as JSON."""
    if isinstance(given, Reference):
        return given
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(given)
    if isinstance(given, str):
        return given.encode()
    return json.dumps(given, separators=(",", ":"), ensure_ascii=False, default=str).encode()


def team_of(context: Any) -> str:
    """The team that the DAG of a task belongs to; Airflow tells it to each task where it has teams."""
    team = getattr(context["ti"], "stats_tags", {}).get("team_name")
    if not team:
        raise AirflowFailException(
            "of_team puts the team of this DAG before each origin, and it has none: set [core] multi_team, and give "
            "its bundle a team, or leave of_team out"
        )
    return str(team)


def key_base(context: Any) -> str:
    """What the keys of a task's messages have in common: the same at every try, and at every clear."""
    ti = context["ti"]
    map_index = ti.map_index if ti.map_index is not None else -1
    return f"{ti.dag_id}/{ti.run_id}/{ti.task_id}/{map_index}"


def message_key(base: str, place: str) -> str:
    """The key of a message by its place; a long one is told by its hash."""
    key = f"{base}/{place}"
    if len(key.encode("utf-8", "surrogateescape")) <= MOST_KEY and key.isprintable():
        return key
    return f"sha256:{hashlib.sha256(key.encode('utf-8', 'surrogateescape')).hexdigest()}"


def matching(pattern: str) -> Iterator[tuple[str, _File]]:
    """The files that match, in the order of their names, and how to read each."""
    if "://" not in pattern:
        for path in sorted(glob.glob(pattern, recursive=True)):
            if os.path.isfile(path):
                about = os.stat(path)
                yield path, _File(about.st_size, partial(_open, path), f"{about.st_mtime_ns}+{about.st_size}")
        return
    from airflow.sdk import ObjectStoragePath

    folder, rest = _wild(pattern)
    root = ObjectStoragePath(folder)
    for found in sorted(root.glob(rest) if rest else [root], key=str):
        if found.is_file():
            yield str(found), _File(found.stat().st_size, partial(found.open, "rb"), version_tag(found.stat()))


def _open(path: str) -> IO[bytes]:
    return open(path, "rb")


def _wild(pattern: str) -> tuple[str, str]:
    """An address up to its first wildcard, and the rest."""
    scheme, _, path = pattern.partition("://")
    parts = path.split("/")
    first = next((place for place, part in enumerate(parts) if _WILD.search(part)), len(parts))
    return f"{scheme}://{'/'.join(parts[:first])}", "/".join(parts[first:])


def rows_of(hook: Any, sql: str) -> Iterator[dict[str, Any]]:
    """The rows of a query as mappings, a stretch at a time."""
    if not hasattr(hook, "get_cursor"):
        raise AirflowFailException(f"{type(hook).__name__} is no hook of a database; sql_conn_id names another kind")
    from contextlib import closing

    with closing(hook.get_conn()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(sql)
        names = [column[0] for column in cursor.description or ()]
        while rows := cursor.fetchmany(FETCHED):
            for row in rows:
                yield dict(zip(names, row))
