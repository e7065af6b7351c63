"""What a job does in its driver: cut the work, send it to executors, keep the lease, add up."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from ..core.errors import MessageQueueError, TokenRefused
from ..processors import Part, Processors
from .job import Arguments
from .reporting import keeping_lease
from .running import Manner, Side, Tally, Task, load_function, run_share
from .store_side import StoreChannel, live_block, manner_of, tasks_of

log = logging.getLogger("airflow_mq.spark.job")

#: Pieces of work for each core: small enough to even out, large enough to be worth a task.
PIECES = 3


class Channel(Protocol):
    """A way to messages that can be shipped to executors."""

    def open(self, share: Any) -> Side:
        """Open a share."""


class JobFailed(MessageQueueError):
    """The job failed."""


class StoreJob:
    """A job whose executors reach the store."""

    def __init__(self, arguments: Arguments, processors: Processors, part: Part) -> None:
        self.arguments, self.processors, self.part = arguments, processors, part
        self.channel = StoreChannel.of_environment(arguments.ring)

    def run(self) -> Tally:
        """Try the messages of the part."""
        load_functions(self.processors, self.part)
        with self.channel.connect() as queue:
            spark = Spark(self.part)
            with keeping_lease(queue, self.channel.token, self.arguments.lease, spark.cancel) as keeper:
                block = live_block(queue, self.channel.token)
                manner = manner_of(queue, block)
                again = bool(queue.reported(self.channel.token))
                tasks = tasks_of(block, manner, self.processors, self.part, spark.width if block.messages else 1)
                log.info(
                    "block %d: %s messages in %d pieces", block.id, f"{sum(t.messages for t in tasks):,}", len(tasks)
                )
                try:
                    tally = spark.run(self.channel, tasks, manner, again)
                except Exception as error:
                    if keeper.refused:
                        raise TokenRefused(str(keeper.refused)) from error
                    raise
                finally:
                    spark.stop()
            if keeper.refused or tally.refused:
                raise TokenRefused(str(keeper.refused or tally.refused))
            return tally


class FolderJob:
    """A job whose messages and outcomes travel through a folder."""

    def __init__(self, arguments: Arguments, processors: Processors, part: Part) -> None:
        from .exchange import FolderChannel

        self.processors, self.part = processors, part
        self.channel = FolderChannel(arguments.exchange or "")

    def run(self) -> Tally:
        """Try the messages in the folder."""
        load_functions(self.processors, self.part)
        tasks, spark = self.channel.tasks(self.processors), Spark(self.part)
        log.info("%s messages in %d pieces", f"{sum(task.messages for task in tasks):,}", len(tasks))
        try:
            return spark.run(self.channel, tasks, self.channel.manner(), True)
        finally:
            spark.stop()


def load_functions(processors: Processors, part: Part) -> None:
    """What cannot be loaded here would fail on every executor, and say so less clearly."""
    for name in part["processors"]:
        load_function(processors[name].function)


class Spark:
    """The session of a job, made when there is something to do."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self._context: Any = None
        self._cancelled = False

    @property
    def context(self) -> Any:
        """The driver's Spark context."""
        if self._context is None:
            from pyspark import SparkConf, SparkContext

            conf = SparkConf()
            if not conf.get("spark.app.name", "") or conf.get("spark.app.name") == "job.py":
                conf.setAppName(f"airflow_mq {self.part['name']}")
            self._context = SparkContext.getOrCreate(conf)
            if self._cancelled:
                self.cancel()
        return self._context

    @property
    def width(self) -> int:
        """How many pieces of work go well with this cluster."""
        return PIECES * int(self.context.defaultParallelism)

    def run(self, channel: Channel, tasks: Sequence[Task], manner: Manner, again: bool) -> Tally:
        """Try everything; where a process dies of it, go on carefully with what has no answer yet."""
        frames = [task for task in tasks if task.processor.shape == "dataframe"]
        plain = [task for task in tasks if task.processor.shape != "dataframe"]
        total = self._run_plain(channel, plain, manner, again) if plain else Tally()
        if frames and not total.refused:
            from .frames import run_frames

            total.add(run_frames(self.context, channel, frames, manner, again))
        return total

    def _run_plain(self, channel: Channel, tasks: Sequence[Task], manner: Manner, again: bool) -> Tally:
        try:
            return self._scatter(channel, tasks, manner, again, False)
        except Exception as error:
            if self._cancelled or not self.alive:
                raise
            log.warning("a process that tried messages died (%s); going on carefully", type(error).__name__)
            return self._scatter(channel, tasks, manner, True, True)

    def _scatter(self, channel: Channel, tasks: Sequence[Task], manner: Manner, again: bool, careful: bool) -> Tally:
        total = Tally()
        work = self.context.parallelize(tasks, len(tasks))
        for tally in work.mapPartitions(Executor(channel, manner, again, careful)).collect():
            total.add(tally)
        return total

    @property
    def alive(self) -> bool:
        """Whether the driver's JVM still answers."""
        try:
            return not self.context._jsc.sc().isStopped()
        except Exception:
            return False

    def cancel(self) -> None:
        """Stop what runs: nobody wants it any more."""
        self._cancelled = True
        if self._context is not None:
            try:
                self._context.cancelAllJobs()
            except Exception as error:
                log.warning("the jobs could not be cancelled (%s)", type(error).__name__)

    def stop(self) -> None:
        """End the session."""
        if self._context is not None:
            try:
                self._context.stop()
            except Exception as error:
                log.warning("Spark did not stop cleanly (%s)", type(error).__name__)


class Executor:
    """What runs on an executor: shipped there as code, with the way to the messages in it."""

    def __init__(self, channel: Channel, manner: Manner, again: bool, careful: bool) -> None:
        self.channel, self.manner, self.again, self.careful = channel, manner, again, careful

    def __call__(self, tasks: Iterable[Task]) -> Iterator[Tally]:
        from pyspark import TaskContext

        context = TaskContext.get()
        # What was tried before may have died of a message.
        careful = self.careful or bool(context and context.attemptNumber() > 0)
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        for task in tasks:
            side = self.channel.open(task.share)
            try:
                yield run_share(task.processor, side, self.manner, careful=careful, again=self.again)
            finally:
                side.close()
