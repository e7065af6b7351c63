"""A processor that does not load: its messages go back, and other processors of the same job go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_mq import MessageQueue, Part, Processor, Processors
from airflow_mq.engine.rules.errors import InvalidInput, StoreMissing
from airflow_mq.spark import driver
from airflow_mq.spark.arguments import BLOCK, STORE, Arguments
from airflow_mq.spark.driver import Executor, OwnSpark, run_with_folder, run_with_store
from airflow_mq.spark.exchange import hand_over, take_back
from airflow_mq.spark.share import Reported, Task
from airflow_mq.spark.store_side import StoreChannel, reporting_failure

RULES = Processors(
    [Processor("broken", "no_such_module:process", origins=("acme",)), Processor("print", "builtins:print")]
)
PART = Part(name="all", processors=["broken", "print"], part=0, parts=1, messages=2, where="spark")


class Here(OwnSpark):
    """Runs the work of executors in this process."""

    width = 2

    def scatter(self, tasks: Sequence[Task], call: Executor) -> Iterable[Reported]:
        return list(call(tasks))


@pytest.fixture(params=["store", "folder"])
def run(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[MessageQueue, str, Part], object]:
    """Run a job as its program does, with both ways of the messages."""
    monkeypatch.setattr(driver, "spark_for", Here)

    def with_store(queue: MessageQueue, token: str, part: Part) -> object:
        monkeypatch.setenv(STORE, queue.store.address.uri)
        monkeypatch.setenv(BLOCK, token)
        return run_with_store(Arguments("", [], queue.ring), RULES, part)

    def with_folder(queue: MessageQueue, token: str, part: Part) -> object:
        folder = hand_over(queue, token, RULES, part, str(tmp_path / "exchange"))
        try:
            return run_with_folder(folder, RULES, part)
        finally:
            take_back(queue, token, folder)

    return with_store if request.param == "store" else with_folder


@pytest.mark.parametrize("names", [["broken", "print"], ["print", "broken"]])
def test_it_stops_no_other_processor_of_its_job(
    run: Callable[[MessageQueue, str, Part], object], make_ring: Callable[..., MessageQueue], names: list[str]
) -> None:
    queue = make_ring()
    queue.enqueue_messages([("acme", b"1"), ("birch", b"2")])
    block, part = queue.blocks.plan(reports_begin=True), Part(**{**PART, "processors": names})  # type: ignore[typeddict-item]
    with (
        pytest.raises(InvalidInput, match="cannot load function no_such_module:process"),
        reporting_failure(queue, block.token, RULES, part),
    ):
        run(queue, block.token, part)
    settled: Any = queue.blocks.settle(block)
    assert (settled.processed, settled.returned) == (1, 1)
    (event,) = queue.inspect.events(origin="acme")
    assert event.why.startswith("not tried: InvalidInput: cannot load function no_such_module:process")
    assert queue.footprint("birch").count == 0


def test_a_job_whose_executors_cannot_open_the_store_is_not_tried_again(
    make_ring: Callable[..., MessageQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process died: each further attempt would wait for the store again."""
    passes: list[bool] = []

    class Away(Here):
        alive = True

        def scatter(self, tasks: Sequence[Task], call: Executor) -> Iterable[Reported]:
            passes.append(call.careful)
            call.channel = StoreChannel("sqlite:////no/such/folder/store.db", "default", "")
            try:
                return super().scatter(tasks, call)
            except StoreMissing as error:
                raise RuntimeError(f"Job aborted due to stage failure:\nStoreMissing: {error}\n\tat x.y") from None

    monkeypatch.setattr(driver, "spark_for", Away)
    queue = make_ring()
    queue.enqueue_message("birch", b"2")
    block = queue.blocks.plan(reports_begin=True)
    monkeypatch.setenv(STORE, queue.store.address.uri)
    monkeypatch.setenv(BLOCK, block.token)
    part = Part(**{**PART, "processors": ["print"]})  # type: ignore[typeddict-item]
    with pytest.raises(RuntimeError, match="Executors need access to this store, or the block an `exchange`"):
        run_with_store(Arguments("", [], queue.ring), RULES, part)
    assert passes == [False]
