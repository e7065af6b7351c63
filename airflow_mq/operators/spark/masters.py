"""Checks of a Spark master or server before a job is submitted: a silent one would hold a task for minutes."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from urllib.parse import urlsplit
from urllib.request import getproxies

from airflow.providers.common.compat.sdk import AirflowException

#: Seconds for which each address of a master is tried.
PATIENCE = 5.0
#: The port of a Spark Connect server, unless its address has another.
CONNECT_PORT = 15002
STANDALONE, CONNECT = "spark://", "sc://"


def require_master(master: str, conn_id: str) -> None:
    """Raise if no master of a standalone cluster accepts a connection; other kinds of masters are not checked."""
    if not master.startswith(STANDALONE):
        return
    places = [_place(name) for name in master[len(STANDALONE) :].split(",")]
    if all(host and port for host, port in places):
        _require(f"the Spark master {master!r}", places, conn_id)


def silent_master(master: str, conn_id: str) -> str:
    """Return the cause of a failure where a master accepted a connection, and Spark gave it up."""
    return (
        f"the Spark master {master!r} accepts connections, but does not answer as a master: check host and port of the "
        f"Spark connection {conn_id!r}, and that the cluster runs the same version of Spark"
    )


def require_server(address: str, conn_id: str) -> None:
    """Raise if a Spark Connect server does not accept a connection; behind a proxy, it is not checked."""
    if not {"grpc", "https", "http"} & getproxies().keys():
        place = address[len(CONNECT) :].partition("/")[0]
        host, port = _place(place)
        _require(f"the Spark Connect server {CONNECT + place!r}", [(host, port or CONNECT_PORT)], conn_id)


def _place(name: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{name.strip()}")
        return parts.hostname or "", parts.port or 0
    except ValueError:
        # Spark refuses the address at once, and names it.
        return "", 0


def _require(title: str, places: Sequence[tuple[str, int]], conn_id: str) -> None:
    refusals = []
    for place in places:
        try:
            socket.create_connection(place, PATIENCE).close()
            return
        except OSError as error:
            refusals.append(f"{place[0]}:{place[1]}: {error}")
    raise AirflowException(
        f"{title} is not reachable ({'; '.join(refusals)[:500]}): the Spark connection {conn_id!r} names it; start it, "
        "or correct host and port of that connection. No job was submitted"
    )
