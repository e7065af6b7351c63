"""Terminal output of the demo: progress lines while it runs, and tables at the end."""

from __future__ import annotations

import time
from contextlib import suppress

from rich.box import SIMPLE
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from ...engine.queue import MessageQueue
from ...engine.rules.errors import MessageQueueError
from ...engine.rules.weight import Weight
from ..frame import blocks, mark_of, queues
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


def show(console: Console, summary: Summary) -> None:
    """Print the summary."""
    console.print(_tenants(summary))
    console.print(_blocks(summary))
    for failure in summary.failed:
        console.print(f"Corrupt: a file of {failure['tenant']}; discarded, with an event.", highlight=False)
    for kept in summary.set_aside:
        weight = Weight(*kept["weight"])
        text = f"Set aside: {kept['file']} at {kept['address']} weighs {weight}, more than a block can carry."
        console.print(text, highlight=False)
    if summary.executed_by_hand:
        console.print("A person executed it by hand, with the DAG overweight_by_hand.", highlight=False)
    elif summary.set_aside:
        kept = summary.set_aside[0]
        limit = ", ".join(f"{name} {value}" for name, value in by_hand_limit(kept["weight"]).items())
        console.print("To execute it, trigger the DAG [bold]overweight_by_hand[/] in the UI with", highlight=False)
        console.print(f"  address {kept['address']}, {limit}", highlight=False)
    if summary.ok:
        console.print("[green]All is right: the data set holds what was dropped, to the cent.[/]", highlight=False)
    for problem in summary.problems:
        console.print(f"[red]Problem:[/] {problem}", highlight=False)


def _tenants(summary: Summary) -> Table:
    table = Table(title="Served, files by block", title_justify="left", box=SIMPLE)
    table.add_column("tenant")
    for number in range(1, len(summary.blocks) + 1):
        table.add_column(f"block {number}", justify="right")
    for name in ("files", "orders", "turnover"):
        table.add_column(name, justify="right")
    for tenant, total in sorted(summary.tenants.items(), key=lambda pair: -pair[1]["files"]):
        served = [f"{count:,}" if count else "" for count in total["by_block"]]
        table.add_row(tenant, *served, f"{total['files']:,}", f"{total['orders']:,}", f"{total['cents'] / 100:,.2f}")
    return table


def _blocks(summary: Summary) -> Table:
    table = Table(title="Blocks, used of what they may cost", title_justify="left", box=SIMPLE)
    for name in ("block", "messages", "tenants", "time", "size", "took"):
        table.add_column(name, justify="left" if name == "block" else "right")
    for number, block in enumerate(summary.blocks, 1):
        table.add_row(
            str(number),
            f"{block.messages:,}",
            str(len(block.by_tenant)),
            f"{block.weight[0]:,} of {block.limit[0]:,} ms",
            f"{block.weight[1] / 1e6:.1f} of {block.limit[1] / 1e6:.1f} MB",
            f"{block.seconds:.0f} s",
        )
    return table
