"""Tracing: trace contexts in messages, spans of blocks, and spans of outcomes.

With `MessageQueue(traces=True)` or `AIRFLOW_MQ_TRACES=1`, messages carry the W3C trace context of the span that is
active when they are sent, if it is sampled: one or two headers. Otherwise tracing costs nothing. Spans of a block link
to the contexts of its messages. The outcome of a message is a span in the message's own trace, for a limited number of
messages per block.

Without OpenTelemetry's SDK no span is sampled, so no context is carried. Errors of tracing are only logged.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

log = logging.getLogger("airflow_mq.tracing")

#: Environment variable: whether the messages of all queues of a process carry traces.
VARIABLE = "AIRFLOW_MQ_TRACES"
#: Environment variables with the parent context of a job, as W3C names them.
PARENT, STATE = "TRACEPARENT", "TRACESTATE"
#: Largest number of links of a span.
LINKS = 128
#: Largest number of messages of a block whose outcomes get spans of their own.
OUTCOMES = 64
#: Milliseconds that the end of a job waits for the export of its spans.
PATIENCE = 5_000

#: A trace context as headers.
Carrier = Mapping[str, str]
#: Attributes of a span; those that are None are left out.
Attributes = Mapping[str, "str | int | None"]
NO_ATTRIBUTES: Attributes = {}
P = ParamSpec("P")
T = TypeVar("T")

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

_propagator = TraceContextTextMapPropagator()


def harmless(function: Callable[P, T]) -> Callable[P, T | None]:
    """Return the function with its errors logged instead of raised."""

    def attempt(*args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            # The text of the error may contain an address with a secret.
            log.warning("tracing or lineage failed (%s)", type(error).__name__)
            return None

    return attempt


# -- contexts that messages carry --


def wanted(configured: bool | None = None) -> bool:
    """Return whether messages carry traces: as configured, else as the environment sets it."""
    if configured is not None:
        return configured
    return os.environ.get(VARIABLE, "").strip().lower() in ("1", "true", "yes", "on")


def carrying() -> dict[str, str]:
    """Return the context of the active span as headers; empty without an active, sampled span."""
    active = trace.get_current_span()
    context = active.get_span_context()
    return _carrier_of(active) if context.is_valid and context.trace_flags.sampled else {}


def is_traced(headers: Carrier) -> bool:
    """Return whether a message carries a trace."""
    return "traceparent" in headers


def handed_on(headers: Carrier) -> dict[str, str]:
    """Return the headers with the trace of a message, for messages that its processor sends."""
    return {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}


@contextmanager
def within(headers: Carrier) -> Iterator[None]:
    """Activate the message's own context: spans of its processor join the message's trace."""
    token = harmless(lambda: contexts.attach(_propagator.extract(headers)))()
    try:
        yield
    finally:
        if token is not None:
            contexts.detach(token)


def _carrier_of(span: trace.Span) -> dict[str, str]:
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, context=trace.set_span_in_context(span))
    return carrier


def _context_of(carrier: Carrier | None) -> trace.SpanContext | None:
    """Return the span context of headers, or None if they hold none."""
    if not carrier:
        return None
    found = trace.get_current_span(_propagator.extract(carrier)).get_span_context()
    return found if found.is_valid else None


# -- spans --


def now() -> int:
    """Return the time as spans store it."""
    return time.time_ns()


@harmless
def record(
    name: str,
    began: int,
    attributes: Attributes,
    *,
    kind: str = "INTERNAL",
    parent: Carrier | None = None,
    links: Sequence[Carrier] = (),
) -> dict[str, str]:
    """Record a span of completed work; return its context as headers.

    Its parent is the active span, else `parent`, else the one trace that contains all links.
    """
    span = _start(name, kind, _parent(parent, links), links, attributes, began)
    span.end()
    return _carrier_of(span) if span.get_span_context().is_valid else {}


@contextmanager
def span(
    name: str,
    attributes: Attributes = NO_ATTRIBUTES,
    *,
    on: bool = True,
    kind: str = "INTERNAL",
    parent: Carrier | None = None,
) -> Iterator[dict[str, str]]:
    """Record a span around a block of code, active meanwhile; yield its context as headers."""
    begun = harmless(lambda: _start(name, kind, _parent(parent, ()), (), attributes, None))() if on else None
    if begun is None:
        yield {}
        return
    # Record only the type of an exception: its text may quote a message.
    with trace.use_span(begun, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield _carrier_of(begun)
        except BaseException as error:
            begun.set_status(trace.StatusCode.ERROR, type(error).__name__)
            raise


@harmless
def record_outcome(
    name: str, began: int, attributes: Attributes, carried: Carrier, block: Carrier | None, error: str | None
) -> None:
    """Record a span in a message's own trace, linked to its block."""
    parent = _context_of(carried)
    if parent is None:
        return
    span = _start(name, "CONSUMER", _within(parent), [block] if block else (), attributes, began)
    if error is not None:
        span.set_status(trace.StatusCode.ERROR, error)
    span.end()


