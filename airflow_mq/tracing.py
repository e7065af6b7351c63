"""Traces, for those who want them: from whoever sends, through the block, to what became of the message.

Whoever opens a queue with `traces=True`, or sets `AIRFLOW_MQ_TRACES=1`, has messages carry the W3C trace context of
the span that is active when they are sent, if that is sampled: a header or two beside the payload. Nobody else pays
anything. What a block does is told by spans that link to the messages' contexts; what became of a message, by a span
in the message's own trace, for so many messages of a block and no more.

OpenTelemetry is optional: where it is not installed, nothing is carried and nothing told. And nothing that goes
wrong here goes further than the log.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

log = logging.getLogger("airflow_mq.tracing")

#: Says for all queues of a process whether their messages carry traces.
VARIABLE = "AIRFLOW_MQ_TRACES"
#: Where a job finds the context that it goes on with, as W3C names it.
PARENT, STATE = "TRACEPARENT", "TRACESTATE"
#: How many links a span has at most.
LINKS = 128
#: Of how many messages of a block the outcome is told by a span of their own.
OUTCOMES = 64
#: Seconds for which the end of a job waits until its spans have left.
PATIENCE = 5.0

#: A trace context as it travels.
Carrier = Mapping[str, str]
T = TypeVar("T")


def wanted(said: bool | None = None) -> bool:
    """Whether messages carry traces: as it is said, or as the environment says."""
    if said is not None:
        return said
    return os.environ.get(VARIABLE, "").strip().lower() in ("1", "true", "yes", "on")


@cache
def _api() -> Any:
    """OpenTelemetry's API; nothing, where it is not installed."""
    try:
        return import_module("opentelemetry.trace")
    except ImportError:
        log.warning("traces are wanted, and OpenTelemetry is not installed: pip install 'airflow-mq[otel]'")
        return None


@cache
def _propagator() -> Any:
    return import_module("opentelemetry.trace.propagation.tracecontext").TraceContextTextMapPropagator()


def carrying() -> dict[str, str]:
    """The context of the active span, as headers; nothing, where none is active, or it is not sampled."""
    api = _api()
    if api is None:
        return {}
    told = api.get_current_span().get_span_context()
    return _carrier_of(api.get_current_span()) if told.is_valid and told.trace_flags.sampled else {}


def _carrier_of(span: Any) -> dict[str, str]:
    carrier: dict[str, str] = {}
    _propagator().inject(carrier, context=_api().set_span_in_context(span))
    return carrier


def _context_of(carrier: Carrier | None) -> Any:
    """The span context that travelled; nothing, where what travelled is none."""
    api = _api()
    if api is None or not carrier:
        return None
    found = api.get_current_span(_propagator().extract(carrier)).get_span_context()
    return found if found.is_valid else None


def is_traced(headers: Carrier) -> bool:
    """Whether a message carries a trace."""
    return "traceparent" in headers


def handed_on(sent: Sequence[tuple[Any, ...]], headers: Carrier) -> list[tuple[Any, ...]]:
    """What the processor of a message sends goes on with that one's trace, unless it says another.

    :param sent: origin and payload, and headers if there are any.
    :param headers: of the message that was processed.
    """
    if not is_traced(headers):
        return list(sent)
    carried = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
    own = [one[2] if len(one) > 2 else {} for one in sent]
    return [one if is_traced(its) else (*one[:2], {**carried, **its}) for one, its in zip(sent, own)]


# -- spans --


def harmless(tell: Callable[..., T]) -> Callable[..., T | None]:
    """What this does may fail: then there is a line in the log, and that is all."""

    def attempt(*args: Any, **kwargs: Any) -> T | None:
        try:
            return tell(*args, **kwargs)
        except Exception as error:
            # What it says may hold an address with a secret in it.
            log.warning("what happens here is not told (%s)", type(error).__name__)
            return None

    return attempt


def now() -> int:
    """The time as spans have it."""
    return time.time_ns()


@harmless
def tell(
    name: str, began: int, *, kind: str = "INTERNAL", parent: Carrier | None = None, links: Sequence[Carrier] = (),
    ended: int | None = None, wrong: str | None = None, **attributes: Any,
) -> dict[str, str]:  # fmt: skip
    """A span of what is over; tells its context, to travel on.

    Its parent is the span that is active, else what is said, else the one trace that all links are of.
    """
    api = _api()
    if api is None:
        return {}
    span = _start(name, kind, _parent(parent, links), links, attributes, began)
    if wrong is not None:
        span.set_status(api.StatusCode.ERROR, wrong)
    span.end(ended)
    return _carrier_of(span) if span.get_span_context().is_valid else {}


