"""The orders example without Airflow and without Spark: what is dropped, converted, and verified."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from airflow_mq.examples import orders
from airflow_mq.testing.scratch import scratch_queue


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(orders.VARIABLE, str(tmp_path))
    return tmp_path


def run(*messages: tuple[str, bytes]) -> list[str]:
    """Return the outcomes of the processor."""
    import pyarrow as pa

    rows = [
        {"origin": origin, "priority": "regular", "page": 0, "item": n, "payload": data}
        for n, (origin, data) in enumerate(messages)
    ]
    (answer,) = orders.process([pa.RecordBatch.from_pylist(rows)])
    assert answer.column("item").to_pylist() == list(range(len(messages)))
    outcomes: list[str] = answer.column("outcome").to_pylist()
    return outcomes


def test_every_file_is_converted_once_however_often_it_is_processed(place: Path) -> None:
    manifest = orders.generate(place, loud_files=5, heavy_orders=2_000)
    messages = [(origin, message.payload) for origin, message in orders.new_messages(place)]
    assert len(messages) == manifest["files"]
    for _ in range(2):
        outcomes = run(*messages)
        assert sorted(set(outcomes)) == ["corrupt", "done"] and outcomes.count("corrupt") == 1
        assert messages[outcomes.index("corrupt")][0] == orders.BROKEN
        assert orders.verify(place, with_heavy=True) == []
    assert orders.verify(place, with_heavy=False) != []


def test_a_crash_between_two_moves_and_a_name_that_was_used_hold_no_other_file_up(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    manifest = orders.generate(place, loud_files=1, heavy_orders=10)
    moved, replace = [], Path.replace

    def crashes(path: Path, target: Path) -> None:
        if moved:
            raise KeyboardInterrupt
        moved.append(replace(path, target))

    with scratch_queue() as queue:
        monkeypatch.setattr(Path, "replace", crashes)
        with pytest.raises(KeyboardInterrupt):
            orders.enqueue_new_files(queue, place)
        monkeypatch.setattr(Path, "replace", replace)
        assert orders.enqueue_new_files(queue, place).count == 0
        # The file of the crash stays, is not sent again, and is converted from there (below).
        (left,) = (place / "drop").glob("*/*.csv")
        assert left == place / "drop" / moved[0].relative_to(place / "taken").with_suffix(".csv")
        assert len(queue) == manifest["files"]

        used = sorted((place / "taken" / "acme").glob("*.csv"))[0]
        chance = random.Random(1)
        orders._drop(place, chance, {"tenants": {}, "files": 0}, "acme", used.stem, 3)
        orders._drop(place, chance, {"tenants": {}, "files": 0}, "birch", "new", 3)
        caplog.clear()
        assert orders.enqueue_new_files(queue, place).count == 1
        assert f"left acme/{used.name} out: a file of this name was taken before" in caplog.text
        outcomes = run(*((origin, one.payload) for origin in ("acme", "birch") for one in queue.inspect.peek(origin)))
        assert set(outcomes) == {"done"} and (place / "orders" / "tenant=acme" / f"{left.stem}.parquet").exists()


def test_a_difference_is_reported(place: Path) -> None:
    orders.generate(place, loud_files=1, heavy_orders=10)
    run(*((origin, message.payload) for origin, message in orders.new_messages(place)))
    next((place / "orders" / "tenant=acme").iterdir()).unlink()
    (told,) = orders.verify(place, with_heavy=True)
    assert told.startswith("acme: ")


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        (b"not JSON", "bad"),
        (b"[1]", "bad"),
        ({"file": "acme/0.csv"}, "bad"),
        ({"file": "birch/0.csv", "sha256": "0"}, "unsupported"),
        ({"file": "acme/../birch/0.csv", "sha256": "0"}, "unsupported"),
        ({"file": "/etc/passwd", "sha256": "0"}, "unsupported"),
        ({"file": "acme/0.sum", "sha256": "0"}, "unsupported"),
        ({"file": "acme/0.csv", "sha256": "0"}, "corrupt"),
    ],
)
def test_a_tenant_names_its_own_files_and_no_others(place: Path, said: Any, outcome: str) -> None:
    for name in ("acme/0.csv", "acme/0.sum", "birch/0.csv"):
        (place / "drop" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "drop" / name).write_text("order\n1\n")
    payload = said if isinstance(said, bytes) else json.dumps(said).encode()
    assert run(("acme", payload)) == [outcome]
    assert not (place / "orders").exists()


def test_a_file_is_taken_once(place: Path) -> None:
    orders.generate(place, loud_files=3, heavy_orders=10)
    with scratch_queue() as queue:
        messages = list(orders.new_messages(place))
        queue.enqueue_messages(messages[:4])  # the sender died before it moved the files
        enqueued = orders.enqueue_new_files(queue, place)
        assert (enqueued.count, enqueued.repeated) == (len(messages) - 4, 4)
        assert orders.enqueue_new_files(queue, place).count == 0
