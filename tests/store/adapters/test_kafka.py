"""Kafka topics, on a real broker: what is in them becomes messages, once."""

from __future__ import annotations

import json
import random
import threading
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mq import MessageQueue
from airflow_mq.adapters import Received, receive
from airflow_mq.adapters.kafka import KafkaFailed, KafkaTopics, UnfitRecord, consumer, origin_of, settings_for
from airflow_mq.engine.rules.errors import InvalidInput
from airflow_mq.engine.store import parse, upgrade
from tests.store.adapters.broker import broker
from tests.store.adapters.conftest import contents, die_in

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
confluent = pytest.importorskip("confluent_kafka")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with broker(tmp_path_factory.mktemp("kafka")) as address:
        yield address


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store_uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a fresh, empty store, on each kind of database."""
    uri: str = f"sqlite:///{tmp_path}/store.db" if request.param == "sqlite" else request.getfixturevalue("pg_uri")
    return uri


class Cluster:
    """Topics of a test's own."""

    def __init__(self, server: str) -> None:
        self.server, self.name = server, uuid.uuid4().hex[:12]
        self.settings = {"bootstrap.servers": server, "group.id": f"group-{self.name}"}

    def make(self, partitions: int = 1, name: str | None = None) -> str:
        from confluent_kafka.admin import AdminClient, NewTopic

        topic = name or f"t-{uuid.uuid4().hex[:12]}"
        admin = AdminClient({"bootstrap.servers": self.server})
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(120)
        return topic

    def send(self, topic: str, records: Sequence[tuple[str | bytes | None, bytes | None, Any]]) -> None:
        producer = confluent.Producer({"bootstrap.servers": self.server, "linger.ms": 5})
        for key, value, headers in records:
            producer.produce(topic, value=value, key=key, headers=headers)
        assert producer.flush(30) == 0

    def topics(self, *topics: str, **how: Any) -> KafkaTopics:
        return KafkaTopics(consumer(self.settings), list(topics), **how)

    def committed(self, topic: str, partition: int = 0) -> int:
        reader = confluent.Consumer(self.settings)
        (found,) = reader.committed([confluent.TopicPartition(topic, partition)], timeout=30)
        reader.close()
        offset: int = found.offset
        return offset


@pytest.fixture
def cluster(server: str) -> Cluster:
    return Cluster(server)


def take(queue: MessageQueue, topics: KafkaTopics, **how: Any) -> Received:
    try:
        return receive(queue, topics, **how)
    finally:
        topics.close()


@pytest.mark.sqlite_first
def test_records_become_messages_once(queue: MessageQueue, cluster: Cluster) -> None:
    topic = cluster.make(partitions=3)
    records = [(f"o{number % 5}", b"%d" % number, [("trace", b"t-%d" % number)]) for number in range(60)]
    cluster.send(topic, records)  # type: ignore[arg-type]
    assert take(queue, cluster.topics(topic), batch=7).count == 60
    assert contents(queue) == {f"o{origin}": [b"%d" % n for n in range(60) if n % 5 == origin] for origin in range(5)}
    headers = queue.inspect.peek("o3")[0].headers
    assert headers["trace"] == "t-3" and headers["kafka"].startswith(f"{topic}/")
    # Everything is committed: the next time there is nothing, and then what is new.
    assert take(queue, cluster.topics(topic)) == Received()
    cluster.send(topic, [("o1", b"new", None)])
    assert take(queue, cluster.topics(topic)) == Received(1, 3)
    # Another group reads it all again, and the queue knows every record.
    cluster.settings["group.id"] += "-2"
    assert take(queue, cluster.topics(topic)) == Received(repeated=61)


def test_a_run_ends_though_records_keep_coming(queue: MessageQueue, cluster: Cluster) -> None:
    topic, stop = cluster.make(), threading.Event()
    cluster.send(topic, [("acme", b"%d" % number, None) for number in range(20)])

    def keep_sending() -> None:
        number = 20
        while not stop.wait(0.02):
            cluster.send(topic, [("acme", b"%d" % number, None)])
            number += 1

    topics, done = cluster.topics(topic), list[Received]()
    sending = threading.Thread(target=keep_sending)
    reading = threading.Thread(target=lambda: done.append(take(queue, topics, batch=7)), daemon=True)
    sending.start()
    try:
        reading.start()
        reading.join(120)
        assert not reading.is_alive()
    finally:
        stop.set()
        sending.join()
    assert done[0].count >= 20
    # The next run goes on behind it, and nothing is missing.
    assert take(queue, cluster.topics(topic)).repeated == 0
    (payloads,) = contents(queue).values()
    assert payloads == [b"%d" % number for number in range(len(payloads))]


