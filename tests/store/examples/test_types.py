"""Types for users of the package: the wheel declares them, and a user's program passes mypy --strict."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAM = """
from __future__ import annotations

from airflow_mq import BadFormat, Delivery, Done, MessageQueue, Outcome, Processor, Processors, RingConfig, Weight
from airflow_mq.engine.queue.typed import TypedQueue


def process(delivery: Delivery) -> Outcome:
    return Done(used=Weight(5, len(delivery.payload))) if delivery.payload.isascii() else BadFormat()


def serve(store: str) -> int:
    with MessageQueue(store) as queue:
        queue.admin.create_ring("night", RingConfig(order="rotation"))
        sent = queue.enqueue_messages("acme", [b"one", b"two"])
        words: TypedQueue[str] = queue.typed(str)
        words.enqueue("acme", "three")
        block = queue.blocks.plan(limit=Weight(1_000, 1 << 20))
        for batch in block.batches():
            queue.blocks.report(block, batch.answers([Done() for payload in batch.payloads]))
        settled = queue.blocks.settle(block)
        return sent.count + settled.processed + queue.service_queues(process).processed


RULES = Processors([Processor("orders", "shop.orders:process", origins=("acme/*",))])
wrong: str = RULES.route("acme/orders")
"""


@pytest.mark.slow
def test_a_program_of_a_user_is_checked_strictly(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--follow-imports=silent", "--config-file=", "program.py"],
        cwd=tmp_path, capture_output=True, text=True, env={"MYPYPATH": str(ROOT), "PATH": ""},
    )  # fmt: skip
    # Types are really seen: the one mistake at the end is found, and nothing else.
    assert [line.partition(": error: ")[2] for line in done.stdout.splitlines() if ": error: " in line] == [
        'Incompatible types in assignment (expression has type "Processor | None", variable has type "str")  [assignment]'
    ], done.stdout + done.stderr


def test_the_wheel_declares_its_types_and_contains_the_files_that_are_read_at_run_time(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    tracked = subprocess.run(["git", "ls-files", "airflow_mq"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    assert {"airflow_mq/py.typed", "airflow_mq/engine/store/sql/ring.sql"} <= names
    assert {name for name in tracked if name.endswith((".py", ".sql"))} <= names
    # And nothing else: of the page what is built, and who wrote what is in it.
    built = {f"airflow_mq/page/dist/{path.name}" for path in (ROOT / "airflow_mq" / "page" / "dist").iterdir()}
    assert "airflow_mq/page/dist/LICENSES.txt" in built
    others = {name for name in names if not name.endswith((".py", ".sql", "/py.typed")) and ".dist-info/" not in name}
    assert others == built and all(name.startswith("airflow_mq") for name in names)
