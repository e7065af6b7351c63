"""Checks of docs/metrics.md, the dashboard and the scaler against the code."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from airflow_mq import LinearWeigher, MessageQueue, Weight
from airflow_mq.engine.store import parse, upgrade
from airflow_mq.engine.store.roles import grant
from airflow_mq.observe.metrics import BLOCKS, COUNTER, METRICS, ORIGIN_BACKLOG, ORIGIN_FAIRNESS, TIMER, untagged

#: Metrics of one origin instead of the ring.
OF_ORIGINS = (*ORIGIN_BACKLOG, *ORIGIN_FAIRNESS)
DOCS = Path(__file__).parents[2] / "docs"


def prometheus_names() -> set[str]:
    """The names that Prometheus has of all metrics."""
    found = set()
    for metric in METRICS:
        name = "airflow_mq_" + metric.name.replace(".", "_")
        endings = {COUNTER: ("_total",), TIMER: ("_sum", "_count")}.get(metric.kind, ("",))
        found |= {name + ending for ending in endings}
    return found


def test_every_metric_is_documented_as_it_is() -> None:
    rows = re.findall(r"^\| `(\S+)` \| (\w+) \| ([\w ]+) \| (.+) \|$", (DOCS / "metrics.md").read_text(), re.MULTILINE)

    assert rows == [(metric.name, metric.kind, metric.unit, metric.meaning) for metric in METRICS]


def test_the_dashboard_shows_every_metric_and_no_other() -> None:
    board = json.loads((DOCS / "grafana" / "airflow-mq.json").read_text())
    shown = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    shown += [one["query"]["query"] for one in board["templating"]["list"] if one["type"] == "query"]

    # Durations are native histograms in OpenTelemetry.
    native = {"airflow_mq_" + one.name.replace(".", "_") for one in METRICS if one.kind == TIMER}
    assert set(re.findall(r"airflow_mq_\w+", " ".join(shown))) == prometheus_names() | native
    assert all('{ring=~"$ring"}' in expr for expr in shown if "label_values" not in expr)
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    places = [panel["gridPos"] for panel in board["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    taken = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(set(taken)) == len(taken)


def test_alarms_ring_on_metrics_that_there_are() -> None:
    rules = yaml.safe_load((DOCS / "grafana" / "alerts.yaml").read_text())["groups"][0]["rules"]

    assert set(re.findall(r"airflow_mq_\w+", " ".join(rule["expr"] for rule in rules))) <= prometheus_names()


def test_the_longest_wait_can_reach_the_bound_of_its_alert() -> None:
    """The metric covers the latest blocks only."""
    rules = yaml.safe_load((DOCS / "grafana" / "alerts.yaml").read_text())["groups"][0]["rules"]
    (expr,) = [rule["expr"] for rule in rules if rule["alert"] == "QueueStarves"]
    bound = re.search(r"fairness_longest_wait\) >= (\d+)", expr)

    assert bound and int(bound[1]) <= BLOCKS


def test_the_collector_uses_what_it_defines() -> None:
    made = yaml.safe_load((DOCS / "grafana" / "otel-collector.yaml").read_text())
    (pipeline,) = made["service"]["pipelines"].values()

    assert {kind: set(pipeline[kind]) for kind in pipeline} == {kind: set(made[kind]) for kind in pipeline}


def test_statsd_exporter_gets_the_same_names() -> None:
    mappings = yaml.safe_load((DOCS / "grafana" / "statsd-mapping.yaml").read_text())["mappings"]
    found = set()
    for metric in METRICS:
        stat = "airflow." + untagged(metric.name, "default", "acme" if metric in OF_ORIGINS else None)
        name, labels = mapped(mappings, stat, metric.kind)
        assert labels == {"ring": "default", **({"origin": "acme"} if metric in OF_ORIGINS else {})}
        found |= {name + ending for ending in (("_sum", "_count") if metric.kind == TIMER else ("",))}

    assert found == prometheus_names()


def mapped(mappings: list[dict[str, Any]], stat: str, kind: str) -> tuple[str, dict[str, str]]:
    """Return the name that statsd_exporter makes of a metric."""
    for mapping in mappings:
        match = re.fullmatch(mapping["match"], stat)
        if match and mapping.get("match_metric_type", kind) == kind:
            filled = {key: match.expand(re.sub(r"\$(\d)", r"\\\1", text)) for key, text in mapping["labels"].items()}
            return match.expand(re.sub(r"\$(\d)", r"\\\1", mapping["name"])).replace(".", "_"), filled
    raise AssertionError(f"nothing maps {stat}")


@pytest.mark.postgres
def test_the_scaler_asks_for_the_backlog_in_blocks_with_few_rights(pg_uri: str) -> None:
    text = (DOCS / "keda" / "scaledobject.yaml").read_text()
    scaled = [one for one in yaml.safe_load_all(text) if one["kind"] == "ScaledObject"]
    query = scaled[0]["spec"]["triggers"][0]["metadata"]["query"]
    assert "airflow-mq store grant reader keda" in text
    # Roles are of a whole server, which another test process may share.
    role = f"keda_{os.getpid()}"
    upgrade(parse(pg_uri))

    def asked() -> Any:
        with psycopg.connect(pg_uri, autocommit=True) as connection:
            connection.execute(f"SET ROLE {role}".encode())
            return connection.execute(query).fetchone()

    with psycopg.connect(pg_uri, autocommit=True) as connection, MessageQueue(pg_uri) as queue:
        try:
            grant(parse(pg_uri), "reader", role)
            assert asked() == (0.0,)
            weigher = LinearWeigher(Weight(10, 0), Weight(500, 1000))
            queue.admin.change_ring(service_weight=Weight(1000, 1 << 30), weigher=weigher)
            queue.enqueue_messages("a", [b"x" * 100] * 100)
            queue.enqueue_message("b", b"heavy", weight=Weight(10**9, 0))
            assert asked() == (7.0,)  # 101 times 10, and half of 10,005: a little more than six blocks
            assert queue.inspect.backlog().blocks == pytest.approx(6.012)
            block = queue.blocks.plan()
            queue.blocks.settle(block)
            assert queue.inspect.backlog().set_aside == 1
            found = queue.inspect.backlog().blocks
            assert found is not None and asked() == (float(-(-found // 1)),)
            for forbidden in ("DELETE FROM airflow_mq.inbox", "SELECT heap FROM airflow_mq.inbox"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(f"SET ROLE {role}; {forbidden}".encode())
            connection.execute("RESET ROLE; UPDATE airflow_mq.ring SET config = config || '{\"service_weight\": null}'")
            assert asked() == (0.0,)
        finally:
            connection.execute(f"RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}".encode())
