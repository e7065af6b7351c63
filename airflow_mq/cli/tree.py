"""All commands."""

from __future__ import annotations

from . import (
    blobs,
    blocks,
    checking,
    completing,
    database,
    deciding,
    dev,
    doctor,
    enqueuing,
    fairness,
    foreseeing,
    history,
    housekeeping,
    looking,
    overweight,
    quickening,
    receiving,
    rings,
    serving,
    simulating,
    story,
    taking,
    top,
    weights,
)
from .command import Entry, Group

ABOUT = """\
A fair, durable, weight-bounded message queue in your own database.

A first look:
  export AIRFLOW_MQ_STORE=sqlite:///queue.db
  airflow-mq store upgrade
  airflow-mq enqueue acme "an order" "another order"
  airflow-mq queue footprint
  airflow-mq service --processor builtins:print"""

QUEUE = Group(
    "queue", "show, pause, sweep and configure queues",
    (
        looking.FOOTPRINT, looking.ORDER, *deciding.SETTINGS, deciding.PAUSE, deciding.RESUME, deciding.PAUSED,
        deciding.SWEEP, deciding.REAP, deciding.HEAD,
    ),
    example="$ queue footprint\n$ queue pause acme --reason 'their API is down'",
)  # fmt: skip
MESSAGE = Group(
    "message", "list messages and their events, receive them, take them one at a time",
    (
        looking.PEEK, history.EVENTS, story.STORY, *receiving.RECEIVE, taking.NEXT, taking.COMPLETE, taking.GIVE_BACK,
        taking.TRANSFER,
    ),
    example="$ message peek acme\n$ message history acme:0:3",
)  # fmt: skip
SET_ASIDE = Group(
    "set-aside", "list, requeue, execute and discard set-aside messages", overweight.SET_ASIDE,
    example="$ set-aside list",
)  # fmt: skip
BLOCK = Group(
    "block", "list and release blocks, and predict the next ones",
    (*blocks.BLOCKS, foreseeing.DRY_RUN, foreseeing.FORECAST, *quickening.CLASS_ARCHIVE),
    example="$ block list --state planned\n$ block dry-run",
)  # fmt: skip
PAYLOAD = Group(
    "payload", "list and read external payloads, which are larger than a page", (blobs.LIST, blobs.GET),
    example="$ payload list",
)  # fmt: skip
RING = Group(
    "ring", "list, create, configure and maintain rings",
    (*rings.RINGS, weights.FIT, weights.MEASURE, housekeeping.HOUSEKEEP),
    example="$ ring create night --order rotation\n$ --ring night enqueue acme 'an order'",
)  # fmt: skip
REPORT = Group(
    "report", "report fairness, measured weights and the ledger, and simulate other policies",
    (fairness.FAIRNESS, history.LEDGER, weights.SHOW, simulating.SIMULATE),
    example="$ report fairness",
)  # fmt: skip
STORE = Group(
    "store", "create and upgrade the tables of a store", database.STORE,
    example="$ --store sqlite:///queue.db store upgrade",
)  # fmt: skip

TREE: tuple[Entry, ...] = (
    enqueuing.ENQUEUE, serving.SERVICE, top.TOP, foreseeing.EXPLAIN, checking.CHECK, doctor.DOCTOR, dev.DEV,
    QUEUE, MESSAGE, SET_ASIDE, BLOCK, PAYLOAD, RING, REPORT, STORE, completing.COMPLETION,
)  # fmt: skip
