"""Requests to the API of a live Airflow, their errors, and ports on loopback."""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import sys
import time
import urllib.error
import urllib.request
from typing import Any

#: Pauses before a request is repeated, in seconds.
PAUSES = (0.1, 0.2, 0.4, 0.8)


class AirflowFailed(RuntimeError):
    """A component did not start, or a request failed; the message contains the last log lines."""


class TooLate(AirflowFailed):
    """A condition was not met in time."""


class Refused(AirflowFailed):
    """The API refused a request."""

    def __init__(self, status: int, text: str, what: str) -> None:
        super().__init__(f"{what}: {status} {text[:2000]}")
        self.status, self.text = status, text

    @property
    def rolled_back(self) -> bool:
        """Whether Airflow's metadata database on SQLite was locked, so that the request changed nothing.

        If Airflow reads and then writes in the same transaction, SQLite refuses the write at once if another component
        wrote in between. Airflow names the error of the database if `api.expose_stacktrace` is set.
        """
        return self.status == 500 and "database is locked" in self.text


def send(url: str, method: str, path: str, body: object, token: str | None, timeout: float) -> Any:
    """Send a request to an API on loopback and return its answer; raise `Refused` for an error status.

    A request whose transaction was rolled back is repeated.
    """
    for pause in PAUSES:
        try:
            return _send_once(url, method, path, body, token, timeout)
        except Refused as refusal:
            if not refusal.rolled_back:
                raise
        time.sleep(pause)
    return _send_once(url, method, path, body, token, timeout)


def _send_once(url: str, method: str, path: str, body: object, token: str | None, timeout: float) -> Any:
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, headers, method=method)  # noqa: S310 (http, loopback)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=timeout) as answer:
            text = answer.read()
    except urllib.error.HTTPError as error:
        with error:
            raise Refused(error.code, error.read().decode(errors="replace"), f"{method} {path}") from None
    return json.loads(text) if text else None


def free_port() -> int:
    """Return a port on loopback that no process uses.

    It is used seconds later, so it is outside of the range from which the system assigns ports, and no other process is
    given it while this one lives.
    """
    while not (is_free(port := 20_000 + secrets.randbelow(12_000)) and _reserve(port)):
        pass
    return port


def _reserve(port: int) -> bool:
    """Bind a name that stands for a port; return whether it was free. Linux has names without files."""
    name = socket.socket(socket.AF_UNIX)
    try:
        if sys.platform == "linux":
            name.bind(f"\0airflow-mq port {port}")
    except OSError:
        name.close()
        return False
    # It stays open until the process ends.
    name.detach()
    return True


def is_free(port: int) -> bool:
    """Return whether no process listens on a port of loopback."""
    with socket.socket() as probe, contextlib.suppress(OSError):
        # Servers set this option: an ended connection does not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        return True
    return False
