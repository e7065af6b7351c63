"""Responses of the page's routes, and decisions with their actors."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, insert
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

from airflow_mq import Message, MessageQueue, Weight, Yield
from airflow_mq.api import queues, runs
from airflow_mq.api.ring import WAITING
from airflow_mq.engine.queue.set_aside import SetAsides
from airflow_mq.engine.rules.charging import BY
from airflow_mq.engine.rules.errors import Busy, InFlight, InvalidInput
from airflow_mq.engine.store import parse, upgrade
from tests.airflow.conftest import connection_of
from tests.airflow.page.conftest import fill
from tests.airflow.page.routes import ROUTES
from tests.proofs.model.clock import SECOND, stopped_clock
from tests.store.waits import LIMIT, WAITS

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

Ask = Callable[..., Any]


def where(queue: MessageQueue) -> str:
    """Return the options with which a command line names a ring."""
    return f"--conn-id mq_page --ring {queue.ring}"


def of(queue: MessageQueue) -> str:
    return f"/api/v1/stores/mq_page/rings/{queue.ring}"


def aside(queue: MessageQueue, origin: str, count: int = 1) -> None:
    """Set messages of an origin aside."""
    queue.enqueue_messages(origin, [Message(b"x%d" % number, weight=Weight(5_000, 1)) for number in range(count)])
    queue.blocks.settle(queue.blocks.plan())


def test_the_overview_is_the_ring_from_its_head_on(ask: Ask, ring: MessageQueue) -> None:
    for origin in ("b", "a", "c"):
        ring.enqueue_messages(origin, [b"12345"] * 10)
    ring.admin.pause("c", "for a while")
    block = ring.blocks.plan(limit=Weight(1_000, 20))
    data = ask("viewer", "GET", f"{of(ring)}/overview").json()
    assert [one["origin"] for one in data["arcs"]] == ring.inspect.ring_order()
    assert (data["waiting_messages"], data["waiting_bytes"], data["queues"], data["exact"]) == (30, 150, 3, True)
    assert data["in_flight"] == block.messages == sum(one["in_flight"] for one in data["arcs"]) > 0
    assert data["due"] is None
    assert data["paused"] == 1 and [one["origin"] for one in data["arcs"] if one["paused"]] == ["c"]
    assert data["last_block"]["id"] == block.id and data["last_block"]["state"] == "planned"
    assert data["rest"] == {"queues": 0, "messages": 0, "size": 0}


def test_a_ring_whose_messages_are_all_delayed_is_not_empty(ask: Ask, ring: MessageQueue) -> None:
    ring.admin.change_ring(ordered=False, backoff=600)
    ring.enqueue_messages("acme", [b"1"])
    ring.service_queues(lambda delivery: Yield("their API is down"))

    overview = ask("viewer", "GET", f"{of(ring)}/overview").json()
    detail = ask("viewer", "GET", f"{of(ring)}/queue?origin=acme")

    assert overview["queues"] == 0 and datetime.fromisoformat(overview["due"]) > datetime.now(timezone.utc)
    assert detail.status_code == 200
    assert detail.json()["explain"]["sentence"].startswith("1 message of acme is not due before ")
    assert detail.json()["explain"]["remedies"][0]["command"] == f"airflow-mq queue resume acme {where(ring)}"


def test_undrawn_queues_are_summed(ask: Ask, ring: MessageQueue) -> None:
    ring.enqueue_messages((f"q{number:03}", b"12") for number in range(100))
    data = ask("viewer", "GET", f"{of(ring)}/overview").json()
    assert len(data["arcs"]) == 60 and data["rest"] == {"queues": 40, "messages": 40, "size": 80}


def test_overview_before_the_first_plan(ask: Ask, ring: MessageQueue) -> None:
    ring.enqueue_messages("acme", [b"12345"] * 2)
    data = ask("viewer", "GET", f"{of(ring)}/overview").json()
    assert (data["waiting_messages"], data["ready"], data["queues"]) == (2, 1, 1)
    assert [found["sentence"] for found in data["overdue"]] == ["No block has ever serviced this ring."]
    assert data["served"] == {"ever": False, "last": None, "server": None, "next": None, "several": False}
    row = ask("viewer", "GET", f"{of(ring)}/queues").json()["rows"][0]
    queue = ask("viewer", "GET", f"{of(ring)}/queue?origin=acme").json()
    assert row["why"] == queue["why"] == "No block has ever serviced this ring"
    assert queue["explain"]["sentence"].startswith("No block has ever serviced this ring. The first message of acme")


def test_overview_counts_set_aside_messages_apart(ask: Ask, ring: MessageQueue) -> None:
    aside(ring, "archive", 3)
    ring.enqueue_messages("acme", [b"12345"] * 2)
    ring.enqueue_messages("mixed", [Message(b"123", weight=Weight(5_000, 1)), Message(b"12345")])
    ring.blocks.settle(ring.blocks.plan(limit=Weight(1_000, 1_000)))

    data = ask("viewer", "GET", f"{of(ring)}/overview").json()

    assert (data["waiting_messages"], data["waiting_bytes"], data["set_aside"]) == (3, 15, 4)
    assert data["waiting_messages"] == ring.inspect.backlog().messages
    assert (data["ready"], data["queues"]) == (2, 3)
    assert {arc["origin"]: (arc["messages"], arc["size"]) for arc in data["arcs"]} == {
        "acme": (2, 10),
        "mixed": (1, 5),
    }
    assert data["rest"] == {"queues": 0, "messages": 0, "size": 0}


PAUSED_DAG = """
from airflow.sdk import DAG
from airflow.providers.standard.operators.empty import EmptyOperator

with DAG("page_first_steps", schedule=None, is_paused_upon_creation=True):
    EmptyOperator(task_id="plan")
