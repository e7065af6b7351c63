"""`@task.message_processor`: a function that processes messages, as a task. ::

    @task.message_processor(limit=[60_000, 1 << 28])
    def process(payload, origin):
        ...

    process()

The signature decides what the function receives: a function of one parameter the `Delivery` (payload, origin, id,
address, attempt, headers, block, sent_at), else `payload`, `origin` and `message`, the delivery, by name. Parameters
with the default None that have names of Airflow's context, such as `params=None`, receive these values, and `**context`
receives all of them.

The task services the ready queues within the weight, in its own process, and calls the function for each message; the
return value is the message's outcome. Mapped over the parts of a plan, the task processes those instead:

    plan = PlanBlockOperator(task_id="plan", processors=processors)
    process.override(processors=processors, plan_task_id=plan.task_id).expand(part=plan.output)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import DecoratedOperator, TaskDecorator, task_decorator_factory

from airflow_mq.engine.queue.calls import KNOWN, processor_of
from airflow_mq.hooks import MessageQueueHook
from airflow_mq.operators.base import open_queue
from airflow_mq.operators.blocks.service import Servicing, serviced_as_xcom
from airflow_mq.operators.blocks.xcoms import checked_part, planned_block
from airflow_mq.processors import AnyProcessors, Part, Processors

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_mq import Delivery
    from airflow_mq.engine.queue.attempts import Answer
    from airflow_mq.operators.base import GivenWeight


class MessageProcessorOperator(Servicing, DecoratedOperator):
    """Call a function for each message.

    :param limit: `10m/1GiB` or `[milliseconds, bytes]`; the ring's service weight if left out (templated)
    :param mq_conn_id: id of a connection of type `airflow_mq` (templated)
    :param ring: name of the ring; the connection's if left out (templated)
    :param processors: with `part`, the rules that the plan was made with
    :param plan_task_id: with `part`, the task that planned the block (templated)
    """

    custom_operator_name = "@task.message_processor"
    template_fields: Sequence[str] = (*DecoratedOperator.template_fields, "mq_conn_id", "ring", "limit", "plan_task_id")
    ui_color = "#e8f0e4"

    def __init__(
        self,
        *,
        python_callable: Callable[..., Answer],
        mq_conn_id: str = MessageQueueHook.default_conn_name,
        ring: str | None = None,
        limit: GivenWeight = None,
        processors: AnyProcessors | None = None,
        plan_task_id: str = "plan",
        **kwargs: object,
    ) -> None:
        _refuse_given(python_callable, kwargs)
        super().__init__(python_callable=_with_defaults(python_callable), **kwargs)
        self.mq_conn_id = mq_conn_id
        self.ring = ring
        self.limit = limit
        self.processors = processors
        self.plan_task_id = plan_task_id

    def execute(self, context: Context) -> dict[str, object]:
        parameters = inspect.signature(self.python_callable.processes).parameters
        # As Airflow does in other functions.
        takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
        names = context if takes_all else [name for name, one in parameters.items() if one.default is None]
        filled = {name: context.get(name) for name in names if name in context}
        fixed = filled | {name: value for name, value in (self.op_kwargs or {}).items() if name not in KNOWN}
        part = fixed.pop("part", None)
        if part is not None:
            return self._process_part(context, part, fixed)
        with open_queue(self.mq_conn_id, self.ring, context) as queue:
            process = processor_of(self.python_callable.processes, fixed)
            return serviced_as_xcom(self.service(queue, context, process, self.limit))

    def _process_part(self, context: Context, given: Part, fixed: Mapping[str, object]) -> dict[str, object]:
        if self.processors is None:
            raise ValueError("missing processors: a part is processed by rules: @task.message_processor(processors=…)")
        processors, block = Processors.of(self.processors), planned_block(context, self.plan_task_id)
        part, process = checked_part(given, processors), processor_of(self.python_callable.processes, fixed)

        def function(payload: bytes, origin: str, message: Delivery) -> Answer:
            return process(message)

        with self.processing(context, processors, part, block) as (queue, _):
            tally = self.process_here(queue, block["token"], processors, part, function=function)
        return {"done": tally.processed, "failed": tally.failed, "back": tally.returned}


def _refuse_given(function: Callable[..., Any], call: Mapping[str, Any]) -> None:
    """Raise `ValueError` for a call that gives what the queue gives: the argument would be ignored."""
    given = [name for name in call.get("op_kwargs") or {} if name in KNOWN]
    if given or call.get("op_args"):
        name = function.__name__
        raise ValueError(
            f"invalid call of {name} with {', '.join(given) or 'an argument'}: the queue gives payload, origin and "
            f"message; call {name}() without them, and others by name"
        )


def _with_defaults(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with defaults for what each message gives, and for its part: a DAG leaves them out."""
    if hasattr(function, "processes"):
        return function
    if not callable(function):
        raise ValueError(
            f"invalid processor ({type(function).__name__}): for batches use ServiceQueuesOperator or block"
        )
    signature = inspect.signature(function)
    names = [name for name in signature.parameters if name in KNOWN]
    # The others are `*args` and `**context`.
    plain = [one for one in signature.parameters.values() if not one.kind.name.startswith("VAR_")]
    needed = [one.name for one in plain if one.default is one.empty]
    filled = names or (needed if len(needed) == 1 else [])
    if not filled:
        raise ValueError(
            f"invalid processor {function.__qualname__}: expected one parameter, which receives the delivery, or "
            "payload and origin, and message for the delivery"
        )
    # Arguments are given by name, so a parameter without a default may follow one that a message fills.
    parameters = [
        one.replace(
            default=None if one.name in filled and one.name in needed else one.default,
            kind=one.KEYWORD_ONLY if one.kind is one.POSITIONAL_OR_KEYWORD else one.kind,
        )
        for one in signature.parameters.values()
    ]
    if "part" not in signature.parameters:
        parameters.append(inspect.Parameter("part", inspect.Parameter.KEYWORD_ONLY, default=None))
    parameters.sort(key=lambda one: one.kind)

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    # Its own signature decides what it receives.
    called.processes = function  # type: ignore[attr-defined]
    called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return called


def message_processor_task(
    python_callable: Callable[..., Answer] | None = None, multiple_outputs: bool | None = None, **kwargs: Any
) -> TaskDecorator:
    """Make a task of a function that processes messages; the parameters are those of `MessageProcessorOperator`."""
    if python_callable is None:
        return partial(message_processor_task, multiple_outputs=multiple_outputs, **kwargs)
    return task_decorator_factory(
        # Before Airflow checks with which arguments the function may be called and mapped.
        python_callable=_with_defaults(python_callable),
        multiple_outputs=multiple_outputs,
        decorated_operator_class=MessageProcessorOperator,
        **kwargs,
    )
