"""`service`: the ready queues, by a processor in this process."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict, fields
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core.weight import ZERO
from .arguments import PROCESSOR, TRACEBACK
from .command import command, option
from .processors import load, load_callable, stdout_kept_clean
from .progress import Tell
from .session import Session
from .values import positive, weight

if TYPE_CHECKING:
    from ..queue import BatchProcessor, MessageQueue, Serviced
    from ..queue.attempts import Processor


@command(
    PROCESSOR,
    option("--limit TIME/SIZE", "the limit of a call (default: the ring's)", weight),
    option("--batch", "pass whole batches of one origin to the function"),
    option("--drain", "repeat until nothing more can be processed"),
    option("--slice-messages N", "commit after N messages (default: 10000)", positive),
    option("--slice-seconds S", "commit after S seconds (default: 1)", float),
    TRACEBACK,
    example="$ service --processor builtins:print --limit 1000/1000000\n$ service --processor orders:process --drain",
)
def service(session: Session, args: Namespace) -> None:
    """Process the ready queues with a Python function, in this process.

    The function takes a Delivery (payload, origin, page, index, meter). It returns nothing or true if the message is
    processed, false if it is processed without success, or an outcome such as Yield() or BadFormat(). If it raises, the
    message stays, and a later call tries it again.
    """
    processor = _processor(args.processor, args.batch)
    options: dict[str, Any] = {
        name: value
        for name in ("limit", "slice_messages", "slice_seconds")
        if (value := getattr(args, name)) is not None
    }
    with session.queue() as queue, session.out.progress("servicing") as told, stdout_kept_clean(session):
        total, calls = _service(queue, processor, options, args.drain, told)
    if session.out.as_json:
        session.out.value({**asdict(total), "weight": total.weight, "calls": calls})
        return
    if not (total.processed or total.failed or total.set_aside or total.expired):
        back = (
            ", and what was tried went back, to be tried again (`airflow-mq message events`)" if total.went_back else ""
        )
        session.out.remark(
            f"nothing was processed{back}; `airflow-mq queue order` lists the ready queues and why they wait"
        )
        return
    session.out.remark(f"{summary(total)}; weight {total.weight}")


def _service(
    queue: MessageQueue, processor: Processor | BatchProcessor, options: dict[str, Any], drain: bool, told: Tell
) -> tuple[Serviced, int]:
    from ..queue import Serviced

    total, calls = Serviced(weight=ZERO), 0
    while True:
        calls += 1
        # Queues whose messages were completed by tokens get their turns in this call.
        queue.blocks.settle_completed()
        done = queue.service_queues(processor, progress=partial(_progress, told, total), **options)
        total = _sum(total, done)
        if not drain or not (done.processed or done.failed or done.set_aside or done.expired):
            return total, calls


def _progress(told: Tell, before: Serviced, now: Serviced) -> None:
    told(summary(_sum(before, now)))


def _sum(one: Serviced, other: Serviced) -> Serviced:
    from ..queue import Serviced

    numbers = [item.name for item in fields(Serviced) if item.name not in ("weight", "origins")]
    return Serviced(
        weight=one.weight.plus(other.weight),
        origins=max(one.origins, other.origins),
        **{name: getattr(one, name) + getattr(other, name) for name in numbers},
    )


def summary(done: Serviced) -> str:
    """Return the numbers of a result in words."""
    parts = [f"{done.processed:,} processed"]
    for name in ("failed", "set_aside", "went_back", "expired"):
        if getattr(done, name):
            parts.append(f"{getattr(done, name):,} {name.replace('_', ' ')}")
    return ", ".join(parts)


def _processor(name: str, batch: bool) -> Processor | BatchProcessor:
    from ..queue import BatchProcessor, batch_processor

    found = load(name)
    if isinstance(found, BatchProcessor):
        return found
    processor = load_callable(name)
    return batch_processor(processor) if batch else processor
