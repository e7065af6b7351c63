"""What listens in these tests where a collector would: to StatsD's lines, and to OTLP by HTTP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Lines:
    """A StatsD server that keeps what it hears."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        # What was sent before is there by now: on loopback, nothing is on its way.
        self._socket.settimeout(0.2)
        self.port = self._socket.getsockname()[1]

    def heard(self) -> dict[str, list[str]]:
        """The values by name, with their kind."""
        found: dict[str, list[str]] = {}
        try:
            while True:
                name, _, value = self._socket.recv(65536).decode().partition(":")
                found.setdefault(name, []).append(value)
        except TimeoutError:
            return found

    def close(self) -> None:
        self._socket.close()


class Collector:
    """What an OTLP collector got: requests by path, decoded when asked for."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self.bodies: dict[str, list[bytes]] = {}

    def spans(self) -> list[Any]:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        return [
            span
            for body in self.bodies.get("/v1/traces", ())
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def metrics(self) -> dict[str, list[Any]]:
        """The metrics by name: the latest that was told of each."""
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

        return {
            metric.name: list(getattr(metric, metric.WhichOneof("data")).data_points)
            for body in self.bodies.get("/v1/metrics", ())
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@contextmanager
def collector() -> Iterator[Collector]:
    """A collector on a free port."""
    made: list[Collector] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made[0].bodies.setdefault(self.path, []).append(body)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        log_message: Callable[..., None] = lambda *_: None

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.append(Collector(server.server_address[1]))
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield made[0]
        finally:
            server.shutdown()
            thread.join()


def attributes_of(one: Any) -> dict[str, Any]:
    """The attributes of a span, or of a data point, as Python has them."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in one.attributes}
