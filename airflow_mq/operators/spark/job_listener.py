"""Listener to a job's output: which Spark application it is, where Spark shows it, and why it failed.

The XCom `spark_job` holds the application as soon as it is known, so that people can look at a running job. Lines after
the driver has printed its application may quote messages, and are ignored.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable, Iterable, Iterator

from airflow_mq.spark.arguments import MARK, PREFIX
from airflow_mq.spark.cause import error_of

log = logging.getLogger("airflow_mq.spark")

#: Key of the XCom, `{"id": …, "url": …}`.
SPARK_JOB = "spark_job"
#: Line of our driver, before it handles any message.
DRIVER = re.compile(r"airflow_mq: Spark application ([\w.:-]{1,200})(?:, at (https?://\S{1,500}))?$")
#: Lines of cluster submitters, about an application on YARN, a pod of Kubernetes, and a driver of Spark's own cluster.
SUBMITTED = re.compile(
    r"\b(application_\d+_\d+|driver-\d{14}-\d{4})\b|"
    r"\b(?:pod name: |submission ID [\w-]{1,63}:)([\w.-]{1,200}-driver)(?:$| into Kubernetes)"
)
TRACKED = re.compile(r"\btracking URL: (https?://\S{1,500})$")
#: Spark's words when no master of a standalone cluster registers an application; later errors follow from it.
SILENT_MASTER = "All masters are unresponsive"
#: Last line of our driver when it fails, before the mark; it quotes no message.
FAILED = re.compile(rf"^{PREFIX}(?:failed: |(?=invalid arguments))(.+)$")


class JobListener:
    """A listener to one job.

    :param publish: called with the application's id and URL whenever more of them is known
    """

    def __init__(self, publish: Callable[[dict[str, str | None]], object]) -> None:
        self.publish = publish
        #: A processor may print the text of a message: only a line with this mark is the job's own.
        self.mark = secrets.token_hex(8)
        self.known: dict[str, str | None] = {"id": None, "url": None}
        self._listening = True
        self._printed = self._error = ""
        #: Whether Spark gave up its master.
        self.is_master_silent = False

    @property
    def environment(self) -> dict[str, str]:
        """The environment by which a job knows the mark."""
        return {MARK: self.mark}

    @property
    def cause(self) -> str | None:
        """The cause of a failure: as our driver printed it, or the last error before any message was handled."""
        return self._printed or self._error or None

    def lines(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield lines unchanged, and read them."""
        for line in lines:
            own, mark, _ = line.rpartition(f" [{self.mark}]")
            if mark and (match := FAILED.match(own.strip())):
                self._printed = match[1]
            if self._listening:
                self._error = error_of(line) or self._error
                self.is_master_silent |= SILENT_MASTER in line
                self.hear(line.strip())
            yield line

    def hear(self, line: str) -> None:
        if match := DRIVER.search(line):
            self._listening = False
            self._learn(*match.groups())
        elif match := TRACKED.search(line):
            self._learn(None, match[1])
        elif match := SUBMITTED.search(line):
            self._learn(match[1] or match[2], None)

    def _learn(self, id_: str | None, url: str | None) -> None:
        """Keep the first id and the first URL."""
        more = {"id": self.known["id"] or id_, "url": self.known["url"] or url}
        if more != self.known:
            self.known = more
            try:
                self.publish(dict(more))
            except Exception as error:
                # The link to a job is not worth the job.
                log.warning("the job's id and address could not be stored as XCom: %s", error)
