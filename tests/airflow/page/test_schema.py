"""Whatever is asked of the page's API, by its own description, the answer is one that it describes, and never a fault."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode

from airflow_mq import MessageQueue, RingConfig
from tests.airflow.page.conftest import ROLES
from tests.airflow.page.routes import MAY, PEEK, ROUTES

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

EXAMPLES = 5
PAGE = Path(__file__).parents[3] / "airflow_mq" / "page"
#: What is asked of: stores that are there, and one that is not; rings likewise.
CONN_IDS = st.sampled_from(["mq_page", "mq_page", "mq_page", "mq_unknown", "mq_newer"])
RINGS = st.sampled_from(["full", "canaries", "canaries", "empty", "default", "nowhere"])
#: Payloads of tenants, which no answer may contain but a preview of the tenant's own messages.
CANARIES = {name: f"canary-payload-of-{name}-8190" for name in ("acme", "bolt")}
RIGHTS = {(route.method, route.template): route.rights for route in ROUTES}


def described(page: SimpleNamespace) -> Any:
    headers = {"Authorization": f"Bearer {page.tokens['admin']}"}
    return page.client.get("/airflow-mq/api/v1/openapi.json", headers=headers).json()


def test_every_answer_is_described_to_its_last_name(page: SimpleNamespace) -> None:
    """Every response describes all of its names and permits no others."""
    data = described(page)
    seen = 0
    for path, operations in data["paths"].items():
        for operation in operations.values():
            for status, answer in operation["responses"].items():
                content = answer["content"]
                if path.endswith(".csv") and status == "200":
                    assert list(content) == ["text/csv"]
                    continue
                (kind,) = content
                assert kind == "application/json" and content[kind]["schema"], f"{path} {status}"
                seen += 1
    assert seen > 100
    for name, shape in data["components"]["schemas"].items():
        assert shape.get("additionalProperties") is False, f"{name} is open"


def test_the_types_of_the_page_are_those_of_the_api() -> None:
    """`npm run types` makes types.ts of openapi.json; test_page_build holds the one to the other."""
    from airflow_mq.api.app import create_app, response_schemas

    described_for_the_page = json.loads((PAGE / "openapi.json").read_text())
    assert described_for_the_page == response_schemas(create_app()), "run `make page` and commit what it makes"
    assert len(described_for_the_page["components"]["schemas"]) > 40


@pytest.fixture(scope="module")
def canaries(page: SimpleNamespace) -> None:
    """A ring in which two tenants have messages that wait, are set aside, and are in flight."""
    with MessageQueue(page.uri) as first:
        first.admin.create_ring("canaries", RingConfig(max_message_size=100))
    with MessageQueue(page.uri, "canaries") as queue:
        for name, canary in CANARIES.items():
            queue.enqueue_messages(name, [canary.encode(), (canary * 9).encode(), canary.encode()])
            queue.service_queues(lambda delivery: None, limit=queue.config.service_weight)
            queue.enqueue_messages(name, [canary.encode()] * 3, headers={"of": name})


@pytest.mark.parametrize("role", ROLES)
def test_no_question_is_answered_with_a_fault_or_beyond_a_right(
    page: SimpleNamespace, canaries: None, role: str
) -> None:
    schema = schemathesis.openapi.from_dict(described(page))
    schema.config.generation.update(modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
    seen: dict[str, set[int]] = {}
    for found in schema.get_all_operations():
        operation = found.ok()
        # The check reads the whole store each time; one question is enough.
        examples = 2 if operation.path.endswith("/check") else EXAMPLES

        @settings(
            max_examples=examples, derandomize=True, deadline=None, database=None, verbosity=Verbosity.quiet,
            phases=[Phase.generate], suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=operation.as_strategy(), conn_id=CONN_IDS, ring=RINGS, origin=st.sampled_from([None, *CANARIES]))
        def ask(case: Any, conn_id: str, ring: str, origin: str | None) -> None:
            if origin and case.query and "origin" in case.query:
                case.query["origin"] = origin
            case.path_parameters = {"conn_id": conn_id, "ring": ring} if case.path_parameters else {}
            asked = case.as_transport_kwargs(base_url="http://airflow.test/airflow-mq")
            sent = {name: asked[name] for name in ("params", "json", "data") if asked.get(name) is not None}
            if "data" in sent:
                sent["content"] = sent.pop("data")
            page.client.cookies.clear()
            answer = page.client.request(
                asked["method"], asked["url"], headers={"Authorization": f"Bearer {page.tokens[role]}"}, **sent
            )
            seen.setdefault(f"{case.method} {case.operation.path}", set()).add(answer.status_code)
            assert answer.status_code < 500 or conn_id != "mq_page", (
                f"{case.method} {asked['url']} {sent}: {answer.text}"
            )
            assert answer.status_code < 300 or answer.json()["detail"]
            # Every status is a described one, and every answer has the shape that is described for it.
            assert str(answer.status_code) in case.operation.definition.raw["responses"]
            case.operation.validate_response(answer)
            rights = RIGHTS[case.method, case.operation.path]
            assert rights <= MAY[role] or answer.status_code >= 400, f"{role} may not: {case.method} {asked['url']}"
            own = (case.query or {}).get("origin") if rights == {PEEK} else None
            for name, canary in CANARIES.items():
                assert name == own or canary not in answer.text, f"a payload of {name}: {asked['url']} {sent}"

        ask()
    # The description does not describe itself.
    assert len(seen) == len(RIGHTS) - 1
    # Not everything is refused before it is read.
    assert sum(1 for codes in seen.values() if 200 in codes) >= 10, seen