"""


def test_no_pause_of_another_airflow_is_shown(ask: Ask, ring: MessageQueue, tmp_path: Path) -> None:
    known_to_airflow(tmp_path, PAUSED_DAG)
    ring.blocks.settle(ring.blocks.plan(server="DAG 'page_first_steps' of Airflow 'elsewhere', task 'plan'"))
    ring.enqueue_message("acme", b"x")

    assert ask("op", "GET", f"{of(ring)}/overview").json()["overdue"] == []


def test_an_invalid_id_of_the_airflow_breaks_no_view(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_AIRFLOW_MQ_INSTALLATION", "my airflow")
    monkeypatch.setattr(runs, "_OWN", [])
    for what in ("overview", "blocks"):
        assert ask("op", "GET", f"/api/v1/stores/mq_page/rings/full/{what}").status_code == 200


def test_paused_dag_is_named(ask: Ask, ring: MessageQueue, tmp_path: Path) -> None:
    known_to_airflow(tmp_path, PAUSED_DAG)
    ring.blocks.settle(ring.blocks.plan(server="DAG 'page_first_steps' of Airflow 'here', task 'plan'"))
    ring.enqueue_message("acme", b"x")

    data = ask("op", "GET", f"{of(ring)}/overview").json()

    (overdue,) = data["overdue"]
    sentence = overdue["sentence"]
    assert overdue["remedy"] == {"text": "", "command": "airflow dags unpause page_first_steps"}
    assert sentence.startswith("No block has been planned since ") and sentence.endswith(
        "DAG page_first_steps is paused."
    )
    (row,) = ask("op", "GET", f"{of(ring)}/queues").json()["rows"]
    queue = ask("op", "GET", f"{of(ring)}/queue?origin=acme").json()
    assert (row["state"], row["why"]) == ("overdue", "DAG page_first_steps is paused")
    assert "DAG page_first_steps is paused. The first message of acme" in queue["explain"]["sentence"]
    assert queue["explain"]["remedies"] == [overdue["remedy"]]


def test_last_and_next_block_of_a_ring(ask: Ask, ring: MessageQueue) -> None:
    ring.enqueue_message("acme", b"x")
    with stopped_clock() as clock:
        for minutes in (10, 5, 0):
            clock.now = int((time.time() - 60 * minutes - 30) * SECOND)
            ring.blocks.settle(ring.blocks.plan(server="DAG 'five' of Airflow 'here', task 'plan'"))

    served = ask("viewer", "GET", f"{of(ring)}/overview").json()["served"]

    last, due = (datetime.fromisoformat(served[name].replace("Z", "+00:00")) for name in ("last", "next"))
    assert 0 <= (datetime.now(timezone.utc) - last).total_seconds() - 30 < 60
    assert abs((due - last).total_seconds() - 300) < 1
    assert (served["ever"], served["server"], served["several"]) == (True, "DAG 'five', task 'plan'", False)


def test_state_of_each_queue(ask: Ask, ring: MessageQueue) -> None:
    ring.admin.change_ring(max_attempts=5, backoff=600.0)
    ring.enqueue_message("failing", b"x")
    ring.service_queues(lambda delivery: Yield("down"))
    aside(ring, "archive")
    ring.enqueue_message("claimed", b"x")
    ring.blocks.plan(lease=600)
    for origin in ("acme", "quiet"):
        ring.enqueue_message(origin, b"x")
    ring.admin.pause("quiet")

    rows = ask("viewer", "GET", f"{of(ring)}/queues").json()["rows"]

    assert {row["origin"]: row["state"] for row in rows} == {
        "acme": "turn", "archive": "set aside", "claimed": "in flight", "failing": "failed", "quiet": "paused",
    }  # fmt: skip


def test_forecast_names_the_weight_of_a_message_that_no_block_carries(ask: Ask, ring: MessageQueue) -> None:
    ring.enqueue_message("heavy", b"x", weight=Weight(900, 1))
    body = {"blocks": 1, "limit": {"time": 500, "size": 500}}
    (block,) = ask("viewer", "POST", f"{of(ring)}/dry-run", json=body).json()["blocks"]
    (left,) = block["left_out"]
    assert (left["origin"], left["reason"], left["needs"]) == ("heavy", "limit", {"time": 900, "size": 1})
    assert block["left_out_queues"] == 1
    for number in range(220):
        ring.enqueue_message(f"fair-{number}", b"x", weight=Weight(400, 1))
    (block,) = ask("viewer", "POST", f"{of(ring)}/dry-run", json=body).json()["blocks"]
    assert (len(block["left_out"]), block["left_out_queues"]) == (200, 220)


def test_commands_quote_the_names_that_senders_chose(ask: Ask, ring: MessageQueue) -> None:
    origin = "x'; touch pwned; echo `id`"
    ring.enqueue_message(origin, b"x")
    ring.admin.pause(origin)
    found = ask("viewer", "GET", f"{of(ring)}/queue?origin={quote(origin)}").json()["explain"]["remedies"]
    assert [shlex.split(one["command"]) for one in found] == [
        ["airflow-mq", "queue", "resume", origin, *where(ring).split()]
    ]


def test_the_dag_that_executes_messages_is_named(
    ask: Ask, page: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__AIRFLOW_MQ__OVERWEIGHT_DAG", "nowhere")
    me = ask("op", "GET", "/api/v1/me?conn_id=mq_page").json()
    assert me["execute_dag"] == {"dag_id": "nowhere", "exists": False, "paused": None}
    known_to_airflow(tmp_path, PAUSED_DAG)
    monkeypatch.setenv("AIRFLOW__AIRFLOW_MQ__OVERWEIGHT_DAG", "page_first_steps")
    me = ask("op", "GET", "/api/v1/me?conn_id=mq_page").json()
    assert me["execute_dag"] == {"dag_id": "page_first_steps", "exists": True, "paused": True}


def test_swept_messages_that_are_left_out_are_counted(ask: Ask, ring: MessageQueue) -> None:
    ring.enqueue_messages("acme", [b"x"] * 2)
    ring.sweep_queue("acme")
    data = ask("op", "POST", f"{of(ring)}/set-aside/requeue", json={"all": True, "why": "again"}).json()
    assert (data["done"], data["stayed"]) == (0, 0)
    assert data["excluded"] == ["2 swept messages left out: only a selection of reason 'swept' requeues those."]


def test_the_fairness_of_a_part_of_the_queues_is_marked(ask: Ask, ring: MessageQueue) -> None:
    def partial() -> bool:
        return bool(ask("viewer", "GET", f"{of(ring)}/fairness").json()["partial"])

    ring.enqueue_messages((f"q{number:03}", b"12") for number in range(WAITING - 1))
    ring.blocks.settle(ring.blocks.plan(limit=Weight(1, 1)))
    assert not partial()
    ring.enqueue_messages((f"r{number:03}", b"12") for number in range(10))
    ring.blocks.settle(ring.blocks.plan(limit=Weight(1, 1)))
    assert partial()


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_usage_is_summed_like_the_command_sums_it(
    ask: Ask, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    uri = request.getfixturevalue("pg_uri") if kind == "postgres" else f"sqlite:///{tmp_path / 'usage.db'}"
    monkeypatch.setenv("AIRFLOW_CONN_MQ_USAGE", connection_of(uri))
    upgrade(parse(uri))
    path = "/api/v1/stores/mq_usage/rings/default"
    assert ask("viewer", "GET", f"{path}/usage").json() == {
        "rows": [], "total": 0, "messages": 0, "charged": {"time": 0, "size": 0},
    }  # fmt: skip
    last, this = 1_793_448_000 * SECOND, 1_793_923_200 * SECOND  # 31 October and 6 November 2026
    with MessageQueue(uri) as queue, stopped_clock() as clock:
        for clock.now, weight in ((last, 7), (this, 5)):
            queue.enqueue_messages("acme/a", [b"12345"] * 2, weight=Weight(weight, 5))
            queue.enqueue_messages("acme/b", [b"12345"], weight=Weight(weight, 5))
            queue.enqueue_messages("bolt", [b"12345"], weight=Weight(weight * 2, 5))
            queue.service_queues(lambda delivery: None)

    def usage(**asked: str | int) -> Any:
        return ask("viewer", "GET", f"{path}/usage", params={"since": "2026-10-01", **asked}).json()

    found = usage()
    assert [(row["period"], row["name"], row["messages"], row["charged"]["time"]) for row in found["rows"]] == [
        ("2026-11-06", "acme/a", 2, 10), ("2026-11-06", "bolt", 1, 10), ("2026-11-06", "acme/b", 1, 5),
        ("2026-10-31", "acme/a", 2, 14), ("2026-10-31", "bolt", 1, 14), ("2026-10-31", "acme/b", 1, 7),
    ]  # fmt: skip
    assert (found["total"], found["messages"], found["charged"]) == (6, 8, {"time": 60, "size": 40})
    assert usage(limit=2) == {**found, "rows": found["rows"][:2]}
    months = usage(by="path", per="month", until="2026-11-01")["rows"]
    assert [(row["period"], row["name"], row["size"]) for row in months] == [
        ("2026-10", "acme", 15),
        ("2026-10", "bolt", 5),
    ]
    assert {row["name"] for row in usage(of="acme", since="2026-11-01")["rows"]} == {"acme/a", "acme/b"}
    with MessageQueue(uri) as queue:
        names = [sorted({row.name for row in queue.inspect.usage(by)}) for by in BY]
    assert [sorted({row["name"] for row in usage(by=by)["rows"]}) for by in BY] == names
    asked = {"since": "2026-10-01", "until": "2026-11-01", "by": "path"}
    text = ask("viewer", "GET", f"{path}/export/usage.csv", params=asked).text
    words = [word for name, value in asked.items() for word in (f"--{name}", value)]
    command = [sys.executable, "-m", "airflow_mq", "report", "usage", "--csv", *words, "--store", uri]
    assert text == subprocess.run(command, capture_output=True, check=True).stdout.decode()
    with MessageQueue(uri) as queue, stopped_clock() as clock:
        clock.now = this
        queue.admin.housekeep()
        closed = [{**one.plain(), "hash": one.hash.hex()} for one in queue.inspect.bill_headers()]
    assert ask("viewer", "GET", f"{path}/bills/headers").json() == {"headers": closed}
    assert [one["day"] for one in closed] == ["2026-10-31", *(f"2026-11-0{day}" for day in range(1, 6))]
    october = ask("viewer", "GET", f"{path}/bills/headers", params={"month": "2026-10-01"}).json()
    assert october == {"headers": closed[:1]}
    for wrong in ({"by": "tenant"}, {"per": "week"}, {"since": "soon"}, {"limit": 0}, {"of": "x" * 300}):
        assert ask("viewer", "GET", f"{path}/usage", params=wrong).status_code == 422, wrong
    monkeypatch.setattr("airflow_mq.api.usage.MOST_BUILT", 5)
    for what in ("usage", "export/usage.csv"):
        answer = ask("viewer", "GET", f"{path}/{what}", params={"since": "2026-10-01"})
        assert answer.status_code == 422 and "more than 5 rows" in answer.json()["detail"]


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_settings_are_changed_as_the_command_changes_them(
    ask: Ask, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    uri = request.getfixturevalue("pg_uri") if kind == "postgres" else f"sqlite:///{tmp_path / 'settings.db'}"
    monkeypatch.setenv("AIRFLOW_CONN_MQ_SETTINGS", connection_of(uri))
    upgrade(parse(uri))
    path = "/api/v1/stores/mq_settings/rings/default"
    none = dict.fromkeys(("least", "most", "rate", "rate_bytes", "burst", "burst_bytes", "quota"))

    def change(**settings: Any) -> Any:
        return ask("op", "POST", f"{path}/settings", json={"origin": "acme", **settings})

    def stored() -> Any:
        return ask("viewer", "GET", f"{path}/settings?origin=acme").json()

    assert stored() == {"share": 1, **none}
    typed = {
        "share": 3, "least": "10s/1MB", "most": "1min/64MiB", "rate": "2h/day", "rate_bytes": "50GiB/day", "burst": "30min",
        "burst_bytes": "5GiB", "quota": "10KiB",
    }  # fmt: skip
    assert change(**typed).json() == stored() == typed
    # An omitted setting stays, and a form that sends what it read changes nothing.
    assert change(**typed).json() == change(rate="120m/day").json() == typed
    assert change(burst=None, quota=None, share=None).json() == {**typed, "burst": None, "quota": None, "share": 1}
    refused = change(burst_bytes="1GiB", rate_bytes=None)
    assert refused.status_code == 422 and refused.json()["detail"].startswith("burst_bytes needs a rate_bytes")
    assert change(least="2min/1MB").json()["detail"].startswith("an origin cannot be promised")
    wrong = {
        "rate": "2x/day",
        "rate_bytes": "2h/day",
        "burst": "30m/day",
        "burst_bytes": "0B",
        "quota": "much",
        "least": "1",
    }
    refused = change(**wrong, share=0, most="5m/500MB")
    assert refused.status_code == 422 and refused.json()["fields"].keys() == {*wrong, "share"}
    # The texts of the command, which reads settings by the same rules.
    with MessageQueue(uri) as queue:
        for name, text in wrong.items():
            with pytest.raises(InvalidInput) as error:
                queue.admin.set_origin("acme", **{name: text})
            assert refused.json()["fields"][name] == str(error.value)
    assert change(rate="x" * 101).status_code == change(colour="red").status_code == 422
    assert stored() == {**typed, "burst": None, "quota": None, "share": 1}
    with MessageQueue(uri) as queue:
        queue.admin.change_ring(paths=True)
        assert change(quota="1000B").json()["quota"] == "1kB"
        queue.enqueue_messages("acme/orders", [b"x" * 250] * 3)
    (quota,) = ask("viewer", "GET", f"{path}/queue?origin=acme/orders").json()["quotas"]
    assert quota == {"path": "acme", "quota": 1_000, "stored": 750, "part": 0.75}


@pytest.mark.parametrize("sort", ["origin", "messages", "bytes", "oldest", "received"])
def test_the_table_is_turned_page_by_page(ask: Ask, ring: MessageQueue, sort: str) -> None:
    counts = {f"q{number:02}": (number * 7) % 23 + 1 for number in range(23)}
    ring.enqueue_messages((origin, b"x") for origin, count in counts.items() for _ in range(count))
    seen, after = [], ""
    while True:
        data = ask("viewer", "GET", f"{of(ring)}/queues", params={"sort": sort, "limit": 5, "after": after}).json()
        seen += [(row["origin"], row["messages"]) for row in data["rows"]]
        after = data["next"]
        if after is None:
            break
    assert dict(seen) == counts and len(seen) == len(counts)
    if sort == "origin":
        assert seen == sorted(seen)
    if sort in ("messages", "bytes"):
        assert [count for _, count in seen] == sorted(counts.values(), reverse=True)
    assert ask("viewer", "GET", f"{of(ring)}/queues?search=Q1&limit=3").json()["total"] == 10
    assert len(ask("viewer", "GET", f"{of(ring)}/queues?prefix=q2").json()["rows"]) == 3


def test_rates_and_shares_are_those_of_the_latest_blocks(ask: Ask, ring: MessageQueue) -> None:
    for origin in ("a", "b"):
        ring.enqueue_messages(origin, [b"x"] * 30)
    block = ring.blocks.plan(limit=Weight(1_000, 40))
    ring.blocks.report(block, [batch.answer() for batch in block.batches()])
    ring.blocks.settle(block)
    rows = ask("viewer", "GET", f"{of(ring)}/queues").json()["rows"]
    taken = {entry.origin: entry.messages for page in ring.inspect.ledger() for entry in page.entries}
    figures = {figure.origin: figure for figure in ring.inspect.fairness().origins}
    assert sum(taken.values()) == block.messages > 0
    for row in rows:
        assert row["out_rate"] == pytest.approx(taken[row["origin"]] / 10)
        assert (row["promised"], row["received"]) == (figures[row["origin"]].promised, figures[row["origin"]].received)
    # Nothing changes the ring afterwards.
    now = ring.inspect.servicing().now
    for minutes, count in ((0, block.messages), (11, 0)):
        recent = queues._read_recent("mq_page", ring, now + timedelta(minutes=minutes))
        assert sum(recent.messages.values()) == count


@pytest.mark.parametrize("after", ["x", "WyJvcmlnaW4iLCAxXQ==", "W10=", "%%%", "bnVsbA==", "\ud83d"])
def test_a_cursor_that_is_none_is_refused(ask: Ask, ring: MessageQueue, after: str) -> None:
    assert (
        ask("viewer", "GET", f"{of(ring)}/queues", params={"after": after.encode("utf-8", "replace")}).status_code
        == 422
    )


def test_queue_shows_pages_and_reason(ask: Ask, ring: MessageQueue) -> None:
    ring.enqueue_messages("acme", [b"x" * 100] * 50)
    ring.admin.set_origin("acme", share=3)
    aside(ring, "acme")
    data = ask("viewer", "GET", f"{of(ring)}/queue?origin=acme").json()
    assert data["settings"]["share"] == data["share"] == 3
    assert data["messages"] == ring.footprint("acme").count and data["pages"][0]["state"] == "head"
    # What no page holds yet comes on top.
    assert 0 < sum(page["messages"] for page in data["pages"]) <= data["messages"]
    sentence = ring.inspect.explain("acme", ahead=20).sentence
    assert data["explain"]["sentence"] == sentence[0].upper() + sentence[1:]
    assert ask("viewer", "GET", f"{of(ring)}/queue?origin=missing").status_code == 404


def test_limits_of_an_empty_queue_and_of_a_group_are_shown(ask: Ask, ring: MessageQueue) -> None:
    ring.admin.change_ring(paths=True)
    ring.admin.set_origin("group", rate="2h/day", quota="1KiB")
    ring.enqueue_message("group/orders", b"x" * 512)

    group, idle = (ask("viewer", "GET", f"{of(ring)}/queue?origin={one}").json() for one in ("group", "group/idle"))

    assert [one["path"] for one in group["budgets"]] == [one["path"] for one in idle["budgets"]] == ["group"]
    assert [(one["path"], one["stored"]) for one in group["quotas"]] == [("group", 512)]
    assert (group["messages"], group["explain"]["sentence"].partition(".")[0]) == (0, "group has no messages")


def test_the_page_names_the_dags_and_the_limit_that_blocks_had(ask: Ask, ring: MessageQueue) -> None:
    # The message has to fit the ring: what no block of it carries is set aside, and nothing is stuck then.
    ring.admin.change_ring(service_weight=Weight(600_000, 1 << 20))
    ring.enqueue_message("acme", b"heavy", weight=Weight(70_000, 1))
    ring.enqueue_message("zebra", b"x")
    ring.blocks.release(
        ring.blocks.plan(
            limit=Weight(60_000, 1 << 20), server="DAG 'orders' of Airflow 'here', task 'plan'", origins=["acme"]
        )
    )

    acme, zebra = (ask("viewer", "GET", f"{of(ring)}/queue?origin={one}").json() for one in ("acme", "zebra"))
    (block,) = ask("viewer", "POST", f"{of(ring)}/dry-run", json={}).json()["blocks"]

    assert acme["explain"]["reason"] == "stuck" and "blocks of DAG 'orders', task 'plan'" in acme["explain"]["sentence"]
    assert (zebra["why"], zebra["explain"]["reason"]) == (
        "No DAG that services this ring takes this origin",
        "unserved",
    )
    (left,) = (one for one in block["left_out"] if one["origin"] == "acme")
    assert (left["reason"], left["needs"]) == ("limit", {"time": 70_000, "size": 1})
    assert (block["limit"], block["server"]) == ({"time": 60_000, "size": 1 << 20}, "DAG 'orders', task 'plan'")


@pytest.mark.parametrize("name", WAITS)
def test_queues_have_the_state_and_the_reason_that_commands_print(
    ask: Ask, store_uri: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = WAITS[name]
    monkeypatch.setenv("AIRFLOW_CONN_MQ_WAITS", connection_of(store_uri))
    upgrade(parse(store_uri))
    with MessageQueue(store_uri) as queue:
        queue.admin.change_ring(service_weight=LIMIT)
        waits.build(queue)

    path = "/api/v1/stores/mq_waits/rings/default"
    rows = ask("viewer", "GET", f"{path}/queues").json()["rows"]
    found = ask("viewer", "GET", f"{path}/queue?origin={quote(waits.origin, safe='')}").json()

    (row,) = (row for row in rows if row["origin"] == waits.origin and row["priority"] == "regular")
    for one in (row, found):
        assert one["state"] == waits.state and one["why"].startswith(waits.why)
    assert found["explain"]["reason"] == waits.reason


def test_messages_are_looked_at_and_not_touched(ask: Ask, ring: MessageQueue) -> None:
    ring.enqueue_message("acme", b'{"a": [1, 2]}', headers={"Content-Type": "application/json", "key": "secret"})
    (data,) = ask("op", "GET", f"{of(ring)}/messages?origin=acme").json()["rows"]
    assert data["payload"]["json"] == {"a": [1, 2]} and bytes.fromhex(data["payload"]["hex"]) == b'{"a": [1, 2]}'
    assert data["headers"] == {"Content-Type": "application/json", "key": "…"}
    assert data["state"] == "waiting" and data["attempts"] == 0


def test_a_completed_token_is_not_shown_as_a_block_that_was_not_settled(ask: Ask, ring: MessageQueue) -> None:
    ring.enqueue_message("acme", b"1")
    token = ring.leases.next()
    assert token is not None
    states = [ask("viewer", "GET", f"{of(ring)}/blocks").json()["rows"][0]["state"]]
    ring.commands(ring.store).complete(token).execute()
    states.append(ask("viewer", "GET", f"{of(ring)}/blocks").json()["rows"][0]["state"])
    ring.blocks.release_dead()
    states.append(ask("viewer", "GET", f"{of(ring)}/blocks").json()["rows"][0]["state"])
    assert states == ["planned", "closed", "released"]


def test_blocks_keep_their_figures(ask: Ask, ring: MessageQueue) -> None:
    ring.enqueue_messages((f"q{number:02}", b"x" * 10) for number in range(30))
    block = ring.blocks.plan("here:orders/manual__2026-01-01T00:00:00+00:00/plan")
    ring.blocks.report(block, [batch.answer() for batch in block.batches()])
    ring.blocks.settle(block)
    (data,) = ask("viewer", "GET", f"{of(ring)}/blocks").json()["rows"]
    assert (data["state"], data["messages"], data["result"]["processed"]) == ("settled", 30, 30)
    assert len(data["by_queue"]) == 21 and data["by_queue"][-1]["origin"] is None
    assert sum(one["messages"] for one in data["by_queue"]) == 30
    assert data["run"]["url"] == "/dags/orders/runs/manual__2026-01-01T00%3A00%3A00%2B00%3A00"
    for _ in range(3):
        ring.blocks.settle(ring.blocks.plan())
    first = ask("viewer", "GET", f"{of(ring)}/blocks?limit=3").json()
    then = ask("viewer", "GET", f"{of(ring)}/blocks?limit=3&before={first['next']}").json()
    assert [one["id"] for one in then["rows"]] == [block.id] and then["next"] is None
    all_of_them = ask("viewer", "GET", f"{of(ring)}/blocks?limit=4").json()
    assert len(all_of_them["rows"]) == 4 and all_of_them["next"] is None


def test_a_dry_run_is_what_the_queue_foresees_and_changes_nothing(ask: Ask, ring: MessageQueue) -> None:
    ring.enqueue_messages((origin, b"x" * 100) for origin in ("a", "b") for _ in range(20))
    body = {"limit": {"time": 1_000, "size": 1_000}, "shares": {"a": 4}, "blocks": 3}
    data = ask("viewer", "POST", f"{of(ring)}/dry-run", json=body).json()["blocks"]
    foreseen = ring.inspect.forecast(3, limit=Weight(1_000, 1_000), shares={"a": 4})
    assert [one["messages"] for one in data] == [one.messages for one in foreseen]
    assert {one["origin"]: one["messages"] for one in data[0]["by_queue"]} == {
        one.origin: one.messages for one in foreseen[0].queues if one.messages
    }
    assert sum(one["share"] for one in data[0]["by_queue"]) == pytest.approx(1)
    assert ring.blocks.list() == []


def test_events_come_latest_first(ask: Ask, ring: MessageQueue) -> None:
    ring.enqueue_messages((f"q{number % 3}", b"x%d" % number) for number in range(30))
    block = ring.blocks.plan()
    ring.blocks.report(block, [batch.answer() for batch in block.batches()])
    ring.blocks.settle(block)
    seen, after = [], ""
    while True:
        data = ask("viewer", "GET", f"{of(ring)}/events", params={"limit": 7, "after": after}).json()
        seen += [(row["seq"], row["origin"], row["address"]) for row in data["rows"]]
        after = data["next"]
        if after is None:
            break
    known = [(str(event.seq), event.origin, str(event.address)) for event in ring.inspect.events()]
    assert seen == known[::-1]
    only = ask("viewer", "GET", f"{of(ring)}/events?origin=q1&kind=Processed").json()["rows"]
    assert len(only) == 10 and {row["origin"] for row in only} == {"q1"}
    assert ask("viewer", "GET", f"{of(ring)}/events?kind=Discarded").json() == {"rows": [], "next": None}
    assert ask("viewer", "GET", f"{of(ring)}/events?kind=Nonsense").status_code == 422


def test_every_kind_of_event_can_be_asked_for() -> None:
    from typing import get_args

    from airflow_mq.api.messages import Kind
    from airflow_mq.api.set_aside import Filtered, Reason
    from airflow_mq.engine.rules.events import NAMES
    from airflow_mq.engine.rules.filters import FILTERS
    from airflow_mq.engine.rules.judging import REASONS

    assert set(get_args(Kind)) == set(NAMES.values())
    assert get_args(Reason) == REASONS and Filtered.model_fields.keys() <= FILTERS.keys()


# Decisions.


def test_discard_records_actor_and_reason(ask: Ask, ring: MessageQueue) -> None:
    aside(ring, "acme", 3)
    rows = ask("viewer", "GET", f"{of(ring)}/set-aside?limit=2").json()
    assert len(rows["rows"]) == 2 and rows["total"] == 3 and rows["next"]
    chosen = ask("viewer", "GET", f"{of(ring)}/set-aside?reason=overweight").json()
    assert len(chosen["rows"]) == 3 and chosen["total"] == 3
    assert ask("viewer", "GET", f"{of(ring)}/set-aside?reason=size").json()["total"] == 0
    last = ask("viewer", "GET", f"{of(ring)}/set-aside", params={"after": rows["next"]}).json()
    assert len(last["rows"]) == 1 and last["next"] is None
    addresses = [row["address"] for row in rows["rows"]]
    gone = "acme:7:7"
    body = {"addresses": [*addresses, gone], "why": "no longer needed"}
    data = ask("op", "POST", f"{of(ring)}/set-aside/discard", json=body).json()
    assert data["done"] == 2 and [one["address"] for one in data["refused"]] == [gone]
    assert {(event.actor, event.why) for event in ring.inspect.events(name="Discarded")} == {("op", "no longer needed")}
    assert len(ring.set_aside.list()) == 1


@pytest.mark.parametrize("decision", ["requeue", "discard"])
def test_many_decisions_take_few_transactions(
    ask: Ask, ring: MessageQueue, monkeypatch: pytest.MonkeyPatch, decision: str
) -> None:
    aside(ring, "acme", 64)
    addresses = [str(message.address) for message in ring.set_aside.list()]
    ring.admin.change_ring(service_weight=Weight(10_000, 1_000))
    decide, calls = getattr(SetAsides, decision), []

    def counted(*args: Any, **how: Any) -> Any:
        calls.append(args)
        return decide(*args, **how)

    monkeypatch.setattr(SetAsides, decision, counted)
    for some, gone, most in ((addresses[:32], [], 1), (addresses[32:], ["acme:70:0"], 13), ([], addresses[:1], 1)):
        body = {"addresses": [*some, *gone, *some[:1]], "why": "larger blocks"}
        data = ask("op", "POST", f"{of(ring)}/set-aside/{decision}", json=body).json()
        assert (data["done"], data["stayed"]) == (len(some), len(gone))
        assert [one["address"] for one in data["refused"]] == gone and len(calls) <= most
        calls.clear()
    assert ring.set_aside.list() == []


@pytest.mark.parametrize(("error", "calls"), [(Busy, 1), (InFlight, 7)])
def test_decisions_wait_once_for_a_ring_in_use(
    ask: Ask, ring: MessageQueue, monkeypatch: pytest.MonkeyPatch, error: type[Busy], calls: int
) -> None:
    """A block in flight refuses only its own messages."""
    made: list[Any] = []

    def refuse(self: SetAsides, addresses: Any, *args: Any) -> None:
        made.append(addresses)
        raise error("serviced by another task")

    monkeypatch.setattr(SetAsides, "discard", refuse)
    body = {"addresses": [f"acme:0:{number}" for number in range(4)], "why": "old"}
    data = ask("op", "POST", f"{of(ring)}/set-aside/discard", json=body).json()
    assert len(made) == calls and (data["done"], data["stayed"]) == (0, 4)
    assert {one["why"] for one in data["refused"]} == {"serviced by another task"}


def test_a_request_that_is_too_slow_names_its_decisions(
    ask: Ask, ring: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    aside(ring, "acme", 1)
    decide = SetAsides.discard

    def last(self: Any, *args: Any) -> int:
        count = decide(self, *args)
        self.store.probe.until = 0.0
        return count

    monkeypatch.setattr(SetAsides, "discard", last)
    body = {"addresses": [str(ring.set_aside.list()[0].address), "acme:70:0"], "why": "old"}
    answer = ask("op", "POST", f"{of(ring)}/set-aside/discard", json=body)
    assert answer.status_code == 503 and "decisions that it made before then stand" in answer.json()["detail"]
    assert ring.set_aside.list() == []


def test_requeue_moves_messages_that_fit(ask: Ask, ring: MessageQueue) -> None:
    aside(ring, "acme", 3)
    row = ask("viewer", "GET", f"{of(ring)}/set-aside").json()["rows"][0]
    assert row["stays"].startswith("it weighs 5 s · 1 B, more than the ")
    one = ask("viewer", "GET", f"{of(ring)}/set-aside").json()["rows"][0]["address"]
    stays = ask("admin", "POST", f"{of(ring)}/set-aside/requeue", json={"addresses": [one]}).json()
    assert stays["done"] == 0 and stays["refused"][0]["why"]
    ring.admin.change_ring(service_weight=Weight(10_000, 1_000))
    assert ask("viewer", "GET", f"{of(ring)}/set-aside").json()["rows"][0]["stays"] == ""
    other = {"reason": "size", "why": "larger blocks"}
    assert ask("admin", "POST", f"{of(ring)}/set-aside/requeue", json=other).json()["done"] == 0
    body = {"all": True, "why": "larger blocks"}
    assert ask("admin", "POST", f"{of(ring)}/set-aside/requeue", json=body).json()["done"] == 3
    assert ring.set_aside.list() == [] and {event.actor for event in ring.inspect.events(name="Requeued")} == {"admin"}
    aside(ring, "acme", 1)
    assert ask("admin", "POST", f"{of(ring)}/set-aside/requeue", json={"addresses": []}).json()["done"] == 0
    beside: list[dict[str, Any]] = [
        {"addresses": [], "all": True},
        {"addresses": [], "error": "KeyError"},
        {"all": True, "reason": "size"},
    ]
    for nonsense in ({}, {"all": True, "addresses": [one]}, *beside):
        assert ask("admin", "POST", f"{of(ring)}/set-aside/requeue", json=nonsense).status_code == 422


def test_all_that_an_error_set_aside_goes_back(ask: Ask, ring: MessageQueue) -> None:
    ring.admin.change_ring(max_attempts=1)
    ring.enqueue_message("acme", b"x")
    ring.service_queues(lambda delivery: Yield("KeyError"))
    ring.enqueue_message("globex", b"y")
    ring.service_queues(lambda delivery: Yield("TimeoutError"))
    data = ask("viewer", "GET", f"{of(ring)}/set-aside").json()
    assert [one["error"] for one in data["rows"]] == ["KeyError", "TimeoutError"]
    assert {one["stays"] for one in data["rows"]} == {"it was tried 1 time, and 1 is allowed"}
    for error, count in (("KeyErr", 1), ("ValueError", 0)):
        data = ask("viewer", "GET", f"{of(ring)}/set-aside?error={error}&limit=1").json()
        assert (data["total"], len(data["rows"])) == (count, count)
    assert ask("viewer", "GET", f"{of(ring)}/set-aside?error=KeyError&reason=size").status_code == 422
    for error, judged in (("ValueError", 0), ("KeyError", 1)):
        data = ask("op", "POST", f"{of(ring)}/set-aside/requeue", json={"error": error, "why": "fixed"}).json()
        assert (data["done"], data["stayed"]) == (judged, 0)
    assert [one.attempts for one in ring.inspect.peek("acme")] == [0]


def test_pause_records_actor_and_end(ask: Ask, ring: MessageQueue) -> None:
    ring.enqueue_message("acme", b"x")
    body = {"origin": "acme", "reason": "their receiver is down", "until": "2099-01-01T00:00:00+01:00"}
    assert ask("op", "POST", f"{of(ring)}/pause", json=body).status_code == 200
    (paused,) = ring.admin.paused()
    assert (paused.origin, paused.actor, paused.reason) == ("acme", "op", "their receiver is down")
    (row,) = ask("viewer", "GET", f"{of(ring)}/queues").json()["rows"]
    assert row["paused"]["actor"] == "op" and row["paused"]["until"] == "2098-12-31T23:00:00Z"
    assert row["why"] == "Paused: their receiver is down"
    assert ask("op", "POST", f"{of(ring)}/resume", json={"origin": "acme"}).json()["was_paused"] is True
    assert ring.admin.paused() == []
    assert ask("op", "POST", f"{of(ring)}/pause", json={**body, "until": "2099-01-01"}).status_code == 422
    assert ask("op", "POST", f"{of(ring)}/pause", json={"origin": "acme", "below": True}).status_code == 422


def test_check_lists_violations(ask: Ask, ring: MessageQueue) -> None:
    ring.enqueue_message("acme", b"x")
    data = ask("op", "POST", f"{of(ring)}/check", json={}).json()
    assert data["violations"] == [] and data["took_seconds"] >= 0


# Execution by hand.

DAG = """
from airflow.sdk import DAG, Param
from airflow.providers.standard.operators.empty import EmptyOperator

