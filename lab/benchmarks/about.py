"""Facts that a reader needs to judge the figures: machine, server, contenders, and known unfairness."""

from __future__ import annotations

import os
import platform
import re
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import psutil

BIAS = """
These figures were taken by the authors of one of the contenders, on one machine, which client and
server share. Known biases in either direction:

- The peers do more than this measure asks of them, and other things than this queue does: they are
  job queues with retries, schedules, priorities and notifications for each row. Their own published
  figures are from other machines and other settings.
- The peers are not asked for order or fairness within an origin, which this queue always gives. In
  those where it can be asked for it makes them slower.
- A message of 128 bytes is 128 bytes of payload for this queue and the bare table, with the origin
  beside it. Queues of JSON get a JSON text of 128 bytes with the origin in it, which is a little less.
- Each queue is driven in its own language, with the settings that its documentation calls fastest and
  the batch sizes that were the fastest of those tried (1,000 and 10,000; 300 to 50,000 where it
  fetches). An expert in one of them may make it faster; the drivers are short.
- The time to start a process, to connect and to create the messages is not counted for any queue.
- Slower queues get fewer messages, so that each takes about as long. The effect of larger tables on them
  was not measured.
- River and pg-boss keep what is done for a day or a week. Here it is deleted at once, through their
  public interfaces, because the time of each queue counts until the last row is deleted. For river the
  time until all is acknowledged is in the raw samples (`acknowledged`).
- pgqueuer keeps a log row of each job, as this queue keeps packed events; neither is deleted.
- The bare table is no queue: it has no order by origin, no retry, no record, and forgets what a dying
  client had taken. It is given in two forms, because the usual one is not the fastest.
- Databases are copies of prepared ones, so each run starts with cold shared buffers and a warm file
  cache, for every queue. Prepared databases are filled with `synchronous_commit` off; everything
  that is measured runs with it on.
- The vacuum after the last row counts for every queue. Autovacuum is on, except where the write-ahead log
  is measured, so that it counts the same work each time.
"""


def machine() -> dict[str, str]:
    """Return the machine and its software, without names of hosts or paths."""
    memory = psutil.virtual_memory().total / (1 << 30)
    return {
        "processor": f"{_processor()}, {os.cpu_count()} logical cores",
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "time to make 8 KiB durable": f"{_sync_time() * 1e6:,.0f} µs (median of 200 writes with fdatasync)",
        "other load at the start": f"{os.getloadavg()[0]:.2f} runnable processes on average over a minute",
    }


def _processor() -> str:
    known = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*:\s*(.+)$", known.read_text(), re.MULTILINE) if known.exists() else None
    return found[1] if found else platform.processor() or platform.machine()


def _sync_time() -> float:
    taken = []
    with tempfile.TemporaryFile(buffering=0) as file:
        for _ in range(200):
            file.write(os.urandom(8192))
            start = time.perf_counter()
            getattr(os, "fdatasync", os.fsync)(file.fileno())
            taken.append(time.perf_counter() - start)
    return median(taken)


def table(told: dict[str, Any]) -> str:
    lines = ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in told.items())]
    return "\n".join(lines)
