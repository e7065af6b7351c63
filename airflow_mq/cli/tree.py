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
from .command import Entry

ABOUT = """\
A fair, durable, weight-bounded message queue in your own database.

A first look:
  export AIRFLOW_MQ_STORE=sqlite:///queue.db
  airflow-mq db upgrade
  airflow-mq enqueue acme "an order" "another order"
  airflow-mq footprint
  airflow-mq service --processor builtins:print"""

TREE: tuple[Entry, ...] = (
    database.DB,
    rings.RING,
    enqueuing.ENQUEUE,
    receiving.RECEIVE,
    serving.SERVICE,
    looking.FOOTPRINT,
    looking.ORDER,
    looking.PEEK,
    top.TOP,
    foreseeing.DRY_RUN,
    foreseeing.FORECAST,
    foreseeing.EXPLAIN,
    simulating.SIMULATE,
    overweight.OVERWEIGHT,
    deciding.PAUSE,
    deciding.RESUME,
    deciding.PAUSED,
    deciding.REAP,
    deciding.SWEEP,
    deciding.HEAD,
    deciding.ORIGIN,
    blobs.BLOBS,
    blobs.BLOB,
    blocks.BLOCKS,
    taking.NEXT,
    taking.COMPLETE,
    taking.GIVE_BACK,
    taking.TRANSFER,
    history.EVENTS,
    story.STORY,
    history.LEDGER,
    fairness.FAIRNESS,
    weights.WEIGHTS,
    checking.CHECK,
    housekeeping.HOUSEKEEP,
    doctor.DOCTOR,
    dev.DEV,
    quickening.SPARK,
    completing.COMPLETION,
)
