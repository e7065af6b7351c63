"""Calls of processors: the signature of a function decides what it receives for each message.

A function with one parameter receives the delivery. Parameters named `payload`, `origin`, `message` or `delivery`
receive what they name. Otherwise the first parameter is the payload, and the second one the origin. The rule is the
same in a service in place, in a block, by hand and on the command line. It is checked before a message is claimed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import update_wrapper
from typing import Any, cast

from ..rules.errors import InvalidInput
from .attempts import Answer, BatchProcessor, Processor, check_runs

#: Parameters by name; a codec's value takes the place of the payload.
KNOWN = {"payload": "payload", "origin": "origin", "message": "message", "delivery": "message"}
#: Function of a value and the delivery of its message.
Caller = Callable[[Any, Any], Answer]
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def processor_of(function: Callable[..., Answer], fixed: Mapping[str, object] | None = None) -> Processor:
    """Return a processor of deliveries that calls a function by its signature.

    :param fixed: further arguments of the function.
    :raises InvalidInput: if the function has a parameter that no message fills.
    """
    given = _arguments(function, fixed or {})
    if given is None and not fixed:
        return function
    call = _caller(function, given, fixed or {})

    def process(delivery: Any) -> Answer:
        return call(delivery.payload, delivery)

    # The attributes, as `meters_itself`; but the signature is the wrapper's own.
    update_wrapper(process, function)
    del process.__wrapped__  # type: ignore[attr-defined]
    return process


def checked(processor: Callable[..., Answer] | BatchProcessor) -> Processor | BatchProcessor:
    """Return a processor, called by its signature; a batch processor is returned as it is."""
    return processor if isinstance(processor, BatchProcessor) else processor_of(processor)


def caller_of(function: Callable[..., Answer]) -> Caller:
    """Return a function of a value and its delivery that calls a function by its signature."""
    return _caller(function, _arguments(function, ()), {})


def _caller(function: Callable[..., Answer], given: Mapping[str, str] | None, fixed: Mapping[str, object]) -> Caller:
    if given is None:
        return lambda value, delivery: function(delivery, **fixed)
    first = [kind for name, kind in given.items() if name.startswith("/")]
    named = [(name, kind) for name, kind in given.items() if not name.startswith("/")]

    def call(value: Any, delivery: Any) -> Answer:
        parts = {"payload": value, "origin": delivery.origin, "message": delivery}
        return function(*[parts[kind] for kind in first], **{name: parts[kind] for name, kind in named}, **fixed)

    return call


def _arguments(function: Callable[..., Answer], fixed: Collection[str]) -> dict[str, str] | None:
    """Return what each parameter receives, by name, or by `/` and name if it has only a place; None: the delivery."""
    check_runs(function)
    try:
        parameters = inspect.signature(function).parameters.values()
    except TypeError:
        raise InvalidInput(f"invalid processor ({type(function).__name__}): expected a function") from None
    except ValueError:
        # A function in C without a signature.
        return None
    plain = [one for one in parameters if one.kind not in _VARIABLE and one.name not in fixed]
    named = {one.name: KNOWN[one.name] for one in plain if one.name in KNOWN and one.kind is not one.POSITIONAL_ONLY}
    needed = [one for one in plain if one.default is one.empty]
    others = [one for one in needed if one.name not in named]
    is_variable = not needed and not named and any(one.kind is one.VAR_POSITIONAL for one in parameters)
    # Fixed arguments may come first: then the delivery needs its name.
    if is_variable or (not fixed and _takes_delivery(needed, named)):
        return None
    free = [kind for kind in ("payload", "origin") if kind not in named.values()]
    if len(needed) == 1 and others:
        free = ["message"]
    unfilled = [one.name for one in others[len(free) :]] or [
        one.name for one in others if one.kind is one.KEYWORD_ONLY and len(needed) > 1
    ]
    if unfilled or not (named or others):
        raise _invalid(function, f"nothing fills {', '.join(unfilled)}" if unfilled else "it has no parameter")
    keys = (f"/{one.name}" if one.kind is one.POSITIONAL_ONLY else one.name for one in others)
    return {**dict(zip(keys, free)), **named}


def _takes_delivery(needed: Sequence[inspect.Parameter], named: Collection[str]) -> bool:
    """Return whether a function can be called with the delivery as it is."""
    if len(needed) != 1 or needed[0].kind is inspect.Parameter.KEYWORD_ONLY:
        return False
    return KNOWN.get(needed[0].name, "message") == "message" and set(named) <= {needed[0].name}


def _invalid(function: Callable[..., Answer], why: str) -> InvalidInput:
    name = cast("str", getattr(function, "__qualname__", type(function).__name__))
    return InvalidInput(
        f"invalid processor {name} ({why}): expected one parameter, which receives the delivery, or payload and "
        "origin, and message for the delivery; see docs/processing.md"
    )