def _start(
    name: str,
    kind: str,
    context: contexts.Context | None,
    links: Sequence[Carrier],
    attributes: Attributes,
    began: int | None,
) -> trace.Span:
    linked = [trace.Link(found) for link in links[:LINKS] if (found := _context_of(link)) is not None]
    known = {key: value for key, value in attributes.items() if value is not None}
    known = {"messaging.system": "airflow_mq", **known}
    return trace.get_tracer("airflow_mq").start_span(
        name, context=context, kind=trace.SpanKind[kind], attributes=known, links=linked, start_time=began
    )


def _parent(given: Carrier | None, links: Sequence[Carrier]) -> contexts.Context | None:
    """Return the parent context of a span, or None for the active span."""
    if trace.get_current_span().get_span_context().is_valid:
        return None
    found = _context_of(given)
    if found is None:
        linked = [context for context in map(_context_of, links) if context is not None]
        # A span whose links are of one trace joins it; otherwise each link stands for itself.
        if len({context.trace_id for context in linked}) == 1:
            found = linked[0]
    return None if found is None else _within(found)


def _within(parent: trace.SpanContext) -> contexts.Context:
    return trace.set_span_in_context(trace.NonRecordingSpan(parent))


# -- jobs --


def environment(carrier: Carrier) -> dict[str, str]:
    """Return environment variables for a process that continues a trace."""
    if not carrier.get("traceparent"):
        return {}
    state = carrier.get("tracestate")
    return {VARIABLE: "1", PARENT: carrier["traceparent"], **({STATE: state} if state else {})}


@contextmanager
def job(name: str, attributes: Attributes = NO_ATTRIBUTES) -> Iterator[None]:
    """Record a span around a process that continues a trace of its environment, and export all spans at its end.

    OpenTelemetry's own variables configure the export, such as `OTEL_EXPORTER_OTLP_ENDPOINT`.
    """
    if not os.environ.get(PARENT) or not wanted():
        yield
        return
    provider = provide()
    parent = {"traceparent": os.environ[PARENT], "tracestate": os.environ.get(STATE, "")}
    try:
        with span(name, attributes, on=provider is not None, parent=parent):
            yield
    finally:
        if provider is not None:
            harmless(provider.force_flush)(PATIENCE)


# -- providers --

#: Providers made here: only this module exports their spans.
_own: list[TracerProvider] = []


def is_provided() -> bool:
    """Return whether this process has a tracer provider."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def flush() -> None:
    """Export the spans of providers that this module made."""
    for provider in _own:
        harmless(provider.force_flush)(PATIENCE)


@harmless
def provide() -> TracerProvider | None:
    """Return the SDK's tracer provider; configure one from the environment if there is none."""
    try:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        log.warning("traces are enabled, but OpenTelemetry's SDK is not installed: pip install 'airflow-mq[otel]'")
        return None
    if is_provided():
        known = trace.get_tracer_provider()
        return known if isinstance(known, TracerProvider) else None
    exporter = _exporter()
    if exporter is None:
        return None
    made = TracerProvider()
    made.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(made)
    _own.append(made)
    return made


def _exporter() -> SpanExporter | None:
    """Return the exporter that OpenTelemetry's variables name, as Airflow does."""
    name = os.environ.get("OTEL_TRACES_EXPORTER", "otlp").strip()
    if name == "none":
        return None
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    if name == "otlp" and protocol == "http/protobuf":
        name = "otlp_proto_http"
    found = next(iter(entry_points(group="opentelemetry_traces_exporter", name=name)), None)
    if found is None:
        log.warning("OTEL_TRACES_EXPORTER names %r, which is not installed: pip install 'airflow-mq[otel]'", name)
        return None
    return found.load()()
