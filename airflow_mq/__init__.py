"""airflow_mq: a fair, durable, weight-bounded message queue for multi-tenant pipelines.

Names are loaded when they are first used: Airflow imports this package in every one of
its processes, and most of them need nothing of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.4.0.dev0"

if TYPE_CHECKING:
    from .engine.queue import MessageQueue
    from .engine.queue.attempts import batch_processor
    from .engine.queue.blocks.block import Block
    from .engine.queue.inspect.forecast import ForecastBlock
    from .engine.queue.inspect.history import History, Step
    from .engine.queue.inspect.reasons import Explanation
    from .engine.queue.inspect.usage import Usage
    from .engine.queue.sending.inline import Inline
    from .engine.queue.set_aside import Judgement
    from .engine.queue.typed import TypedDelivery
    from .engine.queue.values import Batch, Delivery, Enqueued, Peeked, Report, Serviced, SetAside
    from .engine.rules.config import RingConfig
    from .engine.rules.events import Event
    from .engine.rules.invariants import Violation
    from .engine.rules.message import Address, Footprint, Message
    from .engine.rules.outcome import (
        BadFormat,
        Corrupt,
        Done,
        Outcome,
        Overweight,
        StackLimitReached,
        Unsupported,
        Yield,
    )
    from .engine.rules.weight import Costs, LinearWeigher, Weight
    from .processors import Part, Processor, Processors
    from .tariff import Tariff

#: The public names, by the module that defines them.
_NAMES = {
    "engine.rules.config": "RingConfig",
    "engine.rules.events": "Event",
    "engine.rules.invariants": "Violation",
    "engine.rules.message": "Address Footprint Message",
    "engine.rules.outcome": "BadFormat Corrupt Done Outcome Overweight StackLimitReached Unsupported Yield",
    "tariff": "Tariff",
    "engine.rules.weight": "Costs LinearWeigher Weight",
    "processors": "Part Processor Processors",
    "engine.queue": "MessageQueue",
    "engine.queue.attempts": "batch_processor",
    "engine.queue.blocks.block": "Block",
    "engine.queue.inspect.forecast": "ForecastBlock",
    "engine.queue.inspect.history": "History Step",
    "engine.queue.inspect.reasons": "Explanation",
    "engine.queue.inspect.usage": "Usage",
    "engine.queue.sending.inline": "Inline",
    "engine.queue.set_aside": "Judgement",
    "engine.queue.typed": "TypedDelivery",
    "engine.queue.values": "Batch Delivery Enqueued Peeked Report Serviced SetAside",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = [
    "Address", "BadFormat", "Batch", "Block", "Corrupt", "Costs", "Delivery", "Done", "Enqueued", "Event",
    "Explanation", "Footprint", "ForecastBlock", "History", "Inline", "Judgement", "LinearWeigher", "Message",
    "MessageQueue", "Outcome", "Overweight", "Part", "Peeked", "Processor", "Processors", "Report", "RingConfig",
    "Serviced", "SetAside", "StackLimitReached", "Step", "Tariff", "TypedDelivery", "Unsupported", "Usage", "Violation",
    "Weight", "Yield", "batch_processor",
]  # fmt: skip


def __getattr__(name: str) -> object:
    home = "errors" if name == "errors" else _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Not at the top: reading provider info imports this package, and nothing besides.
    from importlib import import_module

    module = import_module(f".{home}", __name__)
    value: object = module if name == "errors" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__", "errors"])
