"""Driver of a job: divide the work, send it to executors, keep the lease, add up the counts."""

from __future__ import annotations

import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..engine.rules.errors import TokenRefused
from ..processors import Part, Processors
from .arguments import BLOCK, STORE, Arguments, print_line
from .lease import BlockLease
from .share import Channel, Reported, Task, loaded, run_share
from .store_side import NO_ACCESS, StoreChannel, from_environment, live_block, report_not_begun, tasks_of, terms_of
from .terms import JobTerms

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

log = logging.getLogger("airflow_mq.spark.job")

#: Pieces of work for each core: enough to balance the load, and few enough to be worth a task.
PIECES = 3


def run_with_store(arguments: Arguments, processors: Processors, part: Part) -> Reported:
    """Try the messages of a part, where the executors reach the store."""
    begun = time.monotonic()
    channel = StoreChannel(from_environment(STORE), arguments.ring, from_environment(BLOCK))
    with (
        channel.connect() as queue,
        # Here an error is clearer than on executors.
        loaded(processors, part, partial(report_not_begun, queue, channel.token, processors)) as part,
    ):
        spark = spark_for(part)
        with BlockLease(queue, channel.token, arguments.lease, spark.cancel) as keeper:
            block = live_block(queue, channel.token)
            terms = terms_of(queue, block)
            again = bool(queue.blocks.reported(channel.token))
            tasks = tasks_of(block, terms, processors, part, spark.width if block.messages else 1)
            log.info("block %d: %s, after %.1f s", block.id, _pieces(tasks), time.monotonic() - begun)
            try:
                tally = spark.run(channel, tasks, terms, again)
                log.info("block %d: tried, after %.1f s", block.id, time.monotonic() - begun)
            except Exception as error:
                if keeper.refused:
                    raise TokenRefused(str(keeper.refused)) from error
                raise
            finally:
                spark.stop()
        if keeper.refused or tally.refused:
            raise TokenRefused(str(keeper.refused or tally.refused))
        return tally


def run_with_folder(folder: str, processors: Processors, part: Part) -> Reported:
    """Try the messages of a part, where messages and outcomes travel through a folder."""
    from .exchange import FolderChannel

    channel = FolderChannel(folder)
    with loaded(processors, part, partial(channel.report_not_begun, processors)) as part:
        spark = spark_for(part)
        tasks = [task for task in channel.tasks(processors) if task.processor.name in part["processors"]]
        log.info("%s", _pieces(tasks))
        try:
            return spark.run(channel, tasks, channel.terms(), True)
        finally:
            spark.stop()


def _pieces(tasks: Sequence[Task]) -> str:
    return f"{sum(task.messages for task in tasks):,} messages in {len(tasks)} pieces"


class Spark(ABC):
    """The Spark session of a job, started when there is work."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.cancelled = False

    @property
    @abstractmethod
    def session(self) -> SparkSession:
        """The session for DataFrames."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of pieces of work that suit this cluster."""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether the session accepts more work."""

    @abstractmethod
    def scatter(self, tasks: Sequence[Task], call: Executor) -> Iterable[Reported]:
        """Run each task on the cluster."""

    @abstractmethod
    def cancel(self) -> None:
        """Cancel running work."""

    @abstractmethod
    def stop(self) -> None:
        """End the session, and no server."""

    def run(self, channel: Channel, tasks: Sequence[Task], terms: JobTerms, again: bool) -> Reported:
        """Try all messages; if a process dies, continue carefully with those that have no outcome yet."""
        frames = [task for task in tasks if task.processor.shape == "dataframe"]
        plain = [task for task in tasks if task.processor.shape != "dataframe"]
        total = self._run_plain(channel, plain, terms, again) if plain else Reported()
        if frames and not total.refused:
            from .frames import run_frames

            total.add(run_frames(self.session, channel, frames, terms, self.part, self.can_continue))
        return total

    def can_continue(self, error: Exception) -> bool:
        """Return whether more work may succeed after an error."""
        return not self.cancelled and self.alive and NO_ACCESS not in str(error)

    def _run_plain(self, channel: Channel, tasks: Sequence[Task], terms: JobTerms, again: bool) -> Reported:
        try:
            return Reported.sum_of(self.scatter(tasks, Executor(channel, terms, again, False)))
        except Exception as error:
            if not self.can_continue(error):
                raise
            log.warning("a process that tried messages died (%s); continuing carefully", type(error).__name__)
            return Reported.sum_of(self.scatter(tasks, Executor(channel, terms, True, True)))


def spark_for(part: Part) -> Spark:
    """Return the job's own session, or one of the Spark Connect server that `SPARK_REMOTE` names."""
    return RemoteSpark(part) if os.environ.get("SPARK_REMOTE") else OwnSpark(part)


