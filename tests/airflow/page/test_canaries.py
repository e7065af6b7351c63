"""Canaries: a planted password and planted payloads are absent from all that a block writes and the page answers."""

from __future__ import annotations

import base64
import json
import logging
import secrets
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier, Literal

from airflow_mq import MessageQueue, Weight
from airflow_mq.engine.store import StoreAddress
from airflow_mq.engine.store.roles import grant
from airflow_mq.errors import KeyConflict
from tests.airflow.conftest import connection_of
from tests.airflow.page.routes import PEEK, ROUTES, R
from tests.airflow.stage import CONN_ID, Airflow, in_place
from tests.airflow.test_lineage import openlineage
from tests.airflow.test_tracing import spans
from tests.postgres_server import Server
from tests.store.test_roles import Roles, owner, roles

__all__ = ["openlineage", "owner", "roles", "spans"]
pytestmark = [pytest.mark.airflow, pytest.mark.postgres, pytest.mark.slow]

PAYLOAD = "canary-payload-4417"
PASSWORD = f"canary-password-{secrets.token_hex(6)}"
FAILING = "tests.airflow.functions:quote"


@pytest.fixture
def store(owner: StoreAddress, roles: Roles, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a store whose runtime role has the canary as its password."""
    user = roles("canary")
    with closing(psycopg.connect(autocommit=True, **owner.conninfo())) as connection:
        words = SQL("ALTER ROLE {} PASSWORD {}").format(Identifier(str(user.user)), Literal(PASSWORD))
        connection.execute(words)
    grant(owner, "runtime", str(user.user))
    uri = StoreAddress(**{**user.__dict__, "password": PASSWORD}).uri
    for name in (CONN_ID, "mq_canary"):
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", connection_of(uri))
    yield uri


def is_in(text: str) -> list[str]:
    """Return the canaries that a text contains, plain or encoded."""
    found = []
    for canary in (PAYLOAD, PASSWORD):
        # The middle of its Base64 form is the same for two of three places in a longer text; these are all three.
        encoded = [base64.b64encode(b" " * place + canary.encode())[4:-4].decode() for place in range(3)]
        if any(form in text for form in (canary, canary.encode().hex(), *encoded)):
            found.append(canary)
    return found


def test_no_trace_of_password_and_payloads(
    store: str, owner: StoreAddress, spans: Any, openlineage: Any, caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str], ask: Callable[..., Any], postgres_server: Server,
) -> None:  # fmt: skip
    from airflow_mq.operators.blocks import PlanBlockOperator, ProcessMessagesOperator, SettleBlockOperator

    caplog.set_level(logging.DEBUG)
    run, processors = Airflow().run(), in_place(function=FAILING)
    places: dict[str, str] = {}
    with MessageQueue(store, traces=True) as queue:
        queue.enqueue_messages("acme", [PAYLOAD.encode()] * 3)
        queue.enqueue_message("acme", PAYLOAD.encode(), key="k")
        with pytest.raises(KeyConflict) as conflict:
            queue.enqueue_message("acme", f"{PAYLOAD} 2".encode(), key="k")
        queue.enqueue_message("bolt", PAYLOAD.encode(), weight=Weight(10**15, 1))
        places["error"] = str(conflict.value)
        for _ in range(2):
            plan = PlanBlockOperator(task_id="plan", processors=processors, mq_conn_id=CONN_ID, share_below=1)
            operators: list[Any] = [plan]
            for index, part in enumerate(run.execute(plan)):
                operator = ProcessMessagesOperator(
                    task_id="process", part=part, processors=processors, mq_conn_id=CONN_ID
                )
                run.execute(operator, index)
                operators.append(operator)
            operators.append(SettleBlockOperator(task_id="settle", mq_conn_id=CONN_ID))
            run.execute(operators[-1])
            lineage = [openlineage(operator) for operator in operators]
        events = [event for event in queue.inspect.events() if event.name == "Returned"]
        assert events and {event.why for event in events} == {"ValueError"}, "the processor did not fail"
        assert queue.set_aside.list()
    places["xcom"] = json.dumps([*run.xcoms.values()], default=repr)
    places["rendered templates"] = json.dumps(
        [[getattr(one, field) for field in one.template_fields] for one in operators], default=repr
    )
    places["lineage"] = repr(lineage)
    places["traces"] = "".join(span.to_json() for span in spans.get_finished_spans())
    assert "acme" in places["lineage"] and "airflow_mq" in places["traces"]
    base = R.replace("mq_page", "mq_canary").replace("/full", "/default")
    for route in ROUTES:
        if PEEK not in route.rights:
            for role in ("admin", "viewer"):
                answer = ask(role, route.method, route.path.replace(R, base), json=route.json)
                places[f"{role}: {route.method} {route.path}"] = f"{answer.headers}{answer.text}"
    assert "acme" in places[f"viewer: GET {R}/queues?sort=messages"]

    # Pages of errors: the store is gone.
    with closing(psycopg.connect(autocommit=True, **owner.conninfo())) as connection:
        connection.execute('ALTER SCHEMA "airflow_mq" RENAME TO elsewhere')
        for route in ROUTES:
            answer = ask("admin", route.method, route.path.replace(R, base), json=route.json)
            places[f"error page: {route.method} {route.path}"] = answer.text
        connection.execute('ALTER SCHEMA elsewhere RENAME TO "airflow_mq"')
    places["log"] = caplog.text + "".join(repr(vars(record)) for record in caplog.records)
    places["terminal"] = "".join(capfd.readouterr())
    places["log of the server"] = postgres_server.log_path.read_text(errors="replace")
    assert "ValueError" in places["log"]
    assert {place: is_in(text) for place, text in places.items() if is_in(text)} == {}


def test_the_search_finds_each_form_of_a_canary() -> None:
    for text in (PAYLOAD, PAYLOAD.encode().hex(), f"x {PASSWORD}"):
        assert is_in(text)
    for place in range(3):
        assert is_in(base64.b64encode(b"abc"[:place] + PAYLOAD.encode() + b"...").decode())
