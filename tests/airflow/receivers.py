"""Receivers of metrics and spans: a StatsD server, and an OTLP collector over HTTP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Lines:
    """A StatsD server that keeps all lines."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        # On loopback, a line that was sent has arrived.
        self._socket.settimeout(0.2)
        self.port = self._socket.getsockname()[1]

    def values(self) -> dict[str, list[str]]:
        """Return the values by name, with their kinds."""
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
    """An OTLP collector: it keeps requests by path, and decodes them on demand."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self.bodies: dict[str, list[bytes]] = {}

    def spans(self) -> list[Any]:
        """Return the spans; one that was sent again, because the answer came too late, counts once."""
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        spans = (
            span
            for body in self.bodies.get("/v1/traces", ())
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        )
        return list({(span.trace_id, span.span_id): span for span in spans}.values())

    def metrics(self) -> dict[str, list[Any]]:
        """Return the latest data points of each metric, by name."""
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
    """Run a collector on a free port."""
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
    """Return the attributes of a span or of a data point as Python values."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in one.attributes}
