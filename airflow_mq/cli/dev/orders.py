"""The orders example: blocks until no queue is ready, a person's decision, a check of the results, and its terminal.

The demo acts from outside, as people and programs do: it triggers runs over Airflow's API, and reads the results from
the queue.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from ...engine.queue import MessageQueue
from ...engine.rules.errors import MessageQueueError
from ...engine.rules.weight import Weight
from ...examples import orders
from ...testing.live import LiveAirflow
from ...testing.loopback import AirflowFailed, TooLate
from ...words import many, weight
from ..output import Output
from ..screen import block_lines, queue_lines
from ..watching import Look, Watcher

#: Components that a block requires. The triggerer, which no task needs at first, starts beside the first block.
FIRST = ("api-server", "scheduler", "dag-processor")
#: Largest number of blocks; more indicate an error.
MOST_BLOCKS = 8
#: Seconds for a run; the slowest machines need minutes to start Spark.
BLOCK_SECONDS = 900.0
#: Tasks of a run; lines that end with one of these only describe the current step.
TASKS = {
    "take_in": "takes in files",
    "block.plan": "plans",
    "block.process": "Spark converts",
    "block.settle": "settles",
    "add_up": "adds up",
}
#: Numbers of queues and blocks that are shown while it runs.
_QUEUES, _BLOCKS = 13, 3


@dataclass
class BlockDone:
    """Results of one block."""

    run: str
    block: int
    messages: int
    processed: int
    failed: int
    set_aside: int
    weight: list[int]
    limit: list[int]
    seconds: float
    by_tenant: dict[str, int] = field(default_factory=dict)


@dataclass
class Summary:
    """Results of the whole demo; also as JSON."""

    ok: bool = False
    problems: list[str] = field(default_factory=list)
    tenants: dict[str, dict[str, Any]] = field(default_factory=dict)
    blocks: list[BlockDone] = field(default_factory=list)
    set_aside: list[dict[str, Any]] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)
    executed_by_hand: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    ui: dict[str, str] = field(default_factory=dict)
    folder: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)


class DemoRun:
    """The demo, step by step, with a folder, a store and an Airflow that has connections to both.

    `tell` receives progress lines.
    """

    def __init__(self, place: Path, store: str, airflow: LiveAirflow, tell: Callable[[str], None]) -> None:
        self.place, self.store, self.airflow, self.tell = place, store, airflow, tell
        self.began = time.monotonic()
        user, password = airflow.login
        self.summary = Summary(ui={"url": airflow.url, "user": user, "password": password}, folder=str(place))

    def queue(self) -> MessageQueue:
        return MessageQueue(self.store)

    def set_up(self, **sizes: int) -> dict[str, Any]:
        """Set the limit of a block, and create the files; return the manifest of the files."""
        with self.queue() as queue:
            queue.admin.change_ring(service_weight=orders.BLOCK)
        return orders.generate(self.place, **sizes)

    def run(self, by_hand: bool, **sizes: int) -> Summary:
        """Run everything; with `by_hand`, also the actions of a person in the UI."""
        self.tell("Airflow starts; meanwhile tenants drop their files")
        self.airflow.start(FIRST, wait=False)
        manifest = self.set_up(**sizes)
        self.tell(f"{manifest['files']} files of {len(manifest['tenants'])} tenants are waiting")
        self.airflow.wait_healthy(["api-server"])
        self._lap("api")
        self.tell("Airflow answers")
        return self.serve(by_hand)

    def serve(self, by_hand: bool) -> Summary:
        """Service the files after the stage is ready."""
        self._serve()
        self._look_at_what_is_left()
        if by_hand:
            self._execute_by_hand()
        self._check()
        self._lap("all")
        return self.summary

    def _serve(self) -> None:
        """Trigger runs until no queue is ready."""
        for number in range(1, MOST_BLOCKS + 1):
            block = self._serve_block(number)
            self.summary.blocks.append(block)
            if number == 1:
                self._lap("first block")
                self.airflow.ensure("triggerer")
            self.tell(
                f"Block {number}: {many(block.messages, 'file')} of {many(len(block.by_tenant), 'tenant')}, "
                f"{_part(block.weight[0], block.limit[0])} of its time and {_part(block.weight[1], block.limit[1])} "
                f"of its size, {block.seconds:.0f} s"
            )
            with self.queue() as queue:
                if not queue.inspect.ring_order(1):
                    return
        self.summary.problems.append(f"queues are still ready after {MOST_BLOCKS} blocks")

    def _serve_block(self, number: int) -> BlockDone:
        airflow, began = self.airflow, time.monotonic()
        run = airflow.trigger("orders")
        state = self._follow("orders", run, f"Block {number}")
        if state != "success":
            self._blame("orders", run)
        settled = airflow.xcom("orders", run, "block.settle", "settled") or {}
        return BlockDone(
            run,
            settled.get("block", 0),
            settled.get("messages", 0),
            settled.get("processed", 0),
            settled.get("failed", 0),
            settled.get("set_aside", 0),
            settled.get("used", [0, 0]),
            settled.get("limit", list(orders.BLOCK)),
            time.monotonic() - began,
            self._by_tenant(settled.get("block", 0)),
        )

    def _by_tenant(self, block: int) -> dict[str, int]:
        with self.queue() as queue:
            return dict(Counter(event.origin for event in queue.inspect.events(block=block, name="Processed")))

    def _follow(self, dag_id: str, run: str, what: str) -> str:
        """Report the tasks of a run until it ends; return its state."""
        airflow, seen, deadline = self.airflow, "", time.monotonic() + BLOCK_SECONDS
        while time.monotonic() < deadline:
            with suppress(AirflowFailed, OSError):
                state = airflow.state(dag_id, run)
                if state in ("success", "failed"):
                    return state
                now = [task["task_id"] for task in airflow.tasks(dag_id, run) if task["state"] == "running"]
                if now and now[-1] != seen:
                    seen = now[-1]
                    self.tell(f"{what} {TASKS.get(seen, seen)}")
            time.sleep(0.3)
        raise TooLate(
            f"run {run} of {dag_id} did not end within {BLOCK_SECONDS:.0f} s; last running task: {seen or 'none'}"
        )

    def _blame(self, dag_id: str, run: str) -> None:
        """Raise an error with the last log lines of the failed tasks."""
        airflow, tails = self.airflow, []
        for task in airflow.tasks(dag_id, run):
            if task["state"] == "failed":
                log = airflow.log(dag_id, run, task["task_id"], map_index=task["map_index"], attempt=task["try_number"])
                tails.append(f"--- {task['task_id']}\n" + "\n".join(log.splitlines()[-30:]))
        raise AirflowFailed(f"run {run} of {dag_id} failed\n" + "\n".join(tails))

    def _look_at_what_is_left(self) -> None:
        with self.queue() as queue:
            for kept in queue.set_aside.list():
                (peeked,) = [
                    found
                    for found in queue.inspect.peek(kept.address.origin, page=kept.address.page)
                    if found.address == kept.address
                ]
                weight = kept.weight or orders.BLOCK
                self.summary.set_aside.append(
                    {
                        "address": str(kept.address),
                        "reason": kept.reason,
                        "weight": list(weight),
                        "file": json.loads(peeked.payload)["file"],
                    }
                )
            self.summary.failed = [
                {"tenant": event.origin, "error": event.error, "block": event.block}
                for event in queue.inspect.events(name="ProcessingFailed")
            ]

    def _execute_by_hand(self) -> None:
        """Do what the form of `overweight_by_hand` does: trigger it with a message's address and a weight."""
        for kept in self.summary.set_aside:
            limit = Weight(*kept["weight"])
            conf = {"address": kept["address"], "limit": limit.typed}
            self.tell(f"A person executes {kept['address']} by hand, within {weight(limit)}")
            run = self.airflow.trigger("overweight_by_hand", conf)
            if self._follow("overweight_by_hand", run, "By hand:") != "success":
                self._blame("overweight_by_hand", run)
            self.summary.executed_by_hand = run

    def _check(self) -> None:
        summary, problems = self.summary, self.summary.problems
        problems += orders.verify(self.place, with_heavy=bool(summary.executed_by_hand))
        manifest = json.loads((self.place / "manifest.json").read_text())
        self._sum_tenants()
        with self.queue() as queue:
            problems += [str(violation) for violation in queue.check()]
            left = [str(kept.address) for kept in queue.set_aside.list()]
        if summary.executed_by_hand and left:
            problems.append(f"still set aside: {', '.join(left)}")
        if [kept["file"] for kept in summary.set_aside] != [manifest["heavy"]["file"]]:
            problems.append(f"set aside was {summary.set_aside}, and {manifest['heavy']['file']} was too heavy")
        if [failure["tenant"] for failure in summary.failed] != [manifest["corrupt"]["tenant"]]:
            problems.append(f"failed was {summary.failed}, and {manifest['corrupt']['file']} was corrupt")
        for block in summary.blocks:
            if any(used > most for used, most in zip(block.weight, block.limit)):
                problems.append(f"block {block.block} weighed {block.weight}, more than {block.limit}")
        late = [
            tenant
            for tenant in manifest["tenants"]
            if tenant != orders.LOUD and summary.tenants.get(tenant, {}).get("first_block") != 1
        ]
        if late:
            problems.append(f"{', '.join(late)} had to wait for {orders.LOUD}")
        summary.ok = not problems

    def _sum_tenants(self) -> None:
        for tenant, total in orders.totals(self.place).items():
            served = [block.by_tenant.get(tenant, 0) for block in self.summary.blocks]
            first = next((number for number, count in enumerate(served, 1) if count), None)
            self.summary.tenants[tenant] = {**total, "by_block": served, "first_block": first}

    def _lap(self, what: str) -> None:
        self.summary.seconds[what] = round(time.monotonic() - self.began, 1)