PROGRAM = """
import json, os, signal
from airflow_mq import MessageQueue
from airflow_mq.adapters import receive
from airflow_mq.adapters.kafka import KafkaTopics, consumer

where = os.environ["WHERE"]

class Dying(KafkaTopics):
    left = 2
    def commit(self, arrived):
        Dying.left -= 1
        if Dying.left == 0 and where == "commit":
            os.kill(os.getpid(), signal.SIGKILL)
        super().commit(arrived)
        if Dying.left == 0 and where == "after":
            os.kill(os.getpid(), signal.SIGKILL)

with MessageQueue(os.environ["STORE"]) as queue:
    if where == "claim_key":
        seen = []
        def probe(name):
            seen.append(name)
            if seen.count("claim_key") == 8:
                os.kill(os.getpid(), signal.SIGKILL)
        queue.store.probe = probe
    settings = json.loads(os.environ["SETTINGS"])
    receive(queue, Dying(consumer(settings), [os.environ["TOPIC"]]), batch=5)
"""


@pytest.mark.sqlite_first
@pytest.mark.crash
@pytest.mark.parametrize("where", ["claim_key", "commit", "after"])
def test_killed_anywhere_nothing_is_lost_or_doubled(
    queue: MessageQueue, store_uri: str, cluster: Cluster, where: str
) -> None:
    topic = cluster.make(partitions=1)
    cluster.send(topic, [("acme", b"%d" % number, None) for number in range(40)])
    # Who was killed is still a member for a while: as a member of its own name, it is at once replaced.
    cluster.settings["group.instance.id"] = "one"
    environment = {"STORE": store_uri, "SETTINGS": json.dumps(cluster.settings), "TOPIC": topic, "WHERE": where}
    die_in(PROGRAM, environment)
    assert queue.check() == []
    done = take(queue, cluster.topics(topic), batch=6)
    assert contents(queue) == {"acme": [b"%d" % number for number in range(40)]}
    assert done.repeated == (5 if where == "commit" else 0)


