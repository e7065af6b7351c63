"""Operators that receive messages from another transport: files of a landing folder or object store, Kafka topics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, BaseHook

from airflow_mq.adapters import BATCH, Received, receive, unmatched
from airflow_mq.engine.rules.errors import InvalidInput, NotPermitted
from airflow_mq.engine.rules.priority import REGULAR
from airflow_mq.observe import lineage
from airflow_mq.operators.base import QueueOperator, weight_of, whole_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_mq.adapters import Adapter
    from airflow_mq.engine.queue import MessageQueue
    from airflow_mq.operators.base import GivenWeight


class ReceiveMessagesOperator(QueueOperator):
    """Enqueue what another transport holds now, each message once. ::

        ReceiveMessagesOperator(task_id="receive", adapter=lambda: MySource("…"))

    A retry, and a run after one that was killed, continues where that one ended: repeated messages are recognized by
    their keys. Returns `{"count": …, "size": …, "repeated": …, "refused": …, "left": …,
    "unreadable": …}`.

    :param adapter: makes the source when the task runs: an object with the methods of `airflow_mq.adapters.Adapter`
    :param most: stop after about this many new messages (templated)
    :param batch: messages that are enqueued in one transaction
    :param weight: predicted cost of each message, `10m/1GiB` or `[milliseconds, bytes]` (templated)
    :param priority: `high` messages are serviced before `regular` ones (templated)
    :param fail_on_refused: fail at the end if the source held something that can never be a message, or cannot be read
    """

    template_fields: Sequence[str] = (*QueueOperator.template_fields, "most", "weight", "priority")

    def __init__(
        self,
        *,
        adapter: Callable[[], Adapter] | None = None,
        most: int | str | None = None,
        batch: int = BATCH,
        weight: GivenWeight = None,
        priority: str = REGULAR,
        fail_on_refused: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.adapter = adapter
        self.most = most
        self.batch = batch
        self.weight = weight
        self.priority = priority
        self.fail_on_refused = fail_on_refused

    def source(self) -> Adapter:
        """Return the source."""
        if self.adapter is None:
            raise AirflowFailException("missing adapter: set adapter=… to a function that makes the source")
        return self.adapter()

    def execute(self, context: Context) -> dict[str, int]:
        most = whole_of(self.most, "most", "a number of messages")
        with self.opened(context) as queue, self.observe(queue).sending():
            received = self._receive(queue, most)
            self.log.info("Ring %r: %s.", queue.ring, received)
        if (received.refused or received.unreadable) and self.fail_on_refused:
            raise AirflowFailException(f"{received}; the log lists which, and why")
        return asdict(received)

    def _receive(self, queue: MessageQueue, most: int | None) -> Received:
        try:
            source = self.source()
        except InvalidInput as error:
            raise AirflowFailException(str(error)) from error
        try:
            received = receive(
                queue, source, most=most, batch=self.batch, weight=weight_of(self.weight, "weight"),
                priority=self.priority, progress=lambda so_far: self.log.info("So far: %s.", so_far),
            )  # fmt: skip
            if received == Received() and (remark := unmatched(source)):
                self.log.warning("Nothing was received%s.", remark)
            return received
        except NotPermitted as error:
            # A retry would be refused again.
            raise AirflowFailException(str(error)) from None
        finally:
            source.close()


class ReceiveFilesOperator(ReceiveMessagesOperator):
    """Enqueue the new files of a landing folder, or below a prefix of an object store, each once. ::

        ReceiveFilesOperator(task_id="files", folder="/data/landing", pattern="{origin}/*.json")
        ReceiveFilesOperator(task_id="s3", folder="s3://bucket/landing", storage_conn_id="aws",
                             pattern="{origin*}/*.csv", lines=True)

    `airflow_mq.adapters.landing` defines which files are new, and what happens to a received file. The parameters of
    `ReceiveMessagesOperator` apply as well.

    :param folder: a folder of the machine that runs the task, or the address of an object store (templated)
    :param storage_conn_id: id of the object store's connection (templated)
    :param pattern: takes the origin from the path below the folder: `{origin}/*.json` (templated)
    :param regex: the same as a regular expression with a group `origin` (templated)
    :param lines: whether each line of a file is a message
    :param settle: seconds for which a file of a folder must not have changed
    :param after: what to do with a received file: `move` it below `.received`, `delete` it, or `keep` it in place with
        a receipt below `.received`
    """

    template_fields: Sequence[str] = (
        *ReceiveMessagesOperator.template_fields,
        "folder",
        "storage_conn_id",
        "pattern",
        "regex",
    )

    def __init__(
        self,
        *,
        folder: str,
        storage_conn_id: str | None = None,
        pattern: str | None = None,
        regex: str | None = None,
        lines: bool = False,
        settle: float = 2.0,
        after: str = "move",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.folder = folder
        self.storage_conn_id = storage_conn_id
        self.pattern = pattern
        self.regex = regex
        self.lines = lines
        self.settle = settle
        self.after = after

    def datasets(self) -> list[lineage.Source]:
        return [lineage.source_at(self.folder)] if self.folder else []

    def source(self) -> Adapter:
        from airflow_mq.adapters.landing import LandingFolder, LandingPrefix

        options: dict[str, Any] = {
            "regex": self.regex or None,
            "lines": self.lines,
            "settle": self.settle,
            "after": self.after,
        }
        pattern = self.pattern or None
        if not self.folder:
            raise AirflowFailException("folder is empty: expected a folder, or the address of an object store")
        if "://" not in self.folder:
            return LandingFolder(self.folder, pattern, **options)
        from airflow.sdk import ObjectStoragePath

        root = ObjectStoragePath(self.folder, conn_id=self.storage_conn_id or None)
        return LandingPrefix(root.fs, root.path, pattern, **options)


class ReceiveKafkaOperator(ReceiveMessagesOperator):
    """Enqueue the records of Kafka topics, each once. ::

        ReceiveKafkaOperator(task_id="kafka", topics=["orders"], kafka_config_id="kafka_default", origin="{key}")

    The connection is of Airflow's Kafka provider; its extra holds librdkafka's settings, `group.id` among them. Offsets
    are committed after the records before them are enqueued, whatever the connection's settings. The parameters of
    `ReceiveMessagesOperator` apply as well.

    :param topics: names, or regular expressions that begin with `^` (templated)
    :param kafka_config_id: id of a connection of type `kafka` (templated)
    :param origin: template of the origin: `{key}`, `{topic}`, `{partition}`, `{header.NAME}` (templated)
    :param group: consumer group, in place of the connection's (templated)
    :param unfit: action on a record that can never be a message: `stop` there and fail, or `skip` it
    """

    template_fields: Sequence[str] = (
        *ReceiveMessagesOperator.template_fields,
        "topics",
        "kafka_config_id",
        "origin",
        "group",
    )

    def __init__(
        self,
        *,
        topics: str | Sequence[str],
        kafka_config_id: str = "kafka_default",
        origin: str = "{key}",
        group: str | None = None,
        unfit: str = "stop",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.topics = topics
        self.kafka_config_id = kafka_config_id
        self.origin = origin
        self.group = group
        self.unfit = unfit

    def datasets(self) -> list[lineage.Source]:
        extra = BaseHook.get_connection(self.kafka_config_id).extra_dejson
        broker = str(extra.get("bootstrap.servers", "")).partition(",")[0].strip()
        return [lineage.Source(f"kafka://{broker}", topic) for topic in self._topics if broker and topic[:1] != "^"]

    @property
    def _topics(self) -> list[str]:
        return [self.topics] if isinstance(self.topics, str) else list(self.topics or ())

    def source(self) -> Adapter:
        from airflow_mq.adapters.kafka import KafkaTopics
        from airflow_mq.hooks import kafka_consumer

        topics = self._topics
        consumer = kafka_consumer(self.kafka_config_id, topics, self.group or None)
        return KafkaTopics(consumer, topics, origin=self.origin, unfit=self.unfit)