FORM = {"address": Param(type="string", pattern="^.+:[0-9]+:[0-9]+$"), "limit": Param("1ms/1B", type="string"),
        "connection": Param("c", type="string"), "ring": Param("", type="string")}
with DAG("page_by_hand", schedule=None, params=FORM):
    EmptyOperator(task_id="execute")
"""


def test_execution_runs_as_the_signed_in_user(
    ask: Ask, ring: MessageQueue, page: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_to_airflow(tmp_path, DAG)
    monkeypatch.setenv("AIRFLOW__AIRFLOW_MQ__OVERWEIGHT_DAG", "page_by_hand")
    aside(ring, "acme")
    (row,) = ask("viewer", "GET", f"{of(ring)}/set-aside").json()["rows"]
    body = {"address": row["address"], "note": "for the quarter"}
    assert ask("viewer", "POST", f"{of(ring)}/set-aside/execute", json=body).status_code == 403
    assert ask("user", "POST", f"{of(ring)}/set-aside/execute", json=body).status_code == 403
    data = ask("op", "POST", f"{of(ring)}/set-aside/execute", json=body).json()
    assert data["dag_id"] == "page_by_hand" and data["url"].startswith("/dags/page_by_hand/runs/manual__")
    headers = {"Authorization": f"Bearer {page.tokens['admin']}"}
    run = page.client.get(f"/api/v2/dags/page_by_hand/dagRuns/{data['run_id']}", headers=headers).json()
    assert run["triggering_user_name"] == "op" and run["run_type"] == "manual"
    assert run["conf"] == {
        "address": row["address"], "connection": "mq_page", "ring": ring.ring, "limit": "5s/1B",
    }  # fmt: skip
    assert ring.set_aside.list() != []


def test_an_address_is_its_text_in_every_decision(ask: Ask, ring: MessageQueue) -> None:
    aside(ring, "acme")
    (row,) = ask("viewer", "GET", f"{of(ring)}/set-aside").json()["rows"]
    data = ask("op", "POST", f"{of(ring)}/set-aside/requeue", json={"addresses": [row["address"]]}).json()
    assert data["stayed"] == 1
    data = ask("op", "POST", f"{of(ring)}/set-aside/discard", json={"addresses": [row["address"]], "why": "old"})
    assert data.json()["done"] == 1
    parts = {"origin": "acme", "page": 0, "index": 3}
    for wrong in ("acme", "acme:x:1", "acme:1", "", 7, None, "acme:9999999999999:0", parts):
        for what in ("execute", "discard"):
            body = {"address": wrong} if what == "execute" else {"addresses": [wrong], "why": "x"}
            answer = ask("op", "POST", f"{of(ring)}/set-aside/{what}", json=body)
            assert answer.status_code == 422 and answer.json()["detail"], wrong


def test_unknown_dag_is_an_error(ask: Ask, ring: MessageQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__AIRFLOW_MQ__OVERWEIGHT_DAG", "no_such_dag")
    aside(ring, "acme")
    (row,) = ask("viewer", "GET", f"{of(ring)}/set-aside").json()["rows"]
    data = ask("admin", "POST", f"{of(ring)}/set-aside/execute", json={"address": row["address"]})
    assert data.status_code == 409 and "no_such_dag" in data.json()["detail"]


@pytest.mark.parametrize(
    "error",
    [OperationalError("INSERT INTO dag_run", {"conf": "acme"}, Exception("database is locked")), PoolTimeout("INSERT")],
)
def test_an_error_of_airflows_database_is_named(
    ask: Ask, ring: MessageQueue, monkeypatch: pytest.MonkeyPatch, error: SQLAlchemyError
) -> None:
    def trigger(dag_id: str, **_: object) -> None:
        raise error

    monkeypatch.setattr("airflow_mq.api.set_aside.trigger_dag", trigger)
    aside(ring, "acme")
    (row,) = ask("viewer", "GET", f"{of(ring)}/set-aside").json()["rows"]
    data = ask("admin", "POST", f"{of(ring)}/set-aside/execute", json={"address": row["address"]})
    assert data.status_code == 503 and "may or may not have been created" in data.json()["detail"]
    assert "INSERT" not in data.text
    # The run is there, and its DAG cannot be read.
    monkeypatch.setattr("airflow_mq.api.set_aside.trigger_dag", lambda *_, **__: SimpleNamespace(run_id="one"))
    monkeypatch.setattr("airflow_mq.api.runs.DagModel.get_current", trigger)
    data = ask("admin", "POST", f"{of(ring)}/set-aside/execute", json={"address": row["address"]})
    assert (data.status_code, data.json()["run_id"], data.json()["paused"]) == (200, "one", False)


@pytest.mark.parametrize("failing", ["_stored", "_connection"])
def test_a_connection_that_airflow_cannot_read_is_not_unknown(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """The page takes an unknown queue for an empty one."""
    from airflow.exceptions import AirflowNotFoundException

    def fail(*_: object) -> None:
        if failing == "_stored":
            raise OperationalError("SELECT conn_id", {}, Exception("database is locked"))
        # As Airflow reports a database or a secrets backend that failed.
        raise AirflowNotFoundException("The conn_id `mq_stored` is not defined")

    monkeypatch.setattr(f"airflow_mq.api.stores.{failing}", fail)
    answer = ask("viewer", "GET", "/api/v1/stores/mq_stored/rings/full/queue?origin=a")
    assert answer.status_code == 503 and "try again" in answer.json()["detail"] and "SELECT" not in answer.text
    if failing == "_stored":
        for path in ("/api/v1/stores", "/api/v1/me?conn_id=mq_stored"):
            answer = ask("viewer", "GET", path)
            assert answer.status_code == 503 and "SELECT" not in answer.text


def known_to_airflow(folder: Path, text: str) -> None:
    """Have Airflow's database know a DAG."""
    try:
        from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    except ImportError:  # Airflow 3.1
        from airflow.models.dagbag import DagBag, sync_bag_to_db
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    (folder / "by_hand.py").write_text(text)
    bag = DagBag(str(folder))
    assert not bag.import_errors, json.dumps(bag.import_errors)
    with create_session() as session:
        if session.get(DagBundleModel, "page") is None:
            session.add(DagBundleModel(name="page"))
    sync_bag_to_db(bag, "page", None)