@pytest.mark.crash
def test_who_was_killed_is_missed_after_a_while(cluster: Cluster, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    upgrade(parse(store))
    topic = cluster.make()
    cluster.send(topic, [("acme", b"%d" % number, None) for number in range(20)])
    cluster.settings["session.timeout.ms"] = "6000"
    environment = {"STORE": store, "SETTINGS": json.dumps(cluster.settings), "TOPIC": topic, "WHERE": "commit"}
    die_in(PROGRAM, environment)
    with MessageQueue(store) as queue:
        assert take(queue, cluster.topics(topic)).repeated == 5
        assert contents(queue) == {"acme": [b"%d" % number for number in range(20)]}


def test_what_was_not_committed_is_fetched_again(queue: MessageQueue, cluster: Cluster) -> None:
    topic = cluster.make()
    cluster.send(topic, [("acme", b"%d" % number, None) for number in range(10)])
    topics = cluster.topics(topic)
    calls = []

    def fail(name: str) -> None:
        calls.append(name)
        if calls.count("claim_key") == 5:
            raise RuntimeError("the network went away")

    queue.store.probe = fail
    with pytest.raises(RuntimeError):
        receive(queue, topics, batch=3)
    queue.store.probe = None
    assert take(queue, topics, batch=4).count == 7
    assert contents(queue) == {"acme": [b"%d" % number for number in range(10)]}
    assert cluster.committed(topic) == 10


def test_what_can_never_be_a_message(queue: MessageQueue, cluster: Cluster) -> None:
    topic = cluster.make()
    records: list[Any] = [("acme", b"1", None), ("acme", None, None), (None, b"2", None), (b"\xff", b"3", None),
                          ("a\nb", b"4", None), ("acme", b"", None), ("acme", b"5", [("x", None), ("y", b"\xff\0")])]  # fmt: skip
    cluster.send(topic, records)
    with pytest.raises(UnfitRecord, match=rf"the record {topic}/0/1 can never be a message: it has no value"):
        take(queue, cluster.topics(topic))
    assert contents(queue) == {"acme": [b"1"]} and cluster.committed(topic) == 1
    assert take(queue, cluster.topics(topic, unfit="skip")) == Received(1, 1, refused=5)
    assert contents(queue) == {"acme": [b"1", b"5"]} and cluster.committed(topic) == 7
    assert queue.inspect.peek("acme")[1].headers["y"] == "\\xff\\x00"


def test_origins_of_topics_and_headers_and_large_records(queue: MessageQueue, cluster: Cluster) -> None:
    topic = cluster.make()
    data = random.Random(1).randbytes(200_000)
    cluster.send(topic, [("k", data, [("tenant", b"acme")])])
    assert take(queue, cluster.topics(topic, origin="{header.tenant}/{topic}/{partition}/{key}")).count == 1
    (peeked,) = queue.inspect.peek(f"acme/{topic}/0/k")
    with queue.payloads.open(peeked) as file:
        assert file.read() == data


def test_from_the_command_line(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from airflow_mq.cli import main

    topic = cluster.make()
    cluster.send(topic, [("acme", b"1", None), (None, b"2", None), ("acme", b"3", None)])
    store = f"sqlite:///{tmp_path}/store.db"
    upgrade(parse(store))
    words = ["message", "receive-kafka", topic, "--bootstrap", cluster.server, "--group", "g", "--store", store]
    assert main(words) == 3
    assert f"the record {topic}/0/1 can never be a message: it has no key" in capsys.readouterr().err
    assert main([*words, "--skip-unfit", "--json"]) == 1
    told = {"count": 1, "size": 1, "repeated": 0, "refused": 1, "left": 0, "unreadable": 0}
    assert json.loads(capsys.readouterr().out) == told
    assert main(words) == 0 and capsys.readouterr().out == "received 0 messages of 0 bytes\n"


def test_two_readers_of_a_group_share_the_work(queue: MessageQueue, cluster: Cluster) -> None:
    topic = cluster.make(partitions=4)
    cluster.send(topic, [(f"o{number}", b"%d" % number, None) for number in range(40)])
    with ThreadPoolExecutor(2) as pool:
        took = list(pool.map(lambda _: take(queue, cluster.topics(topic), batch=3), range(2)))
    assert sum(one.count for one in took) == 40
    assert sum(footprint.count for _, footprint in queue.footprints()) == 40


class Rebalanced:
    """A consumer whose partition is taken from it after two records, because another reader came, and given back."""

    def __init__(self) -> None:
        told = [self.first, self.revoked, self.nothing, self.rest, self.end]
        self.committed, self.calls = 0, chain(told, repeat(self.nothing))

    def subscribe(self, topics: list[str], *, on_assign: Any, on_revoke: Any, on_lost: Any) -> None:
        self.on_assign, self.on_revoke = on_assign, on_revoke

    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(cluster_id="cluster")

    def consume(self, most: int, timeout: float) -> list[Any]:
        found: list[Any] = next(self.calls)()
        return found

    def first(self) -> list[Any]:
        self.on_assign(self, [confluent.TopicPartition("t", 0)])
        return [self.record(offset) for offset in range(2)]

    def revoked(self) -> list[Any]:
        self.on_revoke(self, [confluent.TopicPartition("t", 0)])
        return []

    def get_watermark_offsets(self, place: Any, timeout: float) -> tuple[int, int]:
        return 0, 5

    def nothing(self) -> list[Any]:
        return []

    def rest(self) -> list[Any]:
        self.on_assign(self, [confluent.TopicPartition("t", 0)])
        return [self.record(offset) for offset in range(self.committed, 5)]

    def end(self) -> list[Any]:
        return [self.record(5, confluent.KafkaError(confluent.KafkaError._PARTITION_EOF))]

    def record(self, offset: int, error: Any = None) -> Any:
        said = {"topic": "t", "partition": 0, "offset": offset, "key": b"acme", "value": b"%d" % offset,
                "headers": [], "timestamp": (1, offset), "error": error}  # fmt: skip
        return SimpleNamespace(**{name: lambda value=value: value for name, value in said.items()})

    def commit(self, offsets: list[Any], asynchronous: bool) -> None:
        self.committed = offsets[0].offset

    def close(self) -> None:
        pass


def test_a_reader_without_a_partition_has_not_read_all(queue: MessageQueue) -> None:
    """Readers join and leave: until a reader has its new assignment, it is at no end."""
    done = take(queue, KafkaTopics(Rebalanced(), ["t"]), batch=10)
    assert contents(queue) == {"acme": [b"%d" % number for number in range(5)]}
    assert done == Received(3 + 2, 5, 2)


class Growing(Rebalanced):
    """A consumer of one partition that grows."""

    place, size = -1, 0

    def consume(self, most: int, timeout: float) -> list[Any]:
        if self.place < 0:
            self.place = 0
            self.on_assign(self, [confluent.TopicPartition("t", 0)])
        found = [self.record(offset) for offset in range(self.place, min(self.place + most, self.size))]
        self.place += len(found)
        return found or self.end()

    def get_watermark_offsets(self, place: Any, timeout: float) -> tuple[int, int]:
        return 0, self.size


def test_a_run_after_an_empty_one_reads_to_the_end(quick: MessageQueue) -> None:
    reader = Growing()
    topics = KafkaTopics(reader, ["t"])
    for size in (0, 250, 250, 600):
        before, reader.size = reader.size, size
        assert receive(quick, topics).count == size - before


@pytest.mark.parametrize("call", ["consume", "list_topics", "get_watermark_offsets"])
def test_errors_of_the_driver_are_named(queue: MessageQueue, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    from confluent_kafka import KafkaError, KafkaException

    def fail(*args: object, **options: object) -> None:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    reader = Rebalanced()
    monkeypatch.setattr(reader, call, fail)
    with pytest.raises(KafkaFailed):
        take(queue, KafkaTopics(reader, ["t"]), batch=10)


def test_a_topic_made_anew_is_another(queue: MessageQueue, cluster: Cluster) -> None:
    from confluent_kafka.admin import AdminClient

    topic = cluster.make()
    cluster.send(topic, [("acme", b"1", None)])
    assert take(queue, cluster.topics(topic)).count == 1
    admin = AdminClient({"bootstrap.servers": cluster.server})
    admin.delete_topics([topic])[topic].result(120)
    _until_gone(admin, topic)
    cluster.make(name=topic)
    cluster.send(topic, [("acme", b"2", None)])
    cluster.settings["group.id"] += "-2"
    assert take(queue, cluster.topics(topic)) == Received(1, 1)


def _until_gone(admin: Any, topic: str) -> None:
    import time

    until = time.monotonic() + 30
    while topic in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < until
        time.sleep(0.1)
    time.sleep(0.5)


def test_a_cluster_that_is_not_there(queue: MessageQueue, caplog: pytest.LogCaptureFixture) -> None:
    topics = KafkaTopics(
        consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}), ["t"], patience=1.0
    )  # fmt: skip
    with pytest.raises(KafkaFailed, match="check that it is up"):
        take(queue, topics)
    # The client tries many times a second, and logs each try.
    assert len([one for one in caplog.messages if "Connect to" in one]) == 1


def test_what_makes_no_sense(tmp_path: Path) -> None:
    for template in ("", "acme", "{nothing}", "{header}", "{key}{x}"):
        with pytest.raises(InvalidInput):
            origin_of(template)
    with pytest.raises(InvalidInput, match=r"group\.id"):
        settings_for({"bootstrap.servers": "x"})
    forced = settings_for({"group.id": "g", "enable.auto.commit": True, "auto.offset.reset": "latest"})
    assert forced["enable.auto.commit"] is False and forced["auto.offset.reset"] == "latest"
    for wrong in ({"topics": []}, {"topics": "t"}, {"unfit": "burn"}, {"origin": "x"}):
        with pytest.raises(InvalidInput):
            KafkaTopics(None, **{"topics": ["t"], **wrong})
