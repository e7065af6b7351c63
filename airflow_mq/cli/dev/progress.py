"""Terminal output of the demo: progress lines while it runs, and tables at the end."""

from __future__ import annotations

import time
from contextlib import suppress

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from ...engine.queue import MessageQueue
from ...engine.rules.errors import MessageQueueError
from ...engine.rules.weight import Weight
from ..frame import blocks, mark_of, queues
from ..output import Output
from ..watching import Look, Watcher
from .orders import Summary, by_hand_limit

#: Ends of lines that only describe the current step.
PASSING = ("takes in files", "plans", "Spark converts", "settles", "adds up")
#: Numbers of queues and blocks that are shown while it runs.
_QUEUES, _BLOCKS = 13, 3


class Progress:
    """Progress of the demo: the ring and the blocks, live, on a terminal; lines elsewhere."""

    def __init__(self, console: Console, store: str) -> None:
        self.console, self.store = console, store
        self.began = time.monotonic()
        self.doing = Spinner("dots")
        self._live: Live | None = None
        self._watcher: Watcher | None = None
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
        if self._watcher is not None:
            self._watcher.close()

    def tell(self, line: str) -> None:
        """Print the current step."""
        text = f"[dim]{time.monotonic() - self.began:5.0f} s[/]  {line}"
        if self._live is None:
            self.console.print(text, highlight=False)
            return
        if not line.endswith(PASSING):
            self._live.console.print(text, highlight=False)
        self.doing.update(text=f" {line} …")

    def _drawn(self) -> RenderableType:
        look = self._see()
        if look is None or not (look.queues or look.blocks):
            return self.doing
        width, height = self.console.size
        mark = mark_of(self.console.options)
        rows = max(min(_QUEUES, height - _BLOCKS - 8), 1)
        lines = [Text(), *queues(look, width, rows, mark), *blocks(look, width, _BLOCKS, mark)]
        return Group(*lines, Text(), self.doing)

    def _see(self) -> Look | None:
        """Return the state of the ring; the previous one while the store is missing or busy."""
        if time.monotonic() - self._looked_at < 0.5:
            return self._look
        self._looked_at = time.monotonic()
        with suppress(MessageQueueError):
            if self._watcher is None:
                self._watcher = Watcher(MessageQueue(self.store), limit=_QUEUES)
            self._look = self._watcher.look()
        return self._look


def show(out: Output, summary: Summary) -> None:
    """Print the summary."""
    out.remark("Served, files by block:")
    tenants = sorted(summary.tenants.items(), key=lambda pair: -pair[1]["files"])
    blocks = [f"block {number}>" for number in range(1, len(summary.blocks) + 1)]
    rows = [
        (tenant, *total["by_block"], total["files"], total["orders"], f"{total['cents'] / 100:,.2f}")
        for tenant, total in tenants
    ]
    out.table(("tenant", *blocks, "files>", "orders>", "turnover>"), rows)
    out.remark("Blocks, used of what they may cost:")
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
        weight = Weight(*kept["weight"])
        out.remark(f"Set aside: {kept['file']} at {kept['address']} weighs {weight}, more than a block can carry.")
    if summary.executed_by_hand:
        out.remark("A person executed it by hand, with the DAG overweight_by_hand.")
    elif summary.set_aside:
        kept = summary.set_aside[0]
        limit = ", ".join(f"{name} {value}" for name, value in by_hand_limit(kept["weight"]).items())
        out.remark("To execute it, trigger the DAG overweight_by_hand in the UI with")
        out.remark(f"  address {kept['address']}, {limit}")
    if summary.ok:
        out.remark("All is right: the data set holds what was dropped, to the cent.")
    for problem in summary.problems:
        out.line(f"Problem: {problem}")
