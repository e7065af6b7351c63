"""`service`: the ready queues, by a processor in this process."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from functools import partial, wraps
from threading import Event
from typing import TYPE_CHECKING, Any

from ..engine.rules.errors import ProcessorError
from ..engine.rules.weight import ZERO
from ..loading import load_named
from ..words import outcomes
from .arguments import PROCESSOR, TRACEBACK, duration, positive, weight
from .command import UsageError, command, option
from .output import Tell
from .session import Session, at_sigterm

if TYPE_CHECKING:
    from ..engine.queue import MessageQueue
    from ..engine.queue.attempts import BatchProcessor, Processor
    from ..engine.queue.values import Serviced


@command(
    PROCESSOR,
    option("--service-weight TIME/SIZE", "the limit of a call (default: the ring's)", weight),
    option("--batch", "pass whole batches of one origin to the function"),
    option("--drain", "repeat until a call processes nothing"),
    option("--follow", "repeat whenever messages are sent, until SIGTERM or Ctrl-C"),
    option("--slice-messages N", "commit after N messages (default: 20000)", positive),
    option("--slice-seconds S", "commit after S seconds (default: 1)", duration),
    TRACEBACK,
    example="$ service --processor orders:process --drain\n$ service --processor orders:process --follow",
)
def service(session: Session, args: Namespace) -> bool | None:
    """Process the ready queues with a Python function, in this process.

    A function of one parameter receives the Delivery (payload, origin, address, attempt and others); parameters named
    payload, origin and message receive these. It returns nothing or true if the message is processed, false if it is
    processed without success, or an outcome such as Yield() or BadFormat(). If it raises, the message stays, and a
    later call tries it again. The exit code is 1 if no tried message was processed.
    """
    from ..engine.queue.inspect.reasons import ERRORS

    raised: list[str] = []
    processor = _noting(_processor(args.processor, args.batch), raised)
    options: dict[str, Any] = {
        name: value for name in ("slice_messages", "slice_seconds") if (value := getattr(args, name)) is not None
    }
    if args.service_weight is not None:
        options["limit"] = args.service_weight
    calls: int | None
    with session.queue() as queue, session.out.progress("servicing") as told, stdout_kept_clean(session):
        if args.follow:
            total, calls = _follow(queue, processor, options), None
        else:
            total, calls = _service(queue, processor, options, args.drain, told)
    counted = {} if calls is None else {"calls": calls}
    session.out.value({**asdict(total), "weight": total.weight, **counted})
    if total.moved:
        session.out.remark(f"{outcomes(vars(total))}; weight {total.weight}")
    else:
        events = f", and the tried messages returned to their queues (`{queue.session.cli(ERRORS)}`)"
        session.out.remark(
            f"nothing was processed{events if total.returned else ''}; `{queue.session.cli('queue list')}` lists the "
            "queues and why they wait"
        )
    # Some messages may be set aside because of too many attempts.
    return bool(total.processed) or not (total.failed or total.returned or raised)


def _noting(processor: Processor | BatchProcessor, raised: list[str]) -> Processor | BatchProcessor:
    """Return the processor; the latest error that it raises is noted."""
    from ..engine.queue.attempts import BatchProcessor

    def noting(process: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def called(tried: object) -> Any:
            try:
                return process(tried)
            except Exception as error:
                raised[:] = [type(error).__name__]
                raise

        return called

    if isinstance(processor, BatchProcessor):
        return BatchProcessor(noting(processor.process))
    return noting(processor)


def _service(
    queue: MessageQueue, processor: Processor | BatchProcessor, options: dict[str, Any], drain: bool, told: Tell
) -> tuple[Serviced, int]:
    from ..engine.queue.values import Serviced

    total, calls = Serviced(weight=ZERO), 0
    while True:
        calls += 1
        # Queues whose messages were completed by tokens get their turns in this call.
        queue.blocks.release_dead(wait=False)
        done = queue.service_queues(processor, progress=partial(_progress, told, total), **options)
        total = total.plus(done)
        if not drain or not done.moved:
            return total, calls


def _follow(queue: MessageQueue, processor: Processor | BatchProcessor, options: dict[str, Any]) -> Serviced:
    """Service the ring until SIGTERM, which lets the call under way end."""
    stop = Event()
    with at_sigterm(stop.set):
        return queue.service_forever(processor, stop=stop, **options)


def _progress(told: Tell, before: Serviced, now: Serviced) -> None:
    told(outcomes(vars(before.plus(now))))


def _processor(name: str, batch: bool) -> Processor | BatchProcessor:
    from ..engine.queue.attempts import BatchProcessor, batch_processor
    from ..engine.queue.calls import processor_of

    found = load(name)
    if isinstance(found, BatchProcessor):
        return found
    function = load_callable(name)
    return batch_processor(function) if batch else processor_of(function)


def load(name: str) -> object:
    """Import a processor."""
    module_name, _, path = name.partition(":")
    if not (module_name and path):
        raise UsageError(f"invalid processor {name!r}: expected MODULE:FUNCTION, for example orders:process")
    if os.getcwd() not in sys.path and "" not in sys.path:
        # Last, so that no file of this folder hides an installed module.
        sys.path.append(os.getcwd())
    try:
        return load_named(name)
    except (Exception, SystemExit) as error:
        raise UsageError(f"the processor {name} cannot be loaded: {type(error).__name__}: {error}") from None


def load_callable(name: str) -> Callable[..., Any]:
    """Import a processor that takes single messages or whole batches; with `sys.exit`, it fails and ends no service."""
    from ..engine.queue.attempts import check_runs

    found = load(name)
    if not callable(found):
        raise UsageError(f"invalid processor {name}: expected a callable, got {type(found).__name__}")
    check_runs(found)

    @wraps(found)
    def called(*arguments: Any, **named: Any) -> Any:
        try:
            return found(*arguments, **named)
        except SystemExit:
            raise ProcessorError("the processor called sys.exit") from None

    return called


@contextmanager
def stdout_kept_clean(session: Session) -> Iterator[None]:
    """Send what processors print to standard error, if the result is JSON."""
    if session.out.as_json:
        with redirect_stdout(sys.stderr):
            yield
    else:
        yield
