"""A block beside mapped tasks, on one Airflow, and how long a message waits to be processed."""

from __future__ import annotations
