"""Hops of some ways through the package: calls, functions and files between a public call and its result.

`python -m lab.hops` runs each way once on SQLite, after a first run that fills caches, and prints a table.
`python -m lab.hops --list WAY` prints the functions of one way in the order of their first call. A call of a function
of the package counts as one; comprehensions, generator expressions and lambdas do not count.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType

import airflow_mq
from airflow_mq.cli import main as command_line
from airflow_mq.engine.queue import MessageQueue
from airflow_mq.engine.rules.weight import Weight

PACKAGE = f"{Path(airflow_mq.__file__).parent}/"
LIMIT = Weight(10_000, 1 << 20)


class Hops:
    """Functions of the package that a call enters, with the number of their calls."""

    def __init__(self) -> None:
        self.calls: Counter[CodeType] = Counter()
        #: The functions within whose calls each function was called.
        self.within: defaultdict[CodeType, set[CodeType]] = defaultdict(set)

    def __enter__(self) -> Hops:
        self._seen: set[FrameType] = set()
        sys.setprofile(self._enter)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    def _enter(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        is_counted = event == "call" and code.co_filename.startswith(PACKAGE) and code.co_name[0] != "<"
        # A generator is entered again for each value: its frame counts once.
        if is_counted and frame not in self._seen:
            self._seen.add(frame)
            self.calls[code] += 1
            above = frame.f_back
            while above is not None:
                self.within[code].add(above.f_code)
                above = above.f_back

    def places(self) -> list[str]:
        """Return the functions in the order of their first calls, as `engine/queue/session.py:RingSession.config`."""
        return list(map(place_of, self.calls))

    def row(self) -> tuple[int, int, int]:
        """Return the numbers of calls, functions and files."""
        return self.calls.total(), len(self.calls), len({code.co_filename for code in self.calls})


def place_of(code: CodeType) -> str:
    """Return the module and the name of a function."""
    return f"{code.co_filename.removeprefix(PACKAGE)}:{getattr(code, 'co_qualname', code.co_name)}"


def _plan_and_settle(queue: MessageQueue) -> None:
    queue.blocks.settle(queue.blocks.plan(limit=LIMIT))


def _dry_run(address: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = command_line(["--store", address, "--json", "block", "dry-run", "--service-weight", "10000/1000000"])
    assert code == 0 and printed.getvalue().startswith("{"), printed.getvalue()


def ways(queue: MessageQueue, address: str) -> dict[str, Callable[[], object]]:
    """Return the ways by name."""
    ten = [b"message"] * 10
    return {
        "enqueue_message": lambda: queue.enqueue_message("acme", b"message"),
        "enqueue_messages": lambda: queue.enqueue_messages("acme", ten),
        "plan_settle": lambda: _plan_and_settle(queue),
        "service": lambda: queue.service_queues(lambda delivery: None, LIMIT),
        "dry_run": lambda: _dry_run(address),
    }


def measure() -> dict[str, Hops]:
    """Run each way twice in a store of its own; return the hops of the second run."""
    found = {}
    for name in ("enqueue_message", "enqueue_messages", "plan_settle", "service", "dry_run"):
        with tempfile.TemporaryDirectory() as folder:
            address = f"sqlite:///{folder}/queue.db"
            assert command_line(["--quiet", "--store", address, "store", "upgrade"]) == 0
            with MessageQueue(address) as queue:
                way = ways(queue, address)[name]
                queue.enqueue_messages("acme", [b"message"] * 3)
                way()
                if name in ("plan_settle", "service"):
                    # The first run of a block returned its three messages to their queue.
                    queue.service_queues(lambda delivery: None, Weight(1 << 30, 1 << 30))
                    queue.enqueue_messages("acme", [b"message"] * 3)
                with Hops() as hops:
                    way()
                found[name] = hops
    return found


def main() -> None:
    """Print the hops of all ways, or the functions of one."""
    parser = argparse.ArgumentParser(description="Print the hops of some ways through the package")
    parser.add_argument("--list", metavar="WAY", help="print the functions of one way")
    wanted = parser.parse_args().list
    with contextlib.redirect_stdout(io.StringIO()):
        found = measure()
    if wanted and wanted not in found:
        parser.error(f"unknown way {wanted}: expected {', '.join(found)}")
    if wanted:
        for code, count in found[wanted].calls.items():
            print(f"{count:5} {place_of(code)}")
        return
    print("| way | calls | functions | files |\n| --- | --- | --- | --- |")
    for name, hops in found.items():
        print(f"| {name} | {' | '.join(map(str, hops.row()))} |")


if __name__ == "__main__":
    main()