@contextmanager
def span(
    name: str, *, on: bool = True, kind: str = "INTERNAL", parent: Carrier | None = None, **attributes: Any
) -> Iterator[dict[str, str]]:
    """A span around what is done here, active meanwhile; gives its context, to travel on."""
    begun = _begin(name, kind, parent, attributes) if on else None
    if not begun:
        yield {}
        return
    # What is raised is named and not quoted: its text may be the words of a message.
    with _api().use_span(begun, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield _carrier_of(begun)
        except BaseException as error:
            begun.set_status(_api().StatusCode.ERROR, type(error).__name__)
            raise


@harmless
def _begin(name: str, kind: str, parent: Carrier | None, attributes: Mapping[str, Any]) -> Any:
    return None if _api() is None else _start(name, kind, _parent(parent, ()), (), attributes, None)


@harmless
def tell_outcome(
    name: str, began: int, carried: Carrier, block: Carrier | None, wrong: str | None, **attributes: Any
) -> None:
    """A span in a message's own trace, linked to the block that it was in."""
    api, parent = _api(), _context_of(carried)
    if parent is None:
        return
    context = api.set_span_in_context(api.NonRecordingSpan(parent))
    span = _start(name, "CONSUMER", context, [block] if block else (), attributes, began)
    if wrong is not None:
        span.set_status(api.StatusCode.ERROR, wrong)
    span.end()


def _start(
    name: str, kind: str, context: Any, links: Sequence[Carrier], attributes: Mapping[str, Any], began: int | None
) -> Any:
    api = _api()
    linked = [api.Link(found) for one in links[:LINKS] if (found := _context_of(one)) is not None]
    said = {"messaging.system": "airflow_mq", **attributes}
    told = {key: value for key, value in said.items() if value is not None}
    tracer = api.get_tracer("airflow_mq")
    return tracer.start_span(
        name, context=context, kind=api.SpanKind[kind], attributes=told, links=linked, start_time=began
    )


def _parent(said: Carrier | None, links: Sequence[Carrier]) -> Any:
    """The context of which a span is a child: none for the one that is active anyway."""
    api = _api()
    if api.get_current_span().get_span_context().is_valid:
        return None
    found = _context_of(said)
    if found is None:
        linked = [one for one in map(_context_of, links) if one is not None]
        # What is all of one trace goes on with it; of many, each has its link.
        if len({one.trace_id for one in linked}) == 1:
            found = linked[0]
    return None if found is None else api.set_span_in_context(api.NonRecordingSpan(found))


# -- a message at its processor --


@contextmanager
def within(headers: Carrier) -> Iterator[None]:
    """The message's own context is active: what its processor tells of itself joins the message's trace."""
    context = _attach(headers)
    try:
        yield
    finally:
        if context is not None:
            import_module("opentelemetry.context").detach(context)


@harmless
def _attach(headers: Carrier) -> Any:
    if _api() is None:
        return None
    return import_module("opentelemetry.context").attach(_propagator().extract(headers))


# -- processes of their own --


def environment(carrier: Carrier) -> dict[str, str]:
    """What a process is told that goes on with a trace."""
    if not carrier.get("traceparent"):
        return {}
    state = carrier.get("tracestate")
    return {VARIABLE: "1", PARENT: carrier["traceparent"], **({STATE: state} if state else {})}


@contextmanager
def job(name: str, **attributes: Any) -> Iterator[None]:
    """A span around a process that was told of a trace by its environment; its spans have left when this ends.

    Where they go is said by OpenTelemetry's own variables, `OTEL_EXPORTER_OTLP_ENDPOINT` and its kin.
    """
    if not os.environ.get(PARENT) or not wanted():
        yield
        return
    provider = provide()
    parent = {"traceparent": os.environ[PARENT], "tracestate": os.environ.get(STATE, "")}
    try:
        with span(name, on=provider is not None, parent=parent, **attributes):
            yield
    finally:
        if provider is not None:
            harmless(provider.force_flush)(int(PATIENCE * 1000))


#: The provider that was made here: nobody else has its spans leave.
_own: list[Any] = []


@harmless
def is_provided() -> bool:
    """Whether there is something that spans are told to, or no OpenTelemetry to tell them."""
    return _api() is None or bool(_known())


def flush() -> None:
    """Have the spans leave of which nobody else takes care."""
    for provider in _own:
        harmless(provider.force_flush)(int(PATIENCE * 1000))


def _known() -> Any:
    known = _api().get_tracer_provider()
    return known if isinstance(known, import_module("opentelemetry.sdk.trace").TracerProvider) else None


@harmless
def provide() -> Any:
    """The provider of tracers; one by the environment, where nobody made any."""
    api = _api()
    if api is None:
        return None
    known = _known()
    if known is not None:
        return known
    sdk = import_module("opentelemetry.sdk.trace")
    exporter = _exporter()
    if exporter is None:
        return None
    made = sdk.TracerProvider()
    made.add_span_processor(import_module("opentelemetry.sdk.trace.export").BatchSpanProcessor(exporter))
    api.set_tracer_provider(made)
    _own.append(made)
    return made


def _exporter() -> Any:
    """As OpenTelemetry's variables name it; Airflow takes the same."""
    name = os.environ.get("OTEL_TRACES_EXPORTER", "otlp").strip()
    if name == "none":
        return None
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    if name == "otlp" and protocol == "http/protobuf":
        name = "otlp_proto_http"
    from importlib.metadata import entry_points

    found = next(iter(entry_points(group="opentelemetry_traces_exporter", name=name)), None)
    if found is None:
        log.warning("OTEL_TRACES_EXPORTER names %r, which is not installed: pip install 'airflow-mq[otel]'", name)
        return None
    return found.load()()
