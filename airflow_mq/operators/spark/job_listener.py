"""Which Spark application a task's job is, where Spark shows it, and why it failed: heard from what the job prints.

Kept as the XCom `spark_job` from the moment that it is known, so that a running job can be looked at. What is printed
after the driver has said it may be words of a message, and is not listened to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from airflow_mq.spark.cause import error_of
from airflow_mq.spark.job import PREFIX

#: The XCom, `{"id": …, "url": …}`.
SPARK_JOB = "spark_job"
#: Our own driver, before it handles any message.
DRIVER = re.compile(r"airflow_mq: Spark application ([\w.:-]{1,200})(?:, at (https?://\S{1,500}))?$")
#: Those who submit to a cluster, of an application on YARN, a pod of Kubernetes, and a driver of Spark's own cluster.
SUBMITTED = re.compile(r"\b(application_\d+_\d+|driver-\d{14}-\d{4})\b|\bpod name: ([\w.-]{1,200}-driver)$")
TRACKED = re.compile(r"\btracking URL: (https?://\S{1,500})$")
#: Spark's words when no master of a standalone cluster registers an application; what fails afterwards follows from it.
SILENT_MASTER = "All masters are unresponsive"
#: The last line of our driver where it fails. It quotes no message.
FAILED = re.compile(rf"^{PREFIX}(?:failed: |(?=this job was called wrongly))(.+)$")


class JobListener:
    """Listens to a job.

    :param tell: called with what is known whenever that is more than before.
    """

    def __init__(self, tell: Callable[[dict[str, str | None]], Any]) -> None:
        self.tell = tell
        self.known: dict[str, str | None] = {"id": None, "url": None}
        self._listening = True
        self._said = self._error = ""
        #: Whether Spark gave up its master.
        self.is_master_silent = False

    @property
    def cause(self) -> str | None:
        """The cause of a failure: as our driver printed it, or the last error before any message was handled."""
        return self._said or self._error or None

    def lines(self, lines: Iterable[str]) -> Iterator[str]:
        """The same lines."""
        for line in lines:
            if said := FAILED.match(line.strip()):
                self._said = said[1]
            if self._listening:
                self._error = error_of(line) or self._error
                self.is_master_silent |= SILENT_MASTER in line
                self.hear(line.strip())
            yield line

    def hear(self, line: str) -> None:
        """Take in a line."""
        if said := DRIVER.search(line):
            self._listening = False
            self._learn(*said.groups())
        elif said := TRACKED.search(line):
            self._learn(None, said[1])
        elif said := SUBMITTED.search(line):
            self._learn(said[1] or said[2], None)

    def _learn(self, id_: str | None, url: str | None) -> None:
        """The first word counts."""
        more = {"id": self.known["id"] or id_, "url": self.known["url"] or url}
        if more != self.known:
            self.known = more
            self.tell(dict(more))