@pytest.mark.postgres
def test_every_route_answers_of_a_postgresql_store(ask: Ask, pg_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(pg_uri)
    monkeypatch.setenv("AIRFLOW_CONN_MQ_SERVER", connection_of(pg_uri))
    for route in ROUTES:
        answer = ask("admin", route.method, route.path.replace("mq_page", "mq_server"), json=route.json)
        assert answer.status_code == route.status, (route, answer.text)
    data = {one["conn_id"]: one for one in ask("viewer", "GET", "/api/v1/stores").json()}["mq_server"]
    assert (data["kind"], data["error"]) == ("postgresql", None)
    overview = ask("viewer", "GET", "/api/v1/stores/mq_server/rings/full/overview").json()
    with MessageQueue(pg_uri, "full") as queue:
        assert overview["waiting_messages"] + overview["set_aside"] == len(queue) and overview["exact"]
        assert overview["waiting_messages"] == queue.inspect.backlog().messages


@pytest.mark.parametrize(
    ("said", "data"),
    [
        ({"id": "local-17", "url": "http://host:4040"}, {"id": "local-17", "url": "http://host:4040"}),
        ({"id": "app-1", "url": None}, {"id": "app-1", "url": None}),
        ({"id": "app-1", "url": "javascript:alert(1)"}, {"id": "app-1", "url": None}),
        ({"id": "<b>", "url": 'http://host/"onmouseover="'}, None),
        ({"id": ["app"], "url": "data:text/html,x"}, None),
        ('{"id": "local-17", "url": null}', {"id": "local-17", "url": None}),
        ('{"__classname__": "os.system", "__data__": "id"}', None),
        ("[" * 10_000, None),
        ("app-1", None),
        (None, None),
    ],
)
def test_only_valid_spark_jobs_are_returned(page: SimpleNamespace, said: Any, data: Any) -> None:
    from airflow_mq.api.runs import _job

    job = _job(said)
    assert (None if job is None else job.model_dump()) == data


def queue_of(ring: str) -> Any:
    """Return what a count reads of a queue."""
    store = SimpleNamespace(address=SimpleNamespace(place="place"))
    return SimpleNamespace(ring=ring, store=store, inspect=SimpleNamespace(ring_version=lambda: (1, 1)))


def test_a_connection_to_another_store_shows_the_figures_of_that_one(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, count in (("one", 2), ("two", 3)):
        uri = f"sqlite:///{tmp_path / name}.db"
        upgrade(parse(uri))
        with MessageQueue(uri) as queue:
            queue.admin.change_ring(service_weight=Weight(1_000, 1_000))
            for _ in range(2):
                queue.enqueue_messages(name, [b"x"] * count)
                queue.blocks.settle(queue.blocks.plan(limit=Weight(1_000, 1)))
        monkeypatch.setenv("AIRFLOW_CONN_MQ_MOVED", connection_of(uri))
        path = "/api/v1/stores/mq_moved/rings/default/queues?sort="
        for sort in ("messages", "received", "origin"):
            (row,) = ask("viewer", "GET", f"{path}{sort}").json()["rows"]
            assert (row["origin"], row["messages"]) == (name, 2 * count)
            assert row["received"] is not None


def test_each_run_shows_as_many_tasks_as_there_is_room_for(
    page: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_mq.api import runs

    monkeypatch.setattr(runs, "MOST_TASKS", 3)
    # Airflow's database with these tables only.
    engine, tables = create_engine("sqlite://", poolclass=StaticPool), (runs.TaskInstance, runs.XComModel)
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    rows = [
        {
            "id": uuid4(), "dag_id": "d", "run_id": run, "task_id": "t", "map_index": index, "pool": "p", "pool_slots": 1,
            "start_date": None if run == "3" and index < 9 else start + timedelta(hours=int(run), minutes=index),
        }
        for run, count in (("1", 12), ("2", 2), ("3", 12))
        for index in range(count)
    ]  # fmt: skip
    for table in tables:
        table.__table__.create(engine)
    with engine.begin() as connection:
        connection.execute(insert(runs.TaskInstance.__table__), rows)
    monkeypatch.setattr(runs, "create_session", lambda: Session(engine))
    user: Any = SimpleNamespace(may_see_tasks=lambda dag_id: True, may_see_xcoms=lambda dag_id: True)

    found = runs.tasks_of(user, [("d", run) for run in "123"])

    assert {run_id: [task.map_index for task in tasks] for (_, run_id), tasks in found.items()} == {
        "1": [0, 1, 2], "2": [0, 1], "3": [9, 10, 11],
    }  # fmt: skip


def test_no_count_begins_while_as_many_as_are_kept_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_mq.api import counting

    began: list[Any] = []
    running = {("store", "place", f"ring {number}"): counting.Count((0, 0)) for number in range(counting.MOST)}
    monkeypatch.setattr(counting, "_running", dict(running))
    monkeypatch.setattr(counting, "_counts", {})
    monkeypatch.setattr(counting, "Thread", lambda **how: SimpleNamespace(start=lambda: began.append(how["args"][0])))
    queue = queue_of("other")

    assert not counting.counted("store", queue, 0).done
    assert counting._running == running and not began
    del counting._running[next(iter(running))]
    assert not counting.counted("store", queue, 0).done
    assert began == [("store", "place", "other")] and len(counting._running) == counting.MOST


def test_only_the_latest_counts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_mq.api import counting

    now = time.monotonic()
    # The last one was asked for too long ago.
    ages = [*range(counting.MOST + 3), int(counting.IDLE) + 1]
    counts = {("store", "place", f"ring {age}"): counting.Count((1, 1), done=True, asked_at=now - age) for age in ages}
    monkeypatch.setattr(counting, "_counts", dict(counts))
    queue = queue_of("ring 9")

    assert counting.counted("store", queue, 0) is counts["store", "place", "ring 9"]
    assert [*counting._counts] == [*[*counts][: counting.MOST - 2], ("store", "place", "ring 9")]