def _part(used: int, limit: int) -> str:
    return f"{100 * used / limit:.0f} %"


class Progress:
    """Progress of the demo: the ring and the blocks, live, on a terminal; lines elsewhere."""

    def __init__(self, console: Console, store: str) -> None:
        self.console = console
        self.began = time.monotonic()
        self.doing = Spinner("dots")
        self._live: Live | None = None
        self._watcher = Watcher(lambda: MessageQueue(store), limit=_QUEUES)
        self._look: Look | None = None
        self._looked_at = float("-inf")

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            self._live = Live(
                console=self.console,
                refresh_per_second=4,
                transient=True,
                get_renderable=self._drawn,
                vertical_overflow="crop",
            )
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()
        self._watcher.close()

    def tell(self, line: str) -> None:
        """Print the current step."""
        text = f"[dim]{time.monotonic() - self.began:5.0f} s[/]  {line}"
        if self._live is None:
            self.console.print(text, highlight=False)
            return
        if not line.endswith(tuple(TASKS.values())):
            self._live.console.print(text, highlight=False)
        self.doing.update(text=f" {line} …")

    def _drawn(self) -> RenderableType:
        look = self._see()
        if look is None or not (look.queues or look.blocks):
            return self.doing
        width, height = self.console.size
        rows = max(min(_QUEUES, height - _BLOCKS - 8), 1)
        lines = [Text(), *queue_lines(look, width)[: rows + 1], *block_lines(look, width, _BLOCKS)]
        return Group(*lines, Text(), self.doing)

    def _see(self) -> Look | None:
        """Return the state of the ring; the previous one while the store is missing or busy."""
        if time.monotonic() - self._looked_at < 0.5:
            return self._look
        self._looked_at = time.monotonic()
        with suppress(MessageQueueError):
            self._look = self._watcher.look()
        return self._look


