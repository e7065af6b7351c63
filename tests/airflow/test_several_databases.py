"""A tenant moves to another database by the steps of docs/operations.md, with the page's own commands."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from airflow_mq import Delivery, Done, MessageQueue, Overweight, Weight
from airflow_mq.cli import main
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.operators.enqueue import EnqueueMessagesOperator
from tests.airflow.conftest import connection_of
from tests.airflow.stage import Airflow
from tests.store.examples.test_docs import ROOT, commands, examples

PAGE = ROOT / "docs" / "operations.md"
LIMIT = Weight(1_000, 1 << 20)


@pytest.fixture
def databases(request: pytest.FixtureRequest, stage_uri: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Two databases of one kind, by connection id."""
    with ExitStack() as stack:
        other = f"sqlite:///{tmp_path / 'two.db'}"
        if not stage_uri.startswith("sqlite"):
            other = stack.enter_context(request.getfixturevalue("postgres_server").database())
        upgrade(parse(other))
        yield {"mq_one": stage_uri, "mq_two": other}


@pytest.fixture
def send(monkeypatch: pytest.MonkeyPatch, databases: dict[str, str]) -> Callable[..., None]:
    """Send messages of the tenant as its tasks do, by the connection that the tenant has at the moment."""
    for conn_id, uri in databases.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", connection_of(uri))
    monkeypatch.setenv("AIRFLOW_CONN_MQ_ACME", connection_of(databases["mq_one"]))
    runs = Airflow()

    def send(*messages: object, run_id: str, origin: str = "acme", **options: object) -> None:
        operator = EnqueueMessagesOperator(
            task_id="send", mq_conn_id="mq_acme", origin=origin, messages=list(messages), **options
        )
        runs.run(run_id).execute(operator)

    return send


def serviced(queue: MessageQueue) -> list[bytes]:
    """Service all ready queues; return the payloads of the tenant in order."""
    found: list[Delivery] = []
    queue.service_queues(found.append, LIMIT)
    return [delivery.payload for delivery in found if delivery.origin == "acme"]


@pytest.mark.slow
def test_a_tenant_moves_by_the_steps_of_the_page(
    databases: dict[str, str], send: Callable[..., None], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    consoles = [example.text for example in examples(PAGE) if example.kind == "console" and "--conn-id" in example.text]
    steps = [step for text in consoles for step in commands(text)]
    (pause, _), (drained, empty), (resume, _) = steps

    def run(command: str) -> str:
        capsys.readouterr()
        assert main(shlex.split(command)[1:]) == 0
        return capsys.readouterr().out

    with MessageQueue(databases["mq_one"]) as one, MessageQueue(databases["mq_two"]) as two:
        send("1", "2", run_id="before")
        send("later", run_id="later", not_before=0.5)
        one.admin.change_ring(set_aside_above="block")
        block = one.blocks.plan(limit=LIMIT)

        run(pause)
        monkeypatch.setenv("AIRFLOW_CONN_MQ_ACME", connection_of(databases["mq_two"]))
        send("3", "4", run_id="after")
        send("of another tenant", run_id="other", origin="birch")

        # The new database services other tenants meanwhile, and the order of this one waits for the old database.
        assert serviced(two) == []
        assert two.footprint("acme").count == 2 and two.footprint("birch").count == 0

        # In flight, set aside, delayed: the tenant has not left before the last of them has ended.
        assert run(drained).strip() != empty.strip()
        (batch,) = block.batches()
        assert batch.payloads == [b"1", b"2"]
        one.blocks.report(block, batch.answers([Done(), Overweight(Weight(5_000, 1))]))
        one.blocks.settle(block)
        assert run(drained).strip() != empty.strip()
        (heavy,) = one.set_aside.list(origin="acme")
        one.execute_overweight(heavy.address, lambda delivery: None, Weight(10_000, 1 << 20))
        late: list[bytes] = []
        while run(drained).strip() != empty.strip():
            late += serviced(one)
        assert late == [b"later"]

        run(resume)
        assert serviced(two) == [b"3", b"4"]
        assert one.check() == two.check() == []

        # As the page warns: the new database does not know the keys of the old one.
        send("1", "2", run_id="before")
        assert two.footprint("acme").count == 2
