"""Receiving from a DAG: new files of a landing folder or an object store, and Kafka topics, become messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from airflow.providers.common.compat.sdk import AirflowFailException, BaseHook

from airflow_mq import lineage
from airflow_mq.adapters import BATCH, Received, receive
from airflow_mq.core.errors import InvalidInput, NotPermitted
from airflow_mq.core.priority import REGULAR
from airflow_mq.operators import telemetry
from airflow_mq.operators.base import QueueOperator, weight_of

if TYPE_CHECKING:
    from airflow_mq.adapters import Adapter, Arrived


class ReceiveMessagesOperator(QueueOperator):
    """Take what another transport has now into the queue, once. ::

        ReceiveMessagesOperator(task_id="receive", adapter=lambda: MySource("…"))

    A retry, and a run after one that was killed, goes on where that was: what came again is known by its key.

    Returns `{"count": …, "size": …, "repeated": …, "refused": …}`.

    :param adapter: makes the source when the task runs: anything with the functions of `airflow_mq.adapters.Adapter`
    :param most: stop after about so many messages (templated)
    :param batch: how many are enqueued in one transaction
    :param weight: what each message will cost, `[time, size]` (templated)
    :param priority: `high` is serviced before all that is `regular` (templated)
    :param fail_on_refused: fail, at the end, if something can never be a message and was put aside
    """

    template_fields: Sequence[str] = (*QueueOperator.template_fields, "most", "weight", "priority")

    def __init__(
        self,
        *,
        adapter: Callable[[], Adapter] | None = None,
        most: Any = None,
        batch: int = BATCH,
        weight: Any = None,
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
        self._touched: lineage.Touched | None = None

    def source(self) -> Adapter:
        """The source."""
        if self.adapter is None:
            raise AirflowFailException("say what to receive from: adapter=…")
        return self.adapter()

    def datasets(self) -> list[lineage.Source]:
        """The source as lineage names it; none, where nobody knows."""
        return []

    def get_openlineage_facets_on_start(self) -> Any:
        """The ring, and the source."""
        return telemetry.begun(self.mq_conn_id, self.ring, self.datasets())

    def get_openlineage_facets_on_complete(self, ti: Any) -> Any:
        """The source, and the queues that have its messages."""
        return lineage.written(self._touched, self.datasets())

    def execute(self, context: Any) -> dict[str, int]:
        """Receive everything that is there."""
        try:
            most = int(self.most) if self.most not in (None, "") else None
        except (TypeError, ValueError, OverflowError):
            raise AirflowFailException(f"most is a number of messages, not {self.most!r}") from None
        with self.opened(context) as queue, telemetry.sending(queue):
            try:
                source = self.source()
            except InvalidInput as error:
                raise AirflowFailException(str(error)) from error
            self._touched = lineage.touched(queue)
            if self._touched is not None:
                source = cast("Adapter", _Counted(source, self._touched.messages))
            try:
                done = receive(
                    queue, source, most=most, batch=self.batch, weight=weight_of(self.weight, "weight"),
                    priority=self.priority, progress=self._tell,
                )  # fmt: skip
            except NotPermitted as error:
                # Tried again, it would be refused again.
                raise AirflowFailException(str(error)) from None
            finally:
                source.close()
            self.log.info("Ring %r: %s.", queue.ring, done)
        if done.refused and self.fail_on_refused:
            raise AirflowFailException(f"{done}; see the log for what, and why")
        return {"count": done.count, "size": done.size, "repeated": done.repeated, "refused": done.refused}

    def _tell(self, so_far: Received) -> None:
        self.log.info("So far: %s.", so_far)


@dataclass
class _Counted:
    """A source of which is counted what the queue has of it."""

    source: Adapter
    messages: Counter[str]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    def commit(self, arrived: Sequence[Arrived]) -> None:
        self.messages.update(one.origin for one in arrived)
        self.source.commit(arrived)


class ReceiveFilesOperator(ReceiveMessagesOperator):
    """New files of a landing folder, or below a prefix of an object store, become messages. ::

        ReceiveFilesOperator(task_id="files", folder="/data/landing", pattern="{origin}/*.json")
        ReceiveFilesOperator(task_id="s3", folder="s3://bucket/landing", storage_conn_id="aws",
                             pattern="{origin*}/*.csv", lines=True)

    `airflow_mq.adapters.landing` says what is a new file, and what becomes of it.

    :param folder: a folder of the machine that runs the task, or the address of an object store (templated)
    :param storage_conn_id: connection of the object store (templated)
    :param pattern: takes the origin from the path below the folder: `{origin}/*.json` (templated)
    :param regex: the same as a regular expression with a group `origin` (templated)
    :param lines: whether each line of a file is a message
    :param settle: seconds for which a file of a folder must not have changed
    :param after: what becomes of a file that the queue has: `move` it below `.received`, `delete` it, or `keep` it
        where it is, and write a receipt below `.received`
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
        """The folder, or the prefix."""
        return [lineage.source_at(self.folder)]

    def source(self) -> Adapter:
        """The folder, or the prefix."""
        from airflow_mq.adapters.landing import LandingFolder, LandingPrefix

        how: dict[str, Any] = {
            "regex": self.regex or None,
            "lines": self.lines,
            "settle": self.settle,
            "after": self.after,
        }
        pattern = self.pattern or None
        if "://" not in self.folder:
            return LandingFolder(self.folder, pattern, **how)
        from airflow.sdk import ObjectStoragePath

        root = ObjectStoragePath(self.folder, conn_id=self.storage_conn_id or None)
        return LandingPrefix(root.fs, root.path, pattern, **how)


class ReceiveKafkaOperator(ReceiveMessagesOperator):
    """What is in Kafka topics becomes messages. ::

        ReceiveKafkaOperator(task_id="kafka", topics=["orders"], kafka_config_id="kafka_default", origin="{key}")

    The connection is of Airflow's Kafka provider; its extra are librdkafka's settings, `group.id` among them. Offsets
    are committed only after what is before them is in the queue, whatever the connection says of that.

    :param topics: names, or regular expressions that begin with `^` (templated)
    :param kafka_config_id: id of a connection of type `kafka` (templated)
    :param origin: what an origin is made of: `{key}`, `{topic}`, `{partition}`, `{header.NAME}` (templated)
    :param group: the consumer group, in place of the connection's (templated)
    :param unfit: what to do with a record that can never be a message: `stop` there and fail, or `skip` it
    """

    template_fields: Sequence[str] = (
        *ReceiveMessagesOperator.template_fields, "topics", "kafka_config_id", "origin", "group",
    )  # fmt: skip

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
        """The topics, but for those that only a pattern names."""
        said = BaseHook.get_connection(self.kafka_config_id).extra_dejson
        broker = str(said.get("bootstrap.servers", "")).partition(",")[0].strip()
        return [lineage.Source(f"kafka://{broker}", one) for one in self._topics if broker and one[:1] != "^"]

    @property
    def _topics(self) -> list[str]:
        return [self.topics] if isinstance(self.topics, str) else list(self.topics)

    def source(self) -> Adapter:
        """The topics."""
        from airflow_mq.adapters.kafka import KafkaTopics
        from airflow_mq.hooks import kafka_consumer

        topics = self._topics
        consumer = kafka_consumer(self.kafka_config_id, topics, self.group or None)
        return KafkaTopics(consumer, topics, origin=self.origin, unfit=self.unfit)
