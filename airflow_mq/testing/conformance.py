"""Conformance: replay recorded traces of the message-queue pallet through the public queue.

    python -m airflow_mq.testing.conformance [--store URI] [--limit N] FILE…

Every field of every step is compared. It also tests other implementations of a store.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeAlias

from ..engine.queue import MessageQueue
from ..engine.queue.admin import insert_ring
from ..engine.queue.inspect.order import all_origins
from ..engine.queue.values import Report
from ..engine.rules.config import HEADER_SIZE, RingConfig
from ..engine.rules.errors import MessageQueueError
from ..engine.rules.events import ERRORS, NAMES, Event, Fate
from ..engine.rules.message import Address, Footprint
from ..engine.rules.page import PROCESSED, Page
from ..engine.rules.weight import Costs, Meter, Weight
from ..engine.store import open_store
from ..engine.store.rows import LATEST
from ..engine.store.store import Store
from .processor import RecordingProcessor, Script
from .scratch import scratch_store

#: Events of the pallet, under its names; further events of this package are not compared.
PALLET = {
    **{fate: NAMES[fate] for fate in (Fate.PROCESSED, Fate.DECLINED, *ERRORS)},
    Fate.SET_ASIDE: "OverweightEnqueued",
    Fate.PAGE_REMOVED: "PageReaped",
}
#: Probability of reading the footprint of a single origin beside those of all.
SINGLE = 0.3
#: Seconds to wait for a locked store.
BUSY = 10.0
NOTHING = Footprint(0, 0, 0, 0)


#: A recorded call and its observations, and a recorded run: its seed, the settings of its ring, and its steps.
Step: TypeAlias = "dict[str, Any]"
Run: TypeAlias = "dict[str, Any]"


class Difference(Exception):
    """First difference between a trace and its replay."""

    def __init__(self, step: int, do: object, field: str, expected: object, found: object) -> None:
        path, expected, found = _narrow(field, expected, found)
        text = f"{path}: expected {_show(expected)}\n    {'':>{len(path)}}  found    {_show(found)}"
        super().__init__(f"step {step}, {json.dumps(do)}\n    {text}")
        self.step, self.field = step, field


class Replay:
    """One recorded run, replayed on one ring."""

    def __init__(
        self,
        store: Store[object],
        name: str,
        run: Run,
        *,
        blocks: bool = False,
        sparse: random.Random | None = None,
    ) -> None:
        config = run["config"]
        self.run, self.blocks, self.sparse = run, blocks, sparse
        self.origins = [str(number) for number in range(config["origins"])]
        self.hooks: list[tuple[str, Footprint]] = []
        self.seq = 0
        self.chance = random.Random(run["seed"])  # noqa: S311 - which steps to look at more closely
        ring = RingConfig(
            heap_size=config["heap_size"],
            max_stale=config["max_stale"],
            order="rotation",
            service_weight=Weight(*config["service_weight"]) if config["service_weight"] else None,
            costs=Costs(**{step: Weight(*cost) for step, cost in config["costs"].items()}),
        )
        with store.writing() as unit:
            # Skip the integrity check: some runs have a ring whose weight pays for no message.
            insert_ring(unit, name, ring)
        self.queue = MessageQueue(store, name, listeners=[lambda *call: self.hooks.append(call)])
        # In sparse runs the sender does not listen, so that many calls are cut at once.
        self.sender = MessageQueue(store, name) if sparse else self.queue
        self.processor = RecordingProcessor(self.queue)

    def __call__(self) -> None:
        """Replay all steps; raise the first difference."""
        expected: dict[str, list[object]] = {"events": [], "queue_changed": []}
        found: dict[str, list[object]] = {"events": [], "queue_changed": []}
        last = len(self.run["steps"]) - 1
        for number, step in enumerate(self.run["steps"]):
            do = step["do"]
            self.processor.nested.clear()
            result = self._do(do)
            self._compare(number, step, "result", result)
            self._compare(number, step, "nested", [_nested(*call) for call in self.processor.nested])
            for name in expected:
                expected[name] += step[name]
            if self.sparse and number != last and self.sparse.random() < 0.8:
                continue
            if self.sparse:
                self.sender.session.tell_listeners()
                self.queue.session.tell_listeners()
            found["queue_changed"] += [_hook(*call) for call in self.hooks]
            self.hooks.clear()
            with one_moment(self.queue.store):
                found["events"] += self._events()
                for name in expected:
                    self._differ(number, do, name, expected[name], found[name])
                    expected[name], found[name] = [], []
                self._compare(number, step, "footprints", self._footprints())
                self._compare(number, step, "state", observe(self.queue))
            # Traces do not contain the check.
            if number == last or self.chance.random() < 0.1:
                self._differ(number, do, "check", [], list(map(str, self.queue.check())))

    def _compare(self, number: int, step: Step, field: str, found: object) -> None:
        self._differ(number, step["do"], field, step[field], found)

    @staticmethod
    def _differ(number: int, do: object, field: str, expected: object, found: object) -> None:
        if found != expected:
            raise Difference(number, do, field, expected, found)

    def _footprints(self) -> dict[str, object]:
        found = dict(self.queue.footprints(limit=len(self.origins) + 1))
        # Reading all at once is faster; sometimes a single one is read as well.
        if self.chance.random() < SINGLE:
            single = self.chance.choice(self.origins)
            found[single] = self.queue.footprint(single)
        return {origin: asdict(found.get(origin, NOTHING)) for origin in self.origins}

    def _events(self) -> list[dict[str, object]]:
        found = []
        for event in self.queue.inspect.events(after=self.seq):
            self.seq = event.seq
            if event.fate in PALLET:
                found.append(_event(event))
        return found

    def _do(self, do: Step) -> dict[str, object]:
        try:
            if do["op"] == "force_set_head":
                return self._force_set_head(do["origin"], do["limit"])
            return {"ok": getattr(self, f"_{do['op']}")(**{name: value for name, value in do.items() if name != "op"})}
        except MessageQueueError as error:
            name = type(error).__name__
            return {"err": "Other" if name == "Refused" else name}

    def _enqueue_message(self, origin: int, message: str) -> None:
        self.sender.enqueue_message(str(origin), message.encode())

    def _enqueue_messages(self, origin: int, messages: list[str]) -> None:
        self.sender.enqueue_messages(str(origin), [message.encode() for message in messages])

    def _service_queues(self, limit: list[int]) -> list[int]:
        if self.blocks and self._all_plain():
            return list(self._service_by_block(Weight(*limit)))
        return list(self.queue.service_queues(self.processor, Weight(*limit)).weight)

    def _all_plain(self) -> bool:
        if self.processor.yielding:
            return False
        waiting = (message for origin in self.origins for message in self.queue.inspect.peek(origin, limit=10_000))
        return all(Script.read(message.payload).is_plain for message in waiting)

    def _service_by_block(self, limit: Weight) -> Weight:
        block = self.queue.blocks.plan(limit=limit, weigher=self.processor.weigh)
        reports: list[Report] = []
        for batch in block.batches():
            reports += batch.answers([Script.read(payload).outcome() for payload in batch.payloads])
        self.queue.blocks.report(block, reports)
        return self.queue.blocks.settle(block).weight

    def _execute_overweight(self, variant: str, origin: int, page: int, index: int, limit: list[int]) -> list[int]:
        address = Address(str(origin), page, index)
        return list(
            self.queue.execute_overweight(address, self.processor, Weight(*limit), for_everything=variant == "service")
        )

    def _reap_page(self, origin: int, page: int) -> None:
        self.queue.reap_page(str(origin), page)

    def _pause(self, origin: int) -> None:
        self.queue.admin.pause(str(origin))

    def _resume(self, origin: int) -> None:
        self.queue.admin.resume(str(origin))

    def _start_yielding(self, origin: int) -> None:
        self.processor.yielding.add(str(origin))

    def _stop_yielding(self, origin: int | None = None) -> None:
        if origin is None:
            self.processor.yielding.clear()
        else:
            self.processor.yielding.discard(str(origin))

    def _sweep_queue(self, origin: int) -> None:
        self.queue.sweep_queue(str(origin))

    def _force_set_head(self, origin: int, limit: list[int]) -> dict[str, object]:
        meter = Meter(Weight(*limit))
        done = self.queue.admin.force_set_head(str(origin), meter)
        return {"ok": "cannot pay" if done is None else done, "weight": list(meter.consumed)}

    def _batches_footprints(self, origin: int, messages: list[str], max_ready_pages: int) -> dict[str, object]:
        payloads = [message.encode() for message in messages]
        return asdict(self.queue.batches_footprints(str(origin), payloads, max_ready_pages))


@contextmanager
def one_moment(store: Store[object]) -> Iterator[None]:
    """Read everything in one transaction. No other process writes, so this only saves transactions."""
    with store.reading() as unit:
        vars(store)["reading"] = lambda: nullcontext(unit)
        try:
            yield
        finally:
            del vars(store)["reading"]


def observe(queue: MessageQueue) -> dict[str, object]:
    """Return the complete state of a ring: its order, its books and their pages. Writes nothing."""
    books: dict[str, object] = {}
    with queue.session.snapshot() as (unit, working_set):
        origins = list(all_origins(unit, queue.session.ring_id))
        working_set.loader.inboxes.look_at(origins)
        for origin in origins:
            book = working_set.book(origin)
            working_set.pull_all(book)
        # All stored pages of any age, in one statement.
        stored = unit.pages.between(queue.session.ring_id, [(origin, 0, LATEST) for origin in origins], LATEST)
        list(working_set.loader.pages.keep(stored))
        for origin in origins:
            book = working_set.book(origin)
            pages = {index: page for (name, index), page in working_set.pages.items() if name == origin and page}
            if book.end:
                books[origin] = {
                    "begin": book.begin,
                    "end": book.end,
                    "count": book.count,
                    "ready": book.is_ready,
                    "message_count": book.message_count,
                    "size": book.size,
                    "pages": {str(index): _page(page) for index, page in sorted(pages.items())},
                }
    return {"ring": [int(origin) for origin in queue.inspect.ring_order(limit=1 << 30)], "books": books}


def _page(page: Page) -> dict[str, object]:
    return {
        "first": sum(page.lengths[: page.first_index]) + page.first_index * HEADER_SIZE,
        "first_index": page.first_index,
        "last": page.used - HEADER_SIZE - page.lengths[-1],
        "remaining": page.remaining,
        "remaining_size": page.remaining_size,
        "items": [[length, mark == PROCESSED] for length, mark in zip(page.lengths, page.marks, strict=True)],
    }


def _hook(origin: str, footprint: Footprint) -> dict[str, object]:
    return {"origin": int(origin), "footprint": asdict(footprint)}


def _nested(call: str, result: object) -> dict[str, object]:
    if isinstance(result, MessageQueueError):
        return {"call": call, "result": {"err": type(result).__name__}}
    assert isinstance(result, Weight)
    return {"call": call, "result": {"ok": list(result)}}


def _event(event: Event) -> dict[str, object]:
    plain: dict[str, object] = {"event": PALLET[event.fate], "origin": int(event.origin)}
    if event.fate is Fate.PAGE_REMOVED:
        return {**plain, "index": event.page}
    plain["id"] = event.id.hex() if event.id else None
    if event.fate is Fate.SET_ASIDE:
        return {**plain, "page_index": event.page, "message_index": event.index}
    if event.fate in ERRORS:
        return {**plain, "error": ERRORS[event.fate]}
    return {**plain, "success": event.success, "weight_used": list(event.weight or ())}


def _narrow(path: str, expected: object, found: object) -> tuple[str, object, object]:
    """Return the innermost place in which two observations differ."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for name in sorted({*expected, *found}, key=str):
            if expected.get(name) != found.get(name):
                return _narrow(f"{path}.{name}", expected.get(name), found.get(name))
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for place, (wanted, actual) in enumerate(zip(expected, found, strict=True)):
            if wanted != actual:
                return _narrow(f"{path}[{place}]", wanted, actual)
    return path, expected, found