def show(out: Output, summary: Summary) -> None:
    """Print the summary."""
    out.remark("Files of each tenant, by block:")
    tenants = sorted(summary.tenants.items(), key=lambda pair: -pair[1]["files"])
    blocks = [f"block {number}>" for number in range(1, len(summary.blocks) + 1)]
    rows = [
        (tenant, *total["by_block"], total["files"], total["orders"], f"{total['cents'] / 100:,.2f}")
        for tenant, total in tenants
    ]
    out.table(("tenant", *blocks, "files>", "orders>", "turnover>"), rows)
    out.remark("Blocks, and how much of their limits they used:")
    done = [
        (
            number,
            block.messages,
            len(block.by_tenant),
            f"{block.weight[0]:,} of {block.limit[0]:,} ms",
            f"{block.weight[1] / 1e6:.1f} of {block.limit[1] / 1e6:.1f} MB",
            f"{block.seconds:.0f} s",
        )
        for number, block in enumerate(summary.blocks, start=1)
    ]
    out.table(("block", "messages>", "tenants>", "time>", "size>", "took>"), done)
    for failure in summary.failed:
        out.remark(f"Corrupt: a file of {failure['tenant']}; discarded, with an event.")
    for kept in summary.set_aside:
        heavy = weight(Weight(*kept["weight"]))
        out.remark(f"Set aside: {kept['file']} at {kept['address']} weighs {heavy}, more than a block can carry.")
    if summary.executed_by_hand:
        out.remark("A person executed it by hand, with the DAG overweight_by_hand.")
    elif summary.set_aside:
        kept = summary.set_aside[0]
        out.remark("To execute it, trigger the DAG overweight_by_hand in the UI with")
        out.remark(f"  address {kept['address']}, limit {Weight(*kept['weight']).typed}")
    if summary.ok:
        out.remark("All is right: the data set holds what was dropped, to the cent.")
    for problem in summary.problems:
        out.line(f"Problem: {problem}")
