"""Tracers: messages with the headers of traces, short, long or hostile, and processors that hand these on."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from random import Random

from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

from airflow_mq import Delivery, Done, Message, MessageQueue
from airflow_mq.engine.queue.attempts import Answer
from airflow_mq.engine.rules.errors import InvalidMessage
from airflow_mq.engine.rules.message import header_bytes, message_id
from airflow_mq.observe import traces

from ..messages import child_of, is_parent
from ..scheduler import Process
from ..world import World
from .blocks import _planned
from .parts import _in_place
from .processing import answered
from .senders import _sending
from .services import stall
from .tuning import LEAST_MAX_HEADERS

TRACED = "traced"
#: Origins of blocks and services.
SELECTIONS = (None, [TRACED], [TRACED])
#: Contexts that senders write: valid ones, and those of no use to anybody but who wants to do harm.
PARENTS = (
    *(f"00-{number:032x}-{number:016x}-01" for number in (1, 2, 3, 4)), f"00-{5:032x}-{5:016x}-00",
    f"cc-{6:032x}-{6:016x}-01-more", f"00-{0:032x}-{0:016x}-01", "", "00", "-" * 300, "\r\n\x1b[31m\U0001f600", "<child>",
)  # fmt: skip
STATES = (
    "", "a=1,b=2", ",".join(f"k{number}={'v' * 8}" for number in range(32)), "=," * 180, "<" * 50, "\t\u2028",
)  # fmt: skip
#: What a processor adds of its own. The last one leaves no room for a long trace.
OWN: tuple[Mapping[str, str], ...] = ({}, {"own": "header"}, *[{"own": "x" * 300}] * 2)


def send_traced(world: World, process: Process, random: Random) -> object:
    """Send messages with headers of traces, within a span or without."""
    queue, parent = _queue(world, process), random.random() < 0.8
    some = [
        world.messages.new(process.name, TRACED, mark=":parent" * parent, in_order=False)
        for _ in range(random.randint(1, 3))
    ]
    messages: list[Message] = []
    with trace.use_span(_span(random)):
        carried = traces.carrying()
        for sent in some:
            headers = _headers(queue, random)
            messages.append(Message(sent.payload, headers=headers))
            world.messages.headers[sent.id] = _options(queue, headers, carried)
        try:
            return _sending(world, process, some, lambda: queue.enqueue_messages(TRACED, messages))
        except InvalidMessage:
            # The limit may be lower than this session knew.
            if max(header_bytes(message.headers or {}) for message in messages) <= LEAST_MAX_HEADERS:
                raise
    return None


def serve_traced(world: World, process: Process, random: Random) -> object:
    """Service the ring; the processor sends within the trace of its message."""
    queue = _queue(world, process)
    if random.random() < 0.8:
        send_traced(world, process, random)
    return queue.service_queues(
        lambda delivery: _answer(world, process, random, queue, delivery), origins=random.choice(SELECTIONS),
        slice_messages=random.choice((1, 2, 50)), seed=random.randbytes(8),
    )  # fmt: skip


def report_traced(world: World, process: Process, random: Random) -> object:
    """Plan a block, read the traces of its messages as a plan does, and try it as one part."""
    queue = _queue(world, process)
    if random.random() < 0.8:
        send_traced(world, process, random)
    block = queue.blocks.plan(
        seed=random.randbytes(8), origins=random.choice(SELECTIONS), lease=600.0, reports_begin=True
    )
    _planned(world, block.token)
    carried = [one.headers for one in queue.inspect.headers(block, traces.LINKS, traces.is_traced)]
    traces._start("plan", "CONSUMER", traces._parent(None, carried), carried, {}, None).end()
    world.met["traces in blocks"] += len(carried)
    with suppress(InvalidMessage):
        # The limit of headers may have become lower meanwhile.
        _in_place(queue, block, lambda delivery: _answer(world, process, random, queue, delivery))
    if random.random() < 0.5:
        return block.id
    world.asked.add(block.token)
    return queue.blocks.settle(block)


def _queue(world: World, process: Process) -> MessageQueue:
    """Return a queue of the process whose messages carry traces."""
    queue = process.memory.get("traced")
    if queue is None:
        queue = process.memory["traced"] = MessageQueue(world.uri, world.ring, actor=process.name, traces=True)
        process.connections.insert(0, queue.close)
    assert isinstance(queue, MessageQueue)
    return queue


def _span(random: Random) -> trace.Span:
    """Return a span, mostly none."""
    if random.random() < 0.7:
        return trace.INVALID_SPAN
    number, state = random.randint(1, 1_000), TraceState([("k", "v" * 50)])
    return NonRecordingSpan(SpanContext(number, number, False, TraceFlags(random.randrange(2)), state))


def _headers(queue: MessageQueue, random: Random) -> dict[str, str]:
    """Return headers of a message: with a trace or without, and now and then as long as they may be."""
    headers = {"own": "header"} if random.random() < 0.3 else {}
    if random.random() < 0.9:
        headers["traceparent"] = random.choice(PARENTS)
    if random.random() < 0.7:
        headers["tracestate"] = random.choice(STATES)
    if random.random() < 0.1:
        left = queue.config.max_headers - header_bytes(headers) - len("fill") - random.choice((0, 20, 100))
        headers["fill"] = "." * max(left, 0)
    return headers


def _options(queue: MessageQueue, own: Mapping[str, str], carried: Mapping[str, str]) -> list[Mapping[str, str]]:
    """Return what may become of a message's own headers beside a trace: it goes along if there is room for it."""
    both = {**carried, **own}
    if not (carried and carried.keys().isdisjoint(own)) or header_bytes(both) > queue.config.max_headers:
        return [own]
    # A lower limit, which others set, may leave no room.
    return [both] if header_bytes(both) <= LEAST_MAX_HEADERS else [both, own]


def _answer(world: World, process: Process, random: Random, queue: MessageQueue, delivery: Delivery) -> Answer:
    """Answer; the messages that a parent sends carry its trace."""
    stall(world, process, random)
    outcome, way, own = answered(random, delivery), random.randrange(3), random.choice(OWN)
    known = world.messages.headers.get(delivery.id)
    if known and delivery.headers not in known:
        world.note("headers", f"{delivery.address} comes with {delivery.headers}")
    if not is_parent(delivery.payload):
        return outcome
    child = child_of(delivery.payload)
    handed_on = {name: text for name, text in delivery.headers.items() if name in ("traceparent", "tracestate")}
    handed_on = handed_on if "traceparent" in handed_on else {}
    # By a queue it joins the active span, which is the message's own if that can be read.
    carried = traces.carrying() if way == 0 else {}
    allowed = world.messages.headers.setdefault(message_id(child), [{}])
    for trace_headers in (carried, handed_on) if carried else (handed_on,):
        allowed += _options(queue, own, trace_headers)
    world.met["messages sent within a trace"] += bool(handed_on)
    world.met["traces without room"] += header_bytes({**handed_on, **own}) > queue.config.max_headers
    if way == 2 and isinstance(outcome, Done):
        return Done(enqueue=[("children", Message(child, headers=own))])
    try:
        if way == 1:
            delivery.enqueue("children", child, headers=own)
        else:
            queue.enqueue_message("children", child, headers=own)
    except InvalidMessage as error:
        world.note("headers", f"the trace of {delivery.address} keeps its processor from sending: {error}")
        raise
    return Done() if isinstance(outcome, Done) else outcome