def _show(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 400 else text[:397] + "..."


def read_runs(path: Path) -> Iterator[Run]:
    """Yield the runs of a trace file: JSON lines, plain or compressed."""
    openers: dict[str, Callable[..., IO[str]]] = {".gz": gzip.open, ".xz": lzma.open}
    with openers.get(path.suffix, open)(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def replay_files(
    files: Sequence[Path],
    *,
    store: str | None = None,
    first: int = 1,
    limit: int | None = None,
    blocks: bool = False,
    sparse: int | None = None,
    report: Callable[[str], object] = print,
) -> tuple[int, int]:
    """Replay runs of trace files on a temporary store; return the numbers of runs and of diverging runs."""
    total = diverging = 0
    with ExitStack() as stack:
        uri = stack.enter_context(scratch_store(store))
        # One for all runs: a statement is prepared once.
        opened = stack.enter_context(closing(open_store(uri, BUSY)))
        for path in files:
            for run in islice(read_runs(path), first - 1, None):
                if limit is not None and total >= limit:
                    break
                total += 1
                chance = random.Random(sparse + run["seed"]) if sparse is not None else None  # noqa: S311
                replay = Replay(opened, f"run-{total}", run, blocks=blocks, sparse=chance)
                try:
                    replay()
                except Difference as difference:
                    diverging += 1
                    report(f"{path.name}, seed {run['seed']}: {difference}")
    return total, diverging


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m airflow_mq.testing.conformance", description=__doc__.split("\n")[0] if __doc__ else None
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="traces: .jsonl, .jsonl.gz or .jsonl.xz")
    parser.add_argument(
        "--store", metavar="URI", help="replay in a scratch schema of this PostgreSQL (default: a scratch SQLite file)"
    )
    parser.add_argument("--first", type=int, default=1, metavar="K", help="begin with each file's K-th run")
    parser.add_argument("--limit", type=int, metavar="N", help="replay N runs only")
    parser.add_argument(
        "--blocks", action="store_true", help="plan, report and settle wherever the messages waiting allow it"
    )
    parser.add_argument(
        "--sparse", type=int, metavar="SEED", help="look only at random steps, so that many calls are cut at once"
    )
    given = parser.parse_args(arguments)
    began = time.monotonic()
    total, diverging = replay_files(
        given.files, store=given.store, first=given.first, limit=given.limit, blocks=given.blocks, sparse=given.sparse
    )
    print(f"{total} runs, {diverging} diverge", flush=True)
    print(f"({time.monotonic() - began:.1f} s)", file=sys.stderr)
    return 1 if diverging or not total else 0


if __name__ == "__main__":
    sys.exit(main())
