"""Requests to the API of a live Airflow: what is repeated, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from airflow_mq.testing import loopback
from airflow_mq.testing.loopback import Refused, send

LOCKED = (500, {"detail": {"reason": "Database error", "orig_error": "database is locked"}})
LOST = (500, {"detail": {"reason": "Database error", "orig_error": "server closed the connection unexpectedly"}})
DEFECT = (500, {"detail": "Internal Server Error"})
TAKEN = (409, {"detail": {"reason": "Unique constraint violation"}})
CREATED = (200, {"id": 1})


class Api(HTTPServer):
    """Gives these answers in turn, the last one for ever, and counts the requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.answers: list[tuple[int, object]] = []
        self.asked = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Api)
        self.server.asked += 1
        answers = self.server.answers
        status, said = answers.pop(0) if len(answers) > 1 else answers[0]
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(said).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    monkeypatch.setattr(loopback, "PAUSES", (0, 0))
    with Api() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def post(api: Api) -> object:
    return send(api.url, "POST", "/api/v2/assets/events", {"asset_id": 1}, None, 10)


def test_a_request_that_was_rolled_back_is_repeated(api: Api) -> None:
    api.answers = [LOCKED, LOCKED, CREATED]
    assert post(api) == {"id": 1}
    assert api.asked == 3


def test_a_request_is_not_repeated_for_ever(api: Api) -> None:
    api.answers = [LOCKED]
    with pytest.raises(Refused, match="500.*Database error"):
        post(api)
    assert api.asked == 3


@pytest.mark.parametrize("answer", [DEFECT, TAKEN, LOST])
def test_another_error_is_raised_at_once(api: Api, answer: tuple[int, object]) -> None:
    api.answers = [answer]
    with pytest.raises(Refused, match=str(answer[0])):
        post(api)
    assert api.asked == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has names of sockets without files")
def test_a_port_is_given_to_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = loopback.free_port()
    drawn = iter([taken - 20_000, *range(12_000)])
    monkeypatch.setattr(loopback.secrets, "randbelow", lambda below: next(drawn))
    assert loopback.free_port() != taken
    program = f"from airflow_mq.testing.loopback import _reserve; print(_reserve({taken}))"
    assert subprocess.check_output([sys.executable, "-c", program]) == b"False\n"
