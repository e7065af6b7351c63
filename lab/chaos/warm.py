"""Imports of a client process, done once for all of them."""

from __future__ import annotations

from airflow_mq import MessageQueue
from airflow_mq.engine.store import postgres
from tests import postgres_server

from . import client, scenarios, table

__all__ = ["MessageQueue", "client", "postgres", "postgres_server", "scenarios", "table"]