class OwnSpark(Spark):
    """Session of a driver in this process; started when there is work, and limited to Spark's core."""

    _context: SparkContext | None = None

    @property
    def context(self) -> SparkContext:
        """The driver's Spark context."""
        if self._context is None:
            from pyspark import SparkConf, SparkContext

            # Only a JVM knows the settings that spark-submit was given, and among them a name.
            SparkContext._ensure_initialized()
            conf = SparkConf()
            if conf.get("spark.app.name", "job.py") == "job.py":
                conf.setAppName(f"airflow_mq {self.part['name']}")
            self._context = SparkContext.getOrCreate(conf)
            print_application(self._context.applicationId, self._context.uiWebUrl)
            if self.cancelled:
                self.cancel()
        return self._context

    @property
    def session(self) -> SparkSession:
        from pyspark.sql import SparkSession

        return SparkSession(self.context)

    @property
    def width(self) -> int:
        return PIECES * int(self.context.defaultParallelism)

    @property
    def alive(self) -> bool:
        try:
            return not self.context._jsc.sc().isStopped()
        except Exception:
            return False

    def scatter(self, tasks: Sequence[Task], call: Executor) -> Iterable[Reported]:
        tallies: list[Reported] = self.context.parallelize(tasks, len(tasks)).mapPartitions(call).collect()
        return tallies

    def cancel(self) -> None:
        self.cancelled = True
        if self._context is not None:
            _quietly("the jobs could not be cancelled", self._context.cancelAllJobs)

    def stop(self) -> None:
        # A processor may have stopped it already.
        if self._context is not None and self._context._jsc is not None:
            # PySpark's own `stop` also ends the server that receives accumulators, and waits up to a second for it.
            # That server is a thread of this process, which ends now.
            _quietly("Spark did not stop cleanly", self._context._jsc.stop)


class RemoteSpark(Spark):
    """Session of a running Spark Connect server: no JVM is started, and the server is not stopped."""

    _session: SparkSession | None = None

    @property
    def session(self) -> SparkSession:
        if self._session is None:
            from pyspark.sql import SparkSession

            self._session = SparkSession.builder.remote(os.environ["SPARK_REMOTE"]).create()
            print_application(self._session.conf.get("spark.app.id", None), None)
        return self._session

    @property
    def width(self) -> int:
        """`PIECES` for each of the server's default partitions: a server does not report its cores."""
        parallelism = self.session.conf.get("spark.sql.leafNodeDefaultParallelism", None)
        return PIECES * int(parallelism or os.cpu_count() or 2)

    @property
    def alive(self) -> bool:
        try:
            self.session.conf.get("spark.app.id", None)
        except Exception:
            return False
        return True

    def scatter(self, tasks: Sequence[Task], call: Executor) -> Iterable[Reported]:
        from .frames import TALLY, Numbered, tallies_in

        numbers = self.session.range(0, len(tasks), 1, len(tasks))
        return tallies_in(numbers.mapInArrow(Numbered(tasks, call), TALLY).collect())

    def cancel(self) -> None:
        self.cancelled = True
        if self._session is not None:
            _quietly("the jobs could not be cancelled", self._session.interruptAll)

    def stop(self) -> None:
        if self._session is not None:
            _quietly("the session did not end cleanly", self._session.stop)


def print_application(id_: str | None, url: str | None) -> None:
    """Print the application's id and URL before any line that may quote a message."""
    if id_:
        print_line(f"Spark application {id_}, at {url}" if url else f"Spark application {id_}")


def _quietly(what: str, act: Callable[[], object]) -> None:
    try:
        act()
    except Exception as error:
        log.warning("%s (%s)", what, type(error).__name__)


class Executor:
    """Work of an executor, shipped there as code, with its access to the messages."""

    def __init__(self, channel: Channel, terms: JobTerms, again: bool, careful: bool) -> None:
        self.channel, self.terms, self.again, self.careful = channel, terms, again, careful

    def __call__(self, tasks: Iterable[Task]) -> Iterator[Reported]:
        from pyspark import TaskContext

        context = TaskContext.get()
        # An earlier attempt may have died of a message.
        careful = self.careful or bool(context and context.attemptNumber() > 0)
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        for task in tasks:
            with self.channel.open(task.share) as side:
                yield run_share(task.processor, side, self.terms, careful=careful, again=self.again)
