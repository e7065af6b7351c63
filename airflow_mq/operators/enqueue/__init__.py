"""Enqueueing from a DAG, one operator per source: messages of the author or an XCom, files, rows of a query.

Each operator enqueues all messages of its source or none, and returns `{"count": …, "size": …, "repeated": …}`.

A retry, or a run that is cleared, enqueues nothing twice within the ring's `key_window`: each message has an
idempotency key. A message's own key holds for all senders to its origin, so a later run that finds the same message
does not send it again. Own keys are the `key` of a mapping, the value of `key_column`, and for a file its path with its
version (size and time of change, or the object store's tag). Other messages get a key of the DAG, the run, the task and
their place among those of their origin. With `key_scope="run"` every key is one of the run: then each run sends
everything.

Templates are rendered in what the author wrote; text from XComs, files and rows arrives unchanged.
"""

from __future__ import annotations

from airflow_mq.operators.enqueue.files import EnqueueFilesOperator
from airflow_mq.operators.enqueue.messages import EnqueueMessagesOperator
from airflow_mq.operators.enqueue.rows import EnqueueSqlOperator

__all__ = ["EnqueueFilesOperator", "EnqueueMessagesOperator", "EnqueueSqlOperator"]
