"""All commands."""

from __future__ import annotations

from .block import BLOCK
from .check import check
from .command import Entry
from .completion import completion
from .dev import demo, dev
from .doctor import doctor
from .enqueue import enqueue
from .explain import explain
from .message import MESSAGE
from .payload import PAYLOAD
from .queue import QUEUE
from .report import REPORT
from .ring import RING
from .service import service
from .set_aside import SET_ASIDE
from .store import STORE
from .top import top

ABOUT = """\
A fair, durable, weight-bounded message queue in your own database.

A first look:
  export AIRFLOW_MQ_STORE=sqlite:///queue.db
  airflow-mq store upgrade
  airflow-mq enqueue acme "an order" "another order"
  airflow-mq queue footprint
  airflow-mq service --processor builtins:print"""

TREE: tuple[Entry, ...] = (
    enqueue,
    service,
    top,
    explain,
    check,
    doctor,
    demo,
    dev,
    QUEUE,
    MESSAGE,
    SET_ASIDE,
    BLOCK,
    PAYLOAD,
    RING,
    REPORT,
    STORE,
    completion,
)
